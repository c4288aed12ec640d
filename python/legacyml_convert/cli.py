# SPDX-License-Identifier: BSD-3-Clause
"""The command line: one checkpoint in, one .mlb file and its tokenizer out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import gguf_file, hf_tokenizer, huggingface, llama2c, mlb, tokenizer
from .convert import Result, convert, tokenizer_path
from .errors import FormatError, UsageError, about, exit_status, require_file
from .quant import BLOCK
from .source import Source
from .version import __version__


def read_source(path: Path) -> Source:
    """Recognises and opens a checkpoint. Raises ConvertError or OSError."""
    with about(path):
        return _read_source(path)


def _read_source(path: Path) -> Source:
    if path.is_dir():
        return huggingface.read(path)
    require_file(path)
    with open(path, "rb") as stream:
        magic = stream.read(4)
    if magic == b"GGUF":
        return gguf_file.read(path)
    if magic == mlb.MAGIC:
        raise FormatError("it is a .mlb file already")
    if path.suffix == ".safetensors":
        raise FormatError("it holds weights only: give the folder that has config.json beside it")
    return llama2c.read(path)


def read_tokenizer(path: Path) -> tokenizer.TokenizerFile:
    """Recognises and reads a tokenizer. Raises ConvertError or OSError."""
    with about(path):
        return _read_tokenizer(path)


def _read_tokenizer(path: Path) -> tokenizer.TokenizerFile:
    if path.is_dir():
        raise UsageError("it is a folder; --tokenizer takes a file")
    require_file(path)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="legacyml-convert",
        description="Convert a Llama-style checkpoint to .mlb, and its tokenizer with it.",
        epilog="Exit status: 0 done, 2 usage, 3 a file cannot be read or written, 4 format, 5 sizes that do not fit, 6 memory.",
    )
    parser.add_argument("input", metavar="INPUT", type=Path, help="llama2.c checkpoint, Hugging Face folder or GGUF file")
    parser.add_argument("out", metavar="OUT.mlb", type=Path, help="the tokenizer goes to OUT.tokenizer.bin")
    parser.add_argument("--type", choices=sorted(mlb.TYPE_NAMES), default="q8_0", help="weight type (default: q8_0)")
    parser.add_argument("--emb-type", choices=["same", "q8_0"], default="same", help="type of embedding and classifier (default: same)")
    parser.add_argument(
        "--tokenizer",
        metavar="FILE",
        type=Path,
        help="tokenizer.bin, tokenizer.json, tokenizer.model, .tokenizer.bin or GGUF",
    )
    parser.add_argument("--dry-run", action="store_true", help="read and check everything, print what would be written, write nothing")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    parser.add_argument("--version", action="version", version=f"legacyml-convert {__version__}")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    beside = tokenizer_path(out)
    source = read_source(arguments.input)
    given = None if arguments.tokenizer is None else read_tokenizer(arguments.tokenizer)
    with about(arguments.input):
        found = given or source.find_tokenizer()
        done = convert(
            source,
            found,
            out,
            mlb.TYPE_NAMES[arguments.type],
            arguments.emb_type == "q8_0",
            dry_run=arguments.dry_run,
            progress=not arguments.quiet,
        )
    if arguments.dry_run:
        print(f"{out}: {done.header.layout()[-1].end} bytes")
        if found is not None:
            print(f"{beside}: {len(found.data)} bytes")
    if not arguments.quiet:
        _report(arguments, found, done)


def _report(arguments: argparse.Namespace, found: tokenizer.TokenizerFile | None, done: Result) -> None:
    """What has been done, on stderr."""
    out, beside = arguments.out, tokenizer_path(arguments.out)
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)
    if found is not None:
        with_tokenizer = f"tokenizer: {found.description}, {found.n_pieces} pieces, {beside}"
    elif beside.exists():
        with_tokenizer = f"tokenizer: none found, and {beside} from before is left as it is"
    else:
        with_tokenizer = "tokenizer: none found (--tokenizer FILE gives one)"
    slots = done.header.layout()
    print(f"{out}: {len(slots)} tensors, {slots[-1].end} bytes, {arguments.type}; {with_tokenizer}", file=sys.stderr)
    for name, kind in (("F32", mlb.F32), ("Q8_0", mlb.Q8_0), ("Q4_0", mlb.Q4_0)):
        of_kind = [slot for slot in slots if slot.type == kind]
        if of_kind:
            print(f"  {name}: {len(of_kind)} tensors, {sum(slot.n_bytes for slot in of_kind)} bytes", file=sys.stderr)
    worst = done.worst
    place = f"{worst.name}, row {worst.row}, columns {worst.col} to {worst.col + BLOCK - 1}"
    print(f"worst block: {worst.error:.2%} of its root mean square is error, in {place}", file=sys.stderr)
    if arguments.dry_run:
        print("dry run: nothing has been written", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit status."""
    arguments = _parser().parse_args(argv)
    return exit_status("legacyml-convert", lambda: _run(arguments))
