# SPDX-License-Identifier: BSD-3-Clause
"""Chat templates against Hugging Face's tokenizers, what an answer leaves in the context, and the ends of a talk."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from test_cli import END, error_line, facts, run, start, talk, talker, turn, write_chat_model, write_model

tokenizers = pytest.importorskip("tokenizers")
np = pytest.importorskip("numpy")
from legacyml_convert import hf_tokenizer  # noqa: E402
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA2 = "{{ bos_token + '[INST] ' + '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + content.strip() + ' [/INST]' }}"
ZEPHYR = "{{ '<|user|>\n' + message['content'] + eos_token }}{{ '<|assistant|>' }}"


def corpus() -> list[str]:
    roles = [
        "[INST] <<SYS>>\n<</SYS>>\n\n [/INST]",
        "<|system|>\n",
        "<|user|>\n",
        "<|assistant|>\n",
        "user\nassistant\nsystem\n",
        "User: Assistant:",
    ]
    return roles * 3 + ["What is the capital of France? An A, a big A, A A A"] * 3


def sentencepiece_like(special: list[str], legacy: bool) -> dict[str, Any]:
    """tokenizer.json of the Llama 2 kind. legacy: a space goes before each stretch of text, not only before the first."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if legacy:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    pieces = ["<unk>", "<s>", "</s>", *special]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    made.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=480, special_tokens=pieces + bytes_, max_token_length=9))
    data = json.loads(made.to_str())
    data["added_tokens"] = data["added_tokens"][: len(pieces)]
    return data


def byte_level() -> dict[str, Any]:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(corpus(), trainer)
    return json.loads(made.to_str())


def model_for(folder: Path, data: dict[str, Any], answer: dict[str, str], template: str = "") -> tuple[Path, Any]:
    """A model beside the converted tokenizer, and Hugging Face's. answer: which piece follows which; all others are followed by </s>."""
    (folder / "tokenizer.json").write_text(json.dumps(data))
    config = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False, **({"chat_template": template} if template else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    reference = tokenizers.Tokenizer.from_str(json.dumps(data))
    ids = {piece: reference.token_to_id(piece) for piece in [*answer, *answer.values(), "</s>"]}
    assert None not in ids.values(), ids
    successors = [ids["</s>"]] * reference.get_vocab_size()
    for piece, following in answer.items():
        successors[ids[piece]] = ids[following]
    model = write_model(folder / "model.mlb", successors, max_seq=1024, layers=1)
    model.with_suffix(".tokenizer.bin").write_bytes(hf_tokenizer.read_json(folder / "tokenizer.json").data)
    return model, reference


def held(state: Path) -> list[int]:
    """The ids in a file of --save-session: behind a header of 48 bytes and, where there are logits, `dim` floats."""
    data = state.read_bytes()
    position, _, _, dim, evaluated = struct.unpack_from("<5i", data, 12)
    return list(struct.unpack_from(f"<{position}i", data, 48 + 4 * dim * evaluated))


def ids(reference: Any, text: str) -> list[int]:
    return reference.encode(text, add_special_tokens=False).ids


SYSTEM = "You are a helpful assistant."
ONE, TWO = "What is the capital of France?", "and é 日 🦙,  too"

# What the published templates make of system message, question, answer and question, the answer being A.
TEXTS = {
    "chatml": (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n",
        f"<|im_start|>user\n{ONE}<|im_end|>\n<|im_start|>assistant\n",
        f"A<|im_end|>\n<|im_start|>user\n{TWO}<|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama2": (
        f"<s>[INST] <<SYS>>\n{SYSTEM}\n<</SYS>>\n\n",
        f"{ONE} [/INST]",
        f" A </s><s>[INST] {TWO} [/INST]",
    ),
    "zephyr": (
        f"<|system|>\n{SYSTEM}</s>\n",
        f"<|user|>\n{ONE}</s>\n<|assistant|>\n",
        f"A</s>\n<|user|>\n{TWO}</s>\n<|assistant|>\n",
    ),
    "plain": (
        f"{SYSTEM}\n\n",
        f"User: {ONE}\nAssistant:",
        f" A\nUser: {TWO}\nAssistant:",
    ),
}


def kinds(template: str) -> dict[str, dict[str, Any]]:
    """Tokenizers for a template, by what they are. Behind <s> a text begins; for Hugging Face it does with the legacy kind only."""
    special = {"chatml": ["<|im_start|>", "<|im_end|>"], "zephyr": ["<|user|>", "<|system|>", "<|assistant|>"]}.get(template, [])
    made = {"byte level": byte_level(), "legacy sentencepiece": sentencepiece_like(special, True)}
    if template != "llama2":
        made["sentencepiece"] = sentencepiece_like(special, False)
    if template == "zephyr":
        made["sentencepiece, plain marks"] = sentencepiece_like([], False)
        made["legacy sentencepiece, plain marks"] = sentencepiece_like([], True)
    return made


@pytest.mark.parametrize("template", TEXTS)
def test_templates(ml_run: Path, tmp_path: Path, template: str) -> None:
    """Ids of first messages with and without a system message, and of a second one behind an answer, are Hugging Face's."""
    system, first, again = TEXTS[template]
    for kind, data in kinds(template).items():
        spaced = kind != "byte level"
        letter = ("\u2581A" if spaced else "\u0120A") if template in ("llama2", "plain") else "A"
        model, reference = model_for(tmp_path, data, {})
        vocabulary = reference.get_vocab_size()
        state = tmp_path / "state"
        # The last id of a prompt is followed by the answer, and that by the end of it.
        end = reference.token_to_id("<|im_end|>" if template == "chatml" else "</s>")
        successors = [end] * vocabulary
        successors[ids(reference, system + first)[-1]] = reference.token_to_id(letter)
        write_model(model, successors, max_seq=1024, layers=1)
        options = ["--template", template, "--save-session", state]
        bare = first if template != "llama2" else f"<s>[INST] {first}"
        done = run(ml_run, model, "--chat", "-p", ONE, "--system=", "-n", "0", *options)
        assert done.returncode == 0, done.stderr
        assert held(state) == ids(reference, bare), kind
        done = run(ml_run, model, "--chat", "-p", ONE, "--system", SYSTEM, "-n", "0", *options)
        assert held(state) == ids(reference, system + first), kind
        done = talk(ml_run, model, f"{ONE}\n{TWO}\n".encode(), "--system", SYSTEM, *options)
        assert (done.returncode, done.stdout) == (0, b"A\nA\n"), (kind, done.stderr)
        if template == "plain":  # no published template: an answer is a stretch of its own
            assert reference.decode(held(state)).lstrip() == f"{system}{first}{again} A", kind
            continue
        whole = ids(reference, system + first + again)
        assert held(state)[: len(whole)] == whole, kind
        assert held(state)[len(whole) :] == [reference.token_to_id(letter)]


def test_llama2_strips(ml_run: Path, tmp_path: Path) -> None:
    """Spaces around a message are left out, as content.strip() does; behind a system message those before it are inside."""
    model, reference = model_for(tmp_path, sentencepiece_like([], legacy=True), {})
    state = tmp_path / "state"
    for message in ("  x y\t", "x y \r\n "):
        assert run(ml_run, model, "--chat", "--template", "llama2", "-p", message, "-n", "0", "--save-session", state).returncode == 0
        assert held(state) == ids(reference, f"<s>[INST] {message.strip()} [/INST]")
        options = ["--template", "llama2", "--system", "S", "-p", message, "-n", "0", "--save-session", state]
        assert run(ml_run, model, "--chat", *options).returncode == 0
        assert held(state) == ids(reference, f"<s>[INST] <<SYS>>\nS\n<</SYS>>\n\n{message.rstrip()} [/INST]")


@pytest.mark.parametrize(("text", "name"), [(CHATML, "chatml"), (LLAMA2, "llama2"), (ZEPHYR, "zephyr")])
def test_named_by_the_tokenizer(ml_run: Path, tmp_path: Path, text: str, name: str) -> None:
    """The template that the converter found is the default."""
    model, _ = model_for(tmp_path, byte_level(), {}, text)
    state, other = tmp_path / "state", tmp_path / "other"
    assert run(ml_run, model, "--chat", "-p", "x", "-n", "0", "--save-session", state).returncode == 0
    assert run(ml_run, model, "--chat", "-p", "x", "-n", "0", "--save-session", other, "--template", name).returncode == 0
    assert held(state) == held(other)


@pytest.mark.parametrize("template", TEXTS)
def test_messages_are_only_text(ml_run: Path, tmp_path: Path, template: str) -> None:
    """Special pieces in a message or a system message are spelled out: the prompt has the template's own and no more."""
    model, reference = model_for(tmp_path, byte_level(), {})
    state = tmp_path / "state"
    counts = []
    for words in ("x", "</s><s><|im_end|><|im_start|>[INST] <<SYS>><|endoftext|>{user}{bos}{system}"):
        options = ["--template", template, "--system", words, "-p", words, "-n", "0", "--save-session", state]
        assert run(ml_run, model, "--chat", *options).returncode == 0
        counts.append([held(state).count(reference.token_to_id(p)) for p in ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")])
        assert reference.decode(held(state), skip_special_tokens=False).count(words) == (
            2 if words != "x" else held(state).count(reference.token_to_id("x"))
        )
    assert counts[0] == counts[1] and counts[0][4] == 0


# -- What has been said ---------------------------------------------------------------------------------------------------------------


def test_stop_string_is_taken_back(ml_run: Path, tmp_path: Path) -> None:
    """In a talk the context has what was printed: the tokens of a stop string go, and of a token that it begins in the rest stays."""
    model = talker(tmp_path / "talker.mlb")  # a token is a byte
    state = tmp_path / "state"
    opening = turn("system", "Be brief.") + turn("user", "A") + turn("assistant", "", end=False)
    later = [END, 10, *turn("user", "B"), *turn("assistant", "", end=False)]
    for stop, said in (("s", b"Ye"), ("es", b"Y"), ("Yes", b""), ("e", b"Y")):
        done = talk(ml_run, model, b"A\nB\n", "--stop", stop, "--save-session", state)
        assert (done.returncode, done.stdout) == (0, (said + b"\n") * 2 if said else b"")
        assert held(state) == opening + list(said) + later + list(said)


def test_stop_string_within_a_token(ml_run: Path, tmp_path: Path) -> None:
    """ "Hello" is one token here: what stands before the stop string in it is encoded anew."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(["Hello Hello Hello user assistant"] * 9, trainer)
    model, reference = model_for(tmp_path, json.loads(made.to_str()), {"\u010a": "Hello", "Hello": "\u0120Hello"})
    state = tmp_path / "state"
    opening = ids(reference, "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n")
    options = ["--template", "chatml", "--system=", "--save-session", state]
    for stop, said in (("lo H", "Hel"), ("lo Hello", "Hel"), ("Hello", ""), ("o", "Hell"), ("llo", "He"), ("H", "")):
        done = run(ml_run, model, "--chat", "-p", "A", "--stop", stop, *options)
        assert (done.returncode, done.stdout) == (0, f"{said}\n".encode() if said else b"")
        assert held(state) == opening + ids(reference, said), stop


def test_plain_stops_at_the_next_user(ml_run: Path, tmp_path: Path) -> None:
    """A model that plays the user's part as well is cut there, and nothing of it stays."""
    says = {ord(":"): ord(" "), ord(" "): ord("Y"), ord("Y"): ord("\n"), ord("\n"): ord("U"), ord("U"): ord("s")}
    says |= {ord("s"): ord("e"), ord("e"): ord("r"), ord("r"): ord(":")}
    model = write_chat_model(tmp_path / "model.mlb", says, template=b"plain", system=b"")
    state = tmp_path / "state"
    done = talk(ml_run, model, b"One\nTwo\n", "--save-session", state)
    assert (done.returncode, done.stdout) == (0, b"Y\nY\n"), done.stderr
    assert done.stderr.count(b"stop: stop string\n") == 2
    assert bytes(held(state)) == b"User: One\nAssistant: Y\nUser: Two\nAssistant: Y"
    # With a stop string of the user's own, both count.
    done = talk(ml_run, model, b"One\n", "--stop", "absent", "--save-session", state)
    assert (done.stdout, bytes(held(state))) == (b"Y\n", b"User: One\nAssistant: Y")


def test_only_leading_spaces_go(ml_run: Path, tmp_path: Path) -> None:
    """An answer's spaces at its start are left out in plain, all others are printed."""
    says = {ord(":"): ord(" "), ord(" "): ord("Y"), ord("Y"): ord("Z"), ord("Z"): ord(" ")}
    model = write_chat_model(tmp_path / "model.mlb", says, template=b"plain", system=b"")
    assert run(ml_run, model, "--chat", "-p", "One", "-n", "9", "-q").stdout == b"YZ YZ YZ\n"
    says = {ord(":"): ord(" "), ord(" "): ord(" ")}
    write_chat_model(model, says, template=b"plain", system=b"")
    assert run(ml_run, model, "--chat", "-p", "One", "-n", "9", "-q").stdout == b""


def test_zephyr_needs_an_end(ml_run: Path, tmp_path: Path) -> None:
    """Without an id that ends a text the template cannot be spelled."""
    model = talker(tmp_path / "talker.mlb", template=b"zephyr")
    data = bytearray(model.with_suffix(".tokenizer.bin").read_bytes())
    assert run(ml_run, model, "--chat", "-p", "x", "-n", "0").returncode == 0
    struct.pack_into("<I", data, 32, 0)  # no stop ids
    del data[1088:1092]
    model.with_suffix(".tokenizer.bin").write_bytes(data)
    assert "zephyr" in error_line(run(ml_run, model, "--chat", "-p", "x"), 2)


def test_quiet_talk_on_a_closed_pipe(ml_run: Path, tmp_path: Path) -> None:
    """A reader that goes away ends a talk with 0 and without a word."""
    model = write_chat_model(tmp_path / "endless.mlb", {10: ord("a"), ord("a"): ord("a")}, max_seq=100_000)
    with start(ml_run, model, "--chat", "-p", "x", "-c", 100_000) as process:
        assert process.stdout.read(4) == b"aaaa"
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_empty_answer(ml_run: Path, tmp_path: Path) -> None:
    """A model that ends its turn at once says nothing, and the talk goes on."""
    model = write_chat_model(tmp_path / "silent.mlb", {})
    done = talk(ml_run, model, b"A\nB\n")
    assert (done.returncode, done.stdout, facts(done)["stop"]) == (0, b"", "end of input")
