# SPDX-License-Identifier: BSD-3-Clause
"""ml_run from the outside: exit statuses, what goes to which stream, limits, interrupts, streaming, chat.

Most tests use models that are made here byte by byte so that what they say is known in advance: the embedding is one-hot, attention and
feed-forward add nothing, and the classifier moves every token to a successor of our choice.
"""

from __future__ import annotations

import ctypes
import math
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import time
import tty
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, Sequence

import pytest

from conftest import TOP

np = pytest.importorskip("numpy")

LONG = 200_000  # positions: more than any test waits for


def aligned(data: bytes) -> bytes:
    """The bytes, filled with zeros to a multiple of 64."""
    return data + bytes(-len(data) % 64)


def write_model(path: Path, successors: Sequence[int], max_seq: int = 16, layers: int = 2, classifier_scale: float = 1 / 127) -> Path:
    """A .mlb (docs/formats.md) in which token i is followed by successors[i], greedily, whatever came before.

    The logits behind token i are c at successors[i] and 0 elsewhere, with c = sqrt(dim) up to the rounding of eps.
    """
    vocab = len(successors)
    dim = max(64, -(-vocab // 32) * 32)
    heads, kv_heads, hidden = dim // 16, dim // 32, 32

    def matrix(quants: np.ndarray, scale: float = 1 / 127) -> list[bytes]:
        scales = np.full(quants.size // 32, scale, "<f4")
        return [quants.astype("<i1").tobytes(), scales.tobytes()]

    def nothing(rows: int, columns: int) -> list[bytes]:
        return matrix(np.zeros((rows, columns)), 0.0)

    embedding = np.zeros((vocab, dim))
    embedding[np.arange(vocab), np.arange(vocab)] = 127
    classifier = np.zeros((vocab, dim))
    classifier[list(successors), np.arange(vocab)] = 127
    ones = np.ones(dim, "<f4").tobytes()
    kv_dim = dim // heads * kv_heads
    header = struct.pack("<4s8I2f4I", b"MLB1", 1, dim, layers, heads, kv_heads, hidden, vocab, max_seq, 10000.0, 1e-5, 1, 0, 0, 0)
    arrays = [header.ljust(256, b"\0"), *matrix(embedding)]
    for _ in range(layers):
        arrays += [ones, *nothing(dim, dim), *nothing(kv_dim, dim), *nothing(kv_dim, dim), *nothing(dim, dim)]
        arrays += [ones, *nothing(hidden, dim), *nothing(dim, hidden), *nothing(hidden, dim)]
    arrays += [ones, *matrix(classifier, classifier_scale)]
    path.write_bytes(b"".join(aligned(a) for a in arrays[:-1]) + arrays[-1])
    return path


def write_tokenizer(model: Path, pieces: Sequence[bytes]) -> Path:
    """A plain tokenizer.bin beside the model: ids 0 to 2 are the usual three, then the pieces."""
    records = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *pieces]
    path = model.with_suffix(".tokenizer.bin")
    body = b"".join(struct.pack("<fi", -float(i), len(p)) + p for i, p in enumerate(records))
    path.write_bytes(struct.pack("<I", max(map(len, records))) + body)
    return path


def write_speaker(path: Path, pieces: Sequence[bytes], max_seq: int = 256) -> Path:
    """A model with a plain tokenizer that says the pieces in turn behind <s> (id 1) and then stops."""
    n = 3 + len(pieces)
    write_model(path, [2, 3, 2, *range(4, n), 2] if pieces else [2, 2, 2], max_seq)
    write_tokenizer(path, pieces)
    return path


def run(program: Path, *arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Runs the program, for two minutes at most; with nothing to read unless the options say otherwise."""
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([program, *map(str, arguments)], stderr=subprocess.PIPE, check=False, timeout=120, **options)


def error_line(done: subprocess.CompletedProcess[bytes], status: int) -> str:
    """Checks that a run failed as promised and returns its sentence."""
    assert done.returncode == status, done.stderr
    assert done.stdout in (b"", None)
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("ml_run: "), done.stderr
    return lines[0]


def facts(done: subprocess.CompletedProcess[bytes]) -> dict[str, str]:
    """The statistics of a run by their name."""
    return dict(line.split(": ", 1) for line in done.stderr.decode().splitlines() if ": " in line)


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TINY: 40 tokens, i is followed by i + 1 and 39 by 0; 16 positions; no tokenizer."""
    return write_model(tmp_path_factory.mktemp("counter") / "counter.mlb", [*range(1, 40), 0])


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says "ab" for ever, with many positions."""
    path = write_model(tmp_path_factory.mktemp("endless") / "endless.mlb", [3, 3, 3, 4, 3], LONG, layers=1)
    write_tokenizer(path, [b"a", b"b"])
    return path


# -- Usage ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--help"]),
        (["-p", "x"], ["MODEL"]),
        (["M"], ["-p", "--tokens"]),
        (["M", "second", "-p", "x"], ["M", "second"]),
        (["M", "-p", "x", "--nonsense"], ["--nonsense"]),
        (["M", "-p", "x", "-n5"], ["-n5"]),
        (["M", "-p", "x", "--top-k", "-1"], ["--top-k", '"-1"', "0", "2147483647"]),
        (["M", "-p", "x", "--top-k=2147483648"], ["--top-k", '"2147483648"', "0", "2147483647"]),
        (["M", "-p", "x", "--top-k", "1.5"], ["--top-k", '"1.5"']),
        (["M", "-p", "x", "--min-p=1.1"], ["--min-p", '"1.1"', "0", "1"]),
        (["M", "-p", "x", "--min-p", "-0.1"], ["--min-p", '"-0.1"', "0", "1"]),
        (["M", "-p", "x", "--min-p", "nan"], ["--min-p", '"nan"']),
        (["M", "-p", "x", "--repeat-penalty", "-1"], ["--repeat-penalty", '"-1"', "0"]),
        (["M", "-p", "x", "--repeat-penalty", "inf"], ["--repeat-penalty", '"inf"']),
        (["M", "-p", "x", "--json=1"], ["--json", "no value"]),
        (["M", "-p", "x", "--perplexity", "f"], ["--perplexity", "-p"]),
        (["M", "--chat", "--perplexity", "f"], ["--perplexity", "--chat"]),
        (["M", "--batch", "f", "--perplexity", "f"], ["--perplexity", "--batch"]),
        (["M", "--perplexity", "f", "--dump-logits", "f"], ["--perplexity", "--dump-logits"]),
        (["M", "--perplexity", ""], ["--perplexity", "empty"]),
        (["M", "--batch", "f", "-f", "g"], ["--batch", "-f"]),
        (["M", "--batch", "f", "--tokens", "1"], ["--batch", "--tokens"]),
        (["M", "--batch", "f", "--save-session", "g"], ["--batch", "--save-session"]),
        (["M", "--batch", "f", "--load-session", "g"], ["--batch", "--load-session"]),
        (["M", "--batch", "f", "--dump-logits", "g"], ["--batch", "--dump-logits"]),
        (["M", "--info", "--batch", "f"], ["--info", "--batch"]),
        (["M", "--info", "--load-session", "f"], ["--info", "--load-session"]),
        (["M", "--save-session", "f", "--verify"], ["--save-session", "prompt"]),
        (["M", "--save-session"], ["--save-session", "needs a value"]),
        (["M", "-p"], ["-p", "needs a value"]),
        (["M", "-p", "x", "--chat=1"], ["--chat", "no value"]),
        (["M", "-p", "x", "-f", "y"], ["-p", "-f", "--tokens"]),
        (["M", "-p", "x", "--tokens", "1"], ["-p", "-f", "--tokens"]),
        (["M", "-f", "x", "--tokens", "1"], ["-p", "-f", "--tokens"]),
        (["M", "--chat", "--tokens", "1"], ["--chat", "--tokens"]),
        (["M", "-p", "x", "--system", "s"], ["--system", "--chat"]),
        (["M", "-p", "x", "--template", "chatml"], ["--template", "--chat"]),
        (["M", "--info", "-p", "x"], ["--info"]),
        (["M", "--chat", "--dump-logits", "f"], ["--dump-logits"]),
        (["M", "-p", "x", "--stop", ""], ["--stop", "empty"]),
        (["M", "-p", "x", "-n", "-1"], ["-n", '"-1"', "0", "2147483647"]),
        (["M", "-p", "x", "-n", "2147483648"], ["-n", '"2147483648"', "0", "2147483647"]),
        (["M", "-p", "x", "-n", "9" * 400], ["-n", "2147483647"]),
        (["M", "-p", "x", "-n", ""], ["-n", '""']),
        (["M", "-p", "x", "-n", " 1"], ["-n", '" 1"']),
        (["M", "-p", "x", "-n", "1x"], ["-n", '"1x"']),
        (["M", "-p", "x", "-n", "1.5"], ["-n", '"1.5"']),
        (["M", "-p", "x", "-n", "1e2"], ["-n", '"1e2"']),
        (["M", "-p", "x", "-n", "0x10"], ["-n", '"0x10"']),
        (["M", "-p", "x", "-t", "0"], ["-t", '"0"', "1", "1024"]),
        (["M", "-p", "x", "-t", "-1"], ["-t", '"-1"', "1", "1024"]),
        (["M", "-p", "x", "-t", "1025"], ["-t", '"1025"', "1", "1024"]),
        (["M", "-p", "x", "-t", "10000"], ["-t", '"10000"', "1", "1024"]),
        (["M", "-p", "x", "-t", "abc"], ["-t", '"abc"', "1", "1024"]),
        (["M", "-p", "x", "-c", "0"], ["-c", '"0"']),
        (["M", "-p", "x", "--temp", "-1"], ["--temp", '"-1"', "0"]),
        (["M", "-p", "x", "--temp", "nan"], ["--temp", '"nan"']),
        (["M", "-p", "x", "--temp", "inf"], ["--temp", '"inf"']),
        (["M", "-p", "x", "--temp=1e39"], ["--temp", '"1e39"']),
        (["M", "-p", "x", "--temperature", "abc"], ["--temperature", '"abc"']),
        (["M", "-p", "x", "--top-p", "1.01"], ["--top-p", '"1.01"', "0", "1"]),
        (["M", "-p", "x", "--top-p", "-0.1"], ["--top-p", '"-0.1"', "0", "1"]),
        (["M", "-p", "x", "--top-p", "NaN"], ["--top-p", '"NaN"']),
        (["M", "-p", "x", "--seed", "-2"], ["--seed", '"-2"', "18446744073709551615"]),
        (["M", "-p", "x", "--seed", "18446744073709551616"], ["--seed", "18446744073709551615"]),
        (["M", "-p", "x", "--seed", "1.0"], ["--seed", '"1.0"']),
    ],
)
def test_usage(ml_run: Path, arguments: list[str], words: list[str]) -> None:
    """Wrong command lines end with 2 and a sentence that has what was found and what is allowed; no model is touched."""
    sentence = error_line(run(ml_run, *arguments), 2)
    for word in words:
        assert word in sentence


@pytest.mark.parametrize("ids", ["", ",", "1,", ",1", "1,,2", "1 2", "1,-2", "x", "40", "1,2,99999999999999999999", "1.0"])
def test_tokens_must_be_ids(ml_run: Path, counter: Path, ids: str) -> None:
    sentence = error_line(run(ml_run, counter, "--tokens", ids), 2)
    assert "--tokens" in sentence and "from 0 to 39" in sentence


def test_spellings(ml_run: Path, counter: Path, tmp_path: Path) -> None:
    """--option=value is --option value, the last value counts, -- ends the options, and the model may stand anywhere."""
    dashed = tmp_path / "--model.mlb"
    shutil.copy(counter, dashed)
    plain = run(ml_run, counter, "--tokens", "5", "-n", "3", "-q")
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, b"6 7 8\n", b"")
    for arguments in (
        ["--tokens=5", "-n", "3", "-q", counter],
        ["-q", "-n", "9", counter, "--tokens", "5", "-n", "3"],
        ["-q", "-n", "+3", "--tokens=5", "--", "--model.mlb"],
    ):
        assert run(ml_run, *arguments, cwd=tmp_path).stdout == plain.stdout


def test_help_and_version(ml_run: Path) -> None:
    """Both work without a model, and --help has every option of the program."""
    text = run(ml_run, "--help")
    assert (text.returncode, text.stderr) == (0, b"")
    for option in (
        "-z -p -f -n -t -c --temp --temperature --top-p --top-k --min-p --repeat-penalty --seed --stop --chat --template --system --tokens "
        "--save-session --load-session --json --batch --perplexity --dump-logits --info --no-mmap --verify -q --check-cpu --version --help"
    ).split():
        assert f"\n  {option} ".encode() in text.stdout
    assert max(len(line) for line in text.stdout.splitlines()) <= 120
    version = run(ml_run, "--version")
    lines = version.stdout.decode().splitlines()
    assert (version.returncode, version.stderr) == (0, b"")
    assert lines[0].startswith("ml_run ") and lines[1:3] == ["isa: scalar", "threads: pthread"]
    assert "matvec_q8 ml_k_matvec_q8_scalar" in lines[3:]


def test_check_cpu(ml_run: Path) -> None:
    done = run(ml_run, "--check-cpu")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"scalar: this CPU runs this build\n")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--check-cpu"], [], ["M", "-p", "x"]])
def test_guard(build: Callable[..., Path], arguments: list[str]) -> None:
    """A build that the CPU cannot run refuses with 7 however it is started."""
    qemu = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if qemu is None:
        pytest.skip("qemu-x86_64 is not installed")
    program = build("avx2", target="all") / "ml_run"
    done = run(Path(qemu), "-cpu", "Penryn", program, *arguments)
    assert "AVX2" in error_line(done, 7)


def test_info(ml_run: Path, counter: Path) -> None:
    """--info needs no tokenizer and prints the header's facts."""
    done = run(ml_run, counter, "--info")
    assert (done.returncode, done.stderr) == (0, b"")
    told = dict(line.split(": ", 1) for line in done.stdout.decode().splitlines())
    expected = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "kv_dim": 32, "hidden_dim": 32, "vocab": 40}
    expected |= {"max_seq": 16, "bytes": counter.stat().st_size, "weights": "Q8_0", "embedding": "Q8_0", "rope_theta": 10000}
    # Two embeddings of 40 x 64, and for each layer four attention and three feed-forward matrices and two norms; one more norm.
    expected |= {"parameters": 2 * 40 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 32 * 64 + 2 * 64) + 64}
    for name, value in expected.items():
        assert told[name] == str(value), name


# -- One error of every kind --------------------------------------------------------------------------------------------------------


def test_missing_files(ml_run: Path, counter: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert str(gone) in error_line(run(ml_run, gone, "-p", "x"), 3)
    assert str(gone) in error_line(run(ml_run, counter, "-z", gone, "-p", "x"), 3)
    assert str(gone) in error_line(run(ml_run, counter, "-z", gone, "--tokens", "1"), 3)
    assert str(gone) in error_line(run(ml_run, counter, "-f", gone), 3)
    assert str(tmp_path) in error_line(run(ml_run, counter, "-f", tmp_path), 3)
    sentence = error_line(run(ml_run, counter, "-p", "x"), 3)
    assert str(counter.with_suffix(".tokenizer.bin")) in sentence and "-z" in sentence


def test_file_names(ml_run: Path, tmp_path: Path) -> None:
    """Spaces, letters beyond ASCII, quotes and dots in names, and a model that is not called .mlb."""
    for name in ("mein Modell.mlb", "モデル é.mlb", "a'b\"c.mlb", "v1.5.mlb"):
        model = write_speaker(tmp_path / name, [b"x"])
        dump = model.with_suffix(".log its")
        done = run(ml_run, model, "-p", "", "--dump-logits", dump)
        assert (done.returncode, done.stdout) == (0, b"x\n"), done.stderr
        assert dump.stat().st_size == 4 * 2 * 4
    shutil.copy(model, tmp_path / "plain name")
    shutil.copy(model.with_suffix(".tokenizer.bin"), tmp_path / "plain name.tokenizer.bin")
    assert run(ml_run, tmp_path / "plain name", "-p", "", "-q").stdout == b"x\n"


def test_counts_differ(ml_run: Path, counter: Path, tmp_path: Path) -> None:
    """A tokenizer of another size than the model."""
    other = write_tokenizer(tmp_path / "other.mlb", [b"a", b"b"])
    done = run(ml_run, counter, "-z", other, "-p", "x")
    assert done.returncode in (4, 5)
    error_line(done, done.returncode)


def test_out_of_memory(ml_run: Path, tmp_path: Path) -> None:
    """A context that does not fit the address space: 16 Mi positions of 2 x 32 floats are 4 GiB."""
    model = write_model(tmp_path / "wide.mlb", [0, 0], max_seq=1 << 24, layers=1)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    error_line(run(ml_run, model, "--tokens", "1", "-t", "1", "-c", 1 << 24, preexec_fn=limit), 6)


@pytest.mark.parametrize("count", [0, 3])
def test_not_finite(ml_run: Path, tmp_path: Path, count: int) -> None:
    """Infinite logits end the run with 8, and leave no logits file; without a question for logits there is no error."""
    model = write_model(tmp_path / "inf.mlb", [1, 0], classifier_scale=math.inf)
    dump = tmp_path / "logits"
    error_line(run(ml_run, model, "--tokens", "1", "-n", count, "--dump-logits", dump), 8)
    assert not list(tmp_path.glob("logits*"))
    assert run(ml_run, model, "--tokens", "1", "-n", count).returncode == (8 if count else 0)


@pytest.mark.parametrize("output", ["/dev/full", "closed"])
@pytest.mark.parametrize("action", ["--help", "--version", "--check-cpu", "--info", "--tokens"])
def test_output_cannot_be_written(ml_run: Path, counter: Path, action: str, output: str) -> None:
    """A full disk and a closed standard output are errors, and no file that is opened takes the place of the latter."""
    arguments = {"--info": [counter, "--info"], "--tokens": [counter, "--tokens", "1", "-q"]}.get(action, [action])
    if output == "closed":
        done = run(ml_run, *arguments, stdout=None, preexec_fn=lambda: os.close(1))
    else:
        with open(output, "wb") as full:
            done = run(ml_run, *arguments, stdout=full)
    assert "standard output" in error_line(done, 3)


def test_nothing_printed_needs_no_output(ml_run: Path, counter: Path) -> None:
    with open("/dev/full", "wb") as full:
        assert run(ml_run, counter, "--tokens", "1", "-n", "0", "-q", stdout=full).returncode == 0


def test_dump_cannot_be_written(ml_run: Path, counter: Path, tmp_path: Path) -> None:
    """A device is written to directly and never replaced."""
    device = os.stat("/dev/full").st_rdev
    for target in (tmp_path / "no" / "folder", tmp_path, Path("/dev/full")):
        assert str(target) in error_line(run(ml_run, counter, "--tokens", "1", "-n", "0", "--dump-logits", target), 3)
    assert os.stat("/dev/full").st_rdev == device
    assert not list(tmp_path.iterdir())


def test_dump_over_the_model(ml_run: Path, counter: Path, tmp_path: Path) -> None:
    """The model is not replaced by its own logits, by no name."""
    before = counter.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(counter)
    for target in (counter, link):
        command = [ml_run, counter, "--tokens", "1", "-n", "0", "--dump-logits", target]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert process.returncode == 2 and "give another file" in process.stderr and counter.read_bytes() == before


def test_dump_through_a_link(ml_run: Path, counter: Path, tmp_path: Path) -> None:
    """A link, as /dev/stdout is one, is written through and stays a link; a plain file is replaced as a whole."""
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for previous in (None, b"x" * 1000):
        if previous is not None:
            target.write_bytes(previous)
        assert run(ml_run, counter, "--tokens", "1,2", "-n", "0", "--dump-logits", link).returncode == 0
        assert link.is_symlink() and np.fromfile(target, "<f4").reshape(2, 40).argmax(1).tolist() == [2, 3]
    assert run(ml_run, counter, "--tokens", "1", "-n", "0", "--dump-logits", target).returncode == 0
    assert target.stat().st_size == 4 * 40 and sorted(p.name for p in tmp_path.iterdir()) == ["link", "target"]


# -- Bad files (case 21) -------------------------------------------------------------------------------------------------------------


def broken_files(whole: bytes, folder: Path, header: int) -> dict[str, Path]:
    """What a download, a copy or a slip of the keyboard makes of a file. `header`: its length."""
    contents = {f"cut{n}": whole[:n] for n in (0, 1, 27, 28, header, len(whole) // 2, len(whole) - 1)}
    contents |= {"longer": whole + b"\0", "html": b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n" * 20}
    paths = {}
    for name, data in contents.items():
        paths[name] = folder / f"{name}.bin"
        paths[name].write_bytes(data)
    paths["folder"] = folder / "folder.bin"
    paths["folder"].mkdir()
    paths["fifo"] = folder / "fifo.bin"
    os.mkfifo(paths["fifo"])
    return paths


@pytest.mark.parametrize("mapping", [[], ["--no-mmap"]])
def test_broken_models(ml_run: Path, counter: Path, tmp_path: Path, mapping: list[str]) -> None:
    whole = counter.read_bytes()
    for name, path in broken_files(whole, tmp_path, 256).items():
        for arguments in (["--info"], ["--tokens", "1"]):
            done = run(ml_run, path, *arguments, *mapping)
            assert done.returncode in (3, 4, 5), name
            sentence = error_line(done, done.returncode)
            if name.startswith("cut") and path.stat().st_size >= 256 or name == "longer":
                assert str(path.stat().st_size) in sentence and str(len(whole)) in sentence


def test_broken_tokenizers(ml_run: Path, tmp_path: Path) -> None:
    model = write_speaker(tmp_path / "model.mlb", [b"a", b"b", b"c"])
    whole = model.with_suffix(".tokenizer.bin").read_bytes()
    for name, path in broken_files(whole, tmp_path, 4).items():
        done = run(ml_run, model, "-z", path, "-p", "a")
        assert done.returncode in (3, 4, 5), name
        error_line(done, done.returncode)


def test_unreadable(ml_run: Path, counter: Path, tmp_path: Path) -> None:
    """A file that this user may not read; for the test, root gives up the right to read every file."""
    path = tmp_path / "secret.mlb"
    shutil.copy(counter, path)
    path.chmod(0)

    def give_up() -> None:
        for capability in (1, 2) if os.geteuid() == 0 else ():  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP

    assert str(path) in error_line(run(ml_run, path, "--info", preexec_fn=give_up), 3)
    assert str(path) in error_line(run(ml_run, counter, "-f", path, preexec_fn=give_up), 3)


# -- The end of the context (case 30) ---------------------------------------------------------------------------------------------


def check_limits(program: Path, counter: Path, folder: Path) -> None:
    """Every prompt length with every -n, on 16 positions."""
    for length in (14, 15, 16, 17, 1000):
        ids = ",".join(str(i % 40) for i in range(length))
        for asked in (0, 1, 2, 16, 17, -1, 2**31, None):
            dump = folder / f"{length}_{asked}"
            done = run(program, counter, "--tokens", ids, "--dump-logits", dump, *([] if asked is None else ["-n", asked]))
            if asked in (-1, 2**31):
                assert "from 0 to 2147483647" in error_line(done, 2)
            elif length > 16:
                sentence = error_line(done, 5)
                assert str(length) in sentence and "16" in sentence
            else:
                room = 17 - length  # the token that the last position yields is printed and not fed
                count = room if asked is None else min(asked, room)
                assert done.returncode == 0, done.stderr
                assert done.stdout == b"".join(b" %d" % (i % 40) for i in range(length, length + count))[1:] + b"\n" * (count > 0)
                assert facts(done)["stop"] == ("context full" if asked is None or asked > room else "-n reached")
                rows = np.fromfile(dump, "<f4").reshape(-1, 40)
                assert len(rows) == length + max(count, 1) - 1 <= 16
                assert rows.argmax(1).tolist() == list(range(1, len(rows) + 1))
                # One-hot, normalised: sqrt(64) in one place up to eps, 0 in all others.
                assert np.allclose(rows.max(1), 8 / math.sqrt(1 + 64e-5), rtol=1e-3) and np.count_nonzero(rows) == len(rows)
                continue
            assert not dump.exists()
    assert {path.name for path in folder.iterdir()} == {f"{n}_{a}" for n in (14, 15, 16) for a in (0, 1, 2, 16, 17, None)}


def test_limits(ml_run: Path, counter: Path, tmp_path: Path) -> None:
    check_limits(ml_run, counter, tmp_path)


def test_limits_under_the_sanitizers(build: Callable[..., Path], counter: Path, tmp_path: Path) -> None:
    program = build("scalar", cflags="-fsanitize=address,undefined -fno-sanitize-recover=all", target="all") / "ml_run"
    check_limits(program, counter, tmp_path)


def test_context_option(ml_run: Path, counter: Path) -> None:
    """-c makes the context smaller, never larger than the model."""
    done = run(ml_run, counter, "--tokens", "1", "-c", "4")
    assert (done.returncode, done.stdout, facts(done)["stop"]) == (0, b"2 3 4 5\n", "context full")
    assert "-c" in error_line(run(ml_run, counter, "--tokens", "1,2,3,4,5", "-c", "4"), 5)
    done = run(ml_run, counter, "--tokens", "1", "-c", "17")
    assert "16" in error_line(done, done.returncode) and done.returncode in (2, 5)


# -- Prompts ------------------------------------------------------------------------------------------------------------------------


def test_tokens_with_and_without_a_tokenizer(ml_run: Path, tmp_path: Path) -> None:
    """Ids are printed without a tokenizer, and nothing stops; text with one, and ids 1 and 2 stop and are not printed."""
    model = write_speaker(tmp_path / "speaker.mlb", [b"x", b"y", b"z"], max_seq=8)
    done = run(ml_run, model, "--tokens", "1", "--dump-logits", tmp_path / "text")
    assert (done.returncode, done.stdout, facts(done)["stop"]) == (0, b"xyz\n", "stop token")
    assert facts(done)["prompt"].startswith("1 tokens") and facts(done)["decode"].startswith("4 tokens")
    # x, y and z are fed; the stop id counts as generated and is not: 1 + 4 - 1 rows.
    assert (tmp_path / "text").stat().st_size == 4 * 4 * 6
    model.with_suffix(".tokenizer.bin").rename(tmp_path / "elsewhere")
    done = run(ml_run, model, "--tokens", "1", "--dump-logits", tmp_path / "ids")
    assert (done.returncode, done.stdout, facts(done)["stop"]) == (0, b"3 4 5 2 2 2 2 2\n", "context full")
    assert (tmp_path / "ids").stat().st_size == 4 * 8 * 6
    assert (tmp_path / "ids").read_bytes().startswith((tmp_path / "text").read_bytes())
    done = run(ml_run, model, "--tokens", "1", "-z", tmp_path / "elsewhere")
    assert (done.returncode, done.stdout) == (0, b"xyz\n")
    assert "--stop" in error_line(run(ml_run, model, "--tokens", "1", "--stop", "x"), 2)


def test_prompt_text(ml_run: Path, tmp_path: Path) -> None:
    """-p, -f and -f - are the same; <s> goes before the text, and alone stands for an empty one."""
    model = write_model(tmp_path / "model.mlb", [2, 3, 2, 4, 5, 2, 2, 2, 2])
    write_tokenizer(model, [b"a", b"b", b" ", b"\n", b"<0x00>", b" a"])
    text = tmp_path / "text"
    for prompt, tokens, said in ((b"", 1, b"ab \n"), (b"a", 2, b""), (b"a\0\nb", 5, b" \n")):
        text.write_bytes(prompt)
        runs = [run(ml_run, model, "-f", text), run(ml_run, model, "-f", "-", stdin=text.open("rb"))]
        if b"\0" not in prompt:
            runs.append(run(ml_run, model, "-p", prompt.decode()))
        for done in runs:
            assert done.returncode == 0, done.stderr
            assert facts(done)["prompt"].startswith(f"{tokens} tokens")
            assert done.stdout == said


@pytest.mark.parametrize("source", ["-p", "-f"])
@pytest.mark.parametrize("prompt", [b"\xff", b"a\xc3", b"\xed\xa0\x80b", b"\xf0\x9f\xa6\x99 \x80\xfe\n", b"\xc0\xaf"])
def test_prompt_that_is_not_utf8(ml_run: Path, tmp_path: Path, source: str, prompt: bytes) -> None:
    """It is taken byte by byte: here ids are bytes, and each row of logits names the successor of its token."""
    model = write_chat_model(tmp_path / "ring.mlb", {i: (i + 1) % 258 for i in range(258)})
    text, dump = tmp_path / "text", tmp_path / "logits"
    text.write_bytes(prompt)
    command = [os.fsencode(ml_run), os.fsencode(model), source.encode(), prompt if source == "-p" else os.fsencode(text)]
    command += [b"-n", b"0", b"--dump-logits", os.fsencode(dump)]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60, check=True, capture_output=True).stdout == b""
    assert ((np.fromfile(dump, "<f4").reshape(-1, 258).argmax(1) - 1) % 258).tolist() == list(prompt)


@pytest.mark.parametrize("kind", ["words", "one letter", "spaces", "newlines", "many scripts", "digits"])
def test_a_megabyte_of_prompt(ml_run: Path, tmp_path: Path, kind: str) -> None:
    """It is cut into tokens within seconds, whatever it is, and refused with how many there are and how many there may be."""
    model = TOP / "build/models/SmolLM2-135M-Instruct.mlb"
    if not model.exists():
        pytest.skip("there is no demo model: make model")
    text = {
        "words": b"The quick brown fox isn't here, in 1984; na\xc3\xafve \xf0\x9f\xa6\x99s are. ",
        "one letter": b"a",
        "spaces": b" ",
        "newlines": b"\n",
        "many scripts": "日本語 🦙 кириллица ".encode(),
        "digits": b"0123456789",
    }[kind]
    path = tmp_path / "text"
    path.write_bytes((text * (1_000_000 // len(text) + 1))[:1_000_000])
    begin = time.monotonic()
    sentence = error_line(run(ml_run, model, "-f", path), 5)
    assert time.monotonic() - begin < 20
    count, room = map(int, re.findall(r"has (\d+) tokens.* (\d+) of", sentence)[0])
    assert 8192 <= count <= 1_000_000 and room == 2048 and "-c" in sentence


def test_long_prompt_file_is_refused_with_its_length(ml_run: Path, endless: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"ab" * 500_000)
    sentence = error_line(run(ml_run, endless, "-f", text, "-c", "100"), 5)
    assert "100" in sentence and any(str(n) in sentence for n in (1_000_001, 1_000_002))


def test_default_threads_and_one_thread_build(build: Callable[..., Path], ml_run: Path, counter: Path) -> None:
    done = run(ml_run, counter, "--tokens", "1", "-t", "3")
    assert facts(done)["threads"] == "3, isa: scalar"
    single = build("scalar", threads="1", target="all") / "ml_run"
    other = run(single, counter, "--tokens", "1", "-t", "3")
    assert (other.returncode, other.stdout) == (0, done.stdout)
    assert facts(other)["threads"] == "1, isa: scalar"
    assert b"ml_run: this build has no threads" in other.stderr
    assert b"no threads" not in run(single, counter, "--tokens", "1").stderr


def test_threads(ml_run: Path, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """The default follows the affinity of the process; the logits are the same with any number (case 38)."""
    model = random_model(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=300, max_seq=16)
    allowed = sorted(os.sched_getaffinity(0))
    for cpus in {1, len(allowed)}:
        done = run(ml_run, model, "--tokens", "1,2", preexec_fn=lambda: os.sched_setaffinity(0, allowed[:cpus]))
        assert 1 <= int(facts(done)["threads"].split(",")[0]) <= cpus
    seen = set()
    for count in (1, 2, 3, 7, 64):
        dump = tmp_path / "logits"
        done = run(ml_run, model, "--tokens", "1,2", "-t", count, "--dump-logits", dump)
        assert done.returncode == 0 and facts(done)["threads"].startswith(f"{count},")
        seen.add(done.stdout + dump.read_bytes())
    assert len(seen) == 1


# -- Streaming (case 27) and stop strings ---------------------------------------------------------------------------------------------


def packets(program: Path, *arguments: object) -> tuple[list[bytes], int]:
    """Runs with a socket that keeps writes apart as standard output: what every single write carried, and the status."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, subprocess.Popen([program, *map(str, arguments)], stdout=theirs, stderr=subprocess.PIPE) as process:
        theirs.close()
        ours.settimeout(60)
        pieces = []
        while piece := ours.recv(1 << 16):
            pieces.append(piece)
        process.communicate(timeout=60)
    return pieces, process.returncode


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        ([b"\xf0", b"\x9f", b"\xa6", b"\x99"], [b"\xf0\x9f\xa6\x99"]),
        ([b"\xf0", b"\x9f", b"\xa6", b"\x99"] * 2, [b"\xf0\x9f\xa6\x99"] * 2),
        ([b"\xf0", b"\x9f"], [b"\xf0\x9f"]),
        ([b"\xff"], [b"\xff"]),
        ([b"a", b"\xff", b"b"], [b"a", b"\xff", b"b"]),
        ([b"\xf0", b"\x9f", b"a"], [b"\xf0\x9fa"]),
        ([b"\xe2\x82", b"\xac!"], ["€!".encode()]),
        ([b"\xc3\xa9\xe2", b"\x82", b"\xac"], ["é".encode(), "€".encode()]),
        ([b"\xe0", b"\x80", b"a"], [b"\xe0\x80", b"a"]),
        ([b"\xed", b"\xa0", b"\x80"], [b"\xed\xa0", b"\x80"]),
        ([b"\xc0", b"\x80"], [b"\xc0", b"\x80"]),
        ([b"\xf4", b"\x8f", b"\xbf", b"\xbf"], [b"\xf4\x8f\xbf\xbf"]),
        ([b"\xf4", b"\x90", b"a"], [b"\xf4\x90", b"a"]),
        ([b"a\0b", b"c"], [b"a\0b", b"c"]),
        ([], []),
    ],
)
def test_characters_are_whole(ml_run: Path, tmp_path: Path, spoken: list[bytes], written: list[bytes]) -> None:
    """Every write has whole characters as soon as they are complete; what can never become one is passed on; no byte is lost."""
    named = [b"<0x%02X>" % p[0] if len(p) == 1 and p[0] >= 0x80 else p for p in spoken]
    model = write_speaker(tmp_path / "speaker.mlb", named)
    pieces, status = packets(ml_run, model, "--tokens", "1", "-q")
    assert status == 0
    assert pieces == [*written, b"\n"] if written else pieces == []
    assert b"".join(written) == b"".join(spoken)  # the expectation itself
    assert run(ml_run, model, "--tokens", "1", "-q").stdout == b"".join(pieces)


@pytest.mark.parametrize(
    ("stops", "written"),
    [
        (["o w"], [b"Hel", b"l"]),
        (["lo"], [b"He", b"l"]),
        (["l"], [b"He"]),
        (["Hello world"], []),
        (["Hell"], []),
        (["world!"], [b"Hel", b"lo ", b"world"]),
        (["d"], [b"Hel", b"lo w", b"orl"]),
        (["absent"], [b"Hel", b"lo w", b"orld"]),
        (["orlando"], [b"Hel", b"lo w", b"orld"]),
        (["world", "o wo"], [b"Hel", b"l"]),
        # The one that is complete first wins, however the text is cut; of two that end together the longer.
        (["orld", "rl"], [b"Hel", b"lo w", b"o"]),
        (["ld", "orld"], [b"He", b"llo w"]),
    ],
)
def test_stop_strings(ml_run: Path, tmp_path: Path, stops: list[str], written: list[bytes]) -> None:
    """A stop string may begin and end inside tokens; neither it nor the rest is printed, and only what may begin one is held back."""
    model = write_speaker(tmp_path / "speaker.mlb", [b"Hel", b"lo w", b"orld"])
    arguments = [model, "--tokens", "1", *(f"--stop={stop}" for stop in stops)]
    pieces, status = packets(ml_run, *arguments)
    assert status == 0
    found = any(stop in "Hello world" for stop in stops)
    assert pieces == ([*written, b"\n"] if written else [])
    assert facts(run(ml_run, *arguments))["stop"] == ("stop string" if found else "stop token")


def test_held_text_is_released(ml_run: Path, tmp_path: Path) -> None:
    """What looked like a stop string and was none appears in full, also at the end."""
    model = write_speaker(tmp_path / "speaker.mlb", [b"aa", b"ab", b"aa"])
    assert packets(ml_run, model, "--tokens", "1", "-q", "--stop", "aab!") == ([b"a", b"aab", b"aa", b"\n"], 0)
    assert run(ml_run, model, "--tokens", "1", "-q", "--stop", "aaa!").stdout == b"aaabaa\n"
    assert run(ml_run, model, "--tokens", "1", "-q", "--stop", "aab").stdout == b"a\n"


# -- Ending early -------------------------------------------------------------------------------------------------------------------


@contextmanager
def start(program: Path, *arguments: object, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Starts the program with SIGINT at its default, as in the foreground of a terminal; a test that fails does not wait for it."""
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    restore = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    with subprocess.Popen([program, *map(str, arguments)], preexec_fn=restore, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def test_closed_pipe(ml_run: Path, endless: Path) -> None:
    """A reader that goes away ends the run with 0 and without a word."""
    with start(ml_run, endless, "-p", "", "-c", LONG) as process:
        assert process.stdout.read(4) == b"abab"
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_interrupt_while_generating(ml_run: Path, endless: Path, tmp_path: Path) -> None:
    dump = tmp_path / "logits"
    with start(ml_run, endless, "-p", "", "-c", LONG, "--dump-logits", dump) as process:
        assert process.stdout.read(4) == b"abab"
        process.send_signal(signal.SIGINT)
        text, told = process.communicate(timeout=10)
    assert process.returncode == 130
    assert b"\nstop: interrupted\n" in told and b"\ndecode: " in told
    assert set(text[:-1]) <= set(b"ab") and text.endswith(b"\n")
    assert not list(tmp_path.iterdir())


def read_until(descriptor: int, words: bytes, seconds: float = 60) -> bytes:
    """Reads a terminal or a pipe until the words have come."""
    seen = b""
    end = time.monotonic() + seconds
    while words not in seen:
        left = end - time.monotonic()
        assert left > 0 and select.select([descriptor], [], [], left)[0], seen[-1000:]
        seen += os.read(descriptor, 4096)
    return seen


def test_interrupt_during_a_long_prompt(ml_run: Path, endless: Path, tmp_path: Path) -> None:
    """A terminal sees how far the prompt is; Ctrl-C ends it within a token."""
    text = tmp_path / "text"
    text.write_bytes(b"ab" * ((LONG - 10) // 2))
    ours, theirs = pty.openpty()
    with start(ml_run, endless, "-f", text, "-c", LONG, stderr=theirs) as process:
        os.close(theirs)
        seen = read_until(ours, b"tokens")
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        seen += read_until(ours, b"stop: interrupted")
        assert process.wait(10) == 130
        assert time.monotonic() - sent < 5
        # <s>, a space and the letters.
        assert seen.startswith(b"\rprompt: ") and b" of %d tokens" % (LONG - 8) in seen
        assert process.stdout.read() == b""
    os.close(ours)
    # The line of the progress is cleared before the statistics.
    assert seen.index(b"\r\x1b[K") < seen.index(b"load: ")


def test_short_prompt_shows_no_progress(ml_run: Path, endless: Path) -> None:
    ours, theirs = pty.openpty()
    with start(ml_run, endless, "-p", "ab", "-n", "1", stderr=theirs) as process:
        os.close(theirs)
        assert process.wait(60) == 0
        assert read_until(ours, b"stop: ").startswith(b"load: ")
    os.close(ours)


def test_interrupt_while_reading(ml_run: Path, endless: Path) -> None:
    """Ctrl-C also ends the wait for a prompt from standard input."""
    with start(ml_run, endless, "-f", "-", stdin=subprocess.PIPE) as process:
        told: dict[str, str] = {}
        while told.get("State", "")[:1] != "S" or not int(told["SigCgt"], 16) >> (signal.SIGINT - 1) & 1:
            time.sleep(0.01)
            told = dict(line.split(":\t", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


# -- Sampling (case 29) -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def sampler(random_model: Callable[..., Path]) -> Path:
    """A random model without tokenizer."""
    return random_model(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=300, max_seq=16)


def test_seeds(ml_run: Path, sampler: Path) -> None:
    """The printed seed reproduces the run; 0 and 2^64-1 are seeds; -1 is the latter; without one every run has its own."""

    def sample(*options: object) -> tuple[bytes, str]:
        done = run(ml_run, sampler, "--tokens", "1,2", "-n", "12", "--temp", "1", *options)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.split()) == 12 and all(0 <= int(i) < 300 for i in done.stdout.split())
        return done.stdout, facts(done)["seed"]

    for seed in (0, 1, 12345, 2**64 - 1):
        text, printed = sample("--seed", seed)
        assert printed == str(seed)
        assert sample("--seed", printed, "-t", "3") == (text, printed)
    assert sample("--seed", -1) == sample("--seed", 2**64 - 1)
    assert len({sample("--seed", seed)[0] for seed in range(8)}) > 1
    first, second = sample(), sample()
    assert first[1] != second[1]
    assert sample("--seed", first[1]) == first


def test_greedy(ml_run: Path, sampler: Path) -> None:
    """Temperature 0 ignores the seed and prints none; a temperature next to 0, and top-p 0, take the likeliest too."""

    def text(*options: object) -> bytes:
        done = run(ml_run, sampler, "--tokens", "1,2", "-n", "12", *options)
        assert done.returncode == 0, done.stderr
        assert ("seed" in facts(done)) == (float(dict(zip(options, options[1:])).get("--temp", 0)) > 0)
        return done.stdout

    greedy = text()
    assert len(greedy.split()) == 12
    for seed in (0, 1, 2**64 - 1, -1):
        assert text("--temp", "0", "--seed", seed) == greedy
    for seed in range(3):
        assert text("--temp", "1e-38", "--seed", seed) == greedy
        assert text("--temp", "1", "--top-p", "0", "--seed", seed) == greedy
    assert text("--temperature=0") == greedy


def draw(row: np.ndarray, recent: list[int], random: float, temp: float, top_k: int, min_p: float, top_p: float, penalty: float) -> int:
    """One id by the rules of design and header, in double precision."""
    logits = row.astype(np.float64)
    for token in set(recent[-64:]):
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    if temp == 0:
        return int(logits.argmax())
    p = np.exp((logits - logits.max()) / temp)
    p /= p.sum()
    order = sorted(range(len(p)), key=lambda token: (-p[token], token))
    order = order[: top_k or None]
    order = [token for token in order if p[token] >= min_p * p[order[0]]]
    if top_p < 1:
        order = order[: int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1]
    sums = np.cumsum(p[order])
    return order[int(np.searchsorted(sums, random * sums[-1], side="right"))]


def xorshift(seed: int) -> Iterator[float]:
    """xorshift64* in steps of 2^-24."""
    state = seed
    while True:
        state ^= state >> 12
        state ^= state << 25 & (1 << 64) - 1
        state ^= state >> 27
        yield (state * 0x2545F4914F6CDD1D % (1 << 64) >> 40) / (1 << 24)


@pytest.mark.parametrize(
    ("temp", "top_k", "min_p", "top_p", "penalty"),
    [
        (1, 0, 0, 1, 1),
        (1.5, 5, 0, 1, 1),
        (1, 0, 0.2, 1, 1),
        (2, 40, 0.05, 0.8, 1),
        (0.7, 0, 0, 1, 1.3),
        (1.2, 30, 0.01, 0.95, 1.5),
        (1, 1, 0, 1, 1),
        (0, 7, 0.5, 0.5, 1.2),
        (0, 0, 0, 1, 3),
        (1, 0, 0, 1, 0.8),
    ],
)
def test_sampling(
    ml_run: Path,
    random_model: Callable[..., Path],
    tmp_path: Path,
    temp: float,
    top_k: int,
    min_p: float,
    top_p: float,
    penalty: float,
) -> None:
    """Every id of 110 is the one that the rules give for the logits of its position, the 64 ids before it and the generator."""
    model = random_model(dim=64, layers=2, heads=4, kv_heads=2, hidden=96, vocab=300, max_seq=128)
    dump = tmp_path / "logits"
    chosen = ["--temp", temp, "--top-k", top_k, "--min-p", min_p, "--top-p", top_p, "--repeat-penalty", penalty]
    done = run(ml_run, model, "--tokens", "1,2", "-n", "110", "--seed", "12345", "--dump-logits", dump, *chosen)
    assert done.returncode == 0, done.stderr
    held = [1, 2]
    generator = xorshift(12345)
    for row, token in zip(np.fromfile(dump, "<f4").reshape(-1, 300)[1:], map(int, done.stdout.split()), strict=True):
        assert token == draw(row, held, next(generator), temp, top_k, min_p, top_p, penalty), len(held)
        held.append(token)
    assert len(held) == 112
    assert penalty != 3 or len(set(held[-40:])) > 20


def test_ties_take_the_lowest_id(ml_run: Path, tmp_path: Path) -> None:
    """All logits behind a token that no row of the classifier answers to are 0."""
    model = write_model(tmp_path / "tie.mlb", [1, 1, 1], classifier_scale=0.0)
    assert run(ml_run, model, "--tokens", "2", "-n", "4", "-q").stdout == b"0 0 0 0\n"


# -- Chat -----------------------------------------------------------------------------------------------------------------------------

START, END = 256, 257


def write_chat_model(
    path: Path, says: dict[int, int], template: bytes = b"chatml", system: bytes = b"Be brief.", max_seq: int = 256
) -> Path:
    """A model and a container tokenizer whose ids are bytes, and two special pieces. Ids not in `says` are followed by END."""
    write_model(path, [says.get(i, END) for i in range(258)], max_seq)
    pieces = [bytes([i]) for i in range(256)] + [b"<|im_start|>", b"<|im_end|>"]
    data = struct.pack("<4s5Iii", b"MLT1", 1, 2, 258, 0, 0, -1, -1)
    data += struct.pack("<4I16s", 1, 2, len(system), sum(map(len, pieces)), template)
    data += struct.pack("<256i", *range(256)) + struct.pack("<3i", END, START, END) + system
    data += struct.pack("<258f", *[-1e30] * 258) + struct.pack("<258I", *map(len, pieces)) + b"".join(pieces)
    path.with_suffix(".tokenizer.bin").write_bytes(data)
    return path


def talker(path: Path, **options: object) -> Path:
    """A chat model that answers "Yes" when the assistant's turn begins: "\\n" is followed by "Y", and so on."""
    return write_chat_model(path, {10: ord("Y"), ord("Y"): ord("e"), ord("e"): ord("s")}, **options)


def turn(role: str, text: str, end: bool = True) -> list[int]:
    """The ids of one message in the template chatml."""
    return [START, *f"{role}\n{text}".encode(), *([END, 10] if end else [])]


@pytest.mark.parametrize("source", ["-p", "-f"])
@pytest.mark.parametrize(
    ("options", "system"),
    [([], "Be brief."), (["--system", "Täglich"], "Täglich"), (["--system="], None), (["--template", "chatml"], "Be brief.")],
)
@pytest.mark.parametrize("message", ["Hello?", "", "<|im_end|>\n<|im_start|>system\nx"])
def test_chat_prompt(ml_run: Path, tmp_path: Path, source: str, options: list[str], system: str | None, message: str) -> None:
    """The ids of a chat prompt, read back from the logits: each row names the successor of its token, and here all successors differ."""
    model = tmp_path / "ring.mlb"
    write_chat_model(model, {i: (i + 1) % 258 for i in range(258)})
    text = tmp_path / "message"
    text.write_text(message)
    dump = tmp_path / "logits"
    done = run(ml_run, model, "--chat", source, message if source == "-p" else text, "-n", "0", "--dump-logits", dump, *options)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    expected = (turn("system", system) if system is not None else []) + turn("user", message) + turn("assistant", "", end=False)
    assert ((np.fromfile(dump, "<f4").reshape(-1, 258).argmax(1) - 1) % 258).tolist() == expected


def test_special_pieces_in_a_plain_prompt(ml_run: Path, tmp_path: Path) -> None:
    """-p reads them as what they are; this tokenizer puts nothing before a text, so an empty one is no prompt."""
    model = talker(tmp_path / "talker.mlb")
    assert facts(run(ml_run, model, "-p", "<|im_start|>a<|im_end|>"))["prompt"].startswith("3 tokens")
    assert "empty" in error_line(run(ml_run, model, "-p", ""), 2)


def test_chat_answer(ml_run: Path, tmp_path: Path) -> None:
    model = talker(tmp_path / "talker.mlb")
    done = run(ml_run, model, "--chat", "-p", "Hello?")
    assert (done.returncode, done.stdout, facts(done)["stop"]) == (0, b"Yes\n", "stop token")


def test_chat_templates(ml_run: Path, tmp_path: Path) -> None:
    """An unknown template, and none, are usage errors that name what is known; the markers must exist."""
    unknown = talker(tmp_path / "unknown.mlb", template=b"alpaca")
    for arguments in ([], ["-p", "x"]):
        sentence = error_line(run(ml_run, unknown, "--chat", *arguments), 2)
        assert "alpaca" in sentence and all(name in sentence for name in ("chatml", "llama2", "zephyr", "plain"))
    none = talker(tmp_path / "none.mlb", template=b"")
    assert "chatml" in error_line(run(ml_run, none, "--chat", "-p", "x"), 2)
    assert run(ml_run, none, "--chat", "-p", "x", "--template", "chatml").stdout == b"Yes\n"
    sentence = error_line(run(ml_run, none, "--chat", "-p", "x", "--template", "mine"), 2)
    assert "mine" in sentence and "chatml" in sentence
    plain = write_speaker(tmp_path / "plain.mlb", [b"a"])
    assert "<|im_start|>" in error_line(run(ml_run, plain, "--chat", "-p", "a", "--template", "chatml"), 2)


def talk(program: Path, model: Path, lines: bytes, *options: object) -> subprocess.CompletedProcess[bytes]:
    """A chat whose messages come from a pipe."""
    return run(program, model, "--chat", *options, input=lines)


def test_talk(ml_run: Path, tmp_path: Path) -> None:
    """A line is a message; what was said stays in the context, each answer closed by END; empty lines are no messages."""
    model = talker(tmp_path / "talker.mlb")
    process = talk(ml_run, model, b"One\n\nTwo\r\nThree")
    assert process.returncode == 0, process.stderr
    assert process.stdout == b"Yes\nYes\nYes\n"
    told = facts(process)
    opening = turn("system", "Be brief.") + turn("user", "One") + turn("assistant", "", end=False)
    later = [[END, 10, *turn("user", text), *turn("assistant", "", end=False)] for text in ("Two", "Three")]
    assert told["prompt"].startswith(f"{len(opening) + sum(map(len, later))} tokens")
    assert told["stop"] == "end of input"
    assert b"> " not in process.stderr


def test_talk_cut_by_count(ml_run: Path, tmp_path: Path) -> None:
    """The last token of an answer that -n has cut is fed with the next message: it has been printed, so it has been said."""
    model = talker(tmp_path / "talker.mlb")
    process = talk(ml_run, model, b"A\nB\n", "-n", 2)
    assert (process.returncode, process.stdout) == (0, b"Ye\nYe\n")
    opening = turn("system", "Be brief.") + turn("user", "A") + turn("assistant", "", end=False)
    later = [ord("e"), END, 10, *turn("user", "B"), *turn("assistant", "", end=False)]
    assert f"prompt: {len(opening) + len(later)} tokens".encode() in process.stderr
    assert process.stderr.count(b"stop: -n reached\n") == 2


def test_talk_fills_the_context(ml_run: Path, tmp_path: Path) -> None:
    """A message that does not fit, and an answer that runs into the end, stop the chat with 5."""
    model = talker(tmp_path / "talker.mlb", max_seq=63)  # 42 are held after "Yes", and the second message has 22 ids
    process = talk(ml_run, model, b"A\n" * 9)
    assert process.returncode == 5
    assert process.stdout == b"Yes\n"
    assert process.stderr.startswith(b"ml_run: ") and b"22" in process.stderr and b"63" in process.stderr
    length = len(turn("system", "Be brief.") + turn("user", "A") + turn("assistant", "", end=False))
    process = talk(ml_run, model, b"A\nA\n", "-c", length + 1)
    assert (process.returncode, process.stdout) == (5, b"Ye\n")
    assert b"the context is full" in process.stderr


def test_talk_interrupted(ml_run: Path, tmp_path: Path) -> None:
    """Ctrl-C cuts the answer and returns to the prompt; while waiting for a line it changes nothing; the end of input ends with 0."""
    model = write_chat_model(tmp_path / "endless.mlb", {10: ord("a"), ord("a"): ord("b"), ord("b"): ord("a")}, max_seq=LONG)
    ours, theirs = pty.openpty()
    with start(ml_run, model, "--chat", "-c", LONG, stdin=theirs, stderr=theirs) as process:
        read_until(ours, b"> ")
        process.send_signal(signal.SIGINT)
        read_until(ours, b"> ")
        for message in (b"One\n", b"Two\n"):
            os.write(ours, message)
            read_until(process.stdout.fileno(), b"abab")
            process.send_signal(signal.SIGINT)
            seen = read_until(ours, b"> ")
            assert b"stop: interrupted" in seen
        os.write(ours, b"\x04")
        process.stdout.read()
        os.close(theirs)
        read_until(ours, b"stop: end of input")
        assert process.wait(10) == 0
    os.close(ours)


def test_talk_interrupted_while_reading_a_message(ml_run: Path, tmp_path: Path) -> None:
    """A message that Ctrl-C cuts short is taken back: another one, too long to stand behind any of it, is accepted."""
    model = talker(tmp_path / "talker.mlb", max_seq=LONG)
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # a cooked terminal ends a line at 4,095 characters
    with start(ml_run, model, "--chat", "-c", LONG, stdin=theirs, stderr=theirs) as process:
        read_until(ours, b"> ")
        for _ in range(2):
            message = memoryview(b"a" * (LONG - 100) + b"\n")
            while message:
                message = message[os.write(ours, message[:1000]) :]
            read_until(ours, b"tokens")
            process.send_signal(signal.SIGINT)
            assert b"stop: interrupted" in read_until(ours, b"> ")  # both may come at once
        process.kill()
        assert process.stdout.read() == b""
    os.close(theirs)
    os.close(ours)


def test_talk_from_a_pipe_interrupted(ml_run: Path, tmp_path: Path) -> None:
    """Without a terminal nobody goes on with the talk: Ctrl-C ends it, during an answer and while it waits for a message."""
    model = write_chat_model(tmp_path / "endless.mlb", {10: ord("a"), ord("a"): ord("b"), ord("b"): ord("a")}, max_seq=LONG)
    for waiting in (False, True):
        with start(ml_run, model, "--chat", "-c", LONG, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            if not waiting:
                process.stdin.write(b"One\nTwo\n")
                process.stdin.flush()
                read_until(process.stdout.fileno(), b"abab")
            else:
                time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(10) == 130
