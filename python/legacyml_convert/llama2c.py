# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints of llama2.c: version 0 (no magic), 1 (float32) and 2 (int8 with a scale per group)."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from .errors import FormatError, ShapeError, about
from .mlb import Header
from .source import DataFile, Source, Tensor
from .tokenizer import TokenizerFile, read_plain

MAGIC = 0x616B3432  # "ak42" read from its end
_V0 = struct.Struct("<7i")
_V1 = struct.Struct("<Ii7iB")
_V2 = struct.Struct("<Ii7iBi")
_VERSIONED_HEADER = 256

# What the format does not say and llama2.c assumes.
ROPE_THETA = 10000.0
NORM_EPS = 1e-5


def read(path: Path) -> Source:
    """Reads a checkpoint of any version. Raises FormatError, ShapeError or OSError."""
    size = path.stat().st_size
    with open(path, "rb") as stream:
        head = stream.read(_VERSIONED_HEADER)
    if len(head) < _V0.size:
        raise FormatError(f"{size} bytes are too few for a llama2.c checkpoint, whose header has {_V0.size}")
    version, group = 0, 0
    if struct.unpack_from("<I", head)[0] == MAGIC:
        if len(head) < _VERSIONED_HEADER:
            raise FormatError(f"{size} bytes; the header alone has {_VERSIONED_HEADER}: the file is cut off")
        version = struct.unpack_from("<i", head, 4)[0]
        if version == 1:
            *values, shared = _V1.unpack_from(head)[2:]
        elif version == 2:
            *values, shared, group = _V2.unpack_from(head)[2:]
            if group < 1:
                raise FormatError(f"the group size is {group}; it must be positive")
        else:
            raise FormatError(f"llama2.c checkpoint version {version}; versions 0, 1 and 2 are known")
        if shared not in (0, 1):
            raise FormatError(f"the shared classifier flag is {shared}; it must be 0 or 1")
        start = _VERSIONED_HEADER
    else:
        values = list(_V0.unpack_from(head))
        shared = int(values[5] > 0)
        values[5] = abs(values[5])  # negative: the classifier has weights of its own
        start = _V0.size
    dim, hidden, layers, heads, kv_heads, vocab, max_seq = values
    header = Header(dim, layers, heads, kv_heads, hidden, vocab, max_seq, ROPE_THETA, NORM_EPS, shared_classifier=shared)
    try:
        header.check_source()
    except FormatError as error:
        raise FormatError(f"neither GGUF nor a llama2.c checkpoint, or damaged: {error}") from None

    places, end = _places(header, version, group, start)
    if size != end:
        state = "cut off" if size < end else "too long"
        raise FormatError(f"the file has {size} bytes, its header asks for {end}: it is {state}, or no llama2.c checkpoint")
    data = DataFile(path)
    tensors = {}
    for name, rows, cols, _ in header.shapes():
        if version == 2 and not name.endswith("norm"):
            tensors[name] = _quantized(data, name, rows, cols, places[name], group)
        else:
            tensors[name] = _stored(data, name, rows, cols, places[name])
    notes: list[str] = []
    return Source(header, tensors, lambda: _tokenizer_beside(path, vocab, notes), notes)


def _tokenizer_beside(path: Path, vocab: int, notes: list[str]) -> TokenizerFile | None:
    """tokenizer.bin in the checkpoint's folder. Nobody said that the two belong together, so one that is too large is left."""
    beside = path.parent / "tokenizer.bin"
    if not beside.is_file():
        return None
    with about(beside.name):
        found = read_plain(beside)
    if found.n_pieces > vocab:
        notes.append(f"{beside} has {found.n_pieces} pieces, the model only {vocab} embedding rows: it is not taken")
        return None
    return found


def _places(header: Header, version: int, group: int, start: int) -> tuple[dict[str, int], int]:
    """Offset of every tensor, and where the file ends."""
    shapes = {name: (rows, cols) for name, rows, cols, _ in header.shapes()}

    def of_layers(*kinds: str) -> list[str]:
        return [f"layers.{layer}.{kind}" for kind in kinds for layer in range(header.n_layers)]

    classifier = [] if header.shared_classifier else ["wcls"]
    matrices = of_layers("wq", "wk", "wv", "wo")
    gate = of_layers("w1", "w2", "w3")
    if version == 0:
        # Between the last norm and the classifier lie tables of cosines and sines that nothing needs.
        order = [
            "tok_emb",
            *of_layers("attn_norm"),
            *matrices,
            *of_layers("ffn_norm"),
            *gate,
            "final_norm",
            "",
            *classifier,
        ]
        shapes[""] = (header.max_seq, header.head_dim)
    else:
        norms = [*of_layers("attn_norm", "ffn_norm"), "final_norm"]
        order = [*norms, "tok_emb", *matrices, *gate, *classifier]
    places = {}
    at = start
    for name in order:
        places[name] = at
        rows, cols = shapes[name]
        count = rows * cols
        if version == 2 and not name.endswith("norm"):
            if count % group:
                raise ShapeError(f"tensor {name} has {rows} x {cols} weights, which groups of {group} do not divide")
            at += count + count // group * 4
        else:
            at += count * 4
    return places, at


def _stored(data: DataFile, name: str, rows: int, cols: int, offset: int) -> Tensor:
    """A tensor of float32 values."""

    def read_rows(first: int, last: int) -> np.ndarray:
        values = data.read(offset + first * cols * 4, (last - first) * cols * 4)
        return values.view("<f4").reshape(last - first, cols)

    return Tensor(name, rows, cols, read_rows)


def _quantized(data: DataFile, name: str, rows: int, cols: int, offset: int, group: int) -> Tensor:
    """A tensor of version 2: int8 values, then one float32 for each group. Groups run on over the ends of rows."""
    scales_at = offset + rows * cols

    def read_rows(first: int, last: int) -> np.ndarray:
        begin, end = first * cols, last * cols
        first_group, last_group = begin // group, -(-end // group)
        q = data.read(offset + begin, end - begin).view(np.int8)
        scales = data.read(scales_at + first_group * 4, (last_group - first_group) * 4).view("<f4")
        scale = scales[np.arange(begin, end) // group - first_group]
        return (q.astype(np.float32) * scale).reshape(last - first, cols)

    return Tensor(name, rows, cols, read_rows, "Q8")
