"""Tokenizer files as a model's folder has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from vramledger.errors import InputError, SourceError
from vramledger.gateway.tokens.local_tokenizer import local_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    one = Tokenizer(models.WordLevel(vocab={"<s>": 0, "a": 1, "[UNK]": 2}, unk_token="[UNK]"))
    one.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    one.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    one.enable_truncation(2)
    one.enable_padding(length=9)
    one.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_texts_are_counted_whole_with_what_is_put_around_them(folder: Path) -> None:
    for path in (folder, folder / "tokenizer.json"):
        read = local_tokenizer(path)
        assert read.ids(["a a b", "a"], special=True) == [[0, 1, 1, 2], [0, 1]]
        assert read.ids(["a a b"], special=False) == [[1, 1, 2]]
        assert read.template is None


def test_a_chat_has_its_special_tokens_from_the_template(folder: Path) -> None:
    config = {
        "chat_template": [
            {"name": "tool_use", "template": "x"},
            {"name": "default", "template": "{{ bos_token }} a"},
        ]
    }
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": {"content": "<s>"}}))
    assert local_tokenizer(folder).chat_ids({"messages": []}) == [0, 1]
    (folder / "chat_template.jinja").write_text("a a")
    assert local_tokenizer(folder).chat_ids({"messages": []}) == [1, 1]
    (folder / "mine.jinja").write_text("a a a")
    assert local_tokenizer(folder, template=folder / "mine.jinja").chat_ids({"messages": []}) == [1, 1, 1]


def test_half_a_character_has_no_tokens(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^\w+$"):
        local_tokenizer(folder).ids(["a \ud800"], special=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [("tokenizer.json", "{}"), ("tokenizer.json", "\x00"), ("tokenizer_config.json", "["), ("tokenizer_config.json", "[]"), ("chat_template.jinja", "{% if %}")],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(InputError):
        local_tokenizer(folder)


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(SourceError, match="absent"):
        local_tokenizer(folder / "absent")
    with pytest.raises(SourceError, match=r"none\.jinja"):
        local_tokenizer(folder, template=folder / "none.jinja")
