# SPDX-License-Identifier: BSD-3-Clause
"""Tokenizers of Hugging Face folders: tokenizer.json (byte-level BPE, BPE with byte fallback) or tokenizer.model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from . import chat, sentencepiece_model, tokenizer
from .errors import FormatError, about, require_file
from .sentencepiece_model import SentencePieceModel
from .tokenizer import Container, TokenizerFile

_SPACE = "\u2581"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = {_GPT2: tokenizer.WORDS_GPT2, _LLAMA3: tokenizer.WORDS_LLAMA3}


def read_folder(folder: Path) -> TokenizerFile | None:
    """The tokenizer of a model folder, None if there is none. Raises FormatError or OSError."""
    for name, read in (
        ("tokenizer.json", read_json),
        ("tokenizer.model", read_model),
        ("tokenizer.bin", tokenizer.read_plain),
    ):
        if (folder / name).is_file():
            with about(name):
                return read(folder / name)
    return None


def load_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises FormatError, InputError or OSError."""
    require_file(path)
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path.name}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path.name}: expected a JSON object")
    return value


def _load_if_there(path: Path) -> dict[str, Any]:
    return load_object(path) if path.is_file() else {}


def read_json(path: Path) -> TokenizerFile:
    """tokenizer.json, with what the files beside it say about special tokens and chat. Raises FormatError or OSError."""
    data = load_object(path)
    try:
        return _from_json(path.parent, data)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
        raise FormatError(f"not a tokenizer.json as expected: {type(error).__name__} {error}") from None


def _from_json(folder: Path, data: dict[str, Any]) -> TokenizerFile:
    model = data["model"]
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise FormatError(f"the tokenizer model {kind} is not known; BPE is")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise FormatError(f"{key} is {model[key]!r}, which cannot be represented")
    added = {int(entry["id"]): entry for entry in data.get("added_tokens") or []}
    tokens = _by_id(model["vocab"], {i: entry["content"] for i, entry in added.items()})
    merges = [tokenizer.split_merge(merge, rank) for rank, merge in enumerate(model["merges"])]
    notes = []
    trimmed = [
        entry["content"]
        for entry in added.values()
        if any(entry.get(key) for key in ("lstrip", "rstrip", "single_word"))
    ]
    if trimmed:
        notes.append(f"special piece {trimmed[0]!r} takes neighbouring spaces with it in the source, but not here")

    # A token of no id is an empty piece, which no text becomes.
    empty = {i for i, token in enumerate(tokens) if token == ""}
    if model.get("byte_fallback"):
        scores = tokenizer.merge_scores_of_characters(tokens, merges)
        byte_ids = [i for i, token in enumerate(tokens) if tokenizer.byte_of_name(token) is not None]
        unknown = model["vocab"].get(model.get("unk_token"), -1)
        container = tokenizer.sentencepiece(tokens, scores, set(added), byte_ids, empty | ({unknown} - {-1}))
        container.unk_id = unknown
        container.flags = _spaces(data, notes)
    else:
        if data.get("normalizer") is not None:
            raise FormatError(f"the normalizer {_names(data['normalizer'])} is not known; byte-level BPE has none")
        container = tokenizer.byte_level(tokens, merges, set(added))
        container.unk_id = model["vocab"].get(model.get("unk_token"), -1)
        container.pre = _words(data.get("pre_tokenizer"))
        container.flags = tokenizer.FLAG_WHOLE_WORDS if model.get("ignore_merges") else 0
    container.notes = notes
    return _finish(folder, container, tokens, _post_processor_begins_with(data.get("post_processor")))


def _by_id(vocab: dict[str, int], added: dict[int, str]) -> list[str]:
    """All tokens by id, "" where an id is not used."""
    by_id = {i: token for token, i in vocab.items()} | added
    n = max(by_id, default=-1) + 1
    if n == 0 or min(by_id) < 0 or n > 2 * len(by_id) + 1024:
        raise FormatError(f"{len(by_id)} pieces with ids up to {n - 1}; expected ids from 0 on")
    return [by_id.get(i, "") for i in range(n)]


def _steps(part: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    """The parts of a Sequence, nested or not; the name of the list differs."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [step for entry in part[inner] for step in _steps(entry, inner)]
    return [part]


def _names(part: dict[str, Any]) -> str:
    steps = _steps(part, "normalizers" if "normalizers" in part else "pretokenizers")
    return " + ".join(step["type"] for step in steps)


def _spaces(data: dict[str, Any], notes: list[str]) -> int:
    """The flags that say where a space is put. Raises FormatError unless spaces become U+2581 and nothing else happens."""
    before = each = escaped = metaspace = False
    for step in _steps(data.get("normalizer"), "normalizers"):
        if step == {"type": "Prepend", "prepend": _SPACE}:
            before = each = True
        elif step == {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}:
            escaped = True
        else:
            raise FormatError(f"the normalizer {step['type']} is not known")
    for step in _steps(data.get("pre_tokenizer"), "pretokenizers"):
        if step["type"] != "Metaspace" or step.get("replacement") != _SPACE or step.get("split", True):
            raise FormatError(f"the pre-tokenizer {step} is not known")
        scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
        before = before or scheme != "never"
        each = each or scheme == "always"
        escaped = metaspace = True
    if not escaped:
        raise FormatError("spaces do not become U+2581, which is not known with byte fallback")
    if metaspace and before:
        notes.append(
            "the source puts no space before a text that begins with one; here one is put there, as SentencePiece does"
        )
    return _space_flags(before, each)


def _space_flags(before: bool, behind: bool) -> int:
    return (tokenizer.FLAG_SPACE_BEFORE | (tokenizer.FLAG_SPACE_BEHIND if behind else 0)) if before else 0


def _words(pre_tokenizer: dict[str, Any] | None) -> int:
    """The container's number for how text is cut into words."""
    steps = _steps(pre_tokenizer, "pretokenizers")
    if steps and steps[-1]["type"] == "ByteLevel" and not steps[-1].get("add_prefix_space", True):
        first, regex = steps[:-1], steps[-1].get("use_regex", True)
        if not first:
            return tokenizer.WORDS_GPT2 if regex else tokenizer.WORDS_NONE
        if regex and first == [{"type": "Digits", "individual_digits": True}]:
            return tokenizer.WORDS_GPT2_DIGITS
        if not regex and len(first) == 1 and first[0]["type"] == "Split":
            split = first[0]
            known = _PATTERNS.get(split["pattern"].get("Regex"))
            if known is not None and split["behavior"] == "Isolated" and not split["invert"]:
                return known
    described = json.dumps(pre_tokenizer, ensure_ascii=False)
    raise FormatError(f"the pre-tokenizer {described} is not known")


def _post_processor_begins_with(processor: dict[str, Any] | None) -> str | None:
    """The special token that the post-processor puts before a text."""
    for step in _steps(processor, "processors"):
        if step["type"] == "TemplateProcessing" and step["single"] and "SpecialToken" in step["single"][0]:
            return step["single"][0]["SpecialToken"]["id"]
    return None


def _text(token: object) -> str | None:
    """A token in tokenizer_config.json: its text, or an object that has it."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _finish(folder: Path, container: Container, tokens: list[str], begins_with: str | None) -> TokenizerFile:
    """Begin and end of a text and the chat template, from the JSON files of the folder.

    begins_with: the piece that the tokenizer itself puts before a text.
    """
    config = _load_if_there(folder / "tokenizer_config.json")
    model = _load_if_there(folder / "config.json")
    generation = _load_if_there(folder / "generation_config.json")
    id_of = {token: i for i, token in enumerate(tokens) if token}
    bos = id_of.get(_text(config.get("bos_token")) or begins_with or "", model.get("bos_token_id"))
    container.bos_id = bos if isinstance(bos, int) and 0 <= bos < len(tokens) else -1
    add_bos = begins_with is not None and id_of.get(begins_with) == container.bos_id
    if str(config.get("tokenizer_class", "")).startswith("LlamaTokenizer"):
        add_bos = bool(config.get("add_bos_token", True))
    if add_bos and container.bos_id >= 0:
        container.flags |= tokenizer.FLAG_BOS

    stops: list[Any] = [id_of.get(_text(config.get("eos_token")) or "", -1)]
    for values in (model, generation):
        eos = values.get("eos_token_id")
        stops += eos if isinstance(eos, list) else [eos]
    stops += [i for i in container.special_ids if tokens[i] in chat.END_PIECES]
    container.stop_ids = [i for i in stops if isinstance(i, int) and 0 <= i < len(tokens)]

    template = config.get("chat_template")
    if isinstance(template, list):  # several by name
        template = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
    jinja = folder / "chat_template.jinja"
    if template is None and jinja.is_file():
        template = jinja.read_text(encoding="utf-8")
    if isinstance(template, str):
        container.template, container.system = chat.recognise(template)
    return container.pack()


def read_model(path: Path) -> TokenizerFile:
    """tokenizer.model, with what the files beside it say. Raises FormatError or OSError."""
    model = sentencepiece_model.read(path)
    config = _load_if_there(path.parent / "tokenizer_config.json")
    added = config.get("added_tokens_decoder") or {}
    # What transformers takes a file for that does not say it: one from before the choice.
    legacy = config.get("legacy") is None or bool(config["legacy"])
    try:
        return _from_model(path.parent, model, {int(i): _text(entry) for i, entry in added.items()}, legacy)
    except (TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"the files beside it are not as expected: {error}") from None


def _from_model(
    folder: Path, model: SentencePieceModel, added: dict[int, str | None], legacy: bool
) -> TokenizerFile:
    tokens = list(model.tokens)
    special = set(model.special)
    for i, content in sorted(added.items()):
        if content is None or i > len(tokens):
            raise FormatError(f"added token {i} does not continue the {len(tokens)} pieces")
        if i == len(tokens):
            tokens.append(content)
        elif tokens[i] != content:
            raise FormatError(f"added token {i} is {content!r}, which is {tokens[i]!r} here")
        special.add(i)
    scores = np.concatenate([model.scores, np.zeros(len(tokens) - len(model.scores))])
    container = tokenizer.sentencepiece(tokens, scores, special, model.byte_ids, model.unused)
    container.unk_id = model.unk_id
    container.flags = _space_flags(model.space_before, legacy)
    return _finish(folder, container, tokens, "<s>" if "<s>" in tokens else None)
