"""Every wording of memory that the loggers of vLLM's releases have is read as it was when it was recorded.

recorded/logs/vllm-wordings.jsonl has the lines of 28 releases from 0.6.6 to 0.33.0 with sample values filled in, what
they say, and which releases print them (the first, the last and how many); written by tools/log_wordings.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramledger.engines.log_pattern import first_match
from vramledger.engines.vllm.log import PATTERNS
from vramledger.ledger import ByteRange

RECORDED = Path(__file__).parent / "recorded" / "logs" / "vllm-wordings.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
# What the loggers' own calls do not show: other printers, releases before 0.6.6, texts that are put together.
ELSEWHERE = (
    "non-default args: {'model': 'a/b'}",
    "args: Namespace(model='a/b')",
    "world_size=2 rank=1 local_rank=1 distributed_init_method=file:///x backend=nccl",
    "Using Flash Attention backend.",
    "INFO:     Application startup complete.",
    "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
    "INFO:     Finished server process [26694]",
    "█▄█▀ █     █     █     █  version 0.32.0",
    "▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     █  model   a/b",
    (
        "Memory profiling results: total_gpu_memory=79.10GiB initial_memory_usage=15.50GiB peak_torch_memory=17.00GiB "
        "memory_usage_post_profile=15.60GiB non_torch_memory=0.55GiB kv_cache_size=53.60GiB gpu_memory_utilization=0.90"
    ),
    "Capturing CUDA graphs (decode, FULL): 100%|##########| 35/35 [00:02<00:00, 14.3it/s]",
    (
        "Dumping scheduler stats: SchedulerStats(num_running_reqs=17, num_waiting_reqs=3, step_counter=0, current_wave=0, "
        "kv_cache_usage=0.9944, prefix_cache_stats=PrefixCacheStats(reset=False, requests=0))"
    ),
    (
        "Dumping scheduler output for model execution: SchedulerOutput(scheduled_new_reqs=[], num_scheduled_tokens={a: 1}, "
        "total_num_scheduled_tokens=4096, scheduled_spec_decode_tokens={})"
    ),
    (
        "Registering KV_Caches. use_mla: False, kv_buffer_device: cuda, use_host_buffer: False, num_blocks: 64, block_shape: "
        "torch.Size([16, 8, 128]), per_layer_kv_cache_shape: torch.Size([64, 16, 8, 128])"
    ),
    "Warmup finished in 12 secs, allocated 1.5 GiB of device memory",
    "Using AttentionBackendEnum.FLASHINFER backend.",
    "Asynchronous scheduling is enabled.",
    "SchedulerOutput(total_num_scheduled_tokens=12)",
    "Sequence group cmpl-1 is preempted by RECOMPUTE mode because there is not enough KV cache space.",
)


def plain(value: object) -> object:
    return [value.low, value.expected, value.high] if isinstance(value, ByteRange) else value


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["line"])[:60])
def test_a_wording_of_a_release_is_read(row: dict[str, Any]) -> None:
    found = first_match(PATTERNS, row["line"])
    assert found is not None
    pattern, values = found
    assert pattern.event.value == row["event"]
    assert {name: plain(value) for name, value in values.items()} == row["values"]


def test_each_pattern_reads_something_that_is_printed() -> None:
    lines = [*ELSEWHERE, *(row["line"] for row in ROWS)]
    unused = [
        pattern.pattern.pattern for pattern in PATTERNS if all(pattern.read(line) is None for line in lines)
    ]
    assert unused == []


def test_what_a_step_left_behind_is_read() -> None:
    stats = first_match(PATTERNS, ELSEWHERE[11])
    assert stats is not None
    assert stats[1] == {
        "running_requests": 17,
        "waiting_requests": 3,
        "kv_usage_ratio": 0.9944,
        "failing": True,
    }
    output = first_match(PATTERNS, ELSEWHERE[12])
    assert output is not None and output[1] == {"scheduled_tokens": 4096, "failing": True}
