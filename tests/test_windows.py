# SPDX-License-Identifier: BSD-3-Clause
"""CMakeLists.txt, and what it makes for Windows with MinGW-w64, run under Wine: the same bits, streams, names and statuses as on Linux."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import time
import tty
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import pytest

import golden
from conftest import HOST, NATIVE_ISAS, TOP, in_row, runs_here
from test_build import CLASSES, check_classes, instructions
from test_cli import LONG, error_line, facts, write_chat_model, write_model, write_speaker, write_tokenizer

MINGW = "x86_64-w64-mingw32-"
PROMPT = 'Grüße "von ☕" \\ \\" *.c %PATH% 日本'
# Everything that every Windows since 7 has; a DLL of the compiler is none of it.
SYSTEM_DLLS = {"kernel32.dll", "msvcrt.dll"}
MODEL = {"type": "q8_0", "seed": 1}

pytestmark = pytest.mark.skipif(HOST != "x86_64", reason="there are Windows builds for x86_64 only")


def cmake(folder: Path, *options: str, **environment: str) -> Path:
    """Configures and builds the checkout into the folder, and fails on any line that a compiler or CMake warns with."""
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    generator = "Ninja" if shutil.which("ninja") else "Unix Makefiles"
    for command in (["cmake", "-S", TOP, "-B", folder, "-G", generator, *options], ["cmake", "--build", folder, "--parallel", "2"]):
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        assert done.stderr == "" and "warning" not in done.stdout.lower(), done.stdout[-4000:] + done.stderr[-4000:]
    return folder


@pytest.fixture(scope="session")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """windows(isa) -> folder with ml_run.exe, ml_bench.exe, liblegacyml.dll."""
    done: dict[str, Path] = {}

    def make(isa: str) -> Path:
        if not shutil.which(MINGW + "gcc"):
            pytest.skip("MinGW-w64 is not installed")
        if isa not in done:
            options = ["-DCMAKE_SYSTEM_NAME=Windows", f"-DCMAKE_C_COMPILER={MINGW}gcc"]
            done[isa] = cmake(tmp_path_factory.mktemp("windows") / isa, f"-DLEGACYML_ISA={isa}", *options)
        return done[isa]

    return make


@pytest.fixture(scope="session")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """wine(program, *arguments, **options of Popen) starts a Windows program; without anything to read unless the options say otherwise."""
    if not shutil.which("wine"):
        pytest.skip("Wine is not installed")
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"}
    environment |= {"WINEPREFIX": str(tmp_path_factory.mktemp("wine")), "WINEDEBUG": "-all", "LC_ALL": "C.UTF-8"}
    # The first start makes the prefix, which takes a while; a program that waits keeps Wine's services up, so that the others start at once.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["wine", "cmd", "/c", "exit 0"], env=environment, stdin=subprocess.DEVNULL, check=True, timeout=120, **quiet)
    waiting = subprocess.Popen(["wine", "cmd"], env=environment, stdin=subprocess.PIPE, **quiet)

    def start(program: Path, *arguments: object, **options: object) -> subprocess.Popen[bytes]:
        for stream in ("stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(["wine", program, *map(str, arguments)], env=environment, **options)

    yield start
    waiting.communicate(timeout=30)


@pytest.fixture(scope="session")
def run(wine: Callable[..., subprocess.Popen[bytes]]) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """run(program, *arguments, input=None): starts a Windows program and waits for it."""

    def run(program: Path, *arguments: object, input: bytes | None = None, **options: object) -> subprocess.CompletedProcess[bytes]:
        if input is not None:
            options["stdin"] = subprocess.PIPE
        with wine(program, *arguments, **options) as process:
            try:
                out, err = process.communicate(input, timeout=60)
            finally:
                process.kill()
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    return run


@pytest.fixture(scope="session")
def exe(windows: Callable[[str], Path]) -> Path:
    """The program that the tests of everything but kernels use."""
    return windows("sse2") / "ml_run.exe"


@pytest.fixture(scope="session")
def linux(build: Callable[..., Path]) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """linux(*arguments, isa="scalar", input=None) runs what the Makefile makes here."""

    def run(*arguments: object, isa: str = "scalar", input: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        program = build(isa, target="all") / "ml_run"
        return subprocess.run([program, *map(str, arguments)], input=input or b"", capture_output=True, check=False, timeout=60)

    return run


def objdump(option: str, file: Path) -> str:
    return subprocess.run([MINGW + "objdump", option, "--no-show-raw-insn", file], capture_output=True, text=True, check=True).stdout


def imports(file: Path) -> set[str]:
    return {name.lower() for name in re.findall(r"DLL Name: (\S+)", objdump("-p", file))}


# -- What is built --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_products(isa: str, windows: Callable[[str], Path], request: pytest.FixtureRequest) -> None:
    """Needs the system's DLLs only, exports the public functions only, is of its ISA, and never insists on an aligned stack for AVX."""
    in_row(request, "windows", isa, "mingw-w64", "disassembled")
    folder = windows(isa)
    header = (TOP / "src/include/legacyml.h").read_text()
    public = set(re.findall(r"ML_API [^;]*?\b(ml_\w+)\(", header))
    exported = {
        name: set(re.findall(r"^\t\[ *\d+\] (\w+)$", objdump("-p", folder / name), re.MULTILINE))
        for name in ("ml_run.exe", "ml_bench.exe", "liblegacyml.dll")
    }
    assert exported == {"ml_run.exe": set(), "ml_bench.exe": set(), "liblegacyml.dll": public}
    for name in exported:
        assert {"kernel32.dll"} <= imports(folder / name) <= SYSTEM_DLLS, name
        check_classes(folder / name, HOST, isa, but="BMI")  # MinGW's runtime has "rep bsf", which is shown as tzcnt and runs everywhere
        assert not [i for i in instructions(folder / name, HOST) if re.match(r"vmov(dqa|ap[sd]).*\(", i)], f"{name}: aligned AVX move"
    ours = [i for file in (folder / "CMakeFiles").rglob("*.obj") for i in instructions(file, HOST, least=0)]
    assert len(ours) > 10000 and not [i for i in ours if re.match(CLASSES[HOST]["BMI"], i)]
    before_the_guard = [
        *(folder / f"CMakeFiles/{program}.dir/src/app/main_guard.c.obj" for program in ("ml_run", "ml_bench")),
        *(folder / f"CMakeFiles/legacyml.dir/src/{name}.c.obj" for name in ("core/status", "core/cpu", "core/isa_check", "model/legacyml")),
    ]
    for file in [*before_the_guard, *folder.glob("CMakeFiles/legacyml.dir/src/kernels/scalar/*.obj")]:
        check_classes(file, HOST, "scalar")


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_facts(isa: str, windows: Callable[[str], Path], run: Callable, linux: Callable, request: pytest.FixtureRequest) -> None:
    """--version, or the verdict of the guard where this CPU cannot run the build, in the words of the Linux build."""
    in_row(request, "windows", isa, "mingw-w64", "wine" if runs_here(isa) else "guard")
    here, there = linux("--version", isa=isa), run(windows(isa) / "ml_run.exe", "--version")
    assert there.returncode == here.returncode == (0 if runs_here(isa) else 7)
    assert there.stdout == here.stdout
    assert there.stderr.replace(b"ml_run.exe: ", b"ml_run: ").replace(b"\r\n", b"\n") == here.stderr
    bench = run(windows(isa) / "ml_bench.exe", "--version")
    assert bench.returncode == there.returncode and (bench.stdout.startswith(b"ml_bench ") or not runs_here(isa))


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_logits(
    isa: str, windows: Callable[[str], Path], run: Callable, random_model: Callable, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The golden logits, to the last bit, with one, two and three threads, the model mapped and read."""
    in_row(request, "windows", isa, "mingw-w64", "wine" if runs_here(isa) else "guard only")
    program = windows(isa) / "ml_run.exe"
    if not runs_here(isa):
        pytest.skip(f"this CPU cannot run the {isa} build")
    for number, name in enumerate(golden.MODELS):
        model, out = random_model(**golden.options(name)), tmp_path / name
        options = ["-t", number % 3 + 1, *(["--no-mmap"] if number % 2 else [])]
        there = run(program, model, "--tokens", ",".join(map(str, golden.TOKENS)), "-n", "0", "-q", "--dump-logits", out, *options)
        assert (there.returncode, there.stdout, there.stderr) == (0, b"", b""), name
        found = np.fromfile(out, "<f4").reshape(len(golden.TOKENS), -1)[golden.KEPT]
        assert found.tobytes() == golden.golden(name).tobytes(), name


def test_help(exe: Path, run: Callable, linux: Callable) -> None:
    there = run(exe, "--help")
    assert there.returncode == 0 and there.stderr == b""
    assert there.stdout == linux("--help").stdout.replace(b"Ctrl-D ends", b"Ctrl-Z and Enter ends")


def test_statistics_and_bench(exe: Path, run: Callable, random_model: Callable) -> None:
    """The default number of threads is the affinity mask's; ml_bench runs."""
    model = random_model(**MODEL)
    done = run(exe, model, "--tokens", "1,2", "-n", "4")
    assert facts(done)["threads"] == f"{len(os.sched_getaffinity(0))}, isa: sse2"
    one = run(exe, model, "--tokens", "1,2", "-n", "4", preexec_fn=lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]))
    assert facts(one)["threads"] == "1, isa: sse2"
    bench = run(exe.parent / "ml_bench.exe", model, "-n", "4", "-r", "1", "-t", "2")
    assert bench.returncode == 0 and bench.stderr == b"" and b"sse2" in bench.stdout


# -- Names and streams ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def named(random_model: Callable, tmp_path: Path) -> Path:
    """A model with a tokenizer in a folder whose name no code page has."""
    folder = tmp_path / "Modèle ☕"
    folder.mkdir()
    source = random_model(seed=5, tokenizer="container")
    shutil.copy(source, folder / "größer.mlb")
    shutil.copy(source.with_suffix(".tokenizer.bin"), folder / "größer.tokenizer.bin")
    return folder / "größer.mlb"


@pytest.mark.parametrize("mapping", [[], ["--no-mmap"]])
def test_names_and_prompts(named: Path, mapping: list[str], exe: Path, run: Callable, linux: Callable, tmp_path: Path) -> None:
    """Names and arguments are UTF-8, and no argument is expanded or cut; the same text and logits as on Linux."""
    wanted, found = tmp_path / "wanted", named.with_name("Ergebnis é.f32")
    options = ["-p", PROMPT, "-n", "20", "-q", *mapping, "--dump-logits"]
    here, there = linux(named, *options, wanted), run(exe, named, *options, found)
    assert here.returncode == 0 and len(here.stdout) > 5
    assert (there.returncode, there.stdout, there.stderr) == (0, here.stdout, b"")
    assert found.read_bytes() == wanted.read_bytes()
    assert run(exe, named, "--info").stdout == linux(named, "--info").stdout


def test_bytes_through_pipes(named: Path, exe: Path, run: Callable, linux: Callable, tmp_path: Path) -> None:
    """Nothing becomes a line end, an end of the file or another character on its way in; nothing on its way out."""
    text = b"a\r\nb\x1a\n\0\xff\xc3\xa4" + bytes(range(128, 192))
    wanted, found = tmp_path / "wanted", tmp_path / "found"
    options = [named, "-f", "-", "-n", "5", "-q", "--dump-logits"]
    here, there = linux(*options, wanted, input=text), run(exe, *options, found, input=text)
    assert here.returncode == 0 and len(here.stdout) > 0
    assert (there.returncode, there.stdout) == (0, here.stdout)
    assert found.read_bytes() == wanted.read_bytes()
    speaker = write_speaker(tmp_path / "speaker.mlb", [b"\n", b"\r\n", b"\x1a", b"\xc3", b"\xa4", b"\xff", b"."])
    assert run(exe, speaker, "-p", "", "-q").stdout == b"\n\r\n\x1a\xc3\xa4\xff.\n"


def test_talk(exe: Path, run: Callable, linux: Callable, tmp_path: Path) -> None:
    """Lines of a pipe, with either line end, the last one without."""
    model = write_chat_model(tmp_path / "talk.mlb", {10: ord("Y"), ord("Y"): ord("e"), ord("e"): ord("s")})
    lines = "Grüße\r\n\n☕\nend".encode()
    here, there = linux(model, "--chat", input=lines), run(exe, model, "--chat", input=lines)
    assert (there.returncode, there.stdout) == (0, here.stdout) and here.stdout == b"Yes\nYes\nYes\n"
    assert facts(there)["prompt"].split(",")[0] == facts(here)["prompt"].split(",")[0]


def test_console(exe: Path, wine: Callable, linux: Callable, tmp_path: Path) -> None:
    """What is typed arrives as UTF-8, counted in tokens of one byte, and what is said is seen as characters."""
    said = "ü☕".encode()
    model = write_chat_model(tmp_path / "talk.mlb", {10: said[0]} | {a: b for a, b in zip(said, said[1:])})
    line = "Grüße ☕"
    wanted = facts(linux(model, "--chat", "-c", 64, input=line.encode()))["prompt"].split(",")[0]
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # as Wine sets it too, but perhaps only after we have typed
    with wine(
        exe, model, "--chat", "-c", 64, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:  # fmt: skip
        os.close(theirs)
        seen = b""

        def read_until(words: bytes) -> None:
            nonlocal seen
            end = time.monotonic() + 30
            while words not in seen and time.monotonic() < end:
                if select.select([ours], [], [], 0.1)[0]:
                    try:
                        seen += os.read(ours, 65536)
                    except OSError:
                        break
            assert words in seen, seen

        try:
            read_until(b">")
            os.write(ours, line.encode() + b"\r")
            read_until("☕".encode() + b"\r")  # the echo
            seen = b""
            read_until(b">")
            assert "ü".encode() in seen and "☕".encode() in seen
            # Fills the context, which ends the talk with the statistics of both turns.
            os.write(ours, b"x" * 100 + b"\r")
            read_until(b"of the context's 64 positions")
            assert process.wait(30) == 5
        finally:
            process.kill()
            os.close(ours)
    used = re.search(rb"the prompt has (\d+) tokens, and (\d+) of", re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\r|\n", b"", seen))
    answered = len(said)
    assert used and int(used[2]) == 64 - int(wanted.split()[0]) - answered


# -- Statuses ---------------------------------------------------------------------------------------------------------------------


def test_statuses(exe: Path, run: Callable, random_model: Callable, tmp_path: Path) -> None:
    """The promised exit status and one sentence that names the file."""
    model = random_model(**MODEL)
    cut, empty = tmp_path / "cut ☕.mlb", tmp_path / "empty.mlb"
    cut.write_bytes(model.read_bytes()[:5000])
    empty.write_bytes(b"")
    size = model.stat().st_size
    deep = tmp_path / "d" / ("e" * 100) / ("f" * 100) / "none.mlb"
    for arguments, status, words in (
        ([], 2, ["--help"]),
        ([model, "--bogus"], 2, ["--bogus"]),
        ([tmp_path / "fehlt ☕.mlb", "-p", "x"], 3, ["cannot open", "fehlt ☕.mlb: ", "not found"]),
        ([deep, "-p", "x"], 3, ["cannot open", "none.mlb: "]),
        ([tmp_path, "-p", "x"], 3, ["is a directory, not a regular file"]),
        (["NUL", "-p", "x"], 3, ["NUL is a device, pipe or socket, not a regular file"]),
        ([model, "-p", "x"], 3, ["tokenizer.bin: there is no tokenizer beside the model"]),
        ([model, "-f", tmp_path / "fehlt.txt"], 3, ["fehlt.txt: cannot be opened: "]),
        ([cut, "--tokens", "1"], 4, ["cut ☕.mlb", "5000 bytes", str(size)]),
        ([cut, "--tokens", "1", "--no-mmap"], 4, ["cut ☕.mlb", "5000 bytes", str(size)]),
        ([empty, "--tokens", "1"], 4, ["empty.mlb: 0 bytes"]),
        ([model, "--tokens", "1,2", "-c", "1"], 5, ["2 tokens", "1 positions"]),
    ):
        sentence = error_line(run(exe, *arguments), status)
        assert all(word in sentence for word in words), sentence


def test_long_path(exe: Path, run: Callable, linux: Callable, random_model: Callable, tmp_path: Path) -> None:
    """More than the 260 characters that Windows takes without further ado: for reading, for writing, absolute and relative."""
    folder = tmp_path / ("a" * 120) / ("b" * 120) / ("c" * 120)
    folder.mkdir(parents=True)
    shutil.copy(random_model(**MODEL), folder / "m.mlb")
    options = ["--tokens", "1,2,3", "-n", "4", "-q", "--dump-logits"]
    linux(folder / "m.mlb", *options, tmp_path / "wanted")
    for name in (folder, folder.relative_to(tmp_path)):
        done = run(exe, name / "m.mlb", *options, name / "found", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (folder / "found").read_bytes() == (tmp_path / "wanted").read_bytes()
        (folder / "found").unlink()


def test_dump(exe: Path, run: Callable, random_model: Callable, tmp_path: Path) -> None:
    """Replaces a file as a whole, leaves nothing behind, spares the model under every spelling of its name, goes to a device."""
    model = shutil.copy(random_model(**MODEL), tmp_path / "model.mlb")
    options = [model, "--tokens", "1,2,3", "-n", "2", "-q", "--dump-logits"]
    before = model.read_bytes()
    for name in ("model.mlb", "MODEL.mlb"):
        assert "is the model or the tokenizer itself" in error_line(run(exe, *options, tmp_path / name), 2)
    assert model.read_bytes() == before
    (tmp_path / "logits").write_bytes(b"old")
    assert run(exe, *options, tmp_path / "logits").returncode == 0
    assert (tmp_path / "logits").stat().st_size == 4 * 300 * 4
    assert run(exe, *options, "NUL").returncode == 0
    assert "cannot be written" in error_line(run(exe, *options, tmp_path / "none" / "logits"), 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logits", "model.mlb"]


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A model that says "ab" for ever."""
    path = write_model(tmp_path / "endless.mlb", [3, 3, 3, 4, 3], LONG, layers=1)
    write_tokenizer(path, [b"a", b"b"])
    return path


def test_interrupt(exe: Path, wine: Callable, endless: Path) -> None:
    """Ctrl-C, which Wine makes of SIGINT, ends a text with its statistics, and a program that waits for its prompt."""
    with wine(exe, endless, "-p", "ab", "-c", LONG) as process:
        assert process.stdout.read(4) == b"abab"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130 and out.endswith(b"\n") and b"stop: interrupted" in err
    with wine(exe, endless, "-f", "-", stdin=subprocess.PIPE) as process:
        process.stdin.write(b"ab")
        process.stdin.flush()
        for _ in range(50):
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)  # before Windows has started the program nobody hears it
            if process.poll() is not None:
                break
        process.kill()
        assert process.wait() == 130 and process.stdout.read() == b""


def test_closed_pipe(exe: Path, wine: Callable, endless: Path) -> None:
    """A reader that has gone ends the run quietly."""
    with wine(exe, endless, "-p", "ab", "-c", LONG) as process:
        assert process.stdout.read(4) == b"abab"
        process.stdout.close()
        assert process.wait(30) == 0 and process.stderr.read() == b""


# -- CMake on Linux ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isa", "threads", "cflags"), [("sse2", "pthread", ""), ("avx2", "pthread", "-O3"), ("sse2", "1", "-Ofast -march=native -ffast-math")]
)
def test_native(isa: str, threads: str, cflags: str, linux: Callable, random_model: Callable, tmp_path: Path) -> None:
    """What CMake makes here is what the Makefile makes, with user's flags that would change it too."""
    options = [f"-DLEGACYML_ISA={isa}", f"-DLEGACYML_THREADS={threads}"]
    if cflags:
        options += ["-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON", f"-DCMAKE_C_FLAGS_RELEASE={cflags}"]
    folder = cmake(tmp_path / "cmake", *options, CFLAGS=cflags)
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", folder / "ml_run"], capture_output=True, text=True, check=True).stdout
    assert ("\tvmov" in code) == isa.startswith("avx") and "\tvfmadd" not in code
    assert "set_fast_math" not in code, "a start-up routine changes the floating-point mode"
    if not runs_here(isa):
        pytest.skip(f"this CPU cannot run the {isa} build")
    version = subprocess.run([folder / "ml_run", "--version"], capture_output=True, check=True).stdout
    assert version == linux("--version", isa=isa).stdout.replace(b"threads: pthread", b"threads: " + threads.encode())
    arguments = [random_model(**golden.options("gqa4-hd48-q4")), "--tokens", "1,5,9", "-n", "8", "-q", "--dump-logits"]
    here = linux(*arguments, tmp_path / "wanted")
    there = subprocess.run([folder / "ml_run", *arguments, tmp_path / "found"], capture_output=True, check=True)
    assert there.stdout == here.stdout and (tmp_path / "found").read_bytes() == (tmp_path / "wanted").read_bytes()
    assert os.readlink(folder / "liblegacyml.so.0").startswith("liblegacyml.so.0.") and (folder / "liblegacyml.a").exists()


@pytest.mark.parametrize(
    ("option", "words"),
    [("LEGACYML_ISA=neon", ["LEGACYML_ISA=neon", "sse2", "avx512vnni"]), ("LEGACYML_THREADS=2", ["neither 1 nor pthread"])],
)
def test_options_are_checked(option: str, words: list[str], tmp_path: Path) -> None:
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    done = subprocess.run(["cmake", "-S", TOP, "-B", tmp_path, f"-D{option}"], capture_output=True, text=True, check=False)
    text = " ".join(done.stderr.split())
    assert done.returncode != 0 and all(word in text for word in words), done.stderr
