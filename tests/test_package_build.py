# SPDX-License-Identifier: BSD-3-Clause
"""The builder of the packages, tools/package.py, in copies of the checkout: the same bytes each time, and a channel that works
after whatever goes wrong."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import termios
import time
import zipfile
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

import pytest
import yaml
import zstandard

import golden
from conftest import FOREIGN, HOST, TOP, emulate, need

pytestmark = pytest.mark.skipif(HOST != "x86_64", reason="packages are built on x86-64")

COMMITTED = 1700000000
PLATFORMS = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-armv7l": "armv7"}
# The build of each platform that every CPU runs.
BASELINES = {"linux-64": "sse2", "linux-aarch64": "neon", "linux-armv7l": "scalar"}
CPUS = {"aarch64": "cortex-a53", "armv7": "cortex-a9"}
GLIBC = os.confstr("CS_GNU_LIBC_VERSION").split()[-1]
AS_IT_WAS = "; the channel is as it was"
# What people have exported (case 6), and what else a build could see.
HOSTILE = {
    "CFLAGS": "-march=native -O3",
    "CXXFLAGS": "-march=native -O3",
    "CPPFLAGS": "-DNONSENSE -I/nonsense",
    "LDFLAGS": "-L/nonsense -Wl,-rpath,/nonsense",
    "CC": "clang",
    "AR": "/bin/false",
    "ISA": "avx2",
    "BUILD": "/nonsense",
    "MAKEFLAGS": "-j8",
    "PYTHONPATH": "/nonsense",
    "DESTDIR": "/nonsense",
    "PREFIX": "/nonsense",
    "CONDA_PREFIX": "/nonsense",
    "CONDA_OVERRIDE_ARCHSPEC": "haswell",
    "LC_ALL": "C",
    "TZ": "Pacific/Auckland",
}


# What copies of a copy can share.
ELSEWHERE = ("base-channel", "downloads", "zig-cache")


class Checkout(NamedTuple):
    """A copy of the checkout, with a channel of its own."""

    top: Path

    @property
    def channel(self) -> Path:
        return self.top / "build/channel"

    def start(self, *arguments: str, env: dict[str, str] | None = None, **options: object) -> subprocess.Popen[str]:
        plain = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
        command = [sys.executable, self.top / "tools/package.py", *arguments]
        settings: dict = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True} | options
        return subprocess.Popen(command, env=plain | (env or {}), cwd=self.top.parent, **settings)

    def run(self, *arguments: str, **options: object) -> tuple[int, str]:
        """Status and stderr; a program that ended with a traceback fails the test."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=300)
        assert "Traceback" not in err and "panicked" not in err, err[-4000:]
        assert out == ""
        return process.returncode, err

    def build(self, platform: str, *arguments: str, **options: object) -> str:
        """A run that must work, and leave an index that is true; all that it says."""
        status, err = self.run("--platform", platform, *arguments, **options)
        assert status == 0, err[-4000:]
        self.check_index()
        return err

    def fails(self, platform: str, *arguments: str, **options: object) -> str:
        """A run that must fail and leave the channel alone; all that it says."""
        before = self.files()
        status, err = self.run("--platform", platform, *arguments, **options)
        assert status == 1, err[-4000:]
        assert err.splitlines()[-1].startswith("package.py: ") and err.endswith(AS_IT_WAS + "\n"), err[-4000:]
        assert self.files() == before
        return err

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.channel)): path.read_bytes() for path in self.channel.rglob("*") if path.is_file()}

    def packages(self, folder: str = "*") -> dict[str, bytes]:
        return {str(path.relative_to(self.channel)): path.read_bytes() for path in self.channel.glob(f"{folder}/*.conda")}

    def check_index(self) -> None:
        """The index names the files that there are and no others, each by its hash."""
        listed = {}
        for index in self.channel.glob("*/repodata.json"):
            content = json.loads(index.read_text())
            assert not content["packages"]
            listed |= {f"{index.parent.name}/{name}": row["sha256"] for name, row in content["packages.conda"].items()}
        assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in self.packages().items()}
        assert listed

    def install(self, prefix: Path, spec: str, platform: str) -> Path:
        command = [sys.executable, self.top / "tools/environment.py", prefix, spec, "--platform", platform, "--channel", self.channel]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        return prefix

    @contextlib.contextmanager
    def edited(self, name: str, old: str, new: str) -> Iterator[None]:
        """A file with the first `old` in it replaced, for a while."""
        path = self.top / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}"
        path.write_text(text.replace(old, new, 1))
        try:
            yield
        finally:
            path.write_text(text)

    def processes(self) -> list[str]:
        """Command lines of all processes that work in the copy or for it."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command and f"{self.top}/" in f"{command} {os.readlink(folder / 'cwd')}/":
                    found.append(command)
        return found


def copied(top: Path, source: Path = TOP) -> Checkout:
    """The files of the checkout that git knows or would add, as a repository of one commit; in build/ what would be downloaded."""
    if not (source / "build/base-channel/base_channel.json").is_file():
        pytest.skip("there is no build/base-channel: run make package PLATFORM=all")
    listing = subprocess.run(["git", "-C", source, "ls-files", "-coz", "--exclude-standard"], capture_output=True, text=True, check=True)
    for name in filter(None, listing.stdout.split("\0")):
        if (source / name).is_file():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, top / name)
    (top / "build").mkdir()
    for name in ("base-channel", "downloads"):
        shutil.copytree(source / "build" / name, top / "build" / name, copy_function=link_or_copy)
    # Compiled runtime libraries; another build may be writing there.
    subprocess.run(["cp", "-r", source / "build/zig-cache", top / "build"], check=False, capture_output=True)
    commit(top)
    return Checkout(top)


def link_or_copy(source: str, target: str) -> None:
    """What a test changes must not be the checkout's."""
    (shutil.copy2 if source.endswith(".json") else os.link)(source, target)


def commit(top: Path) -> None:
    date = f"{COMMITTED} +0000"
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    env = os.environ | names | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    for command in ("init -q", "add -A", "commit -q -m copy"):
        subprocess.run(["git", "-C", top, *command.split()], env=env, check=True)


def reduced(checkout: Checkout, *names: str) -> None:
    """Leaves of the recipe the outputs with these names, and of each platform's builds the baseline."""
    recipe = checkout.top / "recipe/recipe.yaml"
    head, rest = recipe.read_text().split("\noutputs:\n")
    outputs, tail = rest.split("\nabout:\n")
    every = re.split(r"(?m)^(?=  - package:\n)", outputs)
    kept = [text for text in every if (name := re.match(r"  - package:\n      name: (.+)\n", text)) and name[1] in names]
    assert len(kept) == len(names)
    recipe.write_text(f"{head}\noutputs:\n{''.join(kept)}\nabout:\n{tail}")
    for platform, isa in BASELINES.items():
        path = checkout.top / ("conda_build_config.yaml" if platform == "linux-64" else f"recipe/platforms/{platform}.yaml")
        variants = yaml.safe_load(path.read_text())
        row = variants["isa"].index(isa)
        path.write_text(yaml.safe_dump(variants | {key: [variants[key][row]] for key in variants["zip_keys"][0]}))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy of everything."""
    return copied(tmp_path_factory.mktemp("full") / "legacyml")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A copy whose recipe is only the library, in one build for each platform. The tests below change its channel one after the other."""
    checkout = copied(tmp_path_factory.mktemp("small") / "legacyml")
    reduced(checkout, "liblegacyml")
    return checkout


@pytest.fixture
def filled(small: Checkout) -> Checkout:
    """`small` with a package in its channel that a new build does not give, having another time."""
    if not small.packages("linux-armv7l"):
        small.build("linux-armv7l", env={"SOURCE_DATE_EPOCH": "1600000000"})
    return small


def members(package: bytes) -> dict[str, tuple[object, ...]]:
    """What is in a package: content, mode, time, link, owner of each file, in the order of the archives."""
    found: dict[str, tuple[object, ...]] = {}
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        for entry in archive.infolist():
            found[entry.filename.split("-")[0]] = (entry.date_time,)
            if entry.filename.endswith(".tar.zst"):
                plain = zstandard.ZstdDecompressor().stream_reader(archive.read(entry)).read()
                with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
                    for info in tar:
                        content = tar.extractfile(info).read() if info.isfile() else b""  # type: ignore[union-attr]
                        found[info.name] = (content, info.mode, info.mtime, info.linkname, info.uid, info.gid, info.uname)
    return found


def about(package: bytes, name: str) -> dict:
    return json.loads(members(package)[f"info/{name}.json"][0])  # type: ignore[arg-type]


# -- The same bytes ------------------------------------------------------------------------------------------------------------


def test_same_bytes_whatever_is_exported(full: Checkout) -> None:
    """Case 6: nothing of the environment gets into a package; built twice in one folder, the packages are the same."""
    assert not full.channel.exists()
    full.build("linux-armv7l")
    first = full.packages()
    names = ["legacyml", "legacyml-neon", "legacyml-scalar", "liblegacyml", "liblegacyml"]
    expected = [f"linux-armv7l/{name}" for name in names] + ["noarch/legacyml-convert", "noarch/legacyml-which-isa"]
    assert sorted(re.sub(r"-0\.1\.0-.*", "", name) for name in first) == expected
    assert {about(data, "index")["timestamp"] for data in first.values()} == {COMMITTED * 1000}
    shutil.rmtree(full.channel)
    mask = os.umask(0o077)
    try:
        full.build("linux-armv7l", env=HOSTILE)
    finally:
        os.umask(mask)
    assert full.packages() == first


def test_other_folder(full: Checkout, tmp_path: Path) -> None:
    """In another folder the same bytes."""
    if not full.packages():
        full.build("linux-armv7l")
    other = copied(tmp_path / "with/a-longer_path+than/the.other", full.top)
    other.build("linux-armv7l")
    assert list(other.packages()) == list(full.packages())
    for name, data in full.packages().items():
        assert other.packages()[name] == data, name


# -- From nothing to a channel of all platforms ----------------------------------------------------------------------------------


def test_platform_after_platform(small: Checkout) -> None:
    """Each can be built alone, from nothing; those that are there stay as they are."""
    assert not small.channel.exists()
    known: dict[str, bytes] = {}
    for platform, epoch in (("linux-aarch64", None), ("linux-armv7l", "1600000000"), ("linux-64", "0")):
        small.build(platform, env={"SOURCE_DATE_EPOCH": epoch} if epoch else None)
        new = {name: data for name, data in small.packages().items() if name not in known}
        assert [name.split("_h")[0] for name in new] == [f"{platform}/liblegacyml-0.1.0-{BASELINES[platform]}"]
        for data in new.values():
            index = about(data, "index")
            assert index["timestamp"] == int(epoch or COMMITTED) * 1000
            assert index["depends"] == ["__glibc >=2.17,<3.0.a0"]
            assert index["subdir"] == platform
        known |= new
        assert small.packages() == known


def test_same_bytes_on_this_machine(small: Checkout) -> None:
    """As above for the platform whose compilers the machine has, with flags that it would understand."""
    small.build("linux-64")
    first = small.packages()
    small.build("linux-64", env=HOSTILE)
    assert small.packages() == first


def test_changed_source(small: Checkout, tmp_path: Path) -> None:
    """A package of the same name with other content is what gets installed, though a cache has the old one."""
    small.build("linux-64")
    names = list(small.packages())
    old, new = "generate at most N tokens", "generate no more than N tokens"

    def text() -> str:
        prefix = small.install(tmp_path / "prefix", "liblegacyml", "linux-64")
        return subprocess.run([prefix / "bin/ml_run", "--help"], capture_output=True, text=True, check=True).stdout

    assert old in text()
    with small.edited("src/app/options.c", old, new):
        small.build("linux-64")
    assert list(small.packages()) == names
    assert new in text()


def test_nothing_old_is_left(filled: Checkout) -> None:
    """A new number: the packages of the platform are replaced, those of the others are not."""
    assert filled.packages("linux-armv7l")
    others = {name: data for name, data in filled.packages().items() if not name.startswith("linux-armv7l/")}
    with filled.edited("recipe/recipe.yaml", "build_number: 0", "build_number: 3"):
        err = filled.build("linux-armv7l")
    ours = filled.packages("linux-armv7l")
    assert [re.sub("_h[0-9a-f]{7}_", "_", name) for name in ours] == ["linux-armv7l/liblegacyml-0.1.0-scalar_103.conda"]
    assert filled.packages() == others | ours
    check_lines(err)


def check_lines(err: str) -> None:
    """A line for each package, and nothing that moves a cursor."""
    assert "\r" not in err and "\x1b" not in err
    lines = [line for line in err.splitlines() if not line.startswith("toolchain [")]
    assert len(err.splitlines()) - len(lines) == 16
    assert len(lines) == 3 and re.fullmatch(r"linux-armv7l \[1/1\] liblegacyml-0\.1\.0-scalar_h\w+: \d+\.\d s", lines[1]), lines
    assert lines[2] == "1 packages in build/channel"


# -- What goes wrong -------------------------------------------------------------------------------------------------------------

FAILURES = {
    "compile error": ("src/core/status.c", "#include", "nonsense here;\n#include", ["status.c:", "error: unknown type name 'nonsense'"]),
    "failing script": ("recipe/build-lib.sh", "pipefail\n", "pipefail\necho this | tr a-z A-Z; exit 3\n", ["\nTHIS\n", "status 3"]),
    "failing test": ("recipe/recipe.yaml", 'legacyml)" = ${{ version }}', 'legacyml)" = 9.9', ["test 0.1.0 = 9.9"]),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_failing_build(filled: Checkout, failure: str) -> None:
    """What failed is on stderr, and the last line names the package."""
    name, old, new, said = FAILURES[failure]
    with filled.edited(name, old, new):
        err = filled.fails("linux-armv7l")
    assert re.match(r"package\.py: liblegacyml-0\.1\.0-scalar_h\w+ for linux-armv7l could not be built", err.splitlines()[-1])
    assert all(text in err for text in said), err


@pytest.mark.parametrize("name", ["recipe/recipe.yaml", "recipe/platforms/linux-armv7l.yaml"])
def test_recipe_that_does_not_parse(filled: Checkout, name: str) -> None:
    with filled.edited(name, "\nbuild:\n" if name.endswith("recipe.yaml") else "isa:\n", "\nbuild: ][\n"):
        last = filled.fails("linux-armv7l").splitlines()[-1]
    assert Path(name).name in last and "{" not in last, last


def test_unsolvable(filled: Checkout) -> None:
    """A package that the channels lack is named."""
    base = filled.top / "build/base-channel"
    saved = base.rename(base.with_name("saved"))
    recipe = (filled.top / "recipe/recipe.yaml").read_text()
    try:
        shutil.copytree(saved, base, copy_function=link_or_copy)
        stamp = json.loads((base / "base_channel.json").read_text())
        for index in base.glob("*/repodata.json"):
            content = json.loads(index.read_text())
            for name in [name for name in content["packages.conda"] if name.startswith("cffi-")]:
                del content["packages.conda"][name], stamp["files"][f"{index.parent.name}/{name}"]
                (index.parent / name).unlink()
            index.write_text(json.dumps(content))
            stamp["files"][f"{index.parent.name}/repodata.json"] = hashlib.sha256(index.read_bytes()).hexdigest()
        (base / "base_channel.json").write_text(json.dumps(stamp))
        shutil.copy(TOP / "recipe/recipe.yaml", filled.top / "recipe/recipe.yaml")
        reduced(filled, "liblegacyml", "legacyml-python")
        last = filled.fails("linux-64").splitlines()[-1]
    finally:
        shutil.rmtree(base)
        saved.rename(base)
        (filled.top / "recipe/recipe.yaml").write_text(recipe)
    assert re.match(r"package\.py: legacyml-python-0\.1\.0-\w+ for linux-64 could not be built.*cffi", last), last


@pytest.mark.parametrize("value", ["yesterday", "-5", "5000000000", "99999999999999999999"])
def test_nonsense_for_a_time(filled: Checkout, value: str) -> None:
    last = filled.fails("linux-armv7l", env={"SOURCE_DATE_EPOCH": value}).splitlines()[-1]
    assert "SOURCE_DATE_EPOCH" in last and value in last


@pytest.mark.parametrize("option, names", [("platform", [*PLATFORMS, "all"]), ("toolchain", ["zig", "gcc"])])
def test_unknown_name(small: Checkout, option: str, names: list[str]) -> None:
    """Refused with the names that there are, by the program and through make."""
    status, err = small.run(f"--{option}", "foo")
    assert status == 2
    # The Python tools are ready, says -o: they are the checkout's.
    make = ["make", "-C", small.top, "-o", "venv", "package", f"VENV={TOP}/.venv", f"{option.upper()}=foo"]
    run = subprocess.run(make, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    for text in (err, run.stderr):
        line = next(line for line in text.splitlines() if line.startswith("package.py: "))
        assert "foo" in line and all(name in line for name in names), text


def test_other_machine(small: Checkout) -> None:
    program = "import platform, runpy, sys; platform.machine = lambda: 'riscv64'; "
    program += "runpy.run_path(sys.path[0] + '/package.py', run_name='__main__')"
    script = small.top / "tools/other_machine.py"  # beside the program, so that it finds what it imports
    script.write_text(program)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    script.unlink()
    assert run.returncode == 1
    assert run.stderr == "package.py: packages are built on linux-64, and this is riscv64\n"


@pytest.mark.parametrize("name", ["with a space", "föld"])
def test_path_that_tools_cannot_take(small: Checkout, tmp_path: Path, name: str) -> None:
    """pkg-config, make and compilers' wrappers cannot live there: said before anything is built."""
    other = tmp_path / name
    shutil.copytree(small.top, other, ignore=shutil.ignore_patterns("build"))
    (other / "build").mkdir()
    for folder in ELSEWHERE:
        (other / "build" / folder).symlink_to(small.top / "build" / folder)
    status, err = Checkout(other).run("--platform", "linux-armv7l")
    assert status == 1
    assert len(err.splitlines()) == 1 and err.startswith("package.py: ") and str(other) in err


# -- A full disk -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(filled: Checkout, tmp_path: Path) -> Iterator[Callable[..., Checkout]]:
    """disk(size, *elsewhere) -> a copy whose build folder is a file system of this size; it need not hold these folders."""
    other = Checkout(tmp_path / "copy")

    def make(size: str, *elsewhere: str) -> Checkout:
        shutil.copytree(filled.top, other.top, ignore=shutil.ignore_patterns("build"))
        (other.top / "build").mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", other.top / "build"]
        mount = subprocess.run(command, capture_output=True, check=False)
        if mount.returncode != 0:
            pytest.skip("only root may mount a file system that is soon full")
        for name in elsewhere:
            (other.top / "build" / name).symlink_to(filled.top / "build" / name)
        shutil.copytree(filled.channel / "linux-armv7l", other.channel / "linux-armv7l")
        return other

    yield make
    subprocess.run(["umount", other.top / "build"], capture_output=True, check=False)


@pytest.mark.parametrize(
    "size, elsewhere",
    [("8m", ELSEWHERE[1:]), ("256k", ELSEWHERE), ("1m", ELSEWHERE), ("2m", ELSEWHERE)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_full_disk(disk: Callable[..., Checkout], size: str, elsewhere: tuple[str, ...]) -> None:
    """The base channel, the toolchain or the compiler's output do not fit."""
    disk(size, *elsewhere).fails("linux-armv7l")


def test_full_disk_while_publishing(disk: Callable[..., Checkout]) -> None:
    checkout = disk("16m", *ELSEWHERE)
    before = checkout.files()
    process = checkout.start("--platform", "linux-armv7l")
    assert process.stderr is not None
    said = []
    with (checkout.top / "build/ballast").open("wb", buffering=0) as ballast:
        for line in process.stderr:
            said.append(line)
            if re.search(r"\[(\d+)/\1\] liblegacyml", line):
                while process.poll() is None:
                    with contextlib.suppress(OSError):
                        ballast.write(bytes(4096))
    assert process.wait() == 1, said
    assert said[-1].startswith("package.py: ") and "No space left" in said[-1] and said[-1].endswith(AS_IT_WAS + "\n"), said
    assert checkout.files() == before


# -- Ended from outside ------------------------------------------------------------------------------------------------------------

MOMENTS = {
    "compiling": ("recipe/build-lib.sh", "pipefail\n", "pipefail\ntouch {mark}; sleep 300\n"),
    "testing": ("recipe/recipe.yaml", "            check() {{", "            touch {mark}; sleep 300\n            check() {{"),
}


def check_ended(checkout: Checkout, process: subprocess.Popen[str], before: dict[str, bytes]) -> None:
    """It said so within seconds, has left nothing that runs, and the channel alone."""
    err = process.communicate(timeout=10)[1]
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "package.py: interrupted" + AS_IT_WAS
    assert checkout.files() == before
    end = time.monotonic() + 3
    while checkout.processes() and time.monotonic() < end:
        time.sleep(0.05)
    assert checkout.processes() == []


@pytest.mark.parametrize(
    "moment, number, group",
    [
        ("compiling", signal.SIGINT, True),
        ("testing", signal.SIGINT, True),
        ("compiling", signal.SIGTERM, False),
        ("testing", signal.SIGHUP, True),
    ],
)
def test_ended(filled: Checkout, tmp_path: Path, moment: str, number: int, group: bool) -> None:
    """Ctrl-C on a terminal goes to all processes, kill to one."""
    name, old, new = MOMENTS[moment]
    mark, before = tmp_path / "mark", filled.files()
    with filled.edited(name, old.replace("{{", "{"), new.format(mark=mark)):
        process = filled.start("--platform", "linux-armv7l", start_new_session=True)
        try:
            while not mark.exists():
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            (os.killpg if group else os.kill)(process.pid, number)
            check_ended(filled, process, before)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("delay", [0, 0.1])
def test_ended_while_publishing(filled: Checkout, delay: float) -> None:
    """Either it was in time, or the new channel is there: what is said is true."""
    before = filled.files()
    other_bytes = {"SOURCE_DATE_EPOCH": str(1000000000 + int(delay * 10))}
    process = filled.start("--platform", "linux-armv7l", env=other_bytes, start_new_session=True)
    assert process.stderr is not None
    for line in process.stderr:
        if re.search(r"\[(\d+)/\1\] liblegacyml", line):
            break
    time.sleep(delay)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    if process.wait(timeout=10) == 130:
        check_ended(filled, process, before)
    else:
        assert process.returncode == 0, process.communicate()
        assert process.communicate()[1] == "1 packages in build/channel\n"
        filled.check_index()
        assert filled.files() != before


# -- Progress, and two at once -------------------------------------------------------------------------------------------------------


def test_terminal_and_two_at_once(filled: Checkout) -> None:
    """On a terminal there is a bar, not a line for each package. A second run gives way at once. After all failures this one works."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    process = filled.start("--platform", "linux-armv7l", stderr=theirs)
    os.close(theirs)
    seen = os.read(ours, 1)
    start = time.monotonic()
    status, err = filled.run("--platform", "linux-armv7l")
    assert (status, err) == (1, "package.py: another build of packages is running in this checkout" + AS_IT_WAS + "\n")
    assert time.monotonic() - start < 5
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while more := os.read(ours, 65536):
            seen += more
    os.close(ours)
    assert process.wait() == 0, seen
    text = seen.decode()
    assert re.search(r"toolchain: +\d+%\|.*\| \d+/16 ", text) and re.search(r"linux-armv7l: +0%\|.*\| 0/1 ", text)
    left = [re.sub(r".*\r", "", line) for line in text.replace("\r\n", "\n").split("\n")]
    assert not any(re.search(r"liblegacyml|make-1", line) for line in left), left
    filled.check_index()


# -- Debian's compilers ----------------------------------------------------------------------------------------------------------------


def glibc_needs(package: bytes, tmp_path: Path) -> list[tuple[int, ...]]:
    """Versions of the C library that the ELF files of a package ask for."""
    found: set[tuple[int, ...]] = set()
    for content, *_ in members(package).values():
        if isinstance(content, bytes) and content.startswith(b"\x7fELF"):
            (tmp_path / "elf").write_bytes(content)
            text = subprocess.run(["readelf", "--version-info", tmp_path / "elf"], capture_output=True, text=True, check=True).stdout
            found |= {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_(\d+(?:\.\d+)+)", text)}
    return sorted(found)


def hashes(checkout: Checkout) -> set[str]:
    """What tells apart builds of the same sources by other means."""
    return {match[1] for name in checkout.packages() if (match := re.search(r"/liblegacyml-.*_h([0-9a-f]{7})_", name))}


def test_gcc(small: Checkout, tmp_path: Path, random_model: Callable[..., Path]) -> None:
    """The packages are for this Debian's C library, say so, and compute the same bits."""
    for arch in PLATFORMS.values():
        need(arch)
    for platform in PLATFORMS:
        if not small.packages(platform):
            small.build(platform)
    zig = hashes(small)
    shutil.copy(TOP / "recipe/recipe.yaml", small.top / "recipe/recipe.yaml")
    reduced(small, "liblegacyml", "legacyml-python")
    small.build("all", "--toolchain", "gcc")
    assert len(zig) == 3 and not zig & hashes(small)
    machine = tuple(map(int, GLIBC.split(".")))
    assert machine > (2, 17)
    model = random_model(**golden.options("gqa8-hd8-untied"))
    for platform, arch in PLATFORMS.items():
        packages = small.packages(platform)
        assert len(packages) == (1 if arch == "armv7" else 2)
        for data in packages.values():
            needs = glibc_needs(data, tmp_path)
            assert f"__glibc >={GLIBC},<3.0.a0" in about(data, "index")["depends"]
            assert needs and needs[-1] <= machine
        assert glibc_needs(next(data for name, data in packages.items() if "/liblegacyml-" in name), tmp_path)[-1] > (2, 17)
        program = small.install(tmp_path / platform, "liblegacyml", platform) / "bin/ml_run"
        tokens, out = ",".join(map(str, golden.TOKENS)), tmp_path / f"{platform}.f32"
        arguments = [model, "--tokens", tokens, "-n", 0, "-q", "-t", 2, "--dump-logits", out]
        if arch in FOREIGN:
            run = emulate(arch, CPUS[arch], program, *arguments)
        else:
            run = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        vocab = golden.MODELS["gqa8-hd8-untied"]["vocab"]
        rows = [out.read_bytes()[4 * vocab * row :][: 4 * vocab] for row in range(*golden.KEPT.indices(len(golden.TOKENS)))]
        assert b"".join(rows) == golden.golden("gqa8-hd8-untied").tobytes()
