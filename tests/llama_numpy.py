# SPDX-License-Identifier: BSD-3-Clause
"""The Llama forward pass over a whole sequence in double precision, for either layout of rotary pairs."""

from __future__ import annotations

from typing import Callable
from collections.abc import Sequence

import numpy as np

from legacyml_convert import Header


def quantized_activations(x: np.ndarray) -> np.ndarray:
    """x [n, cols] through Q8_0 as the runtime does it in float32, zero-padded to whole blocks; float64 [n, cols]."""
    n, cols = x.shape
    blocks = np.pad(x.astype(np.float32), ((0, 0), (0, -cols % 32))).reshape(n, -1, 32)
    amax = np.abs(blocks).max(axis=2, keepdims=True)
    d = amax / np.float32(127)
    inverse = np.float32(127) / np.where(amax > 0, amax, np.float32(1))
    q = np.trunc(blocks * inverse + np.copysign(np.float32(0.5), blocks))
    return (q.astype(np.float64) * d).reshape(n, -1)[:, :cols]


def forward(
    weights: dict[str, np.ndarray],
    header: Header,
    tokens: Sequence[int],
    activation: Callable[[np.ndarray], np.ndarray] = lambda x: x,
    halves: bool = False,
) -> np.ndarray:
    """Logits [n, vocab] after each token.

    weights: by their names in Header.shapes(), [rows, cols]. activation: what every input of a matrix goes through. halves: the
    partners of a rotary pair are half a head apart (Hugging Face's layout of wq and wk), not neighbours.
    """
    n, head_dim = len(tokens), header.head_dim
    group = header.n_heads // header.n_kv_heads
    frequency = header.rope_theta ** (-np.arange(0, head_dim, 2) / head_dim)
    if "rope_factors" in weights:
        frequency = frequency / weights["rope_factors"].reshape(-1)
    angle = np.arange(n)[:, None, None] * frequency
    cos, sin = np.cos(angle), np.sin(angle)
    pair = (slice(0, head_dim // 2), slice(head_dim // 2, None)) if halves else (slice(0, None, 2), slice(1, None, 2))
    later = np.triu(np.full((n, n), -np.inf), 1)

    def norm(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + header.norm_eps) * w.reshape(-1)

    def rotate(x: np.ndarray) -> np.ndarray:
        x = x.reshape(n, -1, head_dim)
        a, b = x[..., pair[0]], x[..., pair[1]]
        out = np.empty_like(x)
        out[..., pair[0]], out[..., pair[1]] = a * cos - b * sin, a * sin + b * cos
        return out

    x = weights["tok_emb"][list(tokens)].astype(np.float64)
    for layer in range(header.n_layers):
        w = {name: weights[f"layers.{layer}.{name}"] for name in "attn_norm wq wk wv wo ffn_norm w1 w2 w3".split()}
        h = activation(norm(x, w["attn_norm"]))
        q, k = rotate(h @ w["wq"].T), rotate(h @ w["wk"].T)
        v = (h @ w["wv"].T).reshape(n, -1, head_dim)
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(head_dim) + later
        p = np.exp(score - score.max(axis=2, keepdims=True))
        p /= p.sum(axis=2, keepdims=True)
        x = x + activation(np.einsum("hij,jhd->ihd", p, v).reshape(n, -1)) @ w["wo"].T
        h = activation(norm(x, w["ffn_norm"]))
        gate = h @ w["w1"].T
        x = x + activation(gate / (1 + np.exp(-gate)) * (h @ w["w3"].T)) @ w["w2"].T
    head = weights["tok_emb" if header.shared_classifier else "wcls"]
    return activation(norm(x, weights["final_norm"])) @ head.T
