# SPDX-License-Identifier: BSD-3-Clause
"""legacyml-convert as people meet it: dry run, report, progress on a terminal, the same bytes again."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest

from test_convert import TOP, arrays, hf_folder, hf_tensors, make_header, make_weights, run, write_llama2c
from test_convert_tokenizers import plain

from legacyml_convert import cli, quant

CONVERT = [sys.executable, str(TOP / "tools/convert.py")]


def stories(folder: Path) -> Path:
    """A checkpoint with a tokenizer beside it."""
    header = make_header(vocab=300, hidden_dim=84)
    write_llama2c(folder / "c.bin", header, make_weights(header), 0)
    (folder / "tokenizer.bin").write_bytes(plain(300))
    return folder / "c.bin"


def test_dry_run_writes_nothing_and_says_what_would_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = stories(tmp_path)
    out, beside = tmp_path / "m.mlb", tmp_path / "m.tokenizer.bin"
    names = sorted(path.name for path in tmp_path.iterdir())
    assert run(source, out, "--dry-run", "--type", "q4_0") == 0
    dry = capsys.readouterr()
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert run(source, out, "--type", "q4_0") == 0
    wet = capsys.readouterr()
    assert dry.out == f"{out}: {out.stat().st_size} bytes\n{beside}: {beside.stat().st_size} bytes\n" and wet.out == ""
    assert dry.err == wet.err + "dry run: nothing has been written\n"
    # Old files stay as they are.
    out.write_bytes(b"old")
    beside.write_bytes(b"old")
    assert run(source, out, "--dry-run") == 0
    assert out.read_bytes() == beside.read_bytes() == b"old"


def test_dry_run_finds_what_conversion_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last weight is NaN; the tokenizer is too large; there is no such folder; a folder has the tokenizer's name."""
    header = make_header()
    weights = make_weights(header)
    weights["wcls"][-1, -1] = np.nan
    folder = hf_folder(tmp_path / "hf", header, hf_tensors(weights))
    faults: list[tuple[list[object], int]] = [([folder, tmp_path / "m.mlb"], 4)]
    good = stories(tmp_path)
    (tmp_path / "large.bin").write_bytes(plain(301))
    (tmp_path / "x.tokenizer.bin").mkdir()
    faults += [([good, tmp_path / "m.mlb", "--tokenizer", tmp_path / "large.bin"], 5)]
    faults += [([good, tmp_path / "none/m.mlb"], 3), ([good, tmp_path / "x.mlb"], 3)]
    for arguments, status in faults:
        messages = []
        for more in ([], ["--dry-run"]):
            assert cli.main([*map(str, arguments), *more]) == status
            messages.append(capsys.readouterr())
        assert messages[0] == messages[1] and messages[0].err.count("\n") == 1 and messages[0].out == ""


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes by type, and the block whose error is largest, found here in double precision from the file."""
    header = make_header(hidden_dim=84)
    weights = make_weights(header)
    weights["layers.1.w2"][40, 32:64] = np.where(np.arange(32) == 5, 127, 0.49)  # all but one of which Q8_0 makes 0
    weights["layers.0.wq"][3, 32:64] = 1e-20  # its scale is 0, which is not counted
    write_llama2c(tmp_path / "c.bin", header, weights, 1)
    for kind in ("q8_0", "q4_0"):
        assert run(tmp_path / "c.bin", tmp_path / "m.mlb", "--type", kind) == 0
        lines = capsys.readouterr().err.splitlines()
        worst, place = 0.0, ""
        for name, w in arrays(tmp_path / "m.mlb").items():
            if len(w) > 1:
                padded = np.zeros_like(w)
                padded[: len(weights[name]), : weights[name].shape[1]] = weights[name]
                before, after = padded.reshape(-1, 32), w.reshape(-1, 32)
                norm = np.sqrt((before**2).sum(axis=1))
                used = after.any(axis=1)
                error = np.sqrt(((after - before)[used] ** 2).sum(axis=1)) / norm[used]
                if error.max() > worst:
                    worst = error.max()
                    row, col = divmod(32 * int(np.flatnonzero(used)[error.argmax()]), w.shape[1])
                    place = f"{name}, row {row}, columns {col} to {col + 31}"
        assert lines[-1].startswith(f"worst block: {worst * 100:.2f}% ") and lines[-1].endswith(f"in {place}")
        assert kind != "q8_0" or "layers.1.w2, row 40" in place
        # 2 layers of two norms, and the last one; w1 and w3 have 96 rows, w2 96 columns.
        assert f"  F32: 5 tensors, {5 * 64 * 4} bytes" in lines
        weights_of = 80 * 64 * 2 + 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64)
        size = weights_of // (1 if kind == "q8_0" else 2) + weights_of // 32 * 4
        assert f"  {kind.upper()}: 16 tensors, {size} bytes" in lines


def test_worst_block_of_a_tensor_in_many_chunks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = make_header(vocab=9000)
    weights = make_weights(header)
    weights["wcls"][8765, :32] = np.where(np.arange(32) == 0, 127, 0.49)
    write_llama2c(tmp_path / "c.bin", header, weights, 1)
    assert run(tmp_path / "c.bin", tmp_path / "m.mlb") == 0
    assert capsys.readouterr().err.endswith("in wcls, row 8765, columns 0 to 31\n")


def test_worst_block_by_hand() -> None:
    """Steps of 1: changed by 0.4 and 0.3 of a step in a block of one 127, so sqrt(0.25) over sqrt(127^2 + 3.4^2 + 5.7^2)."""
    x = np.zeros((2, 64), np.float32)
    x[1, 32:35] = [127, 3.4, 5.7]
    error, block = quant.worst_block(x, *quant.quantize_q8(x))
    assert block == 3 and abs(error - 0.5 / np.sqrt(127**2 + 3.4**2 + 5.7**2)) < 1e-6
    assert quant.worst_block(np.zeros((1, 32), np.float32), np.zeros((1, 32), np.int8), np.zeros((1, 1), np.float32)) == (0, 0)


def test_quiet(tmp_path: Path) -> None:
    source = stories(tmp_path)
    for more, out in ([], ""), (["--dry-run"], f"{tmp_path / 'm.mlb'}: "):
        done = subprocess.run([*CONVERT, source, tmp_path / "m.mlb", "-q", *more], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith(out) and bool(done.stdout) == bool(out)
    failed = subprocess.run([*CONVERT, tmp_path / "no", tmp_path / "m.mlb", "-q"], capture_output=True, text=True, check=False)
    assert failed.returncode == 3 and failed.stderr.count("\n") == 1


def on_terminal(*arguments: object) -> tuple[int, str]:
    """Status and what a terminal gets on stderr."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = subprocess.Popen([*CONVERT, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not part:
            break
        shown += part
    os.close(leader)
    return process.wait(), shown.decode()


def test_progress_on_a_terminal_only(tmp_path: Path) -> None:
    source, out = stories(tmp_path), tmp_path / "m.mlb"
    status, shown = on_terminal(source, out)
    assert status == 0 and re.search(r"m\.mlb: +100%", shown) and "\r" in shown
    assert shown.index("100%") < shown.index("worst block") and "\x1b[3" not in shown  # no colours
    assert on_terminal(source, out, "-q") == (0, "")
    piped = subprocess.run([*CONVERT, source, out], capture_output=True, text=True, check=True)
    assert "\r" not in piped.stderr and "\x1b" not in piped.stderr and "100%" not in piped.stderr


@pytest.mark.parametrize("options", [[], ["--type", "q4_0", "--emb-type", "q8_0"]])
def test_the_same_bytes_again(tmp_path: Path, options: list[str]) -> None:
    """Other processes, another order of hashes, another place."""
    source = stories(tmp_path)
    blobs = []
    for seed in ("0", "1", "random"):
        folder = tmp_path / f"out{seed}"
        folder.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([*CONVERT, source, folder / "m.mlb", "-q", *options], env=environment, check=True)
        blobs.append([(folder / name).read_bytes() for name in ("m.mlb", "m.tokenizer.bin")])
    assert blobs[0] == blobs[1] == blobs[2]


@pytest.mark.parametrize("rows, least", [(80, 16), (512, 448), (640, 560), (32000, 28000)])
def test_tokenizer_that_is_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: int, least: int) -> None:
    """Up to 64 rows or an eighth may have no piece; a plain file cut between two pieces looks whole but for their number."""
    header = make_header(vocab=rows, dim=32, n_layers=1, hidden_dim=32)
    write_llama2c(tmp_path / "c.bin", header, make_weights(header), 0)
    for pieces in (least, least - 1):
        (tmp_path / "tokenizer.bin").write_bytes(plain(pieces))
        status = run(tmp_path / "c.bin", tmp_path / "m.mlb")
        message = capsys.readouterr().err
        assert status == (0 if pieces == least else 5)
        assert str(pieces) in message and str(rows if status else rows - 1) in message
        if status:
            assert "cut off" in message and str(least) in message and message.count("\n") == 1
            assert not (tmp_path / "m.mlb").exists() or (tmp_path / "m.mlb").stat().st_size  # the one from before
