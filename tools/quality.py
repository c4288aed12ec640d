#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures what quantizing does to a model: perplexity, KL divergence and top-1 agreement against its own weights in double precision.

    tools/quality.py MODEL --text FILE   windows of a text, each behind the model's BOS (needs the tokenizer and the binding: make venv)
    tools/quality.py MODEL --sample      windows that the reference itself says at temperature 1, one seed each

MODEL is what legacyml-convert takes. The reference is a forward pass in numpy on the weights as they are stored: fp32 only where the title says
F32. --llama measures llama.cpp beside it, through the package llama-cpp-python (pip install llama-cpp-python builds it): the same
weights as F32, quantized by its own llama_model_quantize with `pure`, so that every matrix has the type named, and run with its defaults on the
same windows. --plot FILE.png draws KL by position (needs matplotlib). Standard errors are those of the means of windows; differences are taken
window by window.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "python"))

from legacyml_convert import mlb
from legacyml_convert.cli import read_source, read_tokenizer
from legacyml_convert.convert import convert
from legacyml_convert.errors import InputError, UsageError, exit_status
from legacyml_convert.source import Source

# Name, type of the matrices, and whether embedding and classifier stay Q8_0.
TYPES = (("Q8_0", "q8_0", False), ("Q4_0", "q4_0", False), ("Q4_0, embedding Q8_0", "q4_0", True))
OURS, THEIRS = "legacyml", "llama.cpp"
GGUF_NAMES = {"attn_norm": "attn_norm", "wq": "attn_q", "wk": "attn_k", "wv": "attn_v", "wo": "attn_output"}
GGUF_NAMES |= {"ffn_norm": "ffn_norm", "w1": "ffn_gate", "w2": "ffn_down", "w3": "ffn_up"}
GGUF_TOP = {"tok_emb": "token_embd.weight", "final_norm": "output_norm.weight", "wcls": "output.weight"}
GGUF_TOP |= {"rope_factors": "rope_freqs.weight"}


class Reference:
    """The Llama forward pass in double precision, with a cache of keys and values."""

    def __init__(self, source: Source, vocab: int) -> None:
        self.header = source.header
        self.weights = {name: tensor.read(0, tensor.rows) for name, tensor in source.tensors.items()}
        for name in ("tok_emb", "wcls"):
            if name in self.weights:
                self.weights[name] = self.weights[name][:vocab]
        self.exact = {name: w.astype(np.float64) for name, w in self.weights.items()}
        self.reset()

    def reset(self) -> None:
        """Forgets all positions."""
        empty = np.zeros((0, self.header.n_kv_heads, self.header.head_dim))
        self.cache = [(empty, empty) for _ in range(self.header.n_layers)]

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + self.header.norm_eps) * self.exact[name].reshape(-1)

    def feed(self, tokens: list[int]) -> np.ndarray:
        """Logits [n, vocab] after each of n more tokens."""
        h, w = self.header, self.exact
        n, before = len(tokens), len(self.cache[0][0])
        frequency = h.rope_theta ** (-np.arange(0, h.head_dim, 2) / h.head_dim)
        if "rope_factors" in w:
            frequency = frequency / w["rope_factors"].reshape(-1)
        angle = (before + np.arange(n))[:, None, None] * frequency
        turn = np.cos(angle) + 1j * np.sin(angle)

        def rotate(x: np.ndarray) -> np.ndarray:
            pairs = x.reshape(n, -1, h.head_dim // 2, 2)
            turned = (pairs[..., 0] + 1j * pairs[..., 1]) * turn
            return np.stack([turned.real, turned.imag], axis=-1).reshape(n, -1, h.head_dim)

        later = np.where(np.arange(before + n) > before + np.arange(n)[:, None], -np.inf, 0.0)
        group = h.n_heads // h.n_kv_heads
        x = w["tok_emb"][tokens]
        for layer in range(h.n_layers):
            at = f"layers.{layer}."
            a = self._norm(x, at + "attn_norm")
            q, k = rotate(a @ w[at + "wq"].T), rotate(a @ w[at + "wk"].T)
            v = (a @ w[at + "wv"].T).reshape(n, -1, h.head_dim)
            keys, values = (np.concatenate(pair) for pair in zip(self.cache[layer], (k, v), strict=True))
            self.cache[layer] = keys, values
            q = q.reshape(n, h.n_kv_heads, group, h.head_dim)
            score = np.einsum("ikgd,jkd->kgij", q, keys, optimize=True) / np.sqrt(h.head_dim) + later
            p = np.exp(score - score.max(axis=-1, keepdims=True))
            p /= p.sum(axis=-1, keepdims=True)
            x = x + np.einsum("kgij,jkd->ikgd", p, values, optimize=True).reshape(n, -1) @ w[at + "wo"].T
            a = self._norm(x, at + "ffn_norm")
            gate = a @ w[at + "w1"].T
            x = x + (gate / (1 + np.exp(-gate)) * (a @ w[at + "w3"].T)) @ w[at + "w2"].T
        return self._norm(x, "final_norm") @ w["tok_emb" if h.shared_classifier else "wcls"].T

    def logits(self, tokens: list[int]) -> np.ndarray:
        """Logits [n, vocab] of n tokens from position 0."""
        self.reset()
        return self.feed(tokens)

    def sample(self, first: int, n: int, seed: int) -> list[int]:
        """n tokens beginning with `first`, each drawn at temperature 1."""
        self.reset()
        bits = np.random.PCG64(seed)  # the raw generator: what numpy draws with it may change
        tokens = [first]
        while len(tokens) < n:
            p = np.exp(log_softmax(self.feed(tokens[-1:]))[0])
            point = (bits.random_raw() >> 11) * 2.0**-53
            tokens.append(min(int(np.searchsorted(np.cumsum(p), point, side="right")), len(p) - 1))
        return tokens


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis, float64."""
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def measure(reference: np.ndarray, found: np.ndarray, tokens: list[int]) -> dict[str, np.ndarray]:
    """For each position of a window but the first: surprise at the next token, KL(reference || found) in nats, agreement of the likeliest token.

    The first token of most windows is the same one, BOS: what is said after it is one case, not a sample, and would count once for each
    window. The last position has no next token.
    """
    n = len(tokens)
    nll, kl = np.empty(n), np.empty(n)
    step = max(1, 65536 // reference.shape[1])  # positions at once, so that what is computed of them stays in the cache
    for first in range(0, n, step):
        part = slice(first, first + step)
        p, q = log_softmax(reference[part]), log_softmax(found[part])
        kl[part] = (np.exp(p) * (p - q)).sum(axis=1)
        following = tokens[first + 1 : first + 1 + len(q)]
        nll[first : first + len(following)] = -q[np.arange(len(following)), following]
    top1 = (reference.argmax(axis=1) == found.argmax(axis=1)).astype(np.float64)
    return {"nll": nll[1:-1], "kl": kl[1:], "top1": top1[1:]}


def mean_and_error(windows: np.ndarray) -> tuple[float, float]:
    """Mean of the windows' means, and its standard error."""
    return float(windows.mean()), float(windows.std(ddof=1) / np.sqrt(len(windows)))


# -- This project ---------------------------------------------------------------------------------------------------------------


def our_logits(ml_run: Path, model: Path, windows: list[list[int]]) -> Iterator[np.ndarray]:
    """Logits [n, vocab] of ml_run for each window; every build gives the same."""
    out = model.with_suffix(".logits")
    for tokens in windows:
        ids = ",".join(map(str, tokens))
        subprocess.run([ml_run, model, "--tokens", ids, "-c", str(len(tokens)), "-n", "0", "-q", "--dump-logits", out], check=True)
        yield np.fromfile(out, dtype="<f4").reshape(len(tokens), -1)


def best_ml_run() -> Path:
    """Builds ml_run for this CPU."""
    isa = subprocess.run([sys.executable, TOP / "tools/which_isa.py"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run(["make", "-s", "-j2", f"ISA={isa}"], cwd=TOP, check=True, stdout=sys.stderr)
    return TOP / "build" / isa / "ml_run"


# -- llama.cpp ------------------------------------------------------------------------------------------------------------------


def write_gguf(path: Path, reference: Reference) -> None:
    """The reference's weights in F32, hidden_dim padded with zeros to whole blocks as the converter pads it; token ids only, no tokenizer."""
    import gguf

    h, weights = reference.header, reference.weights
    hidden = -(-h.hidden_dim // 32) * 32
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(len(weights["tok_emb"]))
    writer.add_context_length(h.max_seq)
    writer.add_embedding_length(h.dim)
    writer.add_block_count(h.n_layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(h.n_heads)
    writer.add_head_count_kv(h.n_kv_heads)
    writer.add_rope_dimension_count(h.head_dim)
    writer.add_layer_norm_rms_eps(h.norm_eps)
    writer.add_rope_freq_base(h.rope_theta)
    writer.add_tokenizer_model("no_vocab")
    for name, w in weights.items():
        layer, _, kind = name.rpartition(".")
        full = f"blk.{layer.partition('.')[2]}.{GGUF_NAMES[kind]}.weight" if layer else GGUF_TOP[name]
        if kind in ("w1", "w3"):
            w = np.pad(w, ((0, hidden - len(w)), (0, 0)))
        if kind == "w2":
            w = np.pad(w, ((0, 0), (0, hidden - w.shape[1])))
        writer.add_tensor(full, w.reshape(-1) if len(w) == 1 else np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """The library of llama-cpp-python, called as llama.h describes it. Raises InputError if it refuses."""

    def __init__(self, folder: Path, f32: Path) -> None:
        try:
            import llama_cpp
        except ImportError:
            raise UsageError("--llama needs the package llama-cpp-python: pip install llama-cpp-python") from None
        self.lib: Any = llama_cpp
        self.folder, self.f32 = folder, f32
        silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        self._silent = silent  # the library keeps the pointer
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()

    def quantize(self, kind: str, quantized_embedding: bool) -> Path:
        """As `llama-quantize --pure` does it, with --token-embedding-type and --output-tensor-type q8_0 where asked for."""
        lib = self.lib
        out = self.folder / f"{kind}{'-emb8' if quantized_embedding else ''}.gguf"
        parameters = lib.llama_model_quantize_default_params()
        parameters.pure = True
        parameters.ftype = {"q8_0": lib.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_0": lib.LLAMA_FTYPE_MOSTLY_Q4_0}[kind]
        if quantized_embedding:
            parameters.token_embedding_type = parameters.output_tensor_type = lib.GGML_TYPE_Q8_0
        if lib.llama_model_quantize(str(self.f32).encode(), str(out).encode(), ctypes.byref(parameters)) != 0:
            raise InputError(f"llama.cpp could not quantize {self.f32} to {kind}")
        return out

    def logits(self, path: Path, windows: list[list[int]]) -> Iterator[np.ndarray]:
        """Logits [n, vocab] of each window, all of it one batch."""
        lib, n = self.lib, len(windows[0])
        parameters = lib.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = max(n, 32)
        parameters.n_threads = parameters.n_threads_batch = 1  # several wait for each other in loops, for very long on a busy machine
        model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        context = model and lib.llama_init_from_model(model, parameters)
        if not context:
            raise InputError(f"llama.cpp could not load {path}")
        vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        for tokens in windows:
            lib.llama_memory_clear(lib.llama_get_memory(context), True)
            batch = lib.llama_batch_init(n, 0, 1)
            batch.n_tokens = n
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
                batch.seq_id[i][0] = 0
            if lib.llama_decode(context, batch) != 0:
                raise InputError(f"llama.cpp could not evaluate {path}")
            found = np.ctypeslib.as_array(lib.llama_get_logits(context), (n, vocab)).copy()
            lib.llama_batch_free(batch)
            yield found
        lib.llama_free(context)
        lib.llama_model_free(model)


# -- The run --------------------------------------------------------------------------------------------------------------------


def text_windows(model: Path, text: bytes, n: int, length: int) -> list[list[int]]:
    """The first n windows of the text: BOS, where the model has one, and the tokens that follow those of the window before."""
    import legacyml

    with legacyml.Model(model) as loaded:
        ids = list(loaded.tokenize(text, bos=False))
        start = [] if loaded.bos is None else [loaded.bos]
    body = length - len(start)
    if len(ids) < n * body:
        raise UsageError(f"the text has {len(ids)} tokens; {n} windows of {body} need {n * body}")
    return [start + ids[i * body : (i + 1) * body] for i in range(n)]


def compare(rows: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """A line for each type and measure of the same type: by how much this project's is better, and whether that is more than chance."""
    lines = []
    for name, *_ in TYPES:
        ours, theirs = rows[f"{OURS} {name}"], rows[f"{THEIRS} {name}"]
        for key, label, sign in (("nll", "ln perplexity", 1), ("kl", "KL", 1), ("top1", "top-1", -1)):
            better, error = mean_and_error(sign * (theirs[key].mean(axis=1) - ours[key].mean(axis=1)))
            verdict = "better" if better > error else "the same within one standard error" if better >= -error else "worse"
            lines.append(f"| {name} | {label} | {better:+.5f} | {error:.5f} | {verdict} |")
    return lines


def table(rows: dict[str, dict[str, np.ndarray]], sizes: dict[str, int]) -> list[str]:
    """The markdown table."""
    lines = ["| | bytes | perplexity | mean KL | top-1 |", "|---|---:|---:|---:|---:|"]
    for name, found in rows.items():
        nll, nll_error = mean_and_error(found["nll"].mean(axis=1))
        kl, kl_error = mean_and_error(found["kl"].mean(axis=1))
        top1, top1_error = mean_and_error(found["top1"].mean(axis=1))
        ppl = np.exp(nll)
        cells = [f"{sizes[name]:,}" if name in sizes else "", f"{ppl:.3f} ± {ppl * nll_error:.3f}"]
        cells += ["", ""] if name == "reference" else [f"{kl:.5f} ± {kl_error:.5f}", f"{top1:.2%} ± {top1_error:.2%}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def plot(rows: dict[str, dict[str, np.ndarray]], path: Path, title: str) -> None:
    """KL by position: means over the windows and over 16 neighbours."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    colours = dict(zip((name for name, *_ in TYPES), ("tab:green", "tab:red", "tab:blue")))
    for name, found in rows.items():
        side, _, kind = name.partition(" ")
        if kind in colours:
            mean = found["kl"].mean(axis=0)
            whole = mean[: len(mean) // 16 * 16].reshape(-1, 16).mean(axis=1)
            style = "-" if side == OURS else "--"
            axes.plot(16 * np.arange(len(whole)) + 8.5, whole, style, color=colours[kind], label=f"{kind}, {side}", linewidth=1.6)
    axes.set(xlabel="position", ylabel="KL to the reference, nats", yscale="log", title=title)
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(ncols=2)
    figure.savefig(path, dpi=110)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="llama2.c checkpoint, Hugging Face folder or GGUF file")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--text", type=Path, metavar="FILE", help="text to measure on")
    what.add_argument("--sample", action="store_true", help="measure on what the reference says, token 1 first")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="as legacyml-convert takes it")
    parser.add_argument("--windows", type=int, default=16, metavar="N", help="(default: 16)")
    parser.add_argument("--length", type=int, default=256, metavar="N", help="tokens of a window (default: 256)")
    parser.add_argument("--ml-run", type=Path, metavar="FILE", help="default: build the best for this CPU")
    parser.add_argument("--llama", action="store_true", help="measure llama.cpp too")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw KL by position")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every window's means")
    arguments = parser.parse_args(argv)
    if arguments.windows < 2 or arguments.length < 3:
        parser.error("two windows of three tokens or more are needed")
    return arguments


def run(arguments: argparse.Namespace) -> None:
    source = read_source(arguments.model)
    tokenizer = read_tokenizer(arguments.tokenizer) if arguments.tokenizer else source.find_tokenizer() if arguments.text else None
    if arguments.text and tokenizer is None:
        raise UsageError("there is no tokenizer for the text; --tokenizer FILE gives one")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ml_run = arguments.ml_run or best_ml_run()
        sides: dict[str, Callable[[list[list[int]]], Iterable[np.ndarray]]] = {}
        sizes = {}
        for label, kind, emb8 in TYPES:
            model = folder / f"{kind}{'-emb8' if emb8 else ''}.mlb"
            header = convert(source, tokenizer, model, mlb.TYPE_NAMES[kind], emb8, progress=False).header
            sizes[f"{OURS} {label}"] = model.stat().st_size
            sides[f"{OURS} {label}"] = functools.partial(our_logits, ml_run, model)
        reference = Reference(source, header.vocab)
        if arguments.text:
            windows = text_windows(folder / "q8_0.mlb", arguments.text.read_bytes(), arguments.windows, arguments.length)
        else:
            windows = [reference.sample(1, arguments.length, seed) for seed in range(1, arguments.windows + 1)]
        if arguments.llama:
            write_gguf(folder / "f32.gguf", reference)
            llama = LlamaCpp(folder, folder / "f32.gguf")
            sides[f"{THEIRS} F32"] = functools.partial(llama.logits, folder / "f32.gguf")
            for label, kind, emb8 in TYPES:
                path = llama.quantize(kind, emb8)
                sizes[f"{THEIRS} {label}"] = path.stat().st_size
                sides[f"{THEIRS} {label}"] = functools.partial(llama.logits, path)
        rows = measure_all(reference, windows, sides)
    stored = " and ".join(sorted({tensor.stored for tensor in source.tensors.values() if tensor.rows > 1}))
    title = f"{arguments.model.name} (matrices {stored}), {len(windows)} windows of {arguments.length} tokens"
    print(f"{title}, {'sampled' if arguments.sample else arguments.text.name}\n")
    print("\n".join(table(rows, sizes)))
    if arguments.llama:
        print("\n| type | measure | legacyml is better by | standard error | |\n|---|---|---:|---:|---|")
        print("\n".join(compare(rows)))
    if arguments.plot:
        plot(rows, arguments.plot, title)
    if arguments.json:
        means = {name: {key: v.mean(axis=1).tolist() for key, v in found.items()} for name, found in rows.items()}
        arguments.json.write_text(json.dumps({"windows": windows, "means": means}) + "\n")


def measure_all(
    reference: Reference, windows: list[list[int]], sides: dict[str, Callable[[list[list[int]]], Iterable[np.ndarray]]]
) -> dict[str, dict[str, np.ndarray]]:
    """Every measure of every side, [windows, positions]; the reference first, against itself."""
    rows: dict[str, dict[str, np.ndarray]] = {}
    expected = [reference.logits(tokens).astype(np.float32) for tokens in windows]
    for name in ("reference", *sides):
        print(f"measuring {name}", file=sys.stderr)
        found = sides[name](windows) if name in sides else expected
        per_window = [measure(*values) for values in zip(expected, found, windows, strict=True)]
        rows[name] = {key: np.array([window[key] for window in per_window]) for key in ("nll", "kl", "top1")}
    return rows


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    return exit_status("quality.py", lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
