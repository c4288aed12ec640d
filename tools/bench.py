#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures speed as ratios in one run: the builds against each other, ml_run's start and memory, and decoding against llama.cpp.

    tools/bench.py isa   MODEL                 scalar without vectorisation, sse2, avx2: decode and kernels
    tools/bench.py start MODEL                 time until the first token can be fed, and peak memory
    tools/bench.py llama MODEL GGUF            decode against llama.cpp for the same ISA and weight type

All commands of a comparison are run in turn, several rounds; medians are printed, and the ratio of each round. Run it when nothing else runs.
`llama` builds llama-bench and llama-quantize for AVX2 from the source distribution of llama-cpp-python (needs cmake, g++ and some minutes once) and
converts GGUF to Q8_0 in every matrix.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Callable

TOP = Path(__file__).resolve().parent.parent
LLAMA = TOP / "build/llama.cpp"


def build(name: str, isa: str, cflags: str = "") -> Path:
    """Builds one variant into build/<name> and returns the folder."""
    subprocess.run(
        ["make", "-s", "-j2", f"ISA={isa}", f"BUILD=build/{name}"], cwd=TOP, env=os.environ | {"CFLAGS": cflags}, check=True
    )
    return TOP / "build" / name


def ml_bench(folder: Path, model: Path, threads: int, tokens: int) -> float:
    """Decoded tokens per second of one round."""
    command = [folder / "ml_bench", model, "-t", str(threads), "-n", str(tokens), "-r", "3"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(out.splitlines()[-1].split("|")[-3])


def compare(sides: dict[str, Callable[[], float]], rounds: int) -> None:
    """Runs every side in turn; prints medians, and medians of each round's ratio to the last side."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            found[name].append(measure())
    base = list(found)[-1]
    for name, values in found.items():
        ratios = [v / b for v, b in zip(values, found[base])]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name:32} {statistics.median(values):8.1f} tok/s, {statistics.median(ratios):.2f} times {base} ({spread})")


def bench_isa(arguments: argparse.Namespace) -> None:
    folders = {
        "avx2": build("avx2", "avx2"),
        "sse2": build("sse2", "sse2"),
        "scalar, -fno-tree-vectorize": build("bench-scalar", "scalar", "-fno-tree-vectorize -fno-tree-slp-vectorize"),
    }
    sides = {name: lambda f=f: ml_bench(f, arguments.model, arguments.threads, arguments.tokens) for name, f in folders.items()}
    compare(sides, arguments.rounds)


def anonymous_kib(pid: int) -> int:
    """Memory of a process that is not the mapped file: heap, stacks, KV cache."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0


def bench_start(arguments: argparse.Namespace) -> None:
    ml_run = build("avx2", "avx2") / "ml_run"
    one = [ml_run, arguments.model, "--tokens", "1", "-n", "0", "-q", "-t", str(arguments.threads)]
    walls = []
    for _ in range(arguments.rounds * 3):
        start = time.perf_counter()
        subprocess.run(one, check=True)
        walls.append((time.perf_counter() - start) * 1000)
    print(f"whole process, one token fed: median {statistics.median(walls):.1f} ms, at most {max(walls):.1f} ms")
    many = [ml_run, arguments.model, "--tokens", "1", "-n", str(arguments.tokens), "-t", str(arguments.threads)]
    process = subprocess.Popen(many, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, anonymous_kib(process.pid))
        time.sleep(0.002)
    print(f"{process.stderr.read()}peak memory beside the mapped file, KV cache of {arguments.tokens} positions included: {peak / 1024:.1f} MiB")


def build_llama() -> Path:
    """llama-bench and llama-quantize for AVX2 with FMA, F16C and BMI2; returns their folder."""
    binaries = LLAMA / "build/bin"
    if (binaries / "llama-bench").exists():
        return binaries
    LLAMA.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", "scikit-build-core", "cmake", "ninja"], check=True)
    download = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", LLAMA, "llama-cpp-python"]
    subprocess.run([*pip, *download], check=True)
    archive = next(LLAMA.glob("llama_cpp_python-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(LLAMA, filter="data")
    source = LLAMA / archive.name.removesuffix(".tar.gz") / "vendor/llama.cpp"
    switches = ["NATIVE=OFF", "SSE42=ON", "AVX=ON", "AVX2=ON", "FMA=ON", "F16C=ON", "BMI2=ON", "OPENMP=OFF"]
    cmake = [Path(sys.executable).parent / "cmake", "-S", source, "-B", LLAMA / "build", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF"]
    others = ["-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=OFF"]
    subprocess.run([*cmake, *(f"-DGGML_{s}" for s in switches), *others], check=True)
    subprocess.run([cmake[0], "--build", LLAMA / "build", "-j2", "--target", "llama-bench", "llama-quantize"], check=True)
    return binaries


def bench_llama(arguments: argparse.Namespace) -> None:
    binaries = build_llama()
    gguf = LLAMA / "q8_0.gguf"
    quantize = [binaries / "llama-quantize", "--allow-requantize", "--pure", arguments.gguf, gguf, "Q8_0"]
    subprocess.run(quantize, check=True, capture_output=True)

    def llama() -> float:
        command = [binaries / "llama-bench", "-m", gguf, "-t", str(arguments.threads), "-p", "0", "-n", str(arguments.tokens), "-r", "3", "-o", "json"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0]["avg_ts"]

    print(f"bytes: {arguments.model.stat().st_size} (legacyml), {gguf.stat().st_size} (llama.cpp, {next(LLAMA.glob('*.tar.gz')).name})")
    folder = build("avx2", "avx2")
    compare({"legacyml avx2": lambda: ml_bench(folder, arguments.model, arguments.threads, arguments.tokens), "llama.cpp avx2": llama}, arguments.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-n", "--tokens", type=int, default=64)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    commands = parser.add_subparsers(required=True)
    for name, function in (("isa", bench_isa), ("start", bench_start), ("llama", bench_llama)):
        command = commands.add_parser(name)
        command.add_argument("model", type=Path, help=".mlb, Q8_0")
        command.set_defaults(function=function)
        if name == "llama":
            command.add_argument("gguf", type=Path, help="the GGUF that the model was converted from")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
