"""What can be seen of a prompt without a tokenizer. Pure, and no text is kept."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from vramledger.gateway.admitter import Kind
from vramledger.gateway.request_facts import MEDIA_FIELDS, prompt_of, texts_in

WRITTEN_OUT = ("tools", "functions", "documents", "chat_template_kwargs", "response_format")
"""Fields that a chat template may write into the prompt as JSON."""
UNSEEN = ("previous_response_id", "conversation", "prompt_embeds")
"""Fields by which a prompt holds more than the request says."""


PLAIN = bytes(byte for byte in range(256) if byte > 127 or chr(byte).isalpha() or byte == 32)
LOOKED_AT = 1 << 16
"""Characters of one text that are looked at for its signs."""


class PromptShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one prompt; of several, those of the longest.

    `characters` and `text_bytes` (UTF-8) are of its text, `signs` are characters of ASCII that are
    neither letters nor blanks, `words` blanks and line ends. `json_bytes` are of what templates write out as JSON (tools, calls of tools, documents),
    `media` are images, sounds and films. `is_open` where the engine adds what the request does not show. `prompts` is how many there are.
    """

    characters: int
    text_bytes: int
    signs: int = 0
    words: int = 0
    messages: int = 0
    json_bytes: int = 0
    media: int = 0
    is_open: bool = False
    prompts: int = 1


def texts_of(prompt: object) -> list[str] | None:
    """The texts of a prompt or of several; None where some of it is not text."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(piece, str) for piece in prompt):
        return list(prompt)
    return None


def shape_of(kind: Kind, asked: Mapping[str, object], text_bytes: int) -> PromptShape:
    """`text_bytes` are `RequestFacts.prompt_bytes`. Takes time by the number of texts, and by the bytes of tools."""
    is_open = any(asked.get(name) for name in UNSEEN)
    if kind in (Kind.CHAT, Kind.MESSAGE):
        turns = asked.get("messages")
        parts: tuple[object, ...] = (turns, asked.get("system"))
    elif kind is Kind.RESPONSE:
        turns = asked.get("input")
        parts = (turns, asked.get("instructions"))
        is_open = is_open or isinstance(asked.get("prompt"), dict)
    else:
        return _completion_shape(asked, text_bytes, is_open)
    seen = _Seen()
    for part in parts:
        seen.look(part)
    written = [asked[name] for name in WRITTEN_OUT if asked.get(name)]
    json_bytes = _json_bytes(written) + sum(map(_json_bytes, seen.calls))
    return PromptShape(
        characters=seen.characters,
        signs=seen.signs,
        words=seen.words,
        # Text of tools and of their calls is among their JSON already.
        text_bytes=max(
            seen.characters, text_bytes - _utf8_bytes(asked.get("tools")) - sum(map(_utf8_bytes, seen.calls))
        ),
        messages=len(turns) if isinstance(turns, list) else 1,
        json_bytes=json_bytes,
        media=seen.media,
        is_open=is_open,
    )


def _completion_shape(asked: Mapping[str, object], text_bytes: int, is_open: bool) -> PromptShape:
    prompt = prompt_of(asked)
    media = sum(1 for name in MEDIA_FIELDS if asked.get(name))
    prompts = (
        prompt
        if isinstance(prompt, list) and not any(isinstance(piece, int) for piece in prompt)
        else [prompt]
    )
    longest = PromptShape(characters=0, text_bytes=0)
    for one in prompts:
        seen = _Seen()
        seen.look(one)
        media += seen.media
        one_bytes = (text_bytes if len(prompts) == 1 else _utf8_bytes(one)) + seen.tokens
        if one_bytes >= longest.text_bytes:
            longest = PromptShape(
                characters=seen.characters + seen.tokens,
                text_bytes=one_bytes,
                signs=seen.signs,
                words=seen.words,
            )
    return replace(longest, media=media, is_open=is_open, prompts=max(1, len(prompts)))


class _Seen:
    def __init__(self) -> None:
        self.characters = self.media = self.tokens = self.signs = self.words = 0
        self.calls: list[object] = []

    def look(self, value: object) -> None:
        """Goes through a value of any depth without recursion; what media hold is not text."""
        pending = [value]
        while pending:
            item = pending.pop()
            if isinstance(item, str):
                self._text(item)
            elif isinstance(item, int):
                self.tokens += 1
            elif isinstance(item, list):
                pending.extend(item)
            elif isinstance(item, dict):
                if any(name in MEDIA_FIELDS for name in item):
                    self.media += 1
                for name, part in item.items():
                    if name in ("tool_calls", "function_call", "arguments") or (
                        name == "input" and isinstance(part, dict)
                    ):
                        self.calls.append(part)
                    elif name not in MEDIA_FIELDS:
                        pending.append(part)

    def _text(self, text: str) -> None:
        length = len(text)
        self.characters += length
        seen = text if length <= LOOKED_AT else text[:LOOKED_AT]
        signs = len(seen.encode("utf-8", "surrogatepass").translate(None, PLAIN))
        words = seen.count(" ") + seen.count("\n")
        if seen is not text:
            signs, words = signs * length // LOOKED_AT, words * length // LOOKED_AT
        self.signs += signs
        self.words += words


def _json_bytes(value: object) -> int:
    try:
        return len(msgspec.json.encode(value))
    except (RecursionError, ValueError, TypeError):
        return 2 * _utf8_bytes(value)  # deeper than an encoder goes; no engine renders it either


def _utf8_bytes(value: object) -> int:
    """Of all text in a value, as `RequestFacts.prompt_bytes` counts it."""
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        for text in texts_in(value)
    )
