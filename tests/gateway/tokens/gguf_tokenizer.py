"""The tokenizer of a GGUF file with byte-level BPE, as the library that reads tokenizer.json has it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
CONTROL, USER_DEFINED = 3, 4


def metadata(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        magic, _, _, count = struct.unpack("<4sIQQ", file.read(24))
        assert magic == b"GGUF"
        return {_text(file): _value(file, _number(file, "I")) for _ in range(count)}


def tokenizer_of(path: Path) -> tuple[Tokenizer, str]:
    """The tokenizer and the chat template. SmolLM's: digits one by one, then GPT-2's words."""
    told = metadata(path)
    assert told["tokenizer.ggml.model"] == "gpt2"
    assert told["tokenizer.ggml.pre"] == "smollm"
    words = told["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in told["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = told["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(word, special=True, normalized=False)
            for word, kind in zip(words, kinds, strict=True)
            if kind in (CONTROL, USER_DEFINED)
        ]
    )
    return tokenizer, told["tokenizer.chat_template"]


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "Q")).decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return _text(file)
    if kind == 9:
        inner, count = _number(file, "I"), _number(file, "Q")
        if inner in FORMS:
            form = f"<{count}{FORMS[inner]}"
            return list(struct.unpack(form, file.read(struct.calcsize(form))))
        return [_value(file, inner) for _ in range(count)]
    return _number(file, FORMS[kind])
