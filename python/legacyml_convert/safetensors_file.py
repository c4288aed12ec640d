# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of a .safetensors file as float32.

The file is a u64 length, that many bytes of JSON, and the data, to which the JSON's offsets refer; the tensors tile the data. It is read
here and not by the safetensors library, which maps the whole file and cannot give BF16 to numpy.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FormatError, ShapeError, require_file
from .source import DataFile, Tensor, widen

_STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Bits of an element of every type that the format has.
_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64, "BOOL": 8}
_BITS |= {f"F8_{kind}": 8 for kind in ("E4M3", "E5M2", "E8M0", "E4M3FNUZ", "E5M2FNUZ")}
_BITS |= {"BF16": 16, "F16": 16, "F32": 32, "F64": 64}
_BITS |= {f"{sign}{bits}": bits for sign in "IU" for bits in (8, 16, 32, 64)}
_MOST_HEADER_BYTES = 100_000_000
_MOST_DIMENSIONS = 16


class SafetensorsFile:
    """The tensors of one file by name. Raises FormatError or OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        require_file(path)
        self._data = DataFile(path)
        try:
            self._entries, self._start = _read_header(self._data)
        except FormatError as error:
            raise FormatError(f"{path.name}: not a whole safetensors file: {error}") from None

    def names(self) -> set[str]:
        """All tensors of the file."""
        return set(self._entries)

    def tensor(self, name: str, order: np.ndarray | None = None) -> Tensor:
        """A tensor of one or two dimensions; row i of the result is row order[i] of the file.

        Widening from F16 and BF16 is exact.
        """
        entry = self._entries[name]
        stored = _STORED.get(entry["dtype"])
        if stored is None:
            raise FormatError(f"{self.path.name}: tensor {name} has type {entry['dtype']}; {', '.join(_STORED)} can be converted")
        shape = entry["shape"]
        if len(shape) not in (1, 2):
            raise ShapeError(f"{self.path.name}: tensor {name} has {len(shape)} dimensions; expected one or two")
        rows, cols = shape if len(shape) == 2 else (1, shape[0])
        begin = self._start + entry["data_offsets"][0]
        row_bytes = cols * np.dtype(stored).itemsize

        def read_rows(first: int, last: int) -> np.ndarray:
            if order is None:
                raw = self._data.read(begin + first * row_bytes, (last - first) * row_bytes)
            else:
                raw = np.empty((last - first, row_bytes), np.uint8)
                for i, row in enumerate(order[first:last].tolist()):
                    raw[i] = self._data.read(begin + row * row_bytes, row_bytes)
            return widen(raw.reshape(-1).view(stored)).reshape(last - first, cols)

        return Tensor(name, rows, cols, read_rows, entry["dtype"])


def _read_header(data: DataFile) -> tuple[dict[str, Any], int]:
    """Entries by name, and where the data begin. Raises FormatError unless the tensors fill the file exactly."""
    if data.size < 8:
        raise FormatError(f"it has {data.size} bytes; the length of its header alone has 8")
    length = int(data.read(0, 8).view("<u8")[0])
    if length > min(_MOST_HEADER_BYTES, data.size - 8):
        raise FormatError(f"its header should have {length} bytes; {min(_MOST_HEADER_BYTES, data.size - 8)} are possible")
    try:
        entries = json.loads(data.read(8, length).tobytes().decode())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"its header is no JSON: {error}") from None
    if not isinstance(entries, dict):
        raise FormatError("its header is no JSON object")
    entries.pop("__metadata__", None)
    places = []
    for tensor, entry in entries.items():
        name = tensor[:80]
        if not isinstance(entry, dict):
            raise FormatError(f"tensor {name!r} is no JSON object")
        shape: Any = entry.get("shape")
        offsets: Any = entry.get("data_offsets")
        bits = _BITS.get(str(entry.get("dtype")))
        if bits is None:
            raise FormatError(f"tensor {name!r} has the type {str(entry.get('dtype'))[:40]!r}, which is not known")
        if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2 or len(shape) > _MOST_DIMENSIONS:
            raise FormatError(f"tensor {name!r} has no shape or no data_offsets of whole numbers")
        size, rest = divmod(math.prod(shape) * bits, 8)
        if rest or offsets[1] - offsets[0] != size:
            raise FormatError(f"tensor {name!r} lies at {offsets[0]} to {offsets[1]}; its shape asks for {size} bytes")
        places.append((offsets[0], offsets[1], name))
    at = 0
    for begin, end, name in sorted(places):
        if begin != at:
            raise FormatError(f"tensor {name!r} begins at {begin} of the data; expected {at}, where the one before ends")
        at = end
    have = data.size - 8 - length
    if at != have:
        raise FormatError(f"it has {have} bytes of data, its header asks for {at}")
    return entries, 8 + length


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)
