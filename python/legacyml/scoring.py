# SPDX-License-Identifier: BSD-3-Clause
"""Log probabilities in double precision, without numpy: on the CPUs that legacyml is for, its wheels may not start."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple


class TokenLogprobs(NamedTuple):
    """What the model thought of one generated token: natural logarithms of the softmax of the logits, before penalty, temperature and cuts."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The most probable (token, logprob), best first, the lower id first on a tie."""


class Perplexity(NamedTuple):
    """exp of the mean of -log(p) over `tokens` tokens, and its standard error (value times that of the mean; NaN for one token)."""

    value: float
    error: float
    tokens: int


def log_sum_exp(logits: Sequence[float]) -> float:
    largest = max(logits)
    return largest + math.log(math.fsum(map(math.exp, (x - largest for x in logits))))


def token_logprobs(logits: Sequence[float], token: int, n: int) -> TokenLogprobs:
    total = log_sum_exp(logits)
    best = heapq.nlargest(n, range(len(logits)), key=logits.__getitem__)
    return TokenLogprobs(token, logits[token] - total, tuple((i, logits[i] - total) for i in best))


def perplexity(losses: Sequence[float]) -> Perplexity:
    """losses: -log(p) of each token, at least one."""
    n = len(losses)
    mean = math.fsum(losses) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in losses) / (n - 1)) if n > 1 else math.nan
    try:
        value = math.exp(mean)
    except OverflowError:
        value = math.inf
    return Perplexity(value, value * deviation / math.sqrt(n), n)
