# SPDX-License-Identifier: BSD-3-Clause
"""The guard on emulated CPUs: a build runs, or says in one sentence why not. Never a signal."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Callable

import pytest

import golden
from conftest import FOREIGN, HOST, TOP, emulate, in_row, isas, need

# Emulated CPUs, with the builds that each can run; the best comes last, and is what a refusal must recommend.
CPUS = {
    "x86_64": {
        "qemu64": "scalar sse2",
        "core2duo": "scalar sse2",
        "Penryn": "scalar sse2 sse41",
        "Nehalem": "scalar sse2 sse41",
        "SandyBridge": "scalar sse2 sse41",
        "IvyBridge": "scalar sse2 sse41",
        "Haswell": "scalar sse2 sse41 avx2",
        "Haswell,-xsave": "scalar sse2 sse41",
        "Haswell,-fma": "scalar sse2 sse41",
        "Haswell,-avx2": "scalar sse2 sse41",
    },
    "aarch64": {
        "cortex-a53": "scalar neon",
        "cortex-a72": "scalar neon",
        "cortex-a76": "scalar neon neon_dotprod",
        "neoverse-n1": "scalar neon neon_dotprod",
        "a64fx": "scalar neon sve",
        "max": "scalar neon neon_dotprod sve",
        "max,sve=off": "scalar neon neon_dotprod",
    },
    "armv7": {
        "cortex-a8": "scalar neon",
        "cortex-a9": "scalar neon",
        "cortex-a7": "scalar neon",
        "cortex-a9,neon=off": "scalar",
    },
}
# What a refusal names first, of what these builds need and these CPUs lack.
MISSING = {
    "sse41": {"qemu64": "SSSE3, SSE4.1", "core2duo": "SSE4.1"},
    "avx2": {"Haswell,-fma": "FMA", "Haswell,-avx2": "AVX2", "IvyBridge": "FMA, AVX2", "SandyBridge": "FMA, AVX2"},
    "avxvnni": {"Haswell": "AVX-VNNI"},
    "avx512vnni": {"Haswell": "AVX-512 F, AVX-512 BW, AVX-512 VL, AVX-512 VNNI"},
    "neon_dotprod": {"cortex-a53": "LSE atomics", "a64fx": "dot product (SDOT)"},
    "sve": {"cortex-a76": "SVE", "neoverse-n1": "SVE", "max,sve=off": "SVE"},
    "neon": {"cortex-a9,neon=off": "NEON"},
}
# Every way to start ml_run, with MODEL for the path of one, and a way to start everything else.
WAYS = ["MODEL --tokens 1,5,9 -n 0", "MODEL -p x", "--help", "--version", "--check-cpu", "MODEL --info", "", "--nonsense"]
GRID = [(arch, isa, cpu) for arch, cpus in CPUS.items() for isa in isas(arch) for cpu in cpus]
LTO = dict(cflags="-flto=auto", ldflags="-flto=auto")


def check_refusal(run: subprocess.CompletedProcess[str], program: str, arch: str, isa: str, cpu: str) -> None:
    assert run.returncode == 7, (cpu, run.returncode, run.stderr)
    assert run.stdout == ""
    lines = [line for line in run.stderr.splitlines() if not line.startswith("qemu-")]
    assert len(lines) == 1, run.stderr
    assert lines[0].startswith(f"{program}this is the {isa} build of legacyml"), lines[0]
    masked = cpu == "Haswell,-xsave" and isa in ("avx2", "avxvnni")
    # Where something is absent as well, that alone is the reason given.
    assert ("has not enabled" in lines[0]) == (masked and isa == "avx2"), lines[0]
    assert ("lacks" in lines[0]) != (masked and isa == "avx2"), lines[0]
    if missing := MISSING.get(isa, {}).get(cpu):
        assert f"lacks {missing}" in lines[0], lines[0]
    best = CPUS[arch][cpu].split()[-1]
    assert lines[0].endswith(f"; install legacyml-{best} instead (conda install legacyml-{best})"), lines[0]


@pytest.fixture(scope="session")
def tiny(random_model: Callable[..., Path]) -> Path:
    return random_model(**golden.options("gqa8-hd8-untied"))


def check_runs(arch: str, cpu: str, program: Path, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "logits"
    tokens = ",".join(map(str, golden.TOKENS))
    run = emulate(arch, cpu, program, tiny, "--tokens", tokens, "-n", "0", "-q", "-t", "2", "--dump-logits", out)
    assert run.returncode == 0, run.stderr
    kept = out.read_bytes()[7 * 261 * 4 :][: 261 * 4]  # the first position whose logits are kept
    assert kept == golden.golden("gqa8-hd8-untied")[0].tobytes()
    assert emulate(arch, cpu, program, "--check-cpu").returncode == 0


@pytest.mark.parametrize("arch, isa, cpu", GRID)
def test_programs(arch: str, isa: str, cpu: str, build: Callable[..., Path], tiny: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A build runs where it can; elsewhere it says in one sentence why not, however it is started. Never a signal."""
    runs = isa in CPUS[arch][cpu].split()
    in_row(request, arch, isa, None, f"qemu {cpu}" if runs else "guard")
    need(arch)
    folder = build(isa, arch=arch)
    if runs:
        check_runs(arch, cpu, folder / "ml_run", tiny, tmp_path)
        return
    for way in WAYS:
        run = emulate(arch, cpu, folder / "ml_run", *(tiny if part == "MODEL" else part for part in way.split()))
        check_refusal(run, "ml_run: ", arch, isa, cpu)
    for way in ("", "--help"):
        check_refusal(emulate(arch, cpu, folder / "ml_bench", *way.split()), "ml_bench: ", arch, isa, cpu)


@pytest.mark.parametrize("arch, isa, cpu", GRID)
def test_shared_library(
    arch: str, isa: str, cpu: str, build: Callable[..., Path], tiny: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A host program of the baseline loads the library: the first call that makes something refuses, or the logits are the same."""
    in_row(request, arch, isa, None, f"qemu {cpu}" if isa in CPUS[arch][cpu].split() else "guard")
    need(arch)
    folder, client = build(isa, arch=arch), tmp_path / "client"
    compiler = f"{FOREIGN[arch]}-gcc" if arch in FOREIGN else "gcc"
    command = [compiler, "-I", TOP / "src/include", TOP / "tests/tool_client.c", "-o", client, "-L", folder, "-llegacyml"]
    subprocess.run([*command, f"-Wl,-rpath,{folder}"], check=True)
    run = emulate(arch, cpu, client, "logits", tiny)
    if isa in CPUS[arch][cpu].split():
        native = subprocess.run([build("scalar") / "tool_client", "logits", tiny], capture_output=True, text=True, check=True)
        assert (run.returncode, run.stdout) == (0, native.stdout), run.stderr
    else:
        check_refusal(run, "", arch, isa, cpu)


TWO_BUILDS = """
#include <dlfcn.h>
#include <stdio.h>
#include <legacyml.h>

int main(int argc, char **argv) {
  ml_error err;
  ml_model *model;
  void *first = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL), *second = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
  if (argc != 4 || first == NULL || second == NULL) {
    return 99;
  }
  ml_status (*open_model)(const char *, uint32_t, ml_model **, ml_error *) = dlsym(second, "ml_model_open");
  ml_status status = open_model(argv[3], 0, &model, &err);
  fprintf(stderr, "%s\\n", err.text);
  return (int)status;
}
"""


def test_two_builds_in_one_process(build: Callable[..., Path], tiny: Path, tmp_path: Path) -> None:
    """A library whose symbols come after another build's still asks its own guard."""
    if HOST != "x86_64":
        pytest.skip("the two builds are of x86-64")
    need(HOST)
    program = tmp_path / "two"
    subprocess.run(["gcc", "-I", TOP / "src/include", "-x", "c", "-", "-o", program, "-ldl"], input=TWO_BUILDS, text=True, check=True)
    libraries = [build(isa) / "liblegacyml.so" for isa in ("sse2", "avx2")]
    assert emulate(HOST, "Haswell", program, *libraries, tiny).returncode == 0
    check_refusal(emulate(HOST, "Penryn", program, *libraries, tiny), "", HOST, "avx2", "Penryn")


@pytest.mark.parametrize("isa", [isa for isa in isas(HOST) if isa not in ("scalar", "sse2", "neon")])
def test_with_link_time_optimisation(isa: str, build: Callable[..., Path], tiny: Path, request: pytest.FixtureRequest) -> None:
    """Nothing of the ISA is moved to before the verdict when the whole program is optimised at once."""
    in_row(request, HOST, isa, None, "guard")
    need(HOST)
    folder = build(isa, target="all", programs=("tool_client",), **LTO)
    cpu = next(cpu for cpu, builds in CPUS[HOST].items() if isa not in builds.split())
    for way in WAYS:
        run = emulate(HOST, cpu, folder / "ml_run", *(tiny if part == "MODEL" else part for part in way.split()))
        check_refusal(run, "ml_run: ", HOST, isa, cpu)


@pytest.mark.parametrize("arch, isa, cpu", [("aarch64", "neon", "max"), ("aarch64", "sve", "max"), ("armv7", "neon", "cortex-a9")])
def test_hostile_float_mode_on_arm(arch: str, isa: str, cpu: str, build: Callable[..., Path], tiny: Path, request: pytest.FixtureRequest) -> None:
    """As the next test, with FPCR and FPSCR."""
    in_row(request, arch, isa, None, f"qemu {cpu}")
    need(arch)
    for threads in ("pthread", "1"):
        run = emulate(arch, cpu, build(isa, arch=arch, threads=threads) / "tool_client", "float-mode", tiny)
        assert run.returncode == 0, run.stderr


def test_hostile_float_mode(isa: str, build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    """A host that flushes subnormals and rounds toward zero gets the same bits and finds its mode unchanged."""
    for options in (dict(type="q8_0"), dict(type="q4_0", untied=True)):
        model = random_model(dim=64, heads=4, kv_heads=2, hidden=96, vocab=300, layers=2, max_seq=16, seed=6, **options)
        for threads in ("pthread", "1"):
            run = subprocess.run(
                [build(isa, threads=threads) / "tool_client", "float-mode", model], capture_output=True, text=True, check=False
            )
            assert run.returncode == 0, run.stderr
