# SPDX-License-Identifier: BSD-3-Clause
"""Whole models against results that others computed: logits, divergence from fp32, texts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
import pytest

from conftest import TOP, runs_here
from reference import Llama2cModel, kl

from legacyml_convert import UsageError
from legacyml_convert.cli import read_source

sys.path.insert(0, str(TOP / "tools"))
import quality

BEST = "avx2" if runs_here("avx2") else "sse2"


def convert(source: Path, out: Path, *options: str) -> Path:
    """Runs the converter; fails with what it printed."""
    command = [sys.executable, TOP / "tools/convert.py", source, out, *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return out


def logits(build: Path, model: Path, tokens: list[int], *options: str) -> np.ndarray:
    """Logits [len(tokens), vocab] of ml_run."""
    out = model.with_suffix(".logits")
    command = [build / "ml_run", model, "--tokens", ",".join(map(str, tokens)), "-n", "0", "-q", "--dump-logits", out, *options]
    subprocess.run(command, check=True, capture_output=True)
    return np.fromfile(out, dtype="<f4").reshape(len(tokens), -1)


# -- Hugging Face and llama2.c models ------------------------------------------------------------------------------------------


def test_hf_models(build: Callable[..., Path], data: Path, tmp_path: Path) -> None:
    """Every convertible model gives the logits of an independent numpy model with the same quantization."""
    index = json.loads((data / "hf/index.json").read_text())
    good = [name for name, entry in index["models"].items() if entry["expect"] == "ok"]
    assert len(good) >= 11
    for name in good:
        model = convert(data / "hf" / name, tmp_path / f"{name}.mlb")
        expected = np.load(data / "hf" / name / "logits_q8.npy")
        found = logits(build(BEST), model, index["tokens"])
        assert np.abs(found - expected).max() < 1e-4, name
        # Any order of additions passes the line above; a wrong pairing of q and k does not pass this one.
        assert np.abs(found - np.load(data / "hf" / name / "logits.npy")).max() < 0.5, name


@pytest.mark.parametrize("source", ["stories260K.bin", "stories260K_v1.bin"])
def test_stories260k(source: str, build: Callable[..., Path], data: Path, tmp_path: Path) -> None:
    tokens = json.loads((data / "llama2c/logits_tokens.json").read_text())["tokens"]
    model = convert(data / "llama2c" / source, tmp_path / "stories.mlb", "--tokenizer", str(data / "llama2c/tok512.bin"))
    expected = np.load(data / "llama2c/stories260K_logits_q8.npy")
    assert np.abs(logits(build(BEST), model, tokens) - expected).max() < 1e-4


def test_untied_llama2c(build: Callable[..., Path], data: Path, tmp_path: Path) -> None:
    """v0 and v1 of one untied model give the same bits, near torch's logits in fp32 (eight-bit activations move them by some tenths)."""
    tokens = [1, 5, 77, 127, 64, 3, 9, 10]
    expected = np.load(data / "llama2c/rand_untied_logits.npy")
    found = [logits(build(BEST), convert(data / f"llama2c/rand_untied_{v}.bin", tmp_path / f"{v}.mlb"), tokens) for v in ("v0", "v1")]
    assert found[0].tobytes() == found[1].tobytes()
    assert np.abs(found[0] - expected).max() < 0.1 * np.abs(expected).max()


def test_stories_text(build: Callable[..., Path], data: Path, tmp_path: Path) -> None:
    """The greedy text at Q8_0, exactly as expected.json has it."""
    model = convert(data / "llama2c/stories260K.bin", tmp_path / "stories.mlb", "--tokenizer", str(data / "llama2c/tok512.bin"))
    cases = json.loads((data / "llama2c/expected.json").read_text())["models"]["stories260K.bin"]["greedy"]
    checked = 0
    for case in cases:
        ids = case.get("ids_q8_0")
        if ids is None or ids != case.get("ids_f32") or case["text"] is None or case["prompt"] != "":
            continue
        run = subprocess.run(
            [build(BEST) / "ml_run", model, "-p", "", "-n", str(case["steps"]), "-q"], capture_output=True, text=True, check=True
        )
        assert run.stdout == case["text"] + "\n"
        checked += 1
    assert checked >= 2


# -- Divergence from fp32 ------------------------------------------------------------------------------------------------------

SEEDS = (1, 2, 3)
LENGTH = 500


@pytest.fixture(scope="module")
def sampled(data: Path) -> list[tuple[list[int], np.ndarray]]:
    """Three sequences of 500 tokens that the fp32 model itself says at temperature 1, with its logits."""
    model = Llama2cModel(data / "llama2c/stories260K.bin")
    return [model.sample(1, LENGTH, seed) for seed in SEEDS]


def divergence(build: Path, model: Path, sampled: list) -> tuple[float, float]:
    """Mean KL(fp32 || model) in nats and agreement of the most probable token, over all positions of all sequences."""
    kls, same = [], []
    for tokens, expected in sampled:
        found = logits(build, model, tokens)
        kls.append(kl(expected, found))
        same.append(expected.argmax(axis=1) == found.argmax(axis=1))
    return float(np.concatenate(kls).mean()), float(np.concatenate(same).mean())


def requantize(model: Path, out: Path, source: Path, scale: Callable[[np.ndarray], np.ndarray]) -> Path:
    """A copy of a Q4_0 conversion of stories260K whose scales are scale(blocks [n, 32]) and whose quants are the nearest to them."""
    raw = bytearray(model.read_bytes())
    llama = Llama2cModel(source)
    dim, hidden, wide = llama.dim, llama.hidden, int.from_bytes(raw[24:28], "little")
    at = 256

    def take(size: int) -> int:
        nonlocal at
        start = (at + 63) // 64 * 64
        at = start + size
        return start

    def matrix(w: np.ndarray) -> None:
        blocks = w.astype(np.float32).reshape(-1, 32)
        d = scale(blocks).astype(np.float32)
        inverse = np.divide(1, d, out=np.zeros_like(d), where=d != 0)
        q = np.clip(np.floor(blocks * inverse[:, None] + 8.5), 0, 15).astype(np.uint8)
        packed = (q[:, :16] | q[:, 16:] << 4).tobytes()
        start = take(len(packed))
        raw[start : start + len(packed)] = packed
        start = take(d.nbytes)
        raw[start : start + d.nbytes] = d.tobytes()

    def rows_to(w: np.ndarray, rows: int) -> np.ndarray:
        return np.pad(w, ((0, rows - len(w)), (0, 0)))

    assert wide >= hidden
    matrix(llama.tok_emb)
    for i in range(llama.layers):
        take(4 * dim)
        for w in (llama.wq[i], llama.wk[i], llama.wv[i], llama.wo[i]):
            matrix(w)
        take(4 * dim)
        matrix(rows_to(llama.w1[i], wide))
        matrix(np.pad(llama.w2[i], ((0, 0), (0, wide - hidden))))
        matrix(rows_to(llama.w3[i], wide))
    take(4 * dim)
    assert at == len(raw)
    out.write_bytes(raw)
    return out


def test_divergence(build: Callable[..., Path], data: Path, tmp_path: Path, sampled: list) -> None:
    source = data / "llama2c/stories260K.bin"
    q8 = convert(source, tmp_path / "q8.mlb")
    q4 = convert(source, tmp_path / "q4.mlb", "--type", "q4_0")
    q4_emb8 = convert(source, tmp_path / "q4e8.mlb", "--type", "q4_0", "--emb-type", "q8_0")

    def largest(blocks: np.ndarray) -> np.ndarray:
        return np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]

    by_amax = requantize(q4, tmp_path / "amax.mlb", source, lambda b: np.abs(b).max(axis=1) / 7)
    by_signed = requantize(q4, tmp_path / "signed.mlb", source, lambda b: largest(b) / -8)
    models = {"q8": q8, "q4": q4, "q4 with q8 embedding": q4_emb8, "amax/7": by_amax, "signed max/-8": by_signed}
    found = {name: divergence(build(BEST), model, sampled) for name, model in models.items()}
    for name, (mean, top1) in found.items():
        print(f"{name}: mean KL {mean:.5f}, top-1 {top1:.4f}")
    assert found["q8"][0] < 0.002 and found["q8"][1] > 0.97
    assert found["q4"][0] <= 0.75 * found["amax/7"][0]
    assert found["q4"][0] <= 0.92 * found["signed max/-8"][0]
    assert found["q4 with q8 embedding"][0] < found["q4"][0]


# -- tools/quality.py ----------------------------------------------------------------------------------------------------------


def test_quality_reference(data: Path) -> None:
    """The tool's forward pass and its sampling are those of the tests' own model, at once and token by token."""
    expected = Llama2cModel(data / "llama2c/stories260K.bin")
    tokens, logits = expected.sample(1, 60, 3)
    reference = quality.Reference(read_source(data / "llama2c/stories260K.bin"), 512)
    assert reference.sample(1, 60, 3) == tokens
    assert np.abs(reference.logits(tokens) - logits).max() < 1e-10
    reference.reset()
    parts = [reference.feed(tokens[:7]), reference.feed(tokens[7:8]), reference.feed(tokens[8:])]
    assert np.abs(np.concatenate(parts) - logits).max() < 1e-10


def test_quality_reference_of_hf_models(data: Path) -> None:
    """transformers' logits: grouped heads, an untied classifier, scaled frequencies."""
    index = json.loads((data / "hf/index.json").read_text())
    for name in ("gqa_untied_f32_v4", "rope_llama3_v4", "mqa_tied_f16_theta"):
        source = read_source(data / "hf" / name)
        found = quality.Reference(source, source.header.vocab).logits(index["tokens"])
        assert np.abs(found - np.load(data / "hf" / name / "logits.npy")).max() < 1e-4, name


def test_quality_measures() -> None:
    """By hand: p = (3/4, 1/4), q = (1/2, 1/2): KL = 3/4 ln(3/2) + 1/4 ln(1/2); the next token costs ln 2; a tie goes to the lower id.

    What follows the first token does not count.
    """
    p, q = np.log([[0.01, 0.99], [0.75, 0.25], [0.25, 0.75]]), np.array([[9.0, 0], [0, 0], [0, 0]])
    found = quality.measure(p, q, [0, 0, 1])
    assert np.allclose(found["kl"], 0.75 * np.log(1.5) + 0.25 * np.log(0.5)) and np.allclose(found["nll"], [np.log(2)])
    assert found["kl"].shape == (2,) and found["top1"].tolist() == [1, 0]
    assert quality.mean_and_error(np.array([1.0, 2.0, 3.0, 6.0])) == (3.0, np.sqrt((4 + 1 + 0 + 9) / 3 / 4))


@pytest.mark.parametrize("n", [5, 6])
def test_quality_measures_of_a_large_vocabulary(n: int) -> None:
    """Positions are taken two at a time here, and the last may be alone. q = p but for one logit, so that KL = ln Z'/Z - P(i) (l' - l)."""
    rng = np.random.default_rng(4)
    p = rng.standard_normal((n, 30000)).astype(np.float32)
    q, changed = p.copy(), rng.integers(0, 30000, n)
    at = np.arange(n), changed
    q[at] += np.float32(9)
    tokens = rng.integers(0, 30000, n).tolist()
    found = quality.measure(p, q, tokens)
    z, z2 = (np.exp(x.astype(np.float64)).sum(axis=1) for x in (p, q))
    kl = np.log(z2 / z) - np.exp(p[at].astype(np.float64)) / z * (q[at] - p[at])
    assert np.allclose(found["kl"], kl[1:], rtol=1e-5)
    nll = np.log(z2[1:-1]) - q[np.arange(1, n - 1), tokens[2:]]
    assert np.allclose(found["nll"], nll, rtol=1e-9) and len(found["nll"]) == n - 2
    assert found["top1"].tolist() == (p.argmax(axis=1) == changed).astype(float)[1:].tolist()


def test_quality_verdicts() -> None:
    """Two windows each: better by more than the error, the same within it, worse; higher agreement is better, higher KL is not."""
    row = {"nll": np.array([[1.0], [1.2]]), "kl": np.array([[0.10], [0.12]]), "top1": np.array([[0.9], [0.8]])}
    other = {"nll": np.array([[1.3], [1.4]]), "kl": np.array([[0.11], [0.11]]), "top1": np.array([[0.95], [0.86]])}
    rows = {f"{side} {name}": found for name, *_ in quality.TYPES for side, found in (("legacyml", row), ("llama.cpp", other))}
    lines = quality.compare(rows)
    assert len(lines) == 9
    assert lines[0] == "| Q8_0 | ln perplexity | +0.25000 | 0.05000 | better |"
    assert lines[1] == "| Q8_0 | KL | +0.00000 | 0.01000 | the same within one standard error |"
    assert lines[2] == "| Q8_0 | top-1 | -0.05500 | 0.00500 | worse |"


def test_quality_windows_of_a_text(data: Path, tmp_path: Path) -> None:
    """BOS and seven tokens each, in the ids that run.c gives for the text; a text that is too short is refused with both numbers."""
    pytest.importorskip("legacyml")
    model = convert(data / "llama2c/stories260K.bin", tmp_path / "s.mlb", "--tokenizer", str(data / "llama2c/tok512.bin"))
    cases = json.loads((data / "llama2c/expected.json").read_text())["models"]["stories260K.bin"]["greedy"]
    case = next(case for case in cases if case["prompt"] == "" and case["steps"] == 16)
    ids = case["ids_f32"][1:]
    assert quality.text_windows(model, case["text"].encode(), 2, 8) == [[1, *ids[:7]], [1, *ids[7:14]]]
    with pytest.raises(UsageError, match="3 windows of 7 need 21"):
        quality.text_windows(model, case["text"].encode(), 3, 8)


def test_quality_table(build: Callable[..., Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(data / "llama2c/stories260K.bin")
    options = ["--sample", "--windows", "2", "--length", "64", "--ml-run", str(build(BEST) / "ml_run"), "--json", str(tmp_path / "q.json")]
    assert quality.main([model, *options]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "stories260K.bin (matrices F32), 2 windows of 64 tokens, sampled"
    assert [line.split(" | ")[0] for line in shown[4:]] == ["| reference", *(f"| legacyml {name}" for name, *_ in quality.TYPES)]
    means = json.loads((tmp_path / "q.json").read_text())["means"]
    kls = [np.mean(means[f"legacyml {name}"]["kl"]) for name, *_ in quality.TYPES]
    assert 0 < kls[0] < 0.005 < kls[2] < kls[1] < 0.3 and np.allclose(means["reference"]["kl"], 0)
    assert f"{kls[1]:.5f} ±" in shown[6]
    assert quality.main([str(tmp_path / "none"), "--sample"]) == 3
    assert quality.main([model, "--text", model, "--ml-run", "none"]) == 2 and "tokenizer" in capsys.readouterr().err


# -- A real model --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2(build: Callable[..., Path]) -> Iterator[Path]:
    """SmolLM2-135M-Instruct at Q8_0, as `make demo` makes it."""
    run = subprocess.run(["make", "model"], cwd=TOP, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    yield TOP / "build/models/SmolLM2-135M-Instruct.mlb"


def test_smollm2_logits(smollm2: Path, build: Callable[..., Path], data: Path, tmp_path: Path) -> None:
    """The expected most probable token wherever the reference, in fp32 or at Q8_0, is sure by more than 0.5."""
    checked = 0
    link = tmp_path / "smollm2.mlb"
    link.symlink_to(smollm2)
    for sequence in json.loads((data / "smollm2/expected.json").read_text())["seqs"]:
        found = logits(build(BEST), link, sequence["tokens"])
        for reference in ("hf_f32", "ref_q8_0"):
            expected = sequence[reference]
            for row, ids, values in zip(found, expected["top_ids"], expected["top_logits"]):
                if values[0] - values[1] > 0.5:
                    assert row.argmax() == ids[0]
                    checked += 1
                # Thirty layers amplify every rounding to eight bits; the two references differ by up to 1 as well.
                assert np.abs(row[ids] - values).max() < 1.5
    assert checked >= 20


def test_smollm2_chat_prompt(smollm2: Path, build: Callable[..., Path], data: Path, tmp_path: Path) -> None:
    """--chat feeds exactly the ids that Hugging Face's template and tokenizer give: the logits are those of the ids."""
    expected = json.loads((data / "smollm2/expected.json").read_text())["greedy_f32_transformers"]
    for question in ("What is the capital of France?", "Are dogs real?"):
        chat, ids = tmp_path / "chat", tmp_path / "ids"
        tokens = ",".join(map(str, expected[question]["prompt_ids"]))
        for out, options in ((chat, ["--chat", "-p", question]), (ids, ["--tokens", tokens])):
            command = [build(BEST) / "ml_run", smollm2, *options, "-n", "0", "-q", "--dump-logits", out]
            subprocess.run(command, check=True, capture_output=True)
        assert chat.read_bytes() == ids.read_bytes()


def test_smollm2_answers(smollm2: Path, build: Callable[..., Path], data: Path) -> None:
    question = "What is the capital of France?"
    run = subprocess.run(["make", "--no-print-directory", "answer"], cwd=TOP, capture_output=True, text=True, check=True)
    assert run.stdout.endswith("\nThe capital of France is Paris.\n") and question in run.stdout
    assert "tok/s" in run.stderr
    # A completion, as transformers gives it with the same quantization.
    expected = json.loads((data / "smollm2/expected.json").read_text())["greedy_q8_0_reference"]["The capital of France is"]["text"]
    command = [build(BEST) / "ml_run", smollm2, "-p", "The capital of France is", "-n", "19", "-q"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.startswith(expected[: len(" Paris.\n\nThe answer is: 2018")]) and expected.startswith(" Paris.")
