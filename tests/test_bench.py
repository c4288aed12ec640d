# SPDX-License-Identifier: BSD-3-Clause
"""ml_bench and tools/bench.py: what they print is complete and follows from what was measured. Speed itself is never asserted."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Callable

import pytest

from conftest import TOP

BLOCK = 32
BLOCK_BYTES = {"q8": 32 + 4, "q4": 16 + 4}  # quants and a float scale
SHAPE = dict(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=300, max_seq=16)
MATRIX_SHAPES = {(576, 576), (1536, 576), (576, 1536), (49152, 576), (768, 288), (192, 64)}


def run(program: Path, *arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Runs the program, for two minutes at most; bytes are passed on as they are."""
    options.setdefault("stdout", subprocess.PIPE)
    texts = [a if isinstance(a, bytes) else str(a) for a in arguments]
    return subprocess.run([program, *texts], stderr=subprocess.PIPE, check=False, timeout=120, **options)


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def found(done: subprocess.CompletedProcess[bytes]) -> dict:
    """The one JSON object of a run that must have succeeded in silence."""
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    return json.loads(done.stdout.decode(), parse_constant=no_constant)


def error_line(done: subprocess.CompletedProcess[bytes], status: int) -> str:
    """Checks that a run failed as promised, without output, and returns its sentence."""
    assert done.returncode == status, done.stderr
    assert done.stdout in (b"", None)
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("ml_bench: "), done.stderr
    return lines[0]


def near(value: float) -> object:
    """Equal but for the twelve digits that are printed."""
    return pytest.approx(value, rel=1e-10)


@pytest.fixture(scope="session")
def bench(build: Callable[..., Path]) -> Path:
    """The program as it is built by default for the scalar ISA."""
    return build("scalar") / "ml_bench"


@pytest.fixture(scope="session")
def model(random_model: Callable[..., Path]) -> Path:
    return random_model(**SHAPE)


# -- ml_bench: what it finds --------------------------------------------------------------------------------------------------------


def test_kernels(isa: str, build: Callable[..., Path]) -> None:
    """Every operation has rows, and the figures of a row are those of one measurement."""
    result = found(run(build(isa) / "ml_bench", "--json", "-r", 2))
    version = re.search(r'define LEGACYML_VERSION "(.*)"', (TOP / "src/include/legacyml.h").read_text())[1]
    assert list(result) == ["version", "isa", "thread_model", "threads", "rounds", "read_gb_per_s", "kernels"]
    assert [result[k] for k in ("version", "isa", "thread_model", "threads", "rounds")] == [version, isa, "pthread", 1, 2]
    assert result["read_gb_per_s"] > 0
    shapes: dict[str, set] = {}
    for row in result["kernels"]:
        assert list(row) == ["op", "rows", "cols", "us", "gb_per_s", "gops", "scalar_us", "ratio"]
        assert row["us"] > 0 and row["scalar_us"] > 0
        assert row["ratio"] == near(row["scalar_us"] / row["us"])
        shapes.setdefault(row["op"], set()).add((row["rows"], row["cols"]))
        if row["op"].startswith("matvec_"):
            n = row["rows"] * row["cols"]
            n_bytes = n / BLOCK * BLOCK_BYTES[row["op"].removeprefix("matvec_")]
            assert row["gb_per_s"] * 1e9 * row["us"] * 1e-6 == near(n_bytes)
            assert row["gops"] * 1e9 * row["us"] * 1e-6 == near(2 * n)
        else:
            assert row["rows"] is None and row["gb_per_s"] is None and row["gops"] is None
    operations = re.findall(r"\bX\((\w+)\)", (TOP / "src/kernels/kernels.h").read_text().split("define ML_FOR_EACH_KERNEL")[1])
    assert list(shapes) == [op for op in operations if op != "X"]
    assert shapes["matvec_q8"] == shapes["matvec_q4"] == MATRIX_SHAPES


def test_kernel_table(isa: str, build: Callable[..., Path]) -> None:
    """The table has a row for memory and the rows of --json, with numbers where that has numbers."""
    program = build(isa) / "ml_bench"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in run(program, "-r", 1).stdout.decode().splitlines()]
    assert rows[0][0] == f"kernel, {isa}" and {len(row) for row in rows} == {7}
    assert rows[2][0] == "a loop that only reads" and float(rows[2][3]) > 0
    kernels = found(run(program, "-r", 1, "--json"))["kernels"]
    assert [row[:2] for row in rows[3:]] == [[k["op"], f"{k['rows']} x {k['cols']}" if k["rows"] else str(k["cols"])] for k in kernels]
    for row, kernel in zip(rows[3:], kernels):
        for cell, field in zip(row[2:], ("us", "gb_per_s", "gops", "scalar_us", "ratio")):
            assert cell == "" if kernel[field] is None else float(cell) > 0, row


@pytest.mark.parametrize("options", [dict(type="q8_0"), dict(type="q8_0", untied=True), dict(type="q4_0", untied=True, emb_type="q8_0")], ids=str)
def test_model(options: dict, isa: str, build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    """Speed and bandwidth of a model agree; an embedding that is no classifier is not counted, but for the row of one token."""
    path = random_model(**SHAPE, **options)
    result = found(run(build(isa) / "ml_bench", path, "--json", "-r", 2, "-t", 2, "-n", 5))
    assert list(result) == ["version", "isa", "thread_model", "threads", "rounds", "read_gb_per_s", "model"]
    assert [result[k] for k in ("isa", "thread_model", "threads", "rounds")] == [isa, "pthread", 2, 2]
    numbers = result["model"]
    assert set(numbers) == {
        *("path", "weight_type", "bytes_per_token", "tokens", "load_ms", "prompt_tokens_per_s", "decode_tokens_per_s", "weights_gb_per_s"),
    }
    assert (numbers["path"], numbers["weight_type"], numbers["tokens"]) == (str(path), options["type"].upper(), 5)
    unused_rows = SHAPE["vocab"] - 1 if options.get("untied") else 0
    embedding = "q8" if options.get("emb_type") else options["type"][:2]
    assert numbers["bytes_per_token"] == path.stat().st_size - unused_rows * SHAPE["dim"] // BLOCK * BLOCK_BYTES[embedding]
    for value in (result["read_gb_per_s"], numbers["load_ms"], numbers["prompt_tokens_per_s"], numbers["decode_tokens_per_s"]):
        assert value > 0
    assert numbers["weights_gb_per_s"] * 1e9 == near(numbers["decode_tokens_per_s"] * numbers["bytes_per_token"])


def test_model_table(bench: Path, model: Path) -> None:
    lines = run(bench, model, "-r", 1, "-t", 3).stdout.decode().splitlines()
    header, row = ([cell.strip() for cell in line.split("|")[1:-1]] for line in (lines[0], lines[2]))
    assert len(lines) == 3 and len(header) == len(row)
    assert row[:3] == [f"{model}, Q8_0", "scalar", "3"] and all(float(cell) > 0 for cell in row[4:])


def test_default_tokens_fit_the_model(bench: Path, model: Path) -> None:
    """64, or as many as the model has positions."""
    assert found(run(bench, model, "--json", "-r", 1))["model"]["tokens"] == SHAPE["max_seq"]


def test_build_without_threads(build: Callable[..., Path], model: Path) -> None:
    done = run(build("scalar", threads="1") / "ml_bench", model, "--json", "-r", 1, "-n", 2, "-t", 3)
    result = json.loads(done.stdout)
    assert (done.returncode, result["thread_model"], result["threads"]) == (0, "1", 1)
    assert done.stderr == b"ml_bench: 3 threads were asked for, 1 worked\n"


@pytest.mark.parametrize(
    "name",
    [
        b'"quoted" \\ back/slash',
        bytes(range(1, 0x20)) + b"\x7f",
        "\u00e9 \u20ac \U0001f600 \u2028 \uffff \U0010ffff".encode(),
        b"\xff \x80 \xc3 \xe2\x82 \xf0\x9f\x98",  # stray and cut short
        b"\xc0\xaf \xc1\xbf \xe0\x9f\xbf \xf0\x8f\xbf\xbf",  # overlong
        b"\xed\xa0\x80 \xed\xbf\xbf \xf4\x90\x80\x80 \xf5\x80\x80\x80",  # surrogates, above U+10FFFF
        b"\xc2",
    ],
    ids=repr,
)
def test_any_path_is_json(name: bytes, bench: Path, model: Path, tmp_path: Path) -> None:
    """The path comes back as it was, but for bytes that are not UTF-8: each is U+FFFD."""
    path = os.fsencode(tmp_path) + b"/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(model, path)
    expected = re.sub("[\udc80-\udcff]", "\ufffd", path.decode("utf-8", "surrogateescape"))
    assert found(run(bench, path, "--json", "-r", 1, "-n", 1))["model"]["path"] == expected


# -- ml_bench: what goes wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, word",
    [
        ("-t 0 MODEL", "found 0"),
        ("-t 1025 MODEL", "1 to 1024, found 1025"),
        ("-t 99999999999999999999 MODEL", "found 99999999999999999999"),
        ("-n 0 MODEL", "found 0"),
        ("-n 2x MODEL", "found 2x"),
        ("-r 0", "found 0"),
        ("-r 102", "1 to 101, found 102"),
        ("-r", "found nothing"),
        ("--jsonl", '"--jsonl"'),
        ("--json=1", '"--json=1"'),
        ("MODEL MODEL", "MODEL"),
        ("-t 1", "need a model"),
        ("-n 64", "need a model"),
    ],
)
@pytest.mark.parametrize("json_too", [False, True])
def test_wrong_options(options: str, word: str, json_too: bool, bench: Path, model: Path) -> None:
    arguments = [str(model) if a == "MODEL" else a for a in ["--json"] * json_too + options.split()]
    assert word.replace("MODEL", str(model)) in error_line(run(bench, *arguments), 2)


@pytest.mark.parametrize("json_too", [False, True])
def test_wrong_models(json_too: bool, bench: Path, model: Path, tmp_path: Path) -> None:
    """Statuses are those of ml_run, and no half of an object is printed."""
    options = ["--json"] * json_too
    (tmp_path / "text").write_text("not a model" * 100)
    assert "nothing.mlb" in error_line(run(bench, tmp_path / "nothing.mlb", *options), 3)
    error_line(run(bench, tmp_path / "text", *options), 4)
    assert "17" in error_line(run(bench, model, "-n", 17, *options), 5)


ACTIONS = {
    "help": ["--help"],
    "version": ["--version"],
    "kernels": ["-r", 1],
    "kernels-json": ["--json", "-r", 1],
    "model": ["MODEL", "-r", 1],
    "model-json": ["MODEL", "-r", 1, "--json"],
}


@pytest.mark.parametrize("output", ["/dev/full", "closed", "nobody reads"])
@pytest.mark.parametrize("action", ACTIONS)
def test_output_cannot_be_written(action: str, output: str, bench: Path, model: Path) -> None:
    """A full disk and a closed standard output are errors; a pipe that nobody reads is not."""
    arguments = [model if a == "MODEL" else a for a in ACTIONS[action]]
    if output == "nobody reads":
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as pipe:
            done = run(bench, *arguments, stdout=pipe)
        assert (done.returncode, done.stderr) == (0, b"")
    elif output == "closed":
        done = run(bench, *arguments, stdout=None, preexec_fn=lambda: os.close(1))
        assert "standard output" in error_line(done, 3)
    else:
        with open(output, "wb") as full:
            done = run(bench, *arguments, stdout=full)
        assert "No space left" in error_line(done, 3)


@pytest.mark.parametrize("options", [["-r", 101], ["-r", 101, "--json"], ["LONG", "-n", 1 << 20, "--json"]], ids=str)
def test_interrupt(options: list, bench: Path, random_model: Callable[..., Path]) -> None:
    """Ctrl-C ends it with 130, and without half of an object."""
    arguments = [random_model(**SHAPE | dict(max_seq=1 << 20)) if a == "LONG" else str(a) for a in options]
    restore = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    with subprocess.Popen([bench, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=restore) as process:
        caught = 0
        while not caught >> (signal.SIGINT - 1) & 1:
            time.sleep(0.01)
            caught = int(re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())[1], 16)
        process.send_signal(signal.SIGINT)
        try:
            text, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, told) == (130, b"")
    assert "--json" not in options or text == b""


# -- tools/bench.py -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench", TOP / "tools/bench.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_chain(tool: ModuleType) -> None:
    """Builds are compared with the nearest one of their fallback chain, whose lists the Makefile has too."""
    lists = dict(re.findall(r"^CHAIN_(\w+) := (.*)$", (TOP / "src/config/isa.mk").read_text(), re.MULTILINE))
    chain = tool.chain()
    assert {"scalar", "sse2", "avx2"} <= set(chain) and chain["scalar"] == tool.BASE
    for i, (isa, below) in enumerate(chain.items()):
        others = [name for name in lists[isa].split()[1:] if name in chain]
        assert below == (others[0] if others else tool.BASE)
        assert set(others) <= set(list(chain)[:i])


def test_in_turn(tool: ModuleType) -> None:
    """Each side in each round, and never one side twice in a row."""
    order: list[str] = []
    values = tool.in_turn({name: lambda n=name: order.append(n) or len(order) for name in "abc"}, 2)
    assert "".join(order) == "abcabc" and values == {"a": [1, 4], "b": [2, 5], "c": [3, 6]}


def test_compare_builds(tool: ModuleType) -> None:
    """Ratios are taken round by round: a slow round of both sides changes none."""
    speeds = {tool.BASE: [1.0, 2.0, 4.0], "scalar": [2.0, 6.0, 8.0], "sse2": [8.0, 12.0, 20.0]}
    result = tool.compare_builds(speeds, {"scalar": tool.BASE, "sse2": "scalar"})
    assert result[tool.BASE] == {"median": 2.0}
    assert result["scalar"]["times_base"] == result["scalar"]["times_below"] == {"median": 2.0, "min": 2.0, "max": 3.0}
    assert result["sse2"] == {
        "median": 12.0,
        "below": "scalar",
        "times_below": {"median": 2.5, "min": 2.0, "max": 4.0},
        "times_base": {"median": 6.0, "min": 5.0, "max": 8.0},
    }


def compare(*arguments: object) -> list[list[str]]:
    """Runs tools/bench.py; returns the cells of its table, without the line below the header."""
    command = [sys.executable, TOP / "tools/bench.py", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^a loop that only reads: [\d.]+ GB/s", done.stdout, re.MULTILINE)
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[:1] + table[2:]]


def test_compare_models(tool: ModuleType, model: Path, tmp_path: Path) -> None:
    """`isa`: a row for each build that runs here, with medians and ratios of the runs that the file has."""
    rows = compare("-r", 2, "-n", 4, "isa", model, "--json", tmp_path / "isa.json")
    result = json.loads((tmp_path / "isa.json").read_text())
    names = list(result["runs"])
    assert names[:2] == [tool.BASE, "scalar"] and [row[0] for row in rows[1:]] == names
    assert {len(row) for row in rows} == {8}
    for name, row in zip(names, rows[1:]):
        assert [run["isa"] for run in result["runs"][name]] == ["scalar" if name == tool.BASE else name] * 2
        for kind, cells in (("prompt", row[1:4]), ("decode", row[4:7])):
            speeds = {n: [run["model"][f"{kind}_tokens_per_s"] for run in result["runs"][n]] for n in names}
            assert cells[0] == f"{statistics.mean(speeds[name]):.1f}"  # of two rounds
            if name == tool.BASE:
                assert cells[1:] == ["", ""]
                continue
            for cell, other in zip(cells[1:], (tool.chain()[name], tool.BASE)):
                least, greatest = sorted(a / b for a, b in zip(speeds[name], speeds[other]))
                assert cell == f"{(least + greatest) / 2:.2f} ({least:.2f} to {greatest:.2f})"


def test_compare_kernels(tool: ModuleType, tmp_path: Path) -> None:
    """`kernels`: a row for each row of ml_bench, a column for each build."""
    rows = compare("-r", 1, "kernels", "--json", tmp_path / "kernels.json")
    result = json.loads((tmp_path / "kernels.json").read_text())
    names = list(result["runs"])
    assert rows[0] == ["kernel", "shape", *names]
    kernels = {name: runs[0]["kernels"] for name, runs in result["runs"].items()}
    assert len(rows) - 1 == len(kernels["scalar"]) == len(result["kernels"])
    for i, row in enumerate(rows[1:]):
        assert row[0] == kernels["scalar"][i]["op"]
        for name, cell in zip(names, row[2:]):
            took = kernels[name][i]["us"]
            ratio = kernels[tool.chain()[name]][i]["us"] / took if name != tool.BASE else None
            assert cell == f"{took:.3f}" + (f" {ratio:.2f} ({ratio:.2f} to {ratio:.2f})" if ratio else "")
