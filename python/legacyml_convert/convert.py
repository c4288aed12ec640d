# SPDX-License-Identifier: BSD-3-Clause
"""From an open checkpoint to finished files: padding, dropped rows, progress, and nothing half-written."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from . import mlb
from .errors import ShapeError, UsageError
from .quant import BLOCK
from .source import Source
from .tokenizer import TokenizerFile

SUFFIX = ".mlb"


def tokenizer_path(out: Path) -> Path:
    """Where the tokenizer of a model lies: .mlb replaced by .tokenizer.bin. Raises UsageError for another name."""
    if not out.name.endswith(SUFFIX) or out.name == SUFFIX:
        raise UsageError(f"the output is called {out.name}; its name must end in {SUFFIX}")
    return out.with_name(out.name[: -len(SUFFIX)] + ".tokenizer.bin")


@contextlib.contextmanager
def replacing(*paths: Path) -> Iterator[list[BinaryIO]]:
    """Streams that become these files together at the end; after an exception nothing has changed."""
    for path in paths:
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder to write into", os.fspath(path.parent))
        if path.is_dir():  # found now: at the end the other file might have been replaced already
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
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


def convert(
    source: Source, tokenizer: TokenizerFile | None, out: Path, wtype: int, quantized_embedding: bool
) -> tuple[mlb.Header, list[str]]:
    """Writes OUT and, if there is a tokenizer, its file beside it.

    quantized_embedding: Q8_0 for tok_emb and wcls whatever wtype is. Returns the header and what the user should know. Raises
    ConvertError or OSError, and has then changed no file.
    """
    source.check()
    header = source.header
    notes = list(source.notes)
    vocab = header.vocab
    if tokenizer is not None:
        notes += tokenizer.notes
        vocab = tokenizer.n_pieces
        if vocab > header.vocab:
            raise ShapeError(
                f"the tokenizer has {vocab} pieces, the model has {header.vocab} embedding rows: they do not belong together"
            )
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
    with replacing(*paths) as streams, tqdm(
        total=sum(slot.rows * slot.cols for slot in slots),
        desc=out.name,
        unit="w",
        unit_scale=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        writer = mlb.MlbWriter(streams[0], header)
        for slot in slots:
            tensor = source.tensors[slot.name]
            writer.write(slot.name, tensor.chunks(slot.rows, slot.cols), tensor.label)
            bar.update(slot.rows * slot.cols)
        writer.close()
        if tokenizer is not None:
            streams[1].write(tokenizer.data)
    return header, notes
