# SPDX-License-Identifier: BSD-3-Clause
"""Headers of .mlb files that lie: each is refused by name, with the value found, before anything is allocated or mapped by it."""

from __future__ import annotations

import resource
import struct
import subprocess
from functools import partial
from pathlib import Path
from typing import Callable

import pytest

from conftest import emulate, in_row, need
from legacyml_convert import mlb

# offset, format, value, status, what the sentence must say
FAULTS = {
    "magic": (0, "4s", b"GGUF", 4, ["MLB1"]),
    "version": (4, "I", 2, 4, ["version 2", "version 1"]),
    "dim 0": (8, "I", 0, 4, ["dim is 0", "32"]),
    "dim 72": (8, "I", 72, 5, ["dim is 72", "multiple of 32"]),
    "dim beyond": (8, "I", 65568, 4, ["dim is 65568", "65536"]),
    "no layers": (12, "I", 0, 4, ["n_layers is 0"]),
    "2^31-1 layers": (12, "I", 2**31 - 1, 4, ["n_layers is 2147483647", "1024"]),
    "no heads": (16, "I", 0, 4, ["n_heads is 0"]),
    "heads do not divide dim": (16, "I", 6, 5, ["6 heads", "64"]),
    "odd head length": (16, "I", 64, 5, ["64 heads", "even"]),
    "no KV heads": (20, "I", 0, 4, ["n_kv_heads is 0"]),
    "more KV heads than heads": (20, "I", 8, 4, ["n_kv_heads is 8", "4"]),
    "KV heads do not divide heads": (20, "I", 3, 5, ["n_heads is 4", "3"]),
    "hidden 100": (24, "I", 100, 5, ["hidden_dim is 100", "multiple of 32"]),
    "hidden 2^32-32": (24, "I", 2**32 - 32, 4, ["hidden_dim is 4294967264"]),
    "vocab 0": (28, "I", 0, 4, ["vocab is 0"]),
    "vocab INT_MIN": (28, "I", 2**31, 4, ["vocab is 2147483648"]),
    "another vocab": (28, "I", 301, 4, ["bytes", "asks for"]),
    "max_seq 0": (32, "I", 0, 4, ["max_seq is 0"]),
    "theta NaN": (36, "f", float("nan"), 4, ["rope_theta is nan"]),
    "theta 0.5": (36, "f", 0.5, 4, ["rope_theta is 0.5"]),
    "theta infinite": (36, "f", float("inf"), 4, ["rope_theta is inf"]),
    "eps 0": (40, "f", 0.0, 4, ["norm_eps is 0", "1e-12"]),
    "eps NaN": (40, "f", float("nan"), 4, ["norm_eps is nan"]),
    "type 3": (44, "I", 3, 4, ["wtype is 3"]),
    "classifier 2": (48, "I", 2, 4, ["shared_classifier is 2"]),
    "classifier missing": (48, "I", 0, 4, ["bytes", "asks for"]),
    "emb_type with Q8_0": (52, "I", 1, 4, ["emb_type is 1"]),
    "factors missing": (56, "I", 1, 4, ["bytes", "asks for"]),
    "padding": (255, "B", 7, 4, ["byte 255 is 7"]),
}


def info(build: Path, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([build / "ml_run", path, "--info", *options], capture_output=True, text=True, check=False, timeout=20)


@pytest.fixture
def model(random_model: Callable[..., Path]) -> Path:
    return random_model(dim=64, heads=4, kv_heads=2, hidden=96, vocab=300, layers=2, max_seq=16, seed=14)


@pytest.mark.parametrize("fault", FAULTS)
def test_header(fault: str, model: Path, build: Callable[..., Path], tmp_path: Path) -> None:
    offset, kind, value, status, words = FAULTS[fault]
    raw = bytearray(model.read_bytes())
    struct.pack_into("<" + kind, raw, offset, value)
    path = tmp_path / "lie.mlb"
    path.write_bytes(raw)
    run = info(build("scalar"), path)
    assert run.returncode == status and run.stdout == "", run.stderr
    assert len(run.stderr.splitlines()) == 1 and all(word in run.stderr for word in (str(path), *words)), run.stderr


def test_products_do_not_wrap(build: Callable[..., Path], tmp_path: Path) -> None:
    """The largest model that a header can describe, 2^51 bytes, in a file of 2^20: refused by its size, in 64 bits."""
    path = tmp_path / "huge.mlb"
    header = struct.pack("<4s8I2f4I", b"MLB1", 1, 65536, 1024, 4096, 4096, 65536, 1 << 24, 1 << 24, 1e4, 1e-5, 1, 0, 0, 0)
    path.write_bytes(header.ljust(256, b"\0") + bytes(1 << 20))
    run = info(build("scalar"), path)
    assert run.returncode == 4
    elements = 2 * (1 << 24) * 65536 + 1024 * 7 * 65536**2
    floats = (2 * 1024 + 1) * 65536
    assert str(256 + elements + elements // 32 * 4 + floats * 4) in run.stderr, run.stderr


def test_verify(model: Path, build: Callable[..., Path], tmp_path: Path) -> None:
    """--verify finds what the loader does not read: -128, scales and norms that are not finite or too small."""
    raw = model.read_bytes()
    d = 256 + 300 * 64
    scales = (d + 63) // 64 * 64
    norm = (scales + 300 * 2 * 4 + 63) // 64 * 64
    assert info(build("scalar"), model, "--verify").returncode == 0
    faults = ((256 + 77, "b", -128, "tok_emb"), (scales + 8, "f", 1e-40, "tok_emb"), (scales, "f", float("nan"), "tok_emb"))
    for at, kind, value, name in (*faults, (norm + 4, "f", float("inf"), "attn_norm of layer 0")):
        damaged = bytearray(raw)
        struct.pack_into("<" + kind, damaged, at, value)
        path = tmp_path / "damaged.mlb"
        path.write_bytes(damaged)
        assert info(build("scalar"), path).returncode == 0
        run = info(build("scalar"), path, "--verify")
        assert run.returncode == 4 and name in run.stderr, run.stderr


def sparse_model(path: Path, **fields: int) -> int:
    """An honest header and as many bytes as it asks for, none of them on the disk; returns the size."""
    header = mlb.Header(n_layers=1, n_heads=4, n_kv_heads=4, max_seq=16, rope_theta=1e4, norm_eps=1e-5, shared_classifier=1, **fields)
    size = header.layout()[-1].end
    with path.open("wb") as stream:
        stream.write(header.pack())
        stream.truncate(size)
    return size


@pytest.mark.parametrize("gib, fields", [(2.2, dict(dim=4096, vocab=512500, hidden_dim=64)), (5, dict(dim=8192, vocab=553000, hidden_dim=64))])
@pytest.mark.parametrize("isa", ["scalar", "neon"])
def test_files_beyond_32_bits(gib: float, fields: dict, isa: str, build: Callable[..., Path], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A 32-bit build sees the true size of a large file and says that it cannot hold it; a 64-bit one opens it."""
    path = tmp_path / "large.mlb"
    size = sparse_model(path, **fields)
    assert abs(size / 2**30 - gib) < 0.2
    assert info(build("scalar"), path).returncode == 0
    in_row(request, "armv7", isa, None, "qemu cortex-a9")
    need("armv7")
    for way in ([], ["--no-mmap"]):
        run = emulate("armv7", "cortex-a9", build(isa, arch="armv7") / "ml_run", path, "--info", *way)
        assert run.returncode == 6, run.stderr
        assert run.stderr == f"ml_run: {path} has {size} bytes, more than this process can map or hold in memory\n"


def test_little_address_space(build: Callable[..., Path], tmp_path: Path) -> None:
    """A 100 MiB model where the process may have 64 MiB."""
    path = tmp_path / "large.mlb"
    size = sparse_model(path, dim=1024, vocab=85000, hidden_dim=1024)
    assert size > 95 << 20
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (64 << 20, 64 << 20))
    command = [build("scalar") / "ml_run", path, "--info"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit)
    assert (run.returncode, run.stderr) == (6, f"ml_run: {path} has {size} bytes, more than this process can map or hold in memory\n")
