# SPDX-License-Identifier: BSD-3-Clause
"""Converting takes little memory whatever the size of a tensor: files with holes, whose embedding is larger than what the process may have."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from test_convert import TOP, hf_config, hf_name, llama2c_order, make_header, make_weights, write_gguf

from legacyml_convert import MlbFile
from legacyml_convert.tokenizer import BYTE_OF_LETTER

ROWS, COLS = 1 << 18, 512
HEADER = make_header(dim=COLS, n_layers=1, n_heads=8, n_kv_heads=2, hidden_dim=512, vocab=ROWS, shared_classifier=1)

# Runs the program with little room beyond what starting it takes, and says what its peak was, in KiB, and how much of it came after the start.
# Of this process alone: what getrusage says begins with the peak of the process that forked.
CHILD = """
import re, resource, sys
from legacyml_convert import cli
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 256 * 1048576
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
before = peak()
status = cli.main(sys.argv[1:])
print(peak(), peak() - before)
sys.exit(status)
"""


def convert(*arguments: object) -> tuple[float, float]:
    """Peak in MiB, and how much of it came after the start."""
    environment = os.environ | {"PYTHONPATH": str(TOP / "python"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, *map(str, arguments), "-q"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    peak, more = (int(kib) / 1024 for kib in run.stdout.split())
    return peak, more


def write_source(folder: Path, kind: str) -> Path:
    """A model of zeros with an embedding of 512 MiB, nothing of which lies on the disk but the last row: 1, 2, 3 and so on."""
    shapes = {name: (rows, cols) for name, rows, cols, _ in HEADER.shapes()}
    last_row = np.arange(1, COLS + 1, dtype="<f4")
    if kind == "llama2c":
        path = folder / "c.bin"
        sizes = [HEADER.dim, HEADER.hidden_dim, 1, HEADER.n_heads, HEADER.n_kv_heads, ROWS, HEADER.max_seq]
        start = struct.pack("<Ii7iB", 0x616B3432, 1, *sizes, 1).ljust(256, b"\0")
        names = llama2c_order(HEADER, 1)
        begin = len(start) + 4 * sum(int(np.prod(shapes[name])) for name in names[: names.index("tok_emb")])
        size = len(start) + 4 * sum(int(np.prod(shape)) for shape in shapes.values())
    elif kind == "safetensors":
        (folder / "config.json").write_text(json.dumps(hf_config(HEADER)))
        path = folder / "model.safetensors"
        entries, size = {}, 0
        for name, (rows, cols) in shapes.items():
            entries[hf_name(name)] = {
                "dtype": "F32",
                "shape": [cols] if rows == 1 else [rows, cols],
                "data_offsets": [size, size + 4 * rows * cols],
            }
            size += 4 * rows * cols
        text = json.dumps(entries).encode()
        start = struct.pack("<Q", len(text)) + text
        begin = len(start) + entries[hf_name("tok_emb")]["data_offsets"][0]
        size += len(start)
    else:
        path = folder / "m.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in (("context_length", 64), ("embedding_length", COLS), ("block_count", 1), ("feed_forward_length", 512)):
            writer.add_uint32(f"llama.{key}", value)
        writer.add_head_count(8)
        writer.add_head_count_kv(2)
        writer.add_layer_norm_rms_eps(1e-5)
        names = dict(attn_norm="attn_norm", wq="attn_q", wk="attn_k", wv="attn_v", wo="attn_output", ffn_norm="ffn_norm")
        names |= dict(w1="ffn_gate", w2="ffn_down", w3="ffn_up")
        ours = {"tok_emb": "token_embd.weight", "final_norm": "output_norm.weight"}
        for name, (rows, cols) in shapes.items():
            full = ours.get(name) or f"blk.0.{names[name.split('.')[2]]}.weight"
            shape = (cols,) if rows == 1 else (rows, cols)
            writer.add_tensor_info(full, shape, np.dtype(np.float32), 4 * rows * cols)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        start = path.read_bytes()
        start += bytes(-len(start) % 32)
        begin, size = len(start), len(start) + 4 * sum(int(np.prod(shape)) for shape in shapes.values())
    with open(path, "wb") as stream:
        stream.write(start)
        stream.seek(begin + 4 * (ROWS - 1) * COLS)
        stream.write(last_row.tobytes())
        stream.truncate(size)
    return folder if kind == "safetensors" else path


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("kind", ["llama2c", "safetensors", "gguf"])
def test_huge_tensor(tmp_path: Path, kind: str) -> None:
    source, out = write_source(tmp_path, kind), tmp_path / "out.mlb"
    peak, more = convert(source, out)
    assert peak < 150  # MiB, of 300 that are promised
    assert more < 24  # 12 usually; the scales of the tensor have 16 more
    file = MlbFile(out)
    assert file.header.vocab == ROWS and (file.q("tok_emb")[-2] == 0).all() and file.q("tok_emb")[-1, 31] == 127
    assert np.allclose(file.d("tok_emb")[-1], np.arange(32, COLS + 1, 32) / 127, rtol=1e-7)
    out.unlink()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_large_tokenizer(tmp_path: Path) -> None:
    """As many pieces and merges as Llama 3 has, in a GGUF file."""
    letters = list(BYTE_OF_LETTER)
    pairs = [(a, b) for a in letters for b in letters]
    triples = [(a + b, c) for c in letters[:2] for a, b in pairs][: 128256 - 256 - len(pairs)]
    merges = [f"{a} {b}" for a, b in pairs + triples]
    merges = (3 * merges)[:280147]  # a merge that is there again changes nothing
    tokens = [*letters, *(a + b for a, b in pairs + triples)]
    header = make_header(dim=32, n_layers=1, hidden_dim=32, vocab=len(tokens), shared_classifier=1)

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("llama-bpe")
        writer.add_token_list(tokens)
        writer.add_token_types([1] * len(tokens))
        writer.add_token_merges(merges)
        writer.add_eos_token_id(0)

    write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=add)
    assert (len(tokens), len(merges)) == (128256, 280147)
    assert convert(tmp_path / "m.gguf", tmp_path / "m.mlb")[0] < 250
    assert MlbFile(tmp_path / "m.mlb").header.vocab == 128256
