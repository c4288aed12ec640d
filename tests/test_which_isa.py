# SPDX-License-Identifier: BSD-3-Clause
"""legacyml-which-isa: what it makes of real CPUs, that it agrees with the guard, overrides, and what --install does."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from conftest import FOREIGN, HOST, REGISTRY, TOP, emulate, in_row, isas, need
from legacyml_which_isa import cpu as cpu_facts
from legacyml_which_isa import install as install_module
from legacyml_which_isa.cli import main
from legacyml_which_isa.cpu import Host
from legacyml_which_isa.decide import decide, overridden
from legacyml_which_isa.errors import Refusal
from legacyml_which_isa.table import BASELINE, BUILDS, CPUS, FEATURES
from test_guard import CPUS as EMULATED
from test_guard import GRID

CPUINFO = TOP / "tests/cpuinfo"
FRONT = TOP / "tools/which_isa.py"
VARIABLE = "CONDA_OVERRIDE_ARCHSPEC"
X86 = Host("linux", "x86_64", 64)
A64 = Host("linux", "aarch64", 64)
A32 = Host("linux", "armv7l", 32)

# Worked out from what is published about each CPU: every build that it runs, best first.
AVX2 = "avx2 sse41 sse2 scalar"
RECORDED = {
    "pentium4-prescott": (X86, "sse2 scalar"),
    "athlon64": (X86, "sse2 scalar"),
    "core2-conroe": (X86, "sse2 scalar"),
    "atom-bonnell-n450": (X86, "sse2 scalar"),
    "core2-penryn": (X86, "sse41 sse2 scalar"),
    "atom-silvermont-j1900": (X86, "sse41 sse2 scalar"),
    "goldmont-celeron-j3455": (X86, "sse41 sse2 scalar"),
    "nehalem-i7-920": (X86, "sse41 sse2 scalar"),
    "sandybridge-i5-2500k": (X86, "sse41 sse2 scalar"),
    "ivybridge-i7-3770": (X86, "sse41 sse2 scalar"),
    "bulldozer-fx8150": (X86, "sse41 sse2 scalar"),
    "piledriver-fx8350": (X86, "sse41 sse2 scalar"),
    "jaguar-a4-5000": (X86, "sse41 sse2 scalar"),
    "haswell-vm-avx-masked": (X86, "sse41 sse2 scalar"),
    "haswell-i7-4770": (X86, AVX2),
    "excavator-a12-9800": (X86, AVX2),
    "zen1-ryzen7-1700": (X86, AVX2),
    "hygon-dhyana-c86-7185": (X86, AVX2),
    "skylake-x-7800x": (X86, AVX2),
    "alderlake-i7-12700k": (X86, f"avxvnni {AVX2}"),
    "alderlake-unequal-cores": (X86, f"avxvnni {AVX2}"),
    "cascadelake-6248": (X86, f"avx512vnni {AVX2}"),
    "icelake-1065g7": (X86, f"avx512vnni {AVX2}"),
    "zen4-ryzen7-7700x": (X86, f"avx512vnni {AVX2}"),
    "zen5-ryzen9-9950x": (X86, f"avx512vnni avxvnni {AVX2}"),
    "zen5-guest-unknown": (X86, f"avx512vnni {AVX2}"),
    "rpi3-cortex-a53": (A64, "neon scalar"),
    "rpi4-cortex-a72": (A64, "neon scalar"),
    "rpi5-cortex-a76": (A64, "neon_dotprod neon scalar"),
    "graviton2-neoverse-n1": (A64, "neon_dotprod neon scalar"),
    "apple-m1-asahi": (A64, "neon_dotprod neon scalar"),
    "graviton3-neoverse-v1": (A64, "sve neon_dotprod neon scalar"),
    "neoverse-n2": (A64, "sve neon_dotprod neon scalar"),
    "a64fx": (A64, "sve neon scalar"),
    "rpi2-cortex-a7": (A32, "neon scalar"),
    "tegra2-cortex-a9": (A32, "scalar"),
    # The kernel is a 64-bit one.
    "rpi4-32bit-userland": (Host("linux", "aarch64", 32), "neon scalar"),
    "rpi1-arm1176": (Host("linux", "armv6l", 32), ""),
}
SYSCTL = {"apple-m1-macos": ("aarch64", "neon_dotprod neon scalar"), "imac-i5-7500-macos": ("x86_64", AVX2)}


def made_up(host: Host, root: Path, cpuinfo: bytes | None = None, auxv: bytes | None = None) -> Host:
    """The host with these files below its /proc."""
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    if cpuinfo is not None:
        (root / "proc/cpuinfo").write_bytes(cpuinfo)
    if auxv is not None:
        (root / "proc/self/auxv").write_bytes(auxv)
    return host._replace(root=str(root))


def vector(value: int, bits: int) -> bytes:
    """An auxiliary vector as a kernel makes it: page size, AT_HWCAP, the end."""
    pairs = [(6, 4096), (16, value), (0, 0)]
    return b"".join(struct.pack("=II" if bits == 32 else "=QQ", *pair) for pair in pairs)


def x86_flags(features: object, more: str = "fpu sse sse2") -> bytes:
    words = {f.name: f.cpuinfo for f in FEATURES["x86_64"]}
    return f"flags\t\t: {more} {' '.join(words[name] for name in features)}\n\n".encode()  # type: ignore[attr-defined]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """ask(*options, host=..., environ=...) -> exit status, stdout, stderr."""

    def run(*options: str, host: Host = X86, environ: dict[str, str] | None = None) -> tuple[int, str, str]:
        status = main(list(options), host, environ or {})
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def one_sentence(text: str, *parts: str) -> None:
    assert len(text.splitlines()) == 1 and text.startswith("legacyml-which-isa: "), text
    assert "Traceback" not in text
    for part in parts:
        assert part in text, (part, text)


# -- CPUs ---------------------------------------------------------------------------------------------------------------------


def test_every_recorded_cpu_is_expected() -> None:
    assert {path.stem for path in CPUINFO.glob("*.txt")} == {*RECORDED, *SYSCTL}
    assert len(RECORDED) >= 27


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str, ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    host, expected = RECORDED[name]
    host = made_up(host, tmp_path, (CPUINFO / f"{name}.txt").read_bytes())
    status, out, err = ask("--all", host=host)
    if not expected:
        assert (status, out) == (7, "")
        one_sentence(err, "no build of legacyml runs on this CPU: it lacks VFPv3, which every build of armv7 needs")
        return
    assert (status, out.split(), err) == (0, expected.split(), "")
    assert ask(host=host) == (0, expected.split()[0] + "\n", "")
    assert ask("--package", host=host) == (0, f"legacyml-{expected.split()[0]}\n", "")


@pytest.mark.parametrize("name", SYSCTL)
def test_recorded_sysctl(name: str, ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """sysctl is run once, and that it does not know the last name is no error."""
    arch, expected = SYSCTL[name]
    program = tmp_path / "usr/sbin/sysctl"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho x >>{tmp_path}/runs\ncat {CPUINFO}/{name}.txt\necho 'unknown oid' >&2\nexit 1\n")
    program.chmod(0o755)
    host = Host("darwin", "arm64" if arch == "aarch64" else "x86_64", 64, str(tmp_path))
    assert ask("--all", host=host) == (0, "\n".join(expected.split()) + "\n", "")
    assert (tmp_path / "runs").read_text() == "x\n"
    document = json.loads(ask("--json", host=host)[1])
    assert (document["source"], document["platform"]) == ("sysctl", "osx-arm64" if arch == "aarch64" else "osx-64")


def test_sysctl_of_other_macs() -> None:
    m1, imac = ((CPUINFO / f"{name}.txt").read_text() for name in ("apple-m1-macos", "imac-i5-7500-macos"))

    def best(arch: str, text: str) -> str | None:
        return decide(arch, cpu_facts.from_sysctl(arch, text).features).best

    # macOS 11 has none of the newer names, which shows as fewer features, not as none.
    old = "\n".join(line for line in m1.splitlines() if ".arm." not in line and "AdvSIMD" not in line)
    assert best("aarch64", old) == "neon"
    assert best("aarch64", m1.replace("FEAT_DotProd: 1", "FEAT_DotProd: 0")) == "neon"
    assert best("x86_64", imac.replace(" FMA ", " ")) == "sse41"
    assert best("x86_64", imac.replace("AVX1.0 ", "")) == "sse41"
    # AVX-512 is enabled when a thread first uses it, so that the guard would refuse.
    assert best("x86_64", imac.replace("AVX2", "AVX2 AVX512F AVX512BW AVX512VL AVX512VNNI")) == "avx2"
    translated = cpu_facts.from_sysctl("x86_64", imac + "sysctl.proc_translated: 1\n")
    assert len(translated.warnings) == 1 and "Rosetta" in translated.warnings[0]
    for arch in ("x86_64", "aarch64"):
        with pytest.raises(Refusal) as refusal:
            cpu_facts.from_sysctl(arch, "")
        assert refusal.value.status == 3


def test_windows() -> None:
    """Windows does not tell of FMA: at most sse41, and it says so where that may be too little."""

    def facts(*numbers: int) -> cpu_facts.Facts:
        return cpu_facts.from_windows(lambda number: number in numbers)

    assert decide("x86_64", facts().features).best == "sse2"
    assert decide("x86_64", facts(13, 36).features).best == "sse2"
    penryn, haswell = facts(13, 36, 37), facts(13, 36, 37, 38, 39, 40)
    assert (decide("x86_64", penryn.features).best, penryn.warnings) == ("sse41", ())
    assert (decide("x86_64", haswell.features).best, len(haswell.warnings)) == ("sse41", 1)
    assert "legacyml-avx2" in haswell.warnings[0] and "FMA" in haswell.warnings[0]
    assert {"fma", "popcnt", "avx512vnni"} <= haswell.untold and not haswell.untold & haswell.features


@pytest.mark.parametrize(
    "host, expected",
    [
        (X86, "x86_64"),
        (Host("linux", "i686", 64), "x86_64"),  # linux32 python
        (Host("win32", "AMD64", 64), "x86_64"),
        (Host("linux", "i686", 32), "32-bit x86"),
        (Host("linux", "x86_64", 32), "32-bit x86"),
        (Host("win32", "x86", 32), "32-bit x86"),
        (A64, "aarch64"),
        (Host("darwin", "arm64", 64), "aarch64"),
        (Host("linux", "armv8l", 64), "aarch64"),
        (Host("linux", "aarch64", 32), "armv7"),
        (Host("linux", "armv8l", 32), "armv7"),
        (A32, "armv7"),
        (Host("win32", "ARM64", 64), "ARM64 with win32"),
        (Host("linux", "ppc64le", 64), "ppc64le with linux"),
        (Host("linux", "riscv64", 64), "riscv64 with linux"),
        (Host("linux", "armv7b", 32), "armv7b with linux"),
        (Host("linux", "aarch64_be", 64), "aarch64_be with linux"),
        (Host("linux", "", 64), "an unknown machine with linux"),
        (Host("freebsd14", "amd64", 64), "amd64 with freebsd14"),
    ],
)
def test_architecture(host: Host, expected: str, ask: Callable[..., tuple[int, str, str]]) -> None:
    """That of programs, not of the kernel; where there is no build the status is 7, also with an override."""
    if expected in FEATURES:
        assert cpu_facts.architecture(host) == expected
        return
    for environ in ({}, {VARIABLE: "haswell"}):
        status, out, err = ask(host=host, environ=environ)
        assert (status, out) == (7, "")
        one_sentence(err, "no build of legacyml runs here", expected, "expected")


def test_arm_asks_the_auxiliary_vector_first(ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    v1 = (CPUINFO / "graviton3-neoverse-v1.txt").read_bytes()
    a53 = 0x8FB
    host = made_up(A64, tmp_path / "both", v1, vector(a53, 64))
    assert ask(host=host) == (0, "neon\n", "")
    assert json.loads(ask("--json", host=host)[1])["source"] == "hwcap"
    # Bits beyond the first 32 are other features.
    assert ask(host=made_up(A64, tmp_path / "high", v1, vector(a53 | 0xFFFFFFFF << 32, 64)))[1] == "neon\n"
    for name, auxv in (("none", None), ("empty", b""), ("cut", vector(a53, 64)[:24]), ("other", struct.pack("=QQ", 6, 4096))):
        host = made_up(A64, tmp_path / name, v1, auxv)
        assert ask(host=host) == (0, "sve\n", ""), name
        assert json.loads(ask("--json", host=host)[1])["source"] == "cpuinfo"
    # Nothing at all is an answer too.
    assert ask(host=made_up(A64, tmp_path / "zero", v1, vector(0, 64)))[0] == 7
    # The words have the size of the program's.
    for value, expected in ((0x80D6 | 1 << 13 | 1 << 12, "neon"), (0x80D6 | 1 << 13 | 1 << 14, "scalar")):
        host = made_up(Host("linux", "aarch64", 32), tmp_path / expected, None, vector(value, 32))
        assert ask(host=host) == (0, f"{expected}\n", "")
    status, out, err = ask(host=made_up(A64, tmp_path / "nothing"))
    assert (status, out) == (3, "")
    one_sentence(err, "proc/cpuinfo: No such file or directory")


def test_a_64_bit_kernel_lists_its_own_words(ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    host = made_up(Host("linux", "aarch64", 32), tmp_path, (CPUINFO / "rpi4-cortex-a72.txt").read_bytes())
    assert ask(host=host) == (0, "neon\n", "")


# -- Files that are not as they should be -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [
        (b"", "has no line"),
        (b"\0" * 4096, "has no line"),
        (b"processor\t: 0\nmodel name\t: flags\n", "has no line"),
        (b"vmx flags\t: pni ssse3 sse4_1\n", "has no line"),
        (b"Features\t: asimd\n", "has no line"),
        (b"flags\n", "has no line"),
        (b"flags\t\t:\n", "sse2"),
        (b"flags: pni ssse3 sse4_1", "sse41"),
        (b"flags: pni ssse3 sse4_1\r\nflags: pni ssse3 sse4_1\r\n", "sse41"),
        (b"\xff\xfe\0flags: pni ssse3 sse4_1\nflags: sse4_1 ssse3 pni pni \xff\0\n", "sse41"),
        (b"flags: pni ssse3 sse4_1\nflags: pni ssse3\n", "sse2"),
        (b"flags: pni ssse3 sse4_1\nflags:\n", "sse2"),
        (b"flags: pni ssse3 sse4_1\0\n", "sse2"),
        (b"flags: PNI SSSE3 SSE4_1\n", "sse2"),
        (b"flags: pni ssse3 sse4_10 xsse4_1 sse4_1x\n", "sse2"),
        (b"flags: pni : ssse3 : sse4_1\n", "sse41"),
        (b"flags: " + b"x" * 5_000_000 + b" pni ssse3 sse4_1\n", "sse41"),
        (b"flags: pni ssse3 sse4_1 avx\n" * 100_000, "sse41"),
    ],
)
def test_odd_cpuinfo(text: bytes, expected: str, ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    status, out, err = ask(host=made_up(X86, tmp_path, text))
    if expected == "has no line":
        assert (status, out) == (3, "")
        one_sentence(err, 'proc/cpuinfo has no line "flags"')
    else:
        assert (status, out, err) == (0, expected + "\n", "")


def test_unreadable(ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    for host in (X86, A64, A32):
        status, out, err = ask(host=host._replace(root=str(tmp_path)))
        assert (status, out) == (3, "")
        one_sentence(err, f"{tmp_path}/proc/cpuinfo: No such file or directory")
    (tmp_path / "proc/cpuinfo").mkdir(parents=True)
    one_sentence(ask(host=X86._replace(root=str(tmp_path)))[2], "Is a directory")
    status, out, err = ask(host=Host("darwin", "arm64", 64, str(tmp_path)))
    assert (status, out) == (3, "")
    one_sentence(err, "usr/sbin/sysctl: No such file or directory")


# -- The guard ----------------------------------------------------------------------------------------------------------------

USABLE = """
#include <stdio.h>
#include "core/isa_check.h"

int main(void) {
  ml_cpu_facts facts;
  ml_cpu_read(&facts);
  printf("%u\\n", (unsigned)ml_cpu_usable(&facts));
}
"""
AUXV = """
#include <stdio.h>

int main(void) {
  char bytes[4096];
  FILE *file = fopen("/proc/self/auxv", "rb");
  fwrite(bytes, 1, file != NULL ? fread(bytes, 1, sizeof bytes, file) : 0, stdout);
}
"""


@pytest.fixture(scope="session")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Host]:
    """seen(arch, cpu): a host with what Linux shows on that emulated CPU.

    On ARM the emulator's own auxiliary vector. /proc/cpuinfo under qemu-x86_64 is that of the machine it runs on, so the flags are
    made from what CPUID and XGETBV say there, as the kernel does.
    """
    folder = tmp_path_factory.mktemp("seen")
    hosts: dict[tuple[str, str], Host] = {}

    def program(arch: str) -> Path:
        path = folder / arch
        if not path.exists():
            compiler = f"{FOREIGN[arch]}-gcc" if arch in FOREIGN else "gcc"
            sources = [TOP / f"src/core/{name}.c" for name in ("cpu", "isa_check", "status")] if arch == "x86_64" else []
            text = USABLE if arch == "x86_64" else AUXV
            command = [compiler, "-I", TOP / "src", "-o", path, *sources, "-x", "c", "-"]
            subprocess.run(command, input=text, text=True, check=True)
        return path

    def make(arch: str, cpu: str) -> Host:
        if (arch, cpu) not in hosts:
            run = emulate(arch, cpu, program(arch), text=False, check=True)
            root = folder / f"root{len(hosts)}"
            if arch == "x86_64":
                mask = int(run.stdout)
                names = [f.name for bit, f in enumerate(FEATURES[arch]) if mask >> bit & 1]
                hosts[arch, cpu] = made_up(X86, root, x86_flags(names))
            else:
                assert len(run.stdout) >= 16
                hosts[arch, cpu] = made_up(A64 if arch == "aarch64" else A32, root, None, run.stdout)
        return hosts[arch, cpu]

    return make


@pytest.mark.parametrize("arch, isa, cpu", GRID)
def test_agrees_with_the_guard(
    arch: str, isa: str, cpu: str, build: Callable[..., Path], seen: Callable[[str, str], Host], request: pytest.FixtureRequest
) -> None:
    """A build is among those that run if and only if its own guard says so on that CPU."""
    in_row(request, arch, isa, None, "guard")
    need(arch)
    decision = decide(arch, cpu_facts.read(seen(arch, cpu)).features)
    guard = emulate(arch, cpu, build(isa, arch=arch) / "ml_run", "--check-cpu")
    assert guard.returncode in (0, 7), guard.stderr
    assert (isa in decision.runnable) == (guard.returncode == 0), guard.stderr


@pytest.mark.parametrize("arch, cpu", [(arch, cpu) for arch, cpus in EMULATED.items() for cpu in cpus])
def test_emulated(arch: str, cpu: str, seen: Callable[[str, str], Host], ask: Callable[..., tuple[int, str, str]]) -> None:
    need(arch)
    assert ask("--all", host=seen(arch, cpu)) == (0, "\n".join(EMULATED[arch][cpu].split()[::-1]) + "\n", "")


@pytest.mark.parametrize("cpu", ["Haswell,vendor=HygonGenuine", "Haswell,family=255,model=9", "Haswell,model-id=unknown"])
def test_names_do_not_matter(cpu: str, seen: Callable[[str, str], Host], ask: Callable[..., tuple[int, str, str]]) -> None:
    if HOST != "x86_64":
        pytest.skip("these are CPUs of x86-64")
    need(HOST)
    assert ask(host=seen(HOST, cpu)) == (0, "avx2\n", "")


@pytest.mark.parametrize("isa", isas(HOST))
def test_agrees_with_the_guard_here(isa: str, build: Callable[..., Path], request: pytest.FixtureRequest) -> None:
    """On this CPU, with what its kernel says."""
    in_row(request, HOST, isa, None, "guard")
    run = subprocess.run([sys.executable, FRONT, "--all"], env=clean(), capture_output=True, text=True, check=True)
    guard = subprocess.run([build(isa) / "ml_run", "--check-cpu"], capture_output=True, text=True, check=False)
    assert (isa in run.stdout.split()) == (guard.returncode == 0), (run.stdout, guard.stderr)


def test_table_is_the_registry() -> None:
    for arch in FEATURES:
        rows = [f for f in REGISTRY["feature"] if f["arch"] == arch]
        found = [(f.name, f.text, f.cpuinfo, f.hwcap, f.sysctl) for f in FEATURES[arch]]
        expected = [
            (f["name"], f["text"], f.get("cpuinfo", f["name"]), f["bit"] if f["word"] == "HWCAP" else None, f.get("sysctl")) for f in rows
        ]
        assert found == expected
        builds = sorted((isa for isa in REGISTRY["isa"] if arch in isa["arch"]), key=lambda isa: -isa["rank"])
        assert [(b.isa, b.features) for b in BUILDS[arch]] == [(i["name"], tuple(i["arch"][arch]["features"])) for i in builds]
        assert set(isas(arch)) == {b.isa for b in BUILDS[arch]}
        assert BASELINE[arch] in isas(arch)


@pytest.mark.parametrize("arch", FEATURES)
def test_every_feature_is_decisive(arch: str) -> None:
    """A build needs each of its features, and nothing that it does not list."""
    everything = {f.name for f in FEATURES[arch]}
    for build in BUILDS[arch]:
        assert build.isa in decide(arch, build.features).runnable
        assert decide(arch, everything).verdicts[0].missing == ()
        for name in build.features:
            decision = decide(arch, everything - {name})
            missing = {verdict.build.isa: verdict.missing for verdict in decision.verdicts}
            assert missing[build.isa] == (name,) and build.isa not in decision.runnable


def test_every_source_tells_every_feature() -> None:
    for f in FEATURES["x86_64"]:
        assert cpu_facts.from_cpuinfo("x86_64", b"flags: " + f.cpuinfo.encode()) == {f.name}
    for arch in ("aarch64", "armv7"):
        for f in FEATURES[arch]:
            assert f.hwcap is not None
            assert cpu_facts.from_hwcap(arch, 1 << f.hwcap) == {f.name}
            assert cpu_facts.from_cpuinfo(arch, b"Features: " + f.cpuinfo.encode()) == {f.name}
        assert cpu_facts.from_hwcap(arch, 0) == frozenset()


# -- Overrides ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def penryn(tmp_path: Path) -> Host:
    return made_up(X86, tmp_path, (CPUINFO / "core2-penryn.txt").read_bytes())


@pytest.fixture
def zen4(tmp_path: Path) -> Host:
    return made_up(X86, tmp_path / "zen4", (CPUINFO / "zen4-ryzen7-7700x.txt").read_bytes())


@pytest.mark.parametrize(
    "cpu, expected",
    [
        ("", "sse2"),
        ("x86_64", "sse2"),
        ("x86_64_v2", "sse41"),
        ("x86_64_v3", "avx2"),
        ("x86_64_v4", "avx2"),
        ("skylake", "avx2"),
        ("alderlake", "avxvnni"),
        ("icelake", "avx512vnni"),
        ("zen4", "avx512vnni"),
    ],
)
def test_override(cpu: str, expected: str, zen4: Host, penryn: Host, ask: Callable[..., tuple[int, str, str]]) -> None:
    environ = {VARIABLE: cpu}
    status, out, err = ask(host=zen4, environ=environ)
    assert (status, out) == (0, expected + "\n")
    assert (err == "") == (expected != "avxvnni"), err  # Zen 4 has no AVX-VNNI
    status, out, err = ask(host=penryn, environ=environ)
    assert (status, out) == (0, expected + "\n")
    if expected in ("sse2", "sse41"):
        assert err == ""
    else:
        one_sentence(err, f"warning: {VARIABLE}={cpu} gives {expected}, which this CPU cannot run: it lacks SSE4.2, POPCNT, AVX, ", "AVX2")
        assert ("AVX-512 VNNI" in err) == (expected == "avx512vnni")
    document = json.loads(ask("--json", host=penryn, environ=environ)[1])
    assert (document["source"], document["override"], document["isa"]) == ("override", cpu, expected)
    assert document["warnings"] == ([] if err == "" else [err.removeprefix("legacyml-which-isa: warning: ").rstrip("\n")])
    assert document["all"][0] == expected and document["all"][-1] == "scalar"


def test_no_override(zen4: Host, penryn: Host, ask: Callable[..., tuple[int, str, str]]) -> None:
    assert ask(host=zen4) == (0, "avx512vnni\n", "")
    assert ask(host=penryn, environ={"CONDA_OVERRIDE_CUDA": "12", "ARCHSPEC": "zen4"}) == (0, "sse41\n", "")


@pytest.mark.parametrize(
    "cpu, hint",
    [
        ("nonsense", None),
        ("X86_64_V3", "(did you mean x86_64_v3 or"),
        ("x86-64-v3", "(did you mean x86_64_v3 or"),
        ("skylake ", "(did you mean skylake"),
        ("Zen4", "(did you mean zen4"),
        ("NEHALEM", "(did you mean nehalem"),
        ("neoverse_v1", "is a CPU of aarch64, and this is x86_64"),
        ("avx2", None),
        ("a\nb", None),
    ],
)
def test_wrong_override(cpu: str, hint: str | None, zen4: Host, ask: Callable[..., tuple[int, str, str]]) -> None:
    for option in ("--json", "--install"):
        status, out, err = ask(option, host=zen4, environ={VARIABLE: cpu})
        assert (status, out) == (2, "")
        one_sentence(err, f"{VARIABLE}={cpu!r} is ", "expected one of x86_64, x86_64_v2, ", "zen5", hint or "is no CPU name of x86_64; ")


def test_override_of_unreadable_hardware(tmp_path: Path, ask: Callable[..., tuple[int, str, str]]) -> None:
    for host, cpu, expected in ((X86, "zen4", "avx512vnni"), (A64, "a64fx", "sve"), (A32, "arm", "scalar"), (A64, "", "neon")):
        status, out, err = ask(host=host._replace(root=str(tmp_path)), environ={VARIABLE: cpu})
        assert (status, out) == (0, expected + "\n")
        one_sentence(err, f"warning: {VARIABLE}={cpu} is not compared with this CPU", "proc/cpuinfo")


def test_override_where_windows_says_nothing(monkeypatch: pytest.MonkeyPatch, ask: Callable[..., tuple[int, str, str]]) -> None:
    """What a source cannot tell is not missing."""
    monkeypatch.setattr(cpu_facts, "_windows_feature_present", lambda: lambda number: number in (13, 36, 37, 38, 39, 40))
    host = Host("win32", "AMD64", 64)
    assert ask(host=host, environ={VARIABLE: "haswell"}) == (0, "avx2\n", "")
    status, out, err = ask(host=host, environ={VARIABLE: "icelake"})
    assert (status, out) == (0, "avx512vnni\n")
    assert err.rstrip().endswith("it lacks AVX-512 F")
    status, out, err = ask(host=host)
    assert (status, out) == (0, "sse41\n")
    one_sentence(err, "warning: Windows does not tell")
    assert json.loads(ask("--json", host=host)[1])["source"] == "kernel32"


@pytest.mark.parametrize("arch", CPUS)
def test_override_gives_what_the_solver_gives(arch: str) -> None:
    for cpu, isa in CPUS[arch].items():
        assert overridden(arch, cpu).best == isa
    assert overridden(arch, "").best == BASELINE[arch]


# -- What is printed ----------------------------------------------------------------------------------------------------------


def test_json(ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    host = made_up(X86, tmp_path, (CPUINFO / "jaguar-a4-5000.txt").read_bytes())
    status, out, err = ask("--json", host=host)
    assert (status, err) == (0, "")
    document = json.loads(out)
    builds = document.pop("builds")
    assert document == {
        "platform": "linux-64",
        "architecture": "x86_64",
        "source": "cpuinfo",
        "override": None,
        "features": ["sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "f16c", "bmi1", "lzcnt", "movbe"],
        "isa": "sse41",
        "package": "legacyml-sse41",
        "all": ["sse41", "sse2", "scalar"],
        "warnings": [],
    }
    assert [build["isa"] for build in builds] == list(isas("x86_64"))[::-1]
    assert all(set(build) == {"isa", "package", "summary", "needs", "missing"} for build in builds)
    avx2 = builds[2]
    assert (avx2["isa"], avx2["package"], avx2["missing"]) == ("avx2", "legacyml-avx2", ["avx2", "fma"])
    assert avx2["needs"] == ["sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma"]


def test_explain(ask: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    jaguar = made_up(X86, tmp_path / "jaguar", (CPUINFO / "jaguar-a4-5000.txt").read_bytes())
    assert ask("--explain", host=jaguar)[1].splitlines() == [
        "x86_64, by /proc/cpuinfo",
        "avx512vnni: no, lacks AVX2 (avx2), FMA (fma), AVX-512 F (avx512f), AVX-512 BW (avx512bw), AVX-512 VL (avx512vl), "
        "AVX-512 VNNI (avx512_vnni)",
        "avxvnni: no, lacks AVX2 (avx2), FMA (fma), AVX-VNNI (avx_vnni)",
        "avx2: no, lacks AVX2 (avx2), FMA (fma)",
        "sse41: yes, has SSE3 (pni), SSSE3 (ssse3), SSE4.1 (sse4_1)",
    ]
    conroe = made_up(X86, tmp_path / "conroe", (CPUINFO / "core2-conroe.txt").read_bytes())
    assert ask("--explain", host=conroe)[1].splitlines()[-2:] == [
        "sse41: no, lacks SSE4.1 (sse4_1)",
        "sse2: yes, every x86_64 CPU runs it",
    ]
    a64fx = made_up(A64, tmp_path / "a64fx", None, vector(0x17FB | 1 << 22, 64))
    assert ask("--explain", host=a64fx)[1].splitlines() == [
        "aarch64, by AT_HWCAP",
        "sve: yes, has NEON (bit 1), LSE atomics (bit 8), CRC32 (bit 7), rounding multiply-accumulate (RDM) (bit 12), "
        "half-precision arithmetic (bit 9), half-precision vector arithmetic (bit 10), SVE (bit 22)",
    ]
    assert ask("--explain", host=jaguar, environ={VARIABLE: "zen2"})[1].splitlines() == [
        f"x86_64, by {VARIABLE}=zen2",
        "avx2: what the package solver chooses for this CPU name",
    ]
    assert ask("--explain", host=jaguar, environ={VARIABLE: ""})[1].splitlines()[1].startswith("sse2: what the package solver")
    arm1176 = made_up(A32, tmp_path / "arm1176", None, vector(0x80D6, 32))
    status, out, err = ask("--explain", host=arm1176)
    assert (status, out.splitlines()[1:]) == (7, ["neon: no, lacks VFPv3 (bit 13), NEON (bit 12)", "scalar: no, lacks VFPv3 (bit 13)"])
    one_sentence(err, "no build of legacyml runs on this CPU")


@pytest.mark.parametrize(
    "options", ["--package --all", "--json --explain", "--install --all", "--yes", "--yes --json", "--nonsense", "avx2", "--install=avx2"]
)
def test_usage(options: str, ask: Callable[..., tuple[int, str, str]]) -> None:
    status, out, err = ask(*options.split())
    assert (status, out) == (2, "")
    assert "usage: legacyml-which-isa" in err and "error: " in err


def test_version_and_help(ask: Callable[..., tuple[int, str, str]]) -> None:
    header = (TOP / "src/include/legacyml.h").read_text()
    version = re.search(r'LEGACYML_VERSION\w* "([\d.]+)"', header)
    assert version is None or ask("--version") == (0, f"legacyml-which-isa {version[1]}\n", "")
    status, out, err = ask("--help")
    assert (status, err) == (0, "")
    for part in (VARIABLE, "Exit status: 0 done, 2 usage, 3 ", "7 no build", "--package", "--install", "--explain"):
        assert part in " ".join(out.split())


# -- As a program -------------------------------------------------------------------------------------------------------------


def clean(**more: str) -> dict[str, str]:
    """The environment without whatever would change the answer."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("CONDA_", "MAMBA_", "PIXI_"))} | more


def test_imports_nothing_of_the_runtime() -> None:
    """Only its own modules and the standard library: whatever else is installed may be a build for another CPU."""
    code = (
        f"import sys; sys.path.insert(0, {str(TOP / 'python')!r})\n"
        "import legacyml_which_isa.cli as cli\n"
        "status = cli.main(['--json'])\n"
        "ours = {name.split('.')[0] for name in sys.modules}\n"
        "print('|', *sorted(ours - set(sys.stdlib_module_names) - {'__main__'}), status, 'ctypes' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], env=clean(), capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "| legacyml_which_isa 0 False", run.stdout
    for path in (TOP / "python/legacyml_which_isa").glob("*.py"):
        assert not re.search(r"^\s*(import|from) legacyml\b(?!_which_isa)", path.read_text(), re.MULTILINE), path


@pytest.mark.parametrize("options", ["", "--json", "--all", "--explain", "--version", "--help"])
def test_program(options: str, tmp_path: Path) -> None:
    """From a checkout and as a module: the same text, also in an isolated interpreter without site-packages."""
    runs = [
        subprocess.run(command, env=clean(PYTHONPATH=str(TOP / "python")), cwd=tmp_path, capture_output=True, check=True)
        for command in (
            [sys.executable, "-I", "-S", FRONT, *options.split()],
            [sys.executable, "-m", "legacyml_which_isa", *options.split()],
        )
    ]
    assert runs[0].stdout == runs[1].stdout != b""
    assert runs[0].stderr == runs[1].stderr == b""


@pytest.mark.parametrize("unbuffered", [[], ["-u"]], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("options", ["", "--json", "--help", "--version"])
def test_output_that_cannot_be_written(options: str, unbuffered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = [sys.executable, *unbuffered, FRONT, *options.split()]
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(command, env=clean(), stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, "")
    with open("/dev/full", "w") as full:
        run = subprocess.run(command, env=clean(), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 3
    one_sentence(run.stderr, "standard output: writing failed: No space left on device")
    shell = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], env=clean(), stderr=subprocess.PIPE, text=True, check=False)
    assert shell.returncode == 3
    one_sentence(shell.stderr, "standard output: writing failed: Bad file descriptor")
    shell = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command], env=clean(), stdout=subprocess.PIPE, check=False)
    assert shell.returncode == 0 and shell.stdout


def test_warnings_do_not_reach_a_closed_stderrs_place() -> None:
    """print() turns to stdout where stderr is closed."""
    cpu, expected = {"x86_64": ("zen5", "avx512vnni"), "aarch64": ("a64fx", "sve"), "armv7": ("arm", "scalar")}[HOST]
    command = ["sh", "-c", '"$@" 2>&-', "sh", sys.executable, str(FRONT)]
    run = subprocess.run(command, env=clean(**{VARIABLE: cpu}), stdout=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, expected + "\n")
    run = subprocess.run(command, env=clean(**{VARIABLE: "nonsense"}), stdout=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_other_pythons(version: str) -> None:
    # In PATH, or installed beside the one that runs this.
    beside = sorted(str(path) for path in Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python3"))
    python = next(iter(beside), None) or shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"python{version} is not installed")
    run = subprocess.run([python, "-W", "error", FRONT, "--json"], env=clean(), capture_output=True, text=True, check=True)
    here = subprocess.run([sys.executable, FRONT, "--json"], env=clean(), capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == (here.stdout, "")


# -- --install ----------------------------------------------------------------------------------------------------------------
# Fake clients: they write down how they were called. That real ones do what they are asked is another test's subject.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Setup:
    """An environment, clients, and a Haswell."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.capfd, self.monkeypatch = folder, capfd, monkeypatch
        self.prefix = folder / "my envs/legacy"
        self.meta = self.prefix / "conda-meta"
        self.meta.mkdir(parents=True)
        (self.meta / "history").write_text("==> 2026-01-01 00:00:00 <==\n")
        (folder / "bin").mkdir()
        self.calls_file = folder / "calls"
        self.environ = {"CONDA_PREFIX": str(self.prefix), "PATH": str(folder / "bin")}
        self.host = made_up(X86, folder, (CPUINFO / "haswell-i7-4770.txt").read_bytes())

    def client(self, name: str, fails: str = "", folder: str = "bin", raises: str = "") -> Path:
        """A client that fails when its first argument is `fails`."""
        path = self.folder / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            f"open({str(self.calls_file)!r}, 'a').write(json.dumps(sys.argv) + '\\n')\n"
            f"print('client at work', flush=True)\n{raises}\nsys.exit(5 if sys.argv[1] == {fails!r} else 0)\n"
        )
        path.chmod(0o755)
        return path

    def package(self, name: str, build: str = "h12_0", channel: str | None = None, prefix: Path | None = None) -> None:
        record = {"name": name, "version": "0.1.0", "build": build, "build_number": 0, "files": []}
        if channel is not None:
            record["channel"] = channel
        meta = (prefix or self.prefix) / "conda-meta"
        (meta / f"{name}-0.1.0-{build}.json").write_text(json.dumps(record))

    def variant(self, isa: str, *more: str, channel: str | None = None) -> None:
        self.package(f"legacyml-{isa}", channel=channel)
        self.package("liblegacyml", f"{isa}_h3fa_0", channel=channel)
        for name in more:
            self.package(name, channel=channel)

    def run(self, *options: str, answer: str | None = None) -> tuple[int, str]:
        self.monkeypatch.setattr(sys, "stdin", io.StringIO("y\n") if answer is None else Terminal(answer))
        status = main(["--install", *options], self.host, self.environ)
        captured = self.capfd.readouterr()
        assert captured.out.replace("client at work\n", "") == ""
        return status, captured.err

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.calls_file.read_text().splitlines()] if self.calls_file.exists() else []


@pytest.fixture
def setup(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(tmp_path, capfd, monkeypatch)


def test_install_into_an_empty_environment(setup: Setup) -> None:
    conda = setup.client("conda")
    status, err = setup.run("--yes")
    prefix = str(setup.prefix)
    assert status == 0
    assert setup.calls == [[str(conda), "install", "--yes", "-p", prefix, "legacyml-avx2"]]
    assert err == f"  {conda} install --yes -p '{prefix}' legacyml-avx2\n"


def test_install_order_of_clients(setup: Setup) -> None:
    clients = [setup.client(name) for name in ("conda", "micromamba", "mamba")]
    clients += [setup.client("conda", folder="conda"), setup.client("micromamba", folder="root")]
    for variable, path in ((None, None), (None, None), (None, None), ("CONDA_EXE", clients[3]), ("MAMBA_EXE", clients[4])):
        if variable:
            setup.environ[variable] = str(path)
        assert setup.run("--yes")[0] == 0
        if not variable:
            Path(setup.calls[-1][0]).unlink()  # the next has its turn
    assert [call[0] for call in setup.calls] == [str(clients[n]) for n in (2, 1, 0, 3, 4)]
    # What is set and is not there, or is no program, is passed over.
    text = setup.folder / "text"
    text.write_text("")
    for path in (setup.folder / "gone", setup.folder, text):
        setup.environ["MAMBA_EXE"] = str(path)
        assert setup.run("--yes")[0] == 0
        assert setup.calls[-1][0] == str(clients[3])


def test_install_asks(setup: Setup) -> None:
    setup.client("mamba")
    for answer in ("n\n", "\n", "", "nyes\n", "no\n"):
        status, err = setup.run(answer=answer)
        assert (status, setup.calls) == (0, [])
        assert "Proceed? [y/N] " in err and err.endswith("nothing was changed\n")
        assert err.index("install --yes") < err.index("Proceed?")
    for number, answer in enumerate(("y\n", "Y\n", "yes\n", " Yes \n")):
        assert setup.run(answer=answer)[0] == 0
        assert len(setup.calls) == number + 1
    status, err = setup.run()
    assert status == 2 and len(setup.calls) == 4
    one_sentence(err.splitlines()[-1], "standard input is no terminal to ask on: add --yes")


def test_install_on_a_real_terminal(setup: Setup) -> None:
    setup.client("mamba")
    code = (
        f"import sys; sys.path.insert(0, {str(TOP / 'python')!r})\n"
        "from legacyml_which_isa.cli import main\nfrom legacyml_which_isa.cpu import Host\n"
        f"sys.exit(main(['--install'], Host('linux', 'x86_64', 64, {setup.host.root!r})))\n"
    )
    for answer, calls in ((b"n\n", 0), (b"y\n", 1)):
        master, slave = pty.openpty()
        os.write(master, answer)
        run = subprocess.run(
            [sys.executable, "-c", code], env=clean(**setup.environ), stdin=slave, capture_output=True, text=True, check=False
        )
        os.close(master)
        os.close(slave)
        assert (run.returncode, len(setup.calls)) == (0, calls), run.stderr
        assert "Proceed? [y/N]" in run.stderr
    with open(os.devnull) as nothing:
        run = subprocess.run(
            [sys.executable, "-c", code], env=clean(**setup.environ), stdin=nothing, capture_output=True, text=True, check=False
        )
    assert (run.returncode, len(setup.calls)) == (2, 1)


@pytest.mark.parametrize("name", ["conda", "mamba", "micromamba"])
def test_install_takes_the_other_variant_away_first(name: str, setup: Setup) -> None:
    client, prefix = str(setup.client(name)), str(setup.prefix)
    setup.variant("sse2", "legacyml-python", "legacyml-which-isa")
    assert setup.run("--yes")[0] == 0
    assert setup.calls == [
        [client, "remove", "--force", "--yes", "-p", prefix, "legacyml-sse2"],
        [client, "install", "--yes", "-p", prefix, "legacyml-avx2"],
    ]


def test_install_takes_the_metapackage_away(setup: Setup) -> None:
    """It depends on the variant that goes."""
    setup.client("conda")
    setup.variant("sse41", "legacyml")
    assert setup.run("--yes")[0] == 0
    assert [call[1:] for call in setup.calls] == [
        ["remove", "--force", "--yes", "-p", str(setup.prefix), "legacyml", "legacyml-sse41"],
        ["install", "--yes", "-p", str(setup.prefix), "legacyml-avx2"],
    ]


def test_install_with_a_library_and_no_variant(setup: Setup) -> None:
    """legacyml-python alone brings the baseline's library; nothing has to go."""
    setup.client("conda")
    setup.package("liblegacyml", "sse2_h3fa_0")
    setup.package("legacyml-python")
    assert setup.run("--yes")[0] == 0
    assert [call[1] for call in setup.calls] == ["install"]


def test_install_already_right(setup: Setup) -> None:
    setup.client("conda")
    setup.variant("avx2", "legacyml")
    status, err = setup.run()
    assert (status, setup.calls) == (0, [])
    assert err == f"legacyml-avx2 0.1.0, the one for this CPU, is installed already in {setup.prefix}\n"
    # avx2_h is not the start of a longer name's build, nor the other way round.
    setup.package("liblegacyml", "avx2x_h3fa_0")
    (setup.meta / "liblegacyml-0.1.0-avx2_h3fa_0.json").unlink()
    assert setup.run("--yes")[0] == 0
    assert [call[1] for call in setup.calls] == ["install"]


@pytest.mark.parametrize(
    "channel, expected",
    [
        ("https://conda.example.org/lm/linux-64", ["-c", "https://conda.example.org/lm"]),
        ("https://conda.example.org/lm/noarch", ["-c", "https://conda.example.org/lm"]),
        ("file:///srv/my channel/noarch", ["-c", "file:///srv/my channel"]),
        ("/srv/channel", ["-c", "/srv/channel"]),
        ("conda-forge", []),
        ("<unknown>", []),
        ("", []),
        (None, []),
        ("https://user:secret@conda.example.org/lm", []),
        ("https://conda.example.org/t/secret/lm", []),
    ],
)
def test_install_from_the_channel_it_came_from(channel: str | None, expected: list[str], setup: Setup) -> None:
    setup.client("conda")
    setup.variant("sse2", channel=channel)
    status, err = setup.run("--yes")
    assert status == 0 and "secret" not in err
    assert setup.calls[1][1:] == ["install", "--yes", "-p", str(setup.prefix), *expected, "legacyml-avx2"]
    # The selector's own comes first, the variant's before the library's.
    setup.package("liblegacyml", "sse2_h3fa_0", channel="https://conda.example.org/library")
    assert setup.run("--yes")[0] == 0
    assert setup.calls[3][1:] == setup.calls[1][1:]
    setup.package("legacyml-which-isa", channel="https://conda.example.org/own/noarch")
    assert setup.run("--yes")[0] == 0
    assert setup.calls[5][5:7] == ["-c", "https://conda.example.org/own"]


def test_install_failures(setup: Setup) -> None:
    channel = "https://conda.example.org/lm"
    client = setup.client("conda", fails="install")
    prefix = f"'{setup.prefix}'"
    status, err = setup.run("--yes")
    assert status == 3
    one_sentence(err.splitlines()[-1], f"{client} install --yes -p {prefix} legacyml-avx2 failed with status 5; nothing else was done")
    setup.variant("sse2", "legacyml", channel=channel)
    status, err = setup.run("--yes")
    assert (status, [call[1] for call in setup.calls]) == (3, ["install", "remove", "install"])
    one_sentence(
        err.splitlines()[-1],
        "failed with status 5; what was there before is removed, and this brings it back: "
        f"{client} install -p {prefix} -c {channel} legacyml=0.1.0=h12_0 legacyml-sse2=0.1.0=h12_0",
    )
    setup.client("conda", fails="remove")
    status, err = setup.run("--yes")
    assert (status, [call[1] for call in setup.calls[3:]]) == (3, ["remove"])
    one_sentence(err.splitlines()[-1], "legacyml legacyml-sse2 failed with status 5; nothing else was done")


def test_install_of_a_client_that_cannot_start(setup: Setup) -> None:
    path = setup.client("conda")
    path.write_text("#!/nonexistent/interpreter\n")
    status, err = setup.run("--yes")
    assert status == 3
    one_sentence(err.splitlines()[-1], f"{path} cannot be started: No such file or directory; nothing else was done")


def test_install_interrupted(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the client as well; what has been done by then is said."""
    setup.client("conda")
    setup.variant("sse2")
    real = subprocess.run

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess:
        if command[1] == "install":
            raise KeyboardInterrupt
        return real(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(install_module.subprocess, "run", run)
    status, err = setup.run("--yes")
    assert status == 130
    one_sentence(err.splitlines()[-1], "interrupted: ", "this brings it back: ", "legacyml-sse2=0.1.0=h12_0")


def test_install_without_client(setup: Setup) -> None:
    setup.variant("sse2")
    status, err = setup.run("--yes")
    assert status == 3
    one_sentence(
        err,
        "neither MAMBA_EXE, CONDA_EXE nor PATH has a mamba, micromamba or conda; by hand: "
        f"conda remove --force --yes -p '{setup.prefix}' legacyml-sse2 && conda install --yes -p '{setup.prefix}' legacyml-avx2",
    )


def test_install_without_environment(setup: Setup) -> None:
    setup.client("conda")
    for value in (None, ""):
        setup.environ.pop("CONDA_PREFIX", None)
        if value is not None:
            setup.environ["CONDA_PREFIX"] = value
        status, err = setup.run("--yes")
        assert status == 3
        one_sentence(err, "CONDA_PREFIX is not set", "conda install -n NAME legacyml-avx2")
    setup.environ["CONDA_PREFIX"] = str(setup.folder / "bin")
    status, err = setup.run("--yes")
    assert status == 3
    one_sentence(err, "is not an environment that can be read", "conda-meta: No such file or directory")
    setup.environ["CONDA_PREFIX"] = str(setup.prefix)
    for text in ("", "{}", "[]", '{"name": "legacyml-avx2"}', "\0"):
        (setup.meta / "legacyml-avx2-0.1.0-0.json").write_text(text)
        status, err = setup.run("--yes")
        assert status == 3
        one_sentence(err, "legacyml-avx2-0.1.0-0.json is not the record of a package")
    assert setup.calls == []


def test_install_needs_a_build(setup: Setup) -> None:
    setup.client("conda")
    setup.host = made_up(A32, setup.folder, (CPUINFO / "rpi1-arm1176.txt").read_bytes())
    status, err = setup.run("--yes")
    assert (status, setup.calls) == (7, [])


def test_install_of_an_override(setup: Setup) -> None:
    setup.client("conda")
    setup.environ[VARIABLE] = "x86_64_v2"
    assert setup.run("--yes")[0] == 0
    assert setup.calls[-1][-1] == "legacyml-sse41"
    setup.environ[VARIABLE] = "zen4"
    status, err = setup.run("--yes")
    assert (status, setup.calls[-1][-1]) == (0, "legacyml-avx512vnni")
    one_sentence(err.splitlines()[0], "warning: ", "which this CPU cannot run: it lacks AVX-512 F")


@pytest.fixture
def pixi(setup: Setup) -> Setup:
    """The environment is one of a pixi project."""
    setup.prefix = setup.folder / "my project/.pixi/envs/default"
    setup.meta = setup.prefix / "conda-meta"
    setup.meta.mkdir(parents=True)
    setup.environ["CONDA_PREFIX"] = str(setup.prefix)
    setup.client("conda")
    setup.client("pixi")
    manifest(setup, '[dependencies]\npython = "*"\n')
    return setup


def manifest(setup: Setup, text: str, name: str = "my project/pixi.toml") -> Path:
    path = setup.folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("table, name", [("dependencies", "pixi.toml"), ("tool.pixi.dependencies", "pyproject.toml")])
@pytest.mark.parametrize("entries", ["legacyml-sse2", "legacyml", "legacyml legacyml-sse2", ""])
def test_install_with_pixi(table: str, name: str, entries: str, pixi: Setup) -> None:
    """What the manifest asks for goes first; the environment stays as it is until the new one is there."""
    (pixi.folder / "my project/pixi.toml").unlink()
    lines = "".join(f'{entry} = ">=0.1,<0.2"\n' for entry in entries.split())
    path = manifest(
        pixi,
        f'[workspace]\nname = "legacyml-sse2"\n\n[{table}]\n{lines}python = "*"\n[tasks]\nlegacyml-sse41 = "ls"\n',
        f"my project/{name}",
    )
    pixi.variant("sse2", *entries.split())
    client = str(pixi.folder / "bin/pixi")
    assert pixi.run("--yes")[0] == 0
    place = ["--manifest-path", str(path)]
    removal = [[client, "remove", "--no-install", *place, *entries.split()]] if entries else []
    assert pixi.calls == [*removal, [client, "add", *place, "legacyml-avx2"]]


def test_install_with_pixi_elsewhere(pixi: Setup) -> None:
    """Detached environments lie elsewhere: pixi's note in them, or its variables, tell."""
    detached = pixi.folder / "cache/envs/project-123/envs/default"
    (detached / "conda-meta").mkdir(parents=True)
    pixi.environ["CONDA_PREFIX"] = str(detached)
    path = pixi.folder / "my project/pixi.toml"
    (detached / "conda-meta/pixi").write_text(json.dumps({"manifest_path": str(path), "environment_name": "default"}))
    assert pixi.run("--yes")[0] == 0
    (detached / "conda-meta/pixi").unlink()
    for variable, value in (("PIXI_PROJECT_MANIFEST", path), ("PIXI_PROJECT_ROOT", path.parent)):
        pixi.environ[variable] = str(value)
        assert pixi.run("--yes")[0] == 0
        del pixi.environ[variable]
    assert [call[1:] for call in pixi.calls] == [["add", "--manifest-path", str(path), "legacyml-avx2"]] * 3
    # Another client's environment activated inside a pixi shell.
    pixi.environ |= {"PIXI_PROJECT_MANIFEST": str(path), "CONDA_PREFIX": str(pixi.folder / "my envs/legacy")}
    assert pixi.run("--yes")[0] == 0
    assert pixi.calls[-1][0].endswith("/conda")
    # PIXI_EXE is the one that runs.
    pixi.environ |= {"CONDA_PREFIX": str(pixi.prefix), "PIXI_EXE": str(pixi.client("pixi", folder="own"))}
    assert pixi.run("--yes")[0] == 0
    assert pixi.calls[-1][0] == pixi.environ["PIXI_EXE"]


def test_install_with_pixi_failures(pixi: Setup) -> None:
    path = manifest(pixi, '[dependencies]\nlegacyml-sse2 = "*"\n')
    pixi.variant("sse2")
    pixi.client("pixi", fails="add")
    status, err = pixi.run("--yes")
    assert (status, [call[1] for call in pixi.calls]) == (3, ["remove", "add"])
    one_sentence(err.splitlines()[-1], f"this brings it back: {pixi.folder}/bin/pixi add --manifest-path '{path}' legacyml-sse2==0.1.0")
    for table in ("feature.fast.dependencies", "target.linux-64.dependencies", "tool.pixi.feature.x.dependencies"):
        manifest(pixi, f'[dependencies]\npython = "*"\n[{table}] # here\n"legacyml-sse2" = "*"\n')
        status, err = pixi.run("--yes")
        assert status == 3
        one_sentence(err, f"{path} asks for legacyml-sse2 in [{table}]; change it there to legacyml-avx2")
    (pixi.folder / "bin/pixi").unlink()
    manifest(pixi, "")
    status, err = pixi.run("--yes")
    assert status == 3
    one_sentence(err, f"there is no pixi in PATH; by hand: pixi add --manifest-path '{path}' legacyml-avx2")
    path.unlink()
    status, err = pixi.run("--yes")
    assert status == 3
    one_sentence(err, "its manifest is not there; expected ", "pixi.toml or ", "pyproject.toml")
    other = pixi.prefix.parent / "cuda"
    (other / "conda-meta").mkdir(parents=True)
    pixi.environ["CONDA_PREFIX"] = str(other)
    manifest(pixi, "")
    status, err = pixi.run("--yes")
    assert status == 3
    one_sentence(err, "cuda is an environment of ", "pixi add --manifest-path", "--feature FEATURE legacyml-avx2")
    assert len(pixi.calls) == 2
