# SPDX-License-Identifier: BSD-3-Clause
"""What a package solver makes of the suite: the build for every CPU name, each build by name, and environments that exist already.

The solver is rattler's. conda and mamba were not at hand: as_conda and as_mamba ask it what these clients ask of theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Callable, Iterator

import pytest

from conftest import HOST, REGISTRY, TOP, isas, runs_here

for module in ("archspec", "rattler", "rattler_build", "zstandard"):
    pytest.importorskip(module, reason=f"{module} is not installed: make venv")
sys.path.insert(0, str(TOP / "tools"))

import archspec.cpu  # noqa: E402
import rattler  # noqa: E402
import rattler_build  # noqa: E402
import zstandard  # noqa: E402
from rattler.exceptions import SolverError  # noqa: E402

import environment  # noqa: E402
import package  # noqa: E402

ARCH = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-armv7l": "armv7"}
FAMILY = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-armv7l": "arm"}
BASELINE = {"linux-64": "sse2", "linux-aarch64": "neon", "linux-armv7l": "scalar"}
NAMES = {platform: [name for name, cpu in archspec.cpu.TARGETS.items() if str(cpu.family) == family] for platform, family in FAMILY.items()}
# No CPU, one that nobody knows, and what archspec says of a 32-bit system, which its database has not.
NAMELESS = {"linux-64": ["", "nonsense"], "linux-aarch64": ["", "nonsense"], "linux-armv7l": ["", "nonsense", "armv7l", "armv8l"]}
GRID = [(platform, cpu) for platform in ARCH for cpu in NAMES[platform] + NAMELESS[platform]]
BUILDS = [(platform, isa) for platform, arch in ARCH.items() for isa in isas(arch)]
RANK = {row["name"]: row["rank"] for row in REGISTRY["isa"]}
RECIPE = (TOP / "recipe/recipe.yaml").read_text()
VERSION = re.search(r'(?m)^  version: "([0-9.]+)"$', RECIPE)[1]
NEXT = f"{VERSION.rpartition('.')[0]}.{int(VERSION.rpartition('.')[2]) + 1}"
SERIAL = tomllib.loads((TOP / "src/config/cpus.toml").read_text())["serial"]
# Written by hand: best() would silently miss a feature that archspec spells otherwise.
KNOWN = {
    "linux-64": {
        "core2": "sse2",
        "nehalem": "sse41",
        "piledriver": "sse41",
        "haswell": "avx2",
        "skylake_avx512": "avx2",
        "x86_64_v2": "sse41",
        "x86_64_v3": "avx2",
        "x86_64_v4": "avx2",
        "alderlake": "avxvnni",
        "cascadelake": "avx512vnni",
        "icelake": "avx512vnni",
        "zen3": "avx2",
        "zen4": "avx512vnni",
    },
    "linux-aarch64": {"cortex_a72": "neon", "neoverse_n1": "neon_dotprod", "m1": "neon_dotprod", "neoverse_v1": "sve", "a64fx": "sve"},
    "linux-armv7l": {"arm": "scalar"},
}

Records = Sequence[rattler.RepoDataRecord]
Rows = dict[str, dict]  # of a repodata.json, by file name


def runnable(platform: str, cpu: str) -> list[str]:
    """The baseline, and the builds above it of which archspec's database says that the CPU has all features; best first."""
    arch, target = ARCH[platform], archspec.cpu.TARGETS.get(cpu)
    words = {row["name"]: row.get("archspec", row.get("cpuinfo", row["name"])) for row in REGISTRY["feature"] if row["arch"] == arch}
    able = {BASELINE[platform]}
    if target is not None:
        for row in REGISTRY["isa"]:
            if arch in row["arch"] and all(words[feature] in target for feature in row["arch"][arch]["features"]):
                able.add(row["name"])
    return sorted((isa for isa in able if RANK[isa] >= RANK[BASELINE[platform]]), key=lambda isa: -RANK[isa])


def best(platform: str, cpu: str) -> str:
    return runnable(platform, cpu)[0]


def extremes(platform: str) -> list[str]:
    """No CPU, and those that have the fewest and the most features."""
    ordered = sorted(NAMES[platform], key=lambda name: len(archspec.cpu.TARGETS[name].features))
    return ["", ordered[0], ordered[-1]]


def name_of(spec: str) -> str:
    return re.match(r"[\w.-]+", spec)[0]


def names(records: Records) -> set[str]:
    return {record.name.normalized for record in records}


def isa_of(records: Records) -> str:
    """The ISA of an environment, of which there is one, and all that have one in their name agree."""
    (library,) = [record for record in records if record.name.normalized == "liblegacyml"]
    isa = re.fullmatch(r"(\w+?)_h[0-9a-f]+_\d+", str(library.build))[1]
    for record in records:
        name = record.name.normalized
        if name.removeprefix("legacyml-") in RANK:
            assert name == f"legacyml-{isa}", (name, library.build)
        if name == "legacyml":
            assert re.fullmatch(rf"{isa}_\d+", str(record.build)), (record.build, library.build)
    return isa


def says(message: object, *wanted: str) -> bool:
    """Whether a text has all these package names as words."""
    return all(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", str(message)) for name in wanted)


class Solver:
    """solver(specs, platform, cpu) -> records. Reads each repodata once."""

    def __init__(self, channels: Sequence[Path], cache: Path) -> None:
        self.channels = channels
        self.gateway = rattler.Gateway(cache_dir=cache)

    def __call__(self, specs: Sequence[str], platform: str = "linux-64", cpu: str | None = None, **options: object) -> Records:
        return asyncio.run(environment.solve(specs, platform, cpu, self.channels, self.gateway, **options))


@pytest.fixture(scope="session")
def base() -> Path:
    """The channel with Python and what else comes from outside."""
    folder = TOP / "build" / "base-channel"
    if not list(folder.glob("*/python-3.*.conda")):
        pytest.skip("build/base-channel has no Python: run make package PLATFORM=all")
    return folder


@pytest.fixture(scope="session")
def solve(channel: Path, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Solver:
    return Solver((channel, base), tmp_path_factory.mktemp("repodata"))


def read_rows(channel: Path, subdir: str) -> Rows:
    return json.loads((channel / subdir / "repodata.json").read_text())["packages.conda"]


@pytest.fixture(scope="session")
def repodata(channel: Path) -> dict[str, Rows]:
    return {subdir: read_rows(channel, subdir) for subdir in (*ARCH, "noarch")}


def write_channel(folder: Path, repodata: dict[str, Rows]) -> Path:
    """A channel without archives, which solving does not need."""
    for subdir, rows in repodata.items():
        (folder / subdir).mkdir(parents=True)
        text = json.dumps({"info": {"subdir": subdir}, "packages": {}, "packages.conda": rows, "repodata_version": 1})
        (folder / subdir / "repodata.json").write_text(text)
    return folder


# -- Fresh environments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("platform, cpu", GRID, ids=[f"{platform}-{cpu or 'none'}" for platform, cpu in GRID])
def test_best_build_for_each_cpu(platform: str, cpu: str, solve: Solver) -> None:
    records = solve(["legacyml"], platform, cpu)
    assert isa_of(records) == best(platform, cpu)
    assert {"legacyml", f"legacyml-{best(platform, cpu)}"} <= names(records)


@pytest.mark.parametrize("platform", ARCH)
def test_known_cpus(platform: str, solve: Solver) -> None:
    assert {cpu: isa_of(solve(["legacyml"], platform, cpu)) for cpu in KNOWN[platform]} == KNOWN[platform]
    assert isa_of(solve(["legacyml"], platform)) == BASELINE[platform]  # as a client that knows only the family


@pytest.mark.parametrize("platform", ARCH)
def test_upper_case_names(platform: str, solve: Solver) -> None:
    """Solvers differ on whether HASWELL is haswell: either answer runs."""
    for cpu in NAMES[platform]:
        assert isa_of(solve(["legacyml"], platform, cpu.upper())) in (best(platform, cpu), BASELINE[platform])


@pytest.mark.parametrize("platform, isa", BUILDS)
def test_each_build_by_name(platform: str, isa: str, solve: Solver) -> None:
    """On every CPU, lower or higher than its own best."""
    for cpu in NAMES[platform] + NAMELESS[platform]:
        records = solve([f"legacyml-{isa}"], platform, cpu)
        assert isa_of(records) == isa
        assert not {"legacyml", "_legacyml-cpu"} & names(records)
        assert ("python" in names(records)) == (platform != "linux-armv7l")


@pytest.mark.parametrize("platform, isa", BUILDS)
def test_without_python(platform: str, isa: str, solve: Solver) -> None:
    for cpu in extremes(platform):
        records = solve([f"liblegacyml=*={isa}_h*"], platform, cpu)
        assert names(records) == {"liblegacyml"}
        assert isa_of(records) == isa


@pytest.mark.parametrize("spec", ["liblegacyml", "legacyml-python", f"liblegacyml >={VERSION}"])
@pytest.mark.parametrize("platform", ARCH)
def test_any_library_is_one_that_runs(platform: str, spec: str, solve: Solver) -> None:
    if platform == "linux-armv7l" and spec == "legacyml-python":
        with pytest.raises(SolverError, match="legacyml-python"):  # conda has no Python there
            solve([spec], platform)
        return
    for cpu in NAMES[platform] + NAMELESS[platform]:
        assert isa_of(solve([spec], platform, cpu)) == BASELINE[platform]


PAIRS = [(platform, *pair) for platform, arch in ARCH.items() for pair in itertools.combinations(isas(arch), 2)]


@pytest.mark.parametrize("platform, one, other", PAIRS)
def test_two_at_once(platform: str, one: str, other: str, solve: Solver) -> None:
    for cpu in extremes(platform):
        with pytest.raises(SolverError) as refused:
            solve([f"legacyml-{one}", f"legacyml-{other}"], platform, cpu)
        assert says(refused.value, f"legacyml-{one}", f"legacyml-{other}")
        for name, library in ((one, other), (other, one)):
            with pytest.raises(SolverError):
                solve([f"legacyml-{name}", f"liblegacyml=*={library}_h*"], platform, cpu)


@pytest.mark.parametrize("platform, isa", BUILDS)
def test_metapackage_with_a_name(platform: str, isa: str, solve: Solver) -> None:
    """`legacyml` goes with every build that the CPU runs, from the baseline up, and is refused with any other."""
    for cpu in NAMES[platform] + NAMELESS[platform]:
        specs = ["legacyml", f"legacyml-{isa}"]
        if isa in runnable(platform, cpu):
            assert isa_of(solve(specs, platform, cpu)) == isa
        else:
            with pytest.raises(SolverError) as refused:
                solve(specs, platform, cpu)
            assert says(refused.value, *specs)


# -- What the packages ask for -----------------------------------------------------------------------------------------------


def dependencies(rows: Rows) -> Iterator[tuple[dict, list[str]]]:
    """Each package with each match spec it has, in parts: name, version, build."""
    for row in rows.values():
        for spec in [*row["depends"], *row.get("constrains", ()), *sum((row.get("run_exports") or {}).values(), [])]:
            yield row, spec.split()


@pytest.mark.parametrize("platform", ARCH)
def test_globs_match_one_isa(platform: str, repodata: dict[str, Rows]) -> None:
    rows, seen = repodata[platform], set()
    for _, (name, *rest) in dependencies(rows):
        if len(rest) < 2 or name == "__archspec":
            continue
        builds = {row["build"] for row in rows.values() if row["name"] == name}
        matched = {build for build in builds if fnmatchcase(build, rest[1])}
        if name == "liblegacyml":
            isa = re.fullmatch(r"(\w+)_h\*", rest[1])[1]
            assert matched and {build.partition("_h")[0] for build in matched} == {isa}, (rest[1], matched)
        else:  # a CPU name, with all that it runs above the baseline
            isa = re.fullmatch(r"\*(\w+)_\*cpu_\*", rest[1])[1]
            wanted = {cpu for cpu in NAMES[platform] if isa in runnable(platform, cpu)}
            assert matched and {build.partition("_cpu_")[2] for build in matched} == wanted, (rest[1], matched)
        seen.add((name, isa))
    assert {isa for name, isa in seen if name == "liblegacyml"} == set(isas(ARCH[platform]))


@pytest.mark.parametrize("subdir", [*ARCH, "noarch"])
def test_dependencies_are_portable(subdir: str, repodata: dict[str, Rows]) -> None:
    """Nothing that only some solvers understand, and the CPU only where it belongs."""
    for row, (name, *rest) in dependencies(repodata[subdir]):
        assert re.fullmatch(r"[a-z_][a-z0-9_.-]*", name), (row["name"], name)
        assert len(rest) <= 2
        for part in rest:
            assert not re.search(r"[\[\]^$()|;'\"]", part), (row["name"], part)
        if name == "__archspec":
            assert row["name"] == "_legacyml-cpu"
        if name == "_legacyml-cpu":
            assert row["name"] == "legacyml"
            assert rest[0] == f"=={SERIAL}"
        if row["name"] == "legacyml-python" and name == "liblegacyml":
            assert len(rest) == 1  # any ISA


@pytest.mark.parametrize("platform", ARCH)
def test_cpu_packages(platform: str, repodata: dict[str, Rows]) -> None:
    """One for each name of archspec's database that runs more than the baseline, with that name as its only dependency."""
    found = {row["build"]: row for row in repodata[platform].values() if row["name"] == "_legacyml-cpu"}
    above = {cpu: runnable(platform, cpu)[:-1] for cpu in NAMES[platform]}
    wanted = {f"{'_'.join(builds)}_cpu_{cpu}": cpu for cpu, builds in above.items() if builds}
    assert set(found) == set(wanted)
    for build, row in found.items():
        assert row["depends"] == [f"__archspec * {wanted[build]}"]
        assert row["version"] == str(SERIAL)


@pytest.mark.parametrize("platform", ARCH)
def test_build_numbers(platform: str, repodata: dict[str, Rows]) -> None:
    rows = repodata[platform].values()
    assert {row["version"] for row in rows if row["name"] != "_legacyml-cpu"} == {VERSION}
    chosen = {row["build"].rpartition("_")[0]: row for row in rows if row["name"] == "legacyml"}
    above = [isa for isa in isas(ARCH[platform]) if RANK[isa] >= RANK[BASELINE[platform]]]
    assert set(chosen) == (set(above) if platform != "linux-armv7l" else {"scalar"})  # there the database knows no NEON
    ordered = sorted(chosen, key=RANK.__getitem__)
    numbers = [chosen[isa]["build_number"] for isa in ordered]
    assert numbers == sorted(set(numbers))
    for isa, row in chosen.items():
        asked = {spec.split()[0] for spec in row["depends"]}
        assert asked == {f"legacyml-{isa}"} | ({"_legacyml-cpu"} if isa != BASELINE[platform] else set())
    libraries = {row["build"].partition("_h")[0]: row["build_number"] for row in rows if row["name"] == "liblegacyml"}
    assert set(libraries) == set(isas(ARCH[platform]))
    baseline = libraries.pop(BASELINE[platform])
    assert all(number < baseline for number in libraries.values())


def test_run_exports(channel: Path, repodata: dict[str, Rows]) -> None:
    """What links the library gets one of any ISA, before the next ABI, which is the number in its soname."""
    abi = int(re.search(r"liblegacyml\.so\.(\d+)$", RECIPE, re.MULTILINE)[1])
    for platform in ARCH:
        for file, row in repodata[platform].items():
            if row["name"] != "liblegacyml":
                continue
            with zipfile.ZipFile(channel / platform / file) as archive:
                (member,) = [name for name in archive.namelist() if name.startswith("info-")]
                data = zstandard.ZstdDecompressor().stream_reader(archive.read(member)).read()
            exports = json.loads(tarfile.open(fileobj=io.BytesIO(data)).extractfile("info/run_exports.json").read())
            assert exports == {"weak": [f"liblegacyml >={VERSION},<{abi + 1}.0a0"]}
            assert row.get("run_exports") in (None, exports)


def test_noarch_is_of_no_platform(repodata: dict[str, Rows]) -> None:
    asked: dict[str, set[str]] = {}
    for row, (name, *_) in dependencies(repodata["noarch"]):
        assert row["noarch"] == "python"
        asked.setdefault(row["name"], set()).add(name)
    assert asked == {"legacyml-which-isa": {"python"}, "legacyml-convert": {"python", "numpy", "gguf", "tqdm"}}


# -- Environments that exist already -----------------------------------------------------------------------------------------


def as_conda(solve: Solver, asked: Sequence[str], new: Sequence[str], installed: Records, cpu: str | None, update: bool = False) -> Records:
    """conda keeps what was asked for before (`asked`, its history). It first tries to change nothing that is installed, then prefers it.

    `update` is `conda update` or `install --update-deps`, which begin with the second.
    """
    named = {name_of(spec) for spec in new}
    specs = [*(spec for spec in asked if name_of(spec) not in named), *new]
    if not update:
        untouched = names(installed) - {name_of(spec) for spec in specs}
        try:
            pinned = [record for record in installed if record.name.normalized not in named]
            return solve([*specs, *sorted(untouched)], cpu=cpu, pinned_packages=pinned)
        except SolverError:
            pass
    return solve(specs, cpu=cpu, locked_packages=[record for record in installed if not update or record.name.normalized not in named])


def as_mamba(solve: Solver, asked: Sequence[str], new: Sequence[str], installed: Records, cpu: str | None, update: bool = False) -> Records:
    """mamba lets go of what was asked for before where it stands against what is asked for now, and prefers what is installed."""
    named = {name_of(spec) for spec in new}
    locked = [record for record in installed if not update or record.name.normalized not in named]
    try:
        return solve([*(spec for spec in asked if name_of(spec) not in named), *new], cpu=cpu, locked_packages=locked)
    except SolverError:
        return solve(new, cpu=cpu, locked_packages=locked)


Client = Callable[..., Records]
# The table of README.md: client, CPU and what was asked for on it, CPU and what is asked for now, what comes of it (None: refused).
STEPS: list[tuple[Client, str, str, str, str, str | None]] = [
    (as_conda, "haswell", "legacyml", "haswell", "legacyml-sse2", "sse2"),
    (as_mamba, "haswell", "legacyml", "haswell", "legacyml-sse2", "sse2"),
    (as_conda, "haswell", "legacyml-sse2", "haswell", "legacyml-avx2", None),
    (as_mamba, "haswell", "legacyml-sse2", "haswell", "legacyml-avx2", "avx2"),
    (as_conda, "haswell", "legacyml-avx2", "haswell", "legacyml-sse2", None),
    (as_mamba, "haswell", "legacyml-avx2", "haswell", "legacyml-sse2", "sse2"),
    (as_conda, "haswell", "legacyml-python", "haswell", "legacyml", "sse2"),
    (as_conda, "haswell", "legacyml-python", "haswell", "legacyml --update-deps", "avx2"),
    (as_mamba, "haswell", "legacyml-python", "haswell", "legacyml", "avx2"),
    (as_conda, "haswell", "legacyml", "haswell", "legacyml-sse41", "sse41"),
    (as_mamba, "haswell", "legacyml", "haswell", "legacyml-sse41", "sse41"),
    # `legacyml` stands for what the CPU runs: conda keeps it, and so refuses what is above.
    (as_conda, "haswell", "legacyml", "haswell", "legacyml-avx512vnni", None),
    (as_mamba, "haswell", "legacyml", "haswell", "legacyml-avx512vnni", "avx512vnni"),
    (as_conda, "haswell", "legacyml", "haswell", "legacyml-avx2", "avx2"),
    (as_conda, "haswell", "legacyml-sse2", "haswell", "legacyml", "sse2"),
    # Moved to another CPU. A client may keep the build as long as it does not look at installed packages again; rattler's solver does.
    (as_conda, "haswell", "legacyml", "zen4", "legacyml --update", "avx512vnni"),
    (as_mamba, "haswell", "legacyml", "zen4", "legacyml --update", "avx512vnni"),
    (as_conda, "zen4", "legacyml", "haswell", "legacyml --update", "avx2"),
    (as_mamba, "zen4", "legacyml", "haswell", "legacyml --update", "avx2"),
    (as_conda, "x86_64_v4", "legacyml", "x86_64_v2", "legacyml --update", "sse41"),
    (as_conda, "zen4", "legacyml", "", "legacyml --update", "sse2"),
    # A name is kept wherever the environment goes.
    (as_conda, "haswell", "legacyml-sse41", "zen4", "legacyml-sse41 --update", "sse41"),
    (as_mamba, "zen4", "legacyml-avx512vnni", "haswell", "legacyml-avx512vnni --update", "avx512vnni"),
]


@pytest.mark.parametrize("client, before, first, after, then, isa", STEPS)
def test_step(client: Client, before: str, first: str, after: str, then: str, isa: str | None, solve: Solver) -> None:
    new, _, option = then.partition(" ")
    installed = solve([first], cpu=before)
    if isa is not None:
        records = client(solve, [first], [new], installed, after, update=bool(option))
        assert isa_of(records) == isa
        assert new in names(records)
        return
    with pytest.raises(SolverError) as refused:
        client(solve, [first], [new], installed, after, update=bool(option))
    assert says(refused.value, first, new)
    # As the README says, removing the name first helps: `remove --force` leaves the rest.
    rest = [record for record in installed if record.name.normalized not in (first, *(f"legacyml-{isa}" for isa in RANK))]
    assert isa_of(client(solve, [], [new], rest, after)) == new.removeprefix("legacyml-")


def newer(rows: Rows) -> Rows:
    """The rows, and the same for the next version of everything."""
    added = {}
    for file, row in rows.items():
        if row["name"] != "_legacyml-cpu":
            text = json.dumps(row).replace(f"={VERSION}", f"={NEXT}")
            added[file.replace(f"-{VERSION}-", f"-{NEXT}-")] = json.loads(text) | {"version": NEXT}
    return rows | added


@pytest.fixture(scope="session")
def updates(base: Path, repodata: dict[str, Rows], tmp_path_factory: pytest.TempPathFactory) -> Solver:
    folder = tmp_path_factory.mktemp("updates")
    channel = write_channel(folder / "channel", {subdir: newer(rows) for subdir, rows in repodata.items()})
    return Solver((channel, base), folder / "repodata")


@pytest.mark.parametrize("platform", ARCH)
def test_update_keeps_the_isa(platform: str, solve: Solver, updates: Solver) -> None:
    specs = [*(f"legacyml-{isa}" for isa in isas(ARCH[platform])), *(f"liblegacyml=*={isa}_h*" for isa in isas(ARCH[platform])), "legacyml"]
    specs += ["legacyml-python"] if platform != "linux-armv7l" else []
    for cpu in NAMES[platform] + NAMELESS[platform]:
        for spec in specs:
            installed = solve([spec], platform, cpu)
            others = [record for record in installed if record.name.normalized != name_of(spec)]
            for locked in (others, []):  # `update NAME`, `update --all`
                records = updates([spec], platform, cpu, locked_packages=locked)
                assert isa_of(records) == isa_of(installed)
                versions = {str(record.version) for record in records if re.match(r"(lib)?legacyml", record.name.normalized)}
                assert versions == {NEXT}


def next_table(folder: Path, without: str) -> Rows:
    """What the recipe makes of `legacyml` and `_legacyml-cpu` with the next serial and build number, and a CPU name less."""
    head, *outputs = RECIPE.split("\n  - package:")
    kept = [output for output in outputs if f"__archspec * {without}\n" not in output]
    assert len(kept) == len(outputs) - 1
    text = "\n  - package:".join([head, *kept])
    text, serials = re.subn(r'(?m)^(  cpu_serial: )"\d+"$', rf'\g<1>"{SERIAL + 1}"', text)
    text, numbers = re.subn(r"(?m)^  build_number: (\d+)$", lambda found: f"  build_number: {int(found[1]) + 1}", text)
    assert (serials, numbers) == (1, 1)
    (folder / "recipe.yaml").write_text(text)
    target = "linux-64"
    platform = rattler_build.JinjaConfig(platform=package.config(target))
    variants = rattler_build.VariantConfig.from_file_with_context(package.VARIANTS[target], platform)
    variants = variants.merge(rattler_build.VariantConfig({"c_compiler": ["zig"], "build_platform": [target]}))
    rows = {}
    for output in package.render(folder / "recipe.yaml", variants, target):
        name, build = output.recipe.package.name, output.recipe.build
        if name in ("legacyml", "_legacyml-cpu"):
            file = f"{package.file_name(output)}.conda"
            rows[file] = {
                "name": name,
                "version": str(output.recipe.package.version),
                "build": build.string,
                "build_number": build.number,
                "depends": [str(spec) for spec in output.recipe.requirements.run],
                "subdir": target,
                "sha256": hashlib.sha256(file.encode()).hexdigest(),
                "size": 1,
            }
    return rows


@pytest.mark.parametrize("old", ["kept", "removed"])
def test_wrong_row_is_withdrawn(old: str, solve: Solver, base: Path, repodata: dict[str, Rows], tmp_path: Path) -> None:
    """A new serial without a row, the old packages still in the channel or not: that CPU gets the baseline, all others what they had."""
    added = next_table(tmp_path, without="haswell")
    assert {row["version"] for row in added.values() if row["name"] == "_legacyml-cpu"} == {str(SERIAL + 1)}
    rows = repodata["linux-64"]
    if old == "removed":
        rows = {file: row for file, row in rows.items() if row["name"] not in ("legacyml", "_legacyml-cpu")}
    channel = write_channel(tmp_path / "channel", repodata | {"linux-64": rows | added})
    later = Solver((channel, base), tmp_path / "repodata")
    for cpu in NAMES["linux-64"]:
        assert isa_of(later(["legacyml"], cpu=cpu)) == ("sse2" if cpu == "haswell" else best("linux-64", cpu)), cpu
    installed = solve(["legacyml"], cpu="haswell")
    assert isa_of(as_conda(later, ["legacyml"], ["legacyml"], installed, "haswell", update=True)) == "sse2"


# -- Real environments -------------------------------------------------------------------------------------------------------


def read_prefix(prefix: Path) -> Records:
    return [rattler.PrefixRecord.from_path(path) for path in sorted((prefix / "conda-meta").glob("*.json"))]


def write_prefix(prefix: Path, records: Records, cache: Path, asked: Sequence[str]) -> None:
    """Makes the environment consist of these packages; what the user asked for is kept beside them."""
    platform = rattler.Subdir("linux-64")
    asyncio.run(rattler.install(list(records), prefix, cache_dir=cache, platform=platform, show_progress=False))
    (prefix / "conda-meta/asked").write_text("".join(f"{spec}\n" for spec in asked))


def conda_client(arguments: Sequence[str], base: Path, work: Path) -> int:
    """`conda install` and `conda remove --force` with conda's habits; base is the channel that its user has configured."""
    with (work / "log").open("a") as log:
        print(shlex.join(arguments), file=log)
    parser = argparse.ArgumentParser(prog="conda")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("install", "remove"):
        command = commands.add_parser(name)
        command.add_argument("-p", "--prefix", type=Path, required=True)
        command.add_argument("-c", "--channel", action="append", default=[])
        command.add_argument("-y", "--yes", action="store_true")
        command.add_argument("specs", nargs="+")
        if name == "remove":
            command.add_argument("--force", action="store_true", required=True)
    options = parser.parse_args(arguments)
    asked = (options.prefix / "conda-meta/asked").read_text().splitlines()
    installed = read_prefix(options.prefix)
    if options.command == "remove":
        if absent := set(options.specs) - names(installed):
            print(f"PackagesNotFoundError: {', '.join(absent)}", file=sys.stderr)
            return 1
        records = [record for record in installed if record.name.normalized not in options.specs]
        asked = [spec for spec in asked if name_of(spec) not in options.specs]
    else:
        channels = [Path(channel.removeprefix("file://")) for channel in options.channel]
        solver = Solver((*channels, base), work / "repodata")
        try:
            records = as_conda(solver, asked, options.specs, installed, os.environ.get("CONDA_OVERRIDE_ARCHSPEC"))
        except SolverError as error:
            print(error, file=sys.stderr)
            return 1
        named = {name_of(spec) for spec in options.specs}
        asked = [*(spec for spec in asked if name_of(spec) not in named), *options.specs]
    if not options.yes and input("Proceed ([y]/n)? ") not in ("", "y"):
        return 1
    write_prefix(options.prefix, records, work / "packages", asked)
    return 0


class Machine:
    """A Haswell with this conda and no other client."""

    def __init__(self, work: Path, channel: Path, base: Path) -> None:
        self.work, self.channel, self.base = work, channel, base
        program = work / "bin/conda"
        program.parent.mkdir()
        paths = [str(TOP / "tests"), str(TOP / "tools")]
        program.write_text(
            f"#!{sys.executable}\nimport os, sys\nsys.path[:0] = {paths}\nfrom pathlib import Path\nimport test_solve\n"
            f"status = test_solve.conda_client(sys.argv[1:], Path({str(base)!r}), Path({str(work)!r}))\n"
            "sys.stdout.flush()\nsys.stderr.flush()\nos._exit(status)  # py-rattler sometimes aborts when the interpreter ends\n"
        )
        program.chmod(0o755)

    def create(self, prefix: Path, *specs: str, cpu: str = "haswell") -> None:
        solver = Solver((self.channel, self.base), self.work / "repodata")
        write_prefix(prefix, solver(specs, cpu=cpu), self.work / "packages", specs)

    def run(self, prefix: Path, *command: object, answer: str = "") -> subprocess.CompletedProcess[str]:
        """As in the activated environment."""
        variables = {
            "PATH": f"{prefix}/bin:{self.work}/bin:/usr/bin:/bin",
            "HOME": str(self.work),
            "CONDA_PREFIX": str(prefix),
            "CONDA_OVERRIDE_ARCHSPEC": "haswell",
        }
        settings: dict = {"capture_output": True, "text": True, "check": False, "timeout": 300}
        return subprocess.run(list(map(str, command)), env=variables, input=answer, cwd=self.work, **settings)

    def log(self) -> list[str]:
        log = self.work / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packages")


@pytest.fixture
def machine(channel: Path, base: Path, packages: Path, tmp_path: Path) -> Machine:
    if HOST != "x86_64":
        pytest.skip("the environments are of linux-64")
    work = tmp_path / "machine"
    work.mkdir()
    (work / "packages").symlink_to(packages)
    return Machine(work, channel, base)


def check_it_runs(machine: Machine, prefix: Path, isa: str) -> None:
    if not runs_here(isa):
        pytest.skip(f"this CPU cannot run the {isa} build that was installed as it should be")
    version = machine.run(prefix, "ml_run", "--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert re.search(rf"\b{isa}\b", version.stdout) and VERSION in version.stdout
    binding = machine.run(prefix, "python", "-c", "import legacyml; print(legacyml.isa())")
    assert (binding.returncode, binding.stdout, binding.stderr) == (0, f"{isa}\n", "")


def test_binding_alone_runs(machine: Machine, tmp_path: Path) -> None:
    prefix = tmp_path / "environment"
    machine.create(prefix, "legacyml-python")
    assert isa_of(read_prefix(prefix)) == "sse2"
    check_it_runs(machine, prefix, "sse2")


WRONG = [
    ("legacyml-sse2", "haswell", True),
    ("legacyml-sse2 legacyml-python", "haswell", True),
    ("legacyml-avx512vnni", "haswell", True),
    ("legacyml-python legacyml-which-isa", "haswell", False),
    ("legacyml", "nehalem", True),
    ("legacyml", "zen4", True),
    ("legacyml", "", True),
]


@pytest.mark.parametrize("specs, cpu, removes", WRONG)
def test_selector_installs(specs: str, cpu: str, removes: bool, machine: Machine, tmp_path: Path) -> None:
    """From any environment that has the selector to the build for this CPU, with the user's other wishes kept."""
    prefix = tmp_path / "environment"
    machine.create(prefix, *specs.split(), cpu=cpu)
    assert isa_of(read_prefix(prefix)) != "avx2"
    done = machine.run(prefix, "legacyml-which-isa", "--install", "--yes")
    assert done.returncode == 0, done.stderr
    records = read_prefix(prefix)
    assert isa_of(records) == "avx2"
    assert {"legacyml-avx2", "legacyml-python", "legacyml-which-isa", "python"} <= names(records)
    assert [line.split()[0] for line in machine.log()] == ["remove", "install"] if removes else ["install"]
    asked = set((prefix / "conda-meta/asked").read_text().split())
    assert asked == {spec for spec in specs.split() if spec in ("legacyml-python", "legacyml-which-isa")} | {"legacyml-avx2"}
    again = machine.run(prefix, "legacyml-which-isa", "--install", "--yes")
    assert again.returncode == 0 and len(machine.log()) == 1 + removes
    check_it_runs(machine, prefix, "avx2")


@pytest.mark.parametrize("spec", ["legacyml-avx2", "legacyml"])
def test_selector_leaves_what_is_right(spec: str, machine: Machine, tmp_path: Path) -> None:
    prefix = tmp_path / "environment"
    machine.create(prefix, spec)
    done = machine.run(prefix, "legacyml-which-isa", "--install", "--yes")
    assert done.returncode == 0, done.stderr
    assert machine.log() == []
    assert isa_of(read_prefix(prefix)) == "avx2"


def test_contradiction_is_refused(machine: Machine, channel: Path, tmp_path: Path) -> None:
    """What the selector saves its user from."""
    prefix = tmp_path / "environment"
    machine.create(prefix, "legacyml-sse2")
    refused = machine.run(prefix, "conda", "install", "--yes", "-p", prefix, "-c", channel.as_uri(), "legacyml-avx2")
    assert refused.returncode == 1
    assert says(refused.stderr, "legacyml-sse2", "legacyml-avx2")
    assert isa_of(read_prefix(prefix)) == "sse2"


@pytest.mark.parametrize("spec", ["legacyml-sse2", "legacyml"])
def test_selector_tells_the_way_back(spec: str, machine: Machine, repodata: dict[str, Rows], tmp_path: Path) -> None:
    """Where the build for this CPU is not to be had, the command that it prints brings back what was removed."""
    rows = {file: row for file, row in repodata["linux-64"].items() if "avx2" not in row["build"] and row["name"] != "legacyml-avx2"}
    channel = write_channel(tmp_path / "channel", repodata | {"linux-64": rows})
    for file, subdir in ((file, subdir) for subdir in ("linux-64", "noarch") for file in repodata[subdir]):
        (channel / subdir / file).symlink_to(machine.channel / subdir / file)
    machine.channel = channel
    prefix = tmp_path / "environment"
    machine.create(prefix, spec, cpu="")
    before = {(record.name.normalized, record.build) for record in read_prefix(prefix)}
    failed = machine.run(prefix, "legacyml-which-isa", "--install", "--yes")
    assert failed.returncode == 3
    assert "legacyml-avx2" in failed.stderr
    back = shlex.split(failed.stderr.rstrip().splitlines()[-1].partition("this brings it back: ")[2])
    assert back and not ({"legacyml-sse2", "legacyml"} & names(read_prefix(prefix)))
    done = machine.run(prefix, *back, answer="y\n")
    assert done.returncode == 0, done.stderr
    assert {(record.name.normalized, record.build) for record in read_prefix(prefix)} == before


@pytest.mark.parametrize("spec, isa", [("legacyml-sse2", "sse2"), ("liblegacyml=*=scalar_h*", "scalar")])
def test_environment_tool(spec: str, isa: str, channel: Path, base: Path, tmp_path: Path) -> None:
    """tools/environment.py makes an environment, with specs as the clients take them."""
    if HOST != "x86_64":
        pytest.skip("the environments are of linux-64")
    prefix = tmp_path / "environment"
    command = [sys.executable, TOP / "tools/environment.py", prefix, spec, "--channel", channel, "--channel", base]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert isa_of(read_prefix(prefix)) == isa


def test_environment_by_a_relative_path(channel: Path, base: Path, tmp_path: Path) -> None:
    """Its programs have the folder in their first line: they run from anywhere."""
    if HOST != "x86_64":
        pytest.skip("the environments are of linux-64")
    command = [sys.executable, TOP / "tools/environment.py", "environment", "legacyml-which-isa", "--channel", channel, "--channel", base]
    for _ in range(2):  # an environment may be replaced
        subprocess.run(command, cwd=tmp_path, check=True)
    run = subprocess.run([tmp_path / "environment/bin/legacyml-which-isa", "--version"], cwd="/", capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, f"legacyml-which-isa {VERSION}\n"), run.stderr


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_environment_tool_spares_what_is_none(kind: str, channel: Path, base: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "mine"
    file = prefix / "thesis.txt" if kind == "folder" else prefix
    file.parent.mkdir(exist_ok=True)
    file.write_text("precious")
    command = [sys.executable, TOP / "tools/environment.py", prefix, "liblegacyml", "--channel", channel, "--channel", base]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1 and run.stderr.count("\n") == 1, run.stderr
    assert f"{prefix} is there and is no environment" in run.stderr
    assert file.read_text() == "precious"
