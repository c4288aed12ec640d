#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes src/config/cpus.toml: what archspec's database says about the CPUs that a package solver may name.

    tools/gen_cpus.py          write the file; its serial goes up by one if a row changed
    tools/gen_cpus.py --check  write nothing, exit 1 if this archspec says otherwise

Run it when archspec has a new release, then tools/gen_isa.py. Needs archspec.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from importlib.metadata import version

import archspec.cpu

from gen_isa import CPUS, FAMILIES, load

HEAD = """\
# CPU names of archspec's database, which are the names that package solvers know (the build string of __archspec), with those of our features
# (isa.toml) that it gives them. Written by tools/gen_cpus.py.
#
# The serial is the version of the package _legacyml-cpu. It goes up with every change, also when isa.toml changes what a build needs: packages ask
# for one serial exactly, so that a wrong row can be withdrawn.
"""


def rows() -> dict[str, dict[str, list[str]]]:
    """Of each architecture the CPU names and their features, in the database's order: ancestors first."""
    features, _ = load()
    found: dict[str, dict[str, list[str]]] = {}
    for arch, family in FAMILIES.items():
        words = {f["name"]: f.get("archspec", f.get("cpuinfo", f["name"])) for f in features if f["arch"] == arch}
        found[arch] = {
            name: [feature for feature, word in words.items() if word in cpu]
            for name, cpu in archspec.cpu.TARGETS.items()
            if cpu.family.name == family
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the file is out of date")
    check = parser.parse_args().check
    now = rows()
    old = tomllib.loads(CPUS.read_text()) if CPUS.exists() else {"serial": 0}
    if now == {arch: old.get(arch) for arch in FAMILIES}:
        return 0
    if check:
        print(f"out of date with archspec {version('archspec')}: {CPUS.name}; run tools/gen_cpus.py", file=sys.stderr)
        return 1
    text = HEAD + f'serial = {old["serial"] + 1}\narchspec = "{version("archspec")}"\n'
    for arch, cpus in now.items():
        text += f"\n[{arch}]\n" + "".join(f'"{name}" = {features}\n'.replace("'", '"') for name, features in cpus.items())
    CPUS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
