# SPDX-License-Identifier: BSD-3-Clause
"""ml_bench, tools/bench.py and tools/roofline.py: what they print is complete and follows from what was measured. Speed itself is never asserted."""

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
NO_MADDS = ("quantize_q8", "rmsnorm", "softmax", "rope", "silu_mul", "add")  # what they do is not counted
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


def operations() -> list[str]:
    """Every operation that has kernels."""
    listed = re.findall(r"\bX\((\w+)\)", (TOP / "src/kernels/kernels.h").read_text().split("define ML_FOR_EACH_KERNEL")[1])
    return [op for op in listed if op != "X"]


def test_kernels(isa: str, build: Callable[..., Path]) -> None:
    """Every operation has rows, and the figures of a row are those of one measurement."""
    result = found(run(build(isa) / "ml_bench", "--json", "-r", 2))
    version = re.search(r'define LEGACYML_VERSION "(.*)"', (TOP / "src/include/legacyml.h").read_text())[1]
    assert list(result) == ["version", "isa", "thread_model", "threads", "rounds", "read_gb_per_s", "peak_gmadd_per_s", "kernels"]
    assert [result[k] for k in ("version", "isa", "thread_model", "threads", "rounds")] == [version, isa, "pthread", 1, 2]
    assert result["read_gb_per_s"] > 0 and list(result["peak_gmadd_per_s"]) == ["q8", "q4", "f32"]
    assert all(rate > 0 for rate in result["peak_gmadd_per_s"].values())
    shapes: dict[str, set] = {}
    for row in result["kernels"]:
        assert list(row) == [
            *("op", "rows", "cols", "vectors", "from_memory", "us", "gb_per_s", "gmadd_per_s", "share", "roof", "scalar_us", "ratio"),
        ]
        assert row["us"] > 0 and row["scalar_us"] > 0
        assert row["ratio"] == near(row["scalar_us"] / row["us"])
        shapes.setdefault(row["op"], set()).add((row["rows"], row["cols"], row["vectors"]))
        assert row["gb_per_s"] * 1e3 * row["us"] == near(kernel_bytes(row))
        if row["op"] in NO_MADDS:
            assert (row["gmadd_per_s"], row["share"], row["roof"], row["from_memory"]) == (None, None, None, False)
            continue
        assert row["gmadd_per_s"] * 1e3 * row["us"] == near((row["rows"] or 1) * row["cols"] * (row["vectors"] or 1))
        kind = row["op"].rpartition("_")[2]
        roofs = {kind: result["peak_gmadd_per_s"][kind]}
        assert row["from_memory"] == (row["rows"] == 49152)
        if row["from_memory"]:  # G multiply-adds/s for each byte in flight
            roofs["memory"] = result["read_gb_per_s"] * BLOCK / BLOCK_BYTES[kind]
        assert row["roof"] == min(roofs, key=roofs.get)
        assert row["share"] == near(row["gmadd_per_s"] / roofs[row["roof"]])
    assert list(shapes) == operations()
    assert shapes["matvec_q8"] == shapes["matvec_q4"] == {(*shape, 1) for shape in MATRIX_SHAPES}
    assert shapes["matmul_q8"] == shapes["matmul_q4"] == {(r, c, n) for r, c in ((1536, 576), (576, 1536)) for n in (16, 128)}
    assert shapes["scores_f32"] == shapes["mix_f32"] == {(256, 64, 3), (2048, 64, 3)}


def kernel_bytes(row: dict) -> float:
    """What a kernel has to read: weights with their scales; keys or values once for all queries; the vectors that it works on."""
    if row["op"].startswith("mat"):
        return row["rows"] * row["cols"] / BLOCK * BLOCK_BYTES[row["op"].rpartition("_")[2]]
    two_vectors = row["op"] in ("rmsnorm", "silu_mul", "add", "dot_f32", "axpy_f32")
    return (row["rows"] or 1) * row["cols"] * (8 if two_vectors else 4)


def test_peak_is_no_part_of_the_library(isa: str, build: Callable[..., Path]) -> None:
    """ml_bench has one loop of each kind, which the linker may have made local, the library none."""
    for file, expected in (("ml_bench", {"ml_k_peak_q8", "ml_k_peak_q4", "ml_k_peak_f32"}), ("liblegacyml.a", set())):
        names = subprocess.run(["nm", build(isa) / file], capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r" [Tt] (ml_k_peak\w*)", names)) == expected, file


def test_kernel_table(isa: str, build: Callable[..., Path]) -> None:
    """The table has a row for each roof and the rows of --json, with numbers where that has numbers."""
    program = build(isa) / "ml_bench"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in run(program, "-r", 1).stdout.decode().splitlines()]
    assert rows[0] == [
        *(f"kernel, {isa}", "shape", "us", "GB/s", "G multiply-adds/s", "share of its roof", "roof", "scalar us", "times scalar"),
    ]
    assert {len(row) for row in rows} == {9}
    result = found(run(program, "-r", 1, "--json"))
    for row, name in zip(rows[2:6], ("memory", "q8", "q4", "f32"), strict=True):
        column = 3 if name == "memory" else 4
        assert float(row[column]) > 0 and row[6] == name
        assert [cell for i, cell in enumerate(row[1:], 1) if i not in (column, 6)] == [""] * 6
    for row, kernel in zip(rows[6:], result["kernels"], strict=True):
        shape = f"{kernel['rows']} x {kernel['cols']}" if kernel["rows"] else str(kernel["cols"])
        assert row[:2] == [kernel["op"], shape + (f", {kernel['vectors']} vectors" if (kernel["vectors"] or 1) > 1 else "")]
        for cell, field in zip((*row[2:6], *row[7:]), ("us", "gb_per_s", "gmadd_per_s", "share", "scalar_us", "ratio"), strict=True):
            assert cell == "" if kernel[field] is None else float(cell) >= 0, row
        assert row[6] in ({""} if kernel["roof"] is None else {"memory", kernel["op"].rpartition("_")[2]})


@pytest.mark.parametrize(
    "options", [dict(type="q8_0"), dict(type="q8_0", untied=True), dict(type="q4_0", untied=True, emb_type="q8_0")], ids=str
)
def test_model(options: dict, isa: str, build: Callable[..., Path], random_model: Callable[..., Path]) -> None:
    """Speed and bandwidth of a model agree; an embedding that is no classifier is not counted, but for the row of one token."""
    path = random_model(**SHAPE, **options)
    result = found(run(build(isa) / "ml_bench", path, "--json", "-r", 2, "-t", 2, "-n", 5))
    assert list(result) == ["version", "isa", "thread_model", "threads", "rounds", "read_gb_per_s", "peak_gmadd_per_s", "model"]
    assert [result[k] for k in ("isa", "thread_model", "threads", "rounds")] == [isa, "pthread", 2, 2]
    numbers = result["model"]
    assert list(numbers) == [
        *("path", "weight_type", "bytes_per_token", "prompt_madds", "tokens", "load_ms"),
        *("prompt_tokens_per_s", "prompt_gmadd_per_s", "prompt_share", "decode_tokens_per_s", "weights_gb_per_s", "decode_share"),
    ]
    assert (numbers["path"], numbers["weight_type"], numbers["tokens"]) == (str(path), options["type"].upper(), 5)
    unused_rows = SHAPE["vocab"] - 1 if options.get("untied") else 0
    embedding = "q8" if options.get("emb_type") else options["type"][:2]
    assert numbers["bytes_per_token"] == path.stat().st_size - unused_rows * SHAPE["dim"] // BLOCK * BLOCK_BYTES[embedding]
    for value in (result["read_gb_per_s"], numbers["load_ms"], numbers["prompt_tokens_per_s"], numbers["decode_tokens_per_s"]):
        assert value > 0
    assert numbers["weights_gb_per_s"] * 1e9 == near(numbers["decode_tokens_per_s"] * numbers["bytes_per_token"])
    assert numbers["decode_share"] == near(numbers["weights_gb_per_s"] / result["read_gb_per_s"])
    # wq 64 x 64, wk and wv 32 x 64, wo 64 x 64, w1, w2 and w3 64 x 96. Of five tokens in two layers; of the last layer's second half, and of the
    # classifier of 300 x 64, only for the last token.
    assert numbers["prompt_madds"] == 5 * (2 * 8192 + 22528) + 22528 + 19200
    assert numbers["prompt_gmadd_per_s"] * 5e9 == near(numbers["prompt_madds"] * numbers["prompt_tokens_per_s"])
    assert numbers["prompt_share"] == near(numbers["prompt_gmadd_per_s"] / result["peak_gmadd_per_s"][options["type"][:2]])


def test_multiply_adds_of_long_prompts(bench: Path, random_model: Callable[..., Path]) -> None:
    """Tokens are fed 128 at a time; of each stretch one is the last."""
    path = random_model(**SHAPE | dict(max_seq=300, layers=1, kv_heads=4))
    numbers = found(run(bench, path, "--json", "-r", 1, "-n", 257))["model"]
    assert numbers["prompt_madds"] == 257 * 3 * 64 * 64 + 3 * (64 * 64 + 3 * 64 * 96) + 300 * 64


def test_model_table(bench: Path, model: Path) -> None:
    lines = run(bench, model, "-r", 1, "-t", 3).stdout.decode().splitlines()
    header, row = ([cell.strip() for cell in line.split("|")[1:-1]] for line in (lines[0], lines[2]))
    assert len(lines) == 3 and len(header) == len(row)
    assert row[:3] == [f"{model}, Q8_0", "scalar", "3"] and all(float(cell) > 0 for cell in row[4:6] + row[7:])
    assert header[6] == "share of a loop of them" and float(row[6]) >= 0 and header[10] == "share of a loop that only reads"


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


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A program of tools/."""
    spec = importlib.util.spec_from_file_location(name, TOP / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("bench", monkeypatch)


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


# -- tools/roofline.py --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def roofline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("roofline", monkeypatch)


def kernel_row(op: str, rows: int | None, cols: int, vectors: int | None, gmadds: float | None, gbs: float) -> dict:
    return dict(op=op, rows=rows, cols=cols, vectors=vectors, from_memory=rows == 49152, gmadd_per_s=gmadds, gb_per_s=gbs)


FOUND = dict(
    version="1.2.3",
    isa="avx2",
    read_gb_per_s=20.0,
    peak_gmadd_per_s=dict(q8=100, q4=200.0, f32=99.5),
    kernels=[
        kernel_row("matvec_q8", 49152, 576, 1, 16.0, 18.0),
        kernel_row("matmul_q8", 1536, 576, 128, 80.0, 0.5),
        kernel_row("rmsnorm", None, 576, None, None, 40.0),
        kernel_row("dot_f32", None, 64, None, 5.0, 40.0),
    ],
)


def test_roofline_reads(roofline: ModuleType) -> None:
    """Points are multiply-adds for each byte; what does none is no point."""
    result = roofline.read(json.dumps(FOUND))
    assert (result.title, result.read, result.peaks) == ("avx2, legacyml 1.2.3", 20, {"q8": 100, "q4": 200, "f32": 99.5})
    assert [(k.op, k.shape, k.intensity, k.rate, k.from_memory) for k in result.kernels] == [
        ("matvec_q8", "49152 x 576", pytest.approx(8 / 9), 16, True),
        ("matmul_q8", "1536 x 576, 128", 160, 80, False),
        ("dot_f32", "64", 0.125, 5, False),
    ]


def test_roofline_spreads_labels(roofline: ModuleType) -> None:
    assert roofline.spread([0, 10, 30], 1) == [0, 10, 30]
    assert roofline.spread([5, 5, 5], 2) == [3, 5, 7]
    assert roofline.spread([0, 4, 4, 5, 20], 2) == pytest.approx([0, 7 / 3, 13 / 3, 19 / 3, 20])
    assert roofline.spread([0, 1, 1], 2) == pytest.approx([-4 / 3, 2 / 3, 8 / 3])
    assert roofline.spread([], 1) == []


@pytest.mark.parametrize("isa", ["scalar", "avx2"])
def test_roofline_draws(
    isa: str, roofline: ModuleType, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A point and a label for each kernel that does multiply-adds; no label on another one or on a point; roofs where they were measured."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    done = run(build(isa) / "ml_bench", "--json", "-r", 1)
    if done.returncode == 7:
        pytest.skip("this CPU does not run it")
    (tmp_path / "found.json").write_bytes(done.stdout)
    result = found(done)
    figures: list = []
    monkeypatch.setattr(pyplot, "close", figures.append)
    assert roofline.main([str(tmp_path / "found.json"), str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n") and len(list(tmp_path.iterdir())) == 2
    axes = figures[0].axes[0]
    kernels = [k for k in result["kernels"] if k["op"] not in NO_MADDS]
    points = [tuple(point) for scatter in axes.collections for point in scatter.get_offsets().tolist()]
    assert sorted(points) == [pytest.approx(p) for p in sorted((k["gmadd_per_s"] / k["gb_per_s"], k["gmadd_per_s"]) for k in kernels)]
    labels = [matplotlib.text.Text.get_window_extent(text) for text in axes.texts]  # without its line
    assert len(labels) == len(kernels)
    for i, label in enumerate(labels):
        assert not any(label.overlaps(other) for other in labels[:i])
        assert not any(label.contains(*axes.transData.transform(point)) for point in points)
    slope, *levels = (line.get_xydata() for line in axes.lines)
    assert (slope[:, 1] / slope[:, 0]).tolist() == pytest.approx([result["read_gb_per_s"]] * 2)
    for level in levels:
        assert level[0][1] == level[1][1] and level[0][1] in result["peak_gmadd_per_s"].values()
    for peak in result["peak_gmadd_per_s"].values():
        assert any(level[0][1] == pytest.approx(peak, rel=0.03) for level in levels)


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "Expecting value"),
        ("[]", "ml_bench --json"),
        ("7", "ml_bench --json"),
        (json.dumps(FOUND | dict(kernels=[])), "found none"),
        (json.dumps(FOUND | dict(kernels=FOUND["kernels"][2:3])), "found none"),
        (json.dumps(FOUND | dict(read_gb_per_s=None)), "above 0, found None"),
        (json.dumps(FOUND | dict(read_gb_per_s=float("nan"))), "above 0, found nan"),
        (json.dumps(FOUND | dict(peak_gmadd_per_s=dict(q8=1, q4=-1, f32=1))), "above 0, found -1"),
        (json.dumps({k: v for k, v in FOUND.items() if k != "kernels"} | dict(model={})), "without a model"),
        (json.dumps(FOUND | dict(kernels=[kernel_row("add", None, 1, None, "1", 1.0)])), "above 0, found '1'"),
        (json.dumps(FOUND | dict(kernels=[kernel_row("add", None, 1, None, 1.0, 0)])), "above 0, found 0"),
        ("[" * 100000, "ml_bench --json"),
        ("\udcff", "utf-8"),
    ],
)
def test_roofline_of_something_else(
    text: str, words: str, roofline: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roofline.importlib.util, "find_spec", lambda name: True)
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert roofline.main([str(tmp_path / "a.json"), str(tmp_path / "a.png")]) == 4
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("roofline: ") and told.err.count("\n") == 1 and words in told.err
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_roofline_files(roofline: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file to read, none to write, no matplotlib."""
    monkeypatch.setattr(roofline.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(roofline, "draw", lambda found: b"image")
    (tmp_path / "a.json").write_text(json.dumps(FOUND))
    (tmp_path / "folder").mkdir()
    for arguments in (("nothing.json", "a.png"), ("folder", "a.png"), ("a.json", "nowhere/a.png"), ("a.json", "folder")):
        assert roofline.main([str(tmp_path / a) for a in arguments]) == 3
        told = capsys.readouterr()
        assert told.out == "" and told.err.startswith("roofline: ") and told.err.count("\n") == 1
        assert {file.name for file in tmp_path.iterdir()} == {"a.json", "folder"}
    monkeypatch.setattr(roofline.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as end:
        roofline.main([str(tmp_path / "a.json"), str(tmp_path / "a.png")])
    assert end.value.code == 2 and "matplotlib is needed" in capsys.readouterr().err
