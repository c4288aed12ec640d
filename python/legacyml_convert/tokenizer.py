# SPDX-License-Identifier: BSD-3-Clause
"""The two tokenizer files of docs/formats.md: the plain one of llama2.c, which is only checked, and the container."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from .errors import FormatError

CONTAINER_MAGIC = b"MLT1"
VERSION = 1
KIND_SENTENCEPIECE, KIND_BYTE_LEVEL = 1, 2
FLAG_SPACE_BEFORE, FLAG_WHOLE_WORDS, FLAG_BOS, FLAG_SPACE_BEHIND = 1, 2, 4, 8
WORDS_NONE, WORDS_GPT2, WORDS_GPT2_DIGITS, WORDS_LLAMA3 = range(4)
NEVER_JOINED = -1e30
"""Score of pieces that merging never gives."""

_HEADER = struct.Struct("<4s5I2i4I16s")
_MAX_PIECE = 65536
_MAX_PIECES = 16777216
_MAX_SYSTEM = 65536
_MAX_STOP = 256


@dataclasses.dataclass(frozen=True)
class TokenizerFile:
    """A tokenizer file's bytes, the number of its pieces, what it is in a few words, and what the user should know."""

    data: bytes
    n_pieces: int
    description: str
    notes: tuple[str, ...] = ()


def read_plain(path: Path) -> TokenizerFile:
    """A tokenizer.bin of llama2.c as it is. Raises FormatError unless it consists of whole records with finite scores."""
    data = path.read_bytes()
    if len(data) < 4:
        raise FormatError(f"{len(data)} bytes are too few for a tokenizer")
    at = 4
    count = 0
    while at < len(data):
        if len(data) - at < 8:
            raise FormatError(f"the file ends within piece {count}: it is cut off, or no tokenizer")
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 1 <= length <= _MAX_PIECE:
            raise FormatError(
                f"piece {count} has length {length}; 1 to {_MAX_PIECE} is allowed: it is no tokenizer.bin"
            )
        if not math.isfinite(score):
            raise FormatError(f"the score of piece {count} is not finite")
        if length > len(data) - at:
            raise FormatError(f"piece {count} has {length} bytes, the file only {len(data) - at} more: it is cut off")
        at += length
        count += 1
    if count == 0:
        raise FormatError("no pieces at all")
    return TokenizerFile(data, count, "plain tokenizer.bin")


@dataclasses.dataclass
class Container:
    """The container's fields by their names in docs/formats.md; pack() gives the file."""

    kind: int
    pieces: list[bytes]
    scores: np.ndarray
    byte_table: list[int]
    flags: int = 0
    pre: int = WORDS_NONE
    bos_id: int = -1
    unk_id: int = -1
    stop_ids: list[int] = dataclasses.field(default_factory=list)
    special_ids: list[int] = dataclasses.field(default_factory=list)
    system: str = ""
    template: str = ""
    notes: list[str] = dataclasses.field(default_factory=list)

    def pack(self) -> TokenizerFile:
        """The file. Raises FormatError for what it cannot hold."""
        n = len(self.pieces)
        if not 1 <= n <= _MAX_PIECES:
            raise FormatError(f"the tokenizer has {n} pieces; 1 to {_MAX_PIECES} are allowed")
        lengths = np.array([len(piece) for piece in self.pieces], dtype="<u4")
        if lengths.max() > _MAX_PIECE:
            raise FormatError(
                f"piece {int(lengths.argmax())} has {lengths.max()} bytes; at most {_MAX_PIECE} are allowed"
            )
        scores = np.asarray(self.scores, dtype="<f4")
        if not np.isfinite(scores).all():
            raise FormatError("a piece has a score that is not finite")
        system = self.system.encode()
        if len(system) > _MAX_SYSTEM or b"\0" in system:
            raise FormatError(
                f"the template's system message has {len(system)} bytes; at most {_MAX_SYSTEM}, and no NUL, are allowed"
            )
        stops = sorted(set(self.stop_ids))
        if len(stops) > _MAX_STOP:
            raise FormatError(f"{len(stops)} ids end a text; at most {_MAX_STOP} are allowed")
        specials = sorted({i for i in self.special_ids if not 0 <= i < n or self.pieces[i]})
        for name, ids, least in (
            ("bos", [self.bos_id], -1),
            ("unknown", [self.unk_id], -1),
            ("stop", stops, 0),
            ("special", specials, 0),
        ):
            for i in ids:
                if not least <= i < n:
                    raise FormatError(f"{name} id {i} is not in the vocabulary of {n} pieces")
        flags, notes = self.flags, list(self.notes)
        if flags & FLAG_SPACE_BEHIND and any(len(self.pieces[i]) == 1 for i in specials):
            flags &= ~FLAG_SPACE_BEHIND
            notes.append("a special piece has one byte: no space goes behind special pieces, as one does in the source")
        pieces = b"".join(self.pieces)
        header = _HEADER.pack(
            CONTAINER_MAGIC,
            VERSION,
            self.kind,
            n,
            flags,
            self.pre,
            self.bos_id,
            self.unk_id,
            len(stops),
            len(specials),
            len(system),
            len(pieces),
            self.template.encode("ascii"),
        )
        arrays = (np.array(self.byte_table, "<i4"), np.array(stops, "<i4"), np.array(specials, "<i4"))
        data = b"".join(
            [header, *(array.tobytes() for array in arrays), system, scores.tobytes(), lengths.tobytes(), pieces]
        )
        name = {KIND_SENTENCEPIECE: "SentencePiece", KIND_BYTE_LEVEL: "byte-level BPE"}[self.kind]
        return TokenizerFile(data, n, f"container, {name}", tuple(notes))


def read_container(path: Path) -> TokenizerFile:
    """A container as it is. Raises FormatError unless its lengths add up."""
    data = path.read_bytes()
    lists = _HEADER.size + 256 * 4
    if len(data) < lists or data[:4] != CONTAINER_MAGIC:
        raise FormatError(
            f"not a tokenizer container: it must begin with {CONTAINER_MAGIC!r} and have {lists} bytes or more"
        )
    _, version, _, n, _, _, _, _, n_stop, n_special, system_bytes, pieces_bytes, _ = _HEADER.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"tokenizer container version {version}; this program knows version {VERSION}")
    expected = lists + 4 * (n_stop + n_special) + system_bytes + 8 * n + pieces_bytes
    if len(data) != expected:
        raise FormatError(f"the tokenizer has {len(data)} bytes, its header asks for {expected}")
    return TokenizerFile(data, n, "container, copied")


def _byte_of_letter() -> dict[str, int]:
    """The letter that GPT-2's vocabulary writes for each byte: itself if it is visible, else one from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = (byte for byte in range(256) if byte not in visible)
    return {chr(byte): byte for byte in visible} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


BYTE_OF_LETTER = _byte_of_letter()


def byte_level_piece(token: str) -> bytes | None:
    """The bytes of a token in GPT-2's spelling, or None if it is not in that spelling."""
    try:
        return bytes(BYTE_OF_LETTER[letter] for letter in token)
    except KeyError:
        return None


def byte_of_name(token: str) -> int | None:
    """10 for "<0x0A>", None for what is no byte piece."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        digits = token[3:5]
        if all(c in "0123456789ABCDEF" for c in digits):
            return int(digits, 16)
    return None


def byte_level(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    special: Collection[int],
    reachable: Collection[int] | None = None,
) -> Container:
    """Byte-level BPE. tokens in GPT-2's spelling but for special ids, merges by rank.

    reachable: ids that text can become, None = all that are not special.
    """
    ranks = _merge_scores(tokens, merges)
    pieces: list[bytes] = []
    scores = np.full(len(tokens), NEVER_JOINED)
    table = [-1] * 256
    for i, token in enumerate(tokens):
        piece = None if i in special else byte_level_piece(token)
        if piece is None or (reachable is not None and i not in reachable):
            pieces.append(token.encode())
            continue
        pieces.append(piece)
        if len(piece) == 1:
            table[piece[0]] = i
            scores[i] = 0
        elif token in ranks:
            scores[i] = ranks[token]
    return Container(KIND_BYTE_LEVEL, pieces, scores, table, special_ids=list(special))


def sentencepiece(
    tokens: Sequence[str],
    scores: np.ndarray,
    special: Collection[int],
    byte_ids: Collection[int],
    unreachable: Collection[int],
) -> Container:
    """SentencePiece kind: tokens with U+2581 for spaces; byte_ids are those spelled <0x00> to <0xFF> that stand for bytes."""
    pieces: list[bytes] = []
    table = [-1] * 256
    scores = np.array(scores, dtype=np.float64)
    for i, token in enumerate(tokens):
        byte = byte_of_name(token) if i in byte_ids else None
        if byte is not None:
            table[byte] = i
            pieces.append(bytes([byte]))
        elif i in special:
            pieces.append(token.encode())
        else:
            pieces.append(token.replace("\u2581", " ").encode())
    for i in {*special, *unreachable}:
        scores[i] = NEVER_JOINED
    return Container(KIND_SENTENCEPIECE, pieces, scores, table, special_ids=list(special))


def merge_scores_of_characters(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> np.ndarray:
    """Scores for SentencePiece kind from ranked merges: a single character needs none, what no merge gives is never joined."""
    ranks = _merge_scores(tokens, merges)
    return np.array([ranks.get(token, float(-len(merges)) if len(token) == 1 else NEVER_JOINED) for token in tokens])


def _merge_scores(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Minus the lowest rank of a merge that gives the token."""
    known = set(tokens)
    ranks: dict[str, float] = {}
    for rank, (left, right) in enumerate(merges):
        if left + right not in known:
            raise FormatError(f"merge {rank} gives {left + right!r}, which is not in the vocabulary")
        ranks.setdefault(left + right, float(-rank))
    return ranks


def split_merge(merge: object, rank: int) -> tuple[str, str]:
    """A merge as it is written in files, "a b" or ["a", "b"]."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise FormatError(f"merge {rank} is {merge!r}; expected two pieces")
    return parts[0], parts[1]
