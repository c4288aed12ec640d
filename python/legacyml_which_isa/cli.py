# SPDX-License-Identifier: BSD-3-Clause
"""The command line: one word on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import cpu
from .decide import VARIABLE, Decision, decide, overridden
from .errors import EXIT_CPU, EXIT_INTERRUPTED, EXIT_IO, Refusal
from .install import install
from .table import FEATURES
from .version import __version__

PROGRAM = "legacyml-which-isa"
PLACES = {"cpuinfo": "/proc/cpuinfo", "hwcap": "AT_HWCAP", "sysctl": "sysctl", "kernel32": "IsProcessorFeaturePresent"}


class Answer(NamedTuple):
    decision: Decision
    source: str
    override: str | None
    warnings: tuple[str, ...]


def _answer(host: cpu.Host, environ: Mapping[str, str]) -> Answer:
    arch = cpu.architecture(host)
    override = environ.get(VARIABLE)
    if override is None:
        facts = cpu.read(host)
        return Answer(decide(arch, facts.features), facts.source, None, facts.warnings)
    decision = overridden(arch, override)
    try:
        facts = cpu.read(host)
    except Refusal as unread:
        return Answer(decision, "override", override, (f"{VARIABLE}={override} is not compared with this CPU: {unread}",))
    missing = decision.features - facts.features - facts.untold
    warnings = (
        (f"{VARIABLE}={override} gives {decision.best}, which this CPU cannot run: it lacks {cpu.texts(arch, missing)}",) if missing else ()
    )
    return Answer(decision, "override", override, warnings)


def _place(name: str, arch: str, source: str) -> str:
    """A feature and where the system tells of it."""
    feature = next(f for f in FEATURES[arch] if f.name == name)
    if source == "hwcap":
        return f"{feature.text} (bit {feature.hwcap})"
    if source == "cpuinfo":
        return f"{feature.text} ({feature.cpuinfo})"
    if source == "sysctl" and feature.sysctl:
        return f"{feature.text} ({feature.sysctl})"
    return feature.text


def explain(answer: Answer) -> list[str]:
    """Which feature bits decided: from the best build down to the one that fits."""
    arch = answer.decision.architecture
    if answer.override is not None:
        name = f"{VARIABLE}={answer.override}"
        cpu_name = "this CPU name" if answer.override else "no CPU name: the baseline"
        return [f"{arch}, by {name}", f"{answer.decision.best}: what the package solver chooses for {cpu_name}"]
    lines = [f"{arch}, by {PLACES[answer.source]}"]
    for build, missing in answer.decision.verdicts:
        if missing:
            lines.append(f"{build.isa}: no, lacks {', '.join(_place(name, arch, answer.source) for name in missing)}")
            continue
        has = ", ".join(_place(name, arch, answer.source) for name in build.features)
        lines.append(f"{build.isa}: yes, has {has}" if has else f"{build.isa}: yes, every {arch} CPU runs it")
        break
    return lines


def _json(answer: Answer, host: cpu.Host) -> str:
    decision = answer.decision
    return json.dumps(
        {
            "platform": cpu.PLATFORMS[host.system, decision.architecture],
            "architecture": decision.architecture,
            "source": answer.source,
            "override": answer.override,
            "features": [f.name for f in FEATURES[decision.architecture] if f.name in decision.features],
            "isa": decision.best,
            "package": f"legacyml-{decision.best}",
            "all": decision.runnable,
            "builds": [
                {
                    "isa": build.isa,
                    "package": f"legacyml-{build.isa}",
                    "summary": build.summary,
                    "needs": list(build.features),
                    "missing": list(missing),
                }
                for build, missing in decision.verdicts
            ],
            "warnings": list(answer.warnings),
        },
        indent=2,
    )


class _Parser(argparse.ArgumentParser):
    def _print_message(self, message: str, file: Any = None) -> None:
        """Without argparse's own silence where help or version cannot be written."""
        print(message, end="", file=file or sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Print the best build of legacyml for this CPU.",
        epilog=f"{VARIABLE}, as for the package clients, names another CPU; empty means none, which gives the baseline. "
        "Exit status: 0 done, 2 usage, 3 what is needed cannot be read, written or run, 7 no build runs on this CPU, 130 interrupted.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--package", action="store_true", help="print the name of its package")
    what.add_argument("--all", action="store_true", help="print every build that this CPU can run, best first")
    what.add_argument("--json", action="store_true", help="print everything that is known, as one object")
    what.add_argument("--explain", action="store_true", help="print which features of the CPU decided")
    what.add_argument("--install", action="store_true", help="install its package into the active environment")
    parser.add_argument("--yes", action="store_true", help="with --install: do not ask")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


def _run(argv: Sequence[str] | None, host: cpu.Host, environ: Mapping[str, str]) -> None:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.yes and not arguments.install:
        parser.error("--yes goes with --install")
    answer = _answer(host, environ)
    for warning in answer.warnings:
        print(f"{PROGRAM}: warning: {warning}", file=sys.stderr)
    decision = answer.decision
    if arguments.explain:
        print("\n".join(explain(answer)))
    if decision.best is None:
        missing = cpu.texts(decision.architecture, decision.verdicts[-1].missing)
        raise Refusal(
            EXIT_CPU, f"no build of legacyml runs on this CPU: it lacks {missing}, which every build of {decision.architecture} needs"
        )
    if arguments.package:
        print(f"legacyml-{decision.best}")
    elif arguments.all:
        print("\n".join(decision.runnable))
    elif arguments.json:
        print(_json(answer, host))
    elif arguments.install:
        install(decision.best, environ, arguments.yes)
    elif not arguments.explain:
        print(decision.best)


def _discard_output() -> None:
    """What cannot be written would be tried again when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None, host: cpu.Host | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Runs the program; returns its exit status."""
    if sys.stderr is None:  # closed by the caller; print() would turn to stdout
        sys.stderr = open(os.devnull, "w")
    status = 0
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            _run(argv, host or cpu.Host.here(), os.environ if environ is None else environ)
        except SystemExit as stop:  # of argparse
            status = int(stop.code or 0)
        except Refusal as refusal:
            print(f"{PROGRAM}: {refusal}", file=sys.stderr)
            status = refusal.status
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        print(f"{PROGRAM}: standard output: writing failed: {error.strerror}", file=sys.stderr)
        status = EXIT_IO
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        status = EXIT_INTERRUPTED
    return status
