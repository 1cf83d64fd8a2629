"""Renders chats as engines do, with the model's own template, where a tokenizer stands beside the gateway.

The template is Jinja as transformers runs it (`utils/chat_template_utils.py`, 4.44 to 5.23): blocks trimmed, loop controls, `tojson` without ASCII
escapes, `raise_exception`, `strftime_now`. It is run in Jinja's sandbox, and its text is bounded. Messages are prepared as vLLM and
llama.cpp prepare them: parts that are text alone are joined by line ends unless the template goes through them itself, and arguments
of called functions become objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from vramledger.errors import InputError

LONGEST_TEMPLATE = 1 << 18
GOES_THROUGH_PARTS = re.compile(
    r"\bin\s+\w*(?:\[['\"]content['\"]\]|\.content\b)|\bcontent\b\s+is\s+(?:not\s+)?string"
)


class Unrenderable(ValueError):
    """The template refuses the messages, or makes more of them than is taken in."""


class ChatTemplate:
    """`source` is the template; `tokens` what it calls `bos_token`, `eos_token` and so on. An InputError names what is wrong with it."""

    def __init__(
        self, source: str, *, tokens: Mapping[str, str] | None = None, longest: int = 8_000_000
    ) -> None:
        try:
            from jinja2 import TemplateError
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise InputError(
                "chat templates need Jinja: pip install 'vramledger[tokenizers]'", extra="tokenizers"
            ) from None
        if len(source) > LONGEST_TEMPLATE:
            raise InputError(
                f"the chat template has {len(source)} characters, more than any has", characters=len(source)
            )
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise InputError(f"the chat template is no Jinja: {error}") from error
        self._tokens = dict(tokens or {})
        self._longest = longest
        self._keeps_parts = GOES_THROUGH_PARTS.search(source) is not None

    def render(self, asked: Mapping[str, object]) -> str:
        """The prompt of a chat's request. Raises Unrenderable."""
        if asked.get("chat_template"):
            raise Unrenderable("the request brings a template of its own")
        own = asked.get("chat_template_kwargs")
        settings: dict[str, Any] = {**self._tokens, **(own if isinstance(own, dict) else {})}
        for name in ("documents", "reasoning_effort"):
            if asked.get(name) is not None:
                settings[name] = asked[name]
        continues = asked.get("continue_final_message") is True
        settings["add_generation_prompt"] = asked.get("add_generation_prompt") is not False and not continues
        settings["messages"] = [self._prepared(message) for message in _list(asked.get("messages"))]
        settings["tools"] = asked.get("tools") or None
        pieces, room = [], self._longest
        try:
            for piece in self._template.generate(settings):
                room -= len(piece)
                if room < 0:
                    raise Unrenderable("the chat is too long")
                pieces.append(piece)
        except Unrenderable:
            raise
        except Exception as error:  # whatever a template can do wrong with messages that it was not made for
            raise Unrenderable(type(error).__name__) from None
        text = "".join(pieces)
        if continues:
            last = settings["messages"][-1].get("content") if settings["messages"] else None
            if not isinstance(last, str) or (at := text.rfind(last.strip())) < 0:
                raise Unrenderable("the message to be continued is not in the prompt")
            text = text[: at + len(last.strip())]
        return text

    def _prepared(self, message: object) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise Unrenderable("a message is not an object")
        told = dict(message)
        parts = told.get("content")
        if isinstance(parts, list) and not self._keeps_parts:
            texts = [
                part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
                for part in parts
            ]
            if not all(isinstance(text, str) for text in texts):
                raise Unrenderable("a part of a message is not text")
            told["content"] = "\n".join(text for text in texts if isinstance(text, str))
        calls = told.get("tool_calls")
        if isinstance(calls, list):
            told["tool_calls"] = [_with_arguments(call) for call in calls]
        return told


def _with_arguments(call: object) -> object:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            function["arguments"] = json.loads(arguments) if arguments else {}
        except (ValueError, RecursionError):
            raise Unrenderable("arguments of a call are not JSON") from None
    return {**call, "function": function}


def _to_json(
    value: Any,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
    ensure_ascii: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> str:
    raise Unrenderable(str(message)[:100])


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise Unrenderable("messages are not a list")
    return value
