# SPDX-License-Identifier: BSD-3-Clause
"""What generate() gives: a Stream while text is made, a Completion when it is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from ._native import ffi, lib
from .chat import ChatPrompt
from .errors import ArgumentError, ShapeError
from .library import bytes_of, call, piece
from .scoring import TokenLogprobs, token_logprobs
from .text import TextBuilder

if TYPE_CHECKING:
    from .model import Model

Stop = Union[str, bytes, Sequence[Union[str, bytes]]]


@dataclass(frozen=True)
class Completion:
    """A generated text and how it came about."""

    text: str
    """Up to the stop string, if one ended it. Bytes that are not UTF-8 are U+FFFD here."""
    raw: bytes
    """The text byte for byte."""
    tokens: list[int]
    """The ids generated, without the one that ended the text, if one did."""
    stop_reason: str
    """"stop_token", "stop_string", "count", "context_full" or "callback"."""
    seed: int
    """What was drawn with: the same seed and arguments give the same text on every CPU."""
    prompt_tokens: list[int]
    logprobs: list[TokenLogprobs] | None
    """One for each of `tokens`, if they were asked for."""


def sampling_of(temperature: float, top_p: float, top_k: int, min_p: float, repeat_penalty: float) -> Any:
    """The ml_sampling, checked before any work is done."""
    for name, value in (("temperature", temperature), ("repeat_penalty", repeat_penalty)):
        if not 0 <= value <= 3.4028234663852886e38:
            raise ArgumentError(f"{name} is {value!r}; it must be a finite number, 0 or more")
    for name, value in (("top_p", top_p), ("min_p", min_p)):
        if not 0 <= value <= 1:
            raise ArgumentError(f"{name} is {value!r}; it must be from 0 to 1")
    if not 0 <= top_k < 1 << 31:
        raise ArgumentError(f"top_k is {top_k!r}; it must be from 0 to 2^31-1")
    if 0 < temperature < 1.401298464324817e-45:
        raise ArgumentError(f"temperature is {temperature!r}, which no float32 is near; 0 takes the likeliest token")
    fields = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p, "repeat_penalty": repeat_penalty}
    return ffi.new("ml_sampling *", fields)


def stops_of(stop: Stop) -> list[bytes]:
    stops = [bytes_of(text) for text in ([stop] if isinstance(stop, (str, bytes)) else stop)]
    if b"" in stops:
        raise ArgumentError("a stop string is empty; it must have at least one character")
    return stops


class Stream(Iterator[str]):
    """An iterator of text that is final: whole characters, nothing of a stop string. What has been made so far is in its attributes, as in
    Completion; `stop_reason` is None until the end.

    It holds the Model only while it makes a token. Whatever is done with the Model in between is allowed: the stream first puts its own
    tokens back, which takes time and changes no bit. Any exception, KeyboardInterrupt too, ends the stream and leaves the Model usable.
    """

    def __init__(
        self,
        model: Model,
        prompt: ChatPrompt,
        *,
        max_tokens: int | None,
        sampling: Any,
        seed: int | None,
        stops: Sequence[bytes],
        logprobs: int | None,
        callback: Callable[[str], object] | None,
    ) -> None:
        if max_tokens is not None and max_tokens < 0:
            raise ArgumentError(f"max_tokens is {max_tokens}; it must be 0 or more, or None for the end of the context")
        if logprobs is not None and not 0 <= logprobs <= model.n_vocab:
            raise ArgumentError(f"logprobs is {logprobs}; it must be from 0 to the vocabulary's {model.n_vocab}")
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        if not 0 <= seed < 1 << 64:
            raise ArgumentError(f"seed is {seed}; it must be from 0 to 2^64-1")
        if len(prompt.ids) > model.n_ctx:
            raise ShapeError(
                f"the prompt has {len(prompt.ids)} tokens, and the context {model.n_ctx} positions: shorten it or make a larger context"
            )
        self.seed = seed
        self.prompt_tokens = prompt.ids.tolist()
        self.tokens: list[int] = []
        self.stop_reason: str | None = None
        self.logprobs: list[TokenLogprobs] | None = None if logprobs is None else []
        self._model: Model | None = model  # None when it has ended
        self._ids = prompt.ids[:]  # the text so far, its last id not yet processed
        self._max_tokens, self._sampling, self._ends, self._callback = max_tokens, sampling, prompt.ends, callback
        self._top = logprobs
        self._rng = ffi.new("uint64_t *", lib.ml_rng_seed(seed))
        self._builder = TextBuilder([*stops, *prompt.stops], prompt.spaced)
        self._text: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def raw(self) -> bytes:
        return bytes(self._builder.raw)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        """The next text, at least one character. Raises what Model.generate does."""
        while self._model is not None:
            try:
                text = self._model._alone(self._step)
            except BaseException:
                self._model = None
                raise
            if text:
                return text
        raise StopIteration

    def close(self) -> None:
        """Ends the stream early; again is fine."""
        self._model = None

    def _run(self) -> Completion:
        while self._model is not None:
            self._step()
        assert self.stop_reason is not None
        return Completion(self.text, self.raw, self.tokens, self.stop_reason, self.seed, self.prompt_tokens, self.logprobs)

    def _step(self) -> str:
        """One token, or the end: the text that became final. The Model is ours meanwhile."""
        if self._model is None:  # another thread has ended it
            return ""
        text, reason = self._next_token(self._model)
        if reason is not None:
            text += self._builder.end()
        self._text.append(text)
        if self._callback is not None and (text or reason is None) and self._callback(text) is False and reason is None:
            reason = "callback"
            self._text.append(self._builder.end())
            text += self._text[-1]
        if reason is not None:
            self._model, self.stop_reason = None, reason
        return text

    def _next_token(self, model: Model) -> tuple[str, str | None]:
        """The text that became final, and why it ends here, or None."""
        if len(self._ids) > model.n_ctx:
            return "", "context_full"
        model._hold(self._ids)
        if self._max_tokens == 0:
            return "", "count"
        drawn = ffi.new("int32_t *")
        call(lib.ml_context_sample, model._context, self._sampling, self._rng, drawn)
        token = drawn[0]
        if token in self._ends or (model._tokenizer is not None and lib.ml_tokenizer_is_stop(model._tokenizer, token)):
            return "", "stop_token"
        if self.logprobs is not None and self._top is not None:
            self.logprobs.append(token_logprobs(model._logits().tolist(), token, self._top))
        self.tokens.append(token)
        text = ""
        if model._tokenizer is not None:
            text = self._builder.push(piece(model._tokenizer, self._ids[-1], token))
        self._ids.append(token)
        if self._builder.stopped:
            return text, "stop_string"
        return text, "count" if len(self.tokens) == self._max_tokens else None
