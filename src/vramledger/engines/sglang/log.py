"""SGLang's log: its wordings, and what one start-up's lines mean in the ledger.

Printed sizes are differences of the device's free memory, so they hold whole segments of torch's allocator; a pool's
printed size includes the padding page that its token count leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from vramledger.engines.log_facts import (
    StartUp,
    count_of,
    last_start,
    ranks_of,
    said_by,
    size_of,
    text_of,
)
from vramledger.engines.printed_arguments import Scalar, printed_arguments
from vramledger.engines.sglang.log_figures import rank_figures
from vramledger.engines.sglang.log_parts import PARTS
from vramledger.engines.sglang.log_release import wording_note
from vramledger.engines.sglang.log_serving import SERVING
from vramledger.engines.sglang.log_startup import STARTUP
from vramledger.ledger import Owner
from vramledger.measurement import AllocatorState, Figure, GraphCapture, MeasuredPool, Measurement
from vramledger.observation import Event, Observation

NAME = "sglang"

SIGNS: tuple[str, ...] = (
    "server_args=ServerArgs(",
    "The server is fired up and ready to roll!",
    "KV Cache is allocated.",
    "Load weight begin. avail mem=",
    "Load weight end.",
    "Memory pool end. avail mem=",
    "#cached-token: ",
    "#running-req: ",
    "sglang.srt.",
    "sglang::scheduler",
)

PATTERNS = (*STARTUP, *SERVING, *PARTS)

_SETTINGS = ("chunked_prefill_size", "max_prefill_tokens", "max_running_requests")
_LABEL = re.compile(r"(PP|TP)_?([0-9]{1,5})(?![0-9])")


def measured(observations: Iterable[Observation]) -> Measurement:
    """What the last start-up states; of several ranks each its own figures, and the smallest pools."""
    start = last_start(observations, _begins)
    arguments = _arguments(start)
    version = _version(start)
    tp = _count(arguments.get("tp_size"))
    by_rank: dict[int | None, list[Observation]] = {}
    ranks = [_rank(item, tp) for item in start.said]
    first = min((rank for rank in ranks if rank is not None), default=None)
    for item, rank in zip(start.said, ranks, strict=True):
        # Sizes in capture are a progress bar of the first rank: it has no prefix, or one of another line before it.
        by_rank.setdefault(first if item.event is Event.GRAPH_SHAPE else rank, []).append(item)
    figures: list[Figure] = []
    pools: list[MeasuredPool] = []
    allocator: list[AllocatorState] = []
    graphs: list[GraphCapture] = []
    notes: list[str] = []
    page = _count(arguments.get("page_size"))
    for rank, said in sorted(by_rank.items(), key=lambda pair: -1 if pair[0] is None else pair[0]):
        found = rank_figures(said, ranks_of(rank), version, page)
        figures += found.figures
        pools += found.pools
        allocator += found.allocator
        graphs += found.graphs
        notes += found.notes
    figures += _host_figures(start, version)
    weights = start.first("architecture", Event.WEIGHTS)
    wording = wording_note(item.text for item in start.said) if version is None else None
    if wording is not None:
        notes.append(wording)
    if start.count > 1:
        notes.append(f"the log holds {start.count} start-ups; this is the last")
    return Measurement(
        sources=start.sources,
        engine=NAME,
        engine_version=version,
        model=_text(arguments.get("model_path")),
        model_revision=_text(arguments.get("revision")),
        architecture=text_of(weights, "architecture"),
        tp=tp,
        pp=_count(arguments.get("pp_size")),
        dp=_count(arguments.get("dp_size")),
        ep=_count(arguments.get("ep_size")),
        settings=_settings(start, arguments),
        figures=tuple(figures),
        pools=_smallest(pools),
        allocator=tuple(allocator),
        graphs=tuple(graphs),
        notes=tuple(dict.fromkeys(notes)),
    )


def _begins(item: Observation, seen: AbstractSet[Event]) -> bool:
    """Arguments are printed once a start (on each node before anything is loaded); a log without them begins anew where
    weights are loaded after requests were served."""
    if item.event is Event.SETTINGS:
        return not seen or bool(seen & {Event.LOAD_BEGIN, Event.WEIGHTS, Event.KV_POOL, Event.READY})
    return item.event is Event.LOAD_BEGIN and Event.READY in seen


def _arguments(start: StartUp) -> dict[str, Scalar | None]:
    text = text_of(start.first("arguments", Event.SETTINGS), "arguments")
    return printed_arguments(text) if text is not None else {}


def _version(start: StartUp) -> str | None:
    """No start-up line tells it; an answer of /server_info does."""
    return text_of(start.first("engine_version", Event.VERSION), "engine_version")


def _settings(
    start: StartUp, arguments: dict[str, Scalar | None]
) -> tuple[tuple[str, str | int | float | bool], ...]:
    """Arguments as printed, those of None left out, and the limits that were found with the pool."""
    found: dict[str, str | int | float | bool] = {
        name: value for name, value in arguments.items() if value is not None
    }
    limits = start.last("context_len", Event.KV_POOL)
    if limits is not None:
        for name in _SETTINGS:
            value = limits.values.get(name)
            if isinstance(value, int) and name not in arguments:
                found[name] = value
        for name, printed in (("max_total_num_tokens", "kv_tokens"), ("context_len", "context_len")):
            limit = count_of(limits, printed)
            if limit is not None:
                found[name] = limit
        running = count_of(limits, "max_running_requests")
        if running is not None and "max_running_requests" not in found:
            found["effective_max_running_requests"] = running
    quantization = text_of(start.first("quantization", Event.WEIGHTS), "quantization")
    if quantization is not None and "quantization" not in found:
        found["quantization"] = quantization
    return tuple(found.items())


def _host_figures(start: StartUp, version: str | None) -> list[Figure]:
    out = []
    for item in start.of(Event.BUFFER):
        size = size_of(item, "size_bytes")
        if size is None or item.values.get("buffer") != "host pool":
            continue
        named = text_of(item, "pool") or text_of(item, "purpose") or "hierarchical KV cache"
        out.append(
            Figure(
                owners=(Owner.KV_CACHE,), name=f"host pool: {named}", bytes=size, evidence=said_by(item, NAME, version),
                entries=("HiCache pools",), ranks=ranks_of(item.rank), on_host=True,
            )
        )  # fmt: skip
    return out


def _smallest(pools: list[MeasuredPool]) -> tuple[MeasuredPool, ...]:
    """Of each kind the smallest of all ranks: by tokens, then by bytes. Only the first rank prints the context's length."""
    best: dict[str, MeasuredPool] = {}
    for pool in pools:
        known = best.get(pool.kind)
        if known is None:
            best[pool.kind] = pool
            continue
        smaller = pool if _room(pool) < _room(known) else known
        best[pool.kind] = replace(smaller, context_len=known.context_len or pool.context_len)
    return tuple(best.values())


def _room(pool: MeasuredPool) -> tuple[float, float]:
    tokens = pool.tokens.expected if pool.tokens is not None else float("inf")
    size = pool.bytes.expected if pool.bytes is not None else float("inf")
    return tokens, size


def _rank(item: Observation, tp: int | None) -> int | None:
    """The world rank: the line's own, or that of a later pipeline stage where tp is known."""
    if item.rank is not None:
        return item.rank
    printed = count_of(item, "rank_id")
    if printed is not None:
        return printed
    parts = {kind: int(number) for kind, number in _LABEL.findall(item.process or "")}
    if "PP" in parts and tp:
        return parts["PP"] * tp + parts.get("TP", 0)
    return None


def _count(value: Scalar | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Scalar | None) -> str | None:
    return value if isinstance(value, str) and value else None
