# SPDX-License-Identifier: BSD-3-Clause
"""What the compiler and linker made: silent builds, only the ISA's instructions, libc and nothing else, only public symbols."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from conftest import NATIVE_ISAS, TOP

HOSTILE = ("-march=native -O3", "-mavx2 -mfma", "-Ofast")
VARIANTS = [
    *(dict(cc=cc, threads=threads, debug=debug) for cc in (None, "clang") for threads in ("pthread", "1") for debug in (0, 1)),
    *(dict(cc=cc, cflags=cflags) for cc in (None, "clang") for cflags in HOSTILE),
]

# First letters of instructions beyond SSE2 that have no VEX prefix: SSE3, SSSE3, SSE4.1, SSE4.2, POPCNT, LZCNT, MOVBE, BMI.
BEYOND_SSE2 = re.compile(
    r"^(addsub|haddp|hsubp|lddqu|movddup|movs[hl]dup|fisttp|p(abs[bwd]|sign|shufb|hadd|hsub|maddubsw|mulhrsw|alignr)|"
    r"p(blend|mulld|muldq|min[su][bd]$|minuw|min?sd|max(sb|sd|ud|uw)|extr[bdq]|insr[bdq]|test|movzx|movsx|cmpeqq|ackusdw)|blendp|blendv|"
    r"round[ps][sd]|dpp|insertps|extractps|movntdqa|mpsadbw|phminposuw|pcmp[ei]str|pcmpgtq|crc32|popcnt|lzcnt|tzcnt|movbe|andn$|bextr|"
    r"bls|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|aes|pclmul|sha)"
)
VEX = re.compile(r"^v(?!err|erw|mcall|mload|mresume|mxo)[a-z0-9]+")
FUSED = re.compile(r"^vfn?m(add|sub)")


def instructions(file: Path) -> list[str]:
    """The mnemonic of every instruction, with its operands behind it."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", file], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ +[0-9a-f]+:\t(.*)$", text, re.MULTILINE)
    assert len(found) > 20, file
    return found


def products(folder: Path) -> list[Path]:
    return [folder / "ml_run", folder / "ml_bench", folder / "liblegacyml.so"]


def baseline_objects(folder: Path) -> list[Path]:
    """What may run before the guard's verdict."""
    names = ["core/status", "core/cpu", "core/isa_check", "model/legacyml", "app/main_guard"]
    return [folder / f"obj/src/{name}.o" for name in names]


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: " ".join(str(v) for v in o.values()))
def test_variant(isa: str, options: dict, build: Callable[..., Path]) -> None:
    """Builds without a line of output (the fixture fails otherwise), and contains the instructions of its ISA only."""
    folder = build(isa, **options)
    for product in products(folder):
        code = instructions(product)
        assert not [i for i in code if FUSED.match(i)], f"{product}: fused multiply-add"
        if isa == "avx2":
            assert not [i for i in code if re.search(r"%[xyz]mm(1[6-9]|2\d|3[01])|%zmm|%k[0-7]\b", i)], f"{product}: EVEX"
        else:
            assert not [i for i in code if VEX.match(i)], f"{product}: VEX"
            assert not [i for i in code if BEYOND_SSE2.match(i.split()[0])], f"{product}: beyond SSE2"
    for file in baseline_objects(folder):
        code = instructions(file)
        assert not [i for i in code if VEX.match(i) or BEYOND_SSE2.match(i.split()[0])], f"{file}: beyond the baseline"
    if isa == "avx2" and not options.get("debug"):
        assert any(i.startswith("vpmaddubsw") for i in instructions(folder / "ml_run"))
    if isa == "sse2":
        assert any(i.startswith("pmaddwd") for i in instructions(folder / "ml_run"))
    mode = subprocess.run([folder / "tool_client", "mode"], capture_output=True, text=True, check=False) if isa != "avx2" else None
    assert mode is None or mode.stdout == "0x1f80\n", "a start-up routine changed the floating-point mode"
    for product in [*products(folder), folder / "tool_client"]:
        assert "set_fast_math" not in subprocess.run(["nm", product], capture_output=True, text=True, check=True).stdout


def test_disassembly_notices(tmp_path: Path) -> None:
    """The patterns find what they are for."""
    for flags, source, pattern in (
        ("-mavx2", "#include <immintrin.h>\nvoid f(float*p){_mm256_storeu_ps(p,_mm256_add_ps(_mm256_loadu_ps(p),_mm256_loadu_ps(p)));}", VEX),
        ("-mfma", "float f(float a,float b,float c){return __builtin_fmaf(a,b,c);}", FUSED),
        ("-mssse3", "#include <immintrin.h>\n__m128i f(__m128i a){return _mm_abs_epi8(a);}", BEYOND_SSE2),
        ("-mpopcnt", "int f(unsigned a){return __builtin_popcount(a);}", BEYOND_SSE2),
    ):
        object_file = tmp_path / "f.o"
        subprocess.run(["gcc", "-O2", *flags.split(), "-x", "c", "-c", "-", "-o", object_file], input=source, text=True, check=True)
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", object_file], capture_output=True, text=True, check=True).stdout
        assert any(pattern.match(i) for i in re.findall(r"^ +[0-9a-f]+:\t(.*)$", text, re.MULTILINE)), flags


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_elf(isa: str, build: Callable[..., Path]) -> None:
    folder = build(isa)
    for product in products(folder):
        text = subprocess.run(["objdump", "-p", product], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED +(\S+)", text))
        assert "libc.so.6" in needed and needed <= {"libc.so.6", "ld-linux-x86-64.so.2"}, needed
        assert "TEXTREL" not in text
        stack = re.search(r"STACK off.*\n.*flags (\S+)", text)
        assert stack and stack[1] == "rw-"
    assert re.search(r"SONAME +liblegacyml\.so\.0\n", text)
    symbols = subprocess.run(["nm", "-D", "--defined-only", folder / "liblegacyml.so"], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in symbols.splitlines()}
    header = (TOP / "src/include/legacyml.h").read_text()
    assert exported == set(re.findall(r"ML_API [^;]*?\b(ml_\w+)\(", header))


@pytest.mark.parametrize("language", ["c -std=c11", "c++ -std=c++11"])
def test_public_header(language: str, tmp_path: Path) -> None:
    command = f"gcc -x {language} -Wall -Wextra -pedantic -Werror -fsyntax-only -".split()
    subprocess.run([*command, "-I", TOP / "src/include"], input="#include <legacyml.h>\n", text=True, check=True)


def test_include_directions() -> None:
    """app -> model -> ops -> kernels -> core; config binds kernels and belongs to whoever uses them; intrinsics only below kernels/<isa>."""
    allowed = {
        "app": {"app", "model", "ops", "core", "config", "include"},
        "model": {"model", "ops", "kernels", "core", "include"},
        "ops": {"ops", "kernels", "core", "config", "include"},
        "kernels": {"kernels", "core"},
        "config": {"config", "kernels", "core"},
        "core": {"core", "include", "config"},  # config: the generated table of CPU features
        "include": {"include"},
    }
    seen = 0
    for file in (TOP / "src").rglob("*.[ch]"):
        room = file.relative_to(TOP / "src").parts[0]
        for quoted, system in re.findall(r'^#include (?:"(.*)"|<(.*)>)', file.read_text(), re.MULTILINE):
            if quoted:
                target = (file.parent / quoted).resolve().relative_to(TOP / "src").parts[0]
                assert target in allowed[room], f"{file}: {quoted}"
                if room == "core" and target == "config":
                    assert quoted == "../config/isa_table.h"
                seen += 1
            elif system.endswith("intrin.h") or system in ("arm_neon.h", "arm_sve.h"):
                assert room == "kernels" and len(file.relative_to(TOP / "src").parts) == 3, f"{file}: {system}"
    assert seen > 100


def test_library_code_has_no_way_out() -> None:
    """No exit, abort, signal or output in what becomes the library."""
    for room in ("core", "model", "ops", "kernels", "config"):
        for file in (TOP / "src" / room).rglob("*.[ch]"):
            code = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
            assert not re.search(r"\b(abort|exit|_exit|raise|assert|f?printf|fputs|puts|perror|signal)\s*\(", code), file


def test_registry() -> None:
    subprocess.run([sys.executable, TOP / "tools/gen_isa.py", "--check"], check=True)


def test_rebuilds_what_changed(tmp_path: Path) -> None:
    command = ["make", "-j2", "ISA=scalar", f"BUILD={tmp_path}/b"]
    first = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    again = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    changed = subprocess.run([*command, "THREADS=1"], cwd=TOP, capture_output=True, text=True, check=True)
    assert "threads.c" in first.stdout and "threads.c" in changed.stdout
    assert "Nothing to be done" in again.stdout or "gcc" not in again.stdout
    for wrong in ("ISA=mmx", "THREADS=2", "DEBUG=yes"):
        run = subprocess.run([*command, wrong], cwd=TOP, capture_output=True, text=True, check=False)
        assert run.returncode != 0 and wrong.split("=")[1] in run.stderr
