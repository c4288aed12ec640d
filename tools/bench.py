#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures speed as ratios in one run: the builds against each other, and ml_run's start and memory.

    tools/bench.py isa   MODEL [--json FILE]   every build that this CPU runs: prompt and decode
    tools/bench.py kernels     [--json FILE]   the same builds, kernel by kernel, on one thread
    tools/bench.py start MODEL                 time until the first token can be fed, and peak memory

All sides of a comparison are run in turn, several rounds. What is printed are medians, and of the ratios of the rounds the median and, in brackets,
the least and the greatest. Run it when nothing else runs. `isa` and `kernels` compare each build with the one below it in its fallback chain
(src/config/isa.toml) and with scalar C that the compiler must not vectorise. Needs Python 3.11 (tomllib).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Callable, TypeVar

TOP = Path(__file__).resolve().parent.parent
BASE = "scalar, -fno-tree-vectorize"
T = TypeVar("T")


def build(name: str, isa: str, cflags: str = "") -> Path:
    """Builds one variant into build/<name> and returns the folder."""
    subprocess.run(
        ["make", "-s", "-j2", f"ISA={isa}", f"BUILD=build/{name}"], cwd=TOP, env=os.environ | {"CFLAGS": cflags}, check=True
    )
    return TOP / "build" / name


def ml_bench(folder: Path, *arguments: object) -> dict:
    """What ml_bench of a build finds (docs/speed.md has the fields). Where it fails it has said why, and so ends this program."""
    run = subprocess.run([folder / "ml_bench", "--json", *map(str, arguments)], stdout=subprocess.PIPE, check=False)
    if run.returncode != 0:
        sys.exit(f"{folder / 'ml_bench'} ended with status {run.returncode}")
    return json.loads(run.stdout)


def in_turn(sides: dict[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each side finds in each round. Within a round one side follows the other, so that a busy machine slows down all of them."""
    found: dict[str, list[T]] = {name: [] for name in sides}
    for i in range(rounds):
        print(f"round {i + 1} of {rounds}", file=sys.stderr)
        for name, measure in sides.items():
            found[name].append(measure())
    return found


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def times(values: list[float], base: list[float]) -> dict[str, float]:
    """How many times `base` the values are, round by round."""
    return spread([v / b for v, b in zip(values, base, strict=True)])


def times_text(ratio: dict[str, float] | None) -> str:
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})" if ratio else ""


def chain() -> dict[str, str]:
    """The builds that there are for this architecture, and for each the one that it is compared with: the nearest below it that there is."""
    ask = ["make", "-s", "--eval", "isas: ; @echo $(ISAS)", "isas"]
    isas = subprocess.run(ask, cwd=TOP, capture_output=True, text=True, check=True).stdout.split()
    registry = {row["name"]: row for row in tomllib.loads((TOP / "src/config/isa.toml").read_text())["isa"]}

    def below(isa: str) -> str:
        parent = registry[isa]["parent"]
        return parent if parent in isas else below(parent) if parent else BASE

    return {isa: below(isa) for isa in sorted(isas, key=lambda name: registry[name]["rank"])}


def native_builds() -> tuple[dict[str, Path], dict[str, str]]:
    """The folder of each build that this CPU runs, BASE first and then in the order of the chain; and what each is compared with."""
    folders = {BASE: build("bench-scalar", "scalar", "-fno-tree-vectorize -fno-tree-slp-vectorize")}
    compared = chain()
    for isa in compared:
        folder = build(isa, isa)
        refusal = subprocess.run([folder / "ml_bench", "--version"], capture_output=True, text=True, check=False)
        if refusal.returncode == 0:
            folders[isa] = folder
        else:
            print(f"not measured: {refusal.stderr.strip()}", file=sys.stderr)
    return folders, compared


def compare_builds(speeds: dict[str, list[float]], compared: dict[str, str]) -> dict[str, dict]:
    """The median speed of each build, and how many times as fast it is as the build below it and as BASE."""
    result: dict[str, dict] = {name: {"median": statistics.median(values)} for name, values in speeds.items()}
    for name in speeds.keys() - {BASE}:
        below = compared[name]
        result[name] |= {"below": below, "times_below": times(speeds[name], speeds[below]), "times_base": times(speeds[name], speeds[BASE])}
    return result


def write_json(file: Path | None, result: dict) -> None:
    if file:
        file.write_text(json.dumps(result, indent=1) + "\n")


def print_read(runs: dict[str, list[dict]]) -> None:
    """The speed of memory, which each run of ml_bench measures too."""
    read = spread([run["read_gb_per_s"] for found in runs.values() for run in found if run["read_gb_per_s"]])
    print(f"\na loop that only reads: {read['median']:.1f} GB/s ({read['min']:.1f} to {read['max']:.1f})")


def bench_isa(arguments: argparse.Namespace) -> None:
    folders, compared = native_builds()
    options = [arguments.model, "-t", arguments.threads, "-n", arguments.tokens, "-r", 3]
    runs = in_turn({name: lambda f=folder: ml_bench(f, *options) for name, folder in folders.items()}, arguments.rounds)

    def numbers(field: str) -> dict[str, list[float]]:
        return {name: [run["model"][field] for run in found] for name, found in runs.items()}

    kinds = {kind: compare_builds(numbers(f"{kind}_tokens_per_s"), compared) for kind in ("prompt", "decode")}
    header = [f"{kind} tok/s | times the build below | times {BASE}" for kind in kinds]
    print("| build |", " | ".join(header), "| weights GB/s |")
    print("|---|" + "---:|" * 7)
    for name, rates in numbers("weights_gb_per_s").items():
        cells = [name]
        for rows in kinds.values():
            cells += [f"{rows[name]['median']:.1f}", times_text(rows[name].get("times_below")), times_text(rows[name].get("times_base"))]
        print("|", " | ".join(cells), f"| {statistics.median(rates):.1f} |")
    print_read(runs)
    write_json(arguments.json, {**kinds, "runs": runs})


def bench_kernels(arguments: argparse.Namespace) -> None:
    folders, compared = native_builds()
    runs = in_turn({name: lambda f=folder: ml_bench(f, "-r", 3) for name, folder in folders.items()}, arguments.rounds)
    print("microseconds, and how many times as fast as the build below:", ", ".join(f"{i} on {compared[i]}" for i in folders if i != BASE), "\n")
    print("| kernel | shape |", " | ".join(runs), "|")
    print("|---|---|" + "---:|" * len(runs))
    results = []
    for i, row in enumerate(runs[BASE][0]["kernels"]):
        shape = f"{row['rows']} x {row['cols']}" if row["rows"] else f"{row['cols']}"
        speeds = compare_builds({name: [1 / run["kernels"][i]["us"] for run in found] for name, found in runs.items()}, compared)
        cells = [f"{1 / speed['median']:.3f} {times_text(speed.get('times_below'))}".strip() for speed in speeds.values()]
        print("|", " | ".join([row["op"], shape, *cells]), "|")
        results.append({"op": row["op"], "rows": row["rows"], "cols": row["cols"], "calls_per_us": speeds})
    print_read(runs)
    write_json(arguments.json, {"kernels": results, "runs": runs})


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


def count(text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number of 1 or more is needed, not {text!r}")
    return int(text)


def existing(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--threads", type=count, default=1)
    parser.add_argument("-n", "--tokens", type=count, default=64)
    parser.add_argument("-r", "--rounds", type=count, default=5)
    commands = parser.add_subparsers(required=True)
    for name, function in (("isa", bench_isa), ("kernels", bench_kernels), ("start", bench_start)):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        if name != "kernels":
            command.add_argument("model", type=existing, help=".mlb, Q8_0")
        if name in ("isa", "kernels"):
            command.add_argument("--json", type=Path, metavar="FILE", help="write the comparison and every run to FILE")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
