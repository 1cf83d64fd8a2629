"""What a plan says the engine prints is read back by that engine's own wordings, to the same bytes and tokens."""

from __future__ import annotations

from typing import Any

import pytest

from log_support import measure, observed
from support import CPU, DEEPSEEK_V3_2, GEMMA_3_27B, GPT_OSS_20B, H100, LLAMA_3_1_8B, checkpoint
from vramledger.answer import Plan
from vramledger.engines import find_engine, find_log
from vramledger.engines.log_pattern import first_match
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, Owner
from vramledger.observation import Observation

SGLANG = (
    "0.2.5",
    "0.3.0",
    "0.4.3.post4",
    "0.4.6.post5",
    "0.4.9",
    "0.5.4",
    "0.5.9",
    "0.5.13",
    "0.5.18",
    "0.5.23",
)
LLAMACPP = ("b2354", "b4754", "b5285", "b5636", "b6100", "b6700", "b7405", "b9010", "b11549")
TRTLLM = ("0.13.0", "0.20.0", "1.0.0", "1.1.0", "1.2.0", "1.3.0")
CASES = [
    *(("sglang", version, LLAMA_3_1_8B) for version in SGLANG),
    *(("sglang", version, GPT_OSS_20B) for version in ("0.5.4", "0.5.9", "0.5.23")),
    *(("llamacpp", version, LLAMA_3_1_8B) for version in LLAMACPP),
    *(("llamacpp", version, GEMMA_3_27B) for version in LLAMACPP if int(version[1:]) >= 5285),
    ("llamacpp", "b11549", DEEPSEEK_V3_2),
    *(("tensorrt-llm", version, LLAMA_3_1_8B) for version in TRTLLM),
    ("tensorrt-llm", "1.2.0", GPT_OSS_20B),
]


def planned(engine: str, version: str, config: dict[str, Any], device: Device = H100, **values: Any) -> Plan:
    return find_engine(engine)[0].plan_with(checkpoint(config), device, version=version, values=values)


def read(engine: str, plan: Plan) -> list[Observation]:
    return list(observed(engine, plan.printed))


@pytest.mark.parametrize(("engine", "version", "config"), CASES)
def test_every_line_that_a_plan_prints_is_read(engine: str, version: str, config: dict[str, Any]) -> None:
    log = find_log(engine)
    assert log is not None
    plan = planned(engine, version, config)
    assert plan.printed
    headings = ("Blocks per window size:", "memory breakdown [MiB]")
    missed = [
        line
        for line in plan.printed
        if first_match(log.PATTERNS, line) is None and not any(heading in line for heading in headings)
    ]
    assert missed == []


@pytest.mark.parametrize(("engine", "version", "config"), CASES)
def test_the_pool_of_the_lines_is_the_pool_of_the_plan(
    engine: str, version: str, config: dict[str, Any]
) -> None:
    plan = planned(engine, version, config)
    assert plan.kv_pool is not None
    found = measure(engine, plan.printed)
    pool = next(pool for pool in found.pools if not pool.kind)
    assert pool.tokens is not None
    assert pool.tokens.expected == plan.kv_pool.tokens.expected


@pytest.mark.parametrize(("engine", "version", "config"), CASES)
def test_figures_cover_entries_of_the_plan_and_hold_their_bytes(
    engine: str, version: str, config: dict[str, Any]
) -> None:
    """A figure's owners and names pick entries of the ledger (or of the host) whose sum it may stand for."""
    plan = planned(engine, version, config)
    found = measure(engine, plan.printed)
    assert found.figures
    for figure in found.figures:
        entries = plan.host if figure.on_host else plan.ranks[figure.ranks[0] if figure.ranks else 0].entries
        covered = [
            entry
            for entry in entries
            if entry.owner in figure.owners
            and (not figure.entries or entry.name.startswith(figure.entries))
            and not (figure.without and entry.name.startswith(figure.without))
        ]
        if not covered:
            # Lines of buffers of no size: the ledger leaves an empty entry out.
            assert figure.bytes.low == 0, figure.name
            continue
        expected = sum(entry.bytes.expected for entry in covered)
        assert figure.bytes.low - 1 <= expected <= figure.bytes.high + 1, (
            figure.name,
            expected,
            figure.bytes,
        )


def test_a_cpu_build_has_the_host_as_its_rank() -> None:
    plan = planned("llamacpp", "b11549", LLAMA_3_1_8B, CPU, ctx_size=8192)
    found = measure("llamacpp", plan.printed)
    assert found.device_total_bytes is None
    assert {figure.ranks for figure in found.figures} == {(0,)}
    cache = next(figure for figure in found.figures if Owner.KV_CACHE in figure.owners)
    assert cache.bytes == ByteRange(2**30 - 5242, 2**30, 2**30 + 5242)
