# SPDX-License-Identifier: BSD-3-Clause
"""What every reader of a checkpoint hands over: sizes, tensors that are read in rows, and a tokenizer if there is one."""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import numpy as np

from .errors import FormatError, ShapeError
from .mlb import LEAST_FACTOR, MOST_FACTOR, Header
from .tokenizer import TokenizerFile

CHUNK_ELEMENTS = 1 << 17
"""Elements converted at once: what stays in the cache."""


# Of every pattern: a table is twice as fast as numpy's conversion.
with np.errstate(invalid="ignore"):
    _VALUE_OF_F16 = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def widen(values: np.ndarray) -> np.ndarray:
    """F32, F16, or the bits of BF16 as u16 -> float32 with the same values."""
    if values.dtype == "<f4":
        return values
    if values.dtype == "<f2":
        return _VALUE_OF_F16.take(values.view("<u2"))
    bits = values.astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


class DataFile:
    """A file that stays open and is read piece by piece.

    It is not mapped: pages of a map count as memory of the process, and a 32-bit system has no room to map a large file.
    """

    def __init__(self, path: Path) -> None:
        self._stream = open(path, "rb", buffering=0)
        weakref.finalize(self, self._stream.close)
        self.size = self._stream.seek(0, 2)

    def read(self, offset: int, size: int) -> np.ndarray:
        """uint8 (size,). Raises FormatError if the file has become too short for it."""
        out = np.empty(size, np.uint8)
        self._stream.seek(offset)
        done = 0
        while done < size:
            n = self._stream.readinto(out[done:].data)
            if not n:
                raise FormatError(f"the file has shrunk to {offset + done} bytes while it was read; it had {self.size}")
            done += n
        return out


@dataclasses.dataclass(frozen=True)
class Tensor:
    """rows x cols values; read(first, last) gives float32 (last - first, cols). label is its name in the source, stored its type there."""

    label: str
    rows: int
    cols: int
    read: Callable[[int, int], np.ndarray]
    stored: str = "F32"

    def chunks(self, rows: int, cols: int) -> Iterator[np.ndarray]:
        """The first `rows` rows; what the tensor lacks of rows x cols is filled with zeros."""
        step = max(1, CHUNK_ELEMENTS // cols)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            have = max(0, min(last, self.rows) - first)
            values = self.read(first, first + have) if have else np.zeros((0, self.cols), np.float32)
            if (have, self.cols) != (last - first, cols):
                values = np.pad(values, ((0, last - first - have), (0, cols - self.cols)))
            yield values

    @classmethod
    def of(cls, label: str, values: np.ndarray) -> Tensor:
        """A tensor that is in memory: float32 (rows, cols) or (cols,)."""
        values = np.atleast_2d(values)
        return cls(label, values.shape[0], values.shape[1], lambda first, last: values[first:last])


@dataclasses.dataclass
class Source:
    """A checkpoint. header has the source's own hidden_dim and embedding rows; tensors are named as in Header.shapes().

    find_tokenizer reads the tokenizer that belongs to it, None if there is none; notes are what the user should know.
    """

    header: Header
    tensors: dict[str, Tensor]
    find_tokenizer: Callable[[], TokenizerFile | None] = lambda: None
    notes: list[str] = dataclasses.field(default_factory=list)

    def check(self) -> None:
        """Raises FormatError or ShapeError unless every tensor is there with its shape."""
        self.header.check_source()
        for name, rows, cols, _ in self.header.shapes():
            tensor = self.tensors[name]
            if (tensor.rows, tensor.cols) != (rows, cols):
                found = f"{tensor.rows} x {tensor.cols}"
                raise ShapeError(f"tensor {tensor.label} is {found}; the configuration asks for {rows} x {cols}")


def check_factors(factors: np.ndarray) -> np.ndarray:
    """Frequency divisors as float32, or FormatError when one is out of range."""
    factors = np.asarray(factors, dtype=np.float32)
    bad = ~((factors >= LEAST_FACTOR) & (factors <= MOST_FACTOR))
    if bad.any():
        value = float(factors[bad][0])
        raise FormatError(f"a rotary frequency is divided by {value:g}; {LEAST_FACTOR:g} to {MOST_FACTOR:g} is allowed")
    return factors


def linear_factors(head_dim: int, factor: float) -> np.ndarray:
    """Divisors for positions that are divided by `factor`."""
    return check_factors(np.full(head_dim // 2, factor))


def llama3_factors(head_dim: int, theta: float, factor: float, low: float, high: float, original_context: float) -> np.ndarray:
    """Divisors of the llama3 scaling: short waves stay, long ones are divided by factor, those between are blended.

    The rule is that of transformers' modeling_rope_utils.
    """
    if not (1 <= factor < math.inf and 0 < low < high < math.inf and 0 < original_context < math.inf):
        raise FormatError(
            f"llama3 rope scaling with factor {factor:g}, frequency factors {low:g} and {high:g} and original context "
            f"{original_context:g}; expected factor >= 1, 0 < low < high and a positive context"
        )
    frequency = float(theta) ** -(np.arange(0, head_dim, 2) / head_dim)
    wavelength = 2 * math.pi / frequency
    smooth = (original_context / wavelength - low) / (high - low)
    blended = 1 / ((1 - smooth) / factor + smooth)
    divisor = np.where(wavelength > original_context / low, factor, blended)
    return check_factors(np.where(wavelength < original_context / high, 1.0, divisor))
