# SPDX-License-Identifier: BSD-3-Clause
"""Quantizers of the two weight types, in blocks of 32 along a row, and the way back.

Only element-wise operations and sums in a fixed order are used, so the result is the same on every machine.
"""

from __future__ import annotations

import numpy as np

BLOCK = 32
SMALLEST_SCALE = np.float32(2.0**-50)
"""Scales below become 0: no subnormal numbers reach the runtime."""

_ABS_BITS = np.int32(0x7FFFFFFF)
_INF_BITS = np.int32(0x7F800000)
_SIGN_BIT = np.uint32(0x80000000)
_HALF_BITS = np.uint32(0x3F000000)
_F127 = np.float32(127)

# Q4_0 tries scales from the smallest that keeps every error within half a step up to _STEPS * _STEP above it. Wider or finer
# searches gain less than a thousandth of the error.
_STEPS = 24
_STEP = 0.0125
# A weight whose square is more than _OUTLIER times its block's mean square counts for more, by _OUTLIER_WEIGHT for each mean square
# above that. Trained models have columns of large weights that meet large activations, which plain squared error does not know; blocks
# without such a weight do better with plain squared error. docs/quality.md has figures.
_OUTLIER = np.float32(8)
_OUTLIER_WEIGHT = np.float32(4)
_SEARCHED_AT_ONCE = 2048
"""Blocks: they and what the search computes of them stay in the second-level cache."""


def _fold(x: np.ndarray, operation: np.ufunc) -> np.ndarray:
    """(32, n) -> (n,): the reduction of axis 0 in halves, an order that does not depend on the machine. Overwrites x."""
    half = x.shape[0] // 2
    while half:
        operation(x[:half], x[half : 2 * half], out=x[:half])
        half //= 2
    return x[0]


def quantize_q8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q8_0 exactly as the runtime quantizes activations.

    x: float32 (rows, cols), cols a multiple of 32. Returns q int8 (rows, cols) in -127..127 and d float32 (rows, cols / 32).
    A block with a NaN or an infinity gets d = NaN and q = 0.
    """
    rows, cols = x.shape
    blocks = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, BLOCK)
    # The largest of neighbours, then of these, down to one for each block: faster than many reductions of 32.
    amax_bits = (blocks.view(np.int32) & _ABS_BITS).reshape(-1)
    while amax_bits.size > len(blocks):
        amax_bits = np.maximum(amax_bits[0::2], amax_bits[1::2])
    bad = amax_bits >= _INF_BITS
    amax = np.where(bad, np.int32(0), amax_bits).view(np.float32)
    d = amax / _F127
    keep = d >= SMALLEST_SCALE
    d = np.where(keep, d, np.float32(0))
    inverse = np.zeros_like(d)
    np.divide(_F127, amax, out=inverse, where=keep)
    half = blocks.view(np.uint32) & _SIGN_BIT
    half |= _HALF_BITS  # copysign(0.5, x)
    with np.errstate(invalid="ignore"):  # of a block that is not finite, whose q is set to 0
        scaled = blocks * inverse[:, None]
    scaled += half.view(np.float32)
    if bad.any():
        scaled[bad] = 0
        d[bad] = np.nan
    q = scaled.astype(np.int8)  # truncates, so that a block without a scale gives 0
    return q.reshape(rows, cols), d.reshape(rows, cols // BLOCK)


def dequantize_q8(q: np.ndarray, d: np.ndarray) -> np.ndarray:
    """q int8 (rows, cols), d float32 (rows, cols / 32) -> float32 (rows, cols)."""
    rows, cols = q.shape
    return (q.reshape(rows, -1, BLOCK).astype(np.float32) * d[:, :, None]).reshape(rows, cols)


def _nearest_levels(x: np.ndarray, d: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The level in -8..7 nearest to x / d, as float32; x (32, n), d (n,) not 0."""
    q = np.divide(x, d, out=out)
    np.rint(q, out=q)
    return np.clip(q, np.float32(-8), np.float32(7), out=q)


def _importance(x: np.ndarray) -> np.ndarray:
    """What the squared error of each element counts; x (32, n) whose squares neither overflow nor vanish."""
    square = x * x
    mean = _fold(square.copy(), np.add) / np.float32(BLOCK)
    above = np.divide(square, np.where(mean > 0, mean, np.float32(1)), out=square)
    above -= _OUTLIER
    np.maximum(above, np.float32(0), out=above)
    above *= _OUTLIER_WEIGHT
    above += np.float32(1)
    return above


def _search_scale(x: np.ndarray, importance: np.ndarray, bound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best positive scale of each block that is at least `bound`.

    x and importance float32 (32, n), bound float32 (n,). Returns d (n,) and its cost (n,): weighted squared error minus the weighted
    sum of squares of x.
    """
    important = x * importance
    best_d = bound.copy()
    best_cost = np.full_like(bound, np.inf)
    levels, product = np.empty_like(x), np.empty_like(x)
    for step in range(_STEPS + 1):
        # The last round starts from the best scale so far: levels that suit it, then the scale that suits them.
        d = bound * np.float32(1 + _STEP * step) if step < _STEPS else best_d
        q = _nearest_levels(x, d, levels)
        xq = _fold(np.multiply(important, q, out=product), np.add).copy()
        np.multiply(q, q, out=q)
        qq = _fold(np.multiply(q, importance, out=q), np.add)
        refit = xq / np.maximum(qq, np.float32(1))
        d = np.maximum(refit, bound)
        cost = d * (d * qq - (xq + xq))
        better = cost < best_cost
        best_d = np.where(better, d, best_d)
        best_cost = np.where(better, cost, best_cost)
    return best_d, best_cost


def quantize_q4(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q4_0 with a searched scale of either sign.

    x: finite float32 (rows, cols), cols a multiple of 32. Returns q uint8 (rows, cols / 2), packed, and d float32
    (rows, cols / 32). With levels -8..7 and a scale of at least max(hi / 7.5, lo / 8.5), hi and lo being how far the block
    reaches on the side of level 7 and of level -8, every element is within half a step of a level. Among those scales the one
    with the smallest squared error is looked for, in which outliers count for more.
    """
    rows, cols = x.shape
    blocks = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, BLOCK)
    packed = np.empty((len(blocks), BLOCK // 2), np.uint8)
    d = np.empty(len(blocks), np.float32)
    for first in range(0, len(blocks), _SEARCHED_AT_ONCE):
        part = slice(first, first + _SEARCHED_AT_ONCE)
        packed[part], d[part] = _quantize_q4_blocks(blocks[part])
    return packed.reshape(rows, cols // 2), d.reshape(rows, cols // BLOCK)


def _quantize_q4_blocks(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """blocks float32 (n, 32) -> packed levels (n, 16) and scales (n,)."""
    columns = np.ascontiguousarray(blocks.T)
    amax = _fold(np.abs(columns), np.maximum)
    # Powers of two are taken out, so that squares neither overflow nor vanish.
    exponent = np.frexp(amax)[1]
    columns = np.ldexp(columns, -exponent)
    up = np.maximum(_fold(columns.copy(), np.maximum), np.float32(0))
    down = np.maximum(-_fold(columns.copy(), np.minimum), np.float32(0))
    empty = amax == 0

    def bound(hi: np.ndarray, lo: np.ndarray) -> np.ndarray:
        least = np.maximum(hi / np.float32(7.5), lo / np.float32(8.5))
        return np.where(empty, np.float32(1), least)

    importance = _importance(columns)
    d_plus, cost_plus = _search_scale(columns, importance, bound(up, down))
    d_minus, cost_minus = _search_scale(-columns, importance, bound(down, up))
    d = np.where(cost_minus < cost_plus, -d_minus, d_plus)
    levels = _nearest_levels(columns, d)
    d = np.ldexp(d, exponent)
    zero = empty | (np.abs(d) < SMALLEST_SCALE)
    d[zero] = 0
    levels[:, zero] = 0
    nibbles = (levels + np.float32(8)).astype(np.uint8)
    return (nibbles[:16] | nibbles[16:] << 4).T, d


def dequantize_q4(q: np.ndarray, d: np.ndarray) -> np.ndarray:
    """q uint8 (rows, cols / 2), d float32 (rows, cols / 32) -> float32 (rows, cols)."""
    rows, half = q.shape
    return (unpack_q4(q.reshape(rows, -1, BLOCK // 2)) * d[:, :, None]).reshape(rows, half * 2)


def unpack_q4(q: np.ndarray) -> np.ndarray:
    """Packed levels of blocks, uint8 (..., 16) -> float32 (..., 32) in -8..7."""
    levels = np.concatenate([q & 15, q >> 4], axis=-1).astype(np.float32)
    levels -= np.float32(8)
    return levels


def worst_block(x: np.ndarray, q: np.ndarray, d: np.ndarray) -> tuple[float, int]:
    """The largest error of a block, and which block of x it is, counted along the rows.

    x finite float32 (rows, cols), q and d what a quantizer made of it. A block's error is the root mean square of what
    quantizing changed over that of the block. Blocks whose scale became 0, being smaller than any weight that matters, do not count.
    """
    scale = d.reshape(-1)
    inverse = np.zeros_like(scale)
    np.divide(np.float32(1), scale, out=inverse, where=scale != 0)
    # In steps of the scale: no square overflows or vanishes.
    steps = x.reshape(-1, BLOCK) * inverse[:, None]
    size = np.einsum("ij,ij->i", steps, steps)
    steps -= q.reshape(-1, BLOCK) if q.dtype == np.int8 else unpack_q4(q.reshape(-1, BLOCK // 2))
    error = np.einsum("ij,ij->i", steps, steps) / np.where(size == 0, np.float32(1), size)
    worst = int(error.argmax())
    return float(np.sqrt(error[worst])), worst
