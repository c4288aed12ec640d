# SPDX-License-Identifier: BSD-3-Clause
"""Runs the C test programs on every build, and again under the address, undefined-behaviour and thread sanitizers; feeds damaged files."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from conftest import TOP

PROGRAMS = sorted(p.stem for p in (TOP / "tests").glob("test_*.c"))
SANITIZERS = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"


def run_program(program: Path, *arguments: object, environment: dict[str, str] | None = None) -> str:
    """Runs one; its last line must say that something passed and nothing failed, and a sanitizer's report fails it."""
    command = [program, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=os.environ | (environment or {}))
    last = re.fullmatch(r"(\d+) passed, (\d+) failed", (run.stdout.splitlines() or [""])[-1])
    assert run.returncode == 0 and last and int(last[1]) > 0 and last[2] == "0", f"{run.stdout[-2000:]}\n{run.stderr[-4000:]}"
    assert "ERROR" not in run.stderr and "runtime error" not in run.stderr, run.stderr
    return run.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str, isa: str, build: Callable[..., Path]) -> None:
    run_program(build(isa) / program)


@pytest.mark.parametrize("program", PROGRAMS)
def test_under_sanitizers(program: str, isa: str, build: Callable[..., Path]) -> None:
    run_program(build(isa, cflags=SANITIZERS) / program)


def test_threads_under_sanitizer(build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    # GCC warns that the sanitizer does not understand fences; the pool's one orders going to sleep and waking, and guards no data.
    folder = build("sse2", cflags="-g -fsanitize=thread -Wno-tsan")
    run_program(folder / "test_attention")
    run_program(folder / "test_threads")
    model = random_model(dim=128, heads=4, kv_heads=2, hidden=256, vocab=3000, layers=2, max_seq=64, seed=11)
    run = subprocess.run(
        [folder / "ml_run", model, "--tokens", ",".join(map(str, range(60))), "-n", "4", "-t", "4"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0 and "ThreadSanitizer" not in run.stderr, run.stderr


@pytest.mark.parametrize("threads", [1, 3])
def test_no_allocation_after_load(threads: int, isa: str, build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    model = random_model(dim=64, heads=4, kv_heads=2, hidden=96, vocab=3000, layers=2, max_seq=64, seed=13)
    run = subprocess.run([build(isa) / "tool_allocations", model, str(threads)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def plain_tokenizer(path: Path) -> int:
    """A small llama2.c tokenizer.bin; returns its number of pieces."""
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{b:02X}>" for b in range(256)), " ", "O", "n", "c", "e", "On", "ce", "Once", " u", "u"]
    raw = struct.pack("<I", max(map(len, pieces)))
    for i, piece in enumerate(pieces):
        raw += struct.pack("<fi", -float(i), len(piece)) + piece.encode()
    path.write_bytes(raw)
    return len(pieces)


def container(path: Path, kind: int) -> int:
    """A small container (docs/formats.md) of either kind; returns its number of pieces."""
    text = [b"<|end|>", b"<|im_start|>", b" ", b"On", b"ce", b"Once", b" u", b"12"]
    pieces = [*text, *(bytes([b]) for b in range(256))]
    scores = [-1e30, -1e30, *(-float(i) for i in range(len(pieces) - 2))]
    table = [len(text) + b for b in range(256)]
    blob = b"".join(pieces)
    system = b"You are a test."
    raw = struct.pack("<4s5I2i4I16s", b"MLT1", 1, kind, len(pieces), 5 if kind == 1 else 6, 0 if kind == 1 else 3, 1, -1, 1, 2, len(system), len(blob), b"chatml")
    raw += struct.pack("<256i1i2i", *table, 0, 0, 1) + system
    raw += struct.pack(f"<{len(pieces)}f", *scores) + struct.pack(f"<{len(pieces)}I", *map(len, pieces)) + blob
    path.write_bytes(raw)
    return len(pieces)


@pytest.mark.parametrize("options", [dict(type="q8_0"), dict(type="q4_0", untied=True, rope_factors=True)], ids=str)
def test_damaged_models(options: dict, isa: str, build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    model = random_model(dim=32, heads=2, kv_heads=1, hidden=32, vocab=40, layers=1, max_seq=8, seed=12, **options)
    assert model.stat().st_size > 4096
    out = run_program(build(isa, cflags=SANITIZERS) / "tool_replay", "model", model)
    counts = list(map(int, re.search(r"opened (\d+), format (\d+), shape (\d+)", out).groups()))
    assert min(counts) > 0, out  # the changes reach past the first check


@pytest.mark.parametrize("kind", ["plain", "scores", "bytes"])
def test_damaged_tokenizers(kind: str, build: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.bin"
    vocab = plain_tokenizer(path) if kind == "plain" else container(path, 1 if kind == "scores" else 2)
    out = run_program(build("sse2", cflags=SANITIZERS) / "tool_replay", "tokenizer", path, vocab)
    opened, refused = map(int, re.search(r"opened (\d+), format (\d+)", out).groups())
    assert opened > 0 and refused > 0, out
