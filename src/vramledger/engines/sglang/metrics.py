"""SGLang's metrics by name, and what its cache_config_info states of the pool.

Source: sglang srt/metrics/collector.py (0.4.3 to 0.5.9), srt/observability/metrics_collector.py since. "gb" of device memory in
them is GiB. Releases are those whose sources were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from vramledger.engines.metrics_table import InfoMetric, MetricName
from vramledger.evidence import measured
from vramledger.measurement import MeasuredPool, Measurement, MeasurementSource
from vramledger.pool import IntRange
from vramledger.units import GIB

_FILE = "sglang srt/observability/metrics_collector.py"
_RANKS = ("tp_rank", "pp_rank", "dp_rank")


def _metric(
    name: str,
    sample: str,
    since: str,
    labels: tuple[str, ...] = _RANKS,
    *,
    whole: bool = True,
    scale: float = 1,
) -> MetricName:
    return MetricName(
        name=f"sglang:{name}", sample=sample, source=f"{_FILE}, {since}", labels=labels, rank_label="tp_rank", whole=whole,
        scale=scale,
    )  # fmt: skip


_ratio = partial(_metric, whole=False)
_gib = partial(_metric, scale=GIB)

METRICS: tuple[MetricName, ...] = (
    _metric("num_running_reqs", "running_requests", "0.4.3 on"),
    _metric("num_queue_reqs", "waiting_requests", "0.4.3 on"),
    _metric("num_paused_reqs", "paused_requests", "0.5.4 on"),
    _metric("num_retracted_reqs", "preempted_requests", "0.5.4 on"),
    _metric("num_retracted_requests_total", "total_preempted_requests", "0.5.9 on"),
    _metric("num_retracted_input_tokens_total", "total_preempted_prompt_tokens", "0.5.9 on"),
    _metric("num_retracted_output_tokens_total", "total_preempted_generated_tokens", "0.5.9 on"),
    _metric("num_aborted_requests_total", "total_aborted_requests", "0.5.4 on"),
    _metric("num_requests_total", "total_finished_requests", "0.4.3 on"),
    _metric("prompt_tokens_total", "total_prompt_tokens", "0.4.3 on"),
    _metric("generation_tokens_total", "total_generated_tokens", "0.4.3 on"),
    _metric("cached_tokens_total", "total_prefix_hit_tokens", "0.4.3 on"),
    _metric("evicted_tokens_total", "total_evicted_tokens", "0.5.9 on"),
    _ratio("token_usage", "kv_usage_ratio", "0.4.3 on, the largest of all pools"),
    _ratio("full_token_usage", "full_usage_ratio", "0.5.13 on"),
    _ratio("swa_token_usage", "window_usage_ratio", "0.5.4 on"),
    _ratio("mamba_usage", "state_usage_ratio", "0.5.9 on"),
    _ratio("pending_prealloc_token_usage", "prealloc_usage_ratio", "0.5.4 on"),
    _ratio("new_token_ratio", "new_token_ratio", "0.5.9 on"),
    _ratio("cache_hit_rate", "prefix_hit_ratio", "0.4.3 on"),
    _ratio("utilization", "utilization_ratio", "0.5.4 on"),
    _metric("num_used_tokens", "used_tokens", "0.4.3 on, of the fullest pool"),
    _metric("kv_used_tokens", "kv_used_tokens", "0.5.13 on"),
    _metric("kv_available_tokens", "kv_free_tokens", "0.5.13 on"),
    _metric("kv_evictable_tokens", "kv_evictable_tokens", "0.5.13 on"),
    _metric("swa_used_tokens", "window_used_tokens", "0.5.13 on"),
    _metric("swa_available_tokens", "window_free_tokens", "0.5.13 on"),
    _metric("swa_evictable_tokens", "window_evictable_tokens", "0.5.13 on"),
    _metric("mamba_used_tokens", "state_used_count", "0.5.13 on, states though named tokens"),
    _metric("mamba_available_tokens", "state_free_count", "0.5.13 on, states though named tokens"),
    _metric("max_total_num_tokens", "kv_pool_tokens", "0.5.9 on"),
    _metric("max_total_num_tokens_swa", "window_pool_tokens", "0.5.18 on"),
    _metric("num_pages", "kv_pool_blocks", "0.5.13 on"),
    _metric("page_size", "page_tokens", "0.5.13 on"),
    _metric("context_len", "context_tokens", "0.5.13 on"),
    _gib("weight_memory_usage_gb", "weights_bytes", "0.5.18 on"),
    _gib("kv_cache_memory_usage_gb", "kv_cache_bytes", "0.5.18 on"),
    _gib("graph_memory_usage_gb", "graph_bytes", "0.5.18 on", (*_RANKS, "phase")),
    _gib("startup_available_gpu_memory_gb", "startup_free_bytes", "0.5.18 on, when start-up ended"),
    _metric("hicache_host_used_tokens", "host_kv_used_tokens", "0.5.10 on"),
    _metric("hicache_host_total_tokens", "host_kv_pool_tokens", "0.5.10 on"),
    _metric("lora_pool_slots_used", "adapter_used_count", "0.5.9 on"),
    _metric("lora_pool_slots_total", "adapter_slots_count", "0.5.9 on"),
)


def cache_config(labels: Mapping[str, str], source: str) -> Measurement:
    """What `sglang:cache_config_info` says: page size and pages of the pool, as text."""
    page, pages = _count(labels.get("page_size")), _count(labels.get("num_pages"))
    tokens = page * pages if page is not None and pages is not None else None
    pool = MeasuredPool(
        evidence=measured(f"{source} sglang:cache_config_info"),
        num_blocks=_exact(pages),
        block_size=page,
        tokens=_exact(tokens),
    )
    return Measurement(
        sources=(MeasurementSource(name=source, kind="metrics"),),
        engine="sglang",
        model=labels.get("model_name"),
        settings=(("page_size", page),) if page is not None else (),
        pools=(pool,) if pages is not None else (),
    )


def _exact(count: int | None) -> IntRange | None:
    return None if count is None else IntRange(count, count, count)


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else None


INFO_METRICS: tuple[InfoMetric, ...] = (
    InfoMetric(name="sglang:cache_config_info", read=cache_config, source="sglang srt/metrics/collector.py, 0.5.9"),
)  # fmt: skip
