"""Half lines, lines in any order, other engines' logs: read without an error, and never to bytes below what may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_support import measure, observed
from vramledger.documents.measurement import measurement_document
from vramledger.documents.measurement_reader import measurement_of
from vramledger.engines import find_log

LOGS = Path(__file__).parent / "recorded" / "logs"
RECORDED = tuple(
    line
    for path in sorted(LOGS.glob("*.log"))
    if path.name.startswith(("sglang", "llamacpp"))
    for line in path.read_text().splitlines()
)
LINES = (
    *RECORDED,
    "Load weight begin. avail mem=0.01 GB",
    "Load weight end. type=X, avail mem=78.60 GB, mem usage=-3.00 GB.",
    "Capture cuda graph end. Time elapsed: 1.00 s. mem usage=-0.10 GB. avail mem=1.00 GB.",
    "Capturing batches (bs=4 avail_mem=12.80 GB):",
    "Mamba Cache is allocated. max_mamba_cache_size: 0, conv_state size: 0.00GB, ssm_state size: 0.00GB ",
    "max_total_num_tokens=0, chunked_prefill_size=1, max_prefill_tokens=1, max_running_requests=0, context_len=0",
    "common_memory_breakdown_print: |   - CUDA0 (X) | 1 = 2 + (3 = 4 +   5 +  6) + 17592186029324 |",
    "llama_kv_cache: size = 0.00 MiB ( 0 cells, 0 layers, 0/0 seqs), K (f16): 0.00 MiB, V (f16): 0.00 MiB",
    "llm_load_tensors: VRAM used: 1.00 MB",
    'msg="kv cache" device=CUDA0 size="1.2 GiB"',
    "[MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache (0).",
    "Number of tokens per block: 0.",
    "Peak memory during memory usage profiling (torch + non-torch): 2.00 GiB, available KV cache memory when calculating max tokens: 1.00 GiB, fraction is set 0.9, kv size is 1. device total memory 1.00 GiB, , tmp kv_mem 9.00 GiB",
    "Memory used outside torch (e.g., NCCL and CUDA graphs) in memory usage profiling: 1.00 GiB",
)  # fmt: skip


@pytest.mark.parametrize("engine", ["sglang", "llamacpp", "tensorrt-llm"])
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=40),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_in_any_order_and_cut_anywhere(engine: str, lines: list[str], cuts: list[int]) -> None:
    broken = [line[: cuts[at]] if at < len(cuts) else line for at, line in enumerate(lines)]
    found = measure(engine, broken)
    for figure in found.figures:
        assert 0 <= figure.bytes.low <= figure.bytes.high
    for pool in found.pools:
        assert pool.bytes is None or pool.bytes.high >= 0
    assert measurement_of(measurement_document(found)) == found


@pytest.mark.parametrize("engine", ["sglang", "llamacpp", "tensorrt-llm"])
def test_a_log_of_another_engine_measures_nothing_of_it(engine: str) -> None:
    log = find_log(engine)
    assert log is not None
    others = [
        line
        for path in sorted(LOGS.glob("*.log"))
        if path.name.startswith(("sglang", "llamacpp")) and not path.name.startswith(engine)
        for line in path.read_text().splitlines()
    ]
    assert measure(engine, others).figures == ()


def test_an_empty_log_is_an_empty_measurement() -> None:
    for engine in ("sglang", "llamacpp", "tensorrt-llm"):
        found = measure(engine, [])
        assert (found.figures, found.pools, found.settings, found.sources) == ((), (), (), ())
        assert list(observed(engine, ["\x00\xff" * 1000, "(" * 10_000])) == []
