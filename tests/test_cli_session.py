# SPDX-License-Identifier: BSD-3-Clause
"""--save-session and --load-session: a run that goes on is the run without the break, and whatever is not its file is refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from conftest import NATIVE_ISAS, runs_here
from test_cli import error_line, facts, run, talk, talker, write_speaker

PROMPT = [3, 17, 250, 0, 99]


@pytest.fixture(scope="session")
def model(random_model: Callable[..., Path]) -> Path:
    """A random model without tokenizer: what it says depends on all that came before."""
    return random_model(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=300, max_seq=64)


def ids(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def test_going_on(ml_run: Path, build: Callable[..., Path], model: Path, tmp_path: Path) -> None:
    """Ten tokens and ten more are twenty, to the last bit of the logits: on every build, with every context and number of threads."""
    whole, first, second = tmp_path / "whole", tmp_path / "first", tmp_path / "second"
    expected = run(ml_run, model, "--tokens", ids(PROMPT), "-n", "20", "--dump-logits", whole)
    assert expected.returncode == 0
    saved = {}
    for isa in filter(runs_here, NATIVE_ISAS):
        program = build(isa, target="all") / "ml_run"
        state = tmp_path / isa
        done = run(program, model, "--tokens", ids(PROMPT), "-n", "10", "-c", "20", "--save-session", state, "--dump-logits", first)
        assert done.returncode == 0, done.stderr
        saved[isa] = state.read_bytes()
        # All that was said is in it: a row more than without --save-session, which leaves the last token out.
        assert first.stat().st_size == (len(PROMPT) + 10) * 300 * 4
        for other in {"scalar", isa}:
            program = build(other, target="all") / "ml_run"
            more = run(program, model, "--load-session", state, "-n", "10", "-c", "64", "-t", "3", "--dump-logits", second)
            assert more.returncode == 0, more.stderr
            assert done.stdout.split() + more.stdout.split() == expected.stdout.split()
            assert first.read_bytes() + second.read_bytes() == whole.read_bytes()
    assert len(set(saved.values())) == 1 and len(saved) > 1
    assert {p.name for p in tmp_path.iterdir()} == {"whole", "first", "second", *saved}


def test_bytes_of_every_build(build: Callable[..., Path]) -> None:
    """What the C test of the library prints of the bytes it saved."""
    hashes = {}
    for isa in filter(runs_here, NATIVE_ISAS):
        text = subprocess.run([build(isa) / "test_state"], capture_output=True, text=True, check=True).stdout
        hashes[isa] = re.findall(r"^state of (\d+): (\w{16})$", text, re.M)
        assert [n for n, _ in hashes[isa]] == ["1", "6", "11"]
    assert len(set(map(tuple, hashes.values()))) == 1


def test_with_a_prompt(ml_run: Path, model: Path, tmp_path: Path) -> None:
    """Ids behind a session stand behind what it holds."""
    state, other = tmp_path / "state", tmp_path / "other"
    whole = run(ml_run, model, "--tokens", ids(PROMPT), "-n", "7", "-q")
    assert run(ml_run, model, "--tokens", ids(PROMPT[:2]), "-n", "0", "--save-session", state).stdout == b""
    assert run(ml_run, model, "--load-session", state, "--tokens", ids(PROMPT[2:]), "-n", "7", "-q").stdout == whole.stdout
    # In three steps, over the same file.
    assert run(ml_run, model, "--load-session", state, "--tokens", ids(PROMPT[2:4]), "-n", "0", "--save-session", state).returncode == 0
    assert run(ml_run, model, "--load-session", state, "--tokens", ids(PROMPT[4:]), "-n", "7", "-q").stdout == whole.stdout
    assert run(ml_run, model, "--tokens", ids(PROMPT[:4]), "-n", "0", "--save-session", other).returncode == 0
    assert other.read_bytes() == state.read_bytes()


def test_text_behind_a_session(ml_run: Path, tmp_path: Path) -> None:
    """No <s> and no space goes before a text that goes on; an empty one is allowed."""
    model = write_speaker(tmp_path / "speaker.mlb", [b"a", b"b", b"c", b" "])
    state = tmp_path / "state"
    assert run(ml_run, model, "-p", "", "-n", "0", "--save-session", state).returncode == 0
    done = run(ml_run, model, "--load-session", state, "-p", "a")
    assert (done.returncode, done.stdout) == (0, b"bc \n") and facts(done)["prompt"].startswith("1 tokens")
    for arguments in (["-p", ""], []):
        done = run(ml_run, model, "--load-session", state, *arguments)
        assert (done.returncode, done.stdout) == (0, b"abc \n") and facts(done)["prompt"].startswith("0 tokens")


def test_sampling_goes_on_with_a_seed(ml_run: Path, model: Path, tmp_path: Path) -> None:
    """The random state is not in the file: the same seed draws the same behind it every time."""
    state = tmp_path / "state"
    assert run(ml_run, model, "--tokens", "1,2", "-n", "5", "--temp", "1", "--seed", "1", "--save-session", state).returncode == 0
    texts = [run(ml_run, model, "--load-session", state, "-n", "12", "--temp", "1", "-q", "--seed", s).stdout for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2] and len(texts[0].split()) == 12


def test_full_context(ml_run: Path, model: Path, tmp_path: Path) -> None:
    """A context that is full has no room for its last token: that is said; a larger one says it again and goes on."""
    state = tmp_path / "state"
    whole = run(ml_run, model, "--tokens", "1,2", "-n", "20").stdout.split()
    done = run(ml_run, model, "--tokens", "1,2", "-c", "8", "--save-session", state)
    assert done.returncode == 0 and b"--save-session: the context is full" in done.stderr
    assert done.stdout.split() == whole[:7]
    more = run(ml_run, model, "--load-session", state, "-n", "5", "-c", "9", "-q")
    assert (more.returncode, more.stdout.split()) == (0, whole[6:8])
    assert "8" in error_line(run(ml_run, model, "--load-session", state, "-c", "7"), 5)
    full = run(ml_run, model, "--load-session", state, "-c", "8")
    assert (full.returncode, full.stdout.split(), facts(full)["stop"]) == (0, whole[6:7], "context full")


def test_refused(ml_run: Path, model: Path, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """Another model's file, one that is cut, changed or none at all; the sentence names it and no output is left."""
    state = tmp_path / "state"
    assert run(ml_run, model, "--tokens", ids(PROMPT), "-n", "0", "--save-session", state).returncode == 0
    whole = state.read_bytes()
    other = random_model(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=300, max_seq=64, seed=77)
    assert str(state) in error_line(run(ml_run, other, "--load-session", state, "--tokens", "1"), 5)
    bad = tmp_path / "bad"
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    for data in (b"", b"x", whole[:47], whole[:-1], whole + b"\0", bytes(changed), model.read_bytes()):
        bad.write_bytes(data)
        sentence = error_line(run(ml_run, model, "--load-session", bad, "--save-session", tmp_path / "new", "--tokens", "1"), 4)
        assert str(bad) in sentence
    assert str(tmp_path / "gone") in error_line(run(ml_run, model, "--load-session", tmp_path / "gone"), 3)
    assert str(tmp_path) in error_line(run(ml_run, model, "--load-session", tmp_path), 3)
    assert {p.name for p in tmp_path.iterdir()} == {"state", "bad"}


def test_cannot_be_written(ml_run: Path, model: Path, tmp_path: Path) -> None:
    """Nothing half-written, the old file stays, and the model is never written over."""
    before = model.read_bytes()
    for target in (tmp_path / "no" / "folder", tmp_path, Path("/dev/full")):
        done = run(ml_run, model, "--tokens", "1", "-n", "0", "--save-session", target)
        assert str(target) in error_line(done, 3)
    assert "give another file" in error_line(run(ml_run, model, "--tokens", "1", "-n", "0", "--save-session", model), 2)
    assert model.read_bytes() == before
    old = tmp_path / "old"
    old.write_bytes(b"old")
    assert run(ml_run, model, "--tokens", "400", "--save-session", old).returncode == 2
    assert old.read_bytes() == b"old" and list(tmp_path.iterdir()) == [old]


def test_talk_goes_on(ml_run: Path, tmp_path: Path) -> None:
    """The next message stands behind the last answer, closed as in one talk; also after an answer that -n has cut."""
    model = talker(tmp_path / "talker.mlb")
    for options in ([], ["-n", 2]):
        whole, parts = tmp_path / "whole", tmp_path / "parts"
        assert talk(ml_run, model, b"One\nTwo\nThree\n", *options, "--save-session", whole).returncode == 0
        first = talk(ml_run, model, b"One\n", *options, "--save-session", parts)
        second = talk(ml_run, model, b"Two\n", *options, "--load-session", parts, "--save-session", parts)
        third = run(ml_run, model, "--chat", "-p", "Three", *options, "--load-session", parts, "--save-session", parts)
        assert [first.stdout, second.stdout, third.stdout] == [b"Ye\n" if options else b"Yes\n"] * 3
        assert parts.read_bytes() == whole.read_bytes()


def test_full_talk_is_saved(ml_run: Path, tmp_path: Path) -> None:
    """A message that does not fit ends the talk with 5; what was said before goes on in a larger context."""
    model = talker(tmp_path / "talker.mlb")
    state, whole = tmp_path / "state", tmp_path / "whole"
    # 42 are held after the first "Yes", and the second message has 22 ids.
    assert talk(ml_run, model, b"A\nA\n", "-c", 63, "--save-session", state).returncode == 5
    assert talk(ml_run, model, b"A\n", "--load-session", state, "--save-session", state).stdout == b"Yes\n"
    assert talk(ml_run, model, b"A\nA\n", "--save-session", whole).returncode == 0
    assert state.read_bytes() == whole.read_bytes()
