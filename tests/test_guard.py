# SPDX-License-Identifier: BSD-3-Clause
"""The guard on emulated CPUs: a build runs, or says in one sentence why not. Never a signal."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from conftest import NATIVE_ISAS, TOP

QEMU = shutil.which("qemu-x86_64")
pytestmark = pytest.mark.skipif(QEMU is None, reason="qemu-x86_64 is not installed")

CPUS = ["qemu64", "core2duo", "Penryn", "Nehalem", "SandyBridge", "IvyBridge", "Haswell", "Haswell,-xsave", "Haswell,-fma", "Haswell,-avx2"]
# Every way to start ml_run, and a way to start everything else.
WAYS = [["--tokens", "1,5,9", "-n", "0"], ["-p", "x"], ["--help"], ["--version"], ["--check-cpu"], ["--info"], [], ["--nonsense"]]


def runs_on(isa: str, cpu: str) -> bool:
    return isa != "avx2" or cpu == "Haswell"


def emulate(cpu: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([QEMU, "-cpu", cpu, *command], capture_output=True, text=True, check=False, timeout=120)


def check_refusal(run: subprocess.CompletedProcess[str], program: str, isa: str, cpu: str) -> None:
    assert run.returncode == 7, (cpu, run.returncode, run.stderr)
    assert run.stdout == ""
    lines = [line for line in run.stderr.splitlines() if not line.startswith("qemu-x86_64: warning:")]
    assert len(lines) == 1, run.stderr
    assert lines[0].startswith(f"{program}this is the {isa} build of legacyml"), lines[0]
    assert ("not enabled" in lines[0]) == (cpu == "Haswell,-xsave"), lines[0]
    missing = {"Haswell,-xsave": "AVX2", "Haswell,-fma": "FMA"}.get(cpu, "AVX2")
    assert missing in lines[0] and "conda install legacyml-s" in lines[0], lines[0]


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("cpu", CPUS)
def test_programs(isa: str, cpu: str, build: Callable[..., Path], random_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = build(isa)
    model = random_model(dim=64, heads=4, kv_heads=2, hidden=96, vocab=300, layers=2, max_seq=16, seed=5)
    if runs_on(isa, cpu):
        out = tmp_path / "logits"
        run = emulate(cpu, folder / "ml_run", model, "--tokens", "1,5,9", "-n", "0", "-q", "-t", "2", "--dump-logits", out)
        assert run.returncode == 0, run.stderr
        native = tmp_path / "native"
        subprocess.run(
            [build("scalar") / "ml_run", model, "--tokens", "1,5,9", "-n", "0", "-q", "--dump-logits", native], check=True
        )
        assert out.read_bytes() == native.read_bytes()
        assert emulate(cpu, folder / "ml_run", "--check-cpu").returncode == 0
        return
    for way in WAYS:
        arguments = [model, *way] if way and way[0] in ("--tokens", "-p", "--info") else way
        check_refusal(emulate(cpu, folder / "ml_run", *arguments), "ml_run: ", isa, cpu)
    check_refusal(emulate(cpu, folder / "ml_bench"), "ml_bench: ", isa, cpu)
    check_refusal(emulate(cpu, folder / "ml_bench", "--help"), "ml_bench: ", isa, cpu)


@pytest.mark.parametrize("cpu", ["qemu64", "Penryn", "Haswell,-xsave", "Haswell"])
def test_shared_library(cpu: str, build: Callable[..., Path], random_model: Callable[..., Path], tmp_path: Path) -> None:
    """A host program of the baseline loads the avx2 library: the first call that makes something refuses."""
    folder = build("avx2")
    client = tmp_path / "client"
    command = ["gcc", "-I", TOP / "src/include", TOP / "tests/tool_client.c", "-o", client, "-L", folder, "-llegacyml"]
    subprocess.run([*command, f"-Wl,-rpath,{folder}"], check=True)
    model = random_model(dim=64, heads=4, kv_heads=2, hidden=96, vocab=300, layers=2, max_seq=16, seed=5)
    run = emulate(cpu, client, "logits", model)
    if cpu == "Haswell":
        native = subprocess.run([build("scalar") / "tool_client", "logits", model], capture_output=True, text=True, check=True)
        assert (run.returncode, run.stdout) == (0, native.stdout)
    else:
        check_refusal(run, "", "avx2", cpu)


def test_hostile_float_mode(isa: str, build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    """A host that flushes subnormals and rounds toward zero gets the same bits and finds its mode unchanged."""
    for options in (dict(type="q8_0"), dict(type="q4_0", untied=True)):
        model = random_model(dim=64, heads=4, kv_heads=2, hidden=96, vocab=300, layers=2, max_seq=16, seed=6, **options)
        for threads in ("pthread", "1"):
            run = subprocess.run(
                [build(isa, threads=threads) / "tool_client", "float-mode", model], capture_output=True, text=True, check=False
            )
            assert run.returncode == 0, run.stderr
