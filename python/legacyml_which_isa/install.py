# SPDX-License-Identifier: BSD-3-Clause
"""Puts the package of a build into the active environment, with whatever client manages it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .errors import EXIT_INTERRUPTED, EXIT_IO, EXIT_USAGE, Refusal
from .table import BUILDS

VARIANTS = {f"legacyml-{build.isa}" for builds in BUILDS.values() for build in builds}
METAPACKAGE = "legacyml"  # depends on the variant that the solver chose
LIBRARY = "liblegacyml"
SELECTOR = "legacyml-which-isa"


class Record(NamedTuple):
    """An installed package."""

    name: str
    version: str
    build: str
    channel: str


class Plan(NamedTuple):
    remove: list[str] | None
    install: list[str]
    restore: list[str] | None  # undoes `remove`


def shown(command: Sequence[str]) -> str:
    return subprocess.list2cmdline(command) if os.name == "nt" else " ".join(map(shlex.quote, command))


def installed(prefix: Path) -> dict[str, Record]:
    """Our packages in an environment, by name."""
    records = {}
    try:
        paths = [path for path in sorted((prefix / "conda-meta").iterdir()) if re.fullmatch(r"(lib)?legacyml.*\.json", path.name)]
        for path in paths:
            data = json.loads(path.read_text(encoding="utf-8"))
            record = Record(data["name"], data["version"], data["build"], str(data.get("channel") or ""))
            records[record.name] = record
    except OSError as error:
        raise Refusal(
            EXIT_IO, f"CONDA_PREFIX={prefix} is not an environment that can be read: {error.filename}: {error.strerror}"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise Refusal(EXIT_IO, f"{path} is not the record of a package; expected JSON with name, version and build") from None
    return records


def channel(records: Mapping[str, Record], variants: Sequence[str]) -> list[str]:
    """The option that names the channel our packages came from: the client need not have it configured.

    What has credentials in it is configured at the client, and is not for the screen.
    """
    for name in (SELECTOR, *variants, LIBRARY):
        if name in records:
            found = re.sub(r"/(noarch|(linux|osx|win)-[a-z0-9_]+)/*$", "", records[name].channel)
            private = "@" in found or "/t/" in found or "<" in found
            return ["-c", found] if ("://" in found or os.path.isabs(found)) and not private else []
    return []


# -- conda, mamba, micromamba ------------------------------------------------------------------------------------------------


def find_client(environ: Mapping[str, str]) -> str | None:
    for variable in ("MAMBA_EXE", "CONDA_EXE"):
        path = environ.get(variable, "")
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    for name in ("mamba", "micromamba", "conda"):
        found = shutil.which(name, path=environ.get("PATH", os.defpath))
        if found:
            return found
    return None


def conda_plan(client: str, prefix: Path, package: str, records: Mapping[str, Record]) -> Plan:
    others = [name for name in sorted(records) if name in VARIANTS and name != package]
    options = ["--yes", "-p", str(prefix)]
    source = channel(records, others)
    install = [client, "install", *options, *source, package]
    if not others:
        return Plan(None, install, None)
    # conda refuses a second variant next to one that was asked for. --force takes away these packages, which hold no files, and
    # nothing else: without it clients clean up what only they needed, Python and this program included.
    gone = [name for name in (METAPACKAGE, *others) if name in records]
    back = ["=".join(records[name][:3]) for name in gone]
    return Plan([client, "remove", "--force", *options, *gone], install, [client, "install", *options[1:], *source, *back])


# -- pixi --------------------------------------------------------------------------------------------------------------------


def pixi_manifest(environ: Mapping[str, str], prefix: Path) -> Path | None:
    """The manifest of an environment that pixi manages; None where it is another client's."""
    note = prefix / "conda-meta" / "pixi"  # pixi writes it, with the path of the manifest
    inside = prefix.parent.name == "envs" and prefix.parent.parent.name == ".pixi"
    if not inside and not note.exists():
        history = prefix / "conda-meta" / "history"  # pixi leaves it empty: another environment activated in a pixi shell
        if not (environ.get("PIXI_PROJECT_MANIFEST") or environ.get("PIXI_PROJECT_ROOT")) or (history.exists() and history.stat().st_size):
            return None
    candidates = []
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        candidates.append(Path(json.loads(note.read_text(encoding="utf-8"))["manifest_path"]))
    if inside:
        root = prefix.parent.parent.parent
        candidates += [root / "pixi.toml", root / "pyproject.toml"]
    else:
        candidates += [Path(environ[name]) for name in ("PIXI_PROJECT_MANIFEST",) if environ.get(name)]
        candidates += [Path(environ[name]) / "pixi.toml" for name in ("PIXI_PROJECT_ROOT",) if environ.get(name)]
    for path in candidates:
        if path.is_file():
            return path
    raise Refusal(EXIT_IO, f"pixi manages {prefix}, and its manifest is not there; expected {' or '.join(map(str, candidates))}")


def manifest_entries(manifest: Path) -> dict[str, str]:
    """The table of a pixi manifest in which each of our packages is asked for. Reads just enough of TOML: Python 3.9 has no parser."""
    try:
        lines = manifest.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise Refusal(EXIT_IO, f"{manifest} cannot be read: {error}") from None
    table, entries = "", {}
    for line in lines:
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = header[1].strip()
        elif entry := re.match(r"\s*[\"']?(legacyml(?:-\w+)?)[\"']?\s*=", line):
            if entry[1] in {*VARIANTS, METAPACKAGE} and table.endswith("dependencies"):
                entries[entry[1]] = table
    return entries


def pixi_plan(environ: Mapping[str, str], manifest: Path, prefix: Path, package: str, records: Mapping[str, Record]) -> Plan:
    if prefix.name != "default":
        raise Refusal(
            EXIT_IO,
            f"{prefix.name} is an environment of {manifest} that is made of features, and which one gets {package} is for you to say: "
            f"pixi add --manifest-path {shown([str(manifest)])} --feature FEATURE {package}",
        )
    client = environ.get("PIXI_EXE", "")
    client = client if client and os.path.isfile(client) else shutil.which("pixi", path=environ.get("PATH", os.defpath)) or ""
    place = ["--manifest-path", str(manifest)]
    install = [client or "pixi", "add", *place, package]
    if not client:
        raise Refusal(EXIT_IO, f"pixi manages this environment, and there is no pixi in PATH; by hand: {shown(install)}")
    # pixi removes only what the manifest asks for; what else is installed goes by itself.
    entries = {name: table for name, table in manifest_entries(manifest).items() if name != package}
    for name, table in entries.items():
        if table not in ("dependencies", "tool.pixi.dependencies"):
            raise Refusal(EXIT_IO, f"{manifest} asks for {name} in [{table}]; change it there to {package}")
    if not entries:
        return Plan(None, install, None)
    gone = sorted(entries)
    back = [f"{name}=={records[name].version}" if name in records else name for name in gone]
    # --no-install: in between the environment is left as it is, with the Python that runs this.
    return Plan([client, "remove", "--no-install", *place, *gone], install, [client, "add", *place, *back])


# -- Doing it ----------------------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _agreed() -> bool:
    print("Proceed? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        _say("")
    return answer.strip().lower() in ("y", "yes")


def _run(command: list[str], afterwards: str) -> None:
    try:
        status = subprocess.run(command, check=False).returncode
    except OSError as error:
        raise Refusal(EXIT_IO, f"{command[0]} cannot be started: {error.strerror}; {afterwards}") from None
    except KeyboardInterrupt:
        raise Refusal(EXIT_INTERRUPTED, f"interrupted: {shown(command)}; {afterwards}") from None
    if status:
        raise Refusal(EXIT_IO, f"{shown(command)} failed with status {status}; {afterwards}")


def install(isa: str, environ: Mapping[str, str], yes: bool) -> None:
    """Installs legacyml-<isa>. Raises Refusal."""
    package = f"legacyml-{isa}"
    if not environ.get("CONDA_PREFIX"):
        raise Refusal(
            EXIT_IO, f"no environment is active (CONDA_PREFIX is not set): activate one, or name one: conda install -n NAME {package}"
        )
    prefix = Path(environ["CONDA_PREFIX"])
    records = installed(prefix)
    if package in records and LIBRARY in records and records[LIBRARY].build.startswith(f"{isa}_h"):
        _say(f"{package} {records[package].version}, the one for this CPU, is installed already in {prefix}")
        return
    manifest = pixi_manifest(environ, prefix)
    if manifest is not None:
        plan = pixi_plan(environ, manifest, prefix, package, records)
    else:
        client = find_client(environ)
        plan = conda_plan(client or "conda", prefix, package, records)
        if client is None:
            commands = [shown(command) for command in (plan.remove, plan.install) if command]
            raise Refusal(
                EXIT_IO, f"neither MAMBA_EXE, CONDA_EXE nor PATH has a mamba, micromamba or conda; by hand: {' && '.join(commands)}"
            )
    for command in (plan.remove, plan.install):
        if command:
            _say(f"  {shown(command)}")
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise Refusal(EXIT_USAGE, "standard input is no terminal to ask on: add --yes to run this")
        if not _agreed():
            _say("nothing was changed")
            return
    if plan.remove:
        _run(plan.remove, "nothing else was done")
    undo = f"what was there before is removed, and this brings it back: {shown(plan.restore)}" if plan.restore else "nothing else was done"
    _run(plan.install, undo)
