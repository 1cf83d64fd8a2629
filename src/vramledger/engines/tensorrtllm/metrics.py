"""TensorRT-LLM's Prometheus metrics by name, of trtllm-serve and of Triton's back end.

Source: tensorrt_llm/metrics/collector.py (prefix trtllm_), tensorrtllm_backend's custom_metrics_reporter.
"""

from __future__ import annotations

from vramledger.engines.metrics_table import InfoMetric, MetricName

_FILE = "tensorrt_llm/metrics/collector.py"


def _metric(
    name: str, sample: str, source: str = _FILE, *, whole: bool = True, labels: tuple[str, ...] = ()
) -> MetricName:
    return MetricName(name=name, sample=sample, source=source, whole=whole, labels=labels)


METRICS: tuple[MetricName, ...] = (
    _metric("trtllm_num_requests_running", "running_requests"),
    _metric("trtllm_num_requests_waiting", "waiting_requests"),
    _metric("trtllm_num_paused_requests", "preempted_requests"),
    _metric("trtllm_num_scheduled_requests", "scheduled_requests"),
    _metric("trtllm_num_context_requests", "prefill_requests"),
    _metric("trtllm_num_generation_requests", "decode_requests"),
    _metric("trtllm_max_num_active_requests", "limit_requests"),
    _metric("trtllm_num_requests_completed_total", "total_finished_requests"),
    _metric("trtllm_kv_cache_utilization", "kv_usage_ratio", whole=False),
    _metric("trtllm_kv_cache_host_utilization", "host_kv_usage_ratio", whole=False),
    _metric("trtllm_kv_cache_hit_rate", "prefix_hit_ratio", whole=False),
    _metric("trtllm_kv_cache_max_blocks", "kv_pool_blocks", f"{_FILE}; with a host cache the V1 manager counts its blocks too"),
    _metric("trtllm_kv_cache_free_blocks", "kv_free_blocks"),
    _metric("trtllm_kv_cache_used_blocks", "kv_used_blocks"),
    _metric("trtllm_kv_cache_tokens_per_block", "block_tokens"),
    _metric("trtllm_kv_cache_reused_blocks_total", "total_reused_blocks"),
    _metric("trtllm_kv_cache_missed_blocks_total", "total_missed_blocks"),
    _metric("trtllm_gpu_memory_usage_bytes", "runtime_bytes", f"{_FILE}: what the C++ runtime counts, not the device"),
    _metric("trtllm_total_context_tokens", "scheduled_tokens"),
    _metric("nv_trt_llm_kv_cache_block_metrics", "kv_blocks", "tensorrtllm_backend", whole=False, labels=("kv_cache_block_type",)),
    _metric("nv_trt_llm_request_metrics", "requests", "tensorrtllm_backend", labels=("request_type",)),
    _metric("nv_trt_llm_runtime_memory_metrics", "runtime_bytes", "tensorrtllm_backend", labels=("memory_type",)),
)  # fmt: skip
INFO_METRICS: tuple[InfoMetric, ...] = ()
