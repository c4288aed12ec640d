# SPDX-License-Identifier: BSD-3-Clause
"""The .mlb file: header, order of tensors, writer and reader. docs/formats.md says the same in words."""

from __future__ import annotations

import dataclasses
import math
import os
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np

from . import quant
from .errors import FormatError, ShapeError, about

MAGIC = b"MLB1"
VERSION = 1
HEADER_BYTES = 256
ALIGNMENT = 64

F32, Q8_0, Q4_0 = 0, 1, 2
TYPE_NAMES = {"q8_0": Q8_0, "q4_0": Q4_0}

_FIELDS = struct.Struct("<4sI7I2f4I")
_PADDING = HEADER_BYTES - _FIELDS.size

_SCALES_HELD = 256
"""Chunks whose scales are held before they are written."""

# How far a rotary frequency may be divided.
LEAST_FACTOR, MOST_FACTOR = 0.01, 1e9

_RANGES = {
    "dim": (32, 65536),
    "n_layers": (1, 1024),
    "n_heads": (1, 4096),
    "n_kv_heads": (1, 4096),
    "hidden_dim": (1, 65536),
    "vocab": (1, 16777216),
    "max_seq": (1, 16777216),
}


@dataclasses.dataclass(frozen=True)
class Slot:
    """One tensor's place: rows x cols, type F32 (one array, d_offset unused), Q8_0 or Q4_0 (two arrays)."""

    name: str
    rows: int
    cols: int
    type: int
    offset: int
    d_offset: int
    end: int

    @property
    def q_bytes(self) -> int:
        """Bytes of the first array."""
        return self.rows * self.cols * 4 if self.type == F32 else self.rows * self.cols // self.type

    @property
    def n_bytes(self) -> int:
        """Bytes of both arrays without what lies between."""
        return self.q_bytes + (0 if self.type == F32 else self.end - self.d_offset)


@dataclasses.dataclass(frozen=True)
class Header:
    """The header's fields by their names in docs/formats.md.

    A source may have a hidden_dim that is not a multiple of 32; a file may not.
    """

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    hidden_dim: int
    vocab: int
    max_seq: int
    rope_theta: float
    norm_eps: float
    wtype: int = Q8_0
    shared_classifier: int = 0
    emb_type: int = 0
    rope_factors: int = 0

    @property
    def head_dim(self) -> int:
        """Elements of one head."""
        return self.dim // self.n_heads

    @property
    def kv_dim(self) -> int:
        """Rows of wk and wv."""
        return self.head_dim * self.n_kv_heads

    def with_rope_factors(self) -> Header:
        """The same with an array of frequency divisors."""
        return dataclasses.replace(self, rope_factors=1)

    def with_vocab(self, vocab: int) -> Header:
        """The same with another number of embedding rows."""
        return dataclasses.replace(self, vocab=vocab)

    def check_source(self) -> None:
        """Raises FormatError or ShapeError if no .mlb file can have these fields (hidden_dim can be padded)."""
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise FormatError(f"{name} is {value}; it must be from {low} to {high}")
        if self.dim % quant.BLOCK:
            raise ShapeError(f"dim is {self.dim}; it must be a multiple of {quant.BLOCK}")
        if self.dim % self.n_heads or self.head_dim % 2:
            raise ShapeError(f"dim {self.dim} over {self.n_heads} heads gives no even head size")
        if self.n_heads % self.n_kv_heads:
            raise ShapeError(f"{self.n_heads} heads cannot share {self.n_kv_heads} key/value heads evenly")
        if not (math.isfinite(self.rope_theta) and 1 <= self.rope_theta <= float(np.finfo(np.float32).max)):
            raise FormatError(f"rope_theta is {self.rope_theta:g}; it must be finite and at least 1")
        # Compared as it will be stored: 1e-12 itself must survive the rounding to binary32.
        if not np.float32(1e-12) <= np.float32(self.norm_eps) <= 1:
            raise FormatError(f"norm_eps is {self.norm_eps:g}; it must be from 1e-12 to 1")

    def check(self) -> None:
        """Raises FormatError or ShapeError if these fields are not allowed in a file."""
        self.check_source()
        if self.hidden_dim % quant.BLOCK:
            raise ShapeError(f"hidden_dim is {self.hidden_dim}; it must be a multiple of {quant.BLOCK}")
        if self.wtype not in (Q8_0, Q4_0):
            raise FormatError(f"wtype is {self.wtype}; it must be 1 or 2")
        for name in ("shared_classifier", "emb_type", "rope_factors"):
            if getattr(self, name) not in (0, 1):
                raise FormatError(f"{name} is {getattr(self, name)}; it must be 0 or 1")
        if self.emb_type == 1 and self.wtype == Q8_0:
            raise FormatError("emb_type is 1 although wtype is 1; it must be 0")

    def pack(self) -> bytes:
        """The 256 bytes of the header."""
        self.check()
        values = dataclasses.astuple(self)
        return _FIELDS.pack(MAGIC, VERSION, *values) + bytes(_PADDING)

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """Reads and checks the first 256 bytes of a file."""
        if len(data) < HEADER_BYTES:
            raise FormatError(f"{len(data)} bytes are too few for a .mlb file; the header alone has {HEADER_BYTES}")
        magic, version, *values = _FIELDS.unpack_from(data)
        if magic != MAGIC:
            raise FormatError(f"not a .mlb file: it begins with {magic!r} and not with {MAGIC!r}")
        if version != VERSION:
            raise FormatError(f".mlb version {version}; this program reads version {VERSION}")
        if any(data[_FIELDS.size : HEADER_BYTES]):
            raise FormatError("the header's padding is not zero")
        header = cls(*values)
        header.check()
        return header

    def shapes(self) -> Iterator[tuple[str, int, int, int]]:
        """(name, rows, cols, type) of every tensor in file order."""
        embedding = Q8_0 if self.emb_type else self.wtype
        yield "tok_emb", self.vocab, self.dim, embedding
        for layer in range(self.n_layers):
            prefix = f"layers.{layer}."
            yield prefix + "attn_norm", 1, self.dim, F32
            yield prefix + "wq", self.dim, self.dim, self.wtype
            yield prefix + "wk", self.kv_dim, self.dim, self.wtype
            yield prefix + "wv", self.kv_dim, self.dim, self.wtype
            yield prefix + "wo", self.dim, self.dim, self.wtype
            yield prefix + "ffn_norm", 1, self.dim, F32
            yield prefix + "w1", self.hidden_dim, self.dim, self.wtype
            yield prefix + "w2", self.dim, self.hidden_dim, self.wtype
            yield prefix + "w3", self.hidden_dim, self.dim, self.wtype
        yield "final_norm", 1, self.dim, F32
        if not self.shared_classifier:
            yield "wcls", self.vocab, self.dim, embedding
        if self.rope_factors:
            yield "rope_factors", 1, self.head_dim // 2, F32

    def layout(self) -> list[Slot]:
        """Every tensor's place, in file order; the last one's end is the size of the file."""
        slots = []
        at = HEADER_BYTES
        for name, rows, cols, kind in self.shapes():
            offset = _align(at)
            at = d_offset = offset + rows * cols * 4 if kind == F32 else _align(offset + rows * cols // kind)
            if kind != F32:
                at = d_offset + rows * (cols // quant.BLOCK) * 4
            slots.append(Slot(name, rows, cols, kind, offset, d_offset, at))
        return slots


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


@dataclasses.dataclass(frozen=True)
class BlockError:
    """Where a quantized block is worst: root mean square of the change over that of the block, in which row and from which column."""

    error: float
    name: str
    row: int
    col: int


class MlbWriter:
    """Writes a .mlb file into an empty stream that can seek: the header at once, then write() per tensor, then close().

    Tensors must come in file order. A tensor is taken in chunks of rows, and no more than some of its scales are held.
    """

    def __init__(self, stream: BinaryIO, header: Header) -> None:
        self._stream = stream
        self._slots = iter(header.layout())
        self._at = 0
        self.worst: BlockError | None = None
        """The block with the largest error so far."""
        self._put(0, header.pack())

    def write(self, name: str, chunks: Iterable[np.ndarray], label: str = "") -> None:
        """Quantizes and writes one tensor from float32 arrays (some rows, cols).

        label names the tensor in messages. Raises FormatError for weights that are not finite.
        """
        slot = next(self._slots)
        if slot.name != name:
            raise ValueError(f"the next tensor is {slot.name}, not {name}")
        at, d_at = slot.offset, slot.d_offset
        scales: list[bytes] = []
        rows = 0

        def put_scales() -> None:
            nonlocal d_at
            data = b"".join(scales)
            self._put(d_at, data)
            d_at += len(data)
            scales.clear()

        for chunk in chunks:
            # Of Q8_0 the scales say it.
            if slot.type != Q8_0 and not np.isfinite(chunk).all():
                raise FormatError(f"tensor {label or name} has weights that are not finite")
            if slot.type == F32:
                data = chunk.astype("<f4").tobytes()
            else:
                q, d = (quant.quantize_q8 if slot.type == Q8_0 else quant.quantize_q4)(chunk)
                if not np.isfinite(d).all():
                    raise FormatError(f"tensor {label or name} has weights that are not finite")
                self._note_worst(slot, rows, quant.worst_block(chunk, q, d))
                data = q.tobytes()
                scales.append(d.astype("<f4").tobytes())
            self._put(at, data)
            at += len(data)
            rows += chunk.shape[0]
            if len(scales) == _SCALES_HELD:
                put_scales()
        if rows != slot.rows:
            raise ValueError(f"{name} has {slot.rows} rows, not {rows}")
        if scales:
            put_scales()

    def close(self) -> None:
        """Checks that every tensor has been written. The stream stays open."""
        missing = next(self._slots, None)
        if missing is not None:
            raise ValueError(f"tensor {missing.name} has not been written")

    def _note_worst(self, slot: Slot, first_row: int, found: tuple[float, int]) -> None:
        error, block = found
        if self.worst is None or error > self.worst.error:
            row, col = divmod(block * quant.BLOCK, slot.cols)
            self.worst = BlockError(error, slot.name, first_row + row, col)

    def _put(self, offset: int, data: bytes) -> None:
        """What lies between is zero: a file is filled up with zeros where it is skipped."""
        if offset != self._at:
            self._stream.seek(offset)
        self._stream.write(data)
        self._at = offset + len(data)


class MlbFile:
    """A .mlb file, mapped: header, and every tensor as arrays. Raises FormatError, ShapeError or OSError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with open(path, "rb") as stream:
            with about(path):
                self.header = Header.unpack(stream.read(HEADER_BYTES))
            size = stream.seek(0, os.SEEK_END)
        slots = self.header.layout()
        if size != slots[-1].end:
            raise FormatError(f"{os.fspath(path)}: the file has {size} bytes; its header asks for {slots[-1].end}")
        self.slots = {slot.name: slot for slot in slots}
        self._data = np.memmap(path, dtype=np.uint8, mode="r")

    def q(self, name: str) -> np.ndarray:
        """Stored quants: int8 (rows, cols) of Q8_0, uint8 (rows, cols / 2) of Q4_0, float32 (1, cols) of a norm."""
        slot = self.slots[name]
        kind = {F32: "<f4", Q8_0: "i1", Q4_0: "u1"}[slot.type]
        return self._data[slot.offset : slot.offset + slot.q_bytes].view(kind).reshape(slot.rows, -1)

    def d(self, name: str) -> np.ndarray:
        """Scales: float32 (rows, cols / 32). Only for matrices."""
        slot = self.slots[name]
        return self._data[slot.d_offset : slot.end].view("<f4").reshape(slot.rows, -1)

    def array(self, name: str) -> np.ndarray:
        """The tensor's values: float32 (rows, cols)."""
        kind = self.slots[name].type
        if kind == F32:
            return np.array(self.q(name))
        return (quant.dequantize_q8 if kind == Q8_0 else quant.dequantize_q4)(self.q(name), self.d(name))
