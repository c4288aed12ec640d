# SPDX-License-Identifier: BSD-3-Clause
"""Every build of the specification: golden logits and kernels, natively or on emulated CPUs, and which symbol each operation is bound to."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

import golden
from conftest import FOREIGN, HOST, QEMU, TOP, chain, emulate, in_row, isas, need, runs_here

# What emulated CPUs can run, and so must.
ARMV8 = ("cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1", "a64fx", "max")
LENGTHS = (16, 32, 64, 128, 256)  # bytes of an SVE vector: all that the architecture has
CPUS = {
    ("aarch64", "scalar"): ARMV8,
    ("aarch64", "neon"): ARMV8,
    ("aarch64", "neon_dotprod"): ("cortex-a76", "neoverse-n1", "max"),
    ("aarch64", "sve"): ("a64fx", *(f"max,sve-default-vector-length={length}" for length in LENGTHS)),
    ("armv7", "scalar"): ("cortex-a8", "cortex-a9", "cortex-a7", "cortex-a9,neon=off"),
    ("armv7", "neon"): ("cortex-a8", "cortex-a9", "cortex-a7"),
    # The emulator has no AVX-512 and no AVX-VNNI, and its AVX masked loads touch what is masked out: those builds run on real CPUs only.
    ("x86_64", "scalar"): ("qemu64",),
    ("x86_64", "sse2"): ("qemu64", "core2duo"),
    ("x86_64", "sse41"): ("Penryn", "Nehalem"),
}
# arch, isa, compiler, CPU: None is this machine's.
ROWS = [
    *((HOST, isa, cc, None) for isa in isas(HOST) for cc in (None, "clang")),
    *((arch, isa, None, cpu) for (arch, isa), cpus in CPUS.items() for cpu in cpus),
    *((arch, isa, "clang", cpus[0]) for (arch, isa), cpus in CPUS.items() if arch in FOREIGN),
]

PRODUCTS, FLOATS = "matvec_q8 matvec_q4 matmul_q8 matmul_q4", "rmsnorm softmax rope silu_mul add dot_f32 axpy_f32 scores_f32 mix_f32"
BINDINGS = {
    "x86_64 scalar": {"scalar": "all"},
    "x86_64 sse2": {"sse2": "all"},
    "x86_64 sse41": {"sse41": f"{PRODUCTS} quantize_q8", "sse2": FLOATS},
    "x86_64 avx2": {"avx2": "all"},
    "x86_64 avxvnni": {"avxvnni": PRODUCTS, "avx2": f"quantize_q8 {FLOATS}"},
    "x86_64 avx512vnni": {"avx512vnni": f"{PRODUCTS} quantize_q8 {FLOATS.replace('rope ', '')}", "avx2": "rope"},
    "aarch64 scalar": {"scalar": "all"},
    "aarch64 neon": {"neon": "all"},
    "aarch64 neon_dotprod": {"neon_dotprod": PRODUCTS, "neon": f"quantize_q8 {FLOATS}"},
    "aarch64 sve": {"sve": f"{PRODUCTS} quantize_q8", "neon": FLOATS},
    "armv7 scalar": {"scalar": "all"},
    "armv7 neon": {"neon": "all"},
}
OPERATIONS = f"{PRODUCTS} quantize_q8 {FLOATS}".split()


@pytest.fixture(params=ROWS, ids=lambda row: " ".join(part for part in row if part))
def run(request: pytest.FixtureRequest, build: Callable[..., Path]) -> Callable[..., subprocess.CompletedProcess]:
    """Runs a program of a build; skips where there is no compiler or emulator for it, and where this machine's CPU lacks what the build needs
    and its guard says so. Anywhere else a refusal is a failure."""
    arch, isa, cc, cpu = request.param
    refused = cpu is None and not runs_here(isa)
    in_row(request, arch, isa, cc, "guard only" if refused else "native" if cpu is None else f"qemu {cpu}")
    need(arch, emulated=cpu is not None)
    folder = build(isa, cc=cc, arch=arch)

    def run(program: str, *arguments: object) -> subprocess.CompletedProcess:
        if cpu is not None:
            return emulate(arch, cpu, folder / program, *arguments)
        result = subprocess.run([folder / program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if refused:
            assert result.returncode == (77 if program.startswith("test_") else 7), result
            pytest.skip((result.stdout + result.stderr).strip())
        return result

    if "sve-default-vector-length" in (cpu or ""):
        assert run("tool_vector").stdout.split() == [cpu.split("=")[1]], "the emulator has lowered the vector length"
    return run


def test_golden_logits(run: Callable[..., subprocess.CompletedProcess], random_model: Callable[..., Path], tmp_path: Path) -> None:
    for name in golden.MODELS:
        model, out = random_model(**golden.options(name)), tmp_path / name
        tokens = ",".join(map(str, golden.TOKENS))
        result = run("ml_run", model, "--tokens", tokens, "-n", 0, "-q", "-t", 4, "--dump-logits", out)
        assert result.returncode == 0, f"{name}: {result.stderr}"
        found = np.fromfile(out, "<f4").reshape(len(golden.TOKENS), -1)[golden.KEPT]
        assert found.tobytes() == golden.golden(name).tobytes(), name


@pytest.mark.parametrize("program", sorted(path.stem for path in (TOP / "tests").glob("test_*.c")))
def test_program(program: str, run: Callable[..., subprocess.CompletedProcess]) -> None:
    """The C tests: kernels, quantizer, attention, sampler, guard."""
    result = run(program)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr
    passed, failed = map(int, result.stdout.splitlines()[-1].split()[0::2])
    assert failed == 0 and passed > (50000 if program == "test_kernels" else 5), result.stdout


def test_goldens_are_the_mirrors(random_model: Callable[..., Path]) -> None:
    """What is committed is what the contract's mirror computes now; the two models that are read fastest stand for all."""
    for name in ("gqa8-hd8-untied", "gqa4-hd48-q4"):
        assert golden.compute(random_model(**golden.options(name))).astype("<f4").tobytes() == golden.golden(name).tobytes()
    assert {path.stem for path in golden.FOLDER.glob("*.f32")} == set(golden.MODELS)
    assert all(np.ptp(golden.golden(name)) > 2 for name in golden.MODELS)


@pytest.mark.parametrize("build_name", BINDINGS)
def test_bindings(build_name: str, build: Callable[..., Path], request: pytest.FixtureRequest) -> None:
    """A kernel that fell back in silence is seen. The text is read from the binary: it need not run here."""
    arch, isa = build_name.split()
    in_row(request, arch, isa, None, "bindings")
    need(arch, emulated=False)
    binary = (build(isa, arch=arch) / "ml_run").read_bytes()
    expected = {}
    for owner, operations in BINDINGS[build_name].items():
        expected |= {op: f"ml_k_{op}_{owner}" for op in (OPERATIONS if operations == "all" else operations.split())}
    text = "".join(f"{op} {expected[op]}\n" for op in OPERATIONS)
    assert text.encode() + b"\0" in binary
    assert set(BINDINGS[build_name]) <= set(chain(isa))


@pytest.mark.skipif(HOST != "x86_64", reason="x86-64 builds need an x86-64 machine")
def test_every_build_is_here() -> None:
    assert set(BINDINGS) == {f"{arch} {isa}" for arch in QEMU for isa in isas(arch)}
    assert {row[:2] for row in ROWS} == {(arch, isa) for arch in QEMU for isa in isas(arch)}


@pytest.mark.parametrize("length", range(16, 257, 16))
def test_sve_at_every_length(length: int, build: Callable[..., Path], request: pytest.FixtureRequest) -> None:
    """Lengths that are no power of two were legal once. The emulator has faults there in code that the compiler vectorises, so the tests
    around the kernels are built without optimisation."""
    in_row(request, "aarch64", "sve", None, "qemu max, all 16 lengths")
    need("aarch64")
    folder, cpu = build("sve", arch="aarch64", debug=1), f"max,sve-default-vector-length={length}"
    assert emulate("aarch64", cpu, folder / "tool_vector").stdout == f"{length}\n"
    result = emulate("aarch64", cpu, folder / "test_kernels")
    assert result.returncode == 0 and result.stdout.endswith(" 0 failed\n"), result.stdout[-2000:]


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_avxvnni_with_the_other_encoding(cc: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The avxvnni kernels on a CPU that has vpdpbusd as AVX-512 only: the same source, the instruction encoded with EVEX."""
    in_row(request, "x86_64", "avxvnni", None, "kernels with EVEX encoding")
    if HOST != "x86_64" or not runs_here("avx512vnni"):
        pytest.skip("this CPU has no AVX-512 VNNI")
    other = tmp_path / "evex.h"
    other.write_text("#include <immintrin.h>\n#define _mm256_dpbusd_avx_epi32 _mm256_dpbusd_epi32\n#define __AVXVNNI__ 1\n")
    sources = [path for isa in chain("avxvnni") for path in sorted((TOP / "src/kernels" / isa).glob("*.c")) if path.stem != "peak"]
    flags = "-std=gnu11 -O2 -DML_ISA_AVXVNNI -mavx2 -mfma -mavx512f -mavx512vl -mavx512vnni -ffp-contract=off -fno-math-errno".split()
    command = [cc, *flags, "-Dtest_main=main", "-include", other, *sources, TOP / "tests/test_kernels.c", "-o", tmp_path / "test_kernels"]
    subprocess.run(command, check=True)
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", tmp_path / "test_kernels"], capture_output=True, text=True, check=True).stdout
    assert "vpdpbusd" in code and "{vex} vpdpbusd" not in code
    result = subprocess.run([tmp_path / "test_kernels"], capture_output=True, text=True, check=False)
    assert result.returncode == 0 and result.stdout.endswith(" 0 failed\n"), result.stdout[-2000:]


@pytest.mark.parametrize("cc", [None, "clang"])
def test_assembly(cc: str | None, build: Callable[..., Path], request: pytest.FixtureRequest) -> None:
    """ASM=1: the kernel of add.S is in the build, under the same name, and equals its C twin's reference."""
    in_row(request, "x86_64", "sse2", cc, "native, ASM=1")
    if HOST != "x86_64":
        pytest.skip("assembly is for x86-64")
    folder = build("sse2", cc=cc, asm=1)

    def code(folder: Path) -> str:
        command = ["objdump", "-d", "--no-show-raw-insn", "--disassemble=ml_k_add_sse2", folder / "liblegacyml.so"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return "\n".join(line.split("\t", 1)[1] for line in text.splitlines() if "\t" in line)

    assert "dec    %edx" in code(folder) and code(folder) != code(build("sse2", cc=cc))
    result = subprocess.run([folder / "test_kernels"], capture_output=True, text=True, check=False)
    assert result.returncode == 0 and result.stdout.endswith(" 0 failed\n"), result.stdout[-2000:]
