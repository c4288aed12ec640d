# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files of Llama architecture, read and dequantized by the gguf library.

llama.cpp's converter stores wq and wk for interleaved rotary pairs, as .mlb does: their rows are taken as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from . import chat, tokenizer
from .errors import FormatError, ShapeError
from .mlb import Header
from .source import Source, Tensor, check_factors
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
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6


class _Reader(gguf.GGUFReader):
    """The library's reader, but nothing is read beyond the end of the file: it would yield empty arrays and go on."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> np.ndarray:
        end = int(offset) + int(count) * np.dtype(dtype).itemsize
        if end > self.data.size:
            raise ValueError(f"it has {self.data.size} bytes and should have at least {end}: it is cut off")
        return super()._get(offset, dtype, count, override_order)


class _File:
    """Metadata by key and tensors by name. Raises FormatError or OSError."""

    def __init__(self, path: Path) -> None:
        if path.stat().st_size == 0:
            raise FormatError("the file is empty")
        try:
            with np.errstate(all="ignore"):
                reader = _Reader(path)
            self.fields = {name: field.contents() for name, field in reader.fields.items()}
            if reader.byte_order != "I":
                raise ValueError("it is big-endian; only little-endian files are read")
        except (ValueError, LookupError, TypeError, ArithmeticError, MemoryError, RecursionError) as error:
            raise FormatError(f"not a readable GGUF file: {error}") from None
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        end = max((tensor.data_offset + tensor.n_bytes for tensor in reader.tensors), default=reader.data_offset)
        end = -(-end // int(reader.alignment)) * int(reader.alignment)
        size = int(reader.data.size)
        if size > end:
            raise FormatError(f"the file has {size} bytes, its header asks for {end}")
        if any(tensor.data_offset < reader.data_offset for tensor in reader.tensors):
            raise FormatError("a tensor lies outside the data section")

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
        shape = [int(n) for n in reversed(entry.shape)]
        if len(shape) not in (1, 2) or 0 in shape:
            raise ShapeError(f"tensor {name} has the shape {shape}; expected one or two dimensions that are not 0")
        rows, cols = shape if len(shape) == 2 else (1, shape[0])
        data = entry.data.reshape(rows, -1)

        def read_rows(first: int, last: int) -> np.ndarray:
            try:
                values = gguf.dequantize(np.asarray(data[first:last]), entry.tensor_type)
            except NotImplementedError:
                message = f"tensor {name} has type {entry.tensor_type.name}, which cannot be dequantized"
                raise FormatError(message) from None
            return np.asarray(values, dtype=np.float32).reshape(last - first, cols)

        return Tensor(name, rows, cols, read_rows)


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
    tensors = {name: file.tensor(origin) for name, origin in names.items()}
    if factors is not None:
        header = header.with_rope_factors()
        tensors["rope_factors"] = Tensor.of("rope factors", factors)
    return Source(header, tensors, lambda: _tokenizer(file))


def _rope_factors(file: _File, header: Header) -> np.ndarray | None:
    """Divisors from linear scaling and rope_freqs, None where neither does anything."""
    scaling = file.get("llama.rope.scaling.type", str, "linear")
    if scaling not in ("none", "linear"):
        raise FormatError(f"rope scaling {scaling} cannot be represented; linear can")
    factor = file.get("llama.rope.scaling.factor", float, file.get("llama.rope.scale_linear", float, 1.0))
    if scaling == "none" or factor == 0:
        factor = 1.0
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
        container.flags = tokenizer.FLAG_SPACE_BEFORE if get("add_space_prefix", bool, True) else 0
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
