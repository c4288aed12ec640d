# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures that every test shares: builds, random models, third-party data."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Callable

import pytest

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "python"))
sys.path.insert(0, str(TOP / "tests"))

REGISTRY = tomllib.loads((TOP / "src/config/isa.toml").read_text())
# Builds of this machine's architecture, the first of a chain before those that extend it.
NATIVE_ISAS = tuple(isa["name"] for isa in REGISTRY["isa"] if platform.machine() in isa["arch"])


def cpu_flags() -> set[str]:
    """The feature words of this CPU as Linux lists them."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.split(":", 1)[1].split())
    return set()


def runs_here(isa: str) -> bool:
    """Whether this CPU has what the registry says that a build needs."""
    arch = platform.machine()
    words = {f["name"]: f.get("cpuinfo", f["name"]) for f in REGISTRY["feature"] if f["arch"] == arch}
    needed = next(row["arch"][arch]["features"] for row in REGISTRY["isa"] if row["name"] == isa)
    return {words[feature] for feature in needed} <= cpu_flags()


def chain(isa: str) -> list[str]:
    """The ISA and those that it falls back to, nearest first."""
    parent = next(row["parent"] for row in REGISTRY["isa"] if row["name"] == isa)
    return [isa, *(chain(parent) if parent else [])]


@pytest.fixture(params=NATIVE_ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    """Each build in turn; a visible skip where the CPU cannot run it."""
    if not runs_here(request.param):
        pytest.skip(f"this CPU cannot run the {request.param} build")
    return request.param


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """build(isa, threads="pthread", cc=None, cflags=None, ldflags=None, debug=0, target="tests") -> folder.

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
    ) -> Path:
        key = (isa, threads, cc, cflags, ldflags, cppflags, debug)
        if (key, target) in done:
            return done[key, target]
        plain = key == (isa, "pthread", None, None, None, None, 0)
        name = isa if plain else f"{isa}-{hashlib.sha256(repr(key).encode()).hexdigest()[:10]}"
        folder = TOP / "build" / name
        variables = {"CFLAGS": cflags or "", "LDFLAGS": ldflags or "", "CPPFLAGS": cppflags or ""}
        command = ["make", "-j2", f"ISA={isa}", f"THREADS={threads}", f"DEBUG={debug}", f"BUILD=build/{name}", target]
        if cc:
            command.append(f"CC={cc}")
        run = subprocess.run(command, cwd=TOP, env=os.environ | variables, capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{' '.join(command)} {variables}:\n{run.stderr[-4000:]}"
        assert run.stderr == "", f"{' '.join(command)} {variables} is not silent:\n{run.stderr[-4000:]}"
        done[key, target] = folder
        return folder

    return make


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
