#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Cost of the matrix-vector kernels of the ARM builds, from their disassembly: where no ARM CPU is at hand, instructions can still be counted.

    tools/arm_cost.py [--llama FOLDER]

Prints for each build and block format the instructions of the inner loop per block of 32 weights and, with llvm-mca, the cycles that its
models of Cortex-A53, Cortex-A72 and Neoverse N1 take for them, of Cortex-A9 for ARMv7, all data being in the first-level cache. With the source of llama.cpp, the
folder that has ggml/, its dot products are compiled for the same architecture and measured in the same way; there the fold at the end of
a row is left out as well. Needs the cross compilers and binutils, and llvm-mca for the cycles.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PREFIX = {"aarch64": "aarch64-linux-gnu", "armv7": "arm-linux-gnueabihf"}
CPUS = {"aarch64": ("cortex-a53", "cortex-a72", "neoverse-n1"), "armv7": ("cortex-a9",)}
# Builds, and the flags that llama.cpp gets for the same CPUs.
BUILDS = [
    ("armv7", "neon", "-march=armv7-a -mfpu=neon -mfloat-abi=hard"),
    ("aarch64", "neon", "-march=armv8-a"),
    ("aarch64", "neon_dotprod", "-march=armv8.2-a+dotprod"),
]
MULTIPLY = re.compile(r"[su]dot|smull|smlal|vmull|vmlal|smlad")
# Multiplications of one block: tells how many blocks a loop takes at once.
PER_BLOCK = {"neon": 4, "neon_dotprod": 2}


def loops(file: Path, arch: str, symbol: str) -> list[list[str]]:
    """The innermost loops of a function: instructions from the target of a backward branch to the branch."""
    command = [f"{PREFIX[arch]}-objdump", "-d", "--no-show-raw-insn", f"--disassemble={symbol}", file]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [(int(at, 16), code) for at, code in re.findall(r"^ +([0-9a-f]+):\t(.*)$", text, re.MULTILINE)]
    found: list[tuple[int, int]] = []
    for at, code in lines:
        branch = re.match(r"(?:b(?!lx?\s)[a-z.]*|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,)\s+([0-9a-f]+) <", code)
        if branch and int(branch[1], 16) < at:
            found.append((int(branch[1], 16), at))
    inner = [loop for loop in found if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in found)]
    return [[re.sub(r"\s*(;|//|<).*", "", code) for at, code in lines if first <= at <= last] for first, last in inner]


def hot_loop(file: Path, arch: str, isa: str, symbol: str) -> tuple[list[str], float]:
    """The loop over whole groups of blocks, and its number of blocks: of the loops with two blocks or more the one with the fewest
    instructions for each, since those that take what is left over have more. Nothing where scalar code does the work."""
    counted = [(loop, sum(bool(MULTIPLY.match(code)) for code in loop) / PER_BLOCK[isa]) for loop in loops(file, arch, symbol)]
    return min((pair for pair in counted if pair[1] >= 1), key=lambda pair: len(pair[0]) / pair[1], default=([], 1))


def cycles(loop: list[str], arch: str, cpu: str) -> float | None:
    """Cycles of one turn as llvm-mca's model of the CPU sees it; None where it has no such model or not this instruction."""
    if shutil.which("llvm-mca") is None:
        return None
    text = "\n".join(re.sub(r"^(b\S*|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,)\s+[0-9a-f]+$", r"\1 1f", code) for code in loop) + "\n1:\n"
    triple = "aarch64" if arch == "aarch64" else "armv7"
    command = ["llvm-mca", f"-mtriple={triple}-linux-gnu", f"-mcpu={cpu}", "-mattr=+dotprod" if arch == "aarch64" else "-mattr=+neon"]
    run = subprocess.run([*command, "-iterations=100"], input=text, capture_output=True, text=True, check=False)
    total = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    return int(total[1]) / 100 if total else None


def llama_object(source: Path, arch: str, flags: str, folder: Path) -> Path:
    """ggml's dot products, compiled as its own build would be."""
    ggml, out = source / "ggml", folder / f"{arch}{flags.replace('/', '')}.o"
    includes = [f"-I{ggml / part}" for part in ("include", "src", "src/ggml-cpu")]
    command = [f"{PREFIX[arch]}-gcc", "-O3", "-DNDEBUG", "-D_GNU_SOURCE", "-std=gnu11", "-w", *flags.split(), *includes]
    subprocess.run([*command, "-c", ggml / "src/ggml-cpu/arch/arm/quants.c", "-o", out], check=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama", type=Path, metavar="FOLDER", help="source of llama.cpp, to compare with")
    llama = parser.parse_args().llama
    print("| build | format | whose | instructions per block | cycles per block, llvm-mca |\n|---|---|---|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        for arch, isa, flags in BUILDS:
            subprocess.run(["make", "-s", "-j2", f"CROSS={PREFIX[arch]}-", f"ISA={isa}", "all"], cwd=TOP, check=True)
            for kind, name in (("q8", "q8_0"), ("q4", "q4_0")):
                objects = TOP / f"build/{PREFIX[arch]}/{isa}/obj/src/kernels/{isa}"
                sides = [("legacyml", objects / f"matvec_{kind}.o", f"ml_k_matvec_{kind}_{isa}")]
                if llama:
                    sides.append(("llama.cpp", llama_object(llama, arch, flags, Path(folder)), f"ggml_vec_dot_{name}_q8_0"))
                for whose, file, symbol in sides:
                    loop, blocks = hot_loop(file, arch, isa, symbol)
                    figures = [(cpu, cycles(loop, arch, cpu)) for cpu in CPUS[arch] if loop]
                    shown = ", ".join(f"{cpu} {figure / blocks:.1f}" for cpu, figure in figures if figure is not None)
                    count = f"{len(loop) / blocks:.1f}" if loop else "not vectorised"
                    print(f"| {arch} {isa} | {name} | {whose} | {count} | {shown} |")


if __name__ == "__main__":
    main()
