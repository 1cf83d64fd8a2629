"""Iteration statistics that trtllm-serve answers at /metrics as JSON (with enable_iter_perf_stats), as a pool and as samples.

Source: tensorrt_llm/serve/openai_server.py, cpp/include/tensorrt_llm/executor/types.h (IterationStats, KvCacheStats).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from vramledger.engines.json_answer import count, json_answer
from vramledger.engines.metrics_table import InfoEndpoint, SampleEndpoint
from vramledger.evidence import measured
from vramledger.measurement import MeasuredPool, Measurement, MeasurementSource
from vramledger.observation import Sample
from vramledger.pool import IntRange

_GAUGES = (
    ("numActiveRequests", "running_requests"), ("numQueuedRequests", "waiting_requests"),
    ("maxNumActiveRequests", "limit_requests"), ("gpuMemUsage", "runtime_bytes"),
)  # fmt: skip
_KV = (
    ("usedNumBlocks", "kv_used_blocks"), ("freeNumBlocks", "kv_free_blocks"), ("maxNumBlocks", "kv_pool_blocks"),
    ("tokensPerBlock", "block_tokens"), ("reusedBlocks", "total_reused_blocks"), ("missedBlocks", "total_missed_blocks"),
)  # fmt: skip
_BATCH = (
    ("numScheduledRequests", "scheduled_requests"), ("numContextRequests", "prefill_requests"),
    ("numGenRequests", "decode_requests"), ("numPausedRequests", "preempted_requests"), ("numCtxTokens", "scheduled_tokens"),
)  # fmt: skip


def iteration_pool(body: bytes, source: str) -> Measurement:
    """The pool of the newest iteration. Raises InputError for a body that is no such answer."""
    newest = _newest(body, source)
    stats = newest.get("kvCacheStats")
    stats = stats if isinstance(stats, dict) else {}
    blocks, size = count(stats.get("maxNumBlocks")), count(stats.get("tokensPerBlock"))
    tokens = blocks * size if blocks is not None and size is not None else None
    pool = MeasuredPool(
        evidence=measured(f"{source} kvCacheStats, tensorrt-llm"), num_blocks=_exact(blocks), block_size=size,
        tokens=_exact(tokens),
    )  # fmt: skip
    return Measurement(
        sources=(MeasurementSource(name=source, kind="endpoint"),),
        engine="tensorrt-llm",
        pools=(pool,) if blocks is not None else (),
    )


def iteration_samples(body: bytes, at_s: float, source: str) -> tuple[Sample, ...]:
    """What the newest iteration says; nothing where none was run since the last question."""
    newest = _newest(body, source)
    parts = (
        (newest, _GAUGES),
        (newest.get("kvCacheStats"), _KV),
        (newest.get("inflightBatchingStats"), _BATCH),
    )
    values: list[tuple[str, int | float]] = []
    for part, names in parts:
        if isinstance(part, dict):
            values += [
                (sample, number) for name, sample in names if (number := count(part.get(name))) is not None
            ]
    known = dict(values)
    most = known.get("kv_pool_blocks")
    if most and "kv_used_blocks" in known:
        values.append(("kv_usage_ratio", known["kv_used_blocks"] / most))
    hits = (
        newest.get("kvCacheStats", {}).get("cacheHitRate")
        if isinstance(newest.get("kvCacheStats"), dict)
        else None
    )
    if isinstance(hits, int | float) and not isinstance(hits, bool) and isfinite(hits):
        values.append(("prefix_hit_ratio", float(hits)))
    return tuple(Sample(at_s=at_s, source=source, name=name, value=value) for name, value in values)


def _newest(body: bytes, source: str) -> Mapping[str, Any]:
    answer = json_answer(body, source, kind=list, engine="TensorRT-LLM")
    steps = [step for step in answer if isinstance(step, dict)]
    return max(steps, key=lambda step: count(step.get("iter")) or 0, default={})


def _exact(number: int | None) -> IntRange | None:
    return None if number is None else IntRange(number, number, number)


_SOURCE = "tensorrt_llm/serve/openai_server.py, 0.17 on"
ENDPOINTS: tuple[InfoEndpoint, ...] = (
    InfoEndpoint(path="/metrics", read=iteration_pool, source=_SOURCE, signs=('"kvCacheStats"',)),
)
SAMPLE_ENDPOINTS: tuple[SampleEndpoint, ...] = (
    SampleEndpoint(path="/metrics", read=iteration_samples, source=_SOURCE),
)
