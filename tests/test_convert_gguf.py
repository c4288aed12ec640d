# SPDX-License-Identifier: BSD-3-Clause
"""GGUF: types of 256 values dequantized by the format's definition, scaled positions against half-rotation at position 40, sizes that disagree."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import gguf
import numpy as np
import pytest

from llama_numpy import forward
from test_convert import arrays, hf_folder, hf_tensors, make_header, make_weights, run, small_gguf, values, write_gguf

from legacyml_convert import MlbFile, cli, quant
from legacyml_convert.tokenizer import BYTE_OF_LETTER

NAMES = dict(wq="attn_q", wk="attn_k", wv="attn_v", wo="attn_output", w1="ffn_gate", w2="ffn_down", w3="ffn_up")


def half(data: bytes) -> float:
    """A float of 16 bits, little-endian."""
    bits = int.from_bytes(data, "little")
    exponent, fraction = bits >> 10 & 31, bits & 1023
    size = fraction * 2.0**-24 if exponent == 0 else (1024 + fraction) * 2.0 ** (exponent - 25)
    return -size if bits >> 15 else size


def q4_k(block: bytes) -> list[float]:
    """d, dmin, 8 scales and 8 minima of 6 bits in 12 bytes, 256 nibbles: d * scale * q - dmin * minimum, in runs of 32."""
    d, dmin, packed, nibbles = half(block[:2]), half(block[2:4]), block[4:16], block[16:]
    scales = [packed[j] & 63 if j < 4 else packed[j + 4] & 15 | packed[j - 4] >> 6 << 4 for j in range(8)]
    minima = [packed[j + 4] & 63 if j < 4 else packed[j + 4] >> 4 | packed[j] >> 6 << 4 for j in range(8)]
    out = []
    for run_of_32 in range(8):
        for i in range(32):
            byte = nibbles[run_of_32 // 2 * 32 + i]
            level = byte >> 4 if run_of_32 % 2 else byte & 15
            out.append(d * scales[run_of_32] * level - dmin * minima[run_of_32])
    return out


def q6_k(block: bytes) -> list[float]:
    """Low nibbles, upper pairs of bits, 16 signed scales, d: d * scale * (q - 32), a scale for each 16."""
    low, high, scales, d = block[:128], block[128:192], np.frombuffer(block[192:208], np.int8), half(block[208:])
    out = []
    for i in range(256):
        part, at = divmod(i, 128)
        quarter, lane = divmod(at, 32)
        byte = low[64 * part + lane + 32 * (quarter % 2)]
        level = (byte >> 4 if quarter > 1 else byte & 15) | (high[32 * part + lane] >> 2 * quarter & 3) << 4
        out.append(d * int(scales[i // 16]) * (level - 32))
    return out


@pytest.mark.parametrize("kind, block_bytes, value", [("Q4_K", 144, q4_k), ("Q6_K", 210, q6_k)])
def test_types_of_256(tmp_path: Path, kind: str, block_bytes: int, value: Callable[[bytes], list[float]]) -> None:
    """Random blocks with scales of usual size; rows of two blocks."""
    header = make_header(dim=512, n_layers=1, n_heads=4, n_kv_heads=1, hidden_dim=256, vocab=40, shared_classifier=1)
    rng = np.random.default_rng(4)
    raw, expected = {}, {}
    for name, rows, cols, _ in header.shapes():
        if rows > 1:
            blocks = rng.integers(0, 256, (rows, cols // 256, block_bytes), dtype=np.uint8)
            scales = (rng.random((rows, cols // 256, 2)) * 0.01).astype("<f2").view(np.uint8).reshape(rows, -1, 4)
            if kind == "Q4_K":
                blocks[:, :, :4] = scales
            else:
                blocks[:, :, -2:] = scales[:, :, :2]
            raw[name] = blocks.reshape(rows, -1)
            expected[name] = (blocks, cols)
    weights = make_weights(header)

    def add(writer: gguf.GGUFWriter) -> None:
        for name, blob in raw.items():
            layer = name.startswith("layers")
            full = f"blk.0.{NAMES[name.split('.')[2]]}.weight" if layer else "token_embd.weight"
            writer.add_tensor(full, blob, raw_dtype=gguf.GGMLQuantizationType[kind])

    norms = {name: w for name, w in weights.items() if len(w) == 1}
    write_gguf(tmp_path / "m.gguf", header, norms, add=add)
    source = cli.read_source(tmp_path / "m.gguf")
    assert run(tmp_path / "m.gguf", tmp_path / "m.mlb") == 0
    file = MlbFile(tmp_path / "m.mlb")
    for name, (blocks, cols) in expected.items():
        read = source.tensors[name].read(0, len(blocks))
        for row in (0, 1, len(blocks) // 2, len(blocks) - 1):
            exact = np.array([x for block in blocks[row] for x in value(block.tobytes())])
            assert exact.shape == (cols,) and np.abs(exact).max() > 0.01
            assert np.abs(read[row] - exact).max() <= 1e-5 * np.abs(exact).max(), (name, row)
        assert np.array_equal(file.q(name), quant.quantize_q8(read)[0])


def llama_cpp_rows(w: np.ndarray, heads: int) -> np.ndarray:
    """How llama.cpp's converter stores a Hugging Face wq or wk: row 2i of a head is row i there, row 2i + 1 row head_dim / 2 + i."""
    head_dim = len(w) // heads
    out = np.empty_like(w)
    for head in range(heads):
        for i in range(head_dim // 2):
            out[head * head_dim + 2 * i] = w[head * head_dim + i]
            out[head * head_dim + 2 * i + 1] = w[head * head_dim + head_dim // 2 + i]
    return out


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("scaling", ["none", "linear", "rope_freqs"])
def test_positions(tmp_path: Path, heads: int, kv_heads: int, scaling: str) -> None:
    """Logits at positions 0, 1, 7 and 40: half-rotation on Hugging Face's rows, and what the GGUF file has become."""
    header = make_header(n_heads=heads, n_kv_heads=kv_heads, rope_theta=50000.0)
    weights = make_weights(header, seed=heads + kv_heads)
    stored = {
        name: llama_cpp_rows(w, heads if name.endswith("wq") else kv_heads) if name.endswith(("wq", "wk")) else w
        for name, w in weights.items()
    }
    divisors = np.linspace(1, 8, header.head_dim // 2, dtype=np.float32)

    def add(writer: gguf.GGUFWriter) -> None:
        if scaling == "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(4.0)
        if scaling == "rope_freqs":
            writer.add_tensor("rope_freqs.weight", divisors)

    write_gguf(tmp_path / "m.gguf", header, stored, add=add)
    assert run(tmp_path / "m.gguf", tmp_path / "gguf.mlb") == 0
    config: dict[str, Any] = {"rope_scaling": {"type": "linear", "factor": 4.0}} if scaling == "linear" else {}
    assert run(hf_folder(tmp_path / "hf", header, hf_tensors(weights), **config), tmp_path / "hf.mlb") == 0
    if scaling != "rope_freqs":
        assert (tmp_path / "gguf.mlb").read_bytes() == (tmp_path / "hf.mlb").read_bytes()
    tokens = [(7 * i * i + 3 * i + 1) % header.vocab for i in range(41)]
    exact = {name: w if len(w) == 1 else quant.dequantize_q8(*quant.quantize_q8(w)) for name, w in weights.items()}
    if scaling != "none":
        exact["rope_factors"] = divisors if scaling == "rope_freqs" else np.full(header.head_dim // 2, 4.0)
    expected = forward(exact, header, tokens, halves=True)
    ours = forward(arrays(tmp_path / "gguf.mlb"), MlbFile(tmp_path / "gguf.mlb").header, tokens)
    for position in (0, 1, 7, 40):
        assert np.abs(ours[position] - expected[position]).max() < 1e-9, position
    exact.pop("rope_factors", None)
    unscaled = forward(exact, header, tokens, halves=True)
    assert (np.abs(unscaled[40] - expected[40]).max() > 0.01) == (scaling != "none")


def test_linear_scaling_times_rope_freqs(tmp_path: Path) -> None:
    """Both divide: the product. A scaling of attention is refused, and so are other kinds, by name."""
    header = make_header()
    freqs = np.array([1, 1, 1.5, 2, 3, 5, 8, 8], np.float32)

    def convert(add: Callable[[gguf.GGUFWriter], None]) -> int:
        write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=add)
        return run(tmp_path / "m.gguf", tmp_path / "m.mlb")

    def both(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(2.5)
        writer.add_tensor("rope_freqs.weight", freqs)

    assert convert(both) == 0
    assert MlbFile(tmp_path / "m.mlb").array("rope_factors").reshape(-1).tolist() == [2.5, 2.5, 3.75, 5, 7.5, 12.5, 20, 20]
    assert convert(lambda writer: writer.add_float32("llama.rope.scale_linear", 2.0)) == 0
    assert MlbFile(tmp_path / "m.mlb").array("rope_factors").reshape(-1).tolist() == [2.0] * 8
    assert convert(lambda writer: writer.add_rope_scaling_attn_factors(1.5)) == 4
    assert convert(lambda writer: writer.add_rope_scaling_attn_factors(1.0)) == 0
    for kind in (gguf.RopeScalingType.YARN, gguf.RopeScalingType.LONGROPE):
        assert convert(lambda writer, kind=kind: writer.add_rope_scaling_type(kind)) == 4


def test_sizes_of_the_vocabulary_that_disagree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """80 rows: 80 says nothing, 70 is said, 81 is refused."""
    header = make_header()
    for size, status in ((80, 0), (70, 0), (81, 5)):
        write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=lambda writer, n=size: writer.add_vocab_size(n))
        assert run(tmp_path / "m.gguf", tmp_path / "m.mlb") == status
        message = capsys.readouterr().err
        assert ("vocab_size" in message) == (size != 80)
        assert size == 80 or (f"vocab_size is {size}" in message and "80 rows" in message)
    assert MlbFile(tmp_path / "m.mlb").header.vocab == 80


def test_tokenizer_and_template(tmp_path: Path) -> None:
    """A tokenizer of 258 pieces with 320 rows: what lies beyond is dropped; the template's name and system message are in the file."""
    header = make_header(vocab=320)
    template = "{% for m in messages %}{% if loop.first %}{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{% endif %}{% endfor %}"

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list([*BYTE_OF_LETTER, "<|im_end|>", "ab"])
        writer.add_token_types([1] * 256 + [3, 1])
        writer.add_token_merges(["a b"])
        writer.add_eos_token_id(256)
        writer.add_chat_template(template)

    write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=add)
    assert run(tmp_path / "m.gguf", tmp_path / "m.mlb") == 0
    blob = (tmp_path / "m.tokenizer.bin").read_bytes()
    assert MlbFile(tmp_path / "m.mlb").header.vocab == 258
    assert b"chatml\0" in blob and b"Be brief." in blob and blob.endswith(b"<|im_end|>ab")


def test_like_the_library(tmp_path: Path) -> None:
    """Every tensor and field that the gguf library reads, in a file with a tokenizer."""
    small_gguf(tmp_path / "m.gguf")
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    ours = values(cli.read_source(tmp_path / "m.gguf"))
    theirs = {tensor.name: np.array(tensor.data, np.float64) for tensor in reader.tensors}
    assert len(ours) == len(theirs) and np.array_equal(ours["layers.0.w1"], theirs["blk.0.ffn_gate.weight"])
    assert {w.tobytes() for w in ours.values()} == {w.tobytes() for w in theirs.values()}


def test_refused_headers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = small_gguf(tmp_path / "m.gguf")

    def refusal(other: bytes) -> str:
        (tmp_path / "m.gguf").write_bytes(other)
        assert run(tmp_path / "m.gguf", tmp_path / "m.mlb") == 4
        return capsys.readouterr().err

    assert "version 1" in refusal(blob[:4] + b"\1" + blob[5:])
    assert "big-endian" in refusal(blob[:4] + b"\0\0\0\3" + blob[8:])
    assert "'blk.0.ffn_down.weight' is there twice" in refusal(blob.replace(b"blk.0.ffn_gate.weight", b"blk.0.ffn_down.weight"))
    assert "cut off" in refusal(blob[:-1]) and "too long" in refusal(blob + bytes(32))
