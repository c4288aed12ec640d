# SPDX-License-Identifier: BSD-3-Clause
"""--json and --batch: what a program that reads them gets. Python's json module, which is another reader, reads everything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from test_cli import LONG, error_line, packets, run, start, talker, write_chat_model, write_model, write_speaker, write_tokenizer


@pytest.fixture(scope="session")
def sampler(random_model: Callable[..., Path]) -> Path:
    """A random model whose tokenizer has a byte for each id from 3 on."""
    model = random_model(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=259, max_seq=64)
    write_tokenizer(model, [b"<0x%02X>" % byte for byte in range(256)])
    return model


def objects(output: bytes) -> list[Any]:
    """The lines, each a JSON value of UTF-8 and nothing that JSON does not have."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert output.endswith(b"\n")
    return [json.loads(line.decode("utf-8"), parse_constant=refuse) for line in output.split(b"\n")[:-1]]


# -- --json ---------------------------------------------------------------------------------------------------------------------------


def test_lines(ml_run: Path, tmp_path: Path) -> None:
    """A line for each token as it comes, a last one with all that is known; nothing on standard error."""
    model = write_speaker(tmp_path / "speaker é.mlb", [b"Hel", b"lo", b' "w\\', b"\n\t\x01\x7f"])
    pieces, status = packets(ml_run, model, "-p", "", "--json")
    assert status == 0
    lines = objects(b"".join(pieces))
    assert [p.count(b"\n") for p in pieces] == [1] * 5
    assert lines[:4] == [
        {"token": 3, "text": "Hel"},
        {"token": 4, "text": "lo"},
        {"token": 5, "text": ' "w\\'},
        {"token": 6, "text": "\n\t\x01\x7f"},
    ]
    last = lines[4]
    assert last.pop("load_ms") > 0 and last.pop("prompt_ms") > 0 and last.pop("decode_ms") > 0 and last.pop("threads") >= 1
    assert last == {
        "text": 'Hello "w\\\n\t\x01\x7f',
        "tokens": [3, 4, 5, 6],
        "stop": "stop_token",
        "prompt_tokens": 1,
        "generated_tokens": 5,
        "seed": None,
        "isa": "scalar",
        "model": str(model),
    }
    assert run(ml_run, model, "-p", "", "--json").stderr == b""


@pytest.mark.parametrize(
    ("spoken", "texts"),
    [
        ([b"\xf0", b"\x9f", b"\xa6", b"\x99", b"!"], ["", "", "", "🦙", "!"]),
        ([b"\xe2\x82", b"\xac"], ["", "€"]),
        ([b"a", b"\xff", b"b"], ["a", "\ufffd", "b"]),
        ([b"\xf0", b"\x9f", b"a"], ["", "", "\ufffda"]),
        ([b"\xed", b"\xa0", b"\x80"], ["", "\ufffd\ufffd", "\ufffd"]),
        ([b"\xf0", b"\x9f"], ["", "", "\ufffd"]),
        ([b"a\0b"], ["a\0b"]),
        ([b"\xe2\x80\xa8\xef\xbb\xbf\xf4\x8f\xbf\xbf"], ["\u2028\ufeff\U0010ffff"]),
    ],
)
def test_characters(ml_run: Path, tmp_path: Path, spoken: list[bytes], texts: list[str]) -> None:
    """Lines have whole characters; their texts together are that of the last line, which is what Python makes of the bytes."""
    named = [b"<0x%02X>" % p[0] if len(p) == 1 and p[0] >= 0x80 else p for p in spoken]
    model = write_speaker(tmp_path / "speaker.mlb", named)
    *lines, last = objects(run(ml_run, model, "-p", "", "--json").stdout)
    ids = list(range(3, 3 + len(spoken)))
    assert [line["text"] for line in lines] == texts
    # What the end of the text has let go belongs to no token.
    assert [line["token"] for line in lines] == ids + [None] * (len(texts) - len(ids))
    assert last["text"] == "".join(texts) == b"".join(spoken).decode("utf-8", errors="replace") and last["tokens"] == ids


def test_stop_strings_and_counts(ml_run: Path, tmp_path: Path) -> None:
    model = write_speaker(tmp_path / "speaker.mlb", [b"aa", b"ab", b"aa"])
    *lines, last = objects(run(ml_run, model, "-p", "", "--json", "--stop", "aab!").stdout)
    assert [(line["token"], line["text"]) for line in lines] == [(3, ""), (4, "a"), (5, "aab"), (None, "aa")]
    assert "".join(line["text"] for line in lines) == last["text"] == "aaabaa"
    *lines, last = objects(run(ml_run, model, "-p", "", "--json", "--stop", "ba").stdout)
    assert "".join(line["text"] for line in lines) == last["text"] == "aaa" and last["stop"] == "stop_string"
    assert last["tokens"] == [3, 4, 5]
    assert objects(run(ml_run, model, "-p", "", "--json", "-n", "1").stdout)[-1]["stop"] == "count"
    (last,) = objects(run(ml_run, model, "-p", "", "--json", "-n", "0").stdout)
    assert (last["text"], last["tokens"], last["stop"]) == ("", [], "count")
    assert objects(run(ml_run, model, "-p", "", "--json", "-c", "2").stdout)[-1]["stop"] == "context_full"


def test_ids_without_a_tokenizer(ml_run: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.mlb", [*range(1, 40), 0])
    *lines, last = objects(run(ml_run, model, "--tokens", "5", "--json", "-n", "3", "--temp", "1e-30", "--seed", 2**64 - 1).stdout)
    assert lines == [{"token": 6}, {"token": 7}, {"token": 8}]
    assert last["tokens"] == [6, 7, 8] and "text" not in last and last["seed"] == 2**64 - 1


def test_talk(ml_run: Path, tmp_path: Path) -> None:
    """Each answer of a talk has its lines."""
    model = talker(tmp_path / "talker.mlb")
    done = run(ml_run, model, "--chat", "--json", input=b"One\nTwo\n")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = objects(done.stdout)
    assert [line.get("text") for line in lines] == ["Y", "e", "s", "Yes"] * 2
    assert [line["stop"] for line in lines if "stop" in line] == ["stop_token"] * 2


def test_errors_are_as_usual(ml_run: Path, tmp_path: Path) -> None:
    model = write_speaker(tmp_path / "speaker.mlb", [b"a"])
    assert "gone" in error_line(run(ml_run, tmp_path / "gone", "-p", "", "--json"), 3)
    error_line(run(ml_run, model, "-p", "a" * 999, "--json"), 5)
    with open("/dev/full", "wb") as full:
        assert "standard output" in error_line(run(ml_run, model, "-p", "", "--json", stdout=full), 3)


@pytest.mark.parametrize("mode", ["--json", "--batch"])
def test_closed_pipe_and_interrupt(ml_run: Path, tmp_path: Path, mode: str) -> None:
    """A reader that goes away ends the run with 0 and without a word; Ctrl-C with 130 and a last line that says so."""
    model = write_model(tmp_path / "endless.mlb", [3, 3, 3, 4, 3], LONG, layers=1)
    write_tokenizer(model, [b"a", b"b"])
    lines = tmp_path / "lines"
    lines.write_text('{"prompt": "", "n": 1}\n' * 100_000)
    arguments = ["-p", "", "--json"] if mode == "--json" else ["--batch", lines]
    with start(ml_run, model, *arguments, "-c", LONG) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
    lines.write_text('{"prompt": "", "n": 1}\n{"prompt": ""}\n{"prompt": ""}\n')
    with start(ml_run, model, *arguments, "-c", LONG, "-q") as process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        told = objects(first + process.stdout.read())
        assert process.wait(10) == 130
        assert told[-1]["stop"] == "interrupted" and process.stderr.read() == b""
        assert mode == "--json" or len(told) == 2


# -- --batch --------------------------------------------------------------------------------------------------------------------------


def batch(program: Path, model: Path, lines: bytes, *options: object) -> tuple[list[Any], int]:
    done = run(program, model, "--batch", "-", "-q", *options, input=lines)
    assert done.stderr == b""
    return objects(done.stdout) if done.stdout else [], done.returncode


def test_order_and_options(ml_run: Path, sampler: Path, tmp_path: Path) -> None:
    """Each line is the run that it stands for, whatever stood before it; from a file as from standard input."""
    requests: list[dict[str, Any]] = [
        {"prompt": "Hello"},
        {"prompt": "Hello", "n": 5},
        {"prompt": "Hello you", "n": 20, "temp": 0.9, "seed": 7},
        {"prompt": "Hello you", "n": 20, "temp": 1.5, "seed": 7, "top_k": 4, "min_p": 0.01, "top_p": 0.95, "repeat_penalty": 1.3},
        {"prompt": "", "n": 12},
        {"prompt": "Help", "n": 12, "temp": 1, "seed": 18446744073709551615, "stop": ["zz", "q"]},
        {"prompt": "Help", "n": 0},
    ]
    lines = "\r\n\n".join(json.dumps(request) for request in requests).encode()
    found, status = batch(ml_run, sampler, lines, "-n", "9", "-c", "40")
    assert status == 0 and [result["line"] for result in found] == [1, 3, 5, 7, 9, 11, 13]
    for request, result in zip(requests, found, strict=True):
        arguments: list[object] = ["-n", "9", "-c", "40", "--json", "-p", request["prompt"]]
        for key in ("n", "temp", "seed", "top_k", "min_p", "top_p", "repeat_penalty"):
            if key in request:
                arguments += ["-n" if key == "n" else "--" + key.replace("_", "-"), request[key]]
        arguments += [f"--stop={stop}" for stop in request.get("stop", [])]
        alone = objects(run(ml_run, sampler, *arguments).stdout)[-1]
        for key in ("text", "tokens", "stop", "generated_tokens", "seed"):
            assert result[key] == alone[key], (request, key)
        assert set(result) == {"line", "text", "tokens", "stop", "prompt_tokens", "generated_tokens", "prompt_ms", "decode_ms", "seed"}
    file = tmp_path / "in put.jsonl"
    file.write_bytes(lines)
    again = objects(run(ml_run, sampler, "--batch", file, "-n", "9", "-c", "40", "-q").stdout)
    assert [r["tokens"] for r in again] == [r["tokens"] for r in found]


def test_seeds_of_lines(ml_run: Path, sampler: Path) -> None:
    """A line without a seed has that of the run plus its number minus one."""
    found, _ = batch(ml_run, sampler, b'{"prompt": "a"}\n' * 3 + b'{"prompt": "a", "seed": 0}\n', "--seed", "5", "--temp", "1", "-n", "20")
    assert [result["seed"] for result in found] == [5, 6, 7, 0]
    assert len({tuple(result["tokens"]) for result in found}) == 4


def test_chat_lines(ml_run: Path, tmp_path: Path) -> None:
    """With --chat a line is a talk of its own: the second begins as the first did."""
    model = write_chat_model(tmp_path / "model.mlb", {10: ord("Y"), ord("Y"): ord("o")})
    lines = b'{"prompt": "One"}\n{"prompt": "One", "system": "Longer than that."}\n{"prompt": "One", "system": ""}\n{"prompt": "One"}\n'
    found, status = batch(ml_run, model, lines, "--chat")
    assert status == 0 and [result["text"] for result in found] == ["Yo"] * 4
    counts = [
        objects(run(ml_run, model, "--chat", "-p", "One", "--json", *o).stdout)[-1]
        for o in ([], ["--system=Longer than that."], ["--system="])
    ]
    # What a line has in common with the one before it is not processed again.
    assert found[0]["prompt_tokens"] == counts[0]["prompt_tokens"]
    assert all(r["prompt_tokens"] < c["prompt_tokens"] for r, c in zip(found[1:], [*counts[1:], counts[0]], strict=True))


def test_prefix_is_kept(ml_run: Path, sampler: Path) -> None:
    """The same ids in the same places are processed once: the last id always, for its logits."""
    found, _ = batch(ml_run, sampler, b'{"prompt": "abcdef"}\n{"prompt": "abcdef"}\n{"prompt": "abcxyz"}\n{"prompt": "abc"}\n', "-n", "3")
    # <s>, a space and the letters.
    assert [result["prompt_tokens"] for result in found] == [8, 1, 3, 1]
    assert found[0]["tokens"] == found[1]["tokens"]


BAD = [
    ("[]", "expected an object", 4),
    ("1", "expected an object", 4),
    ("{", "byte 2: found the end", 4),
    ('{"prompt"', "expected ':'", 4),
    ('{"prompt" "a"}', "found '\"', expected ':'", 4),
    ('{"prompt": }', "found '}', expected a string", 4),
    ('{"prompt": null}', "found 'n', expected a string", 4),
    ('{"prompt": "a"', "expected ',' or '}'", 4),
    ('{"prompt": "a",}', "expected a string", 4),
    ('{"prompt": "a"} x', "found 'x', expected nothing more", 4),
    ('{"prompt": "a"}{"prompt": "a"}', "expected nothing more", 4),
    ("{'prompt': 'a'}", "found ''', expected a string", 4),
    ('{prompt: "a"}', "expected a string", 4),
    ('{"prompt": "a', "expected the end of the string", 4),
    ('{"prompt": "a\\', "expected an escape", 4),
    ('{"prompt": "a\tb"}', "byte 0x09", 4),
    ('{"prompt": "a\0b"}', "byte 0x00", 4),
    ('{"prompt": "\\x41"}', "expected an escape", 4),
    ('{"prompt": "\\u12"}', "expected an escape", 4),
    ('{"prompt": "\\u12G4"}', "expected an escape", 4),
    ('{"prompt": "\\ud83e"}', "both halves", 4),
    ('{"prompt": "\\ud83ex"}', "both halves", 4),
    ('{"prompt": "\\ud83e\\u0041"}', "both halves", 4),
    ('{"prompt": "\\udd99\\ud83e"}', "both halves", 4),
    ('{"prompt": "\\ud83e\\ud83e"}', "both halves", 4),
    (b'{"prompt": "\xff"}', "byte 0xFF, expected UTF-8", 4),
    (b'{"prompt": "\xc0\x80"}', "expected UTF-8", 4),
    (b'{"prompt": "\xed\xa0\x80"}', "expected UTF-8", 4),
    (b'{"prompt": "\xf0\x9f"}', "expected UTF-8", 4),
    (b'\xef\xbb\xbf{"prompt": "a"}', "byte 0xEF", 4),
    ("{}", "there is no", 2),
    ('{"n": 1}', 'there is no "prompt"', 2),
    ('{"prompt": "a", "prompt": "b"}', "twice", 2),
    ('{"prompt": "a", "nonsense": 1}', 'unknown key "nonsense"', 2),
    ('{"prompt": "a", "Prompt": "b"}', 'unknown key "Prompt"', 2),
    ('{"prompt": "a", "n": -1}', "-n", 2),
    ('{"prompt": "a", "n": 1.5}', "-n", 2),
    ('{"prompt": "a", "n": "1"}', "expected a number", 4),
    ('{"prompt": "a", "n": 01}', "expected a number", 4),
    ('{"prompt": "a", "n": 1.}', "expected a number", 4),
    ('{"prompt": "a", "n": .5}', "expected a number", 4),
    ('{"prompt": "a", "n": +1}', "expected a number", 4),
    ('{"prompt": "a", "n": 1e}', "expected a number", 4),
    ('{"prompt": "a", "n": -}', "expected a number", 4),
    ('{"prompt": "a", "n": NaN}', "expected a number", 4),
    ('{"prompt": "a", "n": ' + "1" * 100 + "}", "not so long", 4),
    ('{"prompt": "a", "temp": -0.5}', "--temp", 2),
    ('{"prompt": "a", "top_p": 2}', "--top-p", 2),
    ('{"prompt": "a", "top_k": -2}', "--top-k", 2),
    ('{"prompt": "a", "min_p": 1.5}', "--min-p", 2),
    ('{"prompt": "a", "repeat_penalty": -1}', "--repeat-penalty", 2),
    ('{"prompt": "a", "seed": 18446744073709551616}', "--seed", 2),
    ('{"prompt": "a", "stop": ""}', "--stop", 2),
    ('{"prompt": "a", "stop": ["b", ""]}', "--stop", 2),
    ('{"prompt": "a", "stop": [1]}', "expected a string", 4),
    ('{"prompt": "a", "stop": ["b"', "expected ',' or ']'", 4),
    ('{"prompt": "a", "stop": ["b",]}', "expected a string", 4),
    ('{"prompt": "a", "stop": ' + "[" * 100_000, "expected a string", 4),
    ("[" * 1_000_000, "expected an object", 4),
    ('{"a":' * 100_000, 'unknown key "a"', 2),
    ('{"prompt": "a", "stop": "b\\u0000c"}', "NUL", 2),
    ('{"prompt": "a", "system": "b"}', "--chat", 2),
    ('{"prompt": "' + "a" * 2_000_000 + '"}', "2000002", 5),
]


def test_malformed_lines(ml_run: Path, sampler: Path) -> None:
    """Each wrong line is an object with its error and status, and the next line is answered; the status of the run is that of the first."""
    good = b'{"prompt": "a", "n": 3}'
    bad = [(line.encode() if isinstance(line, str) else line, words, status) for line, words, status in BAD]
    lines = b"".join(line + b"\n" + good + b"\n" for line, _, _ in bad)
    found, status = batch(ml_run, sampler, lines)
    assert status == bad[0][2] and [result["line"] for result in found] == list(range(1, 2 * len(bad) + 1))
    for (line, words, expected), result in zip(bad, found[::2], strict=True):
        assert set(result) == {"line", "error", "status"}, line[:80]
        assert words in result["error"] and result["status"] == expected, (line[:80], result)
    assert len({json.dumps(result["tokens"]) for result in found[1::2]}) == 1


def test_malformed_lines_under_the_sanitizers(build: Callable[..., Path], sampler: Path) -> None:
    program = build("scalar", cflags="-fsanitize=address,undefined -fno-sanitize-recover=all", target="all") / "ml_run"
    test_malformed_lines(program, sampler)
    test_random_lines(program, sampler)


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ('"\\"\\\\\\/\\b\\f\\n\\r\\t"', 8),
        ('"\\u0041\\u00e9\\u20AC\\ud83e\\udd99"', 10),
        ('"\\u0000a\\u0000"', 3),
        ('"é€🦙"', 9),
        ('"\u007f\u2028"', 4),
        ('""', -1),
        (' "a" ', 1),
    ],
)
def test_strings(ml_run: Path, sampler: Path, text: str, n: int) -> None:
    """A prompt has the bytes that the string stands for: their ids are those of the text itself from a file."""
    line = ('{ "prompt" :' + text + ', "n": 2 }').encode()
    found, status = batch(ml_run, sampler, line)
    plain = run(ml_run, sampler, "-f", "-", "-n", "2", "--json", input=json.loads(text).encode())
    expected = objects(plain.stdout)[-1]
    assert status == 0 and found[0]["tokens"] == expected["tokens"]
    assert found[0]["prompt_tokens"] == expected["prompt_tokens"] == n + 2


def test_random_lines(ml_run: Path, sampler: Path) -> None:
    """A line of random changes is accepted if and only if Python's reader finds the same request in it."""
    import random

    chance = random.Random(5)
    whole = '{"prompt": "a\\u00e9\\n", "n": 2, "stop": ["x\\"y", "z"], "temp": 1.5e-1}'
    lines = []
    for _ in range(3000):
        line = list(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(line))
            line[at : at + chance.randint(0, 2)] = chance.choice(
                ['"', "\\", "{", "}", "[", "]", ",", ":", "1", "-", ".", "e", "u", " ", "é", "\t"]
            )
        lines.append("".join(line))
    found, _ = batch(ml_run, sampler, "\n".join(lines).encode())
    assert len(found) == len(lines)
    good = 0
    for line, result in zip(lines, found, strict=True):
        try:
            json.loads(line)
            valid = True
        except ValueError:
            valid = False
        if not valid:
            assert "error" in result, line
        elif "error" in result:
            assert result["status"] in (2, 4), line
            # What JSON allows is refused for what it says, never for how it is spelled.
            assert result["status"] == 2 or "expected a string" in result["error"] or "expected a number" in result["error"], (line, result)
        good += "error" not in result
    assert good > 100


def test_batch_files(ml_run: Path, sampler: Path, tmp_path: Path) -> None:
    assert str(tmp_path / "gone") in error_line(run(ml_run, sampler, "--batch", tmp_path / "gone"), 3)
    assert str(tmp_path) in error_line(run(ml_run, sampler, "--batch", tmp_path), 3)
    assert batch(ml_run, sampler, b"") == ([], 0)
    assert batch(ml_run, sampler, b"\n \n\r\n") == ([], 0)
    with open("/dev/full", "wb") as full:
        done = run(ml_run, sampler, "--batch", "-", "-q", input=b'{"prompt": "a"}\n', stdout=full)
    assert "standard output" in error_line(done, 3)
    counter = write_model(tmp_path / "ids.mlb", [1, 0])
    assert "tokenizer" in error_line(run(ml_run, counter, "--batch", "-"), 3)


def test_answers_come_as_they_are_ready(ml_run: Path, sampler: Path) -> None:
    """A program can wait for an answer before it asks again."""
    with start(ml_run, sampler, "--batch", "-", "-q", stdin=subprocess.PIPE) as process:
        for number in range(1, 4):
            os.write(process.stdin.fileno(), b'{"prompt": "a", "n": 1}\n')
            assert json.loads(process.stdout.readline())["line"] == number
        process.stdin.close()
        assert process.wait(10) == 0
