# SPDX-License-Identifier: BSD-3-Clause
"""The Python binding: one extension for every CPython from 3.9 on and every build of the library, and a refusal instead of a signal."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable

import pytest

from conftest import FOREIGN, HOST, NATIVE_ISAS, TOP, emulate, need, runs_here

HEADER = (TOP / "src/include/legacyml.h").read_text()
VERSION = re.search(r'define LEGACYML_VERSION "(.*)"', HEADER)[1]
# The versions of Python that pyproject.toml promises, as far as they exist.
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
SHOW = "import legacyml; print(legacyml.isa(), legacyml.version(), legacyml.__version__)"
# What a Model makes of ids and of a text, and its logits, for a model whose path is the argument.
USE = """
import sys, legacyml
with legacyml.Model(sys.argv[1], threads=2) as model:
    done = model.generate("abc", temperature=1.0, seed=3, max_tokens=20, logprobs=2)
    streamed = "".join(model.generate("abc", temperature=1.0, seed=3, max_tokens=20, stream=True))
    print(legacyml.isa(), streamed == done.text, done.tokens, model.forward([5])[:3].tolist())
"""


def make_python(folder: Path, library: Path, *variables: str) -> str:
    """The modules and the extension in folder/legacyml, linked against a library. The compiler says nothing; what make says is returned."""
    shutil.copytree(TOP / "python/legacyml", folder / "legacyml", ignore=shutil.ignore_patterns("*.so", "__pycache__"), dirs_exist_ok=True)
    options = [f"PYTHON={sys.executable}", f"PY_OUT={folder}/legacyml", f"PY_LIB={library}", f"PY_BUILD={folder}/generated", *variables]
    run = subprocess.run(["make", "--no-print-directory", "python", *options], cwd=TOP, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
    return run.stdout


def python(
    code: str, folder: Path, program: object = sys.executable, *arguments: object, **variables: object
) -> subprocess.CompletedProcess[str]:
    """Runs code with a folder first in the path of modules."""
    environment = os.environ | {"PYTHONPATH": str(folder)} | {name: str(value) for name, value in variables.items()}
    return subprocess.run(
        [str(program), "-c", code, *map(str, arguments)], env=environment, cwd="/", capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def package(build: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import legacyml from; its extension finds the scalar build, and LD_LIBRARY_PATH another."""
    pytest.importorskip("cffi")
    folder = tmp_path_factory.mktemp("binding")
    make_python(folder, build("scalar"))
    return folder


def test_is_the_library_it_finds(isa: str, build: Callable[..., Path], package: Path) -> None:
    """Compiled once, with every build: name and version are what the library says by another way."""
    library = ctypes.CDLL(str(build(isa) / "liblegacyml.so"))
    library.ml_version.restype = library.ml_isa_name.restype = ctypes.c_char_p
    run = python(SHOW, package, LD_LIBRARY_PATH=build(isa))
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [library.ml_isa_name().decode(), library.ml_version().decode(), VERSION] == [isa, VERSION, VERSION]


def test_finds_the_library_it_was_made_for(build: Callable[..., Path], package: Path, tmp_path: Path) -> None:
    """In a checkout by an absolute path; in a package, moved as a whole, beside the folder of Python."""
    assert python(SHOW, package).stdout.split() == ["scalar", VERSION, VERSION]
    (tmp_path / "before/lib").mkdir(parents=True)
    shutil.copy(build("scalar") / "liblegacyml.so.0", tmp_path / "before/lib")
    make_python(tmp_path / "before/lib/python3/site-packages", build("scalar"), "PY_RPATH=$$ORIGIN/../../..")
    (tmp_path / "before").rename(tmp_path / "after")
    folder = tmp_path / "after/lib/python3/site-packages"
    code = "import legacyml; print(*{line.split()[-1] for line in open('/proc/self/maps') if 'liblegacyml' in line})"
    assert python(code, folder).stdout.split() == [str(tmp_path / "after/lib/liblegacyml.so.0")]
    (tmp_path / "after/lib/liblegacyml.so.0").unlink()
    run = python(SHOW, folder)
    assert run.returncode == 1 and "ImportError: liblegacyml.so.0: cannot open shared object file" in run.stderr


def test_made_again(build: Callable[..., Path], tmp_path: Path) -> None:
    """What changed is made anew, and nothing else."""
    pytest.importorskip("cffi")
    assert "-lpython" not in make_python(tmp_path, build("scalar"))
    assert make_python(tmp_path, build("scalar")) == ""
    os.utime(tmp_path / "generated/_native.c", (0, 0))
    assert "build_native.py" in make_python(tmp_path, build("scalar"))
    assert make_python(tmp_path, build("scalar")) == ""
    said = make_python(tmp_path, build("scalar"), "PY_RPATH=/elsewhere")
    assert "-rpath,/elsewhere" in said and "build_native.py" not in said


def test_checkout() -> None:
    """What `make venv` promises."""
    if Path(sys.prefix).resolve() != (TOP / ".venv").resolve():
        pytest.skip("this is not the Python of `make venv`")
    run = subprocess.run([sys.executable, "-c", SHOW], cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    isa, *versions = run.stdout.split()
    assert isa in NATIVE_ISAS and runs_here(isa) and versions == [VERSION, VERSION]


@functools.cache
def interpreters() -> dict[str, Path]:
    """CPython by version: the one that runs, those on PATH and those of pyenv. (A shim of pyenv can be there and not run.)"""
    found: dict[str, Path] = {}
    candidates = [Path(sys.executable), *(Path(path) for version in PYTHONS if (path := shutil.which(f"python{version}")))]
    code = "import sys, sysconfig as s; print(sys.implementation.name, s.get_config_var('Py_GIL_DISABLED') or 0, s.get_python_version())"
    for path in [*candidates, *sorted((Path.home() / ".pyenv/versions").glob("*/bin/python"))]:
        run = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if run.returncode == 0 and run.stdout.startswith("cpython 0 "):  # without its lock it cannot load abi3 extensions
            found.setdefault(run.stdout.split()[-1], path)
    return found


@pytest.mark.parametrize("version", PYTHONS)
def test_every_python(version: str, package: Path, random_model: Callable[..., Path]) -> None:
    """The same file loads in each CPython, with the cffi of that version, and the modules run."""
    if version not in interpreters():
        pytest.skip(f"there is no CPython {version} here")
    cffi = TOP / "build/cffi" / version
    if not cffi.is_dir():
        cffi.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cffi.parent) as folder:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", f"{folder}/{version}"]
            command += ["--python-version", version, "--implementation", "cp", "--only-binary", ":all:", "cffi"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                pytest.skip(f"pip has no cffi for CPython {version}: {run.stderr.strip().splitlines()[-1]}")
            os.replace(f"{folder}/{version}", cffi)
    run = python(SHOW + "; import sys; print('%d.%d' % sys.version_info[:2])", Path(f"{package}:{cffi}"), interpreters()[version])
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["scalar", VERSION, VERSION, version]
    model = random_model(vocab=400, tokenizer="plain")
    run, here = (
        python(USE, Path(f"{package}:{path}"), program, model) for path, program in ((cffi, interpreters()[version]), ("", sys.executable))
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == here.stdout and run.stdout.startswith("scalar True [")


@pytest.mark.parametrize(("isa", "cpu"), [("sse2", "core2duo"), ("sse41", "Penryn"), ("avx2", "Haswell")])
def test_model_on_other_cpus(isa: str, cpu: str, build: Callable[..., Path], package: Path, random_model: Callable[..., Path]) -> None:
    """Old CPUs, on which numpy's wheels may not start: the same tokens and bits as plain C gives here."""
    if HOST != "x86_64":
        pytest.skip("the CPUs are of x86-64")
    need(HOST)
    model = random_model(vocab=400, tokenizer="plain")
    expected = python(USE, package, sys.executable, model).stdout.split(maxsplit=1)
    environment = os.environ | {"PYTHONPATH": str(package), "LD_LIBRARY_PATH": str(build(isa))}
    run = emulate(HOST, cpu, sys.executable, "-c", USE, model, env=environment)
    assert run.returncode == 0, run.stderr
    assert expected[0] == "scalar" and run.stdout.split(maxsplit=1) == [isa, expected[1]]


def test_refusal(build: Callable[..., Path], package: Path) -> None:
    """On a CPU that the library is not for, the import fails with the guard's sentence and Python goes on."""
    if HOST != "x86_64":
        pytest.skip("the CPUs are of x86-64")
    need(HOST)
    code = """
import sys
for attempt in range(2):
    try:
        import legacyml
        print(legacyml.isa())
    except ImportError as error:
        print(type(error).__name__, isinstance(error, sys.modules["legacyml.errors"].UnsupportedCPUError), error.name, error, sep="|")
print("alive")
"""
    environment = os.environ | {"PYTHONPATH": str(package), "LD_LIBRARY_PATH": str(build("avx2"))}
    run = emulate(HOST, "Penryn", sys.executable, "-c", code, env=environment)
    assert run.returncode == 0, (run.returncode, run.stderr)
    spoken = emulate(HOST, "Penryn", build("avx2") / "ml_run", "--version").stderr.splitlines()
    [sentence] = [line.removeprefix("ml_run: ") for line in spoken if not line.startswith("qemu-")]
    assert sentence.startswith("this is the avx2 build")
    assert run.stdout.splitlines() == [f"UnsupportedCPUError|True|legacyml|{sentence}"] * 2 + ["alive"]
    run = emulate(HOST, "Haswell", sys.executable, "-c", code, env=environment)
    assert (run.returncode, run.stdout.splitlines()) == (0, ["avx2", "avx2", "alive"]), run.stderr


def test_another_major_version(package: Path, tmp_path: Path) -> None:
    """A library that only has the right name is refused."""
    source = 'unsigned ml_version_number(void) { return 1u << 16; }\nconst char *ml_version(void) { return "1.0.0"; }\n'
    other = tmp_path / "other.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", other], input=source, text=True, check=True)
    run = python(SHOW, package, LD_PRELOAD=other)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == "ImportError: this binding was compiled for liblegacyml 0.x, but 1.0.0 was found"


def test_has_the_whole_header(build: Callable[..., Path], package: Path) -> None:
    """Every function that the library exports and every number of the header."""
    code = "from legacyml._native import lib\nfor name in dir(lib): print(name, v if isinstance(v := getattr(lib, name), int) else '')"
    run = python(code, package)
    names = dict(line.split(" ") for line in run.stdout.splitlines())
    symbols = subprocess.run(["nm", "-D", "--defined-only", build("scalar") / "liblegacyml.so"], capture_output=True, text=True, check=True)
    assert {name for name, value in names.items() if value == ""} == set(re.findall(r" T (ml_\w+)$", symbols.stdout, re.MULTILINE))
    numbers = re.findall(r"^(?:#define (\w+)|  (ML_\w+) =) (\d+)", HEADER, re.MULTILINE)
    assert {name: value for name, value in names.items() if value} == {define or status: value for define, status, value in numbers}
    assert len(numbers) >= 17


@pytest.mark.parametrize("cc", ["gcc", "clang", "aarch64-linux-gnu-gcc"])
def test_extension(cc: str, build: Callable[..., Path], tmp_path: Path) -> None:
    """Nothing of Python beyond the limited API of 3.9, no other library than ours and libc; -march of the user's does not reach it."""
    pytest.importorskip("cffi")
    abi3info = pytest.importorskip("abi3info")
    arch = cc.split("-")[0] if "-" in cc else HOST
    need(arch, emulated=False)
    if shutil.which(cc) is None:
        pytest.skip(f"{cc} is not installed")
    library = build("scalar", arch=arch, target="all") if arch in FOREIGN else build("scalar")
    said = make_python(tmp_path, library, f"CC={cc}", "CFLAGS=-march=native -O1")
    assert " -DPy_LIMITED_API=0x03090000 " in said and " -O1 " in said and "-march=native" not in said
    extension = tmp_path / "legacyml/_native.abi3.so"
    dynamic = subprocess.run(["readelf", "-dW", extension], capture_output=True, text=True, check=True).stdout
    assert sorted(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)) == ["libc.so.6", "liblegacyml.so.0"]
    assert re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic) == [str(library)]
    symbols = subprocess.run(["nm", "-D", extension], capture_output=True, text=True, check=True).stdout
    assert re.findall(r" [A-TV-Z] (\w+)$", symbols, re.MULTILINE) == ["PyInit__native"]
    limited = {str(symbol.name): entry.added for table in (abi3info.FUNCTIONS, abi3info.DATAS) for symbol, entry in table.items()}
    used = re.findall(r" U (_?Py\w+)$", symbols, re.MULTILINE)
    assert len(used) > 10
    assert [name for name in used if name not in limited or (limited[name].major, limited[name].minor) > (3, 9)] == []
