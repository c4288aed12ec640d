# SPDX-License-Identifier: BSD-3-Clause
"""One model, one set of bits: every build, compiler, optimisation level, thread model and thread count (test_e2e.sh compares)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Callable

import pytest

from conftest import NATIVE_ISAS, TOP, runs_here

POSITIONS = 200
# The shapes that matter: query heads per KV head, head length, embedding, block format, and rows that fill no vector evenly.
MODELS = {
    "mha-hd8": dict(dim=64, heads=8, kv_heads=8, hidden=96, vocab=300),
    "gqa8/2-hd8-untied": dict(dim=64, heads=8, kv_heads=2, hidden=160, vocab=257, untied=True),
    "gqa4/1-hd48": dict(dim=192, heads=4, kv_heads=1, hidden=512, vocab=301),
    "gqa4/1-hd48-q4": dict(dim=192, heads=4, kv_heads=1, hidden=288, vocab=301, type="q4_0", untied=True),
    "mha-hd64-q4": dict(dim=256, heads=4, kv_heads=4, hidden=352, vocab=511, type="q4_0"),
    "gqa8/2-hd64-q4-emb8": dict(dim=512, heads=8, kv_heads=2, hidden=800, vocab=333, type="q4_0", emb_type="q8_0"),
    "gqa8/2-hd8-q4-emb8-untied": dict(dim=64, heads=8, kv_heads=2, hidden=32, vocab=300, type="q4_0", emb_type="q8_0", untied=True),
    "mha-hd64-rope-factors": dict(dim=128, heads=2, kv_heads=2, hidden=96, vocab=300, rope_factors=True),
}
# Every build is compared with scalar, GCC, -O2, pthread.
BUILDS = [
    *(dict(isa=isa) for isa in NATIVE_ISAS),
    *(dict(isa=isa, threads="1") for isa in NATIVE_ISAS),
    *(dict(isa=isa, cc="clang") for isa in NATIVE_ISAS),
    *(dict(isa=isa, cflags="-O1") for isa in NATIVE_ISAS),
    *(dict(isa=isa, cflags="-O3") for isa in NATIVE_ISAS),
    *(dict(isa=isa, cc="clang", cflags="-O3") for isa in NATIVE_ISAS),
    *(dict(isa=isa, debug=1) for isa in NATIVE_ISAS),
    dict(isa="sse2", cppflags="-DML_NO_MMAP"),
    *(dict(isa=isa, cflags=cflags) for isa in NATIVE_ISAS for cflags in ("-march=native -O3", "-mavx2 -mfma", "-Ofast -fsingle-precision-constant")),
    *(dict(isa=isa, cc="clang", cflags="-Ofast -march=native") for isa in NATIVE_ISAS),
]


@pytest.mark.parametrize("options", BUILDS, ids=lambda o: " ".join(str(v) for v in o.values()))
def test_same_bits(options: dict, build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    if not runs_here(options["isa"]):
        pytest.skip(f"this CPU cannot run the {options['isa']} build")
    tokens = ",".join(str((i * i * 31 + 7 * i + 3) % 257) for i in range(POSITIONS))
    reference, folder = build(), build(**options, target="all")
    for name, shape in MODELS.items():
        model = random_model(layers=2, max_seq=POSITIONS, seed=len(name), **shape)
        run = subprocess.run(
            [TOP / "tests/test_e2e.sh", model, tokens, reference, folder], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, f"{name}: {run.stdout}{run.stderr}"
