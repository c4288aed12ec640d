# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures that every test shares: builds, random models, third-party data."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Callable

import pytest

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "python"))
sys.path.insert(0, str(TOP / "tests"))

HOST = platform.machine().replace("armv7l", "armv7")
# Compiler prefix and folder of the cross-compiled C library, for other architectures that can be built for and emulated.
FOREIGN = {arch: triplet for arch, triplet in (("aarch64", "aarch64-linux-gnu"), ("armv7", "arm-linux-gnueabihf")) if arch != HOST}
QEMU = {"x86_64": "qemu-x86_64", "aarch64": "qemu-aarch64", "armv7": "qemu-arm"}
REGISTRY = tomllib.loads((TOP / "src/config/isa.toml").read_text())


def isas(arch: str) -> tuple[str, ...]:
    """Builds of an architecture, each after the one it extends."""
    return tuple(isa["name"] for isa in REGISTRY["isa"] if arch in isa["arch"])


NATIVE_ISAS = isas(HOST)


def cpu_flags() -> set[str]:
    """The feature words of this CPU as Linux lists them."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.split(":", 1)[1].split())
    return set()


def runs_here(isa: str) -> bool:
    """Whether this CPU has what the registry says that a build needs."""
    words = {f["name"]: f.get("cpuinfo", f["name"]) for f in REGISTRY["feature"] if f["arch"] == HOST}
    needed = next(row["arch"][HOST]["features"] for row in REGISTRY["isa"] if row["name"] == isa)
    return {words[feature] for feature in needed} <= cpu_flags()


def chain(isa: str) -> list[str]:
    """The ISA and those that it falls back to, nearest first."""
    parent = next(row["parent"] for row in REGISTRY["isa"] if row["name"] == isa)
    return [isa, *(chain(parent) if parent else [])]


def emulate(arch: str, cpu: str, *command: object, **options: object) -> subprocess.CompletedProcess:
    """Runs a program of `arch` on the emulated CPU; options are those of subprocess.run."""
    libraries = ["-L", f"/usr/{FOREIGN[arch]}"] if arch in FOREIGN else []
    settings: dict = {"capture_output": True, "text": True, "check": False, "timeout": 600} | options
    return subprocess.run([QEMU[arch], *libraries, "-cpu", cpu, *map(str, command)], **settings)


def need(arch: str, emulated: bool = True) -> None:
    """A visible skip where the machine cannot build for an architecture, or emulate its CPUs."""
    if arch != HOST and arch not in FOREIGN:
        pytest.skip(f"there is no cross compiler for {arch} here")
    if arch in FOREIGN and shutil.which(f"{FOREIGN[arch]}-gcc") is None:
        pytest.skip(f"{FOREIGN[arch]}-gcc is not installed")
    if emulated and shutil.which(QEMU[arch]) is None:
        pytest.skip(f"{QEMU[arch]} is not installed")


# -- The build matrix: which build ran, how, and what came out, as a table at the end ----------------------------------------


def in_row(request: pytest.FixtureRequest, arch: str, isa: str, cc: str | None, how: str) -> None:
    """Counts a test to a row of the table."""
    request.node.user_properties.append(("row", f"{arch} {isa} {cc or 'gcc'}\t{how}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows: dict[str, dict] = {}
    for outcome in ("passed", "failed", "skipped", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in getattr(report, "user_properties", ()):
                if name == "row":
                    row, how = value.split("\t")
                    entry = rows.setdefault(row, {"how": {}, "passed": 0, "failed": 0, "skipped": 0, "error": 0})
                    entry["how"][how] = True
                    entry[outcome] += 1
    if not rows:
        return
    terminalreporter.section("build matrix")
    width = max(map(len, rows))
    terminalreporter.write_line(f"{'build':{width}}  passed  failed  skipped  how it ran")
    order = [f"{arch} {isa}" for arch in ("x86_64", "aarch64", "armv7", "windows") for isa in isas(arch.replace("windows", "x86_64"))]
    for row in sorted(rows, key=lambda row: (order.index(" ".join(row.split()[:2])), row)):
        entry = rows[row]
        emulated = [how.removeprefix("qemu ") for how in entry["how"] if how.startswith("qemu ")]
        ways = [how for how in entry["how"] if not how.startswith("qemu ")] + ([f"qemu ({', '.join(emulated)})"] if emulated else [])
        # A build whose tests were all skipped ran nowhere, whatever they were for.
        nowhere = "" if entry["passed"] + entry["failed"] + entry["error"] else "not at all: "
        counts = f"{entry['passed']:6}  {entry['failed'] + entry['error']:6}  {entry['skipped']:7}"
        terminalreporter.write_line(f"{row:{width}}  {counts}  {nowhere}{', '.join(ways)}")


@pytest.fixture(params=NATIVE_ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    """Each build in turn; a visible skip where the CPU cannot run it."""
    in_row(request, HOST, request.param, None, "native" if runs_here(request.param) else "guard only")
    if not runs_here(request.param):
        pytest.skip(f"this CPU cannot run the {request.param} build")
    return request.param


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """build(isa, threads="pthread", cc=None, cflags=None, ldflags=None, debug=0, target="tests", arch=HOST,
    asm=0, programs=()) -> folder; programs are test programs to build beside the target.

    The folder has ml_run, ml_bench, liblegacyml.a, liblegacyml.so, libmlkernels.so and the C test programs. The plain build is the
    one of the checkout, build/<isa>; others lie beside it under a name made from their options, and are kept. Fails on any
    line that the compiler prints.
    """
    done: dict[tuple, Path] = {}

    def make(
        isa: str = "scalar",
        threads: str = "pthread",
        cc: str | None = None,
        cflags: str | None = None,
        ldflags: str | None = None,
        cppflags: str | None = None,
        debug: int = 0,
        target: str = "tests",
        arch: str = HOST,
        asm: int = 0,
        programs: tuple[str, ...] = (),
    ) -> Path:
        key = (isa, threads, cc, cflags, ldflags, cppflags, debug, arch, asm)
        if (key, target, programs) in done:
            return done[key, target, programs]
        plain = key == (isa, "pthread", None, None, None, None, 0, arch, 0)
        name = isa if plain else f"{isa}-{hashlib.sha256(repr(key).encode()).hexdigest()[:10]}"
        if arch in FOREIGN:
            name = f"{FOREIGN[arch]}/{name}"
        folder = TOP / "build" / name
        variables = {"CFLAGS": cflags or "", "LDFLAGS": ldflags or "", "CPPFLAGS": cppflags or ""}
        command = ["make", "-j2", f"ISA={isa}", f"THREADS={threads}", f"DEBUG={debug}", f"BUILD=build/{name}", target]
        command += [f"build/{name}/{program}" for program in programs]
        if cc:
            command.append(f"CC={cc} --target={FOREIGN[arch]}" if arch in FOREIGN else f"CC={cc}")
        if arch in FOREIGN:
            command.append(f"CROSS={FOREIGN[arch]}-")
        if asm:
            command.append("ASM=1")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f".{folder.name}.lock").open("w") as lock:  # tests that run side by side share builds
            fcntl.flock(lock, fcntl.LOCK_EX)
            run = subprocess.run(command, cwd=TOP, env=os.environ | variables, capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{' '.join(command)} {variables}:\n{run.stderr[-4000:]}"
        assert run.stderr == "", f"{' '.join(command)} {variables} is not silent:\n{run.stderr[-4000:]}"
        done[key, target, programs] = folder
        return folder

    return make


@pytest.fixture(scope="session")
def ml_run(build: Callable[..., Path]) -> Path:
    """The program as it is built by default for the scalar ISA."""
    return build("scalar", target="all") / "ml_run"


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """random_model(**options) -> .mlb written by tools/gen_random.py; options are its long options, True for a switch."""
    folder = tmp_path_factory.mktemp("models")
    done: dict[tuple, Path] = {}

    def make(**options: object) -> Path:
        key = tuple(sorted(options.items()))
        if key not in done:
            path = folder / f"random{len(done)}.mlb"
            arguments: list[str] = []
            for name, value in options.items():
                if value is not False:
                    arguments.append("--" + name.replace("_", "-"))
                if value is not True and value is not False:
                    arguments.append(str(value))
            subprocess.run([sys.executable, TOP / "tools/gen_random.py", path, *arguments], check=True, capture_output=True)
            done[key] = path
        return done[key]

    return make


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of third-party models and reference results; a visible skip where it is missing."""
    folder = Path(os.environ.get("LEGACYML_TEST_DATA", TOP.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no third-party data at {folder} (LEGACYML_TEST_DATA)")
    return folder


@pytest.fixture(scope="session")
def channel() -> Path:
    """The channel with the packages of all platforms, build/channel; a visible skip where it lacks some."""
    folder = TOP / "build" / "channel"
    if not all(list((folder / name).glob("liblegacyml-*.conda")) for name in ("linux-64", "linux-aarch64", "linux-armv7l")):
        pytest.skip("build/channel lacks packages of some platform: run make package PLATFORM=all")
    return folder
