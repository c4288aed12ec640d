#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the manual pages and the shell completions in docs from what the programs say of themselves.

tools/gen_man.py FOLDER          the folder of a build: build/avx2; Python must have what the Python programs need
tools/gen_man.py --check FOLDER  write nothing, exit 1 and name the files that are out of date
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PROGRAMS = {
    "ml_run": "generate text with a small language model",
    "ml_bench": "measure the kernels of a build, or a model with it",
    "legacyml-convert": "convert a checkpoint of a Llama-style model for ml_run",
    "legacyml-which-isa": "say which build of legacyml fits this CPU",
}


@dataclasses.dataclass
class Option:
    names: list[str]
    value: str  # what --help calls it, or {a,b}; "" = a flag
    what: str

    @property
    def choices(self) -> list[str]:
        """The words that the value may be: those in braces; for a NAME those between colon and bracket of the text."""
        if self.value == "NAME":
            return re.findall(r"[\w.-]+", self.what.partition(":")[2].partition("(")[0])
        return self.value[1:-1].split(",") if self.value.startswith("{") else []

    @property
    def takes_file(self) -> bool:
        return self.value in ("FILE", "FOLDER")


@dataclasses.dataclass
class Help:
    """A program's --help: usage, then paragraphs, options (`  -x VALUE  what it does`), and what the exit status says."""

    program: str
    usage: str = ""
    paragraphs: list[str] = dataclasses.field(default_factory=list)
    arguments: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    options: list[Option] = dataclasses.field(default_factory=list)
    status: str = ""


def ask(program: str, folder: Path) -> str:
    """What --help prints, on lines of any length."""
    command: list[str | Path] = [folder / program, "--help"]
    if program.startswith("legacyml-"):
        command = [sys.executable, "-m", program.replace("-", "_"), "--help"]
    environment = os.environ | {"COLUMNS": "500", "NO_COLOR": "1", "PYTHONPATH": str(TOP / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def read(program: str, text: str) -> Help:
    text = re.sub(r"^(  -\S+(?: \S+)*)\n {10,}(?=\S)", r"\1  ", text, flags=re.M)  # argparse breaks lines behind long options
    usage, _, rest = text.partition("\n")
    help_ = Help(program, re.sub(rf"^(usage: )?{program} ?", "", usage))
    paragraph: list[str] = []
    for line in [*rest.splitlines(), ""]:
        option = re.match(r"  +(-\S.*?)  +(\S.*)", line)
        argument = re.match(r"  (\S+)  +(\S.*)", line)
        if option:
            *others, last = option.group(1).split(", ")
            name, _, value = last.partition(" ")
            help_.options.append(Option([*others, name], value, option.group(2)))
        elif argument:
            help_.arguments.append((argument.group(1), argument.group(2)))
        elif line in ("positional arguments:", "options:", "optional arguments:"):
            continue
        elif line:
            paragraph.append(line.strip())
        elif paragraph:
            words, _, status = " ".join(paragraph).partition("Exit status: ")
            help_.paragraphs += [words.strip()] if words else []
            help_.status += status
            paragraph = []
    known = {name for option in help_.options for name in option.names}
    help_.options += [Option([name], "", "") for name in re.findall(r"\[(--[\w-]+)\]", usage) if name not in known]
    return help_


# -- Manual pages ----------------------------------------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """Text for troff: - as people type it, no accidental requests."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def page(help_: Help, about: str, version: str) -> str:
    program = escaped(help_.program)
    lines = [f'.\\" written by tools/gen_man.py from {help_.program} --help']
    lines += [f'.TH {help_.program.upper()} 1 "" "legacyml {version}" "User Commands"']
    lines += [".SH NAME", f"{program} \\- {about}", ".SH SYNOPSIS", f".B {program}", escaped(help_.usage), ".SH DESCRIPTION"]
    lines += "\n.PP\n".join(map(escaped, help_.paragraphs)).splitlines()
    for name, what in help_.arguments:
        lines += [".TP", f".I {escaped(name)}", escaped(what)]
    lines.append(".SH OPTIONS")
    for option in help_.options:
        if option.what:  # the others are in the synopsis only
            names = ", ".join(option.names) + (" " + option.value if option.value else "")
            lines += [".TP", f".B {escaped(names)}", escaped(option.what)]
    if help_.status:
        lines += [".SH EXIT STATUS", escaped(help_.status)]
    return "\n".join(lines) + "\n"


# -- Completion ------------------------------------------------------------------------------------------------------------------


def takes_model(help_: Help) -> bool:
    return "MODEL.mlb" in help_.usage


def bash(help_: Help) -> str:
    function = "_" + help_.program.replace("-", "_")
    lines = [f"# SPDX-License-Identifier: BSD-3-Clause\n# written by tools/gen_man.py from {help_.program} --help", f"{function}() {{"]
    lines += [
        "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}",
        "  # bash takes --option=value apart",
        '  if [[ $word == "=" ]]; then word=; elif [[ $before == "=" ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi',
        "  COMPREPLY=()",
        "  case $before in",
    ]
    files = [name for option in help_.options if option.takes_file for name in option.names]
    others = [name for o in help_.options if o.value and not o.takes_file and not o.choices for name in o.names]
    for option in help_.options:
        if option.choices:
            words = " ".join(option.choices)
            lines.append(f"  {'|'.join(option.names)}) mapfile -t COMPREPLY < <(compgen -W '{words}' -- \"$word\"); return ;;")
    if files:
        lines.append(f'  {"|".join(files)}) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;')
    if others:
        lines.append(f"  {'|'.join(others)}) return ;;")
    names = " ".join(name for option in help_.options for name in option.names)
    lines += ["  esac", "  if [[ $word == -* ]]; then", f"    mapfile -t COMPREPLY < <(compgen -W '{names}' -- \"$word\")"]
    if takes_model(help_):
        lines += ["  else", '    mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X "!*.mlb" -- "$word")']
    elif help_.arguments:
        lines += ["  else", '    mapfile -t COMPREPLY < <(compgen -f -- "$word")']
    return "\n".join([*lines, "  fi", "}", f"complete -o filenames -F {function} {help_.program}"]) + "\n"


def zsh(help_: Help) -> str:
    def quoted(text: str) -> str:
        return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")

    lines = [
        f"#compdef {help_.program}",
        "# SPDX-License-Identifier: BSD-3-Clause",
        f"# written by tools/gen_man.py from {help_.program} --help",
    ]
    lines.append("_arguments \\")
    for option in help_.options:
        for name in option.names:
            equals = "=" if option.value and name.startswith("--") else ""
            line = ("*" if "more than once" in option.what else "") + name + equals
            line += f"[{quoted(option.what)}]" if option.what else ""
            if option.choices:
                line += f":value:({' '.join(option.choices)})"
            elif option.value:
                line += f":{quoted(option.value)}:{'_files' if option.takes_file else ''}"
            lines.append(f"  '{line}' \\")
    if takes_model(help_):
        lines.append("  '*:model:_files -g \"*.mlb(-.)\"'")
    elif help_.arguments:
        lines.append("  '*:file:_files'")
    else:
        lines[-1] = lines[-1].removesuffix(" \\")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say which files are out of date")
    parser.add_argument("folder", type=Path, help="where ml_run and ml_bench are")
    arguments = parser.parse_args()
    header = (TOP / "src/include/legacyml.h").read_text()
    version = re.findall(r'define LEGACYML_VERSION "(.*)"', header)[0]
    stale = 0
    for program, about in PROGRAMS.items():
        help_ = read(program, ask(program, arguments.folder))
        made = {f"man/{program}.1": page(help_, about, version)}
        made |= {f"completion/bash/{program}": bash(help_), f"completion/zsh/_{program}": zsh(help_)}
        for name, new in made.items():
            path = TOP / "docs" / name
            if path.exists() and path.read_text() == new:
                continue
            if arguments.check:
                print(f"out of date: {path.relative_to(TOP)}; run tools/gen_man.py {arguments.folder}", file=sys.stderr)
                stale = 1
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(new)
    return stale


if __name__ == "__main__":
    sys.exit(main())
