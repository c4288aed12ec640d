# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face folders with a LlamaForCausalLM: config.json of transformers 4 or 5, safetensors, one file or several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import hf_tokenizer
from .errors import FormatError, ShapeError
from .hf_tokenizer import load_object
from .mlb import Header
from .safetensors_file import SafetensorsFile
from .source import CHUNK_ELEMENTS, Source, Tensor, linear_factors, llama3_factors

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "wq": "self_attn.q_proj",
    "wk": "self_attn.k_proj",
    "wv": "self_attn.v_proj",
    "wo": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "w1": "mlp.gate_proj",
    "w2": "mlp.down_proj",
    "w3": "mlp.up_proj",
}
_NAMES = {"tok_emb": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "wcls": "lm_head.weight"}
_INDEX = "model.safetensors.index.json"


class _Config:
    """config.json with checked access."""

    def __init__(self, path: Path) -> None:
        self.values = load_object(path)

    def get(self, key: str, kind: type, default: Any = None, values: dict[str, Any] | None = None) -> Any:
        """The value of a key; null counts as absent. Raises FormatError if there is none and no default."""
        value = (self.values if values is None else values).get(key)
        if value is None:
            value = default
        if value is None:
            raise FormatError(f"config.json: {key} is missing")
        if kind is float and type(value) is int and abs(value) < 2**63:
            value = float(value)
        if type(value) is not kind:
            raise FormatError(f"config.json: {key} is {value!r}; expected {kind.__name__}")
        return value


def read(folder: Path) -> Source:
    """Reads a folder. Raises FormatError, ShapeError or OSError."""
    config = _Config(folder / "config.json")
    _refuse_other_models(config)
    n_heads = config.get("num_attention_heads", int)
    rope = config.get("rope_scaling", dict, config.get("rope_parameters", dict, {}))
    parameters = config.get("rope_parameters", dict, {})
    holders = (values for values in (rope, parameters, config.values) if values.get("rope_theta") is not None)
    theta = config.get("rope_theta", float, 10000.0, next(holders, {}))
    header = Header(
        dim=config.get("hidden_size", int),
        n_layers=config.get("num_hidden_layers", int),
        n_heads=n_heads,
        n_kv_heads=config.get("num_key_value_heads", int, n_heads),
        hidden_dim=config.get("intermediate_size", int),
        vocab=config.get("vocab_size", int),
        max_seq=config.get("max_position_embeddings", int),
        rope_theta=theta,
        norm_eps=config.get("rms_norm_eps", float, 1e-6),
        shared_classifier=int(config.get("tie_word_embeddings", bool, False)),
    )
    header.check_source()
    head_dim = config.get("head_dim", int, header.head_dim)
    if head_dim != header.head_dim:
        raise ShapeError(
            f"config.json: head_dim is {head_dim}; it must be hidden_size / num_attention_heads = {header.head_dim}"
        )
    factors = _rope_factors(config, rope, header)
    notes: list[str] = []
    header, tensors = _tensors(folder, header, notes)
    if factors is not None:
        header = header.with_rope_factors()
        tensors["rope_factors"] = Tensor.of("rope factors", factors)
    return Source(header, tensors, lambda: hf_tokenizer.read_folder(folder), notes)


def _refuse_other_models(config: _Config) -> None:
    """FormatError for whatever makes it another function than Llama's."""
    model_type = config.get("model_type", str)
    if model_type != "llama":
        raise FormatError(f"config.json: model_type is {model_type}; only llama can be converted")
    architectures = config.get("architectures", list, ["LlamaForCausalLM"])
    if architectures != ["LlamaForCausalLM"]:
        raise FormatError(f"config.json: the architecture is {architectures}; expected LlamaForCausalLM")
    activation = config.get("hidden_act", str, "silu")
    if activation not in ("silu", "swish"):
        raise FormatError(f"config.json: hidden_act is {activation}; expected silu")
    for key in ("attention_bias", "mlp_bias"):
        if config.get(key, bool, False):
            raise FormatError(f"config.json: {key} is true; biases cannot be represented")
    for key in ("sliding_window", "quantization_config"):
        if config.values.get(key) is not None:
            raise FormatError(f"config.json: {key} is set, which cannot be represented")


def _rope_factors(config: _Config, rope: dict[str, Any], header: Header) -> np.ndarray | None:
    """Divisors of the rotary frequencies; None where they are not scaled."""

    def number(key: str) -> float:
        return config.get(key, float, values=rope)

    for values in (config.values, rope):
        part = config.get("partial_rotary_factor", float, 1.0, values)
        if part != 1:
            raise FormatError(f"config.json: partial_rotary_factor is {part:g}; only 1 can be represented")
    kind = config.get("rope_type", str, config.get("type", str, "default", rope), rope)
    if any(isinstance(value, dict) for value in rope.values()):
        raise FormatError("config.json: the rope parameters differ between layers, which cannot be represented")
    if kind == "default":
        return None
    if kind == "linear":
        return linear_factors(header.head_dim, number("factor"))
    if kind == "llama3":
        return llama3_factors(
            header.head_dim,
            header.rope_theta,
            number("factor"),
            number("low_freq_factor"),
            number("high_freq_factor"),
            number("original_max_position_embeddings"),
        )
    raise FormatError(f"config.json: rope scaling {kind} cannot be represented; linear and llama3 can")


def _files(folder: Path) -> dict[str, SafetensorsFile]:
    """The file of every tensor by name."""
    single = folder / "model.safetensors"
    if single.is_file():
        file = SafetensorsFile(single)
        return dict.fromkeys(file.names(), file)
    index = folder / _INDEX
    if not index.is_file():
        raise FormatError(f"neither model.safetensors nor {_INDEX} is there; other weight files are not read")
    weight_map = load_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise FormatError(f"{_INDEX}: weight_map is missing, or no map from tensors to files")
    shards: dict[str, SafetensorsFile] = {}
    for tensor, name in weight_map.items():
        if Path(name).name != name:
            raise FormatError(f"{_INDEX}: {name!r} is not the name of a file in this folder")
        if name not in shards:
            shards[name] = SafetensorsFile(folder / name)
        if tensor not in shards[name].names():
            raise FormatError(f"{_INDEX}: tensor {tensor} is not in {name}")
    for name, shard in shards.items():
        unlisted = sorted(shard.names() - set(weight_map))
        if unlisted:
            raise FormatError(f"{_INDEX}: tensor {unlisted[0]} of {name} is not listed")
    return {tensor: shards[name] for tensor, name in weight_map.items()}


def _tensors(folder: Path, header: Header, notes: list[str]) -> tuple[Header, dict[str, Tensor]]:
    """All tensors; the header's vocab becomes the number of embedding rows."""
    files = _files(folder)

    def get(name: str, order: np.ndarray | None = None) -> Tensor:
        if name not in files:
            raise FormatError(f"tensor {name} is missing")
        return files[name].tensor(name, order)

    tensors = {}
    used = set()
    for name, *_ in header.shapes():
        layer, _, kind = name.rpartition(".")
        origin = f"model.{layer}.{_LAYER_NAMES[kind]}.weight" if layer else _NAMES[name]
        used.add(origin)
        order = {"wq": header.n_heads, "wk": header.n_kv_heads}.get(kind)
        tensors[name] = get(origin, None if order is None else interleaved(order, header.head_dim))
    if header.shared_classifier and _NAMES["wcls"] in files:
        used.add(_NAMES["wcls"])
        if not _equal(tensors["tok_emb"], get(_NAMES["wcls"])):
            raise FormatError("tie_word_embeddings is true, but lm_head.weight is there and differs from the embedding")
    # Old checkpoints store the rotary frequencies, which follow from the configuration.
    extra = sorted(name for name in set(files) - used if not name.endswith("rotary_emb.inv_freq"))
    if extra:
        what = "a bias, which" if extra[0].endswith(".bias") else "a tensor that"
        raise FormatError(f"{extra[0]} is {what} cannot be represented")
    rows = tensors["tok_emb"].rows
    if rows < header.vocab:
        raise ShapeError(f"tensor {_NAMES['tok_emb']} has {rows} rows; vocab_size is {header.vocab}")
    if rows > header.vocab:
        notes.append(f"vocab_size is {header.vocab} in config.json, the embedding has {rows} rows")
    return header.with_vocab(rows), tensors


def interleaved(n_heads: int, head_dim: int) -> np.ndarray:
    """The row of a Hugging Face wq or wk that becomes each row of ours.

    There the partners of a rotary pair are head_dim / 2 apart, here they are neighbours.
    """
    rows = np.arange(n_heads * head_dim).reshape(n_heads, 2, head_dim // 2)
    return rows.swapaxes(1, 2).reshape(-1)


def _equal(a: Tensor, b: Tensor) -> bool:
    if (a.rows, a.cols) != (b.rows, b.cols):
        return False
    step = max(1, CHUNK_ELEMENTS // max(a.cols, 1))
    return all(
        np.array_equal(a.read(first, min(first + step, a.rows)), b.read(first, min(first + step, a.rows)))
        for first in range(0, a.rows, step)
    )
