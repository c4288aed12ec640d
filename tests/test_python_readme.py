# SPDX-License-Identifier: BSD-3-Clause
"""The Python blocks of python/README.md's section "legacyml" run, one after the other, and give what stands behind `# ->`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from conftest import TOP

pytest.importorskip("legacyml", reason="the binding is not compiled: make venv")
pytest.importorskip("numpy")

MODEL = TOP / "build/models/SmolLM2-135M-Instruct.mlb"


def blocks() -> list[str]:
    text = (TOP / "python/README.md").read_text()
    section = text[text.index("\n## legacyml\n") : text.index("\n## legacyml-which-isa\n")]
    return re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = blocks()
    assert len(found) == 5
    if not MODEL.is_file():
        pytest.skip(f"{MODEL} is missing: make model")
    for ending in ("mlb", "tokenizer.bin"):
        os.symlink(MODEL.with_suffix(f".{ending}"), tmp_path / f"model.{ending}")
    monkeypatch.chdir(tmp_path)
    checked = 0

    def check(value: object, expected: str) -> None:
        nonlocal checked
        assert repr(value) == expected
        checked += 1

    names: dict[str, object] = {"_check": check}
    for block in found:
        code = re.sub(r"^(\S.*?)  # -> (.*)$", lambda line: f"_check({line[1]}, {line[2]!r})", block, flags=re.MULTILINE)
        exec(compile(code, "README.md", "exec"), names)
    assert checked == sum(block.count("# ->") for block in found) >= 14
    assert len(capsys.readouterr().out) > 20  # the stream that is printed
