# SPDX-License-Identifier: BSD-3-Clause
"""From features to builds, as the guard of each build decides, and what an override stands for."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import NamedTuple

from .errors import EXIT_USAGE, Refusal
from .table import BASELINE, BUILDS, CPUS, Build

VARIABLE = "CONDA_OVERRIDE_ARCHSPEC"


class Verdict(NamedTuple):
    build: Build
    missing: tuple[str, ...]


class Decision(NamedTuple):
    """Every build of the architecture, best first, with what is missing."""

    architecture: str
    features: frozenset[str]
    verdicts: tuple[Verdict, ...]

    @property
    def runnable(self) -> list[str]:
        return [verdict.build.isa for verdict in self.verdicts if not verdict.missing]

    @property
    def best(self) -> str | None:
        return next(iter(self.runnable), None)


def decide(arch: str, features: Collection[str]) -> Decision:
    verdicts = (Verdict(b, tuple(name for name in b.features if name not in features)) for b in BUILDS[arch])
    return Decision(arch, frozenset(features), tuple(verdicts))


def overridden(arch: str, cpu: str) -> Decision:
    """What the package solver chooses for a CPU name; for an empty one, that is without any, the baseline.

    The name stands for the features of the build that is chosen, no more.
    """
    if cpu and cpu not in CPUS[arch]:
        raise Refusal(EXIT_USAGE, _unknown(arch, cpu))
    isa = CPUS[arch][cpu] if cpu else BASELINE[arch]
    return decide(arch, next(b.features for b in BUILDS[arch] if b.isa == isa))


def _unknown(arch: str, cpu: str) -> str:
    names = list(CPUS[arch])
    others = [other for other in CPUS if cpu in CPUS[other]]
    if others:
        problem = f"is a CPU of {others[0]}, and this is {arch}"
    else:
        # The names are all in small letters, and clients tell the cases apart.
        near = difflib.get_close_matches(cpu.lower(), names, 3)
        problem = f"is no CPU name of {arch}" + (f" (did you mean {' or '.join(near)}?)" if near else "")
    return f"{VARIABLE}={cpu!r} {problem}; expected one of {', '.join(names)}, or nothing"
