"""llama.cpp's metrics by name. Its server has no gauge of KV since spring 2025: `/slots` tells it.

Source: llama.cpp tools/server/server.cpp and server-context.cpp (`--metrics`), the state of February 2025 and b11549.
"""

from __future__ import annotations

from vramledger.engines.metrics_table import InfoMetric, MetricName

_FILE = "llama.cpp tools/server"


def _metric(name: str, sample: str, since: str = "all", *, whole: bool = True) -> MetricName:
    return MetricName(name=f"llamacpp:{name}", sample=sample, source=f"{_FILE}, {since}", whole=whole)


METRICS: tuple[MetricName, ...] = (
    _metric("requests_processing", "running_requests"),
    _metric("requests_deferred", "waiting_requests"),
    _metric("kv_cache_usage_ratio", "kv_usage_ratio", "to April 2025", whole=False),
    _metric("kv_cache_tokens", "kv_used_tokens", "to April 2025"),
    _metric("n_busy_slots_per_decode", "busy_slots_ratio", "2024 on, a mean over steps", whole=False),
    _metric("prompt_tokens_total", "total_prompt_tokens", "all, cached ones left out"),
    _metric("prompt_tokens_cached_total", "total_prefix_hit_tokens", "2026"),
    _metric("tokens_predicted_total", "total_generated_tokens"),
    _metric("n_decode_total", "total_steps_count", "2024 on"),
    _metric("n_tokens_max", "longest_sequence_tokens", "2025 on"),
    _metric("n_past_max", "longest_sequence_tokens", "2025"),
)
INFO_METRICS: tuple[InfoMetric, ...] = ()
