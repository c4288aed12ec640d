# SPDX-License-Identifier: BSD-3-Clause
"""The command line: one checkpoint in, one .mlb file and its tokenizer out."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from pathlib import Path
from typing import BinaryIO, Iterator, Sequence

from tqdm import tqdm

from . import gguf_file, hf_tokenizer, huggingface, llama2c, mlb, tokenizer
from .errors import EXIT_INTERRUPTED, EXIT_IO, ConvertError, FormatError, ShapeError, UsageError
from .quant import BLOCK
from .source import Source
from .version import __version__

_SUFFIX = ".mlb"


def tokenizer_path(out: Path) -> Path:
    """Where the tokenizer of a model lies: .mlb replaced by .tokenizer.bin."""
    return out.with_name(out.name[: -len(_SUFFIX)] + ".tokenizer.bin")


def read_source(path: Path) -> Source:
    """Recognises and opens a checkpoint. Raises ConvertError or OSError."""
    if path.is_dir():
        return huggingface.read(path)
    with open(path, "rb") as stream:
        magic = stream.read(4)
    if magic == b"GGUF":
        return gguf_file.read(path)
    if magic == mlb.MAGIC:
        raise FormatError(f"{path} is a .mlb file already")
    if path.suffix == ".safetensors":
        raise FormatError(f"{path} holds weights only: give the folder that has config.json beside it")
    return llama2c.read(path)


def read_tokenizer(path: Path) -> tokenizer.TokenizerFile:
    """Recognises and reads a tokenizer. Raises ConvertError or OSError."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; --tokenizer takes a file")
    with open(path, "rb") as stream:
        magic = stream.read(4)
    if magic == b"GGUF":
        return gguf_file.read_tokenizer(path)
    if magic == tokenizer.CONTAINER_MAGIC:
        return tokenizer.read_container(path)
    if path.suffix == ".json":
        return hf_tokenizer.read_json(path)
    if path.suffix == ".model":
        return hf_tokenizer.read_model(path)
    return tokenizer.read_plain(path)


@contextlib.contextmanager
def replacing(*paths: Path) -> Iterator[list[BinaryIO]]:
    """Streams that become these files together at the end; after an exception nothing has changed."""
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


def convert(source: Source, out: Path, wtype: int, quantized_embedding: bool) -> tuple[mlb.Header, list[str]]:
    """Writes OUT and, if the source has a tokenizer, its file beside it.

    quantized_embedding: Q8_0 for tok_emb and wcls whatever wtype is. Returns the header and what the user should know.
    """
    source.check()
    header = source.header
    notes = list(source.notes)
    vocab = header.vocab
    if source.tokenizer is not None:
        notes += source.tokenizer.notes
        vocab = source.tokenizer.n_pieces
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
    paths = [out] if source.tokenizer is None else [out, tokenizer_path(out)]
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
        if source.tokenizer is not None:
            streams[1].write(source.tokenizer.data)
    return header, notes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="legacyml-convert",
        description="Convert a Llama-style checkpoint to .mlb, and its tokenizer with it.",
        epilog="Exit status: 0 done, 2 usage, 3 a file cannot be read or written, 4 format, 5 sizes that do not fit.",
    )
    parser.add_argument("input", metavar="INPUT", type=Path, help="llama2.c checkpoint, Hugging Face folder or GGUF file")
    parser.add_argument("out", metavar="OUT.mlb", type=Path, help="the tokenizer goes to OUT.tokenizer.bin")
    parser.add_argument("--type", choices=sorted(mlb.TYPE_NAMES), default="q8_0", help="weight type (default: q8_0)")
    parser.add_argument(
        "--emb-type", choices=["same", "q8_0"], default="same", help="type of embedding and classifier (default: same)"
    )
    parser.add_argument(
        "--tokenizer", metavar="FILE", type=Path, help="tokenizer.bin, tokenizer.json, tokenizer.model, .tokenizer.bin or GGUF"
    )
    parser.add_argument("--version", action="version", version=f"legacyml-convert {__version__}")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    if not out.name.endswith(_SUFFIX) or out.name == _SUFFIX:
        raise UsageError(f"the output is called {out.name}; its name must end in {_SUFFIX}")
    source = read_source(arguments.input)
    if arguments.tokenizer is not None:
        source.tokenizer = read_tokenizer(arguments.tokenizer)
    header, notes = convert(source, out, mlb.TYPE_NAMES[arguments.type], arguments.emb_type == "q8_0")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    beside = tokenizer_path(out)
    if source.tokenizer is not None:
        found = f"tokenizer: {source.tokenizer.description}, {source.tokenizer.n_pieces} pieces, {beside}"
    elif beside.exists():
        found = f"tokenizer: none found, and {beside} from before is left as it is"
    else:
        found = "tokenizer: none found (--tokenizer FILE gives one)"
    slots = header.layout()
    print(f"{out}: {len(slots)} tensors, {slots[-1].end} bytes, {arguments.type}; {found}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit status."""
    try:
        _run(_parser().parse_args(argv))
        return 0
    except ConvertError as error:
        print(f"legacyml-convert: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        print(f"legacyml-convert: {error}", file=sys.stderr)
        return EXIT_IO
    except KeyboardInterrupt:
        print("legacyml-convert: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
