"""What a plan expects to be printed is read back, and what is read covers the lines of the ledger that it was summed from."""

from __future__ import annotations

from typing import Any

import pytest

from support import CPU, DEEPSEEK_V3, GEMMA_3_27B, GPT_OSS_120B, H100, LLAMA_3_1_8B, checkpoint
from vramledger import plan
from vramledger.engines.log_pattern import first_match
from vramledger.engines.vllm.log import PATTERNS, measured
from vramledger.engines.vllm.support import _read_releases
from vramledger.ledger import Owner, Phase
from vramledger.measurement import Figure
from vramledger.observation import Observation, Place
from vramledger.reconciliation.coverage import covered
from vramledger.units import GIB

OLD = ("0.4.1", "0.5.3", "0.6.3")
PLANS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": (LLAMA_3_1_8B, {}),
    "windows": (GEMMA_3_27B, {"max_model_len": 8192}),
    "adapters": (LLAMA_3_1_8B, {"enable_lora": True, "max_loras": 2, "max_model_len": 8192}),
}


def observations(lines: tuple[str, ...], version: str) -> list[Observation]:
    config = f"Initializing a V1 LLM engine (v{version}) with config: model='a/b', tensor_parallel_size=1"
    out = []
    for number, line in enumerate((config, *lines), 1):
        found = first_match(PATTERNS, line)
        assert found is not None, line
        out.append(
            Observation(
                event=found[0].event, values=found[1], place=Place(source="log", line=number), text=line
            )
        )
    return out


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("version", [*OLD, *(str(release) for release in _read_releases())])
def test_every_line_that_a_plan_prints_is_read_back(name: str, version: str) -> None:
    config, flags = PLANS[name]
    if name == "windows" and version in OLD:
        pytest.skip("gemma 3 came later")
    made = plan(checkpoint(config), H100, engine=f"vllm=={version}", **flags)
    found = measured(observations(made.printed, version))
    assert found.engine_version == version
    (weights,) = [figure for figure in found.figures if figure.name == "weights after load"]
    held = sum(entry.bytes.expected for entry in covered(weights, made.ranks[0].entries))
    assert weights.bytes.low <= held <= weights.bytes.high
    if made.kv_pool is None:
        return
    (pool,) = found.pools
    assert pool.max_concurrency is not None
    assert pool.max_concurrency.low <= made.kv_pool.max_concurrency.expected <= pool.max_concurrency.high
    assert pool.context_len == made.kv_pool.context_len
    if pool.tokens is not None:
        assert pool.tokens.expected == made.kv_pool.tokens.expected
    if pool.num_blocks is not None:
        assert pool.num_blocks.expected == made.kv_pool.num_blocks.expected
    if pool.bytes is not None:
        assert pool.bytes.low - GIB // 100 <= made.kv_pool.bytes.expected <= pool.bytes.high + GIB // 100


SUMMARY_26 = (
    "Free memory on device (78.5/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is "
    "14.99 GiB for weight, 1.91 GiB for peak activation, 0.11 GiB for non-torch memory, and 0.52 GiB for CUDAGraph memory. "
    "Replace gpu_memory_utilization config with `--kv-cache-memory=57000000000` (53.09 GiB) to fit into requested memory, or "
    "`--kv-cache-memory=64000000000` (59.6 GiB) to fully utilize gpu memory. Current kv cache memory in use is 53.74 GiB."
)
SUMMARY_27 = (
    "Free memory on device (78.5/79.19 GiB) on startup. Desired GPU memory utilization is (0.92, 72.85 GiB). Actual usage is "
    "15.8 GiB for consumed memory (weights + non-torch), 2.5 GiB for peak activation, and 0.52 GiB for CUDAGraph memory. "
    "Replace gpu_memory_utilization config with `--kv-cache-memory=57000000000` (53.09 GiB) to fit into requested memory, or "
    "`--kv-cache-memory=64000000000` (59.6 GiB) to fully utilize gpu memory. Current kv cache memory in use is 54.55 GiB."
)


def figures(*lines: str, version: str) -> dict[str, Figure]:
    return {figure.name: figure for figure in measured(observations(lines, version)).figures}


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        (LLAMA_3_1_8B, {}),
        (DEEPSEEK_V3, {"tp": 8, "ep": True}),
        (GPT_OSS_120B, {"tp": 2, "max_model_len": 16384}),
        (LLAMA_3_1_8B, {"pp": 2, "enable_lora": True}),
    ],
)
@pytest.mark.parametrize("version", ["0.10.2", "0.20.2", "0.26.0", "0.27.1", "0.33.0"])
def test_what_the_profile_prints_covers_the_budget_once(
    config: dict[str, Any], flags: dict[str, Any], version: str
) -> None:
    """Weights, peak, growth and graphs of the summary line, and the pool: every charged line once, but for the graphs up to
    0.19, which are captured beside the budget."""
    since_27 = int(version.split(".")[1]) >= 27
    estimate = "Estimated CUDA graph memory: 0.60 GiB total"
    printed = figures(SUMMARY_27 if since_27 else SUMMARY_26, estimate, version=version)
    made = plan(checkpoint(config), "H200", engine=f"vllm=={version}", **flags)
    names = (
        "consumed for good: weights, buffers, kernels" if since_27 else "weights after load",
        "peak of the profile run",
        *(() if since_27 else ("growth outside torch",)),
        "CUDA graphs as estimated before capture",
        "KV pool",
    )
    entries = made.ranks[0].entries
    counted = [entry.name for name in names for entry in covered(printed[name], entries)]
    assert len(counted) == len(set(counted))
    charged = {
        entry.name
        for entry in entries
        if entry.inside_budget
        and entry.owner is not Owner.HEADROOM
        and entry.phases & {Phase.WARMUP, Phase.PREFILL}
    }
    assert charged - set(counted) <= {"idle between weights"}


def test_the_graph_estimate_is_taken_off_the_peak_since_0_27() -> None:
    estimate = "Estimated CUDA graph memory: 0.60 GiB total"
    peak = figures(SUMMARY_27, estimate, version="0.27.1")["peak of the profile run"]
    assert abs(peak.bytes.expected - 19 * GIB // 10) <= 1
    assert Owner.GRAPH_POOL not in peak.owners
    both = figures(SUMMARY_27, version="0.27.1")["peak of the profile run and graph estimate"]
    assert both.bytes.expected == 5 * GIB // 2 and Owner.GRAPH_POOL in both.owners


def test_on_a_processor_what_was_resident_covers_all_but_the_pool() -> None:
    line = (
        "Auto set (0.86/18.59) GiB for KV cache on node 0, with 1.49 GiB requested memory for the worker. 0.63 GiB memory was "
        "consumed by non-kv usages."
    )
    made = plan(
        checkpoint(LLAMA_3_1_8B), CPU, engine="vllm==0.32.0", max_model_len=2048, gpu_memory_utilization=0.9
    )
    resident = figures(line, version="0.32.0")["resident before the pool"]
    names = {entry.name for entry in covered(resident, made.ranks[0].entries)}
    charged = {
        entry.name
        for entry in made.ranks[0].entries
        if entry.inside_budget
        and entry.owner not in (Owner.KV_CACHE, Owner.GRAPH_POOL)
        and Phase.WARMUP in entry.phases
    }
    assert names == charged - {"idle between weights"}
