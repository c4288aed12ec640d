# SPDX-License-Identifier: BSD-3-Clause
"""Manual pages and shell completion: made from --help, up to date, and they work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from conftest import TOP

PROGRAMS = ("ml_run", "ml_bench", "legacyml-convert", "legacyml-which-isa")


@pytest.fixture(scope="session")
def folder(build: Callable[..., Path]) -> Path:
    return build("scalar", target="all")


def options(program: str, folder: Path) -> list[str]:
    """Every option that --help names, on a line of its own or in the usage."""
    if program.startswith("legacyml-"):
        command: list[object] = [sys.executable, "-m", program.replace("-", "_"), "--help"]
    else:
        command = [folder / program, "--help"]
    environment = os.environ | {"COLUMNS": "60", "PYTHONPATH": str(TOP / "python"), "NO_COLOR": "1"}
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    found = (
        re.findall(r"^  +(-\S+?)(?:,| |$)", text, re.M) + re.findall(r"^  +-\w, (--\S+)", text, re.M) + re.findall(r"\[(--[\w-]+)", text)
    )
    assert len(found) > 3
    return sorted(set(found))


def test_up_to_date(folder: Path) -> None:
    """The files are what tools/gen_man.py makes; there are no others."""
    subprocess.run([sys.executable, TOP / "tools/gen_man.py", "--check", folder], check=True)
    assert {p.name for p in (TOP / "docs/man").iterdir()} == {f"{program}.1" for program in PROGRAMS}
    assert {p.name for p in (TOP / "docs/completion/bash").iterdir()} == set(PROGRAMS)
    assert {p.name for p in (TOP / "docs/completion/zsh").iterdir()} == {f"_{program}" for program in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS)
def test_manual_page(folder: Path, program: str) -> None:
    """It has every option, and troff has nothing to say about it."""
    path = TOP / f"docs/man/{program}.1"
    text = path.read_text()
    for option in options(program, folder):
        assert option.replace("-", "\\-") in text, option
    assert all(f"\n.SH {section}\n" in text for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"))
    assert program == "ml_bench" or "\n.SH EXIT STATUS\n0 done, 2 usage, 3 " in text
    if shutil.which("groff"):
        said = subprocess.run(["groff", "-man", "-ww", "-Tutf8", path], capture_output=True, text=True, check=True)
        assert said.stderr == "" and "User Commands" in said.stdout


def complete(program: str, *words: str, cwd: Path) -> list[str]:
    """What bash offers for the last of the words, cut as bash cuts them: = is a word."""
    cut = [part for word in words for part in (re.split("(=)", word, maxsplit=1) if word.startswith("--") else [word])]
    cut = cut[:-1] if len(cut) > 1 and cut[-2:] == ["=", ""] else cut
    function = "_" + program.replace("-", "_")
    script = f"""
    shopt -u progcomp_alias 2>/dev/null
    source '{TOP}/docs/completion/bash/{program}' || exit 1
    complete -p {program} >/dev/null || exit 1
    COMP_WORDS=({program} "$@"); COMP_CWORD=$#
    {function} && printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script, "bash", *cut], capture_output=True, text=True, check=True, cwd=cwd)
    assert done.stderr == ""
    return sorted(line for line in done.stdout.splitlines() if line)


@pytest.mark.parametrize("program", PROGRAMS)
def test_bash_options(folder: Path, program: str, tmp_path: Path) -> None:
    """Every option is offered, those that fit what is typed, and none for a value that only the user knows."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    every = options(program, folder)
    assert complete(program, "-", cwd=tmp_path) == every
    assert complete(program, "--v", cwd=tmp_path) == [option for option in every if option.startswith("--v")]
    assert complete(program, "--nonsense", cwd=tmp_path) == []


def test_bash_values(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    for name in ("a model.mlb", "é.mlb", "text.txt"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    assert complete("ml_run", "", cwd=tmp_path) == ["a model.mlb", "folder", "é.mlb"]
    assert complete("ml_run", "a", cwd=tmp_path) == ["a model.mlb"]
    assert complete("ml_bench", "t", cwd=tmp_path) == []
    assert complete("legacyml-convert", "t", cwd=tmp_path) == ["text.txt"]
    assert complete("legacyml-which-isa", "t", cwd=tmp_path) == []
    every = ["a model.mlb", "folder", "text.txt", "é.mlb"]
    for option in ("-f", "-z", "--perplexity", "--batch", "--save-session", "--load-session", "--dump-logits"):
        assert complete("ml_run", "m.mlb", option, "", cwd=tmp_path) == every
        assert complete("ml_run", option, "t", cwd=tmp_path) == ["text.txt"]
    assert complete("ml_run", "--perplexity=t", cwd=tmp_path) == ["text.txt"]
    assert complete("ml_run", "--template", "", cwd=tmp_path) == ["chatml", "llama2", "plain", "zephyr"]
    assert complete("ml_run", "--template=", cwd=tmp_path) == ["chatml", "llama2", "plain", "zephyr"]
    assert complete("ml_run", "--template=z", cwd=tmp_path) == ["zephyr"]
    assert complete("legacyml-convert", "--type", "q4", cwd=tmp_path) == ["q4_0"]
    assert complete("legacyml-convert", "in", "out.mlb", "--emb-type=", cwd=tmp_path) == ["q8_0", "same"]
    for option in ("-p", "-n", "--temp", "--stop", "--system"):
        assert complete("ml_run", option, "", cwd=tmp_path) == []


def test_bash_in_a_terminal(tmp_path: Path) -> None:
    """A real shell completes a typed line, a name with a space too."""
    import pty

    from test_cli import read_until

    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    (tmp_path / "my model.mlb").touch()
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PS1": "$ ", "TERM": "dumb", "INPUTRC": "/dev/null"})
    read_until(terminal, b"$ ")
    os.write(terminal, f"source '{TOP}/docs/completion/bash/ml_run'; ml_run() {{ printf 'got:%s\\n' \"$@\"; }}; echo ready\n".encode())
    read_until(terminal, b"ready\r\n")
    os.write(terminal, b"ml_run my\t --templ\tz\t --chat\n")
    seen = read_until(terminal, b"got:--chat")
    assert b"got:my model.mlb\r\ngot:--template\r\ngot:zephyr\r\n" in seen
    os.write(terminal, b"exit\n")
    os.waitpid(process, 0)
    os.close(terminal)


@pytest.mark.parametrize("program", PROGRAMS)
def test_zsh(program: str, folder: Path, tmp_path: Path) -> None:
    """zsh loads the function under the program's name, and completes a typed line with it."""
    import pty

    from test_cli import read_until

    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    subprocess.run(["zsh", "-n", TOP / f"docs/completion/zsh/_{program}"], check=True)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "PS1": "$ ", "TERM": "dumb", "HOME": str(tmp_path)})
    read_until(terminal, b"$ ")
    setup = f"unsetopt zle_bracketed_paste prompt_sp 2>/dev/null; fpath=('{TOP}/docs/completion/zsh' $fpath); "
    setup += "autoload -U compinit; compinit -u -D; "
    os.write(terminal, (setup + f"{program}() {{ printf 'got:%s\\n' \"$@\" }}; print rea''dy\n").encode())
    read_until(terminal, b"ready\r")
    unique = {"ml_run": ("--perpl", "--perplexity"), "ml_bench": ("--js", "--json"), "legacyml-convert": ("--tok", "--tokenizer")}
    typed, expected = unique.get(program, ("--expl", "--explain"))
    os.write(terminal, f"{program} {typed}\t\n".encode())
    read_until(terminal, f"got:{expected}".encode())
    os.write(terminal, b"exit\n")
    os.waitpid(process, 0)
    os.close(terminal)
