# SPDX-License-Identifier: BSD-3-Clause
"""The converter's quantizers against scalar arithmetic written from the contract, exact bounds, and reference vectors."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from llama_numpy import forward, quantized_activations
from reference import Llama2cModel, kl, log_softmax

from legacyml_convert import quant
from legacyml_convert.llama2c import read as read_llama2c

SMALLEST = 2.0**-50
F = np.float32


def blocks() -> np.ndarray:
    """Blocks of every kind, float32 [n, 32]: normal ones of all sizes, zeros, tiny, huge, ties, outliers, one sign."""
    rng = np.random.default_rng(5)
    rows = [rng.standard_normal(32) * 10.0**e for e in range(-20, 38) for _ in range(4)]
    rows += [np.zeros(32), np.full(32, -0.0), np.ones(32), -np.ones(32), np.eye(32)[3], -np.eye(32)[31]]
    rows += [
        np.arange(32) - 15.5,
        (np.arange(32) - 16) / 127 * 2,
        np.abs(rng.standard_normal(32)),
        -np.abs(rng.standard_normal(32)),
    ]
    rows += [np.full(32, 2.0**-149), rng.standard_normal(32) * 1e-40, rng.standard_normal(32) * 2.0**-46]
    # d of Q8_0 and of Q4_0 on both sides of 2^-50.
    rows += [
        np.linspace(-1, 1, 32) * SMALLEST * f for f in (126.9, 127, 127.1, 254, 6.9, 7, 7.4, 7.5, 7.6, 8, 8.4, 8.5, 8.6)
    ]
    top = float(np.finfo(F).max)
    rows += [np.linspace(-top, top, 32), np.where(np.arange(32) == 7, top, 1e-30), np.full(32, -top)]
    # Exact ties: x * 127 / amax is a half for amax 127.
    rows += [
        np.where(np.arange(32) == 0, 127.0, np.arange(32) + 0.5),
        np.where(np.arange(32) == 0, -127.0, -np.arange(32) - 0.5),
    ]
    for size in (1.0, 9.0, 100.0):
        row = rng.standard_normal(32)
        row[11] = size * 9
        rows += [row, -row]
    return np.array(rows, dtype=np.float64).astype(F)


def q8_of_one_block(x: np.ndarray) -> tuple[list[int], np.float32]:
    """quantize_q8 as the contract words it, one element at a time."""
    bits = [struct.unpack("<I", struct.pack("<f", v))[0] & 0x7FFFFFFF for v in x]
    top = max(bits)
    if top >= 0x7F800000:
        return [0] * 32, F(np.nan)
    amax = F(struct.unpack("<f", struct.pack("<I", top))[0])
    d = F(amax / F(127))
    if d < SMALLEST:
        return [0] * 32, F(0)
    inverse = F(F(127) / amax)
    return [int(F(F(v * inverse) + np.copysign(F(0.5), v))) for v in x], d


def test_q8_is_the_contract() -> None:
    x = blocks()
    bad = x[:6].copy()
    bad[0, 0], bad[1, 31], bad[2, 5], bad[3, 4] = np.nan, np.inf, -np.inf, -np.nan
    x = np.concatenate([x, bad])
    q, d = quant.quantize_q8(x)
    expected = [q8_of_one_block(row) for row in x]
    assert np.array_equal(q, [row for row, _ in expected])
    assert np.array_equal(d[:, 0], [scale for _, scale in expected], equal_nan=True)
    assert np.isnan(d[len(x) - 6 : len(x) - 2]).all() and not np.isnan(d[-2:]).any()


def test_q8_blocks_lie_along_rows() -> None:
    x = np.random.default_rng(1).standard_normal((5, 96)).astype(F)
    q, d = quant.quantize_q8(x)
    assert q.shape == (5, 96) and d.shape == (5, 3) and q.dtype == np.int8 and d.dtype == F
    for row in range(5):
        for block in range(3):
            part = slice(32 * block, 32 * block + 32)
            one, scale = q8_of_one_block(x[row, part])
            assert q[row, part].tolist() == one and d[row, block] == scale


def levels_of(packed: np.ndarray) -> np.ndarray:
    """Q4_0's packed bytes [rows, 16 * n] -> levels -8..7 [rows, 32 * n], one nibble at a time."""
    out = np.zeros((packed.shape[0], packed.shape[1] * 2), dtype=np.int64)
    for byte in range(packed.shape[1]):
        block, i = divmod(byte, 16)
        out[:, 32 * block + i] = packed[:, byte] % 16 - 8
        out[:, 32 * block + 16 + i] = packed[:, byte] // 16 - 8
    return out


@pytest.mark.parametrize("kind", ["q8", "q4"])
def test_every_error_is_within_half_a_step(kind: str) -> None:
    """In binary64, in which products and differences of these numbers are as good as exact."""
    x = blocks()
    q, d = (quant.quantize_q8 if kind == "q8" else quant.quantize_q4)(x)
    levels = q.astype(np.int64) if kind == "q8" else levels_of(q.astype(np.int64))
    assert np.isfinite(d).all()
    nonzero = d[:, 0] != 0
    assert (np.abs(d[nonzero]) >= SMALLEST).all()
    error = np.abs(levels * d.astype(np.float64) - x.astype(np.float64))
    assert (error[nonzero] <= np.abs(d[nonzero].astype(np.float64)) / 2 * (1 + 2.0**-15)).all()
    # What has become 0 was so small that the scale had to.
    assert (levels[~nonzero] == 0).all()
    assert (np.abs(x[~nonzero]) < SMALLEST * (127 if kind == "q8" else 9)).all()
    assert nonzero.sum() > 200 and (~nonzero).sum() >= 4
    if kind == "q8":
        assert q.min() == -127 and q.max() == 127
    else:
        assert levels.min() == -8 and levels.max() == 7 and (d < 0).any() and (d > 0).any()
    dequantize = quant.dequantize_q8 if kind == "q8" else quant.dequantize_q4
    with np.errstate(over="ignore"):  # 127 * (largest float / 127) may round up
        assert np.array_equal(dequantize(q, d), levels.astype(F) * d)


def counted(x: np.ndarray) -> np.ndarray:
    """What the squared error of each weight counts: 1, and 4 more for each mean square of its block that its square is above 8 of them."""
    x = x.astype(np.float64)
    return 1 + 4 * np.maximum(x**2 / (x**2).mean(axis=1, keepdims=True) - 8, 0)


@pytest.mark.parametrize("kind", ["outliers", "none"])
def test_q4_is_near_the_best_scale(kind: str) -> None:
    """Against a dense scan of every scale that the bound allows, of both signs, up to twice the least one."""
    rng = np.random.default_rng(9)
    x = (rng.standard_t(6, (300, 32)) if kind == "outliers" else rng.uniform(-1, 1, (300, 32))).astype(F)
    importance = counted(x)
    assert ((importance > 1).any(axis=1).sum() > 60) if kind == "outliers" else (importance == 1).all()
    q, d = quant.quantize_q4(x)
    ours = ((levels_of(q.astype(np.int64)) * d.astype(np.float64) - x) ** 2 * importance).sum(axis=1)
    best = np.full(len(x), np.inf)
    for sign in (1.0, -1.0):
        y = sign * x.astype(np.float64)
        least = np.maximum(y.max(axis=1) / 7.5, -y.min(axis=1) / 8.5)
        for factor in np.linspace(1, 2, 1500):
            scale = (least * factor)[:, None]
            error = ((np.clip(np.rint(y / scale), -8, 7) * scale - y) ** 2 * importance).sum(axis=1)
            best = np.minimum(best, error)
    assert ours.sum() <= 1.01 * best.sum()
    assert (ours >= best * 0.98).all()  # else the scan, or the bound, is wrong


@pytest.mark.parametrize("sign", [1, -1])
def test_q4_outlier_by_hand(sign: int) -> None:
    """31 weights of 1 and one of 7.4: the square of the one is 20.4 mean squares and counts c = 50.7.

    On level 7 the error is 31 (1 - s)^2 + c (7.4 - 7 s)^2, least at s = (31 + 51.8 c) / (31 + 49 c) = 1.0564, where it is 0.100; on level -8
    of a scale of the other sign it is least at 0.926, where it is 0.173. Plain squared error would choose 1.0350.
    """
    x = np.full((1, 32), sign, F)
    x[0, 5] = 7.4 * sign
    c = 1 + 4 * (32 * 7.4**2 / (31 + 7.4**2) - 8)
    q, d = quant.quantize_q4(x)
    assert abs(abs(d[0, 0]) - (31 + 51.8 * c) / (31 + 49 * c)) < 1e-6
    assert levels_of(q.astype(np.int64))[0, 5] * np.sign(d[0, 0]) == 7 * sign


def test_q4_does_not_depend_on_what_lies_beside() -> None:
    x = np.random.default_rng(2).standard_normal((64, 96)).astype(F)
    q, d = quant.quantize_q4(x)
    for row in (0, 17, 63):
        alone_q, alone_d = quant.quantize_q4(x[row : row + 1])
        assert np.array_equal(alone_q[0], q[row]) and np.array_equal(alone_d[0], d[row])


def test_unit_vectors(data: Path) -> None:
    """Q8_0 is the reference's wherever d is not below 2^-50; Q4_0 is at least as good as both of its simple scales together."""
    folder = data / "quant"
    x, expected_q, expected_d = (np.load(folder / f"{name}.npy") for name in ("x", "q8", "q8_d"))
    names = json.loads((folder / "names.json").read_text())["names"]
    q, d = quant.quantize_q8(x)
    keep = expected_d.reshape(-1) >= SMALLEST
    assert 20 <= keep.sum() < len(names) == len(x)
    assert np.array_equal(q[keep], expected_q.reshape(x.shape)[keep])
    assert np.array_equal(d.reshape(-1)[keep], expected_d.reshape(-1)[keep])
    assert (q[~keep] == 0).all() and (d[~keep] == 0).all()

    q4, d4 = quant.quantize_q4(x[keep])
    wide = x[keep].astype(np.float64)
    ours = ((levels_of(q4.astype(np.int64)) * d4.astype(np.float64) - wide) ** 2).sum(axis=1)
    for kind in ("max", "ggml"):
        levels = levels_of(np.load(folder / f"q4_{kind}.npy").reshape(len(x), 16)[keep].astype(np.int64))
        scales = np.load(folder / f"q4_{kind}_d.npy").reshape(-1, 1)[keep].astype(np.float64)
        theirs = ((levels * scales - wide) ** 2).sum(axis=1)
        relative = np.maximum((wide**2).sum(axis=1), 1e-300)
        assert (ours / relative).sum() <= (theirs / relative).sum()


def nearest(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Q4_0 with given scales, dequantized; x [n, 32], d [n]."""
    scale = np.where(d == 0, 1, d)[:, None]
    return np.clip(np.rint(x / scale), -8, 7) * np.where(d == 0, 0, d)[:, None]


def simple_q4(w: np.ndarray, kind: str) -> np.ndarray:
    """The two usual choices of scale: amax / 7, or the value of largest magnitude over -8."""
    x = w.reshape(-1, 32)
    top = x[np.arange(len(x)), np.abs(x).argmax(axis=1)]
    return nearest(x, np.abs(top) / 7 if kind == "max" else top / -8).reshape(w.shape)


def test_q4_divergence_on_a_real_model(data: Path) -> None:
    """Mean KL to fp32 over 3 x 300 tokens sampled at temperature 1 (seeds 0, 1, 2), everything Q4_0 but the norms."""
    path = data / "llama2c/stories260K.bin"
    exact = Llama2cModel(path)
    source = read_llama2c(path)

    def quantized(kind: str) -> dict[str, np.ndarray]:
        weights = {}
        for name, tensor in source.tensors.items():
            w = tensor.read(0, tensor.rows).astype(np.float64)
            if tensor.rows > 1:
                padded = np.pad(w, ((0, 0), (0, -w.shape[1] % 32)))
                wide = quant.dequantize_q4(*quant.quantize_q4(padded)) if kind == "ours" else simple_q4(padded, kind)
                w = wide[:, : w.shape[1]].astype(np.float64)
            weights[name] = w
        return weights

    sequences = [exact.sample(1, 300, seed) for seed in range(3)]
    mean = {}
    for kind in ("ours", "max", "ggml"):
        weights = quantized(kind)
        rows = [
            kl(logits, forward(weights, source.header, tokens, quantized_activations)) for tokens, logits in sequences
        ]
        mean[kind] = float(np.mean(np.concatenate(rows)))
    assert 0.01 < mean["ours"] <= 0.75 * mean["max"], mean
    assert mean["ours"] <= 0.92 * mean["ggml"], mean
    # The measure itself: the unquantized weights diverge by nothing.
    tokens, logits = sequences[0]
    weights = {name: tensor.read(0, tensor.rows).astype(np.float64) for name, tensor in source.tensors.items()}
    assert np.abs(log_softmax(forward(weights, source.header, tokens)) - log_softmax(logits)).max() < 1e-9
