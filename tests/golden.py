#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The golden logits that every build must reproduce to the last bit, tests/golden/<model>.f32: float32, little-endian, [5, vocab].

They come from mirror.py, which is numpy written from the arithmetic contract alone: no C of this project had a part in them. The models are
random ones whose bytes depend on their options only. Run this file to write the goldens anew after a change of the contract.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import mirror

TOP = Path(__file__).resolve().parent.parent
FOLDER = TOP / "tests/golden"
TOKENS = [(i * i * 31 + 7 * i + 3) % 257 for i in range(40)]
KEPT = slice(7, None, 8)  # positions whose logits are kept: those before them show in the KV cache
# All shapes that a kernel could get wrong: block counts that fill no vector, both formats and their mixture, heads that share keys.
MODELS: dict[str, dict] = {
    "mha-hd8": dict(dim=64, heads=8, kv_heads=8, hidden=96, vocab=259, seed=1),
    "gqa8-hd8-untied": dict(dim=64, heads=8, kv_heads=2, hidden=160, vocab=261, seed=2, untied=True),
    "gqa4-hd48": dict(dim=192, heads=4, kv_heads=1, hidden=544, vocab=263, seed=3),
    "gqa4-hd48-q4": dict(dim=192, heads=4, kv_heads=1, hidden=288, vocab=260, seed=4, type="q4_0", untied=True),
    "mha-hd64-q4": dict(dim=256, heads=4, kv_heads=4, hidden=352, vocab=265, seed=5, type="q4_0"),
    "gqa8-hd64-q4-emb8": dict(dim=512, heads=8, kv_heads=2, hidden=800, vocab=262, seed=6, type="q4_0", emb_type="q8_0"),
    "rope-factors": dict(dim=128, heads=2, kv_heads=2, hidden=96, vocab=264, seed=7, rope_factors=True),
}


def options(name: str) -> dict:
    """What tools/gen_random.py is given for a model."""
    return dict(layers=2, max_seq=len(TOKENS)) | MODELS[name]


def golden(name: str) -> np.ndarray:
    """float32 [5, vocab]."""
    return np.fromfile(FOLDER / f"{name}.f32", "<f4").reshape(-1, MODELS[name]["vocab"])


def compute(path: Path) -> np.ndarray:
    """The kept logits of a model file, float32 [5, vocab]."""
    model = mirror.Model(path)
    return np.array([model.step(token) for token in TOKENS])[KEPT]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            path = Path(folder) / f"{name}.mlb"
            arguments = [str(part) for key, value in options(name).items() for part in ("--" + key.replace("_", "-"), value) if part is not True]
            subprocess.run([sys.executable, TOP / "tools/gen_random.py", path, *arguments], check=True, capture_output=True)
            compute(path).astype("<f4").tofile(FOLDER / f"{name}.f32")
            print(f"{name}: {(FOLDER / f'{name}.f32').stat().st_size} bytes")


if __name__ == "__main__":
    main()
