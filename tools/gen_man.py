#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the manual pages in docs/man from what the programs say of themselves.

tools/gen_man.py FOLDER          the folder of a build: build/avx2
tools/gen_man.py --check FOLDER  write nothing, exit 1 and name the pages that are out of date
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PAGES = {
    "ml_run": "generate text with a small language model",
    "ml_bench": "measure the kernels of a build, or a model with it",
}


def escaped(text: str) -> str:
    """Text for troff: - as people type it, no accidental requests."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.splitlines())


def page(program: str, about: str, version: str, text: str) -> str:
    """The page for a program's --help: usage, paragraphs, options (`  -x  what it does`), and last what the exit status says."""
    usage, _, rest = text.partition("\n")
    usage = re.sub(rf"^(usage: )?{program} ?", "", usage)
    paragraphs, options, status = [""], [], ""
    for line in rest.splitlines():
        option = re.match(r"  +(-\S.*?)  +(\S.*)", line)
        if option:
            options.append(option.groups())
        elif line.startswith("Exit status: ") or status:
            status += " " + line.removeprefix("Exit status: ")
        elif line:
            paragraphs[-1] += line.strip() + "\n"
        else:
            paragraphs.append("")
    lines = [f'.\\" written by tools/gen_man.py from {program} --help', f'.TH {program.upper()} 1 "" "legacyml {version}" "User Commands"']
    lines += [".SH NAME", f"{program} \\- {about}", ".SH SYNOPSIS", f".B {program}", escaped(usage), ".SH DESCRIPTION"]
    lines += "\n.PP\n".join(escaped(paragraph.strip()) for paragraph in paragraphs if paragraph).splitlines()
    lines.append(".SH OPTIONS")
    for option, what in options:
        lines += [".TP", f".B {escaped(option)}", escaped(what)]
    if status:
        lines += [".SH EXIT STATUS", escaped(status.strip())]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which pages are out of date")
    parser.add_argument("folder", type=Path, help="where ml_run and ml_bench are")
    arguments = parser.parse_args()
    header = (TOP / "src/include/legacyml.h").read_text()
    version = re.findall(r'define LEGACYML_VERSION "(.*)"', header)[0]
    stale = 0
    for program, about in PAGES.items():
        text = subprocess.run([arguments.folder / program, "--help"], check=True, capture_output=True, text=True).stdout
        path, new = TOP / f"docs/man/{program}.1", page(program, about, version, text)
        if path.exists() and path.read_text() == new:
            continue
        if arguments.check:
            print(f"out of date: {path.relative_to(TOP)}; run tools/gen_man.py {arguments.folder}", file=sys.stderr)
            stale = 1
        else:
            path.write_text(new)
    return stale


if __name__ == "__main__":
    sys.exit(main())
