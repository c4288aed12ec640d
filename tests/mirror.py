# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic contract (src/kernels/README.md) in numpy float32, operation by operation.

Written from the text of the contract, not from the kernels. Every intermediate result is a float32 array, so every operation rounds once; no
numpy reduction is used, since their order is numpy's own. Also reads .mlb files by itself and runs the whole forward pass.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import mpmath
import numpy as np

F = np.float32
Array = np.ndarray


def quiet(function):
    """Infinities and NaN are data here, not mistakes."""

    def wrapped(*args, **kwargs):
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    return wrapped


def fold(lanes: Array) -> Array:
    """lanes [..., W] -> [...]: halves added to halves until one lane is left."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def lane_sum(terms: Array, width: int) -> Array:
    """terms [..., n] -> [...]: lane l adds the terms with index mod width = l in rising order from +0; then the fold."""
    lanes = np.zeros((*terms.shape[:-1], width), F)
    for start in range(0, terms.shape[-1], width):
        part = terms[..., start : start + width]
        lanes[..., : part.shape[-1]] = lanes[..., : part.shape[-1]] + part
    return fold(lanes)


@quiet
def quantize_q8(x: Array) -> tuple[Array, Array]:
    """x float32 [n] -> q int8 [n], d float32 [n / 32]."""
    blocks = x.astype(F).reshape(-1, 32)
    q, d = np.zeros(blocks.shape, np.int8), np.zeros(len(blocks), F)
    for b, block in enumerate(blocks):
        top = max(int(v) & 0x7FFFFFFF for v in block.view(np.uint32))
        if top >= 0x7F800000:
            d[b] = np.nan
            continue
        amax = np.uint32(top).view(F)
        scale = amax / F(127)
        if scale < F(2.0**-50):
            continue
        d[b], inverse = scale, F(127) / amax
        q[b] = np.trunc(block * inverse + np.copysign(F(0.5), block)).astype(np.int32)
    return q.reshape(-1), d


@quiet
def matvec_q8(q: Array, d: Array, xq: Array, xd: Array) -> Array:
    """q int8 [rows, cols], d [rows, cols / 32], xq int8 [cols], xd [cols / 32] -> float32 [rows]."""
    products = q.astype(np.int32) * xq.astype(np.int32)
    sums = products.reshape(len(q), -1, 32).sum(axis=2, dtype=np.int32)  # integers: any order
    return lane_sum(sums.astype(F) * (d * xd), 8)


def unpack_q4(q: Array) -> Array:
    """q uint8 [rows, cols / 2] -> int8 [rows, cols] of -8..7."""
    blocks = q.view(np.uint8).reshape(len(q), -1, 16)
    values = np.concatenate([blocks & 15, blocks >> 4], axis=2).astype(np.int8) - np.int8(8)
    return values.reshape(len(q), -1)


def matvec_q4(q: Array, d: Array, xq: Array, xd: Array) -> Array:
    """q uint8 [rows, cols / 2]; the rest as matvec_q8."""
    return matvec_q8(unpack_q4(q), d, xq, xd)


@quiet
def dot_f32(a: Array, b: Array) -> Array:
    return lane_sum(a * b, 16)


@quiet
def axpy_f32(y: Array, a: np.float32, x: Array) -> Array:
    return y + F(a) * x


@quiet
def add(y: Array, x: Array) -> Array:
    return y + x


@quiet
def rmsnorm(x: Array, w: Array, eps: float) -> Array:
    r = F(1) / np.sqrt(dot_f32(x, x) / F(len(x)) + F(eps))
    return (x * r) * w


@quiet
def exp(x: Array) -> Array:
    x = np.asarray(x, F)
    hexadecimal = float.fromhex
    t = x * F(hexadecimal("0x1.715476p+0")) + F(12582912)
    n = t - F(12582912)
    r = (x - n * F(hexadecimal("0x1.63p-1"))) - n * F(hexadecimal("-0x1.bd0106p-13"))
    p = np.full_like(x, hexadecimal("0x1.a0d2cep-13"))
    for c in ("0x1.6e879cp-10", "0x1.11121p-7", "0x1.555382p-5", "0x1.555554p-3", "0x1p-1"):
        p = p * r + F(hexadecimal(c))
    p = (p * (r * r) + r) + F(1)
    e = (p.view(np.uint32) + (t.view(np.uint32) << np.uint32(23))).view(F)
    e = np.where(x > F(hexadecimal("0x1.62e42ep+6")), F(np.inf), e)
    e = np.where(x < F(hexadecimal("-0x1.5d589ep+6")), F(0), e)
    return np.where(np.isnan(x), F(np.nan), e).astype(F)


@quiet
def softmax(x: Array) -> Array:
    m = x[0]
    for v in x[1:]:
        m = v if v > m else m
    e = exp(x - m)
    return e * (F(1) / lane_sum(e, 16))


@quiet
def silu_mul(g: Array, u: Array) -> Array:
    return (g / (F(1) + exp(-g))) * u


@quiet
def rope(x: Array, cos_t: Array, sin_t: Array) -> Array:
    """x [heads, head_dim], cos_t and sin_t [head_dim / 2]."""
    a, b = x[:, 0::2], x[:, 1::2]
    out = np.empty_like(x)
    out[:, 0::2] = a * cos_t - b * sin_t
    out[:, 1::2] = a * sin_t + b * cos_t
    return out


def attention(q: Array, keys: Array, values: Array) -> Array:
    """One head. q [head_dim], keys and values [positions, head_dim] -> [head_dim]."""
    factor = F(1) / np.sqrt(F(len(q)))
    scores = softmax(dot_f32(keys, q[None, :]) * factor)
    out = np.zeros_like(q)
    for s, v in zip(scores, values):
        out = axpy_f32(out, s, v)
    return out


def rope_exact(theta: float, factors: Array | None, head_dim: int, position: int) -> list[tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]]:
    """Angle, cosine and sine of every pair of one position, to 50 digits."""
    values = []
    with mpmath.workdps(50):
        for i in range(head_dim // 2):
            angle = position * mpmath.power(mpmath.mpf(float(F(theta))), -mpmath.mpf(2 * i) / head_dim)
            if factors is not None:
                angle /= mpmath.mpf(float(factors[i]))
            values.append((angle, mpmath.cos(angle), mpmath.sin(angle)))
    return values


def rope_tables(theta: float, factors: Array | None, head_dim: int, position: int) -> tuple[Array, Array]:
    """cos and sin of one position, the true values rounded once to float32."""
    exact = rope_exact(theta, factors, head_dim, position)
    return np.array([round_float32(c) for _, c, _ in exact], F), np.array([round_float32(s) for _, _, s in exact], F)


def round_float32(x: mpmath.mpf) -> np.float32:
    """x to float32 in one rounding (by way of a double it could be two)."""
    near = F(float(x))
    candidates = [np.nextafter(near, F(-np.inf)), near, np.nextafter(near, F(np.inf))]
    with mpmath.workdps(50):
        return min(candidates, key=lambda c: (abs(mpmath.mpf(float(c)) - x), int(c.view(np.uint32)) & 1))


@dataclass
class Matrix:
    """q int8 [rows, cols] (of Q4_0: -8..7), d float32 [rows, cols / 32]."""

    q: Array
    d: Array

    def times(self, xq: Array, xd: Array) -> Array:
        return matvec_q8(self.q, self.d, xq, xd)

    def row(self, i: int) -> Array:
        return (self.q[i].reshape(-1, 32).astype(F) * self.d[i][:, None]).reshape(-1)


class Model:
    """Reads a .mlb file (docs/formats.md) and computes logits, token after token."""

    def __init__(self, path: Path) -> None:
        raw = path.read_bytes()
        assert raw[:4] == b"MLB1"
        (_, self.dim, n_layers, self.heads, self.kv_heads, hidden, vocab, _, self.theta, self.eps, wtype, shared, emb_type, factors) = (
            struct.unpack_from("<8I2f4I", raw, 4)
        )
        self.head_dim = self.dim // self.heads
        kv_dim, at = self.head_dim * self.kv_heads, 256

        def take(dtype: str, *shape: int) -> Array:
            nonlocal at
            start = (at + 63) // 64 * 64
            array = np.frombuffer(raw, dtype, int(np.prod(shape)), start).reshape(shape)
            at = start + array.nbytes
            return array

        def matrix(rows: int, cols: int, kind: int) -> Matrix:
            q = take("<i1", rows, cols) if kind == 1 else unpack_q4(take("<u1", rows, cols // 2))
            return Matrix(q, take("<f4", rows, cols // 32))

        emb = 1 if emb_type == 1 else wtype
        self.tok_emb = matrix(vocab, self.dim, emb)
        self.layers = []
        for _ in range(n_layers):
            self.layers.append(
                {
                    "attn_norm": take("<f4", self.dim),
                    "wq": matrix(self.dim, self.dim, wtype),
                    "wk": matrix(kv_dim, self.dim, wtype),
                    "wv": matrix(kv_dim, self.dim, wtype),
                    "wo": matrix(self.dim, self.dim, wtype),
                    "ffn_norm": take("<f4", self.dim),
                    "w1": matrix(hidden, self.dim, wtype),
                    "w2": matrix(self.dim, hidden, wtype),
                    "w3": matrix(hidden, self.dim, wtype),
                }
            )
        self.final_norm = take("<f4", self.dim)
        self.wcls = self.tok_emb if shared else matrix(vocab, self.dim, emb)
        self.factors = take("<f4", self.head_dim // 2) if factors else None
        assert at == len(raw)
        self.keys: list[list[Array]] = [[] for _ in self.layers]
        self.values: list[list[Array]] = [[] for _ in self.layers]

    def step(self, token: int) -> Array:
        """Logits float32 [vocab] after one more token."""
        cos_t, sin_t = rope_tables(self.theta, self.factors, self.head_dim, len(self.keys[0]))
        x = self.tok_emb.row(token)
        for i, layer in enumerate(self.layers):
            h = quantize_q8(rmsnorm(x, layer["attn_norm"], self.eps))
            q = rope(layer["wq"].times(*h).reshape(self.heads, -1), cos_t, sin_t)
            self.keys[i].append(rope(layer["wk"].times(*h).reshape(self.kv_heads, -1), cos_t, sin_t))
            self.values[i].append(layer["wv"].times(*h).reshape(self.kv_heads, -1))
            keys, values = np.array(self.keys[i]), np.array(self.values[i])
            group = self.heads // self.kv_heads
            out = np.concatenate([attention(q[n], keys[:, n // group], values[:, n // group]) for n in range(self.heads)])
            x = add(x, layer["wo"].times(*quantize_q8(out)))
            h = quantize_q8(rmsnorm(x, layer["ffn_norm"], self.eps))
            gate = silu_mul(layer["w1"].times(*h), layer["w3"].times(*h))
            x = add(x, layer["w2"].times(*quantize_q8(gate)))
        return self.wcls.times(*quantize_q8(rmsnorm(x, self.final_norm, self.eps)))
