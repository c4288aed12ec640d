# SPDX-License-Identifier: BSD-3-Clause
"""From an open checkpoint to finished files: padding, dropped rows, progress, and nothing half-written."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from tqdm import tqdm

from . import mlb
from .errors import ShapeError, UsageError
from .quant import BLOCK
from .source import Source
from .tokenizer import TokenizerFile

SUFFIX = ".mlb"
# Embedding rows without a piece come from padding to a multiple of 64 to 256, which makes training faster, and from rows kept for tokens to come.
# A tokenizer that lacks more of them has been cut off, or is another model's.
_MOST_SPARE_ROWS = 64
_MOST_SPARE_PART = 8


def tokenizer_path(out: Path) -> Path:
    """Where the tokenizer of a model lies: .mlb replaced by .tokenizer.bin. Raises UsageError for another name."""
    if not out.name.endswith(SUFFIX) or out.name == SUFFIX:
        raise UsageError(f"the output is called {out.name}; its name must end in {SUFFIX}")
    return out.with_name(out.name[: -len(SUFFIX)] + ".tokenizer.bin")


class _Nowhere(io.RawIOBase):
    """A stream that forgets what is written."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset


def _check_places(paths: Sequence[Path]) -> None:
    """Raises OSError if files cannot become these: at the end one of them might have been replaced already."""
    for path in paths:
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder to write into", os.fspath(path.parent))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))


@contextlib.contextmanager
def replacing(*paths: Path) -> Iterator[list[BinaryIO]]:
    """Streams that become these files together at the end; after an exception nothing has changed."""
    _check_places(paths)
    temporary = [path.with_name(f"{path.name}.{os.getpid()}.part") for path in paths]
    try:
        with contextlib.ExitStack() as stack:
            streams: list[BinaryIO] = [stack.enter_context(open(part, "wb")) for part in temporary]
            yield streams
            for stream in streams:
                stream.flush()
                os.fsync(stream.fileno())
        for part, path in zip(temporary, paths):
            os.replace(part, path)
    finally:
        for part in temporary:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()


@contextlib.contextmanager
def _checking(*paths: Path) -> Iterator[list[BinaryIO]]:
    """As replacing(), but what is written goes nowhere."""
    _check_places(paths)
    yield [cast(BinaryIO, _Nowhere()) for _ in paths]


@dataclasses.dataclass(frozen=True)
class Result:
    """What has been written: the header, what the user should know, and the worst of the quantized blocks."""

    header: mlb.Header
    notes: list[str]
    worst: mlb.BlockError


def convert(
    source: Source,
    tokenizer: TokenizerFile | None,
    out: Path,
    wtype: int,
    quantized_embedding: bool,
    *,
    dry_run: bool = False,
    progress: bool = True,
) -> Result:
    """Writes OUT and, if there is a tokenizer, its file beside it.

    quantized_embedding: Q8_0 for tok_emb and wcls whatever wtype is. dry_run: everything but the writing. progress: a bar, if stderr is a
    terminal. Raises ConvertError or OSError, and has then changed no file.
    """
    source.check()
    header = source.header
    notes = list(source.notes)
    vocab = header.vocab
    if tokenizer is not None:
        notes += tokenizer.notes
        vocab = tokenizer.n_pieces
        _check_pieces(tokenizer, header.vocab)
        if vocab < header.vocab:
            notes.append(f"the tokenizer has {vocab} pieces: embedding rows {vocab} to {header.vocab - 1} are dropped")
    hidden = -(-header.hidden_dim // BLOCK) * BLOCK
    if hidden != header.hidden_dim:
        notes.append(f"hidden_dim {header.hidden_dim} is padded with zeros to {hidden}, which changes no result")
    header = dataclasses.replace(
        header,
        vocab=vocab,
        hidden_dim=hidden,
        wtype=wtype,
        emb_type=int(quantized_embedding and wtype != mlb.Q8_0),
    )
    slots = header.layout()
    paths = [out] if tokenizer is None else [out, tokenizer_path(out)]
    with contextlib.ExitStack() as stack:
        streams = stack.enter_context((_checking if dry_run else replacing)(*paths))
        bar = stack.enter_context(
            tqdm(
                total=sum(slot.rows * slot.cols for slot in slots),
                desc=out.name,
                unit="w",
                unit_scale=True,
                disable=not (progress and sys.stderr.isatty()),
            )
        )
        # What overflows here is refused as not finite; numpy need not say it too.
        stack.enter_context(np.errstate(over="ignore", invalid="ignore"))

        def counted(chunks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
            for chunk in chunks:
                yield chunk
                bar.update(chunk.size)

        writer = mlb.MlbWriter(streams[0], header)
        for slot in slots:
            tensor = source.tensors[slot.name]
            writer.write(slot.name, counted(tensor.chunks(slot.rows, slot.cols)), tensor.label)
        writer.close()
        if tokenizer is not None:
            streams[1].write(tokenizer.data)
    assert writer.worst is not None  # every model has matrices
    return Result(header, notes, writer.worst)


def _check_pieces(tokenizer: TokenizerFile, rows: int) -> None:
    """Refuses a tokenizer that cannot belong to a model with so many embedding rows.

    A plain tokenizer.bin does not say how many pieces it has, so that one that is cut off between two of them looks whole.
    """
    n = tokenizer.n_pieces
    if n > rows:
        raise ShapeError(f"the tokenizer has {n} pieces, the model has {rows} embedding rows: they do not belong together")
    spare = max(_MOST_SPARE_ROWS, rows // _MOST_SPARE_PART)
    if n < rows - spare:
        raise ShapeError(
            f"the tokenizer has {n} pieces, the model has {rows} embedding rows; expected at least {rows - spare} pieces: "
            "the tokenizer is cut off, or another model's"
        )
