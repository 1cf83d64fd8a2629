"""A model's tokenizer beside the gateway: tokenizer.json, read by Hugging Face's `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramledger.errors import InputError, SourceError
from vramledger.gateway.tokens.chat_template import ChatTemplate, Unrenderable

LARGEST_FILE = 128 << 20
LARGEST_CONFIG = 4 << 20


class LocalTokenizer:
    """Counts texts, and chats where it has the model's template. Nothing here waits; long texts are somebody else's thread."""

    def __init__(self, tokenizer: Any, template: ChatTemplate | None = None) -> None:
        """`tokenizer` is a `tokenizers.Tokenizer`."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.template = template

    def ids(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Tokens of each text; `special` adds what the tokenizer adds around a text (its beginning and end). Raises ValueError."""
        try:
            # Of its calls, those of batches let other threads run.
            return [one.ids for one in self._tokenizer.encode_batch_fast(texts, add_special_tokens=special)]
        except Exception as error:  # half a character, and whatever the library raises
            raise ValueError(type(error).__name__) from None

    def chat_ids(self, asked: Mapping[str, object]) -> list[int]:
        """Tokens of a chat, by its template, which writes the special tokens itself. Raises Unrenderable and ValueError."""
        if self.template is None:
            raise Unrenderable("there is no template")
        return self.ids([self.template.render(asked)], special=asked.get("add_special_tokens") is True)[0]


def local_tokenizer(path: Path, *, template: Path | None = None) -> LocalTokenizer:
    """Reads `path`, a tokenizer.json or the folder that has one. The chat template is `template`, or what lies beside it: chat_template.jinja, or
    `chat_template` of tokenizer_config.json; without any, chats are counted by their text and a learned overhead.

    Raises InputError for what is wrong with a file, SourceError for one that cannot be read.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "a tokenizer file needs a library: pip install 'vramledger[tokenizers]'", extra="tokenizers"
        ) from None
    try:
        file = path / "tokenizer.json" if path.is_dir() else path
    except OSError as error:  # a name that is too long
        raise SourceError(f"{path} cannot be read: {error.strerror or error}", file=str(path)) from error
    data = _read(file, LARGEST_FILE)
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises plain ones
        raise InputError(f"{file} is no tokenizer.json: {error}", file=str(file)) from error
    config = _config(file.parent / "tokenizer_config.json")
    source = (
        _read(template, LARGEST_CONFIG).decode("utf-8", "replace")
        if template
        else _source(file.parent, config)
    )
    if source is None:
        return LocalTokenizer(tokenizer)
    tokens = {
        name: text
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        if (text := _token(config.get(name)))
    }
    return LocalTokenizer(tokenizer, ChatTemplate(source, tokens=tokens))


def _source(folder: Path, config: Mapping[str, object]) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        return _read(beside, LARGEST_CONFIG).decode("utf-8", "replace")
    told = config.get("chat_template")
    if isinstance(told, list):  # several by name
        told = next(
            (one.get("template") for one in told if isinstance(one, dict) and one.get("name") == "default"),
            None,
        )
    return told if isinstance(told, str) else None


def _config(file: Path) -> dict[str, object]:
    if not file.is_file():
        return {}
    try:
        config = json.loads(_read(file, LARGEST_CONFIG))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error}", file=str(file)) from error
    if not isinstance(config, dict):
        raise InputError(f"{file} is not a JSON object", file=str(file))
    return config


def _token(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _read(file: Path, most: int) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror or error}", file=str(file)) from error
    if len(data) > most:
        raise InputError(f"{file} is larger than {most} bytes", file=str(file), most=most)
    return data
