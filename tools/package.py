#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds the conda packages of recipe/recipe.yaml into build/channel, without any outside channel, and runs their tests.

    tools/package.py [--platform linux-64|linux-aarch64|linux-armv7l|all] [--toolchain zig|gcc]

build/base-channel and build/toolchain-channel hold what conda-forge would provide. Packages of other platforms stay in the channel. It is replaced
in one step at the end: after a failure or Ctrl-C it is as it was. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Callable, NoReturn

import rattler.exceptions
import rattler_build
import zstandard
from rattler.index import index_fs
from tqdm import tqdm

from base_channel import replace
from environment import solve

TOP = Path(__file__).resolve().parent.parent
BUILD = TOP / "build"
CHANNEL, BASE, TOOLCHAIN = BUILD / "channel", BUILD / "base-channel", BUILD / "toolchain-channel"
VARIANTS = {
    "linux-64": TOP / "conda_build_config.yaml",
    **{path.stem: path for path in sorted((TOP / "recipe/platforms").glob("*.yaml"))},
}
TOOLCHAINS = ("zig", "gcc")
HERE = {"x86_64": "linux-64", "aarch64": "linux-aarch64", "armv7l": "linux-armv7l"}.get(platform.machine(), platform.machine())
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What of a log is worth showing when a build has failed.
LAST_LINES = 60


class PackageError(Exception):
    """One sentence about what went wrong."""


class Reported(Exception):
    """Something went wrong, and has been said."""


class Log:
    """Keeps what a build says: rattler-build's own error is only "script failed"."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_log(self, event: rattler_build.progress.LogEvent) -> None:
        self.lines += event.message.splitlines()

    def ignore(self, _: object) -> None:
        pass

    on_build_step = on_download_start = on_download_progress = on_download_complete = ignore


def config(target: str) -> rattler_build.PlatformConfig:
    return rattler_build.PlatformConfig(target_platform=target, build_platform=HERE, host_platform=target)


def render(recipe: Path, variants: rattler_build.VariantConfig, target: str) -> list[rattler_build.RenderedVariant]:
    """The outputs of a recipe, each once."""
    try:
        outputs = rattler_build.Stage0Recipe.from_file(recipe).render(variants, rattler_build.RenderConfig(platform=config(target)))
    except rattler_build.RattlerBuildError as error:
        raise PackageError(f"{recipe}: {error}") from None
    return list({file_name(output): output for output in outputs}.values())


def file_name(output: rattler_build.RenderedVariant) -> str:
    package = output.recipe.package
    return f"{package.name}-{package.version}-{output.recipe.build.string}"


def unsolvable(output: rattler_build.RenderedVariant, target: str, channels: list[Path]) -> str:
    """Why an environment that a build or its tests need cannot be had, or "": rattler-build does not say."""
    needs = output.recipe.requirements
    target = HERE if output.recipe.build.noarch else target
    for platform_, specs in ((HERE, needs.build), (target, needs.host), (target, needs.run)):
        specs = [spec for spec in specs if not spec.startswith("__")]
        try:
            asyncio.run(solve(specs, platform_, channels=channels))
        except rattler.exceptions.SolverError as error:
            return f"{', '.join(specs)} for {platform_}: {error}"
        except (rattler.exceptions.GatewayError, rattler.exceptions.FetchRepoDataError):
            return ""  # a disk that is full, and not what was asked for
    return ""


def build(outputs: list[rattler_build.RenderedVariant], folder: Path, channels: list[Path], target: str, title: str) -> list[Path]:
    """Builds and tests outputs, in order, into a channel."""
    packages = []
    terminal = sys.stderr.isatty()
    with tqdm(outputs, title, file=sys.stderr, disable=not terminal, leave=False) as bar:
        for number, output in enumerate(bar, 1):
            name, log, start = file_name(output), Log(), time.monotonic()
            bar.set_postfix_str(name)
            try:
                result = output.run_build(
                    tool_config=rattler_build.ToolConfiguration(test_strategy="native-and-emulated"),
                    output_dir=folder,
                    channels=[channel.as_uri() for channel in channels],
                    package_format="conda",
                    no_build_id=True,  # the path of the build is in some files, and a longer one changes them
                    no_include_recipe=True,  # with it goes a note of this machine's CPU and kernel
                    progress_callback=log,
                )
            except rattler_build.RattlerBuildError as error:
                bar.close()
                print("\n".join(log.lines[-LAST_LINES:]), file=sys.stderr)
                reason = " ".join((unsolvable(output, target, [folder, *channels]) or str(error)).split())
                raise PackageError(f"{name} for {target} could not be built or failed its tests: {reason}") from None
            packages += result.packages
            if not terminal:
                print(f"{title} [{number}/{len(outputs)}] {name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    return packages


def make_base_channel() -> None:
    if subprocess.run([sys.executable, TOP / "tools/base_channel.py", BASE], check=False).returncode != 0:
        raise PackageError("the base channel could not be made")


def make_toolchain_channel(glibc: dict[str, str], scratch: Path) -> None:
    """Compilers and emulators under conda-forge's names; made anew each time, since it takes seconds and names paths of this machine."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        raise PackageError("the Python package ziglang is missing: pip install ziglang")
    variants = rattler_build.VariantConfig(
        {
            "compiler": list(TOOLCHAINS),
            "cross": list(VARIANTS),
            "glibc": sorted(set(glibc.values())),
            "program": ["make", "pkg-config", "qemu-execve-aarch64", "qemu-execve-arm"],
            "zig": [str(Path(found.origin).parent / "zig")],
            "zig_cache": [str(BUILD / "zig-cache")],
            "zig_glibc": [glibc["zig"]],
        }
    )
    built = build(render(TOP / "recipe/toolchain/recipe.yaml", variants, HERE), scratch / "toolchain", [], HERE, "toolchain")
    replace(TOOLCHAIN, prepare(TOOLCHAIN, built, scratch))


def make_suite(target: str, toolchain: str, glibc: str, folder: Path, noarch: bool) -> None:
    """Every package of one platform; those that fit all platforms only if `noarch`."""
    file = VARIANTS[target]
    try:
        variants = rattler_build.VariantConfig.from_file_with_context(file, rattler_build.JinjaConfig(platform=config(target)))
    except rattler_build.RattlerBuildError:
        raise PackageError(f"{file} is not a table of variants") from None
    local = {"c_compiler": [toolchain], "c_stdlib_version": [glibc], "python_min": [base_python()], "build_platform": [HERE]}
    outputs = render(TOP / "recipe/recipe.yaml", variants.merge(rattler_build.VariantConfig(local)), target)
    build([output for output in outputs if noarch or output.recipe.build.noarch is None], folder, [BASE, TOOLCHAIN], target, target)


def base_python() -> str:
    """The only Python that the base channel has: packages are tested with it, and so claim to need no less."""
    names = [path.name for path in (BASE / HERE).glob("python-3.*.conda")]
    if not names:
        raise PackageError(f"there is no Python in {BASE / HERE}")
    return re.sub(r"python-(\d+\.\d+).*", r"\1", names[0])


def epoch() -> int:
    """The time that packages carry: SOURCE_DATE_EPOCH, or that of the last commit, or of the recipe."""
    if value := os.environ.get("SOURCE_DATE_EPOCH"):
        if not value.isdecimal() or int(value) >= 2**32:
            raise PackageError(f"SOURCE_DATE_EPOCH is {value!r}, not a number of seconds from 1970 to 2106")
        return int(value)
    git = subprocess.run(
        ["git", "-c", f"safe.directory={TOP}", "-C", TOP, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return int(git.stdout) if git.returncode == 0 and git.stdout.strip() else int((TOP / "recipe/recipe.yaml").stat().st_mtime)


def settle(package: Path, target: Path, seconds: int) -> None:
    """Writes a package anew without what differs from build to build: rattler-build notes the time, and the addresses of the channels."""

    def member(info: tarfile.TarInfo, content: bytes | None) -> tuple[tarfile.TarInfo, bytes | None]:
        info.mtime = seconds
        for name, changed in (("info/index.json", {"timestamp": seconds * 1000}), ("info/about.json", {"channels": []})):
            if info.name == name:
                content = json.dumps({**json.loads(content or b""), **changed}, indent=2).encode()
        info.size = len(content) if content is not None else 0
        return info, content

    date = time.gmtime(max(seconds, 315532800))[:6]  # a zip file knows no time before 1980
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".tar.zst"):
                plain = io.BytesIO()
                source = zstandard.ZstdDecompressor().stream_reader(data)
                with (
                    tarfile.open(fileobj=source, mode="r|") as tar,
                    tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as out,
                ):
                    for info in tar:
                        file = tar.extractfile(info) if info.isfile() else None
                        info, content = member(info, file.read() if file else None)
                        out.addfile(info, io.BytesIO(content) if content is not None else None)
                data = zstandard.ZstdCompressor(level=19).compress(plain.getvalue())
            new.writestr(zipfile.ZipInfo(entry.filename, date), data)


def prepare(channel: Path, packages: list[Path], scratch: Path) -> Path:
    """Writes a channel with these packages in place of all that the old one has for their platforms, ready to take its place."""
    seconds, replaced = epoch(), {package.parent.name for package in packages}
    fresh = scratch / f"{channel.name}.new"
    (fresh / "noarch").mkdir(parents=True)
    for kept in channel.glob("*/*.conda"):
        if kept.parent.name not in replaced:
            (fresh / kept.parent.name).mkdir(exist_ok=True)
            os.link(kept, fresh / kept.parent.name / kept.name)
    for package in packages:
        (fresh / package.parent.name).mkdir(exist_ok=True)
        settle(package, fresh / package.parent.name / package.name, seconds)
    try:
        asyncio.run(index_fs(fresh, write_zst=False, write_shards=False, force=True))
    except Exception as error:  # whatever is wrong with a package that was there, it is one sentence
        raise PackageError(f"{channel} cannot be indexed ({' '.join(str(error).split())[:200]}): remove that folder") from None
    shutil.rmtree(fresh / ".tmp", ignore_errors=True)  # of the indexer
    return fresh


def killable(work: Callable[[], object]) -> bool:
    """Runs work in a process that can be ended with all it has started: rattler-build does not stop for a signal. False after a failure."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(report(work))
    try:
        return os.waitpid(child, 0)[1] == 0
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def report(work: Callable[[], object]) -> int:
    """Runs work and says what went wrong, in one sentence; returns the exit status."""
    status = 1
    try:
        work()
        status = 0
    except KeyboardInterrupt:
        print("package.py: interrupted; the channel is as it was", file=sys.stderr)
        status = 130
    except Reported:
        pass
    except (PackageError, rattler_build.RattlerBuildError, OSError) as error:
        print(f"package.py: {error}; the channel is as it was", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def package(platforms: list[str], toolchain: str) -> None:
    # zig has the stubs of every C library; Debian's GCC builds for Debian's own.
    glibc = {"zig": "2.17", "gcc": platform.libc_ver()[1]}
    scratch = BUILD / "package"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    if subprocess.run(
        [TOP / "tools/prepare.sh", "package" if platforms == [HERE] and toolchain == "zig" else "test"], check=False
    ).returncode:
        raise PackageError("the system lacks programs that building packages takes")
    make_base_channel()

    def build_all() -> None:
        make_toolchain_channel(glibc, scratch)
        for number, target in enumerate(platforms):
            make_suite(target, toolchain, glibc[toolchain], scratch / "suite", noarch=number == 0)

    if not killable(build_all):
        raise Reported
    built = sorted((scratch / "suite").glob("*/*.conda"))
    fresh = prepare(CHANNEL, built, scratch)
    # Between the two renames there is no channel, and after them it is not as it was: nothing may end the program from here on.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    replace(CHANNEL, fresh)
    shutil.rmtree(scratch, ignore_errors=True)
    print(f"{len(built)} packages in {CHANNEL.relative_to(TOP)}", file=sys.stderr)


def locked(work: Callable[[], None]) -> None:
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / "package.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PackageError("another build of packages is running in this checkout") from None
        work()


def stop(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", choices=[*VARIANTS, "all"], default=HERE, help="default: this machine's")
    parser.add_argument("--toolchain", choices=TOOLCHAINS, default="zig", help="zig builds for an old C library, gcc for this Debian's")
    arguments = parser.parse_args()
    if HERE != "linux-64":
        print(f"package.py: packages are built on linux-64, and this is {HERE}", file=sys.stderr)
        return 1
    if not re.fullmatch(r"[\w./+@=~-]+", str(TOP), re.ASCII):
        print(
            f"package.py: {TOP} has a space or other letters than ASCII: compilers and pkg-config do not work below such a path",
            file=sys.stderr,
        )
        return 1
    for number in SIGNALS:
        signal.signal(number, stop)
    platforms = list(VARIANTS) if arguments.platform == "all" else [arguments.platform]
    return report(lambda: locked(lambda: package(platforms, arguments.toolchain)))


if __name__ == "__main__":
    os._exit(main())  # py-rattler sometimes aborts when the interpreter ends
