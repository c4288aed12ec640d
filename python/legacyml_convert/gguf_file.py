# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files of Llama architecture, dequantized by the gguf library. The format: its docs/gguf.md in ggml's repository.

llama.cpp's converter stores wq and wk for interleaved rotary pairs, as .mlb does: their rows are taken as they are.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import gguf
import numpy as np

from . import chat, tokenizer
from .errors import FormatError, ShapeError
from .mlb import Header
from .source import DataFile, Source, Tensor, check_factors, widen
from .tokenizer import TokenizerFile

_LAYER_NAMES = {
    "attn_norm": "attn_norm",
    "wq": "attn_q",
    "wk": "attn_k",
    "wv": "attn_v",
    "wo": "attn_output",
    "ffn_norm": "ffn_norm",
    "w1": "ffn_gate",
    "w2": "ffn_down",
    "w3": "ffn_up",
}
_NAMES = {"tok_emb": "token_embd.weight", "final_norm": "output_norm.weight", "wcls": "output.weight"}
_ROPE_FREQS = "rope_freqs.weight"

_WORDS = {
    "gpt-2": tokenizer.WORDS_GPT2,
    "smollm": tokenizer.WORDS_GPT2_DIGITS,
    "starcoder": tokenizer.WORDS_GPT2_DIGITS,
    "refact": tokenizer.WORDS_GPT2_DIGITS,
    "llama-bpe": tokenizer.WORDS_LLAMA3,
    "llama3": tokenizer.WORDS_LLAMA3,
    "llama-v3": tokenizer.WORDS_LLAMA3,
}
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
# What needs no arithmetic of the library.
_PLAIN = {
    gguf.GGMLQuantizationType.F32: "<f4",
    gguf.GGMLQuantizationType.F16: "<f2",
    gguf.GGMLQuantizationType.BF16: "<u2",
}
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6


class _Entry(NamedTuple):
    """Where a tensor lies; shape as in the file, the row's length first."""

    shape: list[int]
    type: gguf.GGMLQuantizationType
    offset: int
    n_bytes: int


class _Header:
    """What lies before the data. The gguf library's reader maps the file and makes some objects of every token: too many for small machines."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._size, self._at = stream, size, 0
        magic = self._take(4)
        if magic != b"GGUF":
            raise FormatError(f"it begins with {magic!r} and not with b'GGUF'")
        version = self._number("<u4")
        if version & 0xFFFF == 0:
            raise FormatError("it is big-endian; only little-endian files are read")
        if version not in (2, 3):
            raise FormatError(f"version {version}; versions 2 and 3 are known")
        n_tensors, n_fields = self._number("<u8"), self._number("<u8")
        self.fields: dict[str, Any] = {}
        for _ in range(n_fields):
            key = self._string()
            if key in self.fields:
                raise FormatError(f"the key {key[:80]!r} is there twice")
            self.fields[key] = self._value(self._number("<u4"))
        self.alignment = self.fields.get("general.alignment", 32)
        if type(self.alignment) is not int or not 1 <= self.alignment <= 1 << 20:
            raise FormatError(f"general.alignment is {str(self.alignment)[:40]!r}; expected 1 to {1 << 20}")
        self.tensors: dict[str, _Entry] = {}
        for _ in range(n_tensors):
            name = self._string()
            if name in self.tensors:
                raise FormatError(f"the tensor {name[:80]!r} is there twice")
            self.tensors[name] = self._entry(name[:80])
        self.end = self._at

    def _take(self, size: int) -> bytes:
        if size > self._size - self._at:
            raise FormatError(f"it has {self._size} bytes and should have at least {self._at + size}: it is cut off")
        data = self._stream.read(size)
        if len(data) != size:
            raise FormatError(f"it has shrunk to {self._at + len(data)} bytes while it was read")
        self._at += size
        return data

    def _number(self, kind: str) -> Any:
        kind_of = np.dtype(kind)
        return np.frombuffer(self._take(kind_of.itemsize), kind_of)[0].item()

    def _string(self) -> str:
        return self._take(int.from_bytes(self._take(8), "little")).decode()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            kind, count = self._number("<u4"), self._number("<u8")
            if kind == _STRING:
                return [self._string() for _ in range(count)]
            if kind in _NUMBERS:
                return np.frombuffer(self._take(count * np.dtype(_NUMBERS[kind]).itemsize), _NUMBERS[kind]).tolist()
            raise FormatError(f"an array of type {kind}; 0 to 12 without 9 can be read")
        if kind not in _NUMBERS:
            raise FormatError(f"a value of type {kind}; 0 to 12 are known")
        return self._number(_NUMBERS[kind])

    def _entry(self, name: str) -> _Entry:
        n_dims = self._number("<u4")
        if n_dims > 4:
            raise FormatError(f"tensor {name!r} has {n_dims} dimensions; at most 4 are possible")
        shape = [self._number("<u8") for _ in range(n_dims)]
        number, offset = self._number("<u4"), self._number("<u8")
        try:
            kind = gguf.GGMLQuantizationType(number)
        except ValueError:
            raise FormatError(f"tensor {name!r} has type {number}, which the gguf library does not know") from None
        per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if shape and shape[0] % per_block:
            raise FormatError(f"tensor {name!r} has rows of {shape[0]} values; blocks of {kind.name} have {per_block}")
        return _Entry(shape, kind, offset, math.prod(shape) // per_block * block_bytes)


class _File:
    """Metadata by key and tensors by name. Raises FormatError or OSError."""

    def __init__(self, path: Path) -> None:
        if path.stat().st_size == 0:
            raise FormatError("the file is empty")
        self._data = DataFile(path)
        size = self._data.size
        try:
            with open(path, "rb") as stream:
                header = _Header(stream, size)
        except (FormatError, UnicodeDecodeError) as error:
            raise FormatError(f"not a readable GGUF file: {error}") from None
        self.fields = header.fields
        start = _align(header.end, header.alignment)
        self.tensors = {name: entry._replace(offset=start + entry.offset) for name, entry in header.tensors.items()}
        end = max((entry.offset + entry.n_bytes for entry in self.tensors.values()), default=start)
        if not end <= size <= _align(end, header.alignment):
            state = "too long" if size > end else "cut off"
            raise FormatError(f"the file has {size} bytes, its header asks for {end}: it is {state}")

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of a key, checked; the default if there is none, FormatError if that is None."""
        value = self.fields.get(key, default)
        if value is None:
            raise FormatError(f"the key {key} is missing")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise FormatError(f"the key {key} is {str(value)[:40]!r}; expected {kind.__name__}")
        return value

    def tensor(self, name: str) -> Tensor:
        """A tensor of one or two dimensions."""
        entry = self.tensors.get(name)
        if entry is None:
            raise FormatError(f"the tensor {name} is missing")
        shape = entry.shape[::-1]
        if len(shape) not in (1, 2) or 0 in shape:
            raise ShapeError(f"tensor {name} has the shape {shape}; expected one or two dimensions that are not 0")
        rows, cols = shape if len(shape) == 2 else (1, shape[0])
        row_bytes = entry.n_bytes // rows

        def read_rows(first: int, last: int) -> np.ndarray:
            data = self._data.read(entry.offset + first * row_bytes, (last - first) * row_bytes)
            if entry.type in _PLAIN:
                return widen(data.view(_PLAIN[entry.type])).reshape(last - first, cols)
            try:
                values = gguf.dequantize(data.reshape(last - first, row_bytes), entry.type)
            except NotImplementedError:
                message = f"tensor {name} has type {entry.type.name}, which cannot be dequantized"
                raise FormatError(message) from None
            return np.asarray(values, dtype=np.float32).reshape(last - first, cols)

        return Tensor(name, rows, cols, read_rows, entry.type.name)


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def read(path: Path) -> Source:
    """Reads a GGUF file. Raises FormatError, ShapeError or OSError."""
    file = _File(path)
    architecture = file.get("general.architecture", str)
    if architecture != "llama":
        raise FormatError(f"the architecture is {architecture}; only llama can be converted")

    def get(key: str, kind: type, default: Any = None) -> Any:
        return file.get(f"llama.{key}", kind, default)

    n_heads = get("attention.head_count", int)
    embedding = file.tensor(_NAMES["tok_emb"])
    header = Header(
        dim=get("embedding_length", int),
        n_layers=get("block_count", int),
        n_heads=n_heads,
        n_kv_heads=get("attention.head_count_kv", int, n_heads),
        hidden_dim=get("feed_forward_length", int),
        vocab=embedding.rows,
        max_seq=get("context_length", int),
        rope_theta=get("rope.freq_base", float, 10000.0),
        norm_eps=get("attention.layer_norm_rms_epsilon", float),
        shared_classifier=int(_NAMES["wcls"] not in file.tensors),
        rope_factors=0,
    )
    header.check_source()
    for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        length = get(key, int, header.head_dim)
        if length != header.head_dim:
            raise ShapeError(f"{key} is {length}; it must be dim / n_heads = {header.head_dim}")
    for key, meaning in (
        ("expert_count", "mixture of experts"),
        ("attention.sliding_window", "sliding-window attention"),
    ):
        if get(key, int, 0) != 0:
            raise FormatError(f"llama.{key} is {get(key, int)}: {meaning} cannot be represented")
    factors = _rope_factors(file, header)

    names = {}
    for name, *_ in header.shapes():
        layer, _, kind = name.rpartition(".")
        names[name] = f"blk.{layer.partition('.')[2]}.{_LAYER_NAMES[kind]}.weight" if layer else _NAMES[name]
    extra = sorted(set(file.tensors) - set(names.values()) - {_ROPE_FREQS})
    if extra:
        what = "a bias, which" if extra[0].endswith(".bias") else "a tensor that"
        raise FormatError(f"{extra[0]} is {what} cannot be represented")
    notes = []
    vocab = get("vocab_size", int, embedding.rows)
    if vocab > embedding.rows:
        raise ShapeError(f"tensor {_NAMES['tok_emb']} has {embedding.rows} rows; llama.vocab_size is {vocab}")
    if vocab < embedding.rows:
        notes.append(f"llama.vocab_size is {vocab}, the embedding has {embedding.rows} rows")
    tensors = {name: file.tensor(origin) for name, origin in names.items()}
    if factors is not None:
        header = header.with_rope_factors()
        tensors["rope_factors"] = Tensor.of("rope factors", factors)
    return Source(header, tensors, lambda: _tokenizer(file), notes)


def _rope_factors(file: _File, header: Header) -> np.ndarray | None:
    """Divisors from linear scaling and rope_freqs, None where neither does anything."""
    scaling = file.get("llama.rope.scaling.type", str, "linear")
    if scaling not in ("none", "linear"):
        raise FormatError(f"rope scaling {scaling} cannot be represented; linear can")
    factor = file.get("llama.rope.scaling.factor", float, file.get("llama.rope.scale_linear", float, 1.0))
    if scaling == "none" or factor == 0:
        factor = 1.0
    attention = file.get("llama.rope.scaling.attn_factor", float, 1.0)
    if attention != 1:
        raise FormatError(f"llama.rope.scaling.attn_factor is {attention:g}; only 1 can be represented")
    factors = np.full(header.head_dim // 2, factor)
    if _ROPE_FREQS in file.tensors:
        freqs = file.tensor(_ROPE_FREQS)
        if freqs.rows * freqs.cols != factors.size:
            raise ShapeError(f"{_ROPE_FREQS} has {freqs.rows * freqs.cols} values; expected {factors.size}")
        factors = factors * freqs.read(0, freqs.rows).reshape(-1)
    return None if (factors == 1).all() else check_factors(factors)


def read_tokenizer(path: Path) -> TokenizerFile:
    """Only the tokenizer of a GGUF file. Raises FormatError or OSError."""
    found = _tokenizer(_File(path))
    if found is None:
        raise FormatError("there is no tokenizer in this file")
    return found


def _tokenizer(file: _File) -> TokenizerFile | None:
    model = file.get("tokenizer.ggml.model", str, "none")
    if model == "none" or model == "no_vocab":
        return None

    def get(key: str, kind: type, default: Any = None) -> Any:
        return file.get(f"tokenizer.ggml.{key}", kind, default)

    tokens = get("tokens", list)
    types = get("token_type", list, [1] * len(tokens))
    if len(types) != len(tokens) or not tokens or not isinstance(tokens[0], str):
        raise FormatError(f"{len(tokens)} tokens with {len(types)} types; expected as many of both")

    def ids(*kinds: int) -> set[int]:
        return {i for i, kind in enumerate(types) if kind in kinds}

    special = ids(_UNKNOWN, _CONTROL, _USER_DEFINED)
    if model == "gpt2":
        words = get("pre", str, "default")
        if words not in _WORDS:
            raise FormatError(f"the pre-tokenizer {words} is not known; known are {', '.join(sorted(_WORDS))}")
        merges = [tokenizer.split_merge(merge, rank) for rank, merge in enumerate(get("merges", list))]
        container = tokenizer.byte_level(tokens, merges, special, ids(1, _BYTE))
        container.pre = _WORDS[words]
        llama3 = container.pre == tokenizer.WORDS_LLAMA3
        container.flags = tokenizer.FLAG_WHOLE_WORDS if llama3 else 0
        add_bos = get("add_bos_token", bool, llama3)
    elif model == "llama":
        scores = get("scores", list)
        if len(scores) != len(tokens):
            raise FormatError(f"{len(tokens)} tokens with {len(scores)} scores; expected as many of both")
        container = tokenizer.sentencepiece(tokens, np.array(scores), special, ids(_BYTE), ids(_UNUSED))
        container.unk_id = get("unknown_token_id", int, next(iter(sorted(ids(_UNKNOWN))), -1))
        # The format has no more to say: llama.cpp, for which it is made, puts the space behind special pieces as well.
        spaces = tokenizer.FLAG_SPACE_BEFORE | tokenizer.FLAG_SPACE_BEHIND
        container.flags = spaces if get("add_space_prefix", bool, True) else 0
        add_bos = get("add_bos_token", bool, True)
    else:
        raise FormatError(f"the tokenizer model {model} is not known; gpt2 and llama are")
    container.bos_id = get("bos_token_id", int, -1)
    if add_bos and container.bos_id >= 0:
        container.flags |= tokenizer.FLAG_BOS
    stops = [get(f"{name}_token_id", int, -1) for name in ("eos", "eot", "eom")]
    container.stop_ids = [i for i in stops if i >= 0] + [i for i in special if tokens[i] in chat.END_PIECES]
    container.template, container.system = chat.recognise(file.get("tokenizer.chat_template", str, ""))
    return container.pack()
