"""What SGLang's information endpoints state: settings and, since 0.5.2, the memory of each data-parallel replica.

Source: sglang srt/entrypoints/http_server.py (/server_info, /get_server_info to 0.5.18 alone), managers/scheduler.py
(get_internal_state), managers/scheduler_components/memory_usage.py. Sizes are GiB, rounded to two decimals to 0.5.15,
to three since 0.5.18, where captured graphs are told by phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramledger.engines.json_answer import count, json_answer, rounded, scalars, text
from vramledger.engines.metrics_table import InfoEndpoint
from vramledger.evidence import Evidence, measured
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import AllocatorState, Figure, MeasuredPool, Measurement, MeasurementSource
from vramledger.pool import IntRange
from vramledger.units import GIB

_POOLS = (
    "KV pool",
    "windowed layers' pool",
    "draft's KV pool",
    "KV beyond its charge",
    "padding pages",
    "recurrent states",
)


def server_info(body: bytes, source: str) -> Measurement:
    """Settings, version and memory of an instance. Raises InputError for a body that is no such answer."""
    answer = json_answer(body, source, kind=dict, engine="SGLang")
    states = answer.get("internal_states")
    replicas = [item for item in states if isinstance(item, dict)] if isinstance(states, list) else [answer]
    version = text(answer.get("version"))
    figures: list[Figure] = []
    pools: list[MeasuredPool] = []
    allocator: list[AllocatorState] = []
    for position, replica in enumerate(replicas):
        usage = replica.get("memory_usage")
        if not isinstance(usage, dict):
            continue
        where = f"{source} internal_states[{position}].memory_usage"
        evidence = measured(f"{where}, sglang {version}" if version else f"{where}, sglang")
        figures += _figures(usage, evidence)
        pools += _pools(usage, answer, evidence)
        free = rounded(usage.get("startup_available"), GIB, 3)
        if free is not None:
            allocator.append(
                AllocatorState(evidence=evidence, phase=Phase.WARMUP, point="start-up ends", device_free_bytes=free)
            )  # fmt: skip
    return Measurement(
        sources=(MeasurementSource(name=source, kind="endpoint"),),
        engine="sglang",
        engine_version=version,
        model=text(answer.get("model_path")),
        model_revision=text(answer.get("revision")),
        tp=count(answer.get("tp_size")),
        pp=count(answer.get("pp_size")),
        dp=count(answer.get("dp_size")),
        ep=count(answer.get("ep_size")),
        settings=_settings(answer, replicas),
        figures=tuple(figures),
        pools=_smallest(pools),
        allocator=tuple(allocator),
    )


def _settings(
    answer: Mapping[str, Any], replicas: list[dict[str, Any]]
) -> tuple[tuple[str, str | int | float | bool], ...]:
    """What it answers beside memory; limits of the scheduler under the names that its log gives them."""
    left_out = ("internal_states", "version", "launch_command", "startup_time")
    found = dict(scalars({name: value for name, value in answer.items() if name not in left_out}))
    for replica in replicas:
        running = count(replica.get("effective_max_running_requests_per_dp"))
        if running is not None:
            found["effective_max_running_requests"] = running
    return tuple(found.items())


def _figures(usage: Mapping[str, Any], evidence: Evidence) -> list[Figure]:
    graphs = usage.get("graph")
    decimals = 3 if isinstance(graphs, dict) else 2
    out = []
    weights = rounded(usage.get("weight"), GIB, decimals)
    if weights is not None:
        out.append(
            Figure(
                owners=(Owner.WEIGHTS, Owner.ALLOCATOR), name="weights", bytes=weights, evidence=evidence,
                without=("draft model",),
            )
        )  # fmt: skip
    pool = rounded(usage.get("kvcache"), GIB, decimals)
    if pool is not None:
        out.append(
            Figure(owners=(Owner.KV_CACHE,), name="KV pools", bytes=pool, evidence=evidence, entries=_POOLS)
        )
    phases = graphs.values() if isinstance(graphs, dict) else [graphs]
    sizes = [size for value in phases if (size := rounded(value, GIB, decimals)) is not None]
    if sizes:
        total = sizes[0]
        for size in sizes[1:]:
            total = total + size
        out.append(Figure(owners=(Owner.GRAPH_POOL,), name="captured graphs", bytes=total, evidence=evidence))
    return out


def _pools(usage: Mapping[str, Any], answer: Mapping[str, Any], evidence: Evidence) -> list[MeasuredPool]:
    page = count(answer.get("page_size"))
    out = []
    for name, kind in (("token_capacity", ""), ("token_capacity_swa", "sliding window")):
        tokens = count(usage.get(name))
        if tokens is None:
            continue
        pages = tokens // page if page and tokens % page == 0 else None
        size: ByteRange | None = None
        if not kind and count(usage.get("token_capacity_swa")) is None:
            size = rounded(usage.get("kvcache"), GIB, 3 if isinstance(usage.get("graph"), dict) else 2)
        out.append(
            MeasuredPool(
                evidence=evidence, bytes=size, num_blocks=_exact(pages), block_size=page, tokens=_exact(tokens), kind=kind
            )
        )  # fmt: skip
    return out


def _smallest(pools: list[MeasuredPool]) -> tuple[MeasuredPool, ...]:
    best: dict[str, MeasuredPool] = {}
    for pool in pools:
        known = best.get(pool.kind)
        if known is None or (pool.tokens and known.tokens and pool.tokens.expected < known.tokens.expected):
            best[pool.kind] = pool
    return tuple(best.values())


def _exact(number: int | None) -> IntRange | None:
    return None if number is None else IntRange(number, number, number)


def model_info(body: bytes, source: str) -> Measurement:
    """Which model is served. Raises InputError for a body that is no such answer."""
    answer = json_answer(body, source, kind=dict, engine="SGLang")
    architectures = answer.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    return Measurement(
        sources=(MeasurementSource(name=source, kind="endpoint"),),
        engine="sglang",
        model=text(answer.get("model_path")),
        architecture=text(first),
        settings=scalars(
            {name: answer[name] for name in ("weight_version", "load_format", "model_type") if name in answer}
        ),
    )


_SOURCE = "sglang srt/entrypoints/http_server.py"
_STATES = ('"internal_states"',)
_MODEL = ('"model_path"', '"is_generation"')
ENDPOINTS: tuple[InfoEndpoint, ...] = (
    InfoEndpoint(path="/server_info", read=server_info, source=f"{_SOURCE}, 0.5.5 on", signs=_STATES),
    InfoEndpoint(path="/get_server_info", read=server_info, source=f"{_SOURCE}, 0.3 on", signs=_STATES),
    InfoEndpoint(path="/model_info", read=model_info, source=f"{_SOURCE}, 0.5.5 on", signs=_MODEL),
    InfoEndpoint(path="/get_model_info", read=model_info, source=f"{_SOURCE}, 0.2 on", signs=_MODEL),
)
