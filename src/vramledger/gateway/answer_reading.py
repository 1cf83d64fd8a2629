"""What an answer says of itself as it passes: usage, output, errors inside a stream that began with 200. Pure.

Shapes read: OpenAI's chat, completions, embeddings and responses; Anthropic's messages; llama.cpp's own (`tokens_predicted`,
`error:` fields); vLLM's `{"object": "error"}`. Nothing of a prompt or an output is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

LONGEST_EVENT = 1 << 20
LONGEST_ANSWER = 4 << 20
MOST_TOKENS = 1 << 40
"""More is no count; what reads it further on would have no room for it."""
READ_OF_ERROR = 4096
RAN_OUT = (
    "out of memory",  # the allocators of torch and CUDA; SGLang's prefill and decode
    "context size has been exceeded",  # llama.cpp, all slots of a unified cache
    "failed to find a memory slot",
    "find free space in the kv cache",
    "kv cache pool is full",  # SGLang
)
"""What engines say, in lower case, in the sentence of an error that tells of memory that ran out."""


class EngineError(msgspec.Struct, frozen=True, kw_only=True):
    """An error that an engine reported; its sentence is not kept, for it may quote the prompt. `ran_out`: it said that memory did."""

    code: str
    type: str
    ran_out: bool = False


class AnswerReading:
    """Tokens and error of one answer. `output_events` are events of a stream that carried output."""

    __slots__ = (
        "cached_prompt_tokens",
        "error",
        "finished",
        "output_events",
        "output_tokens",
        "prompt_tokens",
        "unread",
    )

    def __init__(self) -> None:
        self.prompt_tokens: int | None = None
        self.cached_prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.output_events = 0
        self.error: EngineError | None = None
        self.finished = False
        """The stream said that it was complete."""
        self.unread = 0
        """Events that were no JSON, or too long to be read."""

    def take(self, value: Mapping[str, object], *, as_error: bool = False) -> None:
        """Reads one object: a whole answer, or an event's."""
        kind = value.get("type")
        error = value.get("error")
        if error or as_error or value.get("object") == "error" or kind in ("error", "response.failed"):
            self.error = self.error or _error(error if isinstance(error, dict) else value)
        for place in (value, value.get("response"), value.get("message")):
            if isinstance(place, dict):
                usage = place.get("usage")
                if isinstance(usage, dict):
                    self._take_usage(usage)
                if place is not value and place.get("error"):
                    inner = place["error"]
                    self.error = self.error or _error(inner if isinstance(inner, dict) else place)
        self.prompt_tokens = _first(value, ("tokens_evaluated",), self.prompt_tokens)
        self.output_tokens = _first(value, ("tokens_predicted",), self.output_tokens)
        if _carries_output(value, kind):
            self.output_events += 1
        if kind in ("response.completed", "response.incomplete", "message_stop") or value.get("stop") is True:
            self.finished = True

    def _take_usage(self, usage: Mapping[str, object]) -> None:
        self.prompt_tokens = _first(usage, ("prompt_tokens", "input_tokens"), self.prompt_tokens)
        self.output_tokens = _first(usage, ("completion_tokens", "output_tokens"), self.output_tokens)
        # Anthropic's `input_tokens` are those that no cache had (as vLLM 0.32.0 words it in `_build_anthropic_usage`).
        read = _first(usage, ("cache_read_input_tokens",), None)
        made = _first(usage, ("cache_creation_input_tokens",), None)
        if (
            (read is not None or made is not None)
            and "input_tokens" in usage
            and self.prompt_tokens is not None
        ):
            self.prompt_tokens += (read or 0) + (made or 0)
            self.cached_prompt_tokens = read if read is not None else self.cached_prompt_tokens
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        if isinstance(details, dict):
            self.cached_prompt_tokens = _first(details, ("cached_tokens",), self.cached_prompt_tokens)


class StreamReading(AnswerReading):
    """An event stream, in whatever pieces it comes."""

    __slots__ = ("_event", "_rest", "_skipping")

    def __init__(self) -> None:
        super().__init__()
        self._rest = bytearray()
        self._event = b""
        self._skipping = False

    def feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines:
            if self._rest:
                self._rest += lines[0]
                lines[0] = bytes(self._rest)
                self._rest.clear()
            if self._skipping:
                self._skipping = False
                self.unread += 1
                del lines[0]
            for line in lines:
                self._line(line)
        if not self._skipping:
            self._rest += rest
            if len(self._rest) > LONGEST_EVENT:
                self._rest.clear()
                self._skipping = True

    def _line(self, line: bytes) -> None:
        field, colon, text = line.rstrip(b"\r").partition(b":")
        text = text.strip()
        if not field and not colon:
            self._event = b""
        elif field == b"event":
            self._event = text
        elif field in (b"data", b"error"):
            if text == b"[DONE]":
                self.finished = True
                return
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError):
                value = None
            as_error = field == b"error" or self._event == b"error"
            if isinstance(value, dict):
                self.take(value, as_error=as_error)
            elif as_error:
                self.error = self.error or EngineError(code="", type="")
            else:
                self.unread += 1


class WholeReading(AnswerReading):
    """An answer that is one JSON object; longer ones than a few MiB pass unread."""

    __slots__ = ("_bytes", "_parts")

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes <= LONGEST_ANSWER:
            self._parts.append(data)
        else:
            self._parts.clear()

    def end(self) -> None:
        if self._bytes > LONGEST_ANSWER:
            self.unread += 1
            return
        try:
            value = msgspec.json.decode(b"".join(self._parts))
        except (msgspec.DecodeError, RecursionError):
            value = None
        self._parts.clear()
        if isinstance(value, dict):
            self.take(value)
        else:
            self.unread += 1


def _carries_output(value: Mapping[str, object], kind: object) -> bool:
    if isinstance(kind, str):
        return kind.endswith(".delta") or kind == "content_block_delta"
    choices = value.get("choices")
    if not isinstance(choices, list):
        return bool(value.get("content"))
    for choice in choices:
        if isinstance(choice, dict):
            if choice.get("text"):
                return True
            delta = choice.get("delta")
            if isinstance(delta, dict) and any(part for name, part in delta.items() if name != "role"):
                return True
    return False


def _first(value: Mapping[str, object], names: tuple[str, ...], otherwise: int | None) -> int | None:
    for name in names:
        number = value.get(name)
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MOST_TOKENS:
            return number
    return otherwise


def _error(value: Mapping[str, object]) -> EngineError:
    message = value.get("message")
    said = message[:READ_OF_ERROR].lower() if isinstance(message, str) else ""
    return EngineError(
        code=_word(value.get("code")),
        type=_word(value.get("type")),
        ran_out=any(words in said for words in RAN_OUT),
    )


def _word(value: object) -> str:
    return str(value)[:64] if isinstance(value, int | str) else ""
