# SPDX-License-Identifier: BSD-3-Clause
"""Model: weights, tokenizer and one context."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeVar, Union, overload

from . import chat, library
from ._native import ffi, lib
from .errors import ArgumentError, ShapeError, StateError
from .generation import Completion, Stop, Stream, sampling_of, stops_of
from .scoring import Perplexity, log_sum_exp, perplexity

Prompt = Union[str, bytes, Iterable[int], Sequence[Mapping[str, str]]]
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_T = TypeVar("_T")

_TYPES = {1: "q8_0", 2: "q4_0"}
# A prompt is processed in stretches of about this time, so that Ctrl-C acts between two of them.
_STRETCH_SECONDS = 0.05
_FIRST_STRETCH = 8
# Positions whose logits are held at once.
_ROWS = 32


class ModelInfo(NamedTuple):
    """What the model file says."""

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    kv_dim: int
    hidden_dim: int
    vocab: int
    max_seq: int
    rope_theta: float
    norm_eps: float
    weight_type: str
    """"q8_0" or "q4_0"."""
    embedding_type: str
    shared_classifier: bool
    """Logits use the embedding."""
    rope_factors: bool
    """The file scales rotary frequencies."""
    file_bytes: int
    parameters: int
    """Weights, without scales."""


def _ids(tokens: Iterable[int]) -> array[int]:
    """Ids as int32; a text is not taken for ids."""
    if isinstance(tokens, (str, bytes, bytearray)):
        raise TypeError(f"token ids are expected here, found {type(tokens).__name__}: tokenize() makes ids of a text")
    try:
        return array("i", iter(tokens))
    except OverflowError:
        raise ArgumentError("a token id is beyond 32 bits: no vocabulary has it") from None


def _common(a: array[int], b: array[int]) -> int:
    """How many ids at the beginning are the same."""
    n = min(len(a), len(b))
    return n if a[:n] == b[:n] else next(i for i in range(n) if a[i] != b[i])


class Model:
    """A model file, its tokenizer and a context of n_ctx positions.

    path: a .mlb file. tokenizer: default is the file beside it, path with .mlb replaced by .tokenizer.bin; if that is missing the Model
    takes and gives ids only. threads: 1 to 1024, default what the CPU affinity and the container's quota allow. context: positions,
    default the smaller of the model's and 2048. mmap=False reads the file into memory; verify=True also checks every weight.

    Threads: one call at a time. A second thread waits until the first call has returned (a Stream: until its next token is made); a call
    from inside a callback of the same Model is a StateError, since it would wait for itself. Models do not share anything: two in two
    threads run side by side. tokenize, detokenize and the attributes never wait.

    fork: after os.fork() a Model belongs to the parent, which has its worker threads. In the child everything but close() is a StateError;
    open the file again there (the weights are mapped, so they are in memory once).

    Raises FileError, FormatError, ShapeError, ArgumentError, OutOfMemoryError; after close() StateError.
    """

    def __init__(
        self,
        path: Path,
        tokenizer: Path | None = None,
        threads: int | None = None,
        context: int | None = None,
        *,
        mmap: bool = True,
        verify: bool = False,
    ) -> None:
        for name, value, most in (("threads", threads, 1024), ("context", context, 1 << 24)):
            if value is not None and not 1 <= value <= most:
                raise ArgumentError(f"{name} is {value}; it must be from 1 to {most}, or None")
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._owner = 0  # the thread that has the lock
        self._logits_view: memoryview[float] | None = None
        flags = (0 if mmap else lib.ML_MODEL_NO_MMAP) | (lib.ML_MODEL_VERIFY if verify else 0)
        self._context: Any = None
        self._tokenizer: Any = None
        self._model: Any = library.open_model(path, flags)
        fields = ffi.new("ml_model_info *")
        lib.ml_model_get_info(self._model, fields)
        values = {name: getattr(fields, name) for name in ModelInfo._fields}
        values.update({name: _TYPES[values[name]] for name in ("weight_type", "embedding_type")})
        values.update({name: bool(values[name]) for name in ("shared_classifier", "rope_factors")})
        self._info = ModelInfo(**values)
        if tokenizer is None:
            name = os.fsdecode(path)
            beside = name.removesuffix(".mlb") + ".tokenizer.bin"
            tokenizer = beside if os.path.lexists(beside) else None
        if tokenizer is not None:
            self._tokenizer = library.open_tokenizer(tokenizer, self._info.vocab)
        self._context = library.create_context(self._model, context or 0, threads or 0)
        self._n_ctx = int(lib.ml_context_capacity(self._context))
        self._n_threads = int(lib.ml_context_threads(self._context))

    # -- One call at a time, and not after close() -----------------------------------------------------------------------

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise StateError(
                f"this Model was made in process {self._process}, whose worker threads {os.getpid()} lacks: open it again after the fork"
            )
        if self._context is None:
            raise StateError("this Model is closed")

    def _alone(self, work: Callable[[], _T]) -> _T:
        """Runs work while no other thread is in this Model."""
        if os.getpid() != self._process:  # the lock may be held by a thread that is not there
            self._check()
        if self._lock.locked() and self._owner == threading.get_ident():
            raise StateError("this Model is asked for something inside its own callback: wait until the call has returned")
        with self._lock:
            try:
                self._owner = threading.get_ident()
                self._check()
                return work()
            finally:
                self._owner = 0

    def close(self) -> None:
        """Frees context, tokenizer and weights; again is fine. Waits for a call that runs in another thread. A buffer of forward() that is still
        in use keeps its memory until it goes."""
        if os.getpid() == self._process and self._context is not None:
            self._alone(self._close)
        else:
            self._close()

    def _close(self) -> None:
        self._drop_logits()
        self._context = self._tokenizer = self._model = None

    def __enter__(self) -> Model:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._context is None else f"{self.n_ctx} positions, {self.n_threads} threads"
        return f"<legacyml.Model: {self._info.parameters} weights in {self._info.weight_type}, {state}>"

    # -- What it is ----------------------------------------------------------------------------------------------------

    @property
    def info(self) -> ModelInfo:
        """What the file says; still there after close()."""
        return self._info

    @property
    def n_ctx(self) -> int:
        """Positions of the context."""
        return self._n_ctx

    @property
    def n_vocab(self) -> int:
        return self._info.vocab

    @property
    def n_threads(self) -> int:
        """Threads that really work: 1 in a build without threads."""
        return self._n_threads

    @property
    def tokens(self) -> list[int]:
        """The ids that the context holds. Right after generate() the last generated id is not among them: nothing needed it."""
        return self._alone(lambda: self._held().tolist())

    @property
    def bos(self) -> int | None:
        """The id that begins a text, or None."""
        token = int(lib.ml_tokenizer_bos(self._need_tokenizer()))
        return token if token >= 0 else None

    @property
    def chat_template(self) -> str:
        """The name that the tokenizer has for its chat template, "" for none."""
        return str(ffi.string(lib.ml_tokenizer_template(self._need_tokenizer())).decode())

    # -- Text and ids ----------------------------------------------------------------------------------------------------

    def _need_tokenizer(self) -> Any:
        self._check()
        tokenizer = self._tokenizer
        if tokenizer is None:
            raise ArgumentError("this Model has no tokenizer, so it takes and gives ids only: name a file with tokenizer=")
        return tokenizer

    def tokenize(self, text: str | bytes, *, bos: bool = True, special: bool = False) -> list[int]:
        """Ids of a text, which as bytes need not be UTF-8. bos: begin with the id that begins a text, where the tokenizer wants it in prompts.
        special: recognise special pieces such as <|im_end|> in the text."""
        flags = (lib.ML_ENCODE_BOS if bos else 0) | (lib.ML_ENCODE_SPECIAL if special else 0)
        return library.encode(self._need_tokenizer(), library.bytes_of(text), flags).tolist()

    def detokenize(self, tokens: Iterable[int]) -> bytes:
        """The bytes of ids, which need not end with a whole character. ArgumentError for an id that the tokenizer does not have."""
        tokenizer, previous, pieces = self._need_tokenizer(), -1, []
        for token in _ids(tokens):
            pieces.append(library.piece(tokenizer, previous, token))
            previous = token
        return b"".join(pieces)

    # -- The context -----------------------------------------------------------------------------------------------------

    def _held(self) -> array[int]:
        n = lib.ml_context_position(self._context)
        return array("i", ffi.buffer(lib.ml_context_tokens(self._context), 4 * n)[:] if n else b"")

    def _feed(self, tokens: array[int], rows: bytearray | None = None) -> None:
        """Processes ids behind what is held, in stretches. rows: float32[len(tokens), n_vocab] for the logits of each."""
        self._drop_logits()
        logits = None if rows is None else ffi.from_buffer("float[]", rows)
        buffer, done, n = ffi.from_buffer("int32_t[]", tokens), 0, _FIRST_STRETCH
        while done < len(tokens):
            n = min(n, len(tokens) - done)
            start = time.monotonic()
            if logits is None:
                library.call(lib.ml_context_eval, self._context, buffer + done, n)
            else:
                library.call(lib.ml_context_eval_logits, self._context, buffer + done, n, logits + done * self.n_vocab)
            done += n
            n = 2 * n if time.monotonic() - start < _STRETCH_SECONDS / 2 else max(1, n // 2)

    def _hold(self, tokens: array[int]) -> None:
        """Makes the context hold exactly these ids, with logits of the last. What it holds already is not computed again; no bit depends on it."""
        held = self._held()
        if held == tokens:
            try:
                self._logits()
                return
            except ArgumentError:  # there are none behind a rewind
                pass
        same = min(_common(held, tokens), len(tokens) - 1)
        if same < len(held):
            self._rewind(same)
        self._feed(tokens[same:])

    def _logits(self) -> memoryview[float]:
        out = ffi.new("const float **")
        library.call(lib.ml_context_logits, self._context, out)
        # The buffer refers to the context's own memory and keeps the context.
        context = self._context
        floats = ffi.gc(ffi.cast("float *", out[0]), lambda _, context=context: None)
        return memoryview(ffi.buffer(floats, 4 * self.n_vocab)).toreadonly().cast("f")

    def _drop_logits(self) -> None:
        """Ends the validity of the buffer given out last, as far as nobody has wrapped it."""
        view, self._logits_view = self._logits_view, None
        if view is not None:
            try:
                view.release()
            except BufferError:
                pass

    def _give_logits(self) -> memoryview[float]:
        self._drop_logits()
        self._logits_view = self._logits()
        return self._logits_view

    def rewind(self, n: int) -> None:
        """Forgets every position from n on; 0 starts anew. ArgumentError if n is negative or beyond what is held."""
        if not -1 << 31 <= n < 1 << 31:
            raise ArgumentError(f"cannot go back to position {n}")
        self._alone(lambda: self._rewind(n))

    def _rewind(self, n: int) -> None:
        library.call(lib.ml_context_rewind, self._context, n)
        self._drop_logits()

    def logits(self) -> memoryview[float]:
        """The logits behind the last token held, as forward() gives them. ArgumentError right after the start and after rewind()."""
        return self._alone(self._give_logits)

    def forward(self, tokens: Iterable[int], *, every: bool = False) -> memoryview[float]:
        """Processes ids behind what is held and returns logits.

        Without `every`: those of the last id, float32[n_vocab], read only, without a copy: numpy.asarray(model.forward(ids)) shares the
        memory. They are valid until the next call of the Model that computes or asks for logits. After that the memoryview itself raises ValueError,
        and an array that wraps it shows the newest logits; after close() it stays as it is. Neither is ever freed memory. Copy what is to stay.

        With `every`: those of each id, float32[n, n_vocab] in memory of its own, which stays valid.

        Raises ArgumentError (an id outside the vocabulary, no ids), ShapeError (they do not fit the context), NumericError (a logit is not finite).
        After an error or a KeyboardInterrupt the context holds what it held, without logits if work had begun.
        """
        ids = _ids(tokens)
        return self._alone(lambda: self._forward(ids, every))

    def _forward(self, ids: array[int], every: bool) -> memoryview[float]:
        before = lib.ml_context_position(self._context)
        # As one call, so that a refusal names all of them and nothing has been done.
        self._check_ids(ids, before)
        try:
            if not every:
                self._feed(ids)
                return self._give_logits()
            rows = bytearray(4 * self.n_vocab * len(ids))
            self._feed(ids, rows)
            return memoryview(rows).cast("f", [len(ids), self.n_vocab])
        except BaseException:
            self._rewind(before)
            raise

    def _check_ids(self, ids: array[int], held: int) -> None:
        if not ids:
            raise ArgumentError("no tokens to process")
        if len(ids) > self.n_ctx - held:
            raise ShapeError(f"{len(ids)} tokens behind {held} do not fit the context of {self.n_ctx} positions")
        self._check_vocabulary(ids)

    def _check_vocabulary(self, ids: array[int]) -> None:
        for token in (min(ids), max(ids)):
            if not 0 <= token < self.n_vocab:
                raise ArgumentError(f"token id {token}; this model has ids 0 to {self.n_vocab - 1}")

    def save_state(self) -> bytes:
        """What the context holds, as bytes: ids, keys and values. They do not depend on build, threads or context size."""
        return self._alone(self._save)

    def _save(self) -> bytes:
        state = bytearray(lib.ml_context_state_bytes(self._context))
        library.call(lib.ml_context_save, self._context, ffi.from_buffer(state), len(state))
        return bytes(state)

    def load_state(self, state: bytes | bytearray | memoryview) -> None:
        """Replaces what is held by what save_state() gave, of this or another Model of the same file. generate(model.tokens) goes on from there.

        Raises FormatError (not such bytes, cut off or changed), ShapeError (of another model, or more positions than n_ctx); the
        context is then as it was.
        """
        buffer = ffi.from_buffer(state)
        self._alone(lambda: self._load(buffer))

    def _load(self, buffer: Any) -> None:
        library.call(lib.ml_context_restore, self._context, buffer, len(buffer))
        self._drop_logits()

    # -- Generation --------------------------------------------------------------------------------------------------------

    @overload
    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repeat_penalty: float = 1.0,
        seed: int | None = None,
        stop: Stop = (),
        stream: Literal[False] = False,
        logprobs: int | None = None,
        callback: Callable[[str], object] | None = None,
        template: str | None = None,
    ) -> Completion: ...

    @overload
    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repeat_penalty: float = 1.0,
        seed: int | None = None,
        stop: Stop = (),
        stream: Literal[True],
        logprobs: int | None = None,
        callback: Callable[[str], object] | None = None,
        template: str | None = None,
    ) -> Stream: ...

    @overload
    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repeat_penalty: float = 1.0,
        seed: int | None = None,
        stop: Stop = (),
        stream: bool,
        logprobs: int | None = None,
        callback: Callable[[str], object] | None = None,
        template: str | None = None,
    ) -> Completion | Stream: ...

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repeat_penalty: float = 1.0,
        seed: int | None = None,
        stop: Stop = (),
        stream: bool = False,
        logprobs: int | None = None,
        callback: Callable[[str], object] | None = None,
        template: str | None = None,
    ) -> Completion | Stream:
        """Makes text behind a prompt: the same as ml_run's with the same arguments, on every CPU. Each call starts anew; the beginning that the
        prompt has in common with what the context holds is not computed again, so a chat that grows costs only what is new.

        prompt: str or bytes (special pieces are recognised, as in ml_run -p), token ids (nothing is added), or chat messages, mappings with
        "role" ("system", first only; "user"; "assistant") and "content", the last of the user. template: which chat template, default
        what the tokenizer names. max_tokens: default to the end of the context. temperature 0 takes the likeliest token. The order is repeat
        penalty over the last 64 ids, temperature, softmax, top_k, min_p, top_p, draw. seed: 0 to 2^64-1, default random; the one used
        is in the result. stop: a text, or several, before which to end. logprobs: also return log probabilities, the n best of each
        token. callback: called after each token of the text with what became final by it, perhaps "", and at the end with what is left, if
        anything; if it returns False, and nothing else, the text ends there; what it raises reaches the caller.

        Returns a Completion, or with stream=True a Stream of str.

        Raises ArgumentError (a value out of its range, an id outside the vocabulary, an empty prompt), ShapeError (the prompt does not fit the
        context), NumericError (a logit is not finite), FormatError (a text that the tokenizer has no ids for).
        """
        sampling = sampling_of(temperature, top_p, top_k, min_p, repeat_penalty)
        stops = stops_of(stop)
        if stops:
            self._need_tokenizer()
        self._check()
        start = self._prompt(prompt, template)
        run = Stream(
            self,
            start,
            max_tokens=max_tokens,
            sampling=sampling,
            seed=seed,
            stops=stops,
            logprobs=logprobs,
            callback=callback,
        )
        return run if stream else self._alone(run._run)

    def _prompt(self, prompt: Prompt, template: str | None) -> chat.ChatPrompt:
        if isinstance(prompt, (str, bytes)):
            flags = lib.ML_ENCODE_BOS | lib.ML_ENCODE_SPECIAL
            ids = library.encode(self._need_tokenizer(), library.bytes_of(prompt), flags)
            if not ids:
                raise ArgumentError("the prompt is empty, and with this tokenizer no token stands before a text: give some text")
            return chat.ChatPrompt(ids, frozenset(), (), False)
        items: list[Any] = list(prompt)
        if items and isinstance(items[0], Mapping):
            return chat.encode(self._need_tokenizer(), items, template)
        ids = _ids(items)
        if not ids:
            raise ArgumentError("the prompt has no token ids; it must have at least one")
        self._check_vocabulary(ids)
        return chat.ChatPrompt(ids, frozenset(), (), False)

    # -- Perplexity --------------------------------------------------------------------------------------------------------

    def perplexity(self, text: str | bytes | Iterable[int], stride: int | None = None) -> Perplexity:
        """How well the model predicts a text, given as text or ids: value, standard error, number of tokens predicted; as ml_run --perplexity.

        What the context cannot take at once is read in windows that begin `stride` tokens apart, from 1 to the window's length; default is half of
        it. Each token is predicted by the first window that has it and something before it: where prompts begin with an id of the
        tokenizer, windows of a text do; ids are taken as they are. A small stride gives every token more context and takes longer.
        ArgumentError if there is nothing to predict. The context holds the last window afterwards.
        """
        head: array[int] = array("i")
        if isinstance(text, (str, bytes)):
            tokenizer = self._need_tokenizer()
            ids = library.encode(tokenizer, library.bytes_of(text), 0)
            if lib.ml_tokenizer_adds_bos(tokenizer):
                head.append(lib.ml_tokenizer_bos(tokenizer))
        else:
            ids = _ids(text)
        length = self.n_ctx + 1 - len(head)  # the last id is predicted and not processed
        if stride is None:
            stride = max(length // 2, 1)
        if not 1 <= stride <= length:
            raise ArgumentError(f"stride is {stride}; it must be from 1 to {length}, the length of a window")
        if len(ids) < 2 - len(head):
            raise ArgumentError(f"a text of {len(ids)} tokens has none to predict; it must have at least {2 - len(head)}")
        self._check_vocabulary(ids)
        return self._alone(lambda: perplexity(self._losses(ids, head, length, stride)))

    @staticmethod
    def _loss(logits: memoryview[float], token: int) -> float:
        values = logits.tolist()
        return log_sum_exp(values) - values[token]

    def _losses(self, ids: array[int], head: array[int], length: int, stride: int) -> list[float]:
        """-log(p) of each token that is predicted, in windows of `length` ids that begin with `head`."""
        losses: list[float] = []
        known = 0  # tokens that some window has had
        for begin in range(0, len(ids), stride):
            end = min(begin + length, len(ids))
            first = max(known, begin + 1 - len(head))
            if first < end:
                self._hold(head + ids[begin:first])
                losses.append(self._loss(self._logits(), ids[first]))
            for at in range(first, end - 1, _ROWS):
                fed = ids[at : min(at + _ROWS, end - 1)]
                rows = bytearray(4 * self.n_vocab * len(fed))
                self._feed(fed, rows)
                logits = memoryview(rows).cast("f")
                for i in range(len(fed)):
                    losses.append(self._loss(logits[i * self.n_vocab : (i + 1) * self.n_vocab], ids[at + i + 1]))
            known = end
            if known == len(ids):
                break
        return losses
