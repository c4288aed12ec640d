#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes a conda environment from local channels, with a real solver and no outside channel.

    tools/environment.py PREFIX SPEC... [--channel FOLDER]... [--platform NAME] [--archspec CPU]

Without --channel from build/channel and build/base-channel. For another platform the result is only unpacked: run it with an emulator.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import rattler
import rattler.exceptions

TOP = Path(__file__).resolve().parent.parent
CHANNELS = (TOP / "build/channel", TOP / "build/base-channel")
# The CPU that a solver sees if nobody says another, as every client gives it: the family.
FAMILY = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-armv7l": "arm"}

# They have no class in common.
RATTLER_ERRORS = tuple(kind for kind in vars(rattler.exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception))


def virtual_packages(platform: str, archspec: Optional[str], glibc: str = "2.36") -> list[rattler.GenericVirtualPackage]:
    """What a client would say of a Linux machine; archspec "" leaves the CPU out, as CONDA_OVERRIDE_ARCHSPEC="" does."""
    cpu = FAMILY[platform] if archspec is None else archspec
    found = [("__unix", "0", "0"), ("__linux", "6.1", "0"), ("__glibc", glibc, "0"), *([("__archspec", "1", cpu)] if cpu else [])]
    return [
        rattler.GenericVirtualPackage(rattler.PackageName(name), rattler.Version(version), rattler.BuildString(build))
        for name, version, build in found
    ]


async def solve(
    specs: Sequence[str],
    platform: str,
    archspec: Optional[str] = None,
    channels: Sequence[Path] = CHANNELS,
    gateway: Optional[rattler.Gateway] = None,
    **options: object,
) -> list[rattler.RepoDataRecord]:
    """The packages that fulfil the specs. Raises rattler.exceptions.SolverError, whose text says why there are none."""
    return await rattler.solve(
        sources=[rattler.Channel(channel.resolve().as_uri()) for channel in channels if channel.exists()],
        specs=[rattler.MatchSpec(spec) for spec in specs],
        platforms=[platform, "noarch"],
        virtual_packages=virtual_packages(platform, archspec),
        gateway=gateway or rattler.Gateway(cache_dir=cache() / "repodata"),
        **options,  # type: ignore[arg-type]
    )


def cache() -> Path:
    return TOP / "build/package-cache"


async def create(
    prefix: Path, specs: Sequence[str], platform: str, archspec: Optional[str] = None, channels: Sequence[Path] = CHANNELS
) -> None:
    """Solves and installs. An environment that the prefix had before is gone; anything else there is an error."""
    prefix = prefix.absolute()  # scripts have it in their first line
    records = await solve(specs, platform, archspec, channels)
    if (prefix / "conda-meta").is_dir():
        shutil.rmtree(prefix)
    elif prefix.exists() and (not prefix.is_dir() or any(prefix.iterdir())):
        raise FileExistsError(f"{prefix} is there and is no environment: remove it or choose another folder")
    await rattler.install(
        records,
        target_prefix=prefix,
        platform=rattler.Subdir(platform),
        cache_dir=cache(),
        show_progress=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", type=Path)
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    parser.add_argument("--channel", type=Path, action="append", help="default: build/channel and build/base-channel")
    parser.add_argument("--platform", choices=FAMILY, default="linux-64")
    parser.add_argument("--archspec", help="CPU name for the solver; default: any of the platform")
    arguments = parser.parse_args()
    channels = arguments.channel or CHANNELS
    if missing := [str(channel) for channel in channels if not channel.is_dir()]:
        print(f"environment.py: there is no channel {', '.join(missing)}: run make package", file=sys.stderr)
        return 1
    if not any((channel / arguments.platform).is_dir() for channel in channels):
        print(
            f"environment.py: no channel has packages of {arguments.platform}: run make package PLATFORM={arguments.platform}",
            file=sys.stderr,
        )
        return 1
    try:
        asyncio.run(create(arguments.prefix, arguments.specs, arguments.platform, arguments.archspec, channels))
    except (OSError, *RATTLER_ERRORS) as error:
        print(f"environment.py: {' '.join(arguments.specs)} for {arguments.platform}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # py-rattler sometimes aborts when the interpreter ends
