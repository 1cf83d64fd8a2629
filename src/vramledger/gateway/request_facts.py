"""From a request's path and JSON body to the facts that an admission policy reads. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote_to_bytes

import msgspec

from vramledger.gateway.admitter import Kind, PromptTokens, RequestFacts, TokenSource
from vramledger.gateway.output_bounds import BadBound, branches_of, output_bound
from vramledger.gateway.stages import Visitor

PATHS: Mapping[bytes, Kind] = {
    b"/chat/completions": Kind.CHAT,
    b"/completions": Kind.COMPLETION,
    b"/responses": Kind.RESPONSE,
    b"/messages": Kind.MESSAGE,
    b"/embeddings": Kind.EMBEDDING,
    # llama.cpp's own and SGLang's own.
    b"/completion": Kind.COMPLETION,
    b"/embedding": Kind.EMBEDDING,
    b"/generate": Kind.COMPLETION,
}
PROMPT_FIELDS = ("prompt", "input", "text", "input_ids", "content")
MEDIA_FIELDS = frozenset(
    ("image", "image_url", "input_image", "input_audio", "audio_url", "video", "video_url", "input_file", "file", "source",
     "image_embeds", "image_data", "audio_data", "video_data", "multimodal_data")
)  # fmt: skip
"""Fields of a message's parts that hold images, sounds, films or files, or point at them."""
MOST_VALUES = 2_000_000
"""Of lists and objects together, told by their commas: each costs time of everybody's."""
MOST_CONTAINERS = 250_000
"""Lists and objects of a whole body, told by what opens them: of code in a prompt some twenty MiB have as many."""
MOST_FRACTIONS = 100_000
MOST_QUOTES = 1_000_000
"""Twice the names and texts of a whole body."""
MOST_TEXTS = 200_000
"""Texts and objects of one prompt; tokens are not among them."""
ANYBODY = Visitor()
_TOKENS = {int, bool}


_BOUNDS = (
    ((b",",), MOST_VALUES, "values"),
    ((b"[", b"{"), MOST_CONTAINERS, "lists and objects"),
    ((b'"',), MOST_QUOTES, "quotation marks"),
)


class _Fractions:
    """Reads numbers that are not whole, up to a number of them: msgspec's own reading takes 18 µs for one such as 1e308."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_FRACTIONS

    def __call__(self, text: str) -> float:
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"there are more than {MOST_FRACTIONS:,} numbers that are not whole")
        return float(text)


_fractions = _Fractions()
_DECODER = msgspec.json.Decoder(
    float_hook=_fractions
)  # a new one for each body takes ten times as long as most bodies


class BadBody(ValueError):
    """A generation request whose body cannot be priced; the engine could not serve it either."""


def path_words(target: bytes) -> list[bytes]:
    """A path as a lenient engine would read it: decoded once, slashes folded, without a leading /v1 and without its query."""
    words = [word for word in unquote_to_bytes(target.partition(b"?")[0]).split(b"/") if word]
    if words[:1] == [b"v1"]:
        del words[0]
    return words


def priced_kind(words: list[bytes]) -> Kind | None:
    """What a POST to this path generates, if it has a price."""
    return PATHS.get(b"/" + b"/".join(words))


def kind_of(method: bytes, target: bytes) -> Kind | None:
    """None for what passes unpriced."""
    return priced_kind(path_words(target)) if method == b"POST" else None


def read_body(body: bytes) -> dict[str, object]:
    """The JSON object of a priced request. Raises BadBody naming what was wrong."""
    for marks, most, what in _BOUNDS:
        if sum(map(body.count, marks)) > most:
            raise BadBody(f"the body has more than {most:,} {what}")
    try:
        _fractions.left = MOST_FRACTIONS
        asked = _DECODER.decode(body)
    except msgspec.DecodeError as error:
        raise BadBody(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise BadBody("the body is nested too deep") from error
    if not isinstance(asked, dict):
        raise BadBody("the body is not a JSON object")
    return asked


def facts_of(
    kind: Kind,
    asked: Mapping[str, object],
    visitor: Visitor = ANYBODY,
    *,
    number: int,
    arrival_ns: int,
    engine: str = "",
) -> RequestFacts:
    """`engine` is whose reading of the body goes, as `vramledger.engines` names it; without one the largest that any would read. Raises BadBody
    naming what was wrong. Fields of the wrong type are left to the engine unless the price depends on them."""
    text_bytes, tokens, prompts = _prompt(kind, asked)
    try:
        bound, branches = output_bound(engine, kind, asked), branches_of(engine, asked)
    except BadBound as bad:
        raise BadBody(str(bad)) from bad
    counted = PromptTokens(tokens=tokens, most_tokens=tokens, source=TokenSource.TOKEN_IDS)
    model = asked.get("model")
    return RequestFacts(
        number=number,
        kind=kind,
        model=model if isinstance(model, str) else "",
        prompt_bytes=text_bytes,
        prompt=counted if tokens and not text_bytes else None,
        max_output_tokens=bound,
        branches=prompts * branches,
        stream=asked.get("stream") is True,
        arrival_ns=arrival_ns,
        tenant=visitor.tenant,
        priority=visitor.priority,
        first_token_within_ms=visitor.first_token_within_ms,
        within_ms=visitor.within_ms,
        after_tool=_ends_with_tool(asked),
    )


def _ends_with_tool(asked: Mapping[str, object]) -> bool:
    """OpenAI's chat (role `tool`, once `function`) and responses (`function_call_output`), Anthropic's `tool_result`."""
    messages = asked.get("messages") or asked.get("input")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict):
        return False
    if last.get("role") in ("tool", "function") or last.get("type") == "function_call_output":
        return True
    content = last.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "tool_result" for part in content
    )


def _prompt(kind: Kind, asked: Mapping[str, object]) -> tuple[int, int, int]:
    """(bytes of text, token ids of the longest prompt, prompts) of what the request brings."""
    if kind in (Kind.CHAT, Kind.MESSAGE):
        parts = (asked.get("messages"), asked.get("system"), asked.get("tools"))
        return sum(map(_text_bytes, parts)), 0, 1
    if kind is Kind.RESPONSE:
        parts = (asked.get("input"), asked.get("instructions"), asked.get("tools"))
        return sum(map(_text_bytes, parts)), 0, 1
    prompt = prompt_of(asked)
    if not isinstance(prompt, list) or not prompt:
        return _text_bytes(prompt), 0, 1
    kinds = set(map(type, prompt))
    # llama.cpp takes text and token ids mixed in one prompt; a list of texts or of lists is many prompts.
    if int in kinds:
        is_mixed = len(kinds) > 1
        tokens = sum(type(piece) is int for piece in prompt) if is_mixed else len(prompt)
        return _text_bytes(prompt) if is_mixed else 0, tokens, 1
    tokens = text_bytes = 0
    if len(prompt) > MOST_TEXTS:
        raise BadBody(f"there are more than {MOST_TEXTS:,} prompts")
    for piece in prompt:
        if isinstance(piece, list) and set(map(type, piece)) == {int}:
            tokens = max(tokens, len(piece))
        else:
            text_bytes += _text_bytes(piece)
            if isinstance(piece, list):
                tokens = max(tokens, sum(type(token) is int for token in piece))
    return text_bytes, tokens, len(prompt)


def prompt_of(asked: Mapping[str, object]) -> object:
    """The prompt of a completion or an embedding, by whichever name an engine calls it; of several the longest, for each engine reads its own."""
    named = [asked[name] for name in PROMPT_FIELDS if name in asked]
    return max(named, key=_size) if len(named) > 1 else named[0] if named else None


def _size(value: object) -> int:
    """Bytes of text and numbers of tokens in a value."""
    size, pending = _text_bytes(value), [value]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            kinds = list(map(type, item))
            size += kinds.count(int) + kinds.count(bool)
            if list in kinds:
                pending.extend(part for part in item if type(part) is list)
        elif isinstance(item, int):
            size += 1
    return size


def _text_bytes(value: object) -> int:
    """UTF-8 bytes of all text in a value, whatever holds it; names of fields do not count, images by their encoding do not either."""
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        for text in texts_in(value)
    )


def texts_in(value: object) -> Iterator[str]:
    """All text in a value of any depth, but names of fields and what media hold. Raises BadBody where it is in too many pieces."""
    pending, pieces = [value], 0
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            if not set(map(type, item)) <= _TOKENS:
                pending.extend(part for part in item if type(part) is not int)
            continue
        pieces += not isinstance(item, int)
        if pieces > MOST_TEXTS:
            raise BadBody(f"the prompt is in more than {MOST_TEXTS:,} pieces")
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending.extend(part for name, part in item.items() if name not in MEDIA_FIELDS)
