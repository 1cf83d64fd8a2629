"""vLLM's metrics by name, and what its cache_config_info states of the pool.

Source: vllm v1/metrics/loggers.py (V1, 0.7 on), engine/metrics.py (V0), v1/kv_offload, distributed/kv_transfer.
The label `engine` is the data-parallel replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isfinite

from vramledger.engines.metrics_table import InfoMetric, MetricName
from vramledger.engines.vllm.pool_facts import budgeted_pool_bytes
from vramledger.evidence import measured
from vramledger.ledger import ByteRange
from vramledger.measurement import MeasuredPool, Measurement, MeasurementSource
from vramledger.pool import FloatRange, IntRange

_V1 = "vllm v1/metrics/loggers.py"
_V0 = "vllm engine/metrics.py, 0.4-0.9"
_OFFLOAD = "vllm v1/kv_offload"
LONGEST_VALUE = 200


def _metric(
    name: str,
    sample: str,
    source: str,
    labels: tuple[str, ...] = ("engine",),
    *,
    whole: bool = True,
    scale: float = 1,
) -> MetricName:
    return MetricName(
        name=f"vllm:{name}", sample=sample, source=source, labels=labels, whole=whole, scale=scale
    )


_ratio = partial(_metric, whole=False)

METRICS: tuple[MetricName, ...] = (
    _metric("num_requests_running", "running_requests", f"{_V1}, all; {_V0}"),
    _metric("num_requests_waiting", "waiting_requests", f"{_V1}, all, deferred ones counted; {_V0}"),
    _metric(
        "num_requests_waiting_by_reason",
        "waiting_by_reason_requests",
        f"{_V1}, 0.20 on",
        ("engine", "reason"),
    ),
    _metric("num_requests_kv_fetch_by_stage", "kv_fetching_requests", f"{_V1}, 0.32 on", ("engine", "stage")),
    _metric("num_requests_swapped", "swapped_requests", _V0),
    _ratio("kv_cache_usage_perc", "kv_usage_ratio", f"{_V1}, 0.9.2 on"),
    _ratio("gpu_cache_usage_perc", "kv_usage_ratio", f"{_V1}, to 0.11; {_V0}"),
    _ratio("cpu_cache_usage_perc", "swap_usage_ratio", _V0),
    _ratio("gpu_prefix_cache_hit_rate", "prefix_hit_ratio", _V0),
    _ratio("cpu_prefix_cache_hit_rate", "swap_prefix_hit_ratio", _V0),
    _metric("num_preemptions_total", "total_preempted_requests", f"{_V1}, all; {_V0}"),
    _metric("prompt_tokens_total", "total_prompt_tokens", f"{_V1}, all; {_V0}"),
    _metric("generation_tokens_total", "total_generated_tokens", f"{_V1}, all; {_V0}"),
    _metric("prefix_cache_queries_total", "total_prefix_queried_tokens", f"{_V1}, 0.9.2 on"),
    _metric("prefix_cache_hits_total", "total_prefix_hit_tokens", f"{_V1}, 0.9.2 on"),
    # Blocks up to 0.8, tokens from 0.9.2 to 0.11, under one name.
    _metric("gpu_prefix_cache_queries_total", "total_prefix_queries_count", f"{_V1}, 0.7.3-0.11"),
    _metric("gpu_prefix_cache_hits_total", "total_prefix_hits_count", f"{_V1}, 0.7.3-0.11"),
    _metric(
        "external_prefix_cache_queries_total", "total_external_prefix_queried_tokens", f"{_V1}, 0.11.1 on"
    ),
    _metric("external_prefix_cache_hits_total", "total_external_prefix_hit_tokens", f"{_V1}, 0.11.1 on"),
    _metric(
        "prompt_tokens_by_source_total",
        "total_prompt_by_source_tokens",
        f"{_V1}, 0.16 on",
        ("engine", "source"),
    ),
    _metric("prompt_tokens_cached_total", "total_cached_prompt_tokens", f"{_V1}, 0.16 on"),
    _metric(
        "prompt_tokens_cached_by_source_total",
        "total_cached_prompt_by_source_tokens",
        f"{_V1}, 0.32 on",
        ("engine", "source"),
    ),
    _metric("prompt_tokens_recomputed_total", "total_recomputed_prompt_tokens", f"{_V1}, 0.16-0.19"),
    _metric(
        "request_success_total",
        "total_finished_requests",
        f"{_V1}, all; {_V0}",
        ("engine", "finished_reason"),
    ),
    _metric("admission_rejections_total", "total_rejected_requests", f"{_V1}, 0.32 on", ("reason",)),
    _metric("request_num_preemptions_sum", "total_finished_preemptions_count", f"{_V1}, 0.30 on"),
    _metric("iteration_tokens_total_sum", "total_scheduled_tokens", f"{_V1}, all; {_V0}"),
    _metric("iteration_tokens_total_count", "total_steps_count", f"{_V1}, all; {_V0}"),
    _metric("request_prompt_tokens_sum", "total_finished_prompt_tokens", f"{_V1}, all; {_V0}"),
    _metric("request_generation_tokens_sum", "total_finished_generated_tokens", f"{_V1}, all; {_V0}"),
    _metric(
        "request_prefill_kv_computed_tokens_sum", "total_finished_computed_prompt_tokens", f"{_V1}, 0.13 on"
    ),
    _ratio("engine_sleep_state", "sleep_state_ratio", f"{_V1}, 0.11.1 on", ("engine", "sleep_state")),
    _ratio(
        "kv_offload_cpu_cache_usage_perc", "host_kv_transferring_ratio", f"{_OFFLOAD}/cpu/spec.py, 0.24 on"
    ),
    _metric(
        "kv_offload_total_bytes_total",
        "total_offloaded_bytes",
        f"{_OFFLOAD}, 0.16 on",
        ("engine", "transfer_type"),
    ),
    _metric("kv_offload_load_bytes_total", "total_loaded_from_host_bytes", f"{_OFFLOAD}, 0.24 on"),
    _metric("kv_offload_store_bytes_total", "total_stored_to_host_bytes", f"{_OFFLOAD}, 0.24 on"),
    _metric(
        "simple_kv_offload_used_blocks",
        "host_kv_used_blocks",
        "vllm v1/simple_kv_offload, 0.31 on",
    ),
    _ratio("hisparse_host_cache_usage_perc", "host_kv_usage_ratio", "vllm kv_connector/v1/hisparse, 0.30 on"),
    MetricName(
        name="process_resident_memory_bytes",
        sample="frontend_rss_bytes",
        source="prometheus_client of the process that serves HTTP",
        whole=True,
    ),
)


def cache_config(labels: Mapping[str, str], source: str) -> Measurement:
    """What `vllm:cache_config_info` says: fields of the cache configuration, as text.

    Tokens only where the engine itself counts them (`kv_cache_size_tokens`, 0.24 on): blocks times `block_size` is
    right for one group of layers only, and the label does not tell how many there are.
    """
    settings = tuple(
        (name, _value(text))
        for name, text in sorted(labels.items())
        if name not in ("engine", "model_name") and text != "None" and len(text) <= LONGEST_VALUE
    )
    known = dict(settings)
    blocks, tokens = _count(known.get("num_gpu_blocks")), _count(known.get("kv_cache_size_tokens"))
    concurrency, asked = known.get("kv_cache_max_concurrency"), _count(known.get("kv_cache_memory_bytes"))
    pool = MeasuredPool(
        evidence=measured(f"{source} vllm:cache_config_info"),
        bytes=_pool_bytes(asked, blocks, overridden="num_gpu_blocks_override" in known),
        num_blocks=None if blocks is None else IntRange(blocks, blocks, blocks),
        block_size=_count(known.get("block_size")),
        tokens=None if tokens is None else IntRange(tokens, tokens, tokens),
        max_concurrency=(
            FloatRange(concurrency, concurrency, concurrency) if isinstance(concurrency, float) else None
        ),
    )
    return Measurement(
        sources=(MeasurementSource(name=source, kind="metrics"),),
        engine="vllm",
        model=labels.get("model_name"),
        settings=settings,
        pools=(pool,) if pool.num_blocks or pool.tokens else (),
    )


def _pool_bytes(asked: int | None, blocks: int | None, *, overridden: bool) -> ByteRange | None:
    """The pool of --kv-cache-memory-bytes, cut to whole blocks."""
    if not asked or not blocks or overridden:
        return None
    return budgeted_pool_bytes(ByteRange.exact(asked), blocks)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _value(text: str) -> str | int | float | bool:
    if text in ("True", "False"):
        return text == "True"
    if len(text) <= 20:
        try:
            number = int(text) if text.lstrip("-").isdigit() else float(text)
        except ValueError:
            return text
        return number if isfinite(number) else text
    return text


INFO_METRICS: tuple[InfoMetric, ...] = (
    InfoMetric(
        name="vllm:cache_config_info",
        read=cache_config,
        source="vllm v1/metrics/loggers.py, engine/metrics.py; config/cache.py for the fields",
    ),
)
