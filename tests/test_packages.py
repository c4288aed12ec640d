# SPDX-License-Identifier: BSD-3-Clause
"""The conda packages: installed they run or refuse, say nothing untrue about themselves, and come from a recipe as conda-forge asks for."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import archspec.cpu
import numpy as np
import pytest
import yaml

import golden
from conftest import FOREIGN, HOST, REGISTRY, TOP, emulate, in_row, isas, need, runs_here
from test_binding import VERSION, interpreters, python
from test_build import check_classes, classes
from test_convert import hf_folder, hf_tensors, make_header, make_weights, write_llama2c
from test_guard import CPUS, check_refusal

sys.path.insert(0, str(TOP / "tools"))
rattler_build = pytest.importorskip("rattler_build")
zstandard = pytest.importorskip("zstandard")
environment = pytest.importorskip("environment")

ARCH = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-armv7l": "armv7"}
BASELINE = {"linux-64": "sse2", "linux-aarch64": "neon", "linux-armv7l": "scalar"}
WITH_PYTHON = ("linux-64", "linux-aarch64")
BUILDS = [(platform, isa) for platform, arch in ARCH.items() for isa in isas(arch)]
LICENSE = (TOP / "LICENSE").read_bytes()
RECIPE = TOP / "recipe/recipe.yaml"
VARIANTS = {"linux-64": TOP / "conda_build_config.yaml"} | {name: TOP / f"recipe/platforms/{name}.yaml" for name in list(ARCH)[1:]}
RANK = {row["name"]: row["rank"] for row in REGISTRY["isa"]}
SUMMARY = {row["name"]: row["summary"] for row in REGISTRY["isa"]}
NUMBER = int(re.search(r"^  build_number: (\d+)$", RECIPE.read_text(), re.MULTILINE)[1])
SERIAL = str(tomllib.loads((TOP / "src/config/cpus.toml").read_text())["serial"])

# What each package holds: nothing less and nothing more.
LIBRARY = [
    *("bin/ml_bench", "bin/ml_run", "include/legacyml.h", f"lib/liblegacyml.so.{VERSION}", "lib/pkgconfig/legacyml.pc"),
    *("share/bash-completion/completions/ml_bench", "share/bash-completion/completions/ml_run"),
    *("share/man/man1/ml_bench.1", "share/man/man1/ml_run.1"),
    *("share/zsh/site-functions/_ml_bench", "share/zsh/site-functions/_ml_run"),
]
LINKS = {"lib/liblegacyml.so": "liblegacyml.so.0", "lib/liblegacyml.so.0": f"liblegacyml.so.{VERSION}"}
BINDING = "__init__.py chat.py errors.py generation.py library.py model.py scoring.py text.py version.py _native.pyi py.typed"
EXTENSION = "site-packages/legacyml/_native.abi3.so"
WHICH_ISA = "__init__ __main__ cli cpu decide errors install table version"
CONVERT = (
    "__init__ __main__ chat cli convert errors gguf_file hf_tokenizer huggingface llama2c mlb quant random_model safetensors_file "
    "sentencepiece_model source tokenizer version"
)
DIST_INFO = "INSTALLER METADATA RECORD REQUESTED WHEEL entry_points.txt top_level.txt"


# -- The packages, unpacked -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Package:
    """A package file, unpacked into a folder."""

    file: Path
    folder: Path
    index: dict[str, Any]

    @property
    def name(self) -> str:
        return self.index["name"]

    @property
    def subdir(self) -> str:
        return self.index["subdir"]

    @property
    def isa(self) -> str:
        """Of those that are built once per ISA."""
        if self.name in ("liblegacyml", "legacyml"):
            return re.split(r"_h[0-9a-f]{7}_|_(?=\d+$)", self.index["build"])[0]
        return self.name.removeprefix("legacyml-")

    def json(self, name: str) -> Any:
        return json.loads((self.folder / "info" / name).read_bytes())

    def files(self) -> list[str]:
        """What it installs, without links."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())
        return sorted(name for path in found if not (name := str(path.relative_to(self.folder))).startswith("info/"))

    def links(self) -> dict[str, str]:
        return {str(path.relative_to(self.folder)): os.readlink(path) for path in self.folder.rglob("*") if path.is_symlink()}

    def elf_files(self) -> list[Path]:
        return [self.folder / name for name in self.files() if (self.folder / name).read_bytes()[:4] == b"\x7fELF"]

    def __repr__(self) -> str:
        return f"{self.subdir}/{self.file.name}"


@pytest.fixture(scope="session")
def packages(channel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Package]:
    """Every package of the channel."""
    found = []
    for file in sorted(channel.glob("*/*.conda")):
        folder = tmp_path_factory.mktemp("unpacked") / file.stem
        with zipfile.ZipFile(file) as archive:
            stem = file.name.removesuffix(".conda")
            assert set(archive.namelist()) == {"metadata.json", f"pkg-{stem}.tar.zst", f"info-{stem}.tar.zst"}, file
            for name in archive.namelist()[1:]:
                plain = io.BytesIO(zstandard.ZstdDecompressor().stream_reader(archive.read(name)).read())
                with tarfile.open(fileobj=plain) as tar:
                    tar.extractall(folder, filter="data")
        found.append(Package(file, folder, json.loads((folder / "info/index.json").read_bytes())))
    return found


@pytest.fixture(scope="session")
def library(packages: list[Package]) -> Callable[[str, str], Package]:
    """library(platform, isa): the package of programs and library."""

    def get(platform: str, isa: str) -> Package:
        [found] = [package for package in packages if (package.name, package.subdir, package.isa) == ("liblegacyml", platform, isa)]
        return found

    return get


@pytest.fixture(scope="session")
def create(channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """create(platform, *specs, archspec=None) -> an environment that was solved for these specs and installed; made once for each."""
    done: dict[tuple, Path] = {}

    def make(platform: str, *specs: str, archspec: str | None = None) -> Path:
        key = (platform, specs, archspec)
        if key not in done:
            prefix = tmp_path_factory.mktemp("environment") / "prefix"
            asyncio.run(environment.create(prefix, list(specs), platform, archspec, [channel, TOP / "build/base-channel"]))
            done[key] = prefix
        return done[key]

    return make


@pytest.fixture(scope="session")
def programs(create: Callable[..., Path]) -> Callable[[str, str], Path]:
    """programs(platform, isa): an environment with a build and no Python."""
    return lambda platform, isa: create(platform, f"liblegacyml * {isa}_h*")


@pytest.fixture(scope="session", params=WITH_PYTHON)
def full(request: pytest.FixtureRequest, create: Callable[..., Path]) -> tuple[str, str, Path]:
    """Platform, ISA and an environment with everything: the build that every CPU runs."""
    platform = request.param
    isa = BASELINE[platform]
    return platform, isa, create(platform, f"legacyml-{isa}", "legacyml-convert")


def oldest(arch: str, isa: str) -> str | None:
    """The first emulated CPU that runs a build."""
    return next((cpu for cpu, builds in CPUS[arch].items() if isa in builds.split()), None)


def run(platform: str, cpu: str | None, *command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program on this CPU, or on an emulated one."""
    if cpu is not None or ARCH[platform] != HOST:
        need(ARCH[platform])
        return emulate(ARCH[platform], cpu or oldest(ARCH[platform], BASELINE[platform]), *command, **options)
    settings = {"capture_output": True, "text": True, "check": False, "timeout": 600} | options
    return subprocess.run([*map(str, command)], **settings)


# -- Installed and run ------------------------------------------------------------------------------------------------------


def check_golden(platform: str, cpu: str | None, program: Path, names: list[str], random_model: Callable[..., Path], out: Path) -> None:
    for name in names:
        tokens = ",".join(map(str, golden.TOKENS))
        model = random_model(**golden.options(name))
        ran = run(platform, cpu, program, model, "--tokens", tokens, "-n", 0, "-q", "-t", 2, "--dump-logits", out)
        assert ran.returncode == 0, f"{name}: {ran.stderr}"
        found = np.fromfile(out, "<f4").reshape(len(golden.TOKENS), -1)[golden.KEPT]
        assert found.tobytes() == golden.golden(name).tobytes(), name


def few_or_all(platform: str, isa: str) -> list[str]:
    """Models of a build: all for one build of the platform."""
    return list(golden.MODELS) if isa == BASELINE[platform] else ["gqa8-hd8-untied", "gqa4-hd48-q4"]


@pytest.mark.parametrize("isa", isas("x86_64"))
def test_native(
    isa: str, programs: Callable[[str, str], Path], random_model: Callable[..., Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """On this CPU: the golden logits, or a refusal."""
    if HOST != "x86_64":
        pytest.skip("the packages are of x86-64")
    in_row(request, HOST, isa, "package", "native" if runs_here(isa) else "guard")
    program = programs("linux-64", isa) / "bin/ml_run"
    if runs_here(isa):
        check_golden("linux-64", None, program, few_or_all("linux-64", isa), random_model, tmp_path / "logits")
        return
    ran = run("linux-64", None, program, "--version")
    assert (ran.returncode, ran.stdout) == (7, "")
    assert re.fullmatch(rf"ml_run: this is the {isa} build of legacyml.* lacks .*; install legacyml-\w+ instead .*\n", ran.stderr)


@pytest.mark.parametrize("platform, isa", [build for build in BUILDS if oldest(ARCH[build[0]], build[1])])
def test_emulated(
    platform: str,
    isa: str,
    programs: Callable[[str, str], Path],
    random_model: Callable[..., Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """On the oldest CPU that the build is for: a package that needs more than its name says dies here."""
    arch = ARCH[platform]
    cpu = oldest(arch, isa)
    in_row(request, arch, isa, "package", f"qemu {cpu}")
    need(arch)
    # On x86-64 all models run natively.
    names = few_or_all(platform, isa) if arch != HOST else ["gqa8-hd8-untied"]
    program = programs(platform, isa) / "bin/ml_run"
    check_golden(platform, cpu, program, names, random_model, tmp_path / "logits")
    assert isa in run(platform, cpu, program, "--version").stdout.split()


# On x86-64 and AArch64 the first emulated CPU is the one that can least.
@pytest.mark.parametrize("platform, isa", [(p, isa) for p, isa in BUILDS if isa not in next(iter(CPUS[ARCH[p]].values())).split()])
def test_refuses(platform: str, isa: str, programs: Callable[[str, str], Path], request: pytest.FixtureRequest) -> None:
    """Cases 1 and 9: on the newest CPU that lacks something, one sentence that names the package that fits, and status 7."""
    arch = ARCH[platform]
    in_row(request, arch, isa, "package", "guard")
    need(arch)
    cpu = [cpu for cpu, builds in CPUS[arch].items() if isa not in builds.split() and "xsave" not in cpu][-1]
    for program in ("ml_run", "ml_bench"):
        for argument in ("--version", "--help"):
            check_refusal(run(platform, cpu, programs(platform, isa) / "bin" / program, argument), f"{program}: ", arch, isa, cpu)


def test_neon_on_armv7_without_it(programs: Callable[[str, str], Path]) -> None:
    """Case 12: the packages of 32-bit ARM where there is no NEON."""
    need("armv7")
    cpu = "cortex-a9,neon=off"
    check_refusal(run("linux-armv7l", cpu, programs("linux-armv7l", "neon") / "bin/ml_run", "--version"), "ml_run: ", "armv7", "neon", cpu)
    ran = run("linux-armv7l", cpu, programs("linux-armv7l", "scalar") / "bin/ml_run", "--version")
    assert ran.returncode == 0 and "scalar" in ran.stdout, ran.stderr


WHO = """
import legacyml
print(legacyml.isa(), legacyml.version())
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if "legacyml" in line}), sep="\\n")
"""


def test_import(full: tuple[str, str, Path]) -> None:
    """The binding runs with the library of its environment and no other."""
    platform, isa, prefix = full
    site = prefix / "lib/python3.11/site-packages"
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    ran = run(platform, None, prefix / "bin/python", "-c", WHO, cwd="/", env=variables)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [f"{isa} {VERSION}", f"{prefix}/lib/liblegacyml.so.{VERSION}", f"{site}/legacyml/_native.abi3.so"]


def test_rpath_once_installed(full: tuple[str, str, Path]) -> None:
    """Each entry stays inside the environment, and the one that counts is the folder of the library."""
    platform, _, prefix = full
    extension = prefix / "lib/python3.11/site-packages/legacyml/_native.abi3.so"
    entries = [Path(os.path.normpath(entry.replace("$ORIGIN", str(extension.parent)))) for entry in Elf.read(extension).rpath]
    assert prefix / "lib" in entries
    assert all(entry == prefix / "lib" or (prefix in entry.parents and not entry.exists()) for entry in entries), entries


def test_which_isa(full: tuple[str, str, Path]) -> None:
    """The selector finds what the registry says of this CPU, or of the emulated one."""
    platform, isa, prefix = full
    arch = ARCH[platform]
    variables = {name: value for name, value in os.environ.items() if name != "CONDA_OVERRIDE_ARCHSPEC"}
    script = [prefix / "bin/python", prefix / "bin/legacyml-which-isa"] if arch != HOST else [prefix / "bin/legacyml-which-isa"]
    plain, long = (run(platform, None, *script, *options, env=variables) for options in ([], ["--json"]))
    assert (plain.returncode, long.returncode) == (0, 0), plain.stderr + long.stderr
    best = max((name for name in isas(arch) if runs_here(name)), key=RANK.__getitem__) if arch == HOST else isa
    answer = json.loads(long.stdout)
    assert plain.stdout == f"{best}\n"
    assert (answer["isa"], answer["package"], answer["platform"]) == (best, f"legacyml-{best}", platform)


@pytest.mark.parametrize("kind", ["llama2c", "safetensors"])
def test_convert(kind: str, full: tuple[str, str, Path], tmp_path: Path) -> None:
    """The packaged converter writes what the checkout's writes, and the packaged program reads it."""
    platform, _, prefix = full
    header, source = make_header(), tmp_path / "source"
    weights = make_weights(header)
    if kind == "llama2c":
        write_llama2c(source, header, weights, 0)
    else:
        hf_folder(source, header, hf_tensors(weights))
    expected, out = tmp_path / "expected.mlb", tmp_path / "out.mlb"
    for type in ("q8_0", "q4_0"):
        subprocess.run([sys.executable, TOP / "tools/convert.py", source, expected, "--type", type], capture_output=True, check=True)
        ran = run(platform, None, prefix / "bin/python", prefix / "bin/legacyml-convert", source, out, "--type", type, cwd="/")
        assert ran.returncode == 0, ran.stderr
        assert out.read_bytes() == expected.read_bytes()
    logits = tmp_path / "logits"
    ran = run(platform, None, prefix / "bin/ml_run", out, "--tokens", "1,5,9", "-n", 0, "-q", "--dump-logits", logits)
    assert ran.returncode == 0 and logits.stat().st_size == 3 * header.vocab * 4, ran.stderr


def test_scripts_start_the_python_beside_them(full: tuple[str, str, Path]) -> None:
    _, _, prefix = full
    for name in ("legacyml-which-isa", "legacyml-convert"):
        assert (prefix / "bin" / name).read_text().splitlines()[0] == f"#!{prefix}/bin/python3.11"


REFUSED = """
import sys
try:
    import legacyml
except ImportError as error:
    print(type(error).__name__, error, sep="|")
print("alive")
"""


def test_import_refuses(create: Callable[..., Path]) -> None:
    """Case 1, packaged: the import raises with the guard's sentence, and Python goes on."""
    need("x86_64")
    prefix = create("linux-64", "legacyml-avx2")
    ran = run("linux-64", "Penryn", prefix / "bin/python", "-c", REFUSED, cwd="/")
    assert ran.returncode == 0, ran.stderr
    said, alive = ran.stdout.splitlines()
    name, sentence = said.split("|")
    assert (name, alive) == ("UnsupportedCPUError", "alive")
    assert sentence.startswith("this is the avx2 build of legacyml")
    assert sentence.endswith("; install legacyml-sse41 instead (conda install legacyml-sse41)")
    ran = run("linux-64", "Haswell", prefix / "bin/python", "-c", REFUSED, cwd="/")
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr


def test_solved_on_a_better_machine(create: Callable[..., Path], random_model: Callable[..., Path], tmp_path: Path) -> None:
    """Case 9 (a) and (b): the name of the CPU that solved decides, and the guard has the last word on the one that runs."""
    need("x86_64")
    model = "gqa8-hd8-untied"
    v4 = create("linux-64", "legacyml", archspec="x86_64_v4") / "bin/ml_run"
    check_golden("linux-64", "Haswell", v4, [model], random_model, tmp_path / "logits")
    check_refusal(run("linux-64", "Penryn", v4, "--version"), "ml_run: ", "x86_64", "avx2", "Penryn")
    best = create("linux-64", "legacyml", archspec="zen4") / "bin/ml_run"
    check_refusal(run("linux-64", "Haswell", best, "--version"), "ml_run: ", "x86_64", "avx512vnni", "Haswell")
    v2 = create("linux-64", "legacyml", archspec="x86_64_v2") / "bin/ml_run"
    check_golden("linux-64", "Penryn", v2, [model], random_model, tmp_path / "logits")
    assert "sse41" in run("linux-64", "Penryn", v2, "--version").stdout


def test_installed_is_what_was_packed(programs: Callable[[str, str], Path], library: Callable[[str, str], Package]) -> None:
    """No older file of the same name from a cache."""
    for platform, isa in BUILDS:
        package = library(platform, isa)
        assert all((programs(platform, isa) / name).read_bytes() == (package.folder / name).read_bytes() for name in LIBRARY), package


# -- The recipe's own tests -------------------------------------------------------------------------------------------------


def scripts(package: Package) -> list[str]:
    """The shell scripts that rattler-build runs to test a package."""
    tests = yaml.safe_load((package.folder / "info/tests/tests.yaml").read_text())
    found = []
    for test in tests:
        if "script" in test:
            content = test["script"]["content"]
            found.append(content if isinstance(content, str) else "\n".join(content))
    return found


def run_script(script: str, prefix: Path, emulator: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As rattler-build does: any command that fails ends it."""
    folder.mkdir(exist_ok=True)
    variables = {"PREFIX": str(prefix), "CC": "gcc", "CROSSCOMPILING_EMULATOR": emulator}
    return subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("isa", ["avx2", "avx512vnni"])
def test_recipe_tests_where_the_cpu_lacks_features(
    isa: str, library: Callable[[str, str], Package], programs: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """Case 9 (c): the script passes by refusing, and says so; where the build runs it says that."""
    need("x86_64")
    prefix = programs("linux-64", isa)
    [script] = scripts(library("linux-64", isa))
    for word, cpu in [("refused", "Penryn"), *([("ran", "Haswell")] if isa == "avx2" else [])]:
        ran = run_script(script, prefix, f"qemu-x86_64 -cpu {cpu}", tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert re.findall(r"^(\S+): (ran|refused)$", ran.stdout, re.MULTILINE) == [
            (f"{prefix}/bin/ml_run", word),
            (f"{prefix}/bin/ml_bench", word),
            ("./consumer", word),
        ]


SENTENCE = "this is the avx2 build of legacyml and so on"
BROKEN = {
    "a signal": "exit 132",
    "any error": "exit 1",
    "another build": f"echo ml_run {VERSION} sse2",
    "a silent refusal": "exit 7",
    "another build's refusal": f"echo '{SENTENCE.replace('avx2', 'sse2')}' >&2; exit 7",
}


@pytest.mark.parametrize("broken", ["ml_run", "ml_bench"])
@pytest.mark.parametrize("fault", BROKEN)
def test_recipe_tests_notice(
    fault: str, broken: str, library: Callable[[str, str], Package], programs: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """The same script fails when a program is broken."""
    need("x86_64")
    prefix = tmp_path / "prefix"
    shutil.copytree(programs("linux-64", "avx2"), prefix, symlinks=True)
    [script] = scripts(library("linux-64", "avx2"))
    for name in ("ml_run", "ml_bench"):
        real = prefix / "bin" / f"{name}.real"
        (prefix / "bin" / name).rename(real)
        body = BROKEN[fault] if name == broken else f'exec qemu-x86_64 -cpu Penryn "{real}" "$@"'
        (prefix / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (prefix / "bin" / name).chmod(0o755)
    ran = run_script(script, prefix, "", tmp_path / "work")
    assert ran.returncode != 0 and "consumer" not in ran.stdout, ran.stdout


# -- Honest metadata --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Elf:
    """What readelf says of a file."""

    text: str

    @staticmethod
    @functools.cache
    def read(file: Path) -> Elf:
        options = ["--file-header", "--program-headers", "--sections", "--dynamic", "--version-info", "--arch-specific", "--dyn-syms"]
        ran = subprocess.run(["readelf", "-W", *options, file], capture_output=True, text=True, check=True)
        return Elf(ran.stdout)

    @property
    def needed(self) -> set[str]:
        return set(re.findall(r"\(NEEDED\).*\[(.*)\]", self.text))

    @property
    def soname(self) -> list[str]:
        return re.findall(r"\(SONAME\).*\[(.*)\]", self.text)

    @property
    def rpath(self) -> list[str]:
        return [entry for path in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", self.text) for entry in path.split(":")]

    @property
    def machine(self) -> tuple[str, str]:
        return re.search(r"Class: +(\w+)", self.text)[1], re.search(r"Machine: +(.*)", self.text)[1]

    @property
    def sections(self) -> set[str]:
        return set(re.findall(r"^  \[ *\d+\] (\.\S+)", self.text, re.MULTILINE))

    @property
    def glibc(self) -> tuple[int, ...]:
        """The highest version of the C library that it binds to."""
        found = re.findall(r"Name: GLIBC_(\S+) ", self.text)
        assert found and all(re.fullmatch(r"[\d.]+", version) for version in found), found
        return max(tuple(map(int, version.split("."))) for version in found)

    @property
    def undefined(self) -> list[str]:
        return re.findall(r" UND (\w+)", self.text)

    @property
    def defined(self) -> list[str]:
        return re.findall(r" (?:GLOBAL|WEAK) +DEFAULT +\d+ (\w+)", self.text)


MACHINE = {
    "linux-64": ("ELF64", "Advanced Micro Devices X86-64"),
    "linux-aarch64": ("ELF64", "AArch64"),
    "linux-armv7l": ("ELF32", "ARM"),
}
LOADER = {
    "linux-64": "/lib64/ld-linux-x86-64.so.2",
    "linux-aarch64": "/lib/ld-linux-aarch64.so.1",
    "linux-armv7l": "/lib/ld-linux-armhf.so.3",
}


@pytest.fixture(scope="session")
def elf_files(packages: list[Package]) -> list[tuple[Package, Path, Elf]]:
    found = [(package, file, Elf.read(file)) for package in packages for file in package.elf_files()]
    assert len(found) == 3 * len(BUILDS) + len(WITH_PYTHON)
    return found


def test_elf_is_of_its_platform(elf_files: list[tuple[Package, Path, Elf]]) -> None:
    """The silent trap of cross building: a file of the machine that built."""
    for package, file, elf in elf_files:
        assert elf.machine == MACHINE[package.subdir], file
        loader = re.findall(r"interpreter: (.*)\]", elf.text)
        assert loader == ([LOADER[package.subdir]] if file.parent.name == "bin" else []), file
        if package.subdir == "linux-armv7l":
            assert "Version5 EABI" in elf.text and ("hard-float ABI" in elf.text or file.parent.name == "lib"), file
            assert "Tag_CPU_arch: v7\n" in elf.text and "Tag_CPU_arch_profile: Application\n" in elf.text, file
            # The linker adds what zig's own start files allow, so that no more can be asked of scalar: test_instructions looks at the code.
            units = dict(re.findall(r"Tag_(FP_arch|Advanced_SIMD_arch): (.*)", elf.text))
            assert units.pop("FP_arch") in ("VFPv3", "VFPv3-D16") and set(units.values()) <= {"NEONv1"}, file
            assert not re.search("Tag_(FP_HP|MPextension|DIV|Virtualization)", elf.text), file


def test_c_library(elf_files: list[tuple[Package, Path, Elf]]) -> None:
    """Case 14: every package with machine code says which C library it needs, and needs no newer one, and no other library."""
    for package, file, elf in elf_files:
        [declared] = [match[1] for spec in package.index["depends"] if (match := re.fullmatch(r"__glibc >=([\d.]+),<3\.0\.a0", spec))]
        floor = tuple(map(int, declared.split(".")))
        assert elf.glibc <= floor, f"{file} binds to {elf.glibc}, and the package declares {declared}"
        assert floor == (2, 17) or package.json("hash_input.json")["c_compiler"] == "gcc", package
        allowed = {"libc.so.6", "libpthread.so.0", Path(LOADER[package.subdir]).name}
        if package.name == "legacyml-python":
            assert "liblegacyml.so.0" in elf.needed
            allowed |= {"liblegacyml.so.0"}
        assert "libc.so.6" in elf.needed and elf.needed <= allowed, (file, elf.needed)


def test_only_machine_code_needs_a_c_library(packages: list[Package]) -> None:
    for package in packages:
        says = any(spec.startswith("__glibc") for spec in package.index["depends"])
        assert says == bool(package.elf_files()), package


def test_elf(elf_files: list[tuple[Package, Path, Elf]]) -> None:
    """Name, search paths, nothing of the build left, no executable stack."""
    for _, file, elf in elf_files:
        library, extension = file.name.startswith("lib"), file.name.startswith("_native")
        assert elf.soname == (["liblegacyml.so.0"] if library else []), file
        allowed = {"$ORIGIN/"} if library else {"$ORIGIN/../../..", "$ORIGIN/../../lib"} if extension else {"$ORIGIN/../lib"}
        assert set(elf.rpath) <= allowed, (file, elf.rpath)
        assert re.search(r"GNU_STACK .* RW  ", elf.text) and "TEXTREL" not in elf.text, file
        if library:
            assert file.stat().st_size < 150_000, file


def test_stripped(elf_files: list[tuple[Package, Path, Elf]]) -> None:
    left = {str(package) for package, _, elf in elf_files if any(name == ".symtab" or name.startswith(".debug") for name in elf.sections)}
    assert left == set()


def test_exports(elf_files: list[tuple[Package, Path, Elf]]) -> None:
    """The library exports what its header declares."""
    declared = set(re.findall(r"ML_API [^;]*?\b(ml_\w+)\(", (TOP / "src/include/legacyml.h").read_text()))
    for _, file, elf in elf_files:
        if file.name.startswith("lib"):
            assert set(elf.defined) == declared, file


def armv7_code(file: Path) -> list[str]:
    """The disassembly without the constants between functions: a stripped file does not say which they are, but loads point at them."""
    command = [f"{FOREIGN.get('armv7', '')}-objdump".lstrip("-"), "-d", "--no-show-raw-insn", file]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = {int(address, 16): line for address, line in re.findall(r"^ +([0-9a-f]+):\t(.*)$", text, re.MULTILINE)}
    constants = set()
    for line in lines.values():
        if load := re.match(r"(v?ldr\S*)\s+(\w).*\[pc, #-?\d+\].*@ (?:0x)?([0-9a-f]+)", line):
            start = int(load[3], 16)
            constants |= {start, start + 4} if load[1] == "ldrd" or load[2] == "d" else {start}
    assert len(lines) > 5000
    return [line for address, line in lines.items() if address not in constants]


@pytest.mark.parametrize("platform, isa", BUILDS)
def test_instructions(platform: str, isa: str, library: Callable[[str, str], Package], request: pytest.FixtureRequest) -> None:
    """Case 6: packages are built with conda's CFLAGS, -march among them, and hold what their guard asks for all the same."""
    arch = ARCH[platform]
    in_row(request, arch, isa, "package", "disassembled")
    need(arch, emulated=False)
    for file in library(platform, isa).elf_files():
        if arch != "armv7":
            check_classes(file, arch, isa)
            continue
        code = armv7_code(file)
        for name, pattern in classes(arch, isa).items():
            found = [line for line in code if pattern.match(line)]
            assert not found, f"{file}: {name}: {found[:5]}"


@pytest.mark.parametrize("platform", WITH_PYTHON)
def test_extension(platform: str, packages: list[Package]) -> None:
    """Nothing of Python beyond the limited API of 3.9, and no instruction beyond the baseline."""
    abi3info = pytest.importorskip("abi3info")
    [package] = [package for package in packages if (package.name, package.subdir) == ("legacyml-python", platform)]
    elf = Elf.read(package.folder / EXTENSION)
    limited = {str(symbol.name): entry.added for table in (abi3info.FUNCTIONS, abi3info.DATAS) for symbol, entry in table.items()}
    used = [name for name in elf.undefined if re.match("_?Py", name)]
    assert len(used) > 10
    assert [name for name in used if name not in limited or (limited[name].major, limited[name].minor) > (3, 9)] == []
    assert elf.defined == ["PyInit__native"]
    need(ARCH[platform], emulated=False)
    check_classes(package.folder / EXTENSION, ARCH[platform], BASELINE[platform])


def test_extension_in_other_pythons(packages: list[Package], library: Callable[[str, str], Package], tmp_path: Path) -> None:
    """The oldest and the newest CPython at hand load the packaged file."""
    if HOST != "x86_64":
        pytest.skip("the package is of x86-64")
    by_age = sorted(interpreters(), key=lambda version: [int(part) for part in version.split(".")])
    versions = [version for version in by_age if (TOP / "build/cffi" / version).is_dir()]
    if len(versions) < 2:
        pytest.skip("there are no two CPythons with cffi here: run tests/test_binding.py, which fetches it")
    [package] = [package for package in packages if (package.name, package.subdir) == ("legacyml-python", "linux-64")]
    shutil.copytree(package.folder / "site-packages", tmp_path / "lib/python3/site-packages")
    shutil.copy(library("linux-64", "sse2").folder / f"lib/liblegacyml.so.{VERSION}", tmp_path / "lib/liblegacyml.so.0")
    for version in (versions[0], versions[-1]):
        folder = Path(f"{tmp_path}/lib/python3/site-packages:{TOP}/build/cffi/{version}")
        ran = python(WHO, folder, interpreters()[version])
        assert ran.returncode == 0, f"{version}: {ran.stderr}"
        assert ran.stdout.splitlines()[:2] == [f"sse2 {VERSION}", f"{tmp_path}/lib/liblegacyml.so.0"]


# -- What is in the packages ------------------------------------------------------------------------------------------------


@functools.cache
def builds_of_cpus(platform: str) -> dict[str, list[str]]:
    """CPU name of archspec -> the builds above the baseline that it runs, best first."""
    arch = ARCH[platform]
    words = {row["name"]: row.get("archspec", row.get("cpuinfo", row["name"])) for row in REGISTRY["feature"] if row["arch"] == arch}
    rows = [row for row in REGISTRY["isa"] if arch in row["arch"] and row["rank"] > RANK[BASELINE[platform]]]
    rows.sort(key=lambda row: -row["rank"])
    found = {}
    for name, cpu in archspec.cpu.TARGETS.items():
        if platform in WITH_PYTHON and cpu.family.name == arch:
            found[name] = [row["name"] for row in rows if {words[feature] for feature in row["arch"][arch]["features"]} <= cpu.features]
    return {name: builds for name, builds in found.items() if builds}


def expected(platform: str) -> Counter[tuple[str, str, str]]:
    """Name, version and build string of every package, h for a hash."""
    found: Counter[tuple[str, str, str]] = Counter()
    for isa in isas(ARCH[platform]):
        base = isa == BASELINE[platform]
        found["liblegacyml", VERSION, f"{isa}_h_{NUMBER + 100 if base else NUMBER}"] += 1
        found[f"legacyml-{isa}", VERSION, f"h_{NUMBER}"] += 1
        if base or (RANK[isa] > RANK[BASELINE[platform]] and platform in WITH_PYTHON):
            found["legacyml", VERSION, f"{isa}_{1000 * NUMBER + 100 * RANK[isa]}"] += 1
    if platform in WITH_PYTHON:
        found["legacyml-python", VERSION, f"h_{NUMBER}"] += 1
    for cpu, builds in builds_of_cpus(platform).items():
        found["_legacyml-cpu", SERIAL, f"{'_'.join(builds)}_cpu_{cpu}"] += 1
    return found


NOARCH = Counter((name, VERSION, f"pyh_{NUMBER}") for name in ("legacyml-which-isa", "legacyml-convert"))


@pytest.mark.parametrize("subdir", [*ARCH, "noarch"])
def test_names(subdir: str, packages: list[Package]) -> None:
    """Every package that recipe/README.md promises, once, and no other; the build number is the end of the build string."""
    found: Counter[tuple[str, str, str]] = Counter()
    for package in packages:
        if package.subdir == subdir:
            name, version, build = (package.index[key] for key in ("name", "version", "build"))
            assert package.file.name == f"{name}-{version}-{build}.conda" and package.file.parent.name == subdir
            assert name == "_legacyml-cpu" or build.endswith(f"_{package.index['build_number']}"), package
            found[name, version, re.sub(r"h[0-9a-f]{6,7}_", "h_", build)] += 1
    assert found == (expected(subdir) if subdir in ARCH else NOARCH)


def depends(package: Package) -> list[str]:
    """What a package must ask for, the C library aside."""
    platform, isa = package.subdir, package.isa
    match package.name:
        case "liblegacyml":
            return []
        case "legacyml-python":
            minimum = package.json("hash_input.json")["python_min"]
            return ["python", "cffi", f"liblegacyml >={VERSION},<1.0a0", "_python_abi3_support 1.*", f"cpython >={minimum}"]
        case "_legacyml-cpu":
            return [f"__archspec * {package.index['build'].split('_cpu_')[1]}"]
        case "legacyml":
            above = RANK[isa] > RANK[BASELINE[platform]]
            return [f"legacyml-{isa} =={VERSION}", *([f"_legacyml-cpu =={SERIAL} *{isa}_*cpu_*"] if above else [])]
        case "legacyml-which-isa" | "legacyml-convert":
            minimum = package.json("hash_input.json")["python_min"]
            more = ["numpy >=1.23", "gguf >=0.16", "tqdm"] if package.name == "legacyml-convert" else []
            return [f"python >={minimum}", *more, "python"]
        case _:
            python = [f"legacyml-python =={VERSION}", f"legacyml-which-isa =={VERSION}"] if platform in WITH_PYTHON else []
            return [f"liblegacyml =={VERSION} {isa}_h*", *python]


def test_dependencies(packages: list[Package]) -> None:
    for package in packages:
        found = [spec for spec in package.index["depends"] if not spec.startswith("__glibc")]
        assert sorted(found) == sorted(depends(package)), package
        assert package.index.get("constrains", []) == (["numpy >=1.23"] if package.name == "legacyml-python" else []), package
        exports = package.folder / "info/run_exports.json"
        if package.name == "liblegacyml":
            assert package.json("run_exports.json") == {"weak": [f"liblegacyml >={VERSION},<1.0a0"]}
        else:
            assert not exports.exists() or json.loads(exports.read_bytes()) == {}, package


def contents(package: Package) -> list[str]:
    """The files of a package, as they are in it."""
    site = "site-packages"

    def distribution(name: str, modules: str) -> list[str]:
        info = f"{site}/{name}-{VERSION}.dist-info"
        program = name.replace("_", "-")
        shared = [f"share/bash-completion/completions/{program}", f"share/man/man1/{program}.1", f"share/zsh/site-functions/_{program}"]
        return [*(f"{site}/{name}/{module}.py" for module in modules.split()), *(f"{info}/{file}" for file in DIST_INFO.split()), *shared]

    match package.name:
        case "liblegacyml":
            return LIBRARY
        case "legacyml-python":
            info = [f"site-packages/legacyml-{VERSION}.dist-info/{file}" for file in ("INSTALLER", "METADATA", "top_level.txt")]
            return [EXTENSION, *info, *(f"{site}/legacyml/{file}" for file in BINDING.split())]
        case "legacyml-which-isa":
            return distribution("legacyml_which_isa", WHICH_ISA)
        case "legacyml-convert":
            return distribution("legacyml_convert", CONVERT)
        case _:
            return []


def test_files(packages: list[Package]) -> None:
    """Exactly these: no static library, no activation script, no bytecode, nothing of the build. The list in the package is true."""
    for package in packages:
        files, links = package.files(), package.links()
        assert files == sorted(contents(package)), package
        assert links == (LINKS if package.name == "liblegacyml" else {}), package
        listed = {entry["_path"]: entry for entry in package.json("paths.json")["paths"]}
        assert sorted(listed) == sorted([*files, *links]), package
        assert not any("prefix_placeholder" in entry for entry in listed.values()), package
        for name in files:
            data, entry = (package.folder / name).read_bytes(), listed[name]
            assert (entry["size_in_bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest()), (package, name)
            executable = os.access(package.folder / name, os.X_OK)
            assert executable == (name.startswith("bin/") or ".so" in name), (package, name)


# Where files that are only copied come from.
SOURCES = {
    "include/": "src/include",
    "share/bash-completion/completions/": "docs/completion/bash",
    "share/man/man1/": "docs/man",
    "share/zsh/site-functions/": "docs/completion/zsh",
    "site-packages/": "python",
}


def test_is_of_this_checkout(packages: list[Package]) -> None:
    """An old channel would be tested in vain."""
    for package in packages:
        pairs = {}
        for start, folder in SOURCES.items():
            copied = (name for name in package.files() if name.startswith(start) and ".dist-info/" not in name and not name.endswith(".so"))
            pairs |= {name: TOP / folder / name.removeprefix(start) for name in copied}
        for name, source in pairs.items():
            same = (package.folder / name).read_bytes() == source.read_bytes()
            assert same, f"{package}: {name} is another than the checkout's: run make package PLATFORM=all"


def test_no_path_of_the_build(packages: list[Package]) -> None:
    """Where it was built is in no file."""
    needles = [needle.encode() for needle in (str(TOP), str(Path.home()) + "/", "_placehold", "rattler-build_", "/tmp/")]
    for package in packages:
        for name in package.files():
            data = (package.folder / name).read_bytes()
            assert [needle for needle in needles if needle in data] == [], (package, name)


def test_about(packages: list[Package]) -> None:
    summaries = {}
    for package in packages:
        about = package.json("about.json")
        assert about["license"] == package.index["license"] == "BSD-3-Clause", package
        assert [path.name for path in (package.folder / "info/licenses").iterdir()] == ["LICENSE"], package
        assert (package.folder / "info/licenses/LICENSE").read_bytes() == LICENSE, package
        assert about["home"] == "https://github.com/legacyml/legacyml" and about["description"], package
        summaries[package] = about["summary"]
        if package.name == "liblegacyml":
            assert f"{package.isa} build" in about["summary"] and SUMMARY[package.isa] in about["summary"], package
        elif package.name == "_legacyml-cpu":
            cpu = package.index["build"].split("_cpu_")[1]
            builds = ", ".join([*builds_of_cpus(package.subdir)[cpu], BASELINE[package.subdir]])
            assert about["summary"] == f"Says that the CPU {cpu} runs the builds {builds} of legacyml", package
        elif package.name == f"legacyml-{package.isa}" and package.isa in SUMMARY:
            assert SUMMARY[package.isa] in about["summary"], package
    # The builds of `legacyml` are one package to those who read it.
    per_platform = Counter((package.subdir, summary) for package, summary in summaries.items() if package.name != "legacyml")
    assert max(per_platform.values()) == 1, per_platform.most_common(3)


def test_time(packages: list[Package]) -> None:
    """All carry one time, inside too: SOURCE_DATE_EPOCH, or that of the commit that was the last when they were built."""
    [stamp] = {package.index["timestamp"] for package in packages}
    paths = (path for package in packages for path in package.folder.rglob("*"))
    files = {int(path.stat().st_mtime) for path in paths if path.is_file() and not path.is_symlink()}
    assert files == {stamp // 1000} and stamp % 1000 == 0
    git = subprocess.run(["git", "-C", TOP, "log", "--format=%ct"], capture_output=True, text=True, check=False)
    if git.returncode != 0:
        pytest.skip("this is no git checkout")
    assert str(stamp // 1000) in [*git.stdout.split(), os.environ.get("SOURCE_DATE_EPOCH")]


@pytest.mark.parametrize("subdir", [*ARCH, "noarch"])
def test_index(subdir: str, channel: Path, packages: list[Package]) -> None:
    """The index lists what is there, as it is there."""
    repodata = json.loads((channel / subdir / "repodata.json").read_bytes())
    assert repodata["info"]["subdir"] == subdir and repodata.get("packages", {}) == {}
    listed = repodata["packages.conda"]
    here = {package.file.name: package for package in packages if package.subdir == subdir}
    assert set(listed) == set(here)
    assert {path.name for path in (channel / subdir).iterdir()} == set(here) | {"repodata.json"}
    for name, package in here.items():
        data = package.file.read_bytes()
        assert (listed[name]["sha256"], listed[name]["size"]) == (hashlib.sha256(data).hexdigest(), len(data)), package
        assert {key: listed[name].get(key) for key in package.index} == package.index, package


# -- A program that uses the library ----------------------------------------------------------------------------------------

CONSUMER = """
#include <legacyml.h>
#include <stdio.h>

int main(void) {
  printf("%s %s %s\\n", ml_isa_name(), ml_version(), ml_thread_model());
  return ml_isa_check(NULL) == ML_OK ? 0 : 1;
}
"""


@pytest.mark.parametrize("platform, language", [*((platform, "c -std=c11") for platform in ARCH), ("linux-64", "c++ -std=c++11")])
def test_consumer(platform: str, language: str, programs: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Header and pkg-config file are all that a program needs, and go on being right when the environment is moved."""
    arch, isa = ARCH[platform], BASELINE[platform]
    need(arch)
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    moved = tmp_path / "moved to here"
    shutil.copytree(programs(platform, isa), moved, symlinks=True)
    compiler = (f"{FOREIGN[arch]}-" if arch in FOREIGN else "") + ("g++" if "++" in language else "gcc")
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    variables = os.environ | {"PKG_CONFIG_LIBDIR": str(moved / "lib/pkgconfig"), "PKG_CONFIG_PATH": ""}

    def config(*options: str) -> list[str]:
        said = subprocess.run(["pkg-config", *options, "legacyml"], env=variables, capture_output=True, text=True, check=True)
        return shlex.split(said.stdout)

    assert config("--modversion") == [VERSION]
    flags = config("--cflags", "--libs")
    assert {os.path.normpath(flag[2:]) for flag in flags if flag[:2] in ("-I", "-L")} == {str(moved / "include"), str(moved / "lib")}
    consumer = tmp_path / "consumer"
    command = [compiler, "-x", *language.split(), "-Wall", "-Wextra", "-Werror", "-", "-x", "none", "-o", str(consumer), *flags]
    subprocess.run([*command, f"-Wl,-rpath,{moved}/lib"], input=CONSUMER, text=True, check=True)
    ran = run(platform, None, consumer)
    assert (ran.returncode, ran.stdout) == (0, f"{isa} {VERSION} pthread\n"), ran.stderr
    assert "liblegacyml.so.0" in Elf.read(consumer).needed


# -- The recipe -------------------------------------------------------------------------------------------------------------


@functools.cache
def recipe() -> dict[str, Any]:
    return yaml.safe_load(RECIPE.read_text())


def outputs() -> list[dict[str, Any]]:
    return recipe()["outputs"]


def in_order(keys: dict[str, Any], order: str) -> bool:
    return list(keys) == [key for key in order.split() if key in keys]


def test_recipe_is_in_order() -> None:
    """What conda-forge's linter and reviewers ask for, as far as the text shows it."""
    text = recipe()
    assert list(text) == "schema_version context recipe source build outputs about extra".split()
    assert text["schema_version"] == 1 and text["context"]["version"] == VERSION and text["context"]["cpu_serial"] == SERIAL
    about = text["about"]
    assert (about["license"], about["license_file"]) == ("BSD-3-Clause", "LICENSE")
    assert about["homepage"].startswith("https://") and about["summary"] and about["description"]
    assert text["build"]["number"] == "${{ build_number }}" and text["extra"]["recipe-maintainers"]
    for output in outputs():
        name = output["package"]["name"]
        assert in_order(output, "package source build requirements tests about"), name
        assert output["tests"] and all(output["tests"]), name
        assert output["about"]["summary"] and not output["about"]["summary"].endswith("."), name
        assert in_order(output["requirements"], "build host run run_constraints run_exports") or name == "liblegacyml", name


def test_recipe_compilers() -> None:
    """Who compiles says so, with the C library; who is noarch says which Python is the oldest, and is tested with it."""
    for output in outputs():
        name, needs = output["package"]["name"], output["requirements"]
        build = needs.get("build", [])
        compiles = name in ("liblegacyml", "legacyml-python")
        assert compiles == ('${{ compiler("c") }}' in build) == ('${{ stdlib("c") }}' in build), name
        assert compiles or output["build"].get("noarch") == "python" or "script" not in output["build"], name
        if output["build"].get("noarch") == "python":
            assert "python ${{ python_min }}.*" in needs["host"] and "python >=${{ python_min }}" in needs["run"], name
            [test] = [test["python"] for test in output["tests"] if "python" in test]
            assert test["pip_check"] is True and "${{ python_min }}.*" in test["python_version"], name
    exporting = [output["package"]["name"] for output in outputs() if "run_exports" in output["requirements"]]
    assert exporting == ["liblegacyml"]


def test_recipe_has_no_activation_script() -> None:
    for file in (RECIPE, TOP / "recipe/build-lib.sh", TOP / "recipe/build-python.sh", TOP / "Makefile"):
        assert not re.search(r"activate\.d|post-link|pre-unlink", file.read_text()), file
    assert 'rm "$PREFIX/lib/liblegacyml.a"' in (TOP / "recipe/build-lib.sh").read_text()


@pytest.mark.parametrize("platform", VARIANTS)
def test_variants(platform: str) -> None:
    """No selector, no empty value; what belongs together is equally long."""
    text = VARIANTS[platform].read_text()
    assert not re.search(r"#\s*\[", text)
    config = yaml.safe_load(text)
    [zipped] = config.pop("zip_keys")
    assert all(isinstance(value, list) and value and all(isinstance(item, str) and item for item in value) for value in config.values())
    assert {len(config[key]) for key in zipped} == {len(isas(ARCH[platform]))}
    assert config["isa"] == list(isas(ARCH[platform]))
    assert config["isa_rank"] == [str(RANK[isa]) for isa in config["isa"]]
    assert config["isa_summary"] == [SUMMARY[isa] for isa in config["isa"]]
    assert all(len(value) == 1 for key, value in config.items() if key not in zipped)


# What conda-forge's pinning or the builder itself defines.
BUILTIN = "hash compiler stdlib pin_subpackage int if else not and or build_platform host_platform target_platform x86_64 aarch64 armv7l"


def test_recipe_uses_only_what_is_defined() -> None:
    """An undefined variable is an empty string, and no error."""
    text = "\n".join(line for line in RECIPE.read_text().splitlines() if not line.lstrip().startswith("#"))
    expressions = re.findall(r"\$\{\{(.*?)\}\}", text) + re.findall(r"^\s+(?:- )?(?:if|skip): (.*)$", text, re.MULTILINE)
    words = {word for text in expressions for word in re.findall(r"(?<![\w.])[a-z_]\w*", re.sub(r'"[^"]*"', "", text))}
    words -= {"upper_bound"}
    assert "isa" in words and "python_min" in words
    for platform, file in VARIANTS.items():
        known = set(yaml.safe_load(file.read_text())) | set(recipe()["context"]) | set(BUILTIN.split())
        assert words - known == set(), platform


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    else:
        yield str(value)


@functools.cache
def rendered(platform: str, build_platform: str) -> list[Any]:
    """Every output, with the variants of the platform and no others."""
    config = rattler_build.PlatformConfig(target_platform=platform, build_platform=build_platform, host_platform=platform)
    variants = rattler_build.VariantConfig.from_file(VARIANTS[platform])
    return list(rattler_build.Stage0Recipe.from_file(RECIPE).render(variants, rattler_build.RenderConfig(platform=config)))


EMULATOR = {"linux-aarch64": "qemu-execve-aarch64", "linux-armv7l": "qemu-execve-arm"}
NATIVE_AND_CROSS = [*((platform, platform) for platform in ARCH), *((platform, "linux-64") for platform in EMULATOR)]


@pytest.mark.parametrize("platform, build_platform", NATIVE_AND_CROSS)
def test_rendered(platform: str, build_platform: str) -> None:
    """With nothing but the variants of a platform, as conda-build has them: each output once, nothing empty, the right needs."""
    found: Counter[tuple[str, str, str]] = Counter()
    for output in rendered(platform, build_platform):
        package = output.recipe.package
        found[str(package.name), str(package.version), re.sub(r"h[0-9a-f]{7}_", "h_", output.recipe.build.string)] += 1
        parts = {key: value for key, value in output.recipe.to_dict().items() if key not in ("tests", "about")}
        values = list(strings(parts))
        assert not [text for text in values if text.strip() in ("", "None") or "${{" in text], (package.name, values)
        needs = output.recipe.to_dict().get("requirements", {})
        if package.name in ("liblegacyml", "legacyml-python"):
            assert {f"gcc_{platform}", f"sysroot_{platform} 2.17.*", "make"} <= set(needs["build"]), needs
        if package.name == "legacyml-python":
            assert {f"liblegacyml =={VERSION}", "python-abi3 3.9.*", "python"} == set(needs["host"])
        if package.name in ("legacyml-which-isa", "legacyml-convert"):
            assert "python 3.9.*" in needs["host"] and "python >=3.9" in needs["run"]
    assert found == expected(platform) + NOARCH
    tests = [output.recipe.to_dict()["tests"] for output in rendered(platform, build_platform)]
    emulators = {text for text in strings(tests) if "qemu-execve" in text}
    assert emulators == ({EMULATOR[platform]} if platform != build_platform else set())


def test_rendered_differ_by_what_they_depend_on() -> None:
    """The host environment is solved for the target only if the variant says so; a package without machine code depends on no compiler."""
    for output in rendered("linux-aarch64", "linux-64"):
        used = set(output.variant)
        if output.recipe.package.name in ("liblegacyml", "legacyml-python"):
            assert {"host_platform", "target_platform", "c_stdlib", "c_stdlib_version"} <= used
        elif output.recipe.build.noarch is None:
            assert not used & {"c_compiler", "c_stdlib", "python_min"}, (output.recipe.package.name, used)
        assert ("isa" in used) == (output.recipe.package.name in ("liblegacyml", "legacyml") or output.recipe.package.name[9:] in SUMMARY)
