# SPDX-License-Identifier: BSD-3-Clause
"""--perplexity against double precision: the windows by hand, the logits from --dump-logits, logarithms and errors by numpy."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import signal
import struct
from pathlib import Path
from typing import Callable

import pytest

from conftest import NATIVE_ISAS, runs_here
from test_cli import LONG, error_line, facts, read_until, run, start, write_model, write_speaker, write_tokenizer

np = pytest.importorskip("numpy")

TEXT = b"The quick brown fox jumps over the lazy dog; caf\xc3\xa9 \xff\0 and so on, until it ends."


@pytest.fixture(scope="session")
def model(random_model: Callable[..., Path]) -> Path:
    """A random model whose tokenizer has a byte for each id from 3 on; a text begins with <s> and a space."""
    model = random_model(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=259, max_seq=128)
    write_tokenizer(model, [b"<0x%02X>" % byte for byte in range(256)])
    return model


def without_bos(model: Path, folder: Path) -> Path:
    """A container whose texts begin with nothing, for the same ids."""
    pieces = [b"<unk>", b"<s>", b"</s>"] + [bytes([byte]) for byte in range(256)]
    data = struct.pack("<4s5Iii4I16s", b"MLT1", 1, 2, 259, 0, 0, -1, 0, 1, 0, 0, sum(map(len, pieces)), b"")
    data += struct.pack("<256i", *range(3, 259)) + struct.pack("<i", 2) + struct.pack("<259f", *[-1e30] * 259)
    data += struct.pack("<259I", *map(len, pieces)) + b"".join(pieces)
    path = folder / "container.bin"
    path.write_bytes(data)
    return path


def expected(
    program: Path, model: Path, ids: list[int], bos: bool, context: int, dump: Path
) -> tuple[list[tuple[int, float]], float, float]:
    """(first id, perplexity) of each window, that of all, and its standard error."""
    surprises: list[float] = []
    windows = []
    length = context if bos else context + 1  # the last id of a window is not fed
    first, scored = 0, 0 if bos else 1
    while scored < len(ids):
        window = ids[first : first + length]
        fed = ([1] if bos else []) + window[:-1]
        done = run(program, model, "--tokens", ",".join(map(str, fed)), "-n", "0", "-c", context, "--dump-logits", dump)
        assert done.returncode == 0, done.stderr
        logits = np.fromfile(dump, "<f4").reshape(len(fed), 259).astype(np.float64)
        targets = window if bos else window[1:]
        shifted = logits - logits.max(1, keepdims=True)
        values = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(fed)), targets]
        own = values[len(values) - (first + len(window) - scored) :]
        windows.append((first, float(np.exp(own.mean()))))
        surprises += own.tolist()
        scored = first + len(window)
        first += length // 2
    assert len(surprises) == len(ids) - (0 if bos else 1)
    mean = float(np.mean(surprises))
    error = float(np.std(surprises, ddof=1)) / math.sqrt(len(surprises))
    return windows, math.exp(mean), math.exp(mean) * error


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("context", [2, 7, 16, 40, 128])
def test_values(ml_run: Path, model: Path, tmp_path: Path, bos: bool, context: int) -> None:
    file = tmp_path / "a text"
    file.write_bytes(TEXT)
    options = [] if bos else ["-z", without_bos(model, tmp_path)]
    ids = [byte + 3 for byte in (b" " + TEXT if bos else TEXT)]
    windows, value, error = expected(ml_run, model, ids, bos, context, tmp_path / "logits")
    done = run(ml_run, model, "--perplexity", file, "-c", context, "--json", *options)
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert found["tokens"] == len(ids) - (not bos) == sum(window["tokens"] for window in found["windows"])
    assert found["perplexity"] == pytest.approx(value, rel=1e-8) and found["error"] == pytest.approx(error, rel=1e-6)
    assert [window["start"] for window in found["windows"]] == [first for first, _ in windows]
    assert [window["perplexity"] for window in found["windows"]] == pytest.approx([each for _, each in windows], rel=1e-8)
    assert found["isa"] == "scalar" and found["model"] == str(model) and found["ms"] > 0
    done = run(ml_run, model, "--perplexity", file, "-c", context, *options)
    assert done.stdout == f"perplexity: {value:.3f} +- {error:.3f} ({found['tokens']} tokens)\n".encode()
    assert "decode" not in facts(done) and "stop" not in facts(done) and "prompt" in facts(done)
    assert run(ml_run, model, "--perplexity", file, "-c", context, "-q", *options).stderr == b""


def test_same_on_every_build(build: Callable[..., Path], model: Path, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(TEXT)
    told = {}
    for isa in filter(runs_here, NATIVE_ISAS):
        result = json.loads(run(build(isa, target="all") / "ml_run", model, "--perplexity", file, "-c", "20", "--json").stdout)
        told[isa] = json.dumps({key: result[key] for key in ("perplexity", "error", "tokens", "windows")})
    assert len(set(told.values())) == 1 and len(told) > 1


def test_known_values(ml_run: Path, tmp_path: Path) -> None:
    """Logits of one 8 and fifteen 0: what is right costs log(1 + 15 e^-8), what is wrong 8 more; and equal logits cost log 16."""
    model = write_model(tmp_path / "ring.mlb", [*range(1, 16), 0], max_seq=64)
    pieces = [b"<unk>", b"<s>", b"</s>"] + [bytes([byte]) for byte in b"abcdefghijklm"]
    data = struct.pack("<4s5Iii4I16s", b"MLT1", 1, 2, 16, 0, 0, -1, 0, 1, 0, 0, sum(map(len, pieces)), b"")
    data += struct.pack("<256i", *[byte - ord("a") + 3 if byte in b"abcdefghijklm" else -1 for byte in range(256)])
    data += struct.pack("<i16f16I", 2, *[-1e30] * 16, *map(len, pieces)) + b"".join(pieces)
    model.with_suffix(".tokenizer.bin").write_bytes(data)
    file = tmp_path / "text"
    top = 8 / math.sqrt(1 + 64e-5)
    right = math.log(1 + 15 * math.exp(-top))
    for text, wrong in ((b"abcdefgh", 0), (b"abcdabcd", 1), (b"aabbccdd", 4)):
        file.write_bytes(text)
        found = json.loads(run(ml_run, model, "--perplexity", file, "--json").stdout)
        assert found["perplexity"] == pytest.approx(math.exp(right + wrong * top / 7), rel=1e-3)
        variance = top**2 * (wrong / 7) * (1 - wrong / 7) * 7 / 6
        assert found["error"] == pytest.approx(found["perplexity"] * math.sqrt(variance / 7), rel=2e-3, abs=1e-6)
    write_model(model, [0] * 16, max_seq=64, classifier_scale=0.0)
    found = run(ml_run, model, "--perplexity", file, "-q")
    assert found.stdout == b"perplexity: 16.000 +- 0.000 (7 tokens)\n"
    # e^(8e4) is beyond a double: a word for people, nothing for JSON.
    write_model(model, [*range(1, 16), 0], max_seq=64, classifier_scale=1e4)
    assert run(ml_run, model, "--perplexity", file, "-q").stdout == b"perplexity: inf +- inf (7 tokens)\n"
    assert json.loads(run(ml_run, model, "--perplexity", file, "--json").stdout)["perplexity"] is None


def test_refused(ml_run: Path, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"")
    assert str(file) in error_line(run(ml_run, model, "--perplexity", file), 2)
    file.write_bytes(b"ab")
    assert "2" in error_line(run(ml_run, model, "--perplexity", file, "-z", without_bos(model, tmp_path)), 2)
    assert "gone" in error_line(run(ml_run, model, "--perplexity", tmp_path / "gone"), 3)
    file.write_bytes(b"abcd")
    infinite = write_model(tmp_path / "inf.mlb", [1, 0, 0, 0], classifier_scale=math.inf)
    write_tokenizer(infinite, [b"a"])
    file.write_bytes(b"aaa")
    error_line(run(ml_run, infinite, "--perplexity", file), 8)
    with open("/dev/full", "wb") as full:
        assert "standard output" in error_line(run(ml_run, model, "--perplexity", file, "-q", stdout=full), 3)


def test_progress_and_interrupt(ml_run: Path, tmp_path: Path) -> None:
    """A terminal sees how far it is; Ctrl-C ends it with 130 and prints no result."""
    model = write_speaker(tmp_path / "model.mlb", [b"a"], max_seq=64)
    file = tmp_path / "text"
    file.write_bytes(b"a" * LONG)
    ours, theirs = pty.openpty()
    with start(ml_run, model, "--perplexity", file, stderr=theirs) as process:
        seen = read_until(ours, b"so far")
        process.send_signal(signal.SIGINT)
        seen += read_until(ours, b"stop: interrupted")
        assert process.wait(10) == 130
        assert process.stdout.read() == b""
        # <s> begins every window; a space goes before the text.
        assert re.search(rb"perplexity: \d+ of %d tokens, \d+\.\d+ so far" % (LONG + 1), seen)
    os.close(theirs)
    os.close(ours)
