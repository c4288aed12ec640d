# SPDX-License-Identifier: BSD-3-Clause
"""pip install ./python, in copies of the checkout; and the types that users see."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import HOST, TOP

VERSION = re.search(r'define LEGACYML_VERSION "(.*)"', (TOP / "src/include/legacyml.h").read_text())[1]
SHOW = """
import legacyml
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "liblegacyml" in line}
print(legacyml.isa(), legacyml.version(), *libraries, *legacyml.__path__)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the build needs, without what it made before."""
    ignore = shutil.ignore_patterns("build", "__pycache__", "*.egg-info", "*.so", ".*")
    for name in ("src", "python"):
        shutil.copytree(TOP / name, tmp_path / "checkout" / name, ignore=ignore)
    for name in ("Makefile", "LICENSE"):
        shutil.copy(TOP / name, tmp_path / "checkout")
    return tmp_path / "checkout"


def pip(*arguments: object, status: int = 0, **variables: object) -> str:
    """What pip says; a visible skip where it cannot get the build's own needs."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LEGACYML_ISA", "CONDA_OVERRIDE_ARCHSPEC", "CFLAGS", "MAKEFLAGS")}
    environment |= {name: str(value) for name, value in variables.items()}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    run = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=500)
    said = run.stdout + run.stderr
    if re.search(r"No matching distribution found for (setuptools|cffi|wheel)", said):
        pytest.skip("pip cannot get setuptools and cffi for an isolated build")
    assert (run.returncode != 0) == (status != 0), said[-4000:]
    return said


def setup(checkout: Path, **variables: object) -> str:
    """What setup.py says, as pip runs it, when it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LEGACYML_ISA", "CONDA_OVERRIDE_ARCHSPEC")}
    environment |= {name: str(value) for name, value in variables.items()}
    command = [sys.executable, "setup.py", "build"]
    run = subprocess.run(command, cwd=checkout / "python", env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    return run.stderr


def sentences(said: str) -> list[str]:
    """The lines of setup.py."""
    return [line.strip().removeprefix("legacyml: ") for line in said.splitlines() if line.strip().startswith("legacyml: ")]


def stand_in(folder: Path, name: str, script: str) -> str:
    """PATH with a program of ours in front."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def installed(wheel: Path, folder: Path) -> list[str]:
    """What the package in a wheel says, taken out into a folder that is then moved."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "before")
    (folder / "before").rename(folder / "after")
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"} | {"PYTHONPATH": str(folder / "after")}
    run = subprocess.run([sys.executable, "-c", SHOW], env=environment, cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_wheel(checkout: Path, tmp_path: Path) -> None:
    """Compiled as asked for, for every CPython from 3.9; the library lies beside the extension, wherever the folder is."""
    assert sentences(pip("wheel", "-v", "--no-deps", "-w", tmp_path, checkout / "python", LEGACYML_ISA="scalar"))[:1] == [
        "compiling the scalar build"
    ]
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name == f"legacyml-{VERSION}-cp39-abi3-linux_{HOST.replace('armv7', 'armv7l')}.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {f"legacyml/{path.name}" for path in (TOP / "python/legacyml").glob("*.py")}
    binaries = {"legacyml/_native.abi3.so", "legacyml/liblegacyml.so.0"}
    assert {name for name in names if name.startswith("legacyml/")} == modules | binaries | {"legacyml/_native.pyi", "legacyml/py.typed"}
    package = tmp_path / "place/after/legacyml"
    (tmp_path / "place").mkdir()
    assert installed(wheel, tmp_path / "place") == ["scalar", VERSION, f"{package}/liblegacyml.so.0", str(package)]
    dynamic = subprocess.run(["readelf", "-dW", package / "_native.abi3.so"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic) == ["$ORIGIN"]
    assert not list((checkout / "python/legacyml").glob("*.so")) and not list(checkout.glob("**/build"))


def test_sdist(checkout: Path, tmp_path: Path) -> None:
    """Has the C sources and can be built anywhere."""
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=checkout / "python", capture_output=True, check=True)
    shutil.rmtree(checkout)
    [archive] = tmp_path.glob("*.tar.gz")
    pip("wheel", "--no-deps", "-w", tmp_path, archive, LEGACYML_ISA="scalar")
    [wheel] = tmp_path.glob("*.whl")
    assert installed(wheel, tmp_path)[:2] == ["scalar", VERSION]


@pytest.mark.skipif(HOST != "x86_64", reason="the CPU name is of x86-64")
@pytest.mark.parametrize("variables", [{}, {"CONDA_OVERRIDE_ARCHSPEC": "haswell"}, {"LEGACYML_ISA": "sse41"}])
def test_chosen_build(checkout: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    """What legacyml-which-isa says, its override too, and above all LEGACYML_ISA; a build that fails is said to have failed."""
    selector = [sys.executable, "-m", "legacyml_which_isa"]
    best = subprocess.run(
        selector, cwd=TOP / "python", env=os.environ | variables, capture_output=True, text=True, check=True
    ).stdout.strip()
    expected = variables.get("LEGACYML_ISA", best)
    assert "CONDA_OVERRIDE_ARCHSPEC" not in variables or expected == "avx2"
    log = tmp_path / "log"
    path = stand_in(tmp_path / "bin", "make", f'echo "$@" > {log}; exit 2')
    said = setup(checkout, PATH=path, **variables)
    assert sentences(said)[-1] == f"the {expected} build could not be compiled: the lines above say why"
    assert f" ISA={expected} " in log.read_text()


def test_refusals(checkout: Path, tmp_path: Path) -> None:
    """An unknown build, a folder without the sources, a machine without make or a compiler: a sentence each."""
    said = sentences(setup(checkout, LEGACYML_ISA="avx3"))
    assert said[-1].startswith(f"LEGACYML_ISA='avx3' is no build for {HOST}; there are ") and "scalar" in said[-1]
    assert sentences(setup(checkout, LEGACYML_ISA=""))[-1].startswith("LEGACYML_ISA=''")
    assert "install a C compiler" in setup(checkout, CC="no-such-compiler")
    said = sentences(setup(checkout, PATH="/nowhere", LEGACYML_ISA="scalar"))
    assert said[-1] == "make was not found: install make and a C compiler"
    shutil.rmtree(checkout / "src")
    said = sentences(pip("wheel", "--no-deps", "-w", tmp_path, checkout / "python", status=1))
    assert said[-1].startswith("the C sources are in the checkout") and str(checkout) in said[-1]
    assert not list(tmp_path.glob("*.whl"))


def test_editable(checkout: Path, tmp_path: Path) -> None:
    """Compiles nothing: `make python` does, once."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    path = stand_in(tmp_path / "bin", "make", "exit 2")
    python = tmp_path / "venv/bin/python"
    pip("--python", python, "install", "--no-deps", "-e", checkout / "python", PATH=path)
    code = "import importlib.util; print(importlib.util.find_spec('legacyml').origin)"
    run = subprocess.run([python, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(checkout / "python/legacyml/__init__.py")


# -- Types ----------------------------------------------------------------------------------------------------------------------

USER = """
from pathlib import Path

import legacyml

with legacyml.Model(Path("m.mlb"), threads=2) as model:
    done = model.generate("x", stop=["a", b"b"], logprobs=2)
    reveal_type(done)
    reveal_type(done.text)
    reveal_type(model.generate([{"role": "user", "content": "x"}], stream=True))
    for text in model.generate([1, 2], stream=True, callback=print):
        reveal_type(text)
    reveal_type(model.forward(range(3)))
    reveal_type(model.tokenize(b"x"))
    reveal_type(model.perplexity("x", stride=4).value)
    reveal_type(model.info.weight_type)
    reveal_type(model.save_state())
"""
REVEALED = [
    "legacyml.generation.Completion",
    "str",
    "legacyml.generation.Stream",
    "str",
    "memoryview[float]",
    "list[int]",
    "float",
    "str",
    "bytes",
]
WRONG = [
    "model.generate(5)",
    "model.generate('x', stop=5)",
    "model.forward('x') + 1",
    "model.load_state('x')",
    "legacyml.Model(5)",
    "done.txt",
]


def mypy(*arguments: object) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
    environment = os.environ | {"MYPYPATH": str(TOP / "python")}
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_package_is_typed(tmp_path: Path) -> None:
    run = mypy("--cache-dir", tmp_path, TOP / "python/legacyml")
    assert run.returncode == 0, run.stdout


def test_users_see_types(tmp_path: Path) -> None:
    """Strict users get no complaint and the types that they expect; what is wrong is found, line by line."""
    (tmp_path / "user.py").write_text(USER + "\n".join(WRONG) + "\n")
    run = mypy("--cache-dir", tmp_path / "cache", tmp_path / "user.py")
    assert [name.replace("builtins.", "") for name in re.findall(r'Revealed type is "(.*)"', run.stdout)] == REVEALED, run.stdout
    first = USER.count("\n") + 1
    assert {int(n) for n in re.findall(r"user.py:(\d+): error", run.stdout)} == set(range(first, first + len(WRONG))), run.stdout
