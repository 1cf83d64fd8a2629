"""How much output a request lets an engine generate, and in how many sequences, by the engine's own reading of its body. Pure.

Read in the sources of vLLM 0.6.6 to 0.33.0 (`ChatCompletionRequest`, `CompletionRequest`, `ResponsesRequest`, `AnthropicMessagesRequest`;
asked of 0.32.0), SGLang (a build of 2026: `openai/protocol.py`, `SamplingParams`), TensorRT-LLM (main of 2026: `openai_protocol.py`), and asked of
llama.cpp build 11549. What a client does not bound is bounded by the room that the model leaves it, but for completions of vLLM and
SGLang: 16 tokens, and SGLang's `/generate`: 128.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vramledger.gateway.admitter import Kind

LARGEST = 1 << 40
MOST_SETTINGS = 4096
"""Of one request's texts, each with settings of its own."""


class BadBound(ValueError):
    """A count that is none, named."""


class _Reading(msgspec.Struct, frozen=True):
    """`names` in the order in which the engine looks; `default` is None where there is no bound of its own."""

    names: tuple[str, ...]
    default: int | None = None


_CHAT = _Reading(("max_completion_tokens", "max_tokens"))
_RESPONSE = _Reading(("max_output_tokens",))
_MAX_TOKENS = _Reading(("max_tokens",))
_SHORT = _Reading(("max_tokens",), 16)
_LLAMACPP = _Reading(("n_predict", "max_completion_tokens", "max_tokens"))
_NATIVE = _Reading(("max_new_tokens",), 128)
_ANY = _Reading(("max_completion_tokens", "max_output_tokens", "max_tokens", "n_predict", "max_new_tokens"))

_READINGS: Mapping[tuple[str, Kind], _Reading] = {
    ("vllm", Kind.CHAT): _CHAT,
    ("vllm", Kind.COMPLETION): _SHORT,
    ("vllm", Kind.RESPONSE): _RESPONSE,
    ("vllm", Kind.MESSAGE): _MAX_TOKENS,
    ("sglang", Kind.CHAT): _CHAT,
    ("sglang", Kind.COMPLETION): _SHORT,
    ("sglang", Kind.RESPONSE): _RESPONSE,
    ("sglang", Kind.MESSAGE): _MAX_TOKENS,
    ("tensorrt-llm", Kind.CHAT): _CHAT,
    ("tensorrt-llm", Kind.COMPLETION): _MAX_TOKENS,
    ("tensorrt-llm", Kind.RESPONSE): _RESPONSE,
    ("llamacpp", Kind.CHAT): _LLAMACPP,
    ("llamacpp", Kind.COMPLETION): _LLAMACPP,
    ("llamacpp", Kind.RESPONSE): _Reading(
        ("n_predict", "max_output_tokens", "max_completion_tokens", "max_tokens")
    ),
    ("llamacpp", Kind.MESSAGE): _LLAMACPP,
}


def output_bound(engine: str, kind: Kind, asked: Mapping[str, object]) -> int | None:
    """The most tokens of one sequence; None where only the model's length bounds it. Where a body can be read in two ways, and without an `engine`,
    the larger bound. Raises BadBound for a bound that is none."""
    if kind is Kind.EMBEDDING:
        return 0
    reading = _READINGS.get((engine, kind))
    if reading is None:
        bounds = [_largest(one) for one in (asked, *_native(asked))]
        return max((bound for bound in bounds if bound is not None), default=None)
    if engine != "sglang" or kind is not Kind.COMPLETION:
        return _first(reading, asked)
    # `/generate` has its text under other names, and its settings in an object, or in one for each text.
    readings = [_first(reading, asked)] if "prompt" in asked else []
    if "prompt" not in asked or "sampling_params" in asked:
        readings += [_first(_NATIVE, one) for one in _native(asked) or [{}]]
    return None if None in readings else max(bound for bound in readings if bound is not None)


def branches_of(engine: str, asked: Mapping[str, object]) -> int:
    """Sequences that continue each prompt: samples, or beams, of which engines hold as many as they return (vLLM: `n`; TensorRT-LLM: `best_of`).
    vLLM read `best_of` until 0.11; later ones ignore it."""
    names = {"sglang": ("n",), "llamacpp": ("n", "n_cmpl")}.get(engine, ("n", "best_of"))
    return max(whole(one, name) or 1 for one in (asked, *_native(asked)) for name in names)


def _native(asked: Mapping[str, object]) -> list[Mapping[str, object]]:
    """SGLang's `sampling_params`: an object, or one for each text."""
    parameters = asked.get("sampling_params")
    if isinstance(parameters, list):
        if len(parameters) > MOST_SETTINGS:
            raise BadBound(f"sampling_params has more than {MOST_SETTINGS:,} settings")
        return [one for one in parameters if isinstance(one, dict)]
    return [parameters] if isinstance(parameters, dict) else []


def whole(settings: Mapping[str, object], name: str) -> int | None:
    """A count; None where it is absent, null or -1 (llama.cpp: no bound)."""
    value = settings.get(name)
    if value is None or value == -1:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise BadBound(f"{name} is not a whole number of a sensible size")
    return value


def _first(reading: _Reading, asked: Mapping[str, object]) -> int | None:
    """The first name that is given. One that is null has no bound: some releases take it so, others for their default."""
    for name in reading.names:
        bound = whole(asked, name)
        if bound is not None:
            return bound
        if asked.get(name) == -1:  # llama.cpp: as much as there is room for
            return None
    return None if any(name in asked for name in reading.names) else reading.default


def _largest(asked: Mapping[str, object]) -> int | None:
    bounds = [bound for name in _ANY.names if (bound := whole(asked, name)) is not None]
    return max(bounds, default=None)
