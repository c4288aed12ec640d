# SPDX-License-Identifier: BSD-3-Clause
"""The Llama forward pass in double precision, for llama2.c v0 checkpoints: an fp32 model to measure quantized ones against.

Written from the paper and the file's layout; shares nothing with the runtime or the converters.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np


class Llama2cModel:
    """A llama2.c v0 checkpoint with tied embeddings. All arithmetic is float64; rope_theta 10000, eps 1e-5 as in llama2.c."""

    def __init__(self, path: Path) -> None:
        raw = np.fromfile(path, dtype="<i4", count=7)
        self.dim, self.hidden, self.layers, self.heads, self.kv_heads, vocab, self.max_seq = (int(v) for v in raw)
        self.vocab = abs(vocab)
        assert vocab > 0, "untied checkpoints are not needed here"
        weights = np.fromfile(path, dtype="<f4", offset=28).astype(np.float64)
        self.head_dim = self.dim // self.heads
        kv_dim = self.head_dim * self.kv_heads
        at = 0

        def take(*shape: int) -> np.ndarray:
            nonlocal at
            n = int(np.prod(shape))
            at += n
            return weights[at - n : at].reshape(shape)

        n = self.layers
        self.tok_emb = take(self.vocab, self.dim)
        self.attn_norm = take(n, self.dim)
        self.wq, self.wk = take(n, self.dim, self.dim), take(n, kv_dim, self.dim)
        self.wv, self.wo = take(n, kv_dim, self.dim), take(n, self.dim, self.dim)
        self.ffn_norm = take(n, self.dim)
        self.w1, self.w2 = take(n, self.hidden, self.dim), take(n, self.dim, self.hidden)
        self.w3 = take(n, self.hidden, self.dim)
        self.final_norm = take(self.dim)
        self.reset()

    def reset(self) -> None:
        """Forgets all positions."""
        self.keys = [np.zeros((0, self.kv_heads, self.head_dim)) for _ in range(self.layers)]
        self.values = [np.zeros((0, self.kv_heads, self.head_dim)) for _ in range(self.layers)]

    @staticmethod
    def _norm(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x) + 1e-5) * w

    def _rotate(self, x: np.ndarray, position: int) -> np.ndarray:
        """x: [heads, head_dim], interleaved pairs."""
        angle = position * 10000.0 ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        a, b = x[:, 0::2], x[:, 1::2]
        out = np.empty_like(x)
        out[:, 0::2], out[:, 1::2] = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
        return out

    def step(self, token: int) -> np.ndarray:
        """Logits [vocab] after one more token."""
        x = self.tok_emb[token]
        position, group = len(self.keys[0]), self.heads // self.kv_heads
        for i in range(self.layers):
            h = self._norm(x, self.attn_norm[i])
            q = self._rotate((self.wq[i] @ h).reshape(self.heads, -1), position)
            k = self._rotate((self.wk[i] @ h).reshape(self.kv_heads, -1), position)
            v = (self.wv[i] @ h).reshape(self.kv_heads, -1)
            self.keys[i] = np.concatenate([self.keys[i], k[None]])
            self.values[i] = np.concatenate([self.values[i], v[None]])
            keys, values = (np.repeat(c[i], group, axis=1) for c in (self.keys, self.values))
            scores = np.einsum("hd,thd->ht", q, keys) / np.sqrt(self.head_dim)
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            x = x + self.wo[i] @ np.einsum("ht,thd->hd", p, values).ravel()
            h = self._norm(x, self.ffn_norm[i])
            gate = self.w1[i] @ h
            x = x + self.w2[i] @ (gate / (1 + np.exp(-gate)) * (self.w3[i] @ h))
        return self.tok_emb @ self._norm(x, self.final_norm)

    def sample(self, first: int, n: int, seed: int) -> tuple[list[int], np.ndarray]:
        """n tokens beginning with `first`, each drawn at temperature 1, and the logits [n, vocab] behind each."""
        self.reset()
        rng = np.random.Generator(np.random.PCG64(seed))
        tokens, logits = [first], []
        while True:
            logits.append(self.step(tokens[-1]))
            if len(tokens) == n:
                return tokens, np.array(logits)
            p = np.exp(log_softmax(logits[-1]))
            # The raw generator, so that the sequence does not depend on how numpy draws from distributions.
            point = (rng.bit_generator.random_raw() >> 11) * 2.0**-53
            tokens.append(min(int(np.searchsorted(np.cumsum(p), point, side="right")), self.vocab - 1))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """log of softmax over the last axis, float64."""
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def kl(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """KL(reference || other) of each row of logits, in nats."""
    p = log_softmax(reference)
    return (np.exp(p) * (p - log_softmax(other))).sum(axis=-1)
