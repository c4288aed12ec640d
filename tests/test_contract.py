# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic contract: scalar kernels equal its mirror bit for bit, both are right, and a kernel that is wrong is noticed."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Callable, Iterator

import mpmath
import numpy as np
import pytest

import mirror
from conftest import HOST, REGISTRY, TOP, chain, runs_here

F = np.float32
FLOATS_2 = np.ctypeslib.ndpointer(F, ndim=2, flags="C_CONTIGUOUS")
FLOATS = np.ctypeslib.ndpointer(F, flags="C_CONTIGUOUS")


class QTensor(ctypes.Structure):
    """ml_qtensor of src/core/tensor.h."""

    _fields_ = [("q", ctypes.c_void_p), ("d", ctypes.c_void_p), ("rows", ctypes.c_int), ("cols", ctypes.c_int), ("type", ctypes.c_uint8)]


class QAct(ctypes.Structure):
    """ml_qact of src/core/tensor.h."""

    _fields_ = [("q", ctypes.c_void_p), ("d", ctypes.c_void_p), ("sums", ctypes.c_void_p), ("n", ctypes.c_int)]


class Kernels:
    """The kernels of one ISA in a shared library, with the shapes of mirror.py."""

    def __init__(self, library: Path, isa: str) -> None:
        self.library, self.isa = ctypes.CDLL(str(library)), isa

    def _function(self, op: str, result: type | None, *arguments: object) -> Callable:
        names = (f"ml_k_{op}_{isa}" for isa in chain(self.isa))
        function = self.library[next(name for name in names if hasattr(self.library, name))]
        function.restype, function.argtypes = result, arguments
        return function

    def matvec(self, op: str, q: np.ndarray, d: np.ndarray, xq: np.ndarray, xd: np.ndarray, rows: slice = slice(None), apart: int = 0) -> np.ndarray:
        """One product; elements outside `rows`, and those `apart`, 2 apart and 3 apart below them, stay 99."""
        y = np.full(len(q), 99, F)
        first, last, _ = rows.indices(len(q))
        w = QTensor(q.ctypes.data, d.ctypes.data, len(q), len(xq), 1 if op == "matvec_q8" else 2)
        sums = xq.reshape(-1, 32).sum(axis=1, dtype=np.int32)
        x = QAct(xq.ctypes.data, xd.ctypes.data, sums.ctypes.data, len(xq))
        self._function(op, None, FLOATS, *[ctypes.c_void_p] * 2, *[ctypes.c_int] * 3)(y, ctypes.addressof(w), ctypes.addressof(x), first, last, apart)
        return y

    def matmul(self, op: str, q: np.ndarray, d: np.ndarray, xq: np.ndarray, xd: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        """The products with every row of xq; elements outside `rows` stay 99."""
        y = np.full((len(xq), len(q)), 99, F)
        first, last, _ = rows.indices(len(q))
        sums = np.ascontiguousarray(xq.reshape(-1, 32).sum(axis=1, dtype=np.int32))
        w = QTensor(q.ctypes.data, d.ctypes.data, len(q), xq.shape[1], 1 if op == "matmul_q8" else 2)
        x = QAct(xq.ctypes.data, xd.ctypes.data, sums.ctypes.data, xq.shape[1])
        function = self._function(op, None, ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_void_p] * 2, *[ctypes.c_int] * 3)
        function(y.ctypes.data, len(q), ctypes.addressof(w), ctypes.addressof(x), len(xq), first, last)
        return y

    def quantize_q8(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q, d = np.full(len(x), 99, np.int8), np.full(len(x) // 32, 99, F)
        sums = np.full(len(x) // 32, 99, np.int32)
        act = QAct(q.ctypes.data, d.ctypes.data, sums.ctypes.data, len(x))
        self._function("quantize_q8", None, ctypes.c_void_p, FLOATS, ctypes.c_int)(ctypes.addressof(act), x, len(x))
        assert np.array_equal(sums, q.reshape(-1, 32).sum(axis=1, dtype=np.int32))
        return q, d

    def dot_f32(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return F(self._function("dot_f32", ctypes.c_float, FLOATS, FLOATS, ctypes.c_int)(a, b, len(a)))

    def axpy_f32(self, y: np.ndarray, a: np.float32, x: np.ndarray) -> np.ndarray:
        y = y.copy()
        self._function("axpy_f32", None, FLOATS, ctypes.c_float, FLOATS, ctypes.c_int)(y, a, x, len(x))
        return y

    def scores_f32(self, q: np.ndarray, k: np.ndarray, factor: np.float32) -> np.ndarray:
        y = np.full((len(q), len(k)), 99, F)
        arguments = [FLOATS_2, ctypes.c_size_t, FLOATS_2, ctypes.c_int, FLOATS_2, ctypes.c_int, ctypes.c_int, ctypes.c_float]
        self._function("scores_f32", None, *arguments)(y, len(k), q, len(q), k, len(k), q.shape[1], factor)
        return y

    def mix_f32(self, y: np.ndarray, p: np.ndarray, v: np.ndarray) -> np.ndarray:
        y = y.copy()
        arguments = [FLOATS_2, FLOATS_2, ctypes.c_size_t, ctypes.c_int, FLOATS_2, ctypes.c_int, ctypes.c_int]
        self._function("mix_f32", None, *arguments)(y, p, p.shape[1], len(p), v, len(v), y.shape[1])
        return y

    def add(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        y = y.copy()
        self._function("add", None, FLOATS, FLOATS, ctypes.c_int)(y, x, len(x))
        return y

    def rmsnorm(self, x: np.ndarray, w: np.ndarray, eps: float) -> np.ndarray:
        o = np.empty_like(x)
        self._function("rmsnorm", None, FLOATS, FLOATS, FLOATS, ctypes.c_int, ctypes.c_float)(o, x, w, len(x), eps)
        return o

    def softmax(self, x: np.ndarray) -> np.ndarray:
        x = x.copy()
        self._function("softmax", None, FLOATS, ctypes.c_int)(x, len(x))
        return x

    def silu_mul(self, g: np.ndarray, u: np.ndarray) -> np.ndarray:
        g = g.copy()
        self._function("silu_mul", None, FLOATS, FLOATS, ctypes.c_int)(g, u, len(u))
        return g

    def rope(self, q: np.ndarray, k: np.ndarray, cos_t: np.ndarray, sin_t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q, k = q.copy(), k.copy()
        self._function("rope", None, *[FLOATS] * 4, *[ctypes.c_int] * 3)(q, k, cos_t, sin_t, q.shape[1], len(q), len(k))
        return q, k


@pytest.fixture
def kernels(isa: str, build: Callable[..., Path]) -> Kernels:
    return Kernels(build(isa) / "libmlkernels.so", isa)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, where any NaN equals any NaN."""
    a, b = (np.where(np.isnan(v), F(np.nan), v).astype(F) for v in (np.asarray(a), np.asarray(b)))
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def numbers(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """float32 [n]: ordinary, wide (exponents -30..30), hostile (any bits at all), or with a few special values."""
    ordinary = (rng.random(n) * 8 - 4).astype(F)
    if kind == "wide":
        return np.ldexp(ordinary, rng.integers(-30, 30, n)).astype(F)
    if kind == "hostile":
        return rng.integers(0, 2**32, n, dtype=np.uint32).view(F)
    if kind == "special":
        values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38, -3e38, 88.8, -87.4, -104], F)
        return np.where(rng.random(n) < 0.1, rng.choice(values, n), ordinary).astype(F)
    return ordinary


KINDS = ("ordinary", "wide", "special", "hostile")
SIZES = [*range(1, 70), 95, 127, 128, 129, 255, 257, 576, 1000]


def float_cases(kinds: tuple[str, ...] = KINDS, sizes: list[int] = SIZES) -> Iterator[tuple]:
    """(n, one factor, three vectors of n) for every kind and size; the seed is fixed."""
    rng = np.random.default_rng(20261130)
    for kind in kinds:
        for n in sizes:
            yield n, numbers(rng, kind, 1)[0], *(numbers(rng, kind, n) for _ in range(3))


def compare(op: str, found: Callable, expected: Callable, cases: Iterator[tuple]) -> list[tuple]:
    """The cases on which two implementations differ."""
    return [case[:1] for case in cases if not same(found(*case), expected(*case))]


# -- Equality with the mirror --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["dot_f32", "axpy_f32", "add", "rmsnorm", "softmax", "silu_mul"])
def test_float_kernels(op: str, kernels: Kernels) -> None:
    def call(target: object) -> Callable:
        function = getattr(target, op)
        return {
            "axpy_f32": lambda n, a, x, y, z: function(y, a, x),
            "rmsnorm": lambda n, a, x, y, z: function(x, y, 1e-5),
            "softmax": lambda n, a, x, y, z: function(x),
        }.get(op, lambda n, a, x, y, z: function(x, y))

    assert compare(op, call(kernels), call(mirror), float_cases()) == []


def test_rope_kernel(kernels: Kernels) -> None:
    rng = np.random.default_rng(1)
    for kind in KINDS:
        for head_dim in (2, 4, 6, 8, 10, 14, 48, 64, 66, 128):
            for heads, kv_heads in ((3, 3), (4, 1), (6, 2), (1, 1)):
                q, k = (numbers(rng, kind, n * head_dim).reshape(n, head_dim) for n in (heads, kv_heads))
                cos_t, sin_t = numbers(rng, kind, head_dim // 2), numbers(rng, kind, head_dim // 2)
                found = kernels.rope(q, k, cos_t, sin_t)
                for x, turned in zip((q, k), found):
                    assert same(turned, mirror.rope(x, cos_t, sin_t)), (kind, head_dim, heads, kv_heads)


def half_steps(rng: np.random.Generator, blocks: int) -> np.ndarray:
    """float32 [32 * blocks]: a largest element, and others within two floats of half a step, where 127 / amax and 1 / d round apart."""
    amax = np.ldexp(1 + rng.random((blocks, 1)), rng.integers(-40, 40, (blocks, 1))).astype(F)
    x = ((rng.integers(-127, 127, (blocks, 31)) + 0.5) * (amax.astype(np.float64) / 127)).astype(F)
    x = (x.view(np.int32) + rng.integers(-2, 3, x.shape, dtype=np.int32)).view(F)
    return np.concatenate([x[:, :17], amax, x[:, 17:]], axis=1).reshape(-1)


def test_quantize_kernel(kernels: Kernels) -> None:
    rng = np.random.default_rng(2)
    for kind in KINDS:
        for blocks in (1, 2, 3, 7, 40):
            x = numbers(rng, kind, 32 * blocks)
            for factor in (1.0, 1e-14, 1e-30, 1e30):
                with np.errstate(all="ignore"):
                    scaled = (x * F(factor)).astype(F)
                found, expected = kernels.quantize_q8(scaled), mirror.quantize_q8(scaled)
                assert np.array_equal(found[0], expected[0]) and same(found[1], expected[1]), (kind, blocks, factor)
    x = half_steps(rng, 200)
    found, expected = kernels.quantize_q8(x), mirror.quantize_q8(x)
    assert np.array_equal(found[0], expected[0]) and same(found[1], expected[1])


EXP_LOW, EXP_HIGH = float.fromhex("-0x1.5d589ep+6"), float.fromhex("0x1.62e42ep+6")
EXP_SOURCE = {
    "scalar": '#include "kernels/scalar/float.h"\nvoid exp_all(float *x, int n) { for (int i = 0; i < n; i++) x[i] = ml_exp_scalar(x[i]); }',
    "vector": '#include "kernels/ISA/v16.h"\n#include "kernels/vector/float_ops.h"\n'
    "void exp_all(float *x, int n) { for (int i = 0; i < n; i += 16) v16_store(x + i, v16_exp(v16_load(x + i))); }",
}


def exp_cases() -> np.ndarray:
    """float32 [n], n a multiple of 16: all of the range, any bits, and every float near 0, the ends and the steps of the rounded exponent.

    The last bits of the first two coefficients change so few results that these were searched for: one up, one down of either.
    """
    rare = [float.fromhex(v) for v in ("-0x1.e4c4f6p-3", "-0x1.c7e5bep-3", "0x1.44ded8p-3", "0x1.3f51b8p-2")]
    steps = np.arange(-2048, 2048, dtype=np.int64)
    middle = [(k + 0.5) * np.log(2) for k in range(-126, 128)]
    near = [np.asarray(at, F).view(np.int32) + steps for at in (EXP_LOW, EXP_HIGH, 1.0, -1.0, 104.0, -104.0, np.inf, -np.inf)]
    near += [np.asarray(at, F).view(np.int32) + steps[2044:2052] for at in middle]
    near += [np.arange(2048), np.arange(2048) - 2**31]
    bits = np.concatenate(near).astype(np.int64).astype(np.uint32)
    anything = np.random.default_rng(10).integers(0, 2**32, 2**18, dtype=np.uint32)
    x = np.concatenate([np.array(rare, F), bits.view(F), anything.view(F), np.linspace(-105, 90, 2**19).astype(F), np.linspace(-1, 1, 2**18).astype(F)])
    return x[: len(x) // 16 * 16].copy()


def test_exp_bits(isa: str, tmp_path: Path) -> None:
    """exp alone, over a million arguments; in softmax and silu_mul the last bit is often rounded away."""
    lanes = next((name for name in chain(isa) if (TOP / f"src/kernels/{name}/v16.h").exists()), None)
    text = EXP_SOURCE["scalar" if lanes is None else "vector"].replace("ISA", lanes or "")
    allowed = next(row["arch"][HOST]["flags"] for row in REGISTRY["isa"] if row["name"] == isa)
    flags = [*allowed.split(), *"-std=c11 -O2 -ffp-contract=off -fno-math-errno -shared -fPIC -x c -".split()]
    subprocess.run(["gcc", f"-I{TOP}/src", *flags, "-o", tmp_path / "exp.so"], input=text, text=True, check=True)
    function = ctypes.CDLL(str(tmp_path / "exp.so")).exp_all
    function.restype, function.argtypes = None, [FLOATS, ctypes.c_int]
    x = exp_cases()
    found, expected = x.copy(), mirror.exp(x)
    function(found, len(found))
    assert {EXP_LOW, EXP_HIGH, 0.0, np.inf, -np.inf} <= set(x[~np.isnan(x)].tolist())
    assert same(found, expected)


def matvec_cases(seed: int = 3) -> Iterator[tuple]:
    rng = np.random.default_rng(seed)
    for op in ("matvec_q8", "matvec_q4"):
        for blocks in (*range(1, 26), 48, 64):
            rows = int(rng.integers(1, 10))
            q = rng.integers(-128, 128, (rows, 32 * blocks // (1 if op == "matvec_q8" else 2))).astype(np.int8)
            xq = rng.integers(-127, 128, 32 * blocks).astype(np.int8)
            if blocks % 5 == 0:
                q[:], xq[:] = rng.choice([-128, 127], q.shape), rng.choice([-127, 127], xq.shape)
            kind = KINDS[blocks % 3]
            yield op, q, numbers(rng, kind, rows * blocks).reshape(rows, blocks), xq, numbers(rng, kind, blocks)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_kernels(kind: str, kernels: Kernels) -> None:
    """Every score is the mirror's dot product times the factor; every query's values are added up as its axpy in rising order."""
    rng = np.random.default_rng(10)
    for n in (1, 2, 8, 16, 31, 48, 64, 80, 128):
        for queries, positions in (1, 1), (1, 3), (3, 4), (2, 37), (4, 70):
            q, k = numbers(rng, kind, queries * n).reshape(queries, n), numbers(rng, kind, positions * n).reshape(positions, n)
            factor, p = numbers(rng, kind, 1)[0], numbers(rng, kind, queries * positions).reshape(queries, positions)
            with np.errstate(all="ignore"):
                expected = np.array([[mirror.dot_f32(x, y) * factor for y in k] for x in q], F)
            assert same(kernels.scores_f32(q, k, factor), expected), (n, queries, positions)
            mixed = q.copy()
            for i in range(queries):
                for t in range(positions):
                    mixed[i] = mirror.axpy_f32(mixed[i], p[i, t], k[t])
            assert same(kernels.mix_f32(q, p, k), mixed), (n, queries, positions)


def test_matmul_kernels(kernels: Kernels) -> None:
    """Every column of a product is what the mirror's product with that vector is; rows and columns around the sizes of panels and tiles."""
    rng = np.random.default_rng(9)
    for op in ("matvec_q8", "matvec_q4"):
        of_columns = op.replace("matvec", "matmul")
        for rows, blocks, columns in (1, 1, 1), (5, 3, 2), (16, 8, 3), (33, 18, 17), (20, 65, 16), (40, 9, 131):
            q = rng.integers(-128, 128, (rows, 32 * blocks // (1 if op == "matvec_q8" else 2))).astype(np.int8)
            d, xd = rng.standard_normal((rows, blocks)).astype(F), rng.standard_normal((columns, blocks)).astype(F)
            xq = rng.integers(-127, 128, (columns, 32 * blocks)).astype(np.int8)
            view = q if op == "matvec_q8" else q.view(np.uint8)
            expected = np.array([getattr(mirror, op)(view, d, xq[c], xd[c]) for c in range(columns)])
            assert same(kernels.matmul(of_columns, q, d, xq, xd), expected), (of_columns, rows, blocks, columns)
            part = kernels.matmul(of_columns, q, d, xq, xd, slice(1, rows - 1))
            assert same(part[:, 1 : rows - 1], expected[:, 1 : rows - 1]), (of_columns, rows, blocks, columns)
            assert np.all(part[:, :1] == 99) and np.all(part[:, max(1, rows - 1) :] == 99), (of_columns, rows, blocks, columns)


def test_matvec_kernels(kernels: Kernels) -> None:
    for op, *case in matvec_cases():
        expected = getattr(mirror, op)(case[0] if op == "matvec_q8" else case[0].view(np.uint8), *case[1:])
        for first in range(len(expected)):
            rows = slice(first, len(expected) - first // 2)
            right = np.full(len(expected), 99, F)
            right[rows] = expected[rows]
            assert same(kernels.matvec(op, *case, rows=rows), right), (op, case[0].shape, rows)
        for apart in range(1, len(expected) // 4 + 1):
            rows = slice(0, len(expected) - 3 * apart - 1)
            right = np.full(len(expected), 99, F)
            for stream in range(4):
                at = slice(stream * apart, stream * apart + rows.stop)
                right[at] = expected[at]
            assert same(kernels.matvec(op, *case, rows=rows, apart=apart), right), (op, case[0].shape, rows, apart)


# -- Broken kernels are noticed ------------------------------------------------------------------------------------------------

BROKEN = {
    "fold in neighbours instead of halves": ("dot_f32", "ml_fold(lane, 16)", "neighbours(lane, 16)"),
    "eight lanes instead of sixteen": ("dot_f32", "i % 16", "i % 8"),
    "fused multiply-add in a dot product": ("dot_f32", "lane[i % 16] + a[i] * b[i]", "__builtin_fmaf(a[i], b[i], lane[i % 16])"),
    "fused multiply-add in axpy": ("axpy_f32", "y[i] + a * x[i]", "__builtin_fmaf(a, x[i], y[i])"),
    "four lanes instead of eight": ("matvec_q8", "b % 8", "b % 4"),
    "weight scale first": ("matvec_q8", "(float)sum * (d[b] * x->d[b])", "((float)sum * d[b]) * x->d[b]"),
    "fused multiply-add in a matrix product": (
        "matvec_q4",
        "lane[b % 8] + (float)sum * (d[b] * x->d[b])",
        "__builtin_fmaf((float)sum, d[b] * x->d[b], lane[b % 8])",
    ),
    "nibbles swapped": ("matvec_q4", "byte % 16", "byte / 16"),
    "round to even": ("quantize_q8", "(int8_t)(x[i] * inverse + half)", "(int8_t)__builtin_rintf(x[i] * inverse + 0 * half)"),
    "inverse of the rounded scale": ("quantize_q8", "127.0f / amax", "1.0f / scale"),
    "division by the scale": ("quantize_q8", "x[i] * inverse", "x[i] / (0 * inverse + scale)"),
    "half without the sign": ("quantize_q8", "x[i] * inverse + half", "x[i] * inverse + 0.5f + 0 * half"),
    "no floor for scales": ("quantize_q8", "scale < ML_D_MIN", "scale < 0x1p-100f"),
    "weight before the norm": ("rmsnorm", "(x[i] * r) * w[i]", "x[i] * (r * w[i])"),
    "division by the sum": ("softmax", "x[i] * inverse", "x[i] / (1.0f / inverse)"),
    "silu in another order": ("silu_mul", "(g[i] / (1.0f + ml_exp_scalar(-g[i]))) * u[i]", "(g[i] * u[i]) / (1.0f + ml_exp_scalar(-g[i]))"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_notices(what: str, tmp_path: Path) -> None:
    """A scalar kernel with one thing changed differs from the mirror on the same cases; unchanged it does not."""
    op, right, wrong = BROKEN[what]
    source = (TOP / f"src/kernels/scalar/{op}.c").read_text().replace('#include "', f'#include "{TOP}/src/kernels/scalar/')
    assert right in source
    neighbours = "static inline float neighbours(float *l, int n) {\n  for (; n > 1; n /= 2)\n    for (int i = 0; i < n / 2; i++)\n"
    neighbours += "      l[i] = l[2 * i] + l[2 * i + 1];\n  return l[0];\n}\n"
    others = [str(TOP / "src/kernels/scalar/dot_f32.c")] if op == "rmsnorm" else []
    differs = []
    for text in (source, neighbours + source.replace(right, wrong)):
        library = tmp_path / f"{len(differs)}.so"
        flags = "-std=c11 -O2 -ffp-contract=off -fno-math-errno -mfma -w -shared -fPIC -x c -".split()
        subprocess.run(["gcc", *flags, *others, "-o", library], input=text, text=True, check=True)
        broken = Kernels(library, "scalar")
        if op.startswith("matvec"):
            cases = (case for case in matvec_cases() if case[0] == op)
            view = (lambda q: q) if op == "matvec_q8" else (lambda q: q.view(np.uint8))
            differs.append(any(not same(broken.matvec(*c), getattr(mirror, op)(view(c[1]), *c[2:])) for c in cases))
        elif op == "quantize_q8":
            rng = np.random.default_rng(4)
            ties = [F(0.5 + i) for i in range(31)] + [F(127)]
            blocks = [np.array(ties, F), *(numbers(rng, "wide", 320) for _ in range(20)), np.full(32, 1e-20, F), half_steps(rng, 100)]
            pairs = ((broken.quantize_q8(b), mirror.quantize_q8(b)) for b in blocks)
            differs.append(any(not (np.array_equal(f[0], e[0]) and same(f[1], e[1])) for f, e in pairs))
        else:
            call = {
                "dot_f32": lambda t: lambda n, a, x, y, z: t.dot_f32(x, y),
                "axpy_f32": lambda t: lambda n, a, x, y, z: t.axpy_f32(y, a, x),
                "rmsnorm": lambda t: lambda n, a, x, y, z: t.rmsnorm(x, y, 1e-5),
                "softmax": lambda t: lambda n, a, x, y, z: t.softmax(x),
                "silu_mul": lambda t: lambda n, a, x, y, z: t.silu_mul(x, y),
            }[op]
            differs.append(bool(compare(op, call(broken), call(mirror), float_cases(("ordinary",)))))
    assert differs == [False, True]


# -- Both are right ------------------------------------------------------------------------------------------------------------


def test_exp() -> None:
    """Within 1e-6 of double precision where the result is normal; exact values and signs at the ends; monotone for softmax."""
    x = exp_cases()
    inside = x[(x >= F(EXP_LOW)) & (x <= F(EXP_HIGH))]
    assert inside.min() == F(EXP_LOW) and inside.max() == F(EXP_HIGH)
    assert np.abs(mirror.exp(inside).astype(np.float64) / np.exp(inside.astype(np.float64)) - 1).max() < 1e-7
    ends = np.array([0.0, -0.0, np.nextafter(F(EXP_HIGH), F(100)), np.nextafter(F(EXP_LOW), F(-100)), np.inf, -np.inf, np.nan], F)
    assert same(mirror.exp(ends), np.array([1, 1, np.inf, 0, np.inf, 0, np.nan], F))
    values = mirror.exp(np.sort(x[x <= 0]))
    assert values.max() <= 1 and (np.diff(values) >= 0).all()


def test_against_double(kernels: Kernels) -> None:
    """On ordinary numbers every kernel is within 1e-5 of float64 (relative to the sum of the sizes of its terms)."""
    for n, a, x, y, z in float_cases(("ordinary",)):
        x64, y64 = x.astype(np.float64), y.astype(np.float64)
        assert abs(kernels.dot_f32(x, y) - x64 @ y64) <= 1e-5 * np.abs(x64 * y64).sum()
        np.testing.assert_allclose(kernels.axpy_f32(y, a, x), y64 + float(a) * x64, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(kernels.add(y, x), x64 + y64, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(kernels.rmsnorm(x, y, 1e-5), x64 / np.sqrt((x64 * x64).mean() + 1e-5) * y64, rtol=1e-5)
        e = np.exp(x64 - x64.max())
        np.testing.assert_allclose(kernels.softmax(x), e / e.sum(), rtol=1e-5)
        np.testing.assert_allclose(kernels.silu_mul(x, y), x64 / (1 + np.exp(-x64)) * y64, rtol=1e-5, atol=1e-30)
    rng = np.random.default_rng(6)
    x, angle = numbers(rng, "ordinary", 192).reshape(3, 64), rng.random(32)
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angle)
    found, _ = kernels.rope(x, x[:1], np.cos(angle).astype(F), np.sin(angle).astype(F))
    np.testing.assert_allclose(found, np.stack([turned.real, turned.imag], axis=2).reshape(3, 64), rtol=1e-5, atol=1e-5)


def test_block_sums_are_exact(kernels: Kernels) -> None:
    """With scales of 1 and one block, a product is the integer sum itself: Python's integers, extremes of both formats."""
    one = np.ones(1, F)
    rng = np.random.default_rng(7)
    constant = [(127, 127, 516128), (-128, 127, -520192), (-128, -127, 520192), (-128, 1, -4096), (127, -127, -516128)]
    for w, x, expected in constant:
        q, xq = np.full((1, 32), w, np.int8), np.full(32, x, np.int8)
        assert kernels.matvec("matvec_q8", q, one.reshape(1, 1), xq, one)[0] == expected
    for _ in range(500):
        q, xq = rng.integers(-128, 128, (3, 32)).astype(np.int8), rng.integers(-127, 128, 32).astype(np.int8)
        expected = [sum(int(a) * int(b) for a, b in zip(row, xq)) for row in q]
        assert kernels.matvec("matvec_q8", q, np.ones((3, 1), F), xq, one).tolist() == expected
        nibbles = rng.integers(0, 16, (3, 32))
        packed = (nibbles[:, :16] | nibbles[:, 16:] << 4).astype(np.uint8).view(np.int8)
        expected = [sum((int(a) - 8) * int(b) for a, b in zip(row, xq)) for row in nibbles]
        assert kernels.matvec("matvec_q4", packed, np.ones((3, 1), F), xq, one).tolist() == expected


def test_quantize_round_trip(kernels: Kernels) -> None:
    """Every element is within |d| / 2 * (1 + 2^-15), worked out in binary64; blocks of zeros, tiny values, NaN and infinity as promised."""
    rng = np.random.default_rng(8)
    for kind in ("ordinary", "wide"):
        x = numbers(rng, kind, 32 * 2000)
        q, d = kernels.quantize_q8(x)
        assert q.min() >= -127 and np.abs(q.reshape(-1, 32)).max(axis=1).min() == 127
        step = np.repeat(d.astype(np.float64), 32)
        assert (np.abs(q * step - x) <= step / 2 * (1 + 2.0**-15)).all()
    tiny = 127 * 2.0**-50
    for value, scale in ((0.0, 0.0), (-0.0, 0.0), (tiny, 2.0**-50), (tiny * 0.999, 0.0), (1e-40, 0.0), (np.nan, np.nan), (np.inf, np.nan)):
        x = np.zeros(32, F)
        x[17] = value
        q, d = kernels.quantize_q8(x)
        assert same(d, np.array([scale], F)), value
        assert q.tolist() == [127 if i == 17 and scale > 0 else 0 for i in range(32)]


def test_unit_vectors(kernels: Kernels, data: Path) -> None:
    """Blocks quantized by others."""
    x = np.load(data / "quant/x.npy").astype(F).reshape(-1, 32)
    expected_d = np.load(data / "quant/q8_d.npy").reshape(-1)
    expected_q = np.load(data / "quant/q8.npy").reshape(-1, 32)
    compared = 0
    for row, q, d in zip(x, expected_q, expected_d):
        if 0 < d < 2.0**-50:  # the reference knows no floor
            continue
        found_q, found_d = kernels.quantize_q8(row.copy())
        assert same(found_d, np.array([d], F)) and np.array_equal(found_q, q)
        compared += 1
    assert compared >= 20


def q4_of(w: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """w [rows, cols] -> packed Q4_0 and scales, by the two plain choices of scale: "max" is amax / 7, "ggml" the largest element over -8."""
    blocks = w.reshape(len(w), -1, 32)
    top = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)
    d = np.abs(top) / F(7) if kind == "max" else top / F(-8)
    nibbles = np.clip(np.rint(blocks / d), -8, 7).astype(np.int32) + 8
    return (nibbles[..., :16] | nibbles[..., 16:] << 4).astype(np.uint8).reshape(len(w), -1).view(np.int8), d[..., 0]


@pytest.mark.parametrize("kind", ["q8", "q4-max", "q4-ggml"])
def test_product_by_others(kind: str, kernels: Kernels, data: Path) -> None:
    """mm_*: 48 x 96 weights times five vectors, quantized and multiplied in float64 by others."""
    w, columns, exact = (np.load(data / f"quant/mm_{name}.npy") for name in ("w", "x", f"y64_{kind}"))
    if kind == "q8":
        op, (q, d) = "matvec_q8", map(np.array, zip(*(mirror.quantize_q8(row) for row in w)))
    else:
        op, (q, d) = "matvec_q4", q4_of(w, kind[3:])
    found = np.array([kernels.matvec(op, q, np.ascontiguousarray(d), *kernels.quantize_q8(column)) for column in columns])
    assert found.shape == exact.shape == (5, 48)
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()


# -- Tables and the whole forward pass -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [1e4, 11585.0, 1e5, 5e5, 1e6])  # 11585: near 2^13.5, where a series for log2 is longest
def test_rope_tables(theta: float, build: Callable[..., Path]) -> None:
    """Every entry is the true value rounded once; beyond the contexts of today's models (131072) also its neighbour, where the true value is so near
    the middle of the two that binary64 cannot tell.

    The angle has a relative error of a few times (2i / head_dim) * ln(theta) * 2^-53, the share of log2(theta) in it, which is below 2^-48.
    """
    library = ctypes.CDLL(str(build("scalar") / "libmlkernels.so"))
    function = library.ml_rope_tables
    function.restype = None
    function.argtypes = [FLOATS, FLOATS, ctypes.c_float, ctypes.c_void_p, *[ctypes.c_int] * 3]
    entries = misrounded = 0
    for head_dim in (8, 48, 64, 128):
        factors = np.resize(np.array([1.0, 1.5, 32.0, 8.0], F), head_dim // 2)
        for first, count in ((0, 4), (7, 1), (40, 3), (500, 1), (2047, 2), (8191, 1), (131071, 2), (1000000, 1)):
            for use in (None, factors):
                cos_t, sin_t = np.empty((2, count, head_dim // 2), F)
                function(cos_t, sin_t, theta, use.ctypes.data if use is not None else None, head_dim, first, count)
                for row in range(count):
                    exact = mirror.rope_exact(theta, use, head_dim, first + row)
                    for i, (angle, cosine, sine) in enumerate(exact):
                        for found, true in ((cos_t[row, i], cosine), (sin_t[row, i], sine)):
                            right = mirror.round_float32(true)
                            entries += 1
                            if found != right:
                                misrounded += 1
                                assert first + row > 131072, (theta, head_dim, first + row, i, found, right)
                                with mpmath.workdps(50):
                                    excess = abs(mpmath.mpf(float(found)) - true) - abs(mpmath.mpf(float(right)) - true)
                                    assert excess <= angle * mpmath.mpf(2) ** -48, (head_dim, first + row, i, found, right)
    assert entries == 7440 and misrounded <= 4


SHAPES = {
    "mha hd8": dict(dim=64, heads=8, kv_heads=8, hidden=96, vocab=300),
    "gqa 8/2 hd8 untied": dict(dim=64, heads=8, kv_heads=2, hidden=160, vocab=257, untied=True),
    "gqa 4/1 hd48 q4": dict(dim=192, heads=4, kv_heads=1, hidden=288, vocab=301, type="q4_0"),
    "mha hd64 q4 emb8 untied": dict(dim=256, heads=4, kv_heads=4, hidden=352, vocab=311, type="q4_0", emb_type="q8_0", untied=True),
    "rope factors": dict(dim=128, heads=2, kv_heads=1, hidden=96, vocab=300, rope_factors=True, theta=500000),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_forward_pass(shape: str, build: Callable[..., Path], random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(layers=2, max_seq=24, seed=9, **SHAPES[shape])
    tokens = [(i * i * 13 + 5 * i + 2) % 256 for i in range(24)]
    out = tmp_path / "logits"
    isa = "avx2" if runs_here("avx2") else "sse2"
    command = [build(isa) / "ml_run", path, "--tokens", ",".join(map(str, tokens)), "-n", "0", "-q", "--dump-logits", out]
    subprocess.run(command, check=True)
    found = np.fromfile(out, "<f4").reshape(24, -1)
    model = mirror.Model(path)
    for position, token in enumerate(tokens):
        assert same(found[position], model.step(token)), position
    assert np.ptp(found) > 1
