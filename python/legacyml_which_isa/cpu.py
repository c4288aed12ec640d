# SPDX-License-Identifier: BSD-3-Clause
"""What the system says that this CPU can do: plain facts, in the words of the registry.

Features that the CPU has and the system has not enabled do not count: Linux leaves them out of /proc/cpuinfo by itself.
"""

from __future__ import annotations

import os
import platform
import re
import struct
import subprocess
import sys
from collections.abc import Iterable
from typing import Callable, NamedTuple

from .errors import EXIT_CPU, EXIT_IO, Refusal
from .table import FEATURES

AT_HWCAP = 16

# Arguments of IsProcessorFeaturePresent. There is none for POPCNT, FMA, F16C or anything newer.
WINDOWS_FEATURES = {13: "sse3", 36: "ssse3", 37: "sse4.1", 38: "sse4.2", 39: "avx", 40: "avx2", 41: "avx512f"}

PLATFORMS = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("linux", "armv7"): "linux-armv7l",
    ("darwin", "x86_64"): "osx-64",
    ("darwin", "aarch64"): "osx-arm64",
    ("win32", "x86_64"): "win-64",
}


class Host(NamedTuple):
    """Where to look; tests make up others."""

    system: str  # as sys.platform
    machine: str  # as uname -m: the kernel's, which may be another than that of programs
    bits: int  # of a pointer in this program
    root: str = "/"

    @classmethod
    def here(cls) -> Host:
        return cls(sys.platform, platform.machine(), struct.calcsize("P") * 8)


class Facts(NamedTuple):
    features: frozenset[str]
    source: str  # cpuinfo, hwcap, sysctl or kernel32
    untold: frozenset[str] = frozenset()  # features that this source says nothing about
    warnings: tuple[str, ...] = ()


def architecture(host: Host) -> str:
    """The architecture of programs here: a 32-bit userland on a 64-bit kernel is a 32-bit machine to us."""
    machine = host.machine.lower()
    arch = None
    if machine in ("x86_64", "amd64", "x86") or re.fullmatch("i[3-6]86", machine):
        if host.bits != 64:
            raise Refusal(
                EXIT_CPU,
                f"no build of legacyml runs here: programs are {host.bits}-bit x86 (machine {host.machine}); expected 64-bit x86",
            )
        arch = "x86_64"
    elif machine in ("aarch64", "arm64", "armv8l"):
        arch = "aarch64" if host.bits == 64 else "armv7"
    elif machine.startswith("arm") and not machine.endswith("b"):
        arch = "armv7"  # or older: its features tell
    if arch is None or (host.system, arch) not in PLATFORMS:
        raise Refusal(
            EXIT_CPU,
            f"no build of legacyml runs here: this is {host.machine or 'an unknown machine'} with {host.system}; "
            f"expected one of {', '.join(PLATFORMS.values())}",
        )
    return arch


def read(host: Host) -> Facts:
    """Asks the system. Raises Refusal where it says nothing."""
    arch = architecture(host)
    if host.system == "darwin":
        return from_sysctl(arch, _run_sysctl(host))
    if host.system == "win32":
        return from_windows(_windows_feature_present())
    cpuinfo = os.path.join(host.root, "proc/cpuinfo")
    if arch == "x86_64":
        return Facts(from_cpuinfo(arch, _read(cpuinfo), cpuinfo), "cpuinfo")
    auxv = os.path.join(host.root, "proc/self/auxv")
    try:
        value = hwcap(_read(auxv), host.bits)
    except Refusal:
        value = None
    if value is not None:
        return Facts(from_hwcap(arch, value), "hwcap")
    return Facts(from_cpuinfo(arch, _read(cpuinfo), cpuinfo), "cpuinfo")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise Refusal(EXIT_IO, f"cannot read what the system says about the CPU: {path}: {error.strerror}") from None


# -- Linux -------------------------------------------------------------------------------------------------------------------


def from_cpuinfo(arch: str, text: bytes, path: str = "/proc/cpuinfo") -> frozenset[str]:
    """What every processor listed has: a thread may move to any of them."""
    key = b"flags" if arch == "x86_64" else b"Features"
    common: set[bytes] | None = None
    for line in text.split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon and name.strip() == key:
            words = set(value.split())
            common = words if common is None else common & words
    if common is None:
        raise Refusal(EXIT_IO, f'cannot read what the system says about the CPU: {path} has no line "{key.decode()}"')
    if arch == "armv7":
        # To a 32-bit program a 64-bit kernel may list the words of 64-bit programs.
        common |= {word for other, word in ((b"fp", b"vfpv3"), (b"asimd", b"neon")) if other in common}
    return frozenset(f.name for f in FEATURES[arch] if f.cpuinfo.encode() in common)


def hwcap(auxv: bytes, bits: int) -> int | None:
    """AT_HWCAP of an auxiliary vector: pairs of words of the program's size."""
    pair = struct.Struct("=II" if bits == 32 else "=QQ")
    for tag, value in pair.iter_unpack(auxv[: len(auxv) // pair.size * pair.size]):
        if tag == AT_HWCAP:
            return int(value)
    return None


def from_hwcap(arch: str, value: int) -> frozenset[str]:
    return frozenset(f.name for f in FEATURES[arch] if f.hwcap is not None and value >> f.hwcap & 1)


# -- macOS -------------------------------------------------------------------------------------------------------------------


def _run_sysctl(host: Host) -> str:
    # Without proc_translated on an Intel Mac it says so on stderr and exits with 1, after all that it knows.
    command = [os.path.join(host.root, "usr/sbin/sysctl"), "hw.optional", "machdep.cpu", "sysctl.proc_translated"]
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise Refusal(EXIT_IO, f"cannot read what the system says about the CPU: {command[0]}: {error.strerror}") from None
    return run.stdout.decode("ascii", "replace")


def from_sysctl(arch: str, text: str) -> Facts:
    values = {name.strip(): value.strip() for name, colon, value in (line.partition(":") for line in text.split("\n")) if colon}
    features, warnings = set(), []
    if arch == "aarch64":
        if "hw.optional.arm64" not in values and not any(f.sysctl in values for f in FEATURES[arch]):
            raise Refusal(EXIT_IO, "cannot read what the system says about the CPU: sysctl lists nothing below hw.optional")
        features = {f.name for f in FEATURES[arch] if f.sysctl is not None and values.get(f.sysctl) == "1"}
        if values.get("hw.optional.arm64") == "1":
            features.add("asimd")  # macOS 11 has another name for it
    else:
        if "machdep.cpu.features" not in values:
            raise Refusal(EXIT_IO, "cannot read what the system says about the CPU: sysctl has no machdep.cpu.features")
        lists = ("machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures")
        words = {word.lower() for name in lists for word in values.get(name, "").split()}
        if "avx1.0" in words:
            words.add("avx")
        # macOS enables AVX-512 in a thread when it first uses it; until then the guard sees it as not enabled.
        features = {f.name for f in FEATURES[arch] if f.name in words and not f.name.startswith("avx512")}
        if values.get("sysctl.proc_translated") == "1":
            warnings.append("this Python is an x86-64 one under Rosetta: with an arm64 one, a build for this CPU itself fits")
    return Facts(frozenset(features), "sysctl", warnings=tuple(warnings))


# -- Windows -----------------------------------------------------------------------------------------------------------------


def _windows_feature_present() -> Callable[[int], bool]:
    import ctypes  # here: not every Python elsewhere has it

    kernel32 = getattr(ctypes, "windll").kernel32
    return lambda number: bool(kernel32.IsProcessorFeaturePresent(number))


def from_windows(present: Callable[[int], bool]) -> Facts:
    features = frozenset(name for number, name in WINDOWS_FEATURES.items() if present(number))
    untold = frozenset(f.name for f in FEATURES["x86_64"]) - frozenset(WINDOWS_FEATURES.values())
    warnings: tuple[str, ...] = ()
    if "avx2" in features:
        warnings = (
            "Windows does not tell of FMA and newer features, so better builds than sse41 are left out: this CPU has AVX2, "
            "so try legacyml-avx2; it says in one sentence if this CPU cannot run it",
        )
    return Facts(features, "kernel32", untold, warnings)


def texts(arch: str, names: Iterable[str]) -> str:
    """Features in the spelling for people, in the order of the table."""
    wanted = set(names)
    return ", ".join(f.text for f in FEATURES[arch] if f.name in wanted)
