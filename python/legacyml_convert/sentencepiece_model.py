# SPDX-License-Identifier: BSD-3-Clause
"""Reads SentencePiece's tokenizer.model, a protocol buffer of which only a few fields matter."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FormatError

# Numbers of fields and enumerations in sentencepiece_model.proto.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_TRAINER_MODEL_TYPE = 3
_NORMALIZER_TABLE, _NORMALIZER_PREFIX, _NORMALIZER_TRIM, _NORMALIZER_ESCAPE = 2, 3, 4, 5
_BPE = 2
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6


@dataclasses.dataclass
class SentencePieceModel:
    """Pieces as they are written (U+2581 for a space), scores, and which ids are what."""

    tokens: list[str]
    scores: np.ndarray
    special: set[int]
    byte_ids: set[int]
    unused: set[int]
    unk_id: int
    space_before: bool


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than ten bytes")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of one message: an int, or the bytes of anything longer. Raises ValueError or IndexError."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if length > len(data) - at:
            raise ValueError("it is cut off")
        yield key >> 3, data[at : at + length]
        at += length


def read(path: Path) -> SentencePieceModel:
    """Raises FormatError or OSError."""
    data = path.read_bytes()
    try:
        return _parse(data)
    except (ValueError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise FormatError(f"not a SentencePiece model: {error}") from None


def _parse(data: bytes) -> SentencePieceModel:
    tokens: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    model_type = 1
    normalizer: dict[int, Any] = {}
    for number, value in _fields(data):
        if number == _PIECES:
            piece = dict(_fields(value))
            tokens.append(piece.get(_PIECE_TEXT, b"").decode())
            scores.append(struct.unpack("<f", piece.get(_PIECE_SCORE, bytes(4)))[0])
            types.append(piece.get(_PIECE_TYPE, _NORMAL))
        elif number == _TRAINER:
            model_type = dict(_fields(value)).get(_TRAINER_MODEL_TYPE, model_type)
        elif number == _NORMALIZER:
            normalizer = dict(_fields(value))
    if not tokens:
        raise ValueError("it has no pieces")
    if model_type != _BPE:
        raise FormatError(f"SentencePiece model type {model_type} is not known; BPE (2) is")
    if (
        normalizer.get(_NORMALIZER_TABLE)
        or normalizer.get(_NORMALIZER_TRIM, 1)
        or not normalizer.get(_NORMALIZER_ESCAPE, 1)
    ):
        raise FormatError("the SentencePiece normalizer changes the text, which cannot be represented")

    def ids(*kinds: int) -> set[int]:
        return {i for i, kind in enumerate(types) if kind in kinds}

    return SentencePieceModel(
        tokens,
        np.array(scores),
        ids(_UNKNOWN, _CONTROL, _USER_DEFINED),
        ids(_BYTE),
        ids(_UNUSED),
        min(ids(_UNKNOWN), default=-1),
        bool(normalizer.get(_NORMALIZER_PREFIX, 1)),
    )
