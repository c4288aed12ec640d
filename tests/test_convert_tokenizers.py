# SPDX-License-Identifier: BSD-3-Clause
"""Tokenizers that come with a model: containers read back by an encoder written from docs/formats.md, against the libraries' ids."""

from __future__ import annotations

import dataclasses
import json
import re
import struct
from pathlib import Path
from typing import Any, Callable

import gguf
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from test_convert import hf_folder, hf_tensors, make_header, make_weights, run, write_gguf, write_llama2c

from legacyml_convert import ConvertError, MlbFile, cli, quant
from legacyml_convert.tokenizer import TokenizerFile

LLAMA3_REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<unk>", "<s>", "</s>"]
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a test.\nBe brief.<|im_end|>\n' }}{% endif %}{% endfor %}"
)


# -- A reader and encoder of its own ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Container:
    """The fields of docs/formats.md."""

    kind: int
    flags: int
    pre: int
    bos: int
    unk: int
    stop: list[int]
    special: list[int]
    system: str
    template: str
    byte_table: tuple[int, ...]
    pieces: list[bytes]
    scores: list[float]

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which special pieces are recognised, without bos."""
        by_text = {self.pieces[i].decode(): i for i in reversed(self.special)}
        pattern = "|".join(re.escape(piece) for piece in sorted(by_text, key=len, reverse=True))
        parts = re.split(f"({pattern})", text) if pattern else [text]
        ids: list[int] = []
        for i, part in enumerate(parts):
            if i % 2:
                ids.append(by_text[part])
            elif part:
                space = " " if self.flags & 1 and (not ids or self.flags & 8) else ""
                ids += [x for word in self.words(space + part) for x in self.merge(word)]
        return ids

    def words(self, text: str) -> list[str]:
        """The text cut into words by the libraries' own splitters."""
        gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        splitters = {
            1: gpt2,
            2: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2]),
            3: pre_tokenizers.Split(tokenizers.Regex(LLAMA3_REGEX), "isolated"),
        }
        if self.pre == 0:
            return [text]
        return [text[begin:end] for _, (begin, end) in splitters[self.pre].pre_tokenize_str(text)]

    def merge(self, word: str) -> list[int]:
        """Joins the best pair, the leftmost of equals, until none is a piece."""
        joined: dict[bytes, int] = {}
        hidden = {*self.special, *(x for x in self.byte_table if self.kind == 1)}
        for i, piece in enumerate(self.pieces):
            if piece and i not in hidden and self.scores[i] > -1e30:
                joined.setdefault(piece, i)
        data = word.encode()
        if self.flags & 2 and data in self.pieces:
            return [self.pieces.index(data)]
        symbols = [bytes([byte]) for byte in data] if self.kind == 2 else [character.encode() for character in word]
        while True:
            pairs = [
                (-self.scores[joined[a + b]], i)
                for i, (a, b) in enumerate(zip(symbols, symbols[1:]))
                if a + b in joined
            ]
            if not pairs:
                break
            i = min(pairs)[1]
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        ids = []
        for symbol in symbols:
            if symbol in joined:
                ids.append(joined[symbol])
            else:
                spelled = [self.byte_table[byte] for byte in symbol]
                ids += spelled if -1 not in spelled else [self.unk] * (self.unk >= 0)
        return ids


def unpack(data: bytes) -> Container:
    """A container file, field by field."""
    assert data[:4] == b"MLT1" and struct.unpack_from("<I", data, 4)[0] == 1
    kind, n, flags, pre, bos, unk, n_stop, n_special, n_system, n_bytes = struct.unpack_from("<4I2i4I", data, 8)
    template = data[48:64].rstrip(b"\0").decode("ascii")
    table = struct.unpack_from("<256i", data, 64)
    at = 64 + 1024
    stop = list(struct.unpack_from(f"<{n_stop}i", data, at))
    special = list(struct.unpack_from(f"<{n_special}i", data, at + 4 * n_stop))
    at += 4 * (n_stop + n_special)
    system = data[at : at + n_system].decode()
    at += n_system
    scores = list(struct.unpack_from(f"<{n}f", data, at))
    lengths = struct.unpack_from(f"<{n}I", data, at + 4 * n)
    at += 8 * n
    assert at + n_bytes == len(data) and sum(lengths) == n_bytes and len(set(special)) == n_special
    pieces = []
    for length in lengths:
        pieces.append(data[at : at + length])
        at += length
    return Container(kind, flags, pre, bos, unk, stop, special, system, template, table, pieces, scores)


# -- Tokenizers made here ----------------------------------------------------------------------------------------------------


def corpus() -> list[str]:
    """Text of this repository."""
    top = Path(__file__).resolve().parent.parent
    return [line for path in sorted(top.glob("docs/*.md")) for line in path.read_text().splitlines()]


TEXTS = [
    "", " ", "  two  spaces ", "a", "Hello, world!", "It's 12345 o'clock, isn't it?\r\n\n\tyes", "tokens and a Tokenizer 007", "naïve café",
    "snow ☃ and 😀😀", "e\u0301", "<0x41>", "x<s>y</s> z", "</s>", "  leading<unk>", "\u00a0nbsp", "日本語 text", "a\nb\n\nc   d\n   ",
    "The file ends with the last piece. Nothing is aligned.",
]  # fmt: skip


def byte_level(pre: pre_tokenizers.PreTokenizer, ignore_merges: bool = False) -> tokenizers.Tokenizer:
    """A byte-level BPE of about 600 pieces with three special ones, which begins a text with <s>."""
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer = pre
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        corpus(), trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return made


def byte_fallback(metaspace: str | None) -> dict[str, Any]:
    """tokenizer.json of the Llama 2 kind: <0x00> to <0xFF> stand for bytes, U+2581 for a space."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if metaspace:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=False)
    else:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL + bytes_, max_token_length=8)
    made.train_from_iterator(corpus(), trainer)
    data = json.loads(made.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    return data


def folder_with(tmp_path: Path, data: dict[str, Any] | str, **configs: dict[str, Any]) -> Path:
    """tokenizer.json and the files that configs names beside it."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "tokenizer.json").write_text(data if isinstance(data, str) else json.dumps(data))
    for name, config in configs.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(config))
    return tmp_path / "tokenizer.json"


def check_ids(container: Container, reference: tokenizers.Tokenizer) -> None:
    """Equal ids on all texts; the check has merges to look at."""
    lengths = 0
    for text in TEXTS + corpus()[::7]:
        expected = reference.encode(text, add_special_tokens=False).ids
        assert container.encode(text) == expected, text
        lengths += len(text) - len(expected)
    assert lengths > 300


# -- Byte-level BPE ----------------------------------------------------------------------------------------------------------

PRE = {
    1: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    2: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    ),
    3: pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(LLAMA3_REGEX), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
}


@pytest.mark.parametrize("pre", PRE)
@pytest.mark.parametrize("ignore_merges", [False, True])
def test_byte_level(tmp_path: Path, pre: int, ignore_merges: bool) -> None:
    made = byte_level(PRE[pre], ignore_merges)
    container = unpack(cli.read_tokenizer(folder_with(tmp_path, made.to_str())).data)
    assert (container.kind, container.pre, container.flags) == (2, pre, 4 | 2 * ignore_merges)
    assert (container.bos, container.unk, container.special, container.stop) == (1, -1, [0, 1, 2], [])
    assert container.pieces[:3] == [b"<unk>", b"<s>", b"</s>"] and container.scores[:3] == [np.float32(-1e30)] * 3
    assert sorted(container.byte_table) == sorted(set(container.byte_table)) and -1 not in container.byte_table
    check_ids(container, made)


def test_byte_level_vectors(tmp_path: Path, data: Path) -> None:
    """The reference tokenizer's ids, and the same container from a GGUF file with the same vocabulary."""
    folder = data / "tokenizers/bytelevel600"
    text = (folder / "tokenizer.json").read_text()
    container = unpack(cli.read_tokenizer(folder_with(tmp_path / "hf", text)).data)
    assert container.pre == 2
    vectors = json.loads((folder / "vectors.json").read_text())
    assert len(vectors) > 100
    for vector in vectors:
        assert container.encode(vector["text"]) == vector["ids"], vector["text"]

    model = json.loads(text)["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(tokens)
        writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
        writer.add_token_merges(merges)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_chat_template(CHATML)

    header = make_header(vocab=len(tokens))
    write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=add)
    assert run(tmp_path / "m.gguf", tmp_path / "m.mlb") == 0
    other = unpack((tmp_path / "m.tokenizer.bin").read_bytes())
    assert (other.pieces, other.scores, other.byte_table) == (container.pieces, container.scores, container.byte_table)
    assert (other.pre, other.flags, other.special, other.bos, other.unk) == (2, 0, [0, 1, 2], 1, -1)
    # <|endoftext|> and <|im_end|> end a text whatever the file calls its end.
    assert other.stop == [0, 2] and other.template == "chatml" and other.system == "You are a test.\nBe brief."


# -- SentencePiece kind ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metaspace", [None, "first", "always", "never"])
def test_byte_fallback(tmp_path: Path, metaspace: str | None) -> None:
    """A space before the text, behind special pieces too, or nowhere."""
    data = byte_fallback(metaspace)
    read = cli.read_tokenizer(folder_with(tmp_path, data))
    container = unpack(read.data)
    flags = {None: 9, "first": 1, "always": 9, "never": 0}[metaspace]
    assert (container.kind, container.pre, container.flags, container.unk) == (1, 0, flags, 0)
    assert container.byte_table == tuple(range(3, 259)) and container.pieces[3 + 10] == b"\n"
    # One habit of the library is said and not imitated: Metaspace puts none before a text that begins with one.
    imitated = metaspace in (None, "never")
    assert [note for note in read.notes if "begins with one" not in note] == [] and len(read.notes) == (not imitated)
    reference = tokenizers.Tokenizer.from_str(json.dumps(data))
    behind = ["</s>x", "a</s>b c<s>d", "<|user|>\nHi</s>\n<|assistant|>\n", "</s></s>x"]
    for text in TEXTS + behind + corpus()[::7]:
        if imitated or not re.search("(^|<unk>|</?s>) ", text):
            assert container.encode(text) == reference.encode(text, add_special_tokens=False).ids, text


def test_one_byte_special_piece(tmp_path: Path) -> None:
    """The space behind special pieces cannot go with a special piece of one byte: it is left out, and that is said."""
    data = byte_fallback(None)
    data["added_tokens"].append({**data["added_tokens"][0], "id": 700, "content": "|"})
    read = cli.read_tokenizer(folder_with(tmp_path, data))
    assert unpack(read.data).flags == 1
    assert [note for note in read.notes if "has one byte" in note] == list(read.notes)


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece BPE as Llama 2's is trained."""
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    folder = tmp_path_factory.mktemp("sp")
    (folder / "text").write_text("\n".join(corpus()))
    options = dict(
        input=str(folder / "text"),
        vocab_size=600,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
    )
    options |= dict(
        remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True, character_coverage=0.99
    )
    trainer.train(model_prefix=str(folder / "tokenizer"), user_defined_symbols=["<tool>"], minloglevel=2, **options)
    return folder / "tokenizer.model"


def test_sentencepiece(tmp_path: Path, sentencepiece_model: Path) -> None:
    """Ids of the library, and the same container from a GGUF file made of the same pieces."""
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_model))
    container = unpack(cli.read_tokenizer(sentencepiece_model).data)
    assert (container.kind, container.pre, container.flags) == (1, 0, 1 | 4 | 8)
    assert (container.bos, container.unk, container.special, container.stop) == (1, 0, [0, 1, 2, 3], [])
    # The legacy tokenizer gives SentencePiece each part between special pieces by itself.
    parts = ["Once", "\nHi", " x"]
    expected = [x for part, end in zip(parts, (2, 1, 2)) for x in [*library.encode(part), end]]
    assert container.encode("Once</s>\nHi<s> x</s>") == expected
    for text in TEXTS + corpus()[::7]:
        if not any(piece in text for piece in SPECIAL):  # which the library never takes for more than text
            assert container.encode(text) == library.encode(text), text

    n = library.get_piece_size()
    kinds = [
        2 if library.is_unknown(i) else 3 if library.is_control(i) else 6 if library.is_byte(i) else 4 if i == 3 else 1
        for i in range(n)
    ]

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list([library.id_to_piece(i) for i in range(n)])
        writer.add_token_scores([library.get_score(i) for i in range(n)])
        writer.add_token_types(kinds)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_space_prefix(True)

    header = make_header(vocab=n)
    write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=add)
    other = unpack(cli.read_tokenizer(tmp_path / "m.gguf").data)
    assert dataclasses.replace(other, stop=[]) == container and other.stop == [2]


@pytest.mark.parametrize("config, flags", [({}, 13), ({"legacy": None}, 13), ({"legacy": True}, 13), ({"legacy": False}, 5)])
def test_legacy(tmp_path: Path, sentencepiece_model: Path, config: dict[str, Any], flags: int) -> None:
    """tokenizer_config.json says whether special pieces have a space behind them; one that does not say it is legacy."""
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert unpack(cli.read_tokenizer(tmp_path / "tokenizer.model").data).flags == flags


@pytest.mark.parametrize("add_space, flags", [(None, 9), (True, 9), (False, 0)])
def test_spaces_of_gguf(tmp_path: Path, add_space: bool | None, flags: int) -> None:
    """A GGUF file has no more than add_space_prefix, which llama.cpp obeys behind special pieces too."""

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(["<unk>", "<s>", "</s>", *"abcdefg"])
        writer.add_token_scores([0.0] * 10)
        writer.add_token_types([2, 3, 3, *[1] * 7])
        if add_space is not None:
            writer.add_add_space_prefix(add_space)

    header = make_header(vocab=10)
    write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=add)
    assert unpack(cli.read_tokenizer(tmp_path / "m.gguf").data).flags == flags


# -- What the files beside it say -----------------------------------------------------------------------------------------------


def test_special_ids_and_templates(tmp_path: Path) -> None:
    made = byte_level(PRE[1])
    text = made.to_str()

    def container(**configs: dict[str, Any]) -> Container:
        for path in tmp_path.iterdir():
            path.unlink()
        return unpack(cli.read_tokenizer(folder_with(tmp_path, text, **configs)).data)

    one = container(
        tokenizer_config=dict(bos_token={"content": "<s>"}, eos_token="</s>", chat_template=CHATML),
        config=dict(eos_token_id=[2, 9]),
        generation_config=dict(eos_token_id=11),
    )
    assert (one.bos, one.stop, one.flags) == (1, [2, 9, 11], 4)
    assert (one.template, one.system) == ("chatml", "You are a test.\nBe brief.")
    assert container(config=dict(eos_token_id=None), generation_config=dict(eos_token_id=10**9)).stop == []
    two = container(tokenizer_config=dict(tokenizer_class="LlamaTokenizerFast", add_bos_token=False, bos_token="<s>"))
    assert (two.bos, two.flags) == (1, 0)
    templates = {
        "{% if x %}{{ '[INST] <<SYS>>' + system + '<</SYS>>' }}{% endif %}": ("llama2", ""),
        "{{ '<|user|>\n' + m + eos_token }}{{ '<|assistant|>' }}": ("zephyr", ""),
        "{{ '<|user|>' + m + '<|end|>' }}{{ '<|assistant|>' }}": ("", ""),
        "{{ '<|im_start|>system\n' + message['content'] + '<|im_end|>' }}": ("chatml", ""),
        "{{ '<|im_start|>system\\nTwo\\nlines<|im_end|>\\n' }}": ("chatml", "Two\nlines"),
        "{{ '<|start_header_id|>' }}": ("", ""),
    }
    for template, expected in templates.items():
        found = container(tokenizer_config=dict(chat_template=template))
        assert (found.template, found.system) == expected, template
    several = [dict(name="tool", template="x"), dict(name="default", template=CHATML)]
    assert container(tokenizer_config=dict(chat_template=several)).template == "chatml"
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "chat_template.jinja").write_text(CHATML)
    assert unpack(cli.read_tokenizer(tmp_path / "tokenizer.json").data).template == "chatml"


def test_unknown_tokenizers_are_refused(tmp_path: Path) -> None:
    good = json.loads(byte_level(PRE[1]).to_str())
    fallback = byte_fallback("first")
    gpt2 = dict(type="ByteLevel", add_prefix_space=False, use_regex=True, trim_offsets=True)
    split = dict(type="Split", pattern={"Regex": r"\d+"}, behavior="Isolated", invert=False)

    def refused(data: dict[str, Any], words: str, **changes: Any) -> None:
        changed = json.loads(json.dumps(data))
        for key, value in changes.items():
            target = changed if key in changed else changed["model"]
            target[key] = value
        path = folder_with(tmp_path, changed)
        with pytest.raises(ConvertError, match=re.escape(words)) as error:
            cli.read_tokenizer(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)

    refused(good, "Unigram", model=dict(type="Unigram", vocab=[["a", 0.0]]))
    refused(good, "WordPiece", model=dict(type="WordPiece", vocab={"a": 0}))
    refused(good, r"\\d+", pre_tokenizer=dict(type="Sequence", pretokenizers=[split, {**gpt2, "use_regex": False}]))
    refused(good, "Whitespace", pre_tokenizer=dict(type="Whitespace"))
    refused(good, "add_prefix_space", pre_tokenizer={**gpt2, "add_prefix_space": True})
    refused(good, "pre-tokenizer null", pre_tokenizer=None)
    refused(good, "NFC", normalizer=dict(type="NFC"))
    refused(good, "end_of_word_suffix", end_of_word_suffix="</w>")
    refused(good, "merge 0", merges=[["a"]])
    refused(good, "not in the vocabulary", merges=[["q", "\u0120\u0120\u0120z"]])
    refused(good, "ids up to 1000000", vocab={"a": 1000000})
    refused(fallback, "NFKC", normalizer=dict(type="NFKC"))
    refused(fallback, "Metaspace", pre_tokenizer={**fallback["pre_tokenizer"], "split": True})
    refused(fallback, "U+2581", pre_tokenizer=None)
    for broken in (
        "[]",
        "{}",
        '{"model": 1}',
        '{"model": {"vocab": [], "merges": 3}}',
        "{",
        '{"model": {"vocab": {"a": "b"}, "merges": []}}',
    ):
        with pytest.raises(ConvertError):
            cli.read_tokenizer(folder_with(tmp_path, broken))


def test_unknown_gguf_tokenizers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = make_header(vocab=4)

    def with_tokenizer(model: str, pre: str | None, **lists: list[Any]) -> Callable[[gguf.GGUFWriter], None]:
        def add(writer: gguf.GGUFWriter) -> None:
            writer.add_tokenizer_model(model)
            if pre is not None:
                writer.add_tokenizer_pre(pre)
            writer.add_token_list(lists.get("tokens", ["a", "b", "c", "ab"]))
            writer.add_token_types(lists.get("types", [1, 1, 1, 1]))
            writer.add_token_merges(lists.get("merges", ["a b"]))

        return add

    faults = [
        (with_tokenizer("gpt2", "qwen2"), "pre-tokenizer qwen2"),
        (with_tokenizer("gpt2", None), "pre-tokenizer default"),
        (with_tokenizer("bert", None), "model bert"),
        (with_tokenizer("llama", None), "tokenizer.ggml.scores is missing"),
        (with_tokenizer("gpt2", "gpt-2", types=[1, 1, 1]), "4 tokens with 3 types"),
        (with_tokenizer("gpt2", "gpt-2", merges=["a x"]), "'ax'"),
        (
            with_tokenizer("gpt2", "gpt-2", tokens=["a", "b", "c", "ab", "d"], types=[1] * 5),
            "5 pieces, the model has 4",
        ),
    ]
    for add, words in faults:
        write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=add)
        assert run(tmp_path / "m.gguf", tmp_path / "m.mlb") in (4, 5)
        assert words in capsys.readouterr().err
    write_gguf(tmp_path / "m.gguf", header, make_weights(header), add=with_tokenizer("gpt2", "gpt-2"))
    assert run(tmp_path / "m.gguf", tmp_path / "m.mlb") == 0


# -- Counts, and plain files ---------------------------------------------------------------------------------------------------


def plain(n: int) -> bytes:
    """tokenizer.bin with n pieces."""
    pieces = [b"<unk>", b"<s>", b"</s>", *(b"p%d" % i for i in range(n - 3))]
    return struct.pack("<I", 9) + b"".join(
        struct.pack("<fi", -float(i), len(piece)) + piece for i, piece in enumerate(pieces)
    )


@pytest.mark.parametrize("where", ["beside", "option", "folder"])
def test_padded_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str) -> None:
    """320 embedding rows and 300 pieces: the rows beyond are dropped from embedding and classifier, which is said."""
    header = make_header(vocab=320)
    weights = make_weights(header)
    out, options = tmp_path / "m.mlb", []
    (tmp_path / "in").mkdir()
    if where == "folder":
        source = hf_folder(tmp_path / "in", header, hf_tensors(weights), vocab_size=310)
    else:
        source = tmp_path / "in/c.bin"
        write_llama2c(source, header, weights, 0)
    name = tmp_path / ("other.bin" if where == "option" else "in/tokenizer.bin")
    name.write_bytes(plain(300))
    if where == "option":
        options = ["--tokenizer", str(name)]
    assert run(source, out, *options) == 0
    message = capsys.readouterr().err
    assert "300 pieces" in message and "rows 300 to 319 are dropped" in message
    assert ("vocab_size is 310" in message and "320 rows" in message) == (where == "folder")
    assert (tmp_path / "m.tokenizer.bin").read_bytes() == plain(300)
    file = MlbFile(out)
    assert file.header.vocab == 300
    for tensor in ("tok_emb", "wcls"):
        assert np.array_equal(file.q(tensor), quant.quantize_q8(weights[tensor][:300])[0])


def test_more_pieces_than_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = make_header(vocab=300)
    write_llama2c(tmp_path / "c.bin", header, make_weights(header), 0)
    out = tmp_path / "m.mlb"
    (tmp_path / "tokenizer.bin").write_bytes(plain(301))
    # Found beside it, it may belong to something else; given or in a model's own folder, it does not fit.
    assert run(tmp_path / "c.bin", out) == 0
    assert "301 pieces" in capsys.readouterr().err and not (tmp_path / "m.tokenizer.bin").exists()
    out.unlink()
    assert run(tmp_path / "c.bin", out, "--tokenizer", str(tmp_path / "tokenizer.bin")) == 5
    message = capsys.readouterr().err
    assert "301" in message and "300" in message and not out.exists()
    folder = hf_folder(tmp_path / "hf", header, hf_tensors(make_weights(header)))
    (folder / "tokenizer.bin").write_bytes(plain(301))
    assert run(folder, out) == 5 and not out.exists()
    assert run(folder, out, "--tokenizer", str(tmp_path / "absent.bin")) == 3


def read(path: Path, blob: bytes) -> TokenizerFile | None:
    """The tokenizer, None after a refusal in one sentence; anything else is an error."""
    path.write_bytes(blob)
    try:
        return cli.read_tokenizer(path)
    except ConvertError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return None


def test_damaged_plain_files(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.bin"
    good = plain(60)
    ends, at = [], 4
    while at < len(good):
        at += 8 + struct.unpack_from("<i", good, at + 4)[0]
        ends.append(at)
    for cut in range(len(good)):
        found = read(path, good[:cut])
        # Nothing in the format tells a file that ends between two pieces from a whole one.
        assert found.n_pieces == ends.index(cut) + 1 if found else cut not in ends, cut
    for length in (0, -1, 2**31 - 1, 70000):
        assert read(path, good[:8] + struct.pack("<i", length) + good[12:]) is None
    for score in (np.nan, np.inf):
        assert read(path, good[:4] + struct.pack("<f", score) + good[8:]) is None


def test_cut_tokenizers(tmp_path: Path, sentencepiece_model: Path) -> None:
    """tokenizer.json, tokenizer.model and a container, cut at every byte up to 4 KiB and at some places beyond."""
    text = byte_level(PRE[1]).to_str().encode()
    container = cli.read_tokenizer(folder_with(tmp_path, text.decode())).data
    for name, blob in (
        ("tokenizer.json", text),
        ("tokenizer.model", sentencepiece_model.read_bytes()),
        ("c.tokenizer.bin", container),
    ):
        whole = read(tmp_path / name, blob)
        assert whole is not None
        for cut in [*range(min(4096, len(blob))), *range(4096, len(blob), 997), len(blob) - 1]:
            cut_off = read(tmp_path / name, blob[:cut])
            # A protocol buffer may end after any field: then it has fewer pieces, or lacks what a BPE model must say.
            assert cut_off is None or (name == "tokenizer.model" and cut_off.n_pieces < whole.n_pieces), (name, cut)
    assert read(tmp_path / "copy.tokenizer.bin", container) == TokenizerFile(container, 600, "container, copied")
