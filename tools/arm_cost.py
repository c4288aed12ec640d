#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Cost of the matrix kernels of the ARM builds: where no ARM CPU is at hand, instructions can still be counted.

    tools/arm_cost.py [--llama FOLDER]

Prints two tables, for each build, block format and kernel: products with one vector (matvec) and with several (matmul).

The first has the instructions of the inner loop per block of 32 weights and vector, from the disassembly, and the cycles that llvm-mca's models of
some CPUs take for them, all data being in the first-level cache. With the source of llama.cpp, the folder that has ggml/, its dot products and
its products with four vectors are compiled for the same architecture and measured in the same way; there the fold at the end of a row is left
out as well. SVE is counted for products with several vectors only, whose loop is the same for all lengths.

The second has the instructions that an emulated CPU executes for whole products, all else included, beside those of scalar C.

Needs the cross compilers and binutils (for llama.cpp's products with several vectors that for C++ too), llvm-mca for the cycles, and for the second
table qemu's user emulators with plugins, whose interface is that of QEMU 6 to 8.
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
# Builds, the CPUs of the models, those that are emulated, and the flags that llama.cpp gets for them.
BUILDS = [
    ("armv7", "neon", ("cortex-a9",), ("cortex-a9",), "-march=armv7-a -mfpu=neon -mfloat-abi=hard"),
    ("aarch64", "neon", ("cortex-a53", "cortex-a72", "neoverse-n1"), ("cortex-a53",), "-march=armv8-a"),
    ("aarch64", "neon_dotprod", ("cortex-a55", "neoverse-n1"), ("neoverse-n1",), "-march=armv8.2-a+dotprod"),
    ("aarch64", "sve", ("a64fx",), tuple(f"max,sve-default-vector-length={length}" for length in (16, 32, 64)), ""),
]
MULTIPLY = re.compile(r"[su]dot|smull|smlal|vmull|vmlal|smlad")
# Multiplications of one block: tells how many blocks a loop takes at once. In SVE it depends on the length.
PER_BLOCK = {"neon": 4, "neon_dotprod": 2}
# Bits of a vector: multiplications of the loop, and its rows.
SVE_LOOPS = {128: (16, 8), 256: (16, 16), 512: (8, 16)}

# Prints how many instructions were executed. QEMU's header is in no package: this is what it declares.
PLUGIN = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

size_t qemu_plugin_tb_n_insns(const void *block);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*callback)(uint64_t id, void *block));
void qemu_plugin_register_vcpu_tb_exec_inline(void *block, int operation, void *to, uint64_t n);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*callback)(uint64_t id, void *data), void *data);

EXPORT int qemu_plugin_version = 1;
static uint64_t executed;

static void translated(uint64_t id, void *block) {
  enum { ADD = 0 };
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(uint64_t id, void *data) {
  (void)id, (void)data;
  fprintf(stderr, "%llu", (unsigned long long)executed);
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int n, char **options) {
  (void)info, (void)n, (void)options;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, NULL);
  return 0;
}
"""

# program KERNEL TIMES
ROWS, BLOCKS, COLUMNS = 576, 18, 64
DRIVER = f"""
#include <stdlib.h>
#include <string.h>

#include "src/config/ml_config.h"

enum {{ ROWS = {ROWS}, BLOCKS = {BLOCKS}, COLUMNS = {COLUMNS}, COLS = BLOCKS * ML_QK }};
static int8_t w[ROWS * COLS], q[COLUMNS * COLS];
static float d[ROWS * BLOCKS], dx[COLUMNS * BLOCKS], y[COLUMNS * ROWS];
static int32_t sums[COLUMNS * BLOCKS];

int main(int argc, char **argv) {{
  ml_qtensor W = {{w, d, ROWS, COLS, 0}};
  ml_qact x = {{q, dx, sums, COLS}};
  for (int i = 0; argc == 3 && i < atoi(argv[2]); i++) {{
#define CASE(kernel, ...) if (strcmp(argv[1], #kernel) == 0) {{ W.type = strstr(#kernel, "q8") ? ML_Q8_0 : ML_Q4_0; ml_k_##kernel(__VA_ARGS__); }}
#define FORMAT(type) \\
    CASE(matvec_##type##_scalar, y, &W, &x, 0, ROWS, 0) \\
    CASE(matvec_##type, y, &W, &x, 0, ROWS, 0) \\
    CASE(matmul_##type, y, ROWS, &W, &x, COLUMNS, 0, ROWS)
    FORMAT(q8)
    FORMAT(q4)
  }}
}}
"""


def loops(file: Path, arch: str, symbol: str | None) -> list[list[str]]:
    """The innermost loops of a function, or of all: instructions from the target of a backward branch to the branch."""
    command = [f"{PREFIX[arch]}-objdump", "-d", "--no-show-raw-insn", *([f"--disassemble={symbol}"] if symbol else []), file]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [(int(at, 16), code) for at, code in re.findall(r"^ +([0-9a-f]+):\t(.*)$", text, re.MULTILINE)]
    found: list[tuple[int, int]] = []
    for at, code in lines:
        branch = re.match(r"(?:b(?!lx?\s)[a-z.]*|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,)\s+([0-9a-f]+) <", code)
        if branch and int(branch[1], 16) < at:
            found.append((int(branch[1], 16), at))
    inner = [loop for loop in found if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in found)]
    return [[re.sub(r"\s*(;|//|<).*", "", code) for at, code in lines if first <= at <= last] for first, last in inner]


def multiplications(loop: list[str]) -> int:
    return sum(bool(MULTIPLY.match(code)) for code in loop)


def hot_loop(file: Path, arch: str, isa: str, symbol: str | None) -> tuple[list[str], float]:
    """The loop over whole groups of blocks, and its number of blocks: of the loops with a block or more the one with the fewest
    instructions for each, since those that take what is left over have more. Nothing where scalar code does the work."""
    counted = [(loop, multiplications(loop) / PER_BLOCK[isa]) for loop in loops(file, arch, symbol)]
    return min((pair for pair in counted if pair[1] >= 1), key=lambda pair: len(pair[0]) / pair[1], default=([], 1))


def cycles(loop: list[str], arch: str, cpu: str) -> float | None:
    """Cycles of one turn as llvm-mca's model of the CPU sees it; None where it has no such model or not this instruction."""
    if shutil.which("llvm-mca") is None:
        return None
    text = "\n".join(re.sub(r"^(b\S*|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,)\s+[0-9a-f]+$", r"\1 1f", code) for code in loop) + "\n1:\n"
    if arch == "armv7":  # Thumb; LLVM 14 does not know "ldr.w" with all the offsets that ldr has
        text = re.sub(r"^(\w+)\.w\b", r"\1", text, flags=re.MULTILINE)
    options = {"armv7": ("-mtriple=thumbv7-linux-gnu", "-mattr=+neon"), "aarch64": ("-mtriple=aarch64-linux-gnu", "-mattr=+dotprod")}
    command = ["llvm-mca", f"-mcpu={cpu}", *options[arch]]
    run = subprocess.run([*command, "-iterations=100"], input=text, capture_output=True, text=True, check=False)
    total = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    return int(total[1]) / 100 if total else None


def llama_object(source: Path, arch: str, flags: str, folder: Path, file: str) -> Path | None:
    """A file of ggml's for ARM, compiled as its own build would; None where there is no compiler for it."""
    ggml, out = source / "ggml", folder / f"{arch}{flags.replace('/', '')}{file}.o"
    compiler, standard = (f"{PREFIX[arch]}-gcc", "gnu11") if file.endswith(".c") else (f"{PREFIX[arch]}-g++", "gnu++17")
    if shutil.which(compiler) is None:
        return None
    includes = [f"-I{ggml / part}" for part in ("include", "src", "src/ggml-cpu")]
    command = [compiler, "-O3", "-DNDEBUG", "-D_GNU_SOURCE", f"-std={standard}", "-w", *flags.split(), *includes]
    subprocess.run([*command, "-c", ggml / "src/ggml-cpu/arch/arm" / file, "-o", out], check=True)
    return out


def row_of_loop(build: str, name: str, kernel: str, whose: str, loop: list[str], blocks: float, arch: str, cpus: tuple[str, ...]) -> str:
    figures = [(cpu, cycles(loop, arch, cpu)) for cpu in cpus if loop]
    shown = ", ".join(f"{cpu} {figure / blocks:.1f}" for cpu, figure in figures if figure is not None)
    return f"| {build} | {name} | {kernel} | {whose} | {f'{len(loop) / blocks:.1f}' if loop else 'not vectorised'} | {shown} |"


def print_loops(llama: Path | None, folder: Path) -> None:
    print("| build | format | kernel | whose | instructions per block | cycles per block, llvm-mca |\n|---|---|---|---|---:|---|")
    for arch, isa, cpus, _, flags in BUILDS:
        for kind, name in (("q8", "q8_0"), ("q4", "q4_0")):
            objects = TOP / f"build/{PREFIX[arch]}/{isa}/obj/src/kernels/{isa}"
            if isa == "sve":
                found = loops(objects / f"matmul_{kind}.o", arch, None)
                for bits, (products, rows) in SVE_LOOPS.items():
                    loop = next(loop for loop in found if multiplications(loop) == products)
                    print(
                        row_of_loop(f"{arch} {isa}, {bits} bits", name, "matmul", "legacyml", loop, rows, arch, cpus if bits == 512 else ())
                    )
                continue
            # The loops of matmul may be in functions of their own.
            sides = [(op, "legacyml", objects / f"{op}_{kind}.o", None) for op in ("matvec", "matmul")]
            if llama:
                sides.insert(1, ("matvec", "llama.cpp", llama_object(llama, arch, flags, folder, "quants.c"), f"ggml_vec_dot_{name}_q8_0"))
                if isa == "neon_dotprod":  # the only one of these for which it has any
                    sides.append(
                        ("matmul", "llama.cpp", llama_object(llama, arch, flags, folder, "repack.cpp"), f"ggml_gemm_{name}_4x4_q8_0")
                    )
            for kernel, whose, file, symbol in sides:
                if file is not None:
                    print(row_of_loop(f"{arch} {isa}", name, kernel, whose, *hot_loop(file, arch, isa, symbol), arch, cpus))


def executed(arch: str, cpu: str, plugin: Path, program: Path, kernel: str) -> float:
    """Instructions of a kernel per block and vector: those of a second call."""

    def total(times: int) -> int:
        emulator = ["qemu-aarch64" if arch == "aarch64" else "qemu-arm", "-L", f"/usr/{PREFIX[arch]}", "-cpu", cpu, "-plugin", plugin]
        return int(subprocess.run([*emulator, program, kernel, str(times)], capture_output=True, text=True, check=True).stderr)

    return (total(2) - total(1)) / (ROWS * BLOCKS * (COLUMNS if kernel.startswith("matmul") else 1))


def print_executed(folder: Path) -> None:
    print(f"\nInstructions executed per block and vector, {ROWS} rows of {BLOCKS} blocks, matmul with {COLUMNS} vectors:\n")
    print(
        "| build | emulated CPU | format | scalar | matvec | matmul | scalar / matvec | scalar / matmul |\n|---|---|---|---:|---:|---:|---:|---:|"
    )
    for text, name in ((PLUGIN, "plugin.c"), (DRIVER, "driver.c")):
        (folder / name).write_text(text)
    plugin = folder / "plugin.so"
    subprocess.run(["cc", "-O2", "-fPIC", "-shared", folder / "plugin.c", "-o", plugin], check=True)
    flags = dict(re.findall(r"^FLAGS_(\w+) := (.*)$", (TOP / "src/config/isa.mk").read_text(), re.MULTILINE))
    for arch, isa, _, cpus, _ in BUILDS:
        program = folder / f"{arch}-{isa}"
        command = [
            f"{PREFIX[arch]}-gcc",
            "-O2",
            *flags[f"{arch}_{isa}"].split(),
            f"-DML_ISA_{isa.upper()}",
            f"-I{TOP}",
            folder / "driver.c",
        ]
        subprocess.run([*command, TOP / f"build/{PREFIX[arch]}/{isa}/liblegacyml.a", "-pthread", "-o", program], check=True)
        for cpu in cpus:
            for kind, name in (("q8", "q8_0"), ("q4", "q4_0")):
                kernels = (f"matvec_{kind}_scalar", f"matvec_{kind}", f"matmul_{kind}")
                scalar, one, many = (executed(arch, cpu, plugin, program, kernel) for kernel in kernels)
                counts = f"{scalar:.1f} | {one:.1f} | {many:.1f} | {scalar / one:.1f} | {scalar / many:.1f}"
                print(f"| {arch} {isa} | {cpu} | {name} | {counts} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama", type=Path, metavar="FOLDER", help="source of llama.cpp, to compare with")
    llama = parser.parse_args().llama
    for arch, isa, *_ in BUILDS:
        library = f"build/{PREFIX[arch]}/{isa}/liblegacyml.a"
        subprocess.run(["make", "-s", "-j2", f"CROSS={PREFIX[arch]}-", f"ISA={isa}", library], cwd=TOP, check=True)
    with tempfile.TemporaryDirectory() as folder:
        print_loops(llama, Path(folder))
        if shutil.which("qemu-aarch64") and shutil.which("qemu-arm"):
            print_executed(Path(folder))


if __name__ == "__main__":
    main()
