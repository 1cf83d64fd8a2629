"""What requests ask for beside tokens, and what is kept for them between their turns.

A question of ours that every engine answers in its own bytes: none of these is an engine's flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from vramledger.engines.option import Option, OptionKind
from vramledger.errors import FlagError

GROUP = "Requests (ours, no flags of the engine)"
WHOLE_VOCABULARY = -1
_MOST = 2**40


class Requests(Struct, frozen=True, kw_only=True):
    """`prompt_logprobs` and `logprobs` are how many of the likeliest tokens are returned for each prompt token
    and each sampled one (0: only the token itself, -1: the whole vocabulary, None: not asked). `penalties` is
    whether any request has a repetition, frequency or presence penalty, `grammars` how many different grammars
    constrain outputs, `beams` the beam width, `prompt_embeds` how many requests at once have prompts of embeddings. `held_contexts` contexts of `held_tokens` tokens (None: the full
    context) stay referenced while a tool runs. Raises FlagError for numbers that mean nothing."""

    prompt_logprobs: int | None = None
    logprobs: int | None = None
    penalties: bool = False
    grammars: int = 0
    beams: int = 1
    prompt_embeds: int = 0
    held_contexts: int = 0
    held_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= _MOST:
                raise FlagError(
                    f"--{name.replace('_', '-')} is {value}; it must be {least} to {_MOST}",
                    flag=name,
                    value=value,
                )
        if self.held_tokens is not None and not self.held_contexts:
            raise FlagError(
                "--held-tokens says how long a held context is; --held-contexts says how many there are",
                flag="held_tokens",
                value=self.held_tokens,
            )


_LEAST = {
    "prompt_logprobs": WHOLE_VOCABULARY,
    "logprobs": WHOLE_VOCABULARY,
    "grammars": 0,
    "beams": 1,
    "prompt_embeds": 0,
    "held_contexts": 0,
    "held_tokens": 1,
}
NO_REQUESTS = Requests()


def _option(name: str, kind: OptionKind, text: str) -> Option:
    return Option(name=name, kind=kind, group=GROUP, help=text)


REQUEST_OPTIONS: tuple[Option, ...] = (
    _option(
        "prompt_logprobs", OptionKind.SIGNED,
        "A request asks for this many log-probabilities of each prompt token; -1: the whole vocabulary.",
    ),
    _option(
        "logprobs", OptionKind.SIGNED,
        "Requests ask for this many log-probabilities of each sampled token; -1: the whole vocabulary.",
    ),
    _option("penalties", OptionKind.SWITCH, "Requests have repetition, frequency or presence penalties."),
    _option("grammars", OptionKind.COUNT, "Different grammars (JSON schemas, regular expressions) in use."),
    _option("beams", OptionKind.COUNT, "Beam width of each request."),
    _option("prompt_embeds", OptionKind.COUNT, "Requests at once whose prompts are given as embeddings."),
    _option("held_contexts", OptionKind.COUNT, "Contexts whose KV stays referenced while a tool runs."),
    _option("held_tokens", OptionKind.COUNT, "Tokens of a held context; the full context without it."),
)  # fmt: skip
REQUEST_NAMES = frozenset(option.name for option in REQUEST_OPTIONS)


def requests_of(values: Mapping[str, Any]) -> Requests:
    """Requests from values read by their options; the one of `NO_REQUESTS` for none."""
    return Requests(**values) if values else NO_REQUESTS


def shown_requests(asked: Requests) -> dict[str, object]:
    """What was asked beyond nothing, by name, as a plan's settings show it."""
    names = Requests.__struct_fields__
    return {
        name: getattr(asked, name) for name in names if getattr(asked, name) != getattr(NO_REQUESTS, name)
    }


def take_requests(flags: dict[str, Any]) -> None:
    """Move what was asked among flags read by name into one `requests` flag, where anything was."""
    asked = {name: flags.pop(name) for name in REQUEST_NAMES & flags.keys()}
    if asked:
        flags["requests"] = requests_of(asked)
