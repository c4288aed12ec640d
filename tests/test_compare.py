# SPDX-License-Identifier: BSD-3-Clause
"""tools/compare_llama_cpp.py without llama.cpp: what it reads, computes, refuses and draws. Speed itself is never asserted."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from conftest import TOP

from legacyml_convert.errors import ConvertError, FormatError

sys.path.insert(0, str(TOP / "tools"))
import compare_llama_cpp as tool

OURS, THEIRS = "legacyml", "llama.cpp"
SHAPE = dict(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=300, max_seq=16)
EMBEDDING = 300 * 64
LAYER = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64
NORMS = (2 * 2 + 1) * 64 * 4  # bytes


# -- What the files hold -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("kind, block", [("q8_0", 32 + 4), ("q4_0", 16 + 4)])
def test_read_mlb(kind: str, block: int, untied: bool, random_model: Callable[..., Path]) -> None:
    path = random_model(**SHAPE, type=kind, untied=untied)
    weights = EMBEDDING * (1 + untied) + 2 * LAYER
    used = (EMBEDDING + 2 * LAYER) // 32 * block + NORMS
    expected = (kind.upper(), 15 + untied, weights, weights // 32 * block, used, path.stat().st_size)
    assert dataclasses.astuple(tool.read_mlb(path)) == expected


def test_read_mlb_of_two_types(random_model: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match="Q4_0, Q8_0; expected one type"):
        tool.read_mlb(random_model(**SHAPE, type="q4_0", emb_type="q8_0"))


def write_gguf(path: Path, types: dict[str, str]) -> Path:
    """Matrices of 4 x 64 of these types, each a name of the gguf library's, and a norm."""
    writer = gguf.GGUFWriter(path, "llama")
    matrix = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)
    for name, kind in types.items():
        number = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(matrix, number), raw_dtype=number)
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("kind, block", [("Q8_0", 32 + 2), ("Q4_0", 16 + 2)])
def test_read_gguf(kind: str, block: int, untied: bool, tmp_path: Path) -> None:
    names = ["token_embd.weight", "blk.0.attn_q.weight", *["output.weight"] * untied]
    path = write_gguf(tmp_path / "model.gguf", dict.fromkeys(names, kind))
    expected = (kind, len(names), len(names) * 256, len(names) * 8 * block, 2 * 8 * block + 64 * 4, path.stat().st_size)
    assert dataclasses.astuple(tool.read_gguf(path)) == expected


def test_read_gguf_of_two_types(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", {"token_embd.weight": "Q8_0", "blk.0.attn_q.weight": "Q4_1"})
    with pytest.raises(FormatError, match="Q4_1, Q8_0; expected one type"):
        tool.read_gguf(path)


def test_check_same() -> None:
    """The type asked for on both sides, as many matrices, as many weights; bytes may differ."""
    one = tool.Contents("Q8_0", 15, 3200, 3600, 3700, 4000)
    tool.check_same("Q8_0", one, dataclasses.replace(one, matrix_bytes=3400, token_bytes=3500, file_bytes=9000))
    with pytest.raises(FormatError, match="legacyml are Q8_0; expected Q4_0"):
        tool.check_same("Q4_0", one, one)
    with pytest.raises(FormatError, match=r"llama\.cpp are Q4_0; expected Q8_0"):
        tool.check_same("Q8_0", one, dataclasses.replace(one, type="Q4_0"))
    for change in (dict(matrices=16), dict(weights=3232)):
        with pytest.raises(FormatError, match="expected the same"):
            tool.check_same("Q8_0", one, dataclasses.replace(one, **change))


# -- Whether the machine was quiet ---------------------------------------------------------------------------------------------------


def test_busy_seconds() -> None:
    """user, nice, system, irq, softirq, steal; not idle and iowait, and a guest's time not twice."""
    tick = 100  # of every Linux that there is
    stat = "cpu  1000 200 300 50000 7000 10 20 30 400 500\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n"
    assert tool.busy_seconds(stat) == (1000 + 200 + 300 + 10 + 20 + 30) / tick


@pytest.mark.parametrize(
    "samples, loads, quiet",
    [
        # 4 s: 6 s of work, of which 5.8 s are ours; then 2 s: 2.1 s of work, all but 0.1 s ours.
        ([(10, 100, 3), (14, 106, 8.8), (20, 120, 10), (22, 122.1, 12)], [0.05, 0.05], True),
        # ...all but 0.5 s ours.
        ([(10, 100, 3), (14, 106, 8.8), (20, 120, 10), (22, 122.1, 11.6)], [0.05, 0.25], False),
        # Ours is counted finer than all: never less than nothing.
        ([(0, 0, 0), (1, 0.99, 1), (2, 5, 1), (3, 5, 1)], [0, 0], True),
    ],
)
def test_verdict(samples: list, loads: list[float], quiet: bool) -> None:
    watch = tool.Watch(iter([tool.Sample(*sample) for sample in samples]).__next__)
    for name in ("first", "second"):
        with watch.over(name):
            pass
    verdict = watch.verdict()
    assert [name for name, _ in verdict["loads"]] == ["first", "second"]
    assert [load for _, load in verdict["loads"]] == pytest.approx(loads)
    assert (verdict["quiet"], verdict["most"]) == (quiet, pytest.approx(max(loads)))
    if quiet:
        assert "was quiet" in verdict["sentence"]
    else:
        assert "NOT quiet: in 1 of 2 runs" in verdict["sentence"] and "up to 0.25 (second)" in verdict["sentence"]


def test_a_busy_neighbour_is_seen() -> None:
    """A process that is not waited for counts, whatever else runs."""
    watch = tool.Watch()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinner:
        try:
            time.sleep(0.2)
            with watch.over("spinning"):
                time.sleep(0.8)
        finally:
            spinner.kill()
    assert watch.loads[0][1] > 0.3


# -- Runs ------------------------------------------------------------------------------------------------------------------------------


def program(path: Path, body: str) -> None:
    options = "arguments = sys.argv[1:]\noption = lambda o: arguments[arguments.index(o) + 1]"
    path.write_text(f"#!{sys.executable} -IS\nimport json, sys\n{options}\n{body}\n")
    path.chmod(0o755)


ML_BENCH = """
if "--version" in arguments: sys.exit(print("ml_bench 1.2.3, sse2, threads: pthread"))
n, threads = int(option("-n")), int(option("-t"))
model = {"decode_tokens_per_s": 100.0 * threads + n, "prompt_tokens_per_s": 1000.0 * threads + n}
print(json.dumps({"threads": min(threads, 4), "read_gb_per_s": 10.0 * threads, "model": model}))
"""
LLAMA_BENCH = """
n = int(option("-t"))
test = {"n_threads": min(n, 4)}
print(json.dumps([
    test | {"n_prompt": int(option("-p")), "n_gen": 0, "samples_ts": [300.0 * n, 100.0 * n, 200.0 * n]},
    test | {"n_prompt": 0, "n_gen": int(option("-n")), "samples_ts": [60.0 * n, 50.0 * n, 10.0 * n]},
]))
"""


def stand_ins(folder: Path) -> Path:
    """Puts stand-ins for the programs of both sides into the folder."""
    program(folder / "ml_bench", ML_BENCH)
    program(folder / "llama-bench", LLAMA_BENCH)
    program(folder / "ml_run", "import time; time.sleep(0.02); print(' Paris')")
    program(folder / "llama-completion", "import time; time.sleep(0.1); print(' Paris')")
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return stand_ins(tmp_path)


def test_one_run(programs: Path) -> None:
    """Decoding is of 64 tokens, the prompt of 256; of llama-bench the median sample."""
    assert tool.ours(programs, Path("model.mlb"), 2) == {"decode": 264, "prompt": 2256, "read_gb_per_s": 20}
    assert tool.theirs(programs, Path("model.gguf"), 2) == {"decode": 100, "prompt": 400}


def test_runs_that_are_not_what_was_asked_for(programs: Path) -> None:
    with pytest.raises(ConvertError, match="8 threads were asked for, ml_bench has 4"):
        tool.ours(programs, Path("model.mlb"), 8)
    with pytest.raises(ConvertError, match="8 threads were asked for, llama-bench has 4"):
        tool.theirs(programs, Path("model.gguf"), 8)
    program(programs / "llama-bench", "print('a line', file=sys.stderr); print('no such model', file=sys.stderr); sys.exit(9)")
    with pytest.raises(ConvertError, match="llama-bench ended with status 9: no such model"):
        tool.theirs(programs, Path("model.gguf"), 1)
    program(programs / "ml_run", "")
    with pytest.raises(ConvertError, match="ml_run printed no token"):
        tool.our_start(programs, Path("t"), Path("model.mlb"), 1)


def test_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One side follows the other with the same type and threads, each from its own new copy, which is gone afterwards."""
    monkeypatch.setattr(tool, "IDLE", 0)
    files = {kind: {OURS: tmp_path / f"{kind}.mlb", THEIRS: tmp_path / f"{kind}.gguf"} for kind in ("Q8_0", "Q4_0")}
    for pair in files.values():
        for path in pair.values():
            path.write_text(path.name)
    seen: list[tuple] = []

    def side(name: str) -> Callable[[Path, int], dict[str, float]]:
        def measure(path: Path, threads: int) -> dict[str, float]:
            seen.append((path.read_text(), threads, name))
            assert path not in files["Q8_0"].values() and path not in files["Q4_0"].values()
            return {"decode": len(seen)}

        return measure

    watch = tool.Watch()
    runs = tool.run_rounds(files, [1, 2], 2, {OURS: side(OURS), THEIRS: side(THEIRS)}, watch)
    one_round = [(f"{kind}.{end}", n, s) for kind in files for n in (1, 2) for end, s in (("mlb", OURS), ("gguf", THEIRS))]
    assert seen == one_round * 2
    assert runs["Q8_0, 1 thread, legacyml"] == [{"decode": 1}, {"decode": 9}]
    assert runs["Q4_0, 2 threads, llama.cpp"] == [{"decode": 8}, {"decode": 16}]
    assert [name for name, _ in watch.loads] == [*runs, *runs]
    assert sorted(tmp_path.iterdir()) == sorted(path for pair in files.values() for path in pair.values())


# -- What follows from them --------------------------------------------------------------------------------------------------------------


def held(kind: str, ours: int, theirs: int) -> dict:
    return {kind: {OURS: tool.Contents(kind, 2, 10, 1, ours, 1), THEIRS: tool.Contents(kind, 2, 10, 1, theirs, 1)}}


def test_speeds() -> None:
    """Ratios are taken round by round: a slow round of both sides changes none."""
    runs = {
        "Q8_0, 1 thread, legacyml": [
            {"decode": 100, "prompt": 400, "read_gb_per_s": 20},
            {"decode": 50, "prompt": 300, "read_gb_per_s": 10},
            {"decode": 120, "prompt": 600, "read_gb_per_s": 30},
        ],
        "Q8_0, 1 thread, llama.cpp": [{"decode": 50, "prompt": 800}, {"decode": 25, "prompt": 200}, {"decode": 40, "prompt": 600}],
    }
    decode, prompt = tool.speeds(runs, [1], held("Q8_0", 100_000_000, 80_000_000))
    assert (decode["type"], decode["what"], decode["threads"]) == ("Q8_0", "decode", 1)
    assert decode[OURS] == {"median": 100, "min": 50, "max": 120} and decode[THEIRS] == {"median": 40, "min": 25, "max": 50}
    assert decode["times"] == {"median": 2, "min": 2, "max": 3}
    assert decode["read_gb_per_s"] == {"median": 20, "min": 10, "max": 30}
    assert decode["limit"] == {OURS: 200, THEIRS: 250}  # 20 GB/s over 0.1 GB and 0.08 GB
    assert decode["share_of_read"] == pytest.approx({"median": 0.5, "min": 0.4, "max": 0.5})  # 10 of 20, 5 of 10, 12 of 30
    assert (prompt["what"], prompt["times"]) == ("prompt", {"median": 1, "min": 0.5, "max": 1.5})
    assert "limit" not in prompt


def test_starts() -> None:
    runs = {f"{kind}, 2 threads, {OURS}": [{"ms": 10}, {"ms": 20}, {"ms": 12}] for kind in ("Q8_0", "Q4_0")}
    runs |= {f"{kind}, 2 threads, {THEIRS}": [{"ms": 100}, {"ms": 100}, {"ms": 60}] for kind in ("Q8_0", "Q4_0")}
    rows = tool.starts(runs, [2])
    assert [(row["type"], row["threads"]) for row in rows] == [("Q8_0", 2), ("Q4_0", 2)]
    assert rows[0]["times"] == pytest.approx({"median": 0.2, "min": 0.1, "max": 0.2})
    assert rows[0][OURS] == {"median": 12, "min": 10, "max": 20}


def test_settings() -> None:
    """Every switch is given for every ISA: what another one left behind must not stay."""
    on = {
        isa: {s.split("=")[0].removeprefix("-DGGML_") for s in tool.settings(isa) if s.startswith("-DGGML_") and s.endswith("=ON")}
        for isa in tool.ISAS
    }
    everything = {"SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2"}
    assert on == {"native": {"NATIVE"}, "avx2": everything, "sse42": {"SSE42"}, "sse2": set()}
    for isa in tool.ISAS:
        given = {s.split("=")[0].removeprefix("-DGGML_") for s in tool.settings(isa) if s.startswith("-DGGML_")}
        assert given == everything | {"NATIVE"}


# -- The whole of it ---------------------------------------------------------------------------------------------------------------------


def pretend(monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    """Replaces what takes long in the tool: llama.cpp, the models, idleness."""

    def models(binaries: Path, folder: Path) -> tuple[dict, dict]:
        assert binaries == programs
        files = {kind: {OURS: folder / f"{kind}.mlb", THEIRS: folder / f"{kind}.gguf"} for kind in ("Q8_0", "Q4_0")}
        for pair in files.values():
            for path in pair.values():
                path.write_bytes(bytes(1000))
        return files, held("Q8_0", 100_000_000, 80_000_000) | held("Q4_0", 50_000_000, 40_000_000)

    monkeypatch.setattr(tool, "make_models", models)
    monkeypatch.setattr(tool, "build_llama", lambda isa: programs)
    monkeypatch.setattr(tool, "LLAMA", programs)
    monkeypatch.setattr(tool, "IDLE", 0)
    monkeypatch.setattr(tool, "STARTS", 3)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The file that a whole comparison writes, and what it prints."""
    folder = stand_ins(tmp_path_factory.mktemp("comparison"))
    path = folder / "result.json"
    with pytest.MonkeyPatch.context() as monkeypatch, contextlib.redirect_stdout(io.StringIO()) as printed:
        pretend(monkeypatch, folder)
        assert tool.main(["--isa", "sse2", "--build", str(folder), "--rounds", "2", "--json", str(path)]) == 0
    return path, printed.getvalue()


def test_comparison(result: tuple[Path, str]) -> None:
    """Tables, JSON and verdict of a whole comparison."""
    path, printed = result
    found = json.loads(path.read_text())
    assert (found["isa"], found["build"], found["version"], found["rounds"]) == ("sse2", "sse2", "ml_bench 1.2.3", 2)
    assert [(row["what"], row["type"], row["threads"]) for row in found["speed"]] == [
        (what, kind, n) for kind in ("Q8_0", "Q4_0") for what in ("decode", "prompt") for n in (1, 2)
    ]
    lines = printed.splitlines()
    # Ours decodes 100 tokens for each thread and 64 more, theirs 50 for each; reading takes 10 GB/s for each.
    assert "| decode, Q8_0 | 1 | 164.0 | 50.0 | 3.28 (3.28 to 3.28) | 10.0 | 1.64 (1.64 to 1.64) |" in lines
    assert "| decode, Q4_0 | 2 | 264.0 | 100.0 | 2.64 (2.64 to 2.64) | 20.0 | 0.66 (0.66 to 0.66) |" in lines
    assert "| prompt of 256, Q8_0 | 2 | 2256.0 | 400.0 | 5.64 (5.64 to 5.64) |  |  |" in lines
    assert lines[-1] == found["machine"]["sentence"] and len(found["machine"]["loads"]) == 2 * 2 * 2 * 2
    assert found["machine"]["quiet"] == ("NOT" not in lines[-1])


def test_result_is_shown_again(result: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    path, printed = result
    assert tool.main(["--from", str(path), str(path)]) == 0
    assert capsys.readouterr().out == f"{printed}\n{printed}"


def test_start(programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, programs)
    path = programs / "start.json"
    arguments = ["--isa", "avx2", "--build", str(programs), "--rounds", "1", "--threads", "1", "--start", "--json", str(path)]
    assert tool.main(arguments) == 0
    row = json.loads(path.read_text())["start"][0]
    assert row[OURS]["median"] >= 20 and row[THEIRS]["median"] >= 100
    assert f"| Q8_0 | 1 | {row[OURS]['median']:.1f} | {row[THEIRS]['median']:.1f} |" in capsys.readouterr().out
    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda name: True)
    assert tool.main(["--from", str(path), "--plot", str(programs / "plot.png")]) == 2
    told = capsys.readouterr()
    assert told.out == "" and "a result of --start does not have" in told.err


def test_plot(result: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars as high as the medians; over those of decoding lines at what the bandwidth allows."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    figures: list = []
    monkeypatch.setattr(pyplot, "close", figures.append)
    path = result[0].with_name("plot.png")
    assert tool.main(["--from", str(result[0]), "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") and path.stat().st_size > 5000
    decode, prompt = figures[0].axes
    bars = [[bar.get_height() for bar in side.patches] for side in decode.containers if hasattr(side, "patches")]
    assert bars == [[164, 264, 164, 264], [50, 100, 50, 100]]
    # Error bars are lines too, upright ones.
    segments = [segment for lines in decode.collections for segment in lines.get_segments() if segment[0][0] != segment[1][0]]
    assert [segment[0][1] for segment in segments] == pytest.approx([100, 200, 200, 400, 125, 250, 250, 500])
    assert [[bar.get_height() for bar in side.patches] for side in prompt.containers if hasattr(side, "patches")] == [
        [1256, 2256, 1256, 2256],
        [200, 400, 200, 400],
    ]


# -- What goes wrong ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("", "--isa --from is required"),
        ("--isa sse3", "invalid choice: 'sse3'"),
        ("--isa sse2 --from FOLDER/file", "not allowed with"),
        ("--isa sse2 --threads 0", "not '0'"),
        ("--isa sse2 --threads 1,,2", "not ''"),
        ("--isa sse2 --threads 2,2", "not '2,2'"),
        ("--isa sse2 --threads 1,1025", "not '1,1025'"),
        ("--isa sse2 --threads two", "not 'two'"),
        ("--isa sse2 --rounds 0", "not '0'"),
        ("--isa sse2 --rounds -1", "expected one argument|not '-1'"),
        ("--isa sse2 --build FOLDER", "FOLDER has no ml_bench and ml_run"),
        ("--isa sse2 --json FOLDER/none/a.json", "no file can be written at FOLDER/none/a.json"),
        ("--isa sse2 --plot FOLDER", "no file can be written at FOLDER"),
        ("--isa sse2 --start --plot FOLDER/a.png", "--plot draws tokens per second"),
        ("--from FOLDER/none.json", "there is no file FOLDER/none.json"),
        ("--from FOLDER/file --json FOLDER/a.json", "--from measures nothing"),
    ],
)
def test_wrong_arguments(
    arguments: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence and status 2, before anything is done."""
    monkeypatch.setattr(tool, "run", lambda arguments: None)  # or what should be refused would build llama.cpp
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as end:
        tool.main(arguments.replace("FOLDER", str(tmp_path)).split())
    captured = capsys.readouterr()
    assert (end.value.code, captured.out) == (2, "")
    last = captured.err.splitlines()[-1].replace(str(tmp_path), "FOLDER")
    assert any(word in last for word in words.split("|")), last


def test_plot_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is missed before the runs and not after them."""
    monkeypatch.setattr(tool, "run", lambda arguments: None)
    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as end:
        tool.main(["--isa", "sse2", "--plot", str(tmp_path / "a.png")])
    assert end.value.code == 2 and "--plot needs matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"isa": "sse2"}', "not JSON", '{"files": {"Q8_0": 1}}'])
def test_wrong_results(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    assert tool.main(["--from", str(path)]) == 4
    assert capsys.readouterr() == ("", f"compare_llama_cpp.py: {path}: it is not what --json writes\n")


def test_another_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What lies where the source would be fetched to is not unpacked."""
    monkeypatch.setattr(tool, "LLAMA", tmp_path)
    (tmp_path / f"llama_cpp_python-{tool.VERSION}.tar.gz").write_bytes(b"abc")
    assert tool.main(["--isa", "sse2"]) == 4
    # The digest of "abc" is the example of the standard (FIPS 180).
    assert "SHA-256 is ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, expected" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 1
