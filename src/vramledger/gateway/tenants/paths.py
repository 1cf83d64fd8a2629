"""Which paths pass to an engine that are not priced. Pure.

From the routes of vLLM 0.33, SGLang 0.5, llama.cpp's server and TensorRT-LLM's. Paths are written without /v1, as
`request_facts.path_words` gives them; `*` at the end stands for one more word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from urllib.parse import unquote_to_bytes

import msgspec

from vramledger.errors import InputError, shorter
from vramledger.gateway.messages import METHODS
from vramledger.gateway.replies import Reply, error_reply
from vramledger.gateway.request_facts import path_words, priced_kind

_SLASHES = re.compile(rb"[/\\]")
READING = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class Unpriced(Enum):
    """What becomes of paths that generate or hold KV and have no price here."""

    REFUSE = "refuse"
    PASS = "pass"  # noqa: S105


OPEN = frozenset(("health", "ping", "ready", "readyz", "live", "version"))
"""Read by probes, which have no key."""
READ = OPEN | {
    "",
    "models",
    "models/*",
    "models/*/*",
    "get_model_info",
    "model_info",
    "tokenizer_info",
    "load",
    "is_sleeping",
}
COUNTED = frozenset(
    (
        "tokenize", "detokenize", "apply-template", "ping",
        "chat/completions/input_tokens", "responses/input_tokens", "messages/count_tokens",
        "chat/completions/render", "completions/render", "responses/render", "messages/render",
        "chat/completions/derender", "completions/derender", "parse_function_call", "separate_reasoning",
    )
)  # fmt: skip
"""Posted, and only counted or rewritten: nothing of the pool is held."""
STORED = frozenset(("responses/*", "responses/*/cancel"))
"""Answers that an engine keeps; it does not know whose they are."""
UNPRICED = frozenset(
    (
        "audio/transcriptions", "audio/translations", "audio/speech", "realtime", "score", "rerank", "reranking", "v2/rerank",
        "v2/embed", "cohere/v2/chat", "pooling", "classify", "encode", "infill", "invocations", "chat/completions/batch",
        "inference/v1/generate", "generative_scoring", "systemone", "decisions", "health_generate", "predict", "vertex_generate",
        "images/generations", "images/edits", "videos", "videos/*", "batches", "files", "api/chat", "api/generate", "api/embed",
        "stream/*", "streams", "streams/lookup", "chat/completions/control",
    )
)  # fmt: skip
"""They generate, or hold KV, or end what others generate."""
CONTROL = frozenset(
    (
        "sleep", "wake_up", "pause", "resume", "is_paused", "reset_prefix_cache", "reset_mm_cache", "reset_encoder_cache", "flush_cache",
        "release_kv_cache_memory", "release_memory", "resume_memory", "release_memory_occupation", "resume_memory_occupation",
        "load_lora_adapter", "unload_lora_adapter", "load_lora_adapter_from_tensors", "lora-adapters", "start_profile", "stop_profile",
        "update_weights", "update_weight_version", "update_weights_from_disk", "update_weights_from_tensor", "update_weights_from_ipc",
        "update_weights_from_distributed", "get_weights_by_name", "weights_checker", "weight_info", "collective_rpc", "abort_requests",
        "abort_request", "pause_generation", "continue_generation", "open_session", "close_session", "configure_logging", "server_info",
        "get_server_info", "set_internal_state", "slow_down", "freeze_gc", "scale_elastic_ep", "is_scaling_elastic_ep", "metrics",
        "prometheus/metrics", "perf_metrics", "kv_cache_events", "kv_event_sources", "kv_cache_hints", "slots", "slots/*", "props",
        "models/load", "models/unload", "models/sse", "tools", "cors-proxy", "get_world_size", "loads", "pd_role_switch",
        "hicache/storage-backend", "hicache/storage-backend/clear", "steady_clock_offset", "shutdown_weight_transfer_engine",
    )
)  # fmt: skip
"""They change the engine, or show what it holds of others (slots show prompts, server_info shows keys)."""


class Allowed(msgspec.Struct, frozen=True):
    """A path that somebody lets through: `[METHOD ]/PATH`, with `/*` at the end for all beneath it."""

    method: bytes | None
    words: tuple[bytes, ...]
    beneath: bool

    def passes(self, method: bytes, words: list[bytes]) -> bool:
        if self.method is not None and method != self.method:
            return False
        if self.beneath:
            return len(words) > len(self.words) and tuple(words[: len(self.words)]) == self.words
        return tuple(words) == self.words


def read_allowed(text: str) -> Allowed:
    """Raises InputError for anything but a method, if any, and a path."""
    method, _, path = text.rpartition(" ")
    beneath = path.endswith("/*")
    words = path_words((path[:-2] if beneath else path).encode("utf-8"))
    known = not method or method.encode("ascii", "replace") in METHODS
    if not path.startswith("/") or not known or b"*" in b"".join(words) or any(map(_is_dots, words)):
        raise InputError(
            f"the path {shorter(text)} is not of the form /PATH, /PATH/* or METHOD /PATH", path=text
        )
    return Allowed(method.encode("ascii") if method else None, tuple(words), beneath)


def is_open(method: bytes, target: bytes) -> bool:
    """Whether probes may read it without a key."""
    return method in READING and _is_in(OPEN, path_words(target))


def refusal_of(
    method: bytes,
    target: bytes,
    allowed: Iterable[Allowed],
    *,
    unpriced: Unpriced,
    tenants_apart: bool,
) -> Reply | None:
    """Why something that is not priced may not pass; None if it may. `tenants_apart`: nobody may see what the engine keeps of another."""
    words = path_words(target)
    if any(map(_has_dots, words)):
        return error_reply(400, "bad-path", "a path with . or .. in it is not passed on")
    if any(one.passes(method, words) for one in allowed):
        return None
    if priced_kind(words) is not None:
        if method in READING:
            return None  # the engine says that it is not for reading
        return error_reply(405, "method-not-allowed", "this path takes POST", headers=[(b"allow", b"POST")])
    if _is_in(CONTROL, words):
        return _refused(403, "path-guarded", "it controls the engine or shows what it holds")
    if method in READING and _is_in(READ, words):
        return None
    if method in (b"POST", b"OPTIONS") and _is_in(COUNTED, words):
        return None
    if _is_in(STORED, words):
        if tenants_apart:
            return _refused(403, "path-guarded", "whose stored answer it is cannot be told")
        return None
    if _is_in(UNPRICED, words):
        if unpriced is Unpriced.PASS:
            return None
        return _refused(403, "path-unpriced", "what it takes of the engine's memory is not known here")
    return _refused(404, "path-unknown", "it is none that the gateway knows")


def _refused(status: int, code: str, why: str) -> Reply:
    return error_reply(
        status, code, f"this path is not passed on: {why}; --allow-path (allow_paths) lets it through"
    )


def _is_in(paths: frozenset[str], words: list[bytes]) -> bool:
    text = [word.decode("utf-8", "replace") for word in words]
    forms = {"/".join(text)}
    if len(text) > 1:
        forms.add("/".join((*text[:-1], "*")))
    if len(text) == 3:
        forms |= {f"{text[0]}/*/{text[2]}", f"{text[0]}/*/*"}
    return not paths.isdisjoint(forms)


def _has_dots(word: bytes) -> bool:
    """Whether somebody who decodes once more, or takes backslashes for slashes, would find them."""
    while b"%" in word and (decoded := unquote_to_bytes(word)) != word:
        word = decoded
    return any(map(_is_dots, _SLASHES.split(word)))


def _is_dots(word: bytes) -> bool:
    return word in (b".", b"..")
