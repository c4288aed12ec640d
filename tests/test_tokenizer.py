# SPDX-License-Identifier: BSD-3-Clause
"""Tokenizers against SentencePiece's and Hugging Face's ids, hand-made vocabularies, and damaged files.

The containers are written here from docs/formats.md, not by the converter: the two would agree on a common mistake.
"""

from __future__ import annotations

import ctypes
import io
import json
import random
import struct
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOP = Path(__file__).resolve().parent.parent
ARG, FORMAT, SHAPE = 2, 4, 5
BOS, SPECIAL = 1, 2
NEVER = -1e30
GPT2, GPT2_DIGITS, LLAMA3 = 1, 2, 3
SANITIZE = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
LLAMA3_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass
class Container:
    """The fields of docs/formats.md; pieces are (bytes, score)."""

    kind: int
    pieces: list[tuple[bytes, float]]
    flags: int = 0
    pre: int = 0
    bos: int = -1
    unk: int = -1
    stop: list[int] = field(default_factory=list)
    special: list[int] = field(default_factory=list)
    system: bytes = b""
    template: bytes = b""
    byte_table: list[int] = field(default_factory=lambda: [-1] * 256)

    def pack(self) -> bytes:
        """The file."""
        pieces = b"".join(piece for piece, _ in self.pieces)
        n = len(self.pieces)
        header = struct.pack("<4s5I2i4I16s", b"MLT1", 1, self.kind, n, self.flags, self.pre, self.bos, self.unk, len(self.stop),
                             len(self.special), len(self.system), len(pieces), self.template)
        lists = struct.pack(f"<256i{len(self.stop)}i{len(self.special)}i", *self.byte_table, *self.stop, *self.special)
        scores = struct.pack(f"<{n}f", *(score for _, score in self.pieces))
        lengths = struct.pack(f"<{n}I", *(len(piece) for piece, _ in self.pieces))
        return header + lists + self.system + scores + lengths + pieces


def pack_plain(pieces: list[tuple[bytes, float]], longest: int = 99) -> bytes:
    """A tokenizer.bin of llama2.c."""
    return struct.pack("<I", longest) + b"".join(struct.pack("<fi", score, len(piece)) + piece for piece, score in pieces)


def unpack_plain(blob: bytes) -> list[tuple[bytes, float]]:
    """The (piece, score) of a tokenizer.bin of llama2.c."""
    pieces, at = [], 4
    while at < len(blob):
        score, length = struct.unpack_from("<fi", blob, at)
        pieces.append((blob[at + 8 : at + 8 + length], score))
        at += 8 + length
    return pieces


def byte_pieces() -> list[tuple[bytes, float]]:
    """The pieces <0x00> to <0xFF>."""
    return [(b"<0x%02X>" % byte, 0.0) for byte in range(256)]


def plain_of(*words: tuple[str, float]) -> list[tuple[bytes, float]]:
    """unknown, begin, end, 256 byte pieces from id 3, then words from id 259."""
    first = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0)]
    return first + byte_pieces() + [(word.encode(), score) for word, score in words]


@dataclass
class Encoded:
    """What the runtime made of one text; pieces = the bytes of all ids, with the space before the first left out."""

    status: int
    ids: list[int]
    pieces: bytes


class Tool:
    """tests/tool_tokens.c of one build."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder

    def run(self, n_vocab: int, flags: int, texts: list[bytes], paths: list[Path]) -> list[tuple[int, str, list[Encoded]]]:
        """(status, message, texts) of each tokenizer file."""
        source = self.folder / "texts"
        source.write_bytes(b"".join(struct.pack("<I", len(text)) + text for text in texts))
        run = subprocess.run([self.program, str(n_vocab), str(flags), source, *paths], capture_output=True, check=False)
        assert run.returncode == 0 and run.stderr == b"", run.stderr.decode(errors="replace")
        result: list[tuple[int, str, list[Encoded]]] = []
        lines = iter(run.stdout.decode().splitlines())
        for line in lines:
            word, status, *rest = line.split(" ", 2)
            if word == "open":
                result.append((int(status), rest[0], []))
                continue
            ids = [int(x) for x in rest[0].split()] if rest else []
            result[-1][2].append(Encoded(int(status), ids, bytes.fromhex(next(lines)[6:])))
        assert len(result) == len(paths)
        return result

    def open(self, blob: bytes, n_vocab: int) -> tuple[int, str]:
        """Status and message of opening a file with these bytes."""
        path = self.folder / "tokenizer.bin"
        path.write_bytes(blob)
        status, message, _ = self.run(n_vocab, 0, [], [path])[0]
        return status, message

    def encode(self, blob: bytes, n_vocab: int, texts: Sequence[str | bytes], flags: int = 0) -> list[Encoded]:
        """What a tokenizer with these bytes makes of texts."""
        path = self.folder / "tokenizer.bin"
        path.write_bytes(blob)
        raw = [text.encode() if isinstance(text, str) else text for text in texts]
        status, message, encoded = self.run(n_vocab, flags, raw, [path])[0]
        assert status == 0, message
        assert len(encoded) == len(texts)
        return encoded

    def ids(self, blob: bytes, n_vocab: int, text: str | bytes, flags: int = 0) -> list[int]:
        """The ids of one text."""
        encoded = self.encode(blob, n_vocab, [text], flags)[0]
        assert encoded.status == 0
        return encoded.ids


@pytest.fixture(scope="module")
def tool(build: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """The plain build."""
    return Tool(build("scalar") / "tool_tokens", tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def checked_tool(build: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """The build with the address and undefined-behaviour sanitizers."""
    return Tool(build("scalar", cflags=SANITIZE) / "tool_tokens", tmp_path_factory.mktemp("checked"))


# -- Reference ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tokenizer, vectors",
    [
        ("llama2c/tokenizer.bin", "llama2c/llama2_token_vectors.json"),
        ("tokenizers/sp400/tokenizer.bin", "tokenizers/sp400/vectors.json"),
        ("tokenizers/sp400_shifted/tokenizer.bin", "tokenizers/sp400_shifted/vectors.json"),
    ],
)
def test_sentencepiece_vectors(tool: Tool, data: Path, tokenizer: str, vectors: str) -> None:
    """Every id is SentencePiece's; the pieces give the text back, but for U+2581."""
    blob = (data / tokenizer).read_bytes()
    expected = json.loads((data / vectors).read_text())
    texts = [vector["text"] for vector in expected]
    n_vocab = len(unpack_plain(blob))
    assert len(texts) > 100
    with_bos = tool.encode(blob, n_vocab, texts, BOS)
    without = tool.encode(blob, n_vocab, texts)
    for vector, a, b in zip(expected, with_bos, without):
        assert a.ids == vector["ids"], vector["text"]
        assert b.ids == vector["ids"][1:], vector["text"]
        assert b.pieces == vector["text"].replace("\u2581", " ").encode(), vector["text"]


def byte_letters() -> dict[str, int]:
    """The letter with which GPT-2 spells each byte."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in kept}
    letters |= {chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in kept)}
    return letters


def container_of_json(text: str, pre: int) -> Container:
    """A container from a Hugging Face tokenizer.json with byte-level BPE."""
    source = json.loads(text)
    letters = byte_letters()
    names = {id: name for name, id in source["model"]["vocab"].items()}
    added = {token["id"]: token["content"] for token in source["added_tokens"]}
    joined = ["".join(merge) if isinstance(merge, list) else merge.replace(" ", "") for merge in source["model"]["merges"]]
    rank = {name: -float(i) for i, name in reversed(list(enumerate(joined)))}
    result = Container(kind=2, pieces=[], pre=pre, flags=2 if source["model"].get("ignore_merges") else 0, special=sorted(added))
    for id in range(max([*names, *added]) + 1):
        if id in added:
            result.pieces.append((added[id].encode(), NEVER))
            continue
        piece = bytes(letters[letter] for letter in names[id])
        if len(piece) == 1:
            result.byte_table[piece[0]] = id
        result.pieces.append((piece, rank.get(names[id], NEVER)))
    return result


def test_bytelevel_vectors(tool: Tool, data: Path) -> None:
    """Every id is Hugging Face's for a byte-level BPE where each digit stands alone."""
    folder = data / "tokenizers" / "bytelevel600"
    container = container_of_json((folder / "tokenizer.json").read_text(), GPT2_DIGITS)
    expected = json.loads((folder / "vectors.json").read_text())
    assert len(expected) > 100
    encoded = tool.encode(container.pack(), len(container.pieces), [vector["text"] for vector in expected], SPECIAL)
    for vector, got in zip(expected, encoded):
        assert got.ids == vector["ids"], vector["text"]
        assert got.pieces == vector["text"].encode(), vector["text"]


def test_smollm2_vectors(tool: Tool, data: Path) -> None:
    """Every id is Hugging Face's for SmolLM2's 49,152 pieces."""
    pieces = unpack_plain((data / "smollm2" / "tokenizer.bin").read_bytes())
    special = [id for id, (piece, score) in enumerate(pieces) if score <= -1e6]
    container = Container(kind=2, pieces=[(p, s if s > -1e6 else NEVER) for p, s in pieces], pre=GPT2_DIGITS, special=special)
    for id, (piece, _) in enumerate(pieces):
        if len(piece) == 1:
            container.byte_table[piece[0]] = id
    expected = json.loads((data / "smollm2" / "token_vectors.json").read_text())
    assert len(expected) > 100
    encoded = tool.encode(container.pack(), len(pieces), [vector["text"] for vector in expected], SPECIAL)
    for vector, got in zip(expected, encoded):
        assert got.ids == vector["ids"], vector["text"]
        assert got.pieces == vector["text"].encode(), vector["text"]


# Words, cases, digits and marks of several scripts, every kind of white space, contractions, special pieces.
ATOMS = [
    *"aeinorstlABZ019 .,-'\"<>|&_", " ", " ", " ", "  ", "\n", "\r\n", "\t", "\v", "\u00a0", "\u0085", "\u2028", "\u3000", "\u200b", "\x1c",
    "the", " of", "ing", "People", "We'll", "it's", "I'M", "they'VE", "'Tis", "'\u017f", "'d", "'re", "'RE", "\u2581", "\0", "\u00e9",
    "e\u0301", "\u00df", "\u0130", "\u0416\u0438", "\u05d0", "\u0905\u0902", "\u0e01\u0e33", "\u6c34", "\u3042", "\uac00", "\U0001f999",
    "\U0001f468\u200d\U0001f467", "\u00b2", "\u00bd", "\u0663", "\u2167", "\u3007", "\U0001d7d9", "1234567", "3.14", "<|end|>",
    "<|endoftext|>", "<|end", "__", "...", "?!\n", "\ufffd",
]


def random_texts(seed: int, count: int) -> list[str]:
    """Texts of up to 40 atoms, some of them characters from all of Unicode 14 (what is assigned later has no class here)."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 40)):
            code = rng.randrange(0x20000)
            wild = rng.random() < 0.05 and unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")
            parts.append(chr(code) if wild else rng.choice(ATOMS))
        texts.append("".join(parts))
    return texts


def train_text(seed: int) -> list[str]:
    """Text whose words repeat, so that merges are learned in letters, digits, marks and white space."""
    rng = random.Random(seed)
    words = ["".join(rng.choice(ATOMS) for _ in range(rng.randrange(1, 4))) for _ in range(300)]
    return ["".join(rng.choice(words) + rng.choice(["", " ", "  ", "\n", "\n\n", " \n"]) for _ in range(50)) for _ in range(60)]


def pre_tokenizer(tokenizers: ModuleType, pre: int) -> Any:
    """What the tokenizers library cuts text into words with; the words come spelled in GPT-2's letters."""
    library = tokenizers.pre_tokenizers
    before = {
        0: [],
        GPT2: [],
        GPT2_DIGITS: [library.Digits(individual_digits=True)],
        LLAMA3: [library.Split(tokenizers.Regex(LLAMA3_REGEX), "isolated")],
    }[pre]
    return library.Sequence([*before, library.ByteLevel(add_prefix_space=False, use_regex=pre in (GPT2, GPT2_DIGITS))])


@pytest.mark.parametrize("pre", [GPT2, GPT2_DIGITS, LLAMA3])
def test_words_as_hugging_face(tool: Tool, pre: int) -> None:
    """Every word ends where the tokenizers library ends it: the vocabulary is its words, taken whole; nothing is merged."""
    tokenizers = pytest.importorskip("tokenizers")
    reference = pre_tokenizer(tokenizers, pre)
    letters = byte_letters()
    texts = random_texts(100 + pre, 4000)
    words = [[bytes(letters[x] for x in word) for word, _ in reference.pre_tokenize_str(text)] for text in texts]
    container = Container(kind=2, flags=2, pre=pre, pieces=[(bytes([byte]), NEVER) for byte in range(256)])
    container.byte_table = list(range(256))
    container.pieces += [(word, NEVER) for word in sorted({word for text in words for word in text if len(word) > 1})]
    encoded = tool.encode(container.pack(), len(container.pieces), texts)
    for text, expected, got in zip(texts, words, encoded):
        assert [container.pieces[id][0] for id in got.ids] == expected, text


def test_every_character_as_hugging_face(tool: Tool) -> None:
    """The class of every character that this Python knows shows in the words around it, and is the tokenizers library's."""
    tokenizers = pytest.importorskip("tokenizers")
    reference = pre_tokenizer(tokenizers, GPT2)
    letters = byte_letters()
    codes = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    assert len(codes) > 140_000
    # A letter goes with the a, a number with the 1, a mark with the !, and white space with none of them.
    texts = ["".join(f"a{chr(code)}!{chr(code)}1" for code in codes[i : i + 500]) for i in range(0, len(codes), 500)]
    words = [[bytes(letters[x] for x in word) for word, _ in reference.pre_tokenize_str(text)] for text in texts]
    container = Container(kind=2, flags=2, pre=GPT2, pieces=[(bytes([byte]), NEVER) for byte in range(256)])
    container.byte_table = list(range(256))
    container.pieces += [(word, NEVER) for word in sorted({word for text in words for word in text if len(word) > 1})]
    encoded = tool.encode(container.pack(), len(container.pieces), texts)
    for text, expected, got in zip(texts, words, encoded):
        assert [container.pieces[id][0] for id in got.ids] == expected, text


@pytest.mark.parametrize("ignore_merges", [False, True])
@pytest.mark.parametrize("pre", [0, GPT2, GPT2_DIGITS, LLAMA3])
def test_random_texts_as_hugging_face(tool: Tool, pre: int, ignore_merges: bool) -> None:
    """A byte-level BPE trained here encodes random texts as the tokenizers library does, special pieces included."""
    tokenizers = pytest.importorskip("tokenizers")
    reference = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=ignore_merges))
    reference.pre_tokenizer = pre_tokenizer(tokenizers, pre)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, show_progress=False, initial_alphabet=sorted(byte_letters()), max_token_length=12,
        special_tokens=["<|end|>", "<|endoftext|>", "<|end|>\n"],
    )
    lines = train_text(7)
    if pre == 0:  # one line is one word here: short ones, so that there is something to learn
        lines = [part for line in lines for part in line.split(" ")]
    reference.train_from_iterator(lines, trainer)
    if ignore_merges:
        # Words that no merge makes: without the flag they come out in parts.
        source = json.loads(reference.to_str())
        vocab = source["model"]["vocab"]
        for word in ["\u0120zebra", "zebra", "Zebra", "\u0120People", "1234567", "<|end"]:
            vocab.setdefault(word, len(vocab))
        reference = tokenizers.Tokenizer.from_str(json.dumps(source))
    container = container_of_json(reference.to_str(), pre)
    texts = [*random_texts(11 + pre, 1500), *train_text(8), "zebra", " zebra", "a zebra Zebra zebras", "x<|end|>\n<|end|>y", ""]
    encoded = tool.encode(container.pack(), len(container.pieces), texts, SPECIAL)
    longer = 0
    for text, got in zip(texts, encoded):
        expected = reference.encode(text).ids
        assert got.ids == expected, text
        assert got.pieces == text.encode(), text
        longer += len(expected) < len(text.encode())
    assert longer > 500  # merges took place


@pytest.mark.parametrize("dummy_prefix", [True, False])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_random_texts_as_sentencepiece(tool: Tool, byte_fallback: bool, dummy_prefix: bool) -> None:
    """A SentencePiece BPE trained here encodes random texts as SentencePiece does, unknown characters included."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(train_text(9)), model_writer=model, model_type="bpe", vocab_size=700, byte_fallback=byte_fallback,
        add_dummy_prefix=dummy_prefix, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98,
        num_threads=1, minloglevel=2,
    )
    reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    container = Container(kind=1, pieces=[], flags=int(dummy_prefix), bos=reference.bos_id(), unk=reference.unk_id())
    for id in range(len(reference)):
        name = reference.id_to_piece(id)
        if reference.is_byte(id):
            byte = int(name[1:-1], 16)
            container.byte_table[byte] = id
            container.pieces.append((bytes([byte]), 0.0))
        else:
            never = reference.is_control(id) or reference.is_unknown(id) or reference.is_unused(id)
            container.pieces.append((name.replace("\u2581", " ").encode(), NEVER if never else reference.get_score(id)))
    texts = random_texts(5, 3000)
    blob = container.pack()
    for text, got in zip(texts, tool.encode(blob, len(container.pieces), texts)):
        assert got.ids == reference.encode(text), text
        if byte_fallback:
            assert got.pieces == text.replace("\u2581", " ").encode(), text


@pytest.mark.parametrize("legacy", [True, False])
def test_special_pieces_as_llama_tokenizers(tool: Tool, legacy: bool) -> None:
    """Bit 3 is the legacy tokenizer of Hugging Face, which puts a space behind each special piece; the other puts one before the text only."""
    tokenizers = pytest.importorskip("tokenizers")
    special = ["<unk>", "<s>", "</s>", "<|end|>"]
    reference = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if legacy:
        steps = [tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")]
        reference.normalizer = tokenizers.normalizers.Sequence(steps)
    else:
        reference.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, show_progress=False, max_token_length=8, special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    )
    reference.train_from_iterator([part for line in train_text(17) for part in line.split("\n")], trainer)
    source = json.loads(reference.to_str())
    source["added_tokens"] = source["added_tokens"][: len(special)]  # the bytes are pieces
    reference = tokenizers.Tokenizer.from_str(json.dumps(source))

    rank = {"".join(merge): -float(i) for i, merge in reversed(list(enumerate(source["model"]["merges"])))}
    names = sorted(source["model"]["vocab"], key=source["model"]["vocab"].__getitem__)
    container = Container(kind=1, pieces=[], flags=9 if legacy else 1, unk=0, special=[0, 1, 2, 3])
    for id, name in enumerate(names):
        byte = id - len(special)
        if 0 <= byte < 256:
            container.byte_table[byte] = id
            container.pieces.append((bytes([byte]), 0.0))
        else:
            score = NEVER if id < len(special) else rank.get(name, -1e6)
            container.pieces.append((name.replace("\u2581", " ").encode(), score))
    rng = random.Random(18)
    texts = []
    for text in random_texts(19, 2000):
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice([*special, "</s>\n", " </s> ", "</s></s>"]) + text[at:]
        if legacy or text[0] not in " \u2581":  # where a text begins with a space the other puts none before it
            texts.append(text)
    behind = 0
    for text, got in zip(texts, tool.encode(container.pack(), len(names), texts, SPECIAL)):
        assert got.ids == reference.encode(text, add_special_tokens=False).ids, text
        behind += any(id < len(special) for id in got.ids[:-1])
    assert behind > 500


# -- Rules, one by one ------------------------------------------------------------------------------------------------

# ids:                 259         260         261        262        263         264          265          266          267
SMALL = plain_of((" ", -9.0), ("a", -9.0), ("b", -9.0), ("ab", -2.0), ("aa", -1.0), (" a", -3.0), ("\u00e9", -9.0), ("\u20ac", -9.0),
                 ("  ", -4.0))


@pytest.mark.parametrize(
    "text, ids",
    [
        ("", []),
        (" ", [267]),
        ("  ", [267, 259]),
        ("a", [264]),
        ("b", [259, 261]),
        ("aaa", [259, 263, 260]),  # the leftmost of equal scores, and before " a", which scores less
        ("aab", [259, 263, 261]),  # aa scores more than ab
        ("<0x41>", [259, *(3 + byte for byte in b"<0x41>")]),
        ("<s>", [259, *(3 + byte for byte in b"<s>")]),
        ("\n<s>\n", [259, *(3 + byte for byte in b"\n<s>\n")]),
        ("<unk>", [259, *(3 + byte for byte in b"<unk>")]),
        ("\u00e9\u20ac", [259, 265, 266]),
        ("\u00e8", [259, 3 + 0xC3, 3 + 0xA8]),
        ("\u20ad", [259, 3 + 0xE2, 3 + 0x82, 3 + 0xAD]),
        ("\U0001f999", [259, 3 + 0xF0, 3 + 0x9F, 3 + 0xA6, 3 + 0x99]),
        ("e\u0301", [259, 3 + 0x65, 3 + 0xCC, 3 + 0x81]),
        ("\u2581a", [259, 264]),  # a space by another name; " a" scores more than two spaces
        ("\0", [259, 3]),
        (b"\xff\xc3", [259, 3 + 0xFF, 3 + 0xC3]),
        (b"\xed\xa0\x80", [259, 3 + 0xED, 3 + 0xA0, 3 + 0x80]),  # a surrogate
        (b"\xc0\xaf", [259, 3 + 0xC0, 3 + 0xAF]),  # overlong
        (b"\xe2\x82", [259, 3 + 0xE2, 3 + 0x82]),  # the text ends within a character
        (b"\xe2a", [259, 3 + 0xE2, 260]),
    ],
)
def test_scores(tool: Tool, text: str | bytes, ids: list[int]) -> None:
    """Hand-worked ids of the plain format, and the text comes back."""
    raw = text.encode() if isinstance(text, str) else text
    encoded = tool.encode(pack_plain(SMALL), len(SMALL), [raw])[0]
    assert encoded.ids == ids
    assert encoded.pieces == raw.replace("\u2581".encode(), b" ")


def test_byte_pieces_anywhere(tool: Tool) -> None:
    """Byte pieces are found by name, in any order, and the lowest id of a duplicate stands for the byte."""
    pieces = [*SMALL[:3], (b"x", -1.0), *reversed(byte_pieces()), (b"<0x41>", 0.0), (b" ", -2.0)]
    assert tool.ids(pack_plain(pieces), len(pieces), "A\xff") == [261, 4 + 255 - 0x41, 4 + 255 - 0xC3, 4 + 255 - 0xBF]


def test_duplicates_lowest_wins(tool: Tool) -> None:
    """Of equal pieces the lowest id is the one that text becomes; the other still has its bytes."""
    pieces = plain_of((" ", -1.0), ("a", -1.0), ("a", -1.0), (" a", -1.0), (" a", 5.0))
    assert tool.ids(pack_plain(pieces), len(pieces), "aa") == [262, 260]


def test_unknown_characters(tool: Tool) -> None:
    """Without byte pieces: the unknown id, once for neighbours; without that id either an error."""
    pieces = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0), (b" ", -1.0), (b"a", -1.0)]
    assert tool.ids(pack_plain(pieces), 5, "xya\u20aca") == [3, 0, 4, 0, 4]
    container = Container(kind=1, pieces=[(b"a", -1.0)])
    assert [encoded.status for encoded in tool.encode(container.pack(), 1, ["aa", "ab"])] == [0, FORMAT]
    # A byte table that lacks one byte of the character does not spell half of it.
    container = Container(kind=1, pieces=[(b"a", -1.0), (b"?", NEVER), (b"\xc3", 0.0)], unk=1)
    container.byte_table[0xC3] = 2
    assert tool.ids(container.pack(), 3, "a\u00e9a") == [0, 1, 0]
    assert tool.ids(container.pack(), 3, b"a\xc3a") == [0, 2, 0]
    # Byte-level BPE has an unknown id for each byte.
    container = Container(kind=2, pieces=[(b"a", 0.0), (b"?", NEVER)], unk=1)
    container.byte_table[ord("a")] = 0
    assert tool.ids(container.pack(), 2, "axya") == [0, 1, 1, 0]


def test_space_before_text(tool: Tool) -> None:
    """Flag bit 0 adds it to the first stretch only, bit 3 to those behind special pieces too; without them there is none, and none is taken
    away."""
    pieces = [(b"a", -1.0), (b" ", -1.0), (b" a", -1.0), (b"<x>", NEVER)]
    with_space = Container(kind=1, flags=1, pieces=pieces, special=[3])
    without = Container(kind=1, pieces=pieces, special=[3])
    texts = ["a", " a", "<x>a", "a<x>a<x>", "<x> a"]
    assert [e.ids for e in tool.encode(with_space.pack(), 4, texts, SPECIAL)] == [[2], [1, 2], [3, 0], [2, 3, 0, 3], [3, 2]]
    assert [e.ids for e in tool.encode(without.pack(), 4, texts, SPECIAL)] == [[0], [2], [3, 0], [0, 3, 0, 3], [3, 2]]
    for container in (with_space, without):
        for text, encoded in zip(texts, tool.encode(container.pack(), 4, texts, SPECIAL)):
            assert encoded.pieces == text.encode()
    each = Container(kind=1, flags=9, pieces=pieces, special=[3]).pack()
    more = [*texts, "<x>", "<x><x>a", "a<x>  <x>"]
    ids = [[2], [1, 2], [3, 2], [2, 3, 2, 3], [3, 1, 2], [3], [3, 3, 2], [2, 3, 1, 1, 1, 3]]
    encoded = tool.encode(each, 4, more, SPECIAL)
    assert [e.ids for e in encoded] == ids
    assert [e.pieces for e in encoded[:4]] == [b"a", b" a", b"<x> a", b"a<x> a<x>"]
    # Behind other ids, 4, it is only put behind the special pieces of this text; without SPECIAL there are none.
    assert [e.ids for e in tool.encode(each, 4, ["a", "a<x>a", "<x>a"], SPECIAL | 4)] == [[0], [0, 3, 2], [3, 2]]
    # Behind a special piece, 8.
    assert [e.ids for e in tool.encode(each, 4, ["a", "a<x>a", "<x>a"], SPECIAL | 8)] == [[2], [2, 3, 2], [3, 2]]
    assert [e.ids for e in tool.encode(with_space.pack(), 4, ["a", "a<x>a"], SPECIAL | 8)] == [[0], [0, 3, 0]]
    # No text has more ids than its bytes and ML_ENCODE_EXTRA: here each special piece, space and letter is an id.
    tight = Container(kind=1, flags=9, pieces=[(b"a", -1.0), (b" ", -1.0), (b"<>", NEVER)], special=[2]).pack()
    assert tool.ids(tight, 3, "a<>a<>a<>a", SPECIAL) == [1, 0, 2, 1, 0, 2, 1, 0, 2, 1, 0]
    # A special piece that begins with a space keeps it.
    container = Container(kind=1, flags=1, pieces=[*pieces, (b" <y>", NEVER)], special=[4])
    assert tool.encode(container.pack(), 5, [" <y>a"], SPECIAL)[0] == Encoded(0, [4, 0], b" <y>a")


def test_special_pieces(tool: Tool) -> None:
    """The leftmost and there the longest; only where asked for; the lowest id of equal ones."""
    names = [b"<s>", b"<s><s>x", b"s>", b"<s", b"<s>", b""]
    container = Container(kind=2, pieces=[(bytes([byte]), NEVER) for byte in range(256)], special=list(range(256, 262)))
    container.byte_table = list(range(256))
    container.pieces += [(name, NEVER) for name in names]
    blob = container.pack()
    cases = {
        "a<s>b": [97, 256, 98],
        "<s><s>x": [257],
        "<s><s>y": [256, 256, ord("y")],
        "<<s>s>s": [ord("<"), 256, 258, ord("s")],
        "<s": [259],
        "<s<s>": [259, 256],
        "": [],
    }
    for text, ids in cases.items():
        assert tool.ids(blob, 262, text, SPECIAL) == ids, text
        assert tool.ids(blob, 262, text) == list(text.encode()), text


def test_not_found_as_text(tool: Tool) -> None:
    """Ids 0 to 2 of a plain file, byte pieces, special pieces with an ordinary score, and characters with -1e30."""
    plain = [(b"ab", 9.0), (b"ba", 9.0), (b"c", 9.0), (b" ", -1.0), (b"a", -1.0), (b"b", -1.0)]
    assert tool.ids(pack_plain(plain), 6, "abac") == [3, 4, 5, 4, 0]
    pieces = [(b"a", 0.0), (b"b", 0.0), (b"ab", -1.0), (b"c", NEVER), (b"c", 0.0), (b"?", NEVER)]
    for kind in (1, 2):
        container = Container(kind=kind, pieces=pieces, special=[2], unk=5)
        container.byte_table[ord("a")], container.byte_table[ord("b")], container.byte_table[ord("c")] = 0, 1, 4
        assert tool.ids(container.pack(), 6, "abc") == [0, 1, 4]
        assert tool.ids(container.pack(), 6, "abc", SPECIAL) == [2, 4]
    # "c" is no byte piece here, but a control piece
    container = Container(kind=1, pieces=[(b"a", 0.0), (b"c", NEVER), (b"?", NEVER)], unk=2)
    assert tool.ids(container.pack(), 3, "ac") == [0, 2]


def test_never_joined(tool: Tool) -> None:
    """A piece with a score of -1e30 is not the result of a merge, in either kind; one of -1e29 is."""
    for kind in (1, 2):
        for score, ids in ((NEVER, [0, 1]), (-3e38, [0, 1]), (-1e29, [2])):
            container = Container(kind=kind, pieces=[(b"a", -1.0), (b"b", -1.0), (b"ab", score)])
            container.byte_table[ord("a")] = 0 if kind == 2 else -1
            container.byte_table[ord("b")] = 1 if kind == 2 else -1
            assert tool.ids(container.pack(), 3, "ab") == ids


def test_bytes_that_are_no_characters(tool: Tool) -> None:
    """Bytes that are not UTF-8 are marks to the cutting into words, whatever letter or space they would spell by bad rules."""
    container = Container(kind=2, flags=2, pre=GPT2, pieces=[(bytes([byte]), NEVER) for byte in range(256)])
    container.byte_table = list(range(256))
    overlong = [b"\xc1\xa1", b"\xc0\xa0", b"\xe0\x81\xa1", b"\xf0\x80\x81\xa1"]
    for bad in (*overlong, b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff", b"\xe6\xb0"):
        pieces = [b"aa", bad + b"!", b"aa" + bad]  # the first two are words if `bad` is a mark, the last if it were a letter
        whole = Container(**{**container.__dict__, "pieces": [*container.pieces, *((piece, NEVER) for piece in pieces)]})
        assert tool.ids(whole.pack(), 259, b"aa" + bad + b"!b") == [256, 257, ord("b")], bad
        assert tool.ids(whole.pack(), 259, b"aa" + bad + b"1") == [256, *bad, ord("1")], bad


@pytest.mark.parametrize("name", ["one letter", "one letter, one word", "prose", "prose, words", "spaces", "special beginnings"])
def test_long_texts(tool: Tool, name: str) -> None:
    """100 kB take far less than the two seconds promised, whatever they are made of."""
    scores = [(b"a" * (2 << i), -float(i)) for i in range(12)]
    sentence = b"The quick brown fox can't jump over 13 lazy dogs, he said.\n"
    words = [b"he", b"The", b" quick", b"qu", b"ick", b" l", b"az", b"azy", b"og", b" ov", b"er"]
    bytes_too = [(bytes([byte]), 0.0) for byte in range(256)]
    text = b"a" * 100_000 if name.startswith("one") else (sentence * 2000)[:100_000]
    if name == "spaces":
        text = b" " * 50_000 + b"\n" + b" " * 50_000 + b"x"
    if name == "special beginnings":
        text = b"<|" * 50_000
    if name in ("one letter, one word", "prose, words", "spaces", "special beginnings"):
        container = Container(kind=2, pre=LLAMA3, pieces=[*bytes_too, *scores, *((word, -20.0) for word in words)])
        container.byte_table = list(range(256))
        container.special = list(range(len(container.pieces), len(container.pieces) + 256))
        container.pieces += [(b"<|reserved_%d|>" % i, NEVER) for i in range(256)]
        blob, n_vocab = container.pack(), len(container.pieces)
    else:
        pieces = plain_of(*((letter, -50.0) for letter in map(chr, range(32, 127))))
        pieces += [*scores, *((word, -20.0) for word in words)]
        blob, n_vocab = pack_plain(pieces), len(pieces)
    begin = time.monotonic()
    encoded = tool.encode(blob, n_vocab, [text], SPECIAL)[0]
    assert time.monotonic() - begin < 1.0
    assert encoded.pieces == text


# -- The C interface --------------------------------------------------------------------------------------------------


class Error(ctypes.Structure):
    """ml_error"""

    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 508)]


def test_interface(build: Callable[..., Path], tmp_path: Path) -> None:
    """What the functions beside encoding answer, and what they refuse."""
    lib = ctypes.CDLL(str(build("scalar") / "liblegacyml.so"))
    lib.ml_tokenizer_template.restype = lib.ml_tokenizer_system.restype = ctypes.c_char_p
    lib.ml_tokenizer_piece.restype = ctypes.c_void_p

    def open_file(blob: bytes, n_vocab: int) -> ctypes.c_void_p:
        (tmp_path / "t.bin").write_bytes(blob)
        handle = ctypes.c_void_p()
        error = Error()
        assert lib.ml_tokenizer_open(bytes(tmp_path / "t.bin"), n_vocab, ctypes.byref(handle), ctypes.byref(error)) == 0, error.text
        return handle

    def encode(handle: ctypes.c_void_p, text: bytes, flags: int, capacity: int) -> tuple[int, int, list[int]]:
        ids = (ctypes.c_int32 * 10)(*[-7] * 10)
        n_ids = ctypes.c_size_t(99)
        size = ctypes.c_size_t
        status = lib.ml_tokenizer_encode(handle, text, size(len(text)), flags, ids, size(capacity), ctypes.byref(n_ids), None)
        return status, n_ids.value, list(ids)

    def piece(handle: ctypes.c_void_p, previous: int, id: int) -> bytes | None:
        n = ctypes.c_size_t(99)
        address = lib.ml_tokenizer_piece(handle, previous, id, ctypes.byref(n))
        if address is None:
            assert n.value == 0
            return None
        return ctypes.string_at(address, n.value)

    plain = open_file(pack_plain(SMALL), len(SMALL))
    assert lib.ml_tokenizer_vocab(plain) == len(SMALL)
    assert (lib.ml_tokenizer_bos(plain), lib.ml_tokenizer_adds_bos(plain)) == (1, 1)
    assert [id for id in range(-2, len(SMALL) + 2) if lib.ml_tokenizer_is_stop(plain, id)] == [1, 2]
    assert (lib.ml_tokenizer_template(plain), lib.ml_tokenizer_system(plain)) == (b"", b"")
    assert [piece(plain, previous, 264) for previous in (-1, 1, 2, 264)] == [b"a", b"a", b" a", b" a"]
    assert [piece(plain, -1, id) for id in (259, 260, 3 + 0x41, 3)] == [b"", b"a", b"A", b"\0"]
    assert [piece(plain, -1, id) for id in (-1, len(SMALL), 2**31 - 1, -(2**31))] == [None] * 4
    assert encode(plain, b"aaa", BOS, 4) == (0, 4, [1, 259, 263, 260, *[-7] * 6])
    assert encode(plain, b"aaa", BOS, 3) == (ARG, 4, [1, 259, 263, *[-7] * 7])
    assert encode(plain, b"aaa", BOS, 0) == (ARG, 4, [-7] * 10)
    assert encode(plain, b"", BOS, 1) == (0, 1, [1, *[-7] * 9])
    assert encode(plain, b"", 0, 0) == (0, 0, [-7] * 10)
    assert encode(plain, b"aaa", 4, 10) == (0, 2, [263, 260, *[-7] * 8])  # behind other ids: no space before it
    assert encode(plain, b"aaa", 8, 10) == (0, 2, [263, 260, *[-7] * 8])
    assert encode(plain, b"a", 16, 10)[0] == ARG
    lib.ml_tokenizer_close(plain)
    lib.ml_tokenizer_close(None)

    pieces = [(b"a", 0.0), (b" a", NEVER), (b"<b>", NEVER), (b"<e>", NEVER)]
    container = Container(kind=2, flags=4, pieces=pieces, bos=2, stop=[3, 0], template=b"sixteen_letters!", system="Hé".encode())
    container.byte_table[ord("a")] = 0
    handle = open_file(container.pack(), 4)
    assert (lib.ml_tokenizer_bos(handle), lib.ml_tokenizer_adds_bos(handle)) == (2, 1)
    assert [id for id in range(4) if lib.ml_tokenizer_is_stop(handle, id)] == [0, 3]
    assert (lib.ml_tokenizer_template(handle), lib.ml_tokenizer_system(handle)) == (b"sixteen_letters!", "Hé".encode())
    assert piece(handle, -1, 1) == b" a"  # no space was put there
    assert encode(handle, b"a", BOS, 10)[:2] == (0, 2)
    lib.ml_tokenizer_close(handle)
    container.flags = 0
    handle = open_file(container.pack(), 4)
    assert (lib.ml_tokenizer_bos(handle), lib.ml_tokenizer_adds_bos(handle)) == (2, 0)
    assert encode(handle, b"a", BOS, 10)[:2] == (0, 1)
    lib.ml_tokenizer_close(handle)

    out = ctypes.c_void_p(1)
    for path, n_vocab, status in ((b"/nowhere/t.bin", 4, 3), (bytes(tmp_path), 4, 3), (None, 4, ARG), (b"t", 0, ARG), (b"t", -1, ARG)):
        error = Error()
        assert lib.ml_tokenizer_open(path, n_vocab, ctypes.byref(out), ctypes.byref(error)) == status
        assert out.value is None and error.status == status and error.text


# -- Bad files --------------------------------------------------------------------------------------------------------


def test_plain_counts(tool: Tool) -> None:
    """16 pieces too few or too many for the model: both counts are in the sentence."""
    pieces = plain_of(*((letter, -1.0) for letter in "abcdefghijklmnopqrstuvwxyz"))
    n = len(pieces)
    for have in (n - 16, n + 16, n - 1, n + 1):
        blob = pack_plain((pieces + pieces)[:have])
        status, message = tool.open(blob, n)
        assert status == SHAPE and str(have) in message.split() and str(n) in message.replace(":", "").split(), message
    assert tool.open(pack_plain([], 5), 3)[0] == SHAPE
    container = Container(kind=1, pieces=[(b"a", 0.0)] * 5)
    status, message = tool.open(container.pack(), 7)
    assert status == SHAPE and " 5 " in message and " 7:" in message


def test_plain_records(tool: Tool) -> None:
    """Lengths that cannot be, scores that are no numbers; a longest piece that is not the longest does not matter."""
    for length in (0, -1, 2**31 - 1, -(2**31), 65537, 3):
        blob = pack_plain(SMALL)
        broken = blob + struct.pack("<fi", 0.0, length) + b"ab"
        status, message = tool.open(broken, len(SMALL) + 1)
        assert status == FORMAT and str(length) in message, message
    for score in (float("nan"), float("inf"), -float("inf")):
        status, message = tool.open(pack_plain([*SMALL, (b"x", score)]), len(SMALL) + 1)
        assert status == FORMAT and f"piece {len(SMALL)} " in message
    for longest in (0, 1, 2**32 - 1):
        assert tool.ids(pack_plain(SMALL, longest), len(SMALL), "aa") == [259, 263]
    long_piece = plain_of((" ", -1.0), ("a", -1.0), ("a" * 65536, 0.0))
    assert tool.open(pack_plain(long_piece), len(long_piece)) == (0, "")


HEADER_FIELDS = {
    "version": (4, [0, 2]),
    "kind": (8, [0, 3]),
    "n_vocab": (12, [0, 2**24 + 1, 2**32 - 1]),
    "flags": (16, [12, 13, 20, 2**31]),
    "pre": (20, [4, 2**32 - 1]),
    "bos_id": (24, [6, 2**32 - 2, 2**31]),
    "unk_id": (28, [6, 2**32 - 2]),
    "n_stop": (32, [257, 2**32 - 1]),
    "n_special": (36, [7, 2**32 - 1]),
    "system_bytes": (40, [65537, 2**32 - 1]),
    "pieces_bytes": (44, [0, 2**32 - 1]),
    "template": (48, [0x41000041, 0x20202020, 0x808080]),
    "byte table": (64, [6, 2**32 - 2]),
    "stop id": (1088, [6, 2**32 - 1]),
    "special id": (1092, [6, 2**32 - 1, 5]),  # 5: twice
    "system message": (1100, [0xFF, 0x00, 0x2180A0ED, 0x2121A1C1]),  # the last two: a surrogate, an overlong form
    "score": (1104, [0x7FC00000, 0x7F800000]),
    "length": (1128, [65537, 2**32 - 1, 0, 2]),
}


def small_container(kind: int = 2) -> Container:
    """A container with something in every part; the offsets of HEADER_FIELDS are of this one."""
    pieces = [(b"a", 0.0), (b"b", 0.0), (b"ab", -1.0), (b"<|x|>", NEVER), (b"", NEVER), (b"<|y|>", NEVER)]
    container = Container(kind=kind, pieces=pieces, flags=4, pre=3 if kind == 2 else 0, bos=3, stop=[5], special=[3, 5], system=b"Hi!!",
                          template=b"chatml")
    container.byte_table[ord("a")] = 0
    container.byte_table[ord("b")] = 1
    return container


@pytest.mark.parametrize("name", HEADER_FIELDS)
def test_container_fields(tool: Tool, name: str) -> None:
    """Each field beyond its range is refused, with a sentence that names it or the size that it makes."""
    offset, values = HEADER_FIELDS[name]
    good = small_container().pack()
    assert tool.open(good, 6) == (0, "")
    for value in values:
        status, message = tool.open(good[:offset] + struct.pack("<I", value) + good[offset + 4 :], 6)
        assert status == FORMAT, (value, message)
        assert name.split()[0] in message or "bytes" in message, message


def test_container_rules(tool: Tool) -> None:
    """Flags and words that belong to the other kind, a byte too many, a byte too few."""
    for kind, flags, pre in ((1, 2, 0), (2, 1, 0), (1, 8, 0), (2, 8, 0), (2, 9, 0), (1, 16, 0), (1, 0, 1)):
        status, message = tool.open(Container(kind=kind, flags=flags, pre=pre, pieces=[(b"a", 0.0)]).pack(), 1)
        assert status == FORMAT and ("flags" in message or "pre" in message)
    # A special piece of one byte and the space behind it would be two ids of one byte.
    pieces = [(b"a", 0.0), (b"|", NEVER), (b"<>", NEVER)]
    assert tool.open(Container(kind=1, flags=1, special=[1, 2], pieces=pieces).pack(), 3) == (0, "")
    assert tool.open(Container(kind=1, flags=9, special=[2], pieces=pieces).pack(), 3) == (0, "")
    status, message = tool.open(Container(kind=1, flags=9, special=[1, 2], pieces=pieces).pack(), 3)
    assert status == FORMAT and "special piece 1 " in message
    blob = small_container().pack()
    for damaged in (blob + b"\0", blob[:-1]):
        status, message = tool.open(damaged, 6)
        assert status == FORMAT and str(len(damaged)) in message and str(len(blob)) in message


def many(tool: Tool, blobs: list[bytes], n_vocab: int) -> list[int]:
    """The status of opening each, with some texts encoded by those that open."""
    texts = [b"", b"a", b"aab ab<|x|>a\r\n  'S12345\xff\xe2\x82", " \u2581\u20ac<0x41>\0".encode(), b"ab" * 200]
    statuses = []
    for first in range(0, len(blobs), 200):
        paths = []
        for i, blob in enumerate(blobs[first : first + 200]):
            paths.append(tool.folder / f"bad{i}")
            paths[-1].write_bytes(blob)
        for status, message, _ in tool.run(n_vocab, SPECIAL | BOS, texts, paths):
            assert (status == 0) == (message == ""), message
            statuses.append(status)
    return statuses


@pytest.mark.parametrize("name", ["plain", "container 1", "container 2"])
def test_cut_anywhere(checked_tool: Tool, name: str) -> None:
    """A file cut at every byte is refused: plain ones by count where a record ends, everything else as damaged."""
    if name == "plain":
        blob, n_vocab = pack_plain(SMALL), len(SMALL)
        ends = {4}
        for piece, _ in SMALL:
            ends.add(max(ends) + 8 + len(piece))
    else:
        container = small_container(int(name[-1]))
        blob, n_vocab, ends = container.pack(), 6, set()
    cuts = range(len(blob)) if len(blob) <= 4096 else [*range(4096), *range(4096, len(blob), (len(blob) - 4096) // 100 or 1)]
    expected = [SHAPE if cut in ends else FORMAT for cut in cuts]
    assert many(checked_tool, [blob[:cut] for cut in cuts], n_vocab) == expected


@pytest.mark.parametrize("name", ["plain", "container 1", "container 2"])
def test_bytes_changed(checked_tool: Tool, name: str) -> None:
    """2,000 files with one to four bytes changed end in success or a promised error, and nothing is read beyond them."""
    blob, n_vocab = (pack_plain(SMALL), len(SMALL)) if name == "plain" else (small_container(int(name[-1])).pack(), 6)
    rng = random.Random(name)
    blobs = []
    for i in range(2000):
        damaged = bytearray(blob)
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(64 if i % 2 and name != "plain" else len(damaged))
            damaged[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        blobs.append(bytes(damaged))
    statuses = many(checked_tool, blobs, n_vocab)
    assert set(statuses) <= {0, FORMAT, SHAPE}
    assert {0, FORMAT} <= set(statuses)


def test_vectors_with_sanitizers(checked_tool: Tool, data: Path) -> None:
    """Ordinary encoding of a large vocabulary, watched."""
    blob = (data / "llama2c" / "tokenizer.bin").read_bytes()
    expected = json.loads((data / "llama2c" / "llama2_token_vectors.json").read_text())
    for vector, encoded in zip(expected, checked_tool.encode(blob, 32000, [vector["text"] for vector in expected], BOS)):
        assert encoded.ids == vector["ids"]


def test_unicode_tables() -> None:
    """The committed character classes are those of Python's Unicode database."""
    run = subprocess.run([sys.executable, TOP / "tools" / "gen_unicode.py", "--check"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
