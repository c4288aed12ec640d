# SPDX-License-Identifier: BSD-3-Clause
"""What the compiler and linker made: silent builds, only the ISA's instructions, libc and nothing else, only public symbols."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Callable

import pytest

from conftest import FOREIGN, HOST, REGISTRY, TOP, in_row, isas, need, runs_here

# What people export, the last line as conda's compiler packages do; all of it for ARM builds too.
HOSTILE = (
    "-march=native -O3",
    "-mavx2 -mfma",
    "-Ofast",
    "-march=nocona -mtune=haswell -ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O2 -ffunction-sections -pipe",
)
LTO = "-flto=auto"
VARIANTS = [
    *(dict(cc=cc, threads=threads, debug=debug) for cc in (None, "clang") for threads, debug in (("pthread", 0), ("1", 1))),
    *(dict(threads=threads, debug=debug) for threads, debug in (("pthread", 1), ("1", 0))),
    *(dict(cflags=cflags) for cflags in HOSTILE),
    *(dict(cc="clang", cflags=cflags) for cflags in ("-march=native -Ofast", "-mavx2 -mfma")),
    dict(cflags="-funsafe-math-optimizations -fsingle-precision-constant", ldflags="-Ofast -funsafe-math-optimizations"),
    dict(cflags=LTO, ldflags=LTO),
]
ALL = [(arch, isa) for arch in (HOST, *FOREIGN) for isa in isas(arch)]
BUILDS = [(arch, isa, options) for arch, isa in ALL for options in VARIANTS if arch == HOST or "cc" not in options or options["cc"] is None]

# Instruction classes by architecture: patterns of a whole line of disassembly, mnemonic first.
CLASSES = {
    "x86_64": {
        "VEX": r"(\{vex\} )?v(?!err|erw|mcall|mload|mresume|mxo)[a-z0-9]+",
        # SSE3, SSSE3, SSE4.1
        "SSE4.1": r"(addsub|haddp|hsubp|lddqu|movddup|movs[hl]dup|fisttp|p(abs[bwd]|sign|shufb|hadd|hsub|maddubsw|mulhrsw|alignr)|"
        r"p(blend|mulld|muldq|min[su][bd]\b|minuw|min?sd|max(sb|sd|ud|uw)|extr[bdq]|insr[bdq]|test|movzx|movsx|cmpeqq|ackusdw)|"
        r"blendp|blendv|round[ps][sd]|dpp|insertps|extractps|movntdqa|mpsadbw|phminposuw)",
        "SSE4.2": r"pcmp[ei]str|pcmpgtq|crc32|popcnt|aes|pclmul|sha",
        "BMI": r"lzcnt|tzcnt|movbe|andn\b|bextr|bls[ir]|blsmsk|bzhi|mulx|pdep|pext\b|rorx|sarx|shlx|shrx",
        "F16C": r"vcvtph2ps|vcvtps2ph",
        "EVEX": r".*(%[xyz]mm(1[6-9]|2\d|3[01])|%zmm|%k[0-7]\b)|vpdpbusd|vmovdq[ua](8|16|32|64)",
        "AVX-VNNI": r"\{vex\} vpdp",
        # DQ, CD, VBMI, VBMI2, IFMA, BITALG, BF16, GFNI
        "other AVX-512": r"vpmullq|vcvtt?p[sd]2u?qq|vcvtu?qq2p|v(extract|insert)[if](64x2|32x8)|vbroadcast[if](32x2|64x2|32x8)|"
        r"vfpclass|vrange|vreduce|vpmov[dq]2m|vpmovm2[dq]|v(and|andn|or|xor)p[sd] .*%zmm|kmovb|vpconflict|vplzcnt|vpbroadcastm|"
        r"vperm(b|i2b|t2b)\b|vpmultishift|vp(compress|expand)[bw]|vpsh[lr]d|vpopcnt|vdpbf16|vcvtne|v?gf2p8|vpmadd52",
        "fused": r"vfn?m(add|sub)",
    },
    "aarch64": {
        "LSE": r"(ld|st)(add|clr|eor|set|smax|smin|umax|umin)(a|l|al)?(b|h)?\s|cas|swp",
        "half": r"f\w+\s.*\b(h\d+|[vz]\d+\.[48]?h)\b",
        "SDOT": r"[su]dot\s+v",
        "SVE": r".*\b(z\d+\.|p\d+[./]|\{z\d)|(cnt|inc|dec)[bhwd]\b|whilel|ptrue",
        "CRC32 or RDM": r"crc32|sqrdml",
        "fused": r"fn?m(add|sub)\b|fml[as]|fmad|fmsb|fnm(la|ls|ad|sb)|bfmla|bfdot|fcmla",
    },
    "armv7": {
        "fused": r"vfn?m[as]",
        "half": r"vcvt[bt]?.*\.f16|v\w+\.f16",
        "division": r"[su]div",
        "ARMv8": r"vrint|vsel|v(max|min)nm|vcvt[anpm]\.|crc32|(lda|stl)(b|h|exb?|exh|exd)?\s",
        "NEON": r"v\w+(\.\w+)*\s.*\b(q\d+|d(1[6-9]|2\d|3[01]))\b|v\w+\.[isup](8|16|32|64)\s+d",
    },
}
FORBIDDEN = {
    ("x86_64", "scalar"): "VEX, SSE4.1, SSE4.2, BMI",
    ("x86_64", "sse2"): "VEX, SSE4.1, SSE4.2, BMI",
    ("x86_64", "sse41"): "VEX, SSE4.2, BMI",
    ("x86_64", "avx2"): "EVEX, BMI, F16C, AVX-VNNI, fused",
    ("x86_64", "avxvnni"): "EVEX, BMI, F16C, fused",
    ("x86_64", "avx512vnni"): "AVX-VNNI, other AVX-512, BMI, fused",
    ("aarch64", "scalar"): "LSE, half, SDOT, SVE, CRC32 or RDM, fused",
    ("aarch64", "neon"): "LSE, half, SDOT, SVE, CRC32 or RDM, fused",
    ("aarch64", "neon_dotprod"): "half, SVE, fused",
    ("aarch64", "sve"): "half, SDOT, fused",
    ("armv7", "scalar"): "fused, half, division, ARMv8, NEON",
    ("armv7", "neon"): "fused, half, division, ARMv8",
}
# What a build exists for; a debug build has it too, spread over functions.
REQUIRED = {
    ("x86_64", "sse2"): ["pmaddwd"],
    ("x86_64", "sse41"): ["pmaddubsw", "psignb"],
    ("x86_64", "avx2"): ["vpmaddubsw .*%ymm", "vpsignb"],
    ("x86_64", "avxvnni"): [r"\{vex\} vpdpbusd .*%ymm"],
    ("x86_64", "avx512vnni"): ["vpdpbusd .*%zmm", "vpdpbusd .*%ymm"],
    ("aarch64", "neon"): [r"smull\s+v\d+\.8h", r"smlal2?\s+v\d+\.8h", r"saddlp|sadalp"],
    ("aarch64", "neon_dotprod"): [r"sdot\s+v"],
    ("aarch64", "sve"): [r"sdot\s+z\d+\.s, z\d+\.b"],
    ("armv7", "neon"): [r"vmull\.s8\s+q", r"vpadal\.s16"],
}


@cache
def instructions(file: Path, arch: str, least: int = 4) -> list[str]:
    """The lines of disassembly: mnemonic, then operands."""
    objdump = f"{FOREIGN[arch]}-objdump" if arch in FOREIGN else "objdump"
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", file], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^ +[0-9a-f]+:\t(.*)$", text, re.MULTILINE)
    assert len(found) >= least, file
    return found


@cache
def has_evex(file: Path) -> bool:
    """By the encoding itself, which the text does not always show: the prefix 62."""
    text = subprocess.run(["objdump", "-d", "-w", file], capture_output=True, text=True, check=True).stdout
    return re.search(r"^ +[0-9a-f]+:\t62 ", text, re.MULTILINE) is not None


def classes(arch: str, isa: str) -> dict[str, re.Pattern[str]]:
    """What a build of the ISA must not contain."""
    return {name: re.compile(CLASSES[arch][name]) for name in FORBIDDEN[arch, isa].split(", ")}


def check_classes(file: Path, arch: str, isa: str, but: str = "") -> None:
    """The file has no instruction of a class that the ISA's builds must not have; `but` is a class that something else in it may have."""
    for name, pattern in classes(arch, isa).items():
        if name == but:
            continue
        found = [line for line in instructions(file, arch) if pattern.match(line)]
        assert not found, f"{file}: {name}: {found[:5]}"
    if arch == "x86_64":
        assert has_evex(file) == (isa == "avx512vnni"), file


def products(folder: Path) -> list[Path]:
    return [folder / "ml_run", folder / "ml_bench", folder / "liblegacyml.so"]


def baseline_objects(folder: Path) -> list[Path]:
    """What may run before the guard's verdict, and the reference."""
    names = ["core/status", "core/cpu", "core/isa_check", "model/legacyml", "app/main_guard"]
    reference = [path for path in sorted((folder / "obj/src/kernels/scalar").glob("*.o")) if path.stem != "peak"]  # which is for ml_bench
    return [*(folder / f"obj/src/{name}.o" for name in names), *reference]


@pytest.mark.parametrize("arch, isa, options", BUILDS, ids=lambda o: " ".join(str(v) for v in o.values()) if isinstance(o, dict) else o)
def test_variant(arch: str, isa: str, options: dict, build: Callable[..., Path], request: pytest.FixtureRequest) -> None:
    """Builds without a line of output (the fixture fails otherwise), and contains the instructions of its ISA only."""
    in_row(request, arch, isa, options.get("cc"), "disassembled")
    need(arch, emulated=False)
    folder = build(isa, arch=arch, target="all", programs=("tool_client",), **options)
    for product in products(folder):
        check_classes(product, arch, isa)
    for file in baseline_objects(folder):
        check_classes(file, arch, "scalar")
    if not options.get("debug") and LTO not in options.values():
        patterns = REQUIRED.get((arch, isa), [])
        objects = [folder / f"obj/src/kernels/{isa}/matvec_{kind}.o" for kind in ("q8", "q4")] if patterns else []
        found = {file: {p for p in patterns if any(re.match(p, line) for line in instructions(file, arch))} for file in objects}
        assert all(found.values()) and set().union(*found.values()) == set(patterns), found
    if arch == HOST and isa in ("scalar", "sse2"):
        mode = subprocess.run([folder / "tool_client", "mode"], capture_output=True, text=True, check=False)
        assert mode.stdout == "0x1f80\n", "a start-up routine changed the floating-point mode"
    for product in [*products(folder), folder / "tool_client"]:
        assert "set_fast_math" not in subprocess.run(["nm", product], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("arch, isa", ALL)
@pytest.mark.parametrize("options", [{}, dict(cflags=LTO, ldflags=LTO)], ids=["", "lto"])
def test_nothing_of_the_isa_before_the_verdict(
    arch: str, isa: str, options: dict, build: Callable[..., Path], request: pytest.FixtureRequest
) -> None:
    """Everything that can be reached from the program's start without going through what the guard protects is baseline code."""
    in_row(request, arch, isa, None, "disassembled")
    need(arch, emulated=False)
    program = build(isa, arch=arch, target="all", programs=("tool_client",) if options else (), **options) / "ml_run"
    objdump = f"{FOREIGN[arch]}-objdump" if arch in FOREIGN else "objdump"
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", program], capture_output=True, text=True, check=True).stdout
    functions = {}
    for name, body in re.findall(r"^[0-9a-f]+ <([\w.@]+)>:\n((?:.+\n)*)", text, re.MULTILINE):
        functions[name] = re.findall(r"^ +[0-9a-f]+:\t(.*)$", body, re.MULTILINE)
    seen: set[str] = set()
    # The initialisers that the linker collects, and main; ml_main and everything called mli_ run after the verdict.
    waiting = [name for name in functions if name in ("_start", "main", "_init", "_fini") or "GLOBAL__" in name or "frame_dummy" in name]
    assert "main" in waiting
    while waiting:
        name = waiting.pop()
        if name in seen or name == "ml_main" or name.startswith("mli_") or name not in functions:
            continue
        seen.add(name)
        for line in functions[name]:
            # Calls, jumps, and on x86 functions whose address is taken; elsewhere an address is shown as that of its page.
            if re.match(r"call|j\w+ |lea |blx?\b|b(\.\w+|eq|ne|cs|cc|mi|pl|hi|ls|ge|lt|gt|le)?\s|cbn?z|tbn?z", line):
                waiting += re.findall(r"<([\w.@]+?)(?:\+0x[0-9a-f]+)?>", line)
    assert {"main", "ml_isa_check", "ml_isa_decide", "ml_cpu_read"} <= seen, seen
    assert not any(name.startswith("ml_k_") for name in seen)
    for name, pattern in classes(arch, "scalar").items():
        found = [(function, line) for function in seen for line in functions[function] if pattern.match(line)]
        assert not found, f"{name}: {found[:5]}"
    initialisers = subprocess.run([objdump, "-h", program], capture_output=True, text=True, check=True).stdout
    size = re.search(r"\.init_array\s+([0-9a-f]+)", initialisers)
    assert size and int(size[1], 16) == (4 if arch == "armv7" else 8), "a constructor beside the C library's"


# Macros that come with flags and say nothing that the guard does not ask for: CRC32 is a part of SSE4.2, and without XSAVE there is no AVX.
NOT_FEATURES = {"__CRC32__", "__XSAVE__", "__ARM_FEATURE_SVE_BITS", "__ARM_FEATURE_SVE_VECTOR_OPERATORS"}


@pytest.mark.parametrize("arch, isa", ALL)
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_flags_allow_what_the_guard_asks_for(arch: str, isa: str, cc: str) -> None:
    """Every feature macro that the flags switch on beyond the baseline is one of the registry's, so the guard sees it: a flag that allows
    more than its row says would let a CPU in that lacks it."""
    need(arch, emulated=False)
    command = ["clang", f"--target={FOREIGN[arch]}"] if arch in FOREIGN and cc == "clang" else [f"{FOREIGN[arch]}-gcc"] if arch in FOREIGN else [cc]

    def macros(isa: str) -> set[str]:
        words = subprocess.run(["make", "-s", "--no-print-directory", "--eval", "f: ; @echo $(FLAGS_%s_%s)" % (arch, isa), "f"],
                               cwd=TOP, capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
        text = subprocess.run([*command, *words, "-dM", "-E", "-x", "c", "/dev/null"], capture_output=True, text=True, check=True).stdout
        return set(re.findall(r"#define (__\w+)", text))

    known = {feature["macro"] for feature in REGISTRY["feature"] if feature["arch"] == arch}
    row = next(row["arch"][arch] for row in REGISTRY["isa"] if row["name"] == isa)
    wanted = {feature["macro"] for feature in REGISTRY["feature"] if feature["arch"] == arch and feature["name"] in row["features"]}
    allowed = macros(isa)
    feature_like = {name for name in allowed - macros("scalar") if not re.search(r"__(GCC|FP_FAST|ARM_(FP|NEON)|SIZE|ATOMIC|tune|k8|code)", name)}
    assert feature_like - known - NOT_FEATURES == set(), "flags allow what the registry does not know"
    assert allowed & known == wanted, "the flags allow other features than the row lists"


# A line of C for every class, with the flags that allow it.
SAMPLES = [
    ("x86_64", "VEX", "-mavx2", "#include <immintrin.h>\nvoid f(float*p){_mm256_storeu_ps(p,_mm256_add_ps(_mm256_loadu_ps(p),_mm256_loadu_ps(p)));}"),
    ("x86_64", "fused", "-mfma", "float f(float a,float b,float c){return __builtin_fmaf(a,b,c);}"),
    ("x86_64", "SSE4.1", "-mssse3", "#include <immintrin.h>\n__m128i f(__m128i a){return _mm_abs_epi8(a);}"),
    ("x86_64", "SSE4.2", "-mpopcnt", "int f(unsigned a){return __builtin_popcount(a);}"),
    ("x86_64", "BMI", "-mbmi2", "unsigned f(unsigned a,int b){return a<<b;}"),
    ("x86_64", "F16C", "-mf16c", "#include <immintrin.h>\n__m128 f(__m128i a){return _mm_cvtph_ps(a);}"),
    ("x86_64", "EVEX", "-mavx512f", "#include <immintrin.h>\n__m512 f(__m512 a){return _mm512_add_ps(a,a);}"),
    ("x86_64", "EVEX", "-mavx512vnni -mavx512vl", "#include <immintrin.h>\n__m256i f(__m256i a){return _mm256_dpbusd_epi32(a,a,a);}"),
    ("x86_64", "AVX-VNNI", "-mavxvnni", "#include <immintrin.h>\n__m256i f(__m256i a){return _mm256_dpbusd_avx_epi32(a,a,a);}"),
    ("x86_64", "other AVX-512", "-mavx512dq", "#include <immintrin.h>\n__m512i f(__m512i a){return _mm512_mullo_epi64(a,a);}"),
    ("aarch64", "LSE", "-march=armv8.1-a", "#include <stdatomic.h>\nint f(atomic_int*p){return atomic_fetch_add(p,1);}"),
    ("aarch64", "half", "-march=armv8.2-a+fp16", "__fp16 f(__fp16 a,__fp16 b){return a*b;}"),
    ("aarch64", "SDOT", "-march=armv8.2-a+dotprod", "#include <arm_neon.h>\nint32x4_t f(int32x4_t a,int8x16_t b){return vdotq_s32(a,b,b);}"),
    ("aarch64", "SVE", "-march=armv8.2-a+sve", "#include <arm_sve.h>\nsvint32_t f(svint32_t a,svint8_t b){return svdot(a,b,b);}"),
    ("aarch64", "CRC32 or RDM", "-march=armv8.1-a", "#include <arm_acle.h>\nunsigned f(unsigned a){return __crc32b(a,1);}"),
    ("aarch64", "fused", "-ffp-contract=fast", "float f(float a,float b,float c){return a*b+c;}"),
    ("armv7", "fused", "-mfpu=neon-vfpv4 -ffp-contract=fast", "float f(float a,float b,float c){return a*b+c;}"),
    ("armv7", "half", "-mfpu=neon-fp16 -mfp16-format=ieee", "float f(__fp16 a){return a;}"),
    ("armv7", "division", "-march=armv7ve -mfpu=vfpv4-d16", "int f(int a,int b){return a/b;}"),
    ("armv7", "ARMv8", "-march=armv8-a -mfpu=fp-armv8 -fno-trapping-math", "double f(double a){return __builtin_floor(a);}"),
    ("armv7", "NEON", "-mfpu=neon", "#include <arm_neon.h>\nint32x4_t f(int32x4_t a){return vaddq_s32(a,a);}"),
]


@pytest.mark.parametrize("arch, name, flags, source", SAMPLES, ids=lambda part: part if len(part) < 30 else "")
def test_disassembly_notices(arch: str, name: str, flags: str, source: str, tmp_path: Path) -> None:
    """Each pattern finds what it is for."""
    need(arch, emulated=False)
    prefix = f"{FOREIGN[arch]}-" if arch in FOREIGN else ""
    file = tmp_path / "f.o"
    subprocess.run([f"{prefix}gcc", "-O2", *flags.split(), "-x", "c", "-c", "-", "-o", file], input=source, text=True, check=True)
    text = subprocess.run([f"{prefix}objdump", "-d", "--no-show-raw-insn", file], capture_output=True, text=True, check=True).stdout
    assert any(re.match(CLASSES[arch][name], line) for line in re.findall(r"^ +[0-9a-f]+:\t(.*)$", text, re.MULTILINE)), text
    assert {(a, n) for a, n, _, _ in SAMPLES} == {(a, n) for a in CLASSES for n in CLASSES[a]}


@pytest.mark.parametrize("arch, isa", ALL)
def test_elf(arch: str, isa: str, build: Callable[..., Path], request: pytest.FixtureRequest) -> None:
    in_row(request, arch, isa, None, "disassembled")
    need(arch, emulated=False)
    folder = build(isa, arch=arch)
    loaders = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1", "armv7": "ld-linux-armhf.so.3"}

    def readelf(option: str, file: Path) -> str:
        return subprocess.run(["readelf", "-W", option, file], capture_output=True, text=True, check=True).stdout

    for product in products(folder):
        text = readelf("-d", product)
        needed = set(re.findall(r"NEEDED.*\[(.+)\]", text))
        assert "libc.so.6" in needed and needed <= {"libc.so.6", loaders[arch]}, needed
        assert "TEXTREL" not in text
        stack = re.search(r"GNU_STACK .* (R\w*) +0x", readelf("-l", product))
        assert stack and stack[1] == "RW"
        if arch == "armv7":
            attributes = readelf("-A", product)
            assert "Tag_CPU_arch: v7\n" in attributes and "Tag_CPU_arch_profile: Application\n" in attributes
            units = dict(re.findall(r"Tag_(FP_arch|Advanced_SIMD_arch): (.*)", attributes))
            assert not re.search("Tag_(FP_HP|MPextension|DIV|Virtualization)", attributes)
            assert units == ({"FP_arch": "VFPv3-D16"} if isa == "scalar" else {"FP_arch": "VFPv3", "Advanced_SIMD_arch": "NEONv1"})
    assert re.search(r"SONAME.*\[liblegacyml\.so\.0\]", text)
    symbols = subprocess.run(["nm", "-D", "--defined-only", folder / "liblegacyml.so"], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in symbols.splitlines()}
    header = (TOP / "src/include/legacyml.h").read_text()
    assert exported == set(re.findall(r"ML_API [^;]*?\b(ml_\w+)\(", header))


@pytest.mark.parametrize("language", ["c -std=c11", "c++ -std=c++11"])
def test_public_header(language: str, tmp_path: Path) -> None:
    command = f"gcc -x {language} -Wall -Wextra -pedantic -Werror -fsyntax-only -".split()
    subprocess.run([*command, "-I", TOP / "src/include"], input="#include <legacyml.h>\n", text=True, check=True)


def test_include_directions() -> None:
    """app -> model -> ops -> kernels -> core; config binds kernels and belongs to whoever uses them; intrinsics only below kernels/<isa>."""
    allowed = {
        "app": {"app", "model", "ops", "core", "config", "include"},
        "model": {"model", "ops", "kernels", "core", "include"},
        "ops": {"ops", "kernels", "core", "config", "include"},
        "kernels": {"kernels", "core"},
        "config": {"config", "kernels", "core"},
        "core": {"core", "include", "config"},  # config: the generated table of CPU features
        "include": {"include"},
    }
    seen = 0
    for file in (TOP / "src").rglob("*.[ch]"):
        room = file.relative_to(TOP / "src").parts[0]
        for quoted, system in re.findall(r'^#include (?:"(.*)"|<(.*)>)', file.read_text(), re.MULTILINE):
            if quoted:
                target = (file.parent / quoted).resolve().relative_to(TOP / "src").parts[0]
                assert target in allowed[room], f"{file}: {quoted}"
                if room == "core" and target == "config":
                    assert quoted == "../config/isa_table.h"
                seen += 1
            elif system.endswith("intrin.h") or system in ("arm_neon.h", "arm_sve.h"):
                assert room == "kernels" and len(file.relative_to(TOP / "src").parts) == 3, f"{file}: {system}"
    assert seen > 100


def test_library_code_has_no_way_out() -> None:
    """No exit, abort, signal or output in what becomes the library."""
    for room in ("core", "model", "ops", "kernels", "config"):
        for file in (TOP / "src" / room).rglob("*.[ch]"):
            code = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
            assert not re.search(r"\b(abort|exit|_exit|raise|assert|f?printf|fputs|puts|perror|signal)\s*\(", code), file


def test_registry() -> None:
    subprocess.run([sys.executable, TOP / "tools/gen_isa.py", "--check"], check=True)


def test_rebuilds_what_changed(tmp_path: Path) -> None:
    command = ["make", "-j2", "ISA=scalar", f"BUILD={tmp_path}/b"]
    first = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    again = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True)
    changed = subprocess.run([*command, "THREADS=1"], cwd=TOP, capture_output=True, text=True, check=True)
    assert "threads.c" in first.stdout and "threads.c" in changed.stdout
    assert "Nothing to be done" in again.stdout or "gcc" not in again.stdout
    for wrong in ("ISA=mmx", "THREADS=2", "THREADS=1 pthread", "DEBUG=yes", "ASM=0 1", "ASM=", "BUILD=a b", "PY_OUT=a b"):
        run = subprocess.run([*command, wrong], cwd=TOP, capture_output=True, text=True, check=False)
        assert run.returncode != 0 and wrong in run.stderr
    windows = subprocess.run([*command, "CC=x86_64-w64-mingw32-gcc"], cwd=TOP, capture_output=True, text=True, check=False)
    assert windows.returncode != 0 and ("CMake" in windows.stderr or shutil.which("x86_64-w64-mingw32-gcc") is None)
    empty = subprocess.run(["make", "-n", "ISA=", "BUILD=", "all"], cwd=TOP, capture_output=True, text=True, check=True)
    assert f"build/{best_here()}/ml_run" in empty.stdout + empty.stderr or "up to date" in empty.stdout + empty.stderr


def best_here() -> str:
    """The build that the guard recommends for this CPU, which is the one that make builds when none is named."""
    return max((isa for isa in isas(HOST) if runs_here(isa)), key=lambda isa: next(row["rank"] for row in REGISTRY["isa"] if row["name"] == isa))


def test_makefile_filters_flags(tmp_path: Path) -> None:
    """CPPFLAGS cannot change the instruction set either."""
    variables = {"CPPFLAGS": "-mtbm -DSOME=1", "CFLAGS": "-mtbm -mtune=haswell"}
    run = subprocess.run(["make", "-n", "ISA=sse2", f"BUILD={tmp_path}/b", "all"], cwd=TOP, env=os.environ | variables, capture_output=True, text=True)
    assert "-DSOME=1" in run.stdout and "-mtune=haswell" in run.stdout and "-mtbm" not in run.stdout


@pytest.mark.parametrize("threads", ["pthread", "1"])
def test_install(threads: str, tmp_path: Path) -> None:
    """What is installed, below a folder with spaces and moved afterwards, is all that a program needs, linked either way."""
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    variables = ["ISA=scalar", f"THREADS={threads}", f"BUILD={tmp_path}/b", f"DESTDIR={tmp_path}/to here", "PREFIX=/some prefix"]
    run = subprocess.run(["make", "-j2", "install", *variables], cwd=TOP, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
    there = tmp_path / "moved away"
    (tmp_path / "to here/some prefix").rename(there)
    files = {str(path.relative_to(there)) for path in there.rglob("*") if not path.is_dir()}
    version = re.search(r'define LEGACYML_VERSION "(.*)"', (TOP / "src/include/legacyml.h").read_text())[1]
    libraries = {f"lib/liblegacyml{end}" for end in (".a", ".so", ".so.0", f".so.{version}")}
    assert files == libraries | {"bin/ml_run", "bin/ml_bench", "include/legacyml.h", "lib/pkgconfig/legacyml.pc"} | {
        file.format(program)
        for program in ("ml_run", "ml_bench")
        for file in ("share/man/man1/{}.1", "share/bash-completion/completions/{}", "share/zsh/site-functions/_{}")
    }

    def config(*options: str) -> list[str]:
        environment = os.environ | {"PKG_CONFIG_PATH": str(there / "lib/pkgconfig")}
        said = subprocess.run(["pkg-config", *options, "legacyml"], env=environment, capture_output=True, text=True, check=True)
        return shlex.split(said.stdout)

    assert config("--modversion") == [version]
    assert ("-pthread" in config("--static", "--libs")) == (threads == "pthread")
    code = "#include <legacyml.h>\n#include <stdio.h>\nint main(void) { puts(ml_thread_model()); }\n"
    for static in ([], ["--static"]):
        command = ["gcc", *static, "-x", "c", "-", "-x", "none", "-o", str(tmp_path / "program"), *config("--cflags", "--libs", *static)]
        subprocess.run(command, input=code, text=True, check=True)
        environment = os.environ | {"LD_LIBRARY_PATH": "" if static else str(there / "lib")}
        ran = subprocess.run([tmp_path / "program"], env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (0, f"{threads}\n"), ran.stderr
