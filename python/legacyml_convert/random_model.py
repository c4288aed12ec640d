# SPDX-License-Identifier: BSD-3-Clause
"""Models with random weights, for tests and benchmarks: the same bytes for the same options, on every machine."""

from __future__ import annotations

import argparse
import itertools
import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from . import mlb, tokenizer
from .convert import convert
from .errors import UsageError, exit_status
from .source import Source, Tensor

_BYTES = 256
_LETTERS = " abcdefghijklmnopqrstuvwxyz"


def _random_tensor(name: str, rows: int, cols: int, seed: int, index: int, middle: float, reach: float) -> Tensor:
    """Values evenly spread over middle +- reach; row r is the same however the rows are read."""

    def read(first: int, last: int) -> np.ndarray:
        bits = np.random.PCG64([seed, index])  # raw integers, whose sequence numpy keeps
        bits.advance(first * cols)
        raw = bits.random_raw((last - first) * cols) >> np.uint64(40)
        even = raw.astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
        return (np.float32(middle) + even * np.float32(reach)).reshape(last - first, cols)

    return Tensor(name, rows, cols, read)


def random_source(header: mlb.Header, seed: int) -> Source:
    """A model whose logits are of order 1 to 5."""
    tensors = {}
    for index, (name, rows, cols, kind) in enumerate(header.shapes()):
        if name == "rope_factors":
            tensors[name] = Tensor.of(name, np.linspace(1, 8, cols, dtype=np.float32))
        elif kind == mlb.F32:
            tensors[name] = _random_tensor(name, rows, cols, seed, index, 1.0, 0.5)
        else:
            # Evenly spread over +-sqrt(3) s has the standard deviation s. A product with a normalised vector then has the
            # deviation s * sqrt(cols): 1 in the layers, 1.5 for the logits.
            deviation = (1.5 if name in ("tok_emb", "wcls") else 1.0) / math.sqrt(cols)
            tensors[name] = _random_tensor(name, rows, cols, seed, index, 0.0, deviation * math.sqrt(3))
    return Source(header, tensors)


def _strings() -> Iterator[str]:
    """All strings over _LETTERS by length, then alphabet."""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(_LETTERS, repeat=length))


def plain_tokenizer(vocab: int) -> tokenizer.TokenizerFile:
    """tokenizer.bin: unknown, begin and end, all bytes, then letters and strings of letters."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(_BYTES))]
    if vocab < len(names):
        raise UsageError(f"a tokenizer needs a vocabulary of {len(names)} or more, not {vocab}")
    pieces = [name.encode() for name in itertools.islice(itertools.chain(names, _strings()), vocab)]
    records = (struct.pack("<fi", -float(i), len(piece)) + piece for i, piece in enumerate(pieces))
    data = struct.pack("<I", max(map(len, pieces))) + b"".join(records)
    return tokenizer.TokenizerFile(data, vocab, "plain tokenizer.bin")


def container_tokenizer(vocab: int) -> tokenizer.TokenizerFile:
    """A container: byte-level BPE with the GPT-2 split and chatml's special pieces, then strings of letters as merges."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    if vocab < len(special) + _BYTES:
        raise UsageError(f"a tokenizer needs a vocabulary of {len(special) + _BYTES} or more, not {vocab}")
    letters = {byte: letter for letter, byte in tokenizer.BYTE_OF_LETTER.items()}
    tokens = special + [letters[byte] for byte in range(_BYTES)]
    merges = []
    for text in itertools.islice((text for text in _strings() if len(text) > 1), vocab - len(tokens)):
        spelled = "".join(letters[ord(letter)] for letter in text)
        merges.append((spelled[:-1], spelled[-1]))
        tokens.append(spelled)
    container = tokenizer.byte_level(tokens, merges, range(len(special)))
    container.pre = tokenizer.WORDS_GPT2
    container.bos_id = 1
    container.stop_ids = [0, 2]
    container.template = "chatml"
    container.system = "You are a random model."
    return container.pack()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gen_random.py", description="Write a model with random weights.")
    parser.add_argument("out", metavar="OUT.mlb", type=Path)
    for name, default in (
        ("dim", 64),
        ("layers", 2),
        ("heads", 4),
        ("hidden", 96),
        ("vocab", 300),
        ("max-seq", 256),
        ("seed", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"(default: {default})")
    parser.add_argument("--kv-heads", type=int, metavar="N", help="(default: as many as heads)")
    parser.add_argument("--theta", type=float, default=10000.0, help="base of the rotary frequencies (default: 10000)")
    parser.add_argument("--eps", type=float, default=1e-5, help="added under the root of a norm (default: 1e-5)")
    parser.add_argument("--rope-factors", action="store_true", help="divide the rotary frequencies by 1 to 8")
    parser.add_argument("--type", choices=sorted(mlb.TYPE_NAMES), default="q8_0", help="(default: q8_0)")
    parser.add_argument("--emb-type", choices=["same", "q8_0"], default="same", help="(default: same)")
    tied = parser.add_mutually_exclusive_group()
    tied.add_argument("--tied", action="store_true", help="logits use the embedding (the default)")
    tied.add_argument("--untied", action="store_true", help="logits have a matrix of their own")
    parser.add_argument(
        "--tokenizer", choices=["plain", "container"], help="also write a tokenizer that spells any text"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs tools/gen_random.py; returns its exit status."""
    arguments = _parser().parse_args(argv)

    def run() -> None:
        if arguments.seed < 0:
            raise UsageError(f"the seed is {arguments.seed}; it must not be negative")
        header = mlb.Header(
            arguments.dim,
            arguments.layers,
            arguments.heads,
            arguments.heads if arguments.kv_heads is None else arguments.kv_heads,
            arguments.hidden,
            arguments.vocab,
            arguments.max_seq,
            arguments.theta,
            arguments.eps,
            shared_classifier=int(not arguments.untied),
            rope_factors=int(arguments.rope_factors),
        )
        header.check_source()
        makers = {None: lambda vocab: None, "plain": plain_tokenizer, "container": container_tokenizer}
        made = makers[arguments.tokenizer](arguments.vocab)
        source = random_source(header, arguments.seed)
        convert(source, made, arguments.out, mlb.TYPE_NAMES[arguments.type], arguments.emb_type == "q8_0")

    return exit_status("gen_random.py", run)
