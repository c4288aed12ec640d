# SPDX-License-Identifier: BSD-3-Clause
"""From chat messages to ids, the same as ml_run --chat makes of the same talk."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ._native import ffi, lib
from .errors import ArgumentError
from .library import bytes_of
from .library import encode as encode_text


class Template(NamedTuple):
    """How messages are spelled. In braces: system and user are texts; bos and eos ids of the tokenizer, begin the id that it puts before
    prompts; anything else a special piece, or plain text where the tokenizer has no such piece."""

    with_system: str  # the first message of the user behind a system message
    first: str  # the first without one
    again: str  # a later one, behind an answer
    end: str = ""  # a special piece that ends an answer, and must exist
    stop: bytes = b""  # a text that ends an answer
    strips: bool = False  # spaces around a message of the user are no part of it
    spaced: bool = False  # an answer begins with a space that is no part of it


_CHATML = "{<|im_start|>}user\n{user}{<|im_end|>}\n{<|im_start|>}assistant\n"
_ZEPHYR = "{<|user|>}\n{user}{eos}\n{<|assistant|>}\n"

TEMPLATES = {
    "chatml": Template(
        "{<|im_start|>}system\n{system}{<|im_end|>}\n" + _CHATML,
        _CHATML,
        "{<|im_end|>}\n" + _CHATML,
        end="<|im_end|>",
    ),
    "llama2": Template(
        "{bos}[INST] <<SYS>>\n{system}\n<</SYS>>\n\n{user} [/INST]",
        "{bos}[INST] {user} [/INST]",
        " {eos}{bos}[INST] {user} [/INST]",
        strips=True,
        spaced=True,
    ),
    "zephyr": Template("{<|system|>}\n{system}{eos}\n" + _ZEPHYR, _ZEPHYR, "{eos}\n" + _ZEPHYR),
    "plain": Template(
        "{begin}{system}\n\nUser: {user}\nAssistant:",
        "{begin}User: {user}\nAssistant:",
        "\nUser: {user}\nAssistant:",
        stop=b"\nUser:",
        spaced=True,
    ),
}
_WHITE = b" \t\n\v\f\r"


class ChatPrompt(NamedTuple):
    ids: array[int]
    ends: frozenset[int]  # ids that end the answer beside the tokenizer's own
    stops: tuple[bytes, ...]  # texts that end it
    spaced: bool


def _read(messages: Sequence[Any]) -> tuple[bytes | None, list[bytes]]:
    """The system message, and the texts of user and assistant in turn, the last of the user."""
    system: bytes | None = None
    turns: list[bytes] = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise ArgumentError(f"message {i} is {message!r:.80}; a message has a role and a content")
        role, content = message["role"], message["content"]
        if not isinstance(content, (str, bytes)):
            raise ArgumentError(f"message {i} has a content of type {type(content).__name__}; it must be str or bytes")
        text = bytes_of(content)
        if role == "system" and i == 0:
            system = text
        elif role == ("assistant" if len(turns) % 2 else "user"):
            turns.append(text)
        else:
            raise ArgumentError(
                f"message {i} has the role {role!r}; after at most one message of the system, user and assistant take turns, the user first"
            )
    if len(turns) % 2 == 0:
        raise ArgumentError("the last message is not one of the user, which is what would be answered")
    return system, turns


class _Writer:
    """Puts texts and ids one behind the other. Text between two special ids is encoded as a whole: how a word is cut depends on what stands
    before it."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.tokenizer, self.name = tokenizer, name
        self.template = TEMPLATES[name]
        self.ids: array[int] = array("i")
        self.eos = self._find_eos() if "{eos}" in self.template.again else -1
        self.text, self.flags = b"", 0

    def _find_eos(self) -> int:
        """The lowest id that ends a text and does not begin one as well, unless there is only that."""
        bos = lib.ml_tokenizer_bos(self.tokenizer)
        ends = [i for i in range(lib.ml_tokenizer_vocab(self.tokenizer)) if lib.ml_tokenizer_is_stop(self.tokenizer, i)]
        for token in [i for i in ends if i != bos] or ends:
            return token
        raise ArgumentError(f"the chat template {self.name} needs an id that ends a text, which this tokenizer does not have")

    def piece(self, name: str) -> int:
        """The id of a special piece, -1 if there is none."""
        ids = encode_text(self.tokenizer, name.encode(), lib.ML_ENCODE_SPECIAL | lib.ML_ENCODE_BEHIND)
        if len(ids) == 1:
            return ids[0]
        if self.template.end:
            raise ArgumentError(f"the chat template {self.name} needs the special piece {name}, which this tokenizer does not have")
        return -1

    def flush(self) -> None:
        if self.text:
            self.ids += encode_text(self.tokenizer, self.text, self.flags)
        self.text, self.flags = b"", lib.ML_ENCODE_BEHIND

    def put(self, pattern: str, system: bytes, user: bytes) -> None:
        for i, part in enumerate(re.split(r"\{(.+?)\}", pattern)):
            if i % 2 == 0:
                self.text += part.encode()
            elif part in ("system", "user"):
                self.text += system if part == "system" else user
            elif part == "begin":
                self.flags |= lib.ML_ENCODE_BOS
            else:
                token = lib.ml_tokenizer_bos(self.tokenizer) if part == "bos" else self.eos if part == "eos" else self.piece(part)
                if token >= 0:
                    self.flush()
                    self.ids.append(token)
                    self.flags = lib.ML_ENCODE_BEHIND_SPECIAL
                elif part not in ("bos", "eos"):
                    self.text += part.encode()
                if part == "bos":
                    self.flags = 0
        self.flush()

    def answer(self, text: bytes) -> None:
        """As if the model had said it."""
        if self.template.strips:
            text = text.strip(_WHITE)
        self.text = b" " + text if self.template.spaced else text
        self.flush()


def encode(tokenizer: Any, messages: Sequence[Any], name: str | None) -> ChatPrompt:
    """The messages, and what makes the model answer the last."""
    if name is None:
        name = str(ffi.string(lib.ml_tokenizer_template(tokenizer)).decode())
        if not name:
            raise ArgumentError(f"this tokenizer names no chat template: choose one with template=, known are {', '.join(TEMPLATES)}")
    if name not in TEMPLATES:
        raise ArgumentError(f"unknown chat template {name!r}: known are {', '.join(TEMPLATES)}")
    system, turns = _read(messages)
    if system is None:
        system = ffi.string(lib.ml_tokenizer_system(tokenizer))
    template, writer = TEMPLATES[name], _Writer(tokenizer, name)
    for i, text in enumerate(turns):
        if i % 2:
            writer.answer(text)
            continue
        if template.strips:
            text = text.rstrip(_WHITE) if system and i == 0 else text.strip(_WHITE)
        writer.put(template.again if i else template.with_system if system else template.first, system, text)
    ends = frozenset({writer.piece(template.end)} if template.end else ())
    return ChatPrompt(writer.ids, ends, (template.stop,) if template.stop else (), template.spaced)
