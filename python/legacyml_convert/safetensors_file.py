# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of a .safetensors file as float32.

The safetensors library checks the file. It cannot give BF16 to numpy, so the bytes are mapped here: the file is a u64 length, that many
bytes of JSON, and the data, to which the JSON's offsets refer.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import safetensors

from .errors import FormatError, ShapeError, require_file
from .source import Tensor

_STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class SafetensorsFile:
    """The tensors of one file by name. Raises FormatError or OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        require_file(path)
        try:
            with safetensors.safe_open(path, "np"):
                pass
        except safetensors.SafetensorError as error:
            raise FormatError(f"{path.name}: not a whole safetensors file: {error}") from None
        with open(path, "rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            self._entries = json.loads(stream.read(length))
        self._entries.pop("__metadata__", None)
        self._start = 8 + length
        self._data = np.memmap(path, dtype=np.uint8, mode="r")

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
            raise FormatError(
                f"{self.path.name}: tensor {name} has type {entry['dtype']}; {', '.join(_STORED)} can be converted"
            )
        shape = entry["shape"]
        if len(shape) not in (1, 2):
            raise ShapeError(f"{self.path.name}: tensor {name} has {len(shape)} dimensions; expected one or two")
        rows, cols = shape if len(shape) == 2 else (1, shape[0])
        begin, end = entry["data_offsets"]
        values = self._data[self._start + begin : self._start + end].view(stored).reshape(rows, cols)

        def read_rows(first: int, last: int) -> np.ndarray:
            raw = values[first:last] if order is None else values[order[first:last]]
            if stored == "<u2":
                return (raw.astype(np.uint32) << 16).view(np.float32)
            return raw.astype(np.float32)

        return Tensor(name, rows, cols, read_rows)
