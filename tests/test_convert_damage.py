# SPDX-License-Identifier: BSD-3-Clause
"""Damaged checkpoints: every cut and 2,000 random changes of each kind end with a sentence and a status that is promised, or are converted."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from test_convert import hf_folder, hf_tensors, make_header, make_weights, small_gguf, write_llama2c, write_safetensors

from legacyml_convert import FormatError, cli
from legacyml_convert.safetensors_file import SafetensorsFile

pytestmark = pytest.mark.filterwarnings("error")  # numpy's would be lines on stderr

CHANGES = 2000
SMALL = dict(dim=32, n_layers=1, n_heads=2, n_kv_heads=1, hidden_dim=32, vocab=32)


@pytest.fixture
def ends_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], int]:
    """Converts, without writing; returns the status. Fails unless it is 0, or 3 to 6 with one sentence."""

    def convert(source: Path) -> int:
        status = cli.main([str(source), str(tmp_path / "out.mlb"), "--dry-run"])
        error = capsys.readouterr().err
        if status == 0:
            assert "nothing has been written" in error
        else:
            assert status in (3, 4, 5, 6) and error.startswith("legacyml-convert: ") and error.count("\n") == 1, error
        return status

    return convert


def changed(blob: bytes, rng: random.Random, upto: int) -> bytes:
    """One to four bytes of the first `upto` changed, or a run of 4 or 8 bytes set to a number that is often too large."""
    out = bytearray(blob)
    upto = min(upto, len(out) - 8)
    if rng.random() < 0.25:
        number = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1, len(blob)])
        at = rng.randrange(upto)
        out[at : at + 8] = struct.pack("<Q", number)
        return bytes(out)
    for _ in range(rng.randint(1, 4)):
        out[rng.randrange(upto)] = rng.choice([0, 1, 34, 92, 127, 128, 255, rng.randrange(256)])
    return bytes(out)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_changed_llama2c(tmp_path: Path, ends_well: Callable[[Path], int], version: int) -> None:
    header = make_header(**SMALL, shared_classifier=1)
    path = tmp_path / "c.bin"
    write_llama2c(path, header, make_weights(header), version)
    blob = path.read_bytes()
    assert ends_well(path) == 0
    rng = random.Random(f"llama2c {version}")
    statuses = []
    for i in range(CHANGES // 4 if version else CHANGES // 2):
        # The header, or anywhere: weights become infinite or NaN too.
        path.write_bytes(changed(blob, rng, 64 if i % 2 else len(blob)))
        statuses.append(ends_well(path))
    assert {0, 4, 5} <= set(statuses)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "model.safetensors.index.json", "tokenizer.json"])
def test_changed_hugging_face(tmp_path: Path, ends_well: Callable[[Path], int], data: Path, name: str) -> None:
    """Each file of a folder with two shards or one; the tokenizer is one that the tokenizers library trained."""
    header = make_header(**SMALL, shared_classifier=1)
    if name == "tokenizer.json":
        header = make_header(**{**SMALL, "vocab": 600}, shared_classifier=1)
    tensors = hf_tensors(make_weights(header), "BF16")
    folder = hf_folder(tmp_path / "hf", header, tensors)
    if name == "tokenizer.json":
        (folder / name).write_bytes((data / "tokenizers/bytelevel600/tokenizer.json").read_bytes())
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
        parts = {"a.safetensors": dict(list(tensors.items())[:4]), "b.safetensors": dict(list(tensors.items())[4:])}
        for shard, part in parts.items():
            write_safetensors(folder / shard, part)
        (folder / name).write_text(json.dumps({"weight_map": {t: shard for shard, part in parts.items() for t in part}}))
    blob = (folder / name).read_bytes()
    assert ends_well(folder) == 0
    rng = random.Random(name)
    statuses = []
    for i in range({"model.safetensors": CHANGES, "tokenizer.json": 400}.get(name, CHANGES // 4)):
        (folder / name).write_bytes(changed(blob, rng, len(blob) if i % 2 else min(len(blob), 1500)))
        statuses.append(ends_well(folder))
    assert 4 in statuses and (0 in statuses or name == "model.safetensors.index.json")


def test_changed_gguf(tmp_path: Path, ends_well: Callable[[Path], int]) -> None:
    path = tmp_path / "m.gguf"
    blob = small_gguf(path)
    assert ends_well(path) == 0
    rng = random.Random("gguf")
    statuses = []
    for i in range(CHANGES):
        path.write_bytes(changed(blob, rng, 3000 if i % 4 else len(blob)))
        statuses.append(ends_well(path))
    assert {0, 4} <= set(statuses)


# -- The safetensors library is the judge --------------------------------------------------------------------------------------


def opens(path: Path) -> bool:
    try:
        SafetensorsFile(path)
        return True
    except FormatError as error:
        assert path.name in str(error) and "\n" not in str(error)
        return False


def test_safetensors_header_like_the_library(tmp_path: Path) -> None:
    """Nothing that the library refuses is taken, and nothing is refused that it takes."""
    safetensors = pytest.importorskip("safetensors")
    path = tmp_path / "x.safetensors"

    def library(blob: bytes) -> bool:
        path.write_bytes(blob)
        try:
            with safetensors.safe_open(path, "np") as file:
                list(file.keys())
            return True
        except (safetensors.SafetensorError, OSError):
            return False

    tensors = {"a": ("F32", np.ones((2, 3), "<f4")), "b": ("BF16", np.ones(4, "<u2")), "c": ("I8", np.ones((3, 1), "i1"))}
    write_safetensors(path, tensors)
    blob = path.read_bytes()
    assert library(blob) and opens(path)
    text = blob[8 : 8 + struct.unpack("<Q", blob[:8])[0]].decode()
    rng = random.Random("header")
    agree = {True: 0, False: 0}
    for _ in range(CHANGES):
        letters = list(text)
        for _ in range(rng.randint(1, 2)):
            letters[rng.randrange(len(letters))] = rng.choice('0123456789"[]{},: FIB-.e')
        other = "".join(letters).encode()
        theirs = library(struct.pack("<Q", len(other)) + other + blob[8 + len(text) :])
        assert opens(path) == theirs, other
        agree[theirs] += 1
    assert min(agree.values()) > 20
    # Tensors that leave a gap, lie upon each other, end too early or are not there at all.
    one = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    two = {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}
    later, upon = {**two, "data_offsets": [5, 9]}, {**two, "data_offsets": [0, 4]}
    for entries, n, good in (
        ({"a": one, "b": two}, 8, True),
        ({"b": two, "a": one}, 8, True),
        ({"a": one, "b": later}, 9, False),
        ({"a": one, "b": upon}, 4, False),
        ({"a": one}, 8, False),
        ({"a": one}, 3, False),
        ({"a": {**one, "shape": [2, 2]}, "__metadata__": {"format": "pt"}}, 4, True),
        ({"a": {**one, "shape": [5]}}, 4, False),
        ({"a": {**one, "shape": [2**62, 4]}}, 4, False),
        ({"a": {**one, "shape": [], "data_offsets": [0, 1]}}, 1, True),
        ({"a": {**one, "shape": [0, 3], "data_offsets": [0, 0]}}, 0, True),
        ({}, 0, True),
    ):
        other = json.dumps(entries).encode()
        assert library(struct.pack("<Q", len(other)) + other + bytes(n)) == good == opens(path), (entries, n)
