"""Runs that are other plans: what was planned differently is found, and explains what it explains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from five_kinds import FIVE, checkpoint, planned
from vramledger.answer import Plan
from vramledger.evidence import measured
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.measurement import AllocatorState, Figure, HostMemory, MeasuredPool, Measurement
from vramledger.planning import plan as plan_of
from vramledger.pool import IntRange
from vramledger.reconciliation.arguments import PlanArguments, own_arguments, plan_arguments
from vramledger.reconciliation.reconcile import reconcile
from vramledger.reconciliation.result import Cause, Line, Reconciliation, Section, Standing
from vramledger.reconciliation.settings import compare_settings
from vramledger.units import GIB, MIB

LOG = measured("run.log:1")


def run_of(plan: Plan, **changes: Any) -> Measurement:
    """What a run that behaves exactly as `plan` would print."""
    rank, pool = plan.ranks[0], plan.kv_pool
    assert pool is not None
    found = Measurement(
        sources=(),
        engine=plan.inputs.engine,
        engine_version=plan.inputs.engine_version,
        model=plan.inputs.model,
        device=plan.inputs.device,
        device_total_bytes=ByteRange.exact(plan.inputs.device_total_bytes),
        tp=plan.inputs.tp,
        settings=plan.inputs.settings,
        figures=(
            Figure(
                owners=(Owner.WEIGHTS, Owner.ADAPTERS),
                name="weights",
                bytes=_expected(rank.owned(Owner.WEIGHTS) + rank.owned(Owner.ADAPTERS)),
                evidence=LOG,
            ),
            Figure(
                owners=(Owner.ACTIVATION,),
                name="activation peak",
                bytes=ByteRange.exact(
                    sum(
                        entry.bytes.expected
                        for entry in rank.entries
                        if entry.owner is Owner.ACTIVATION and Phase.WARMUP in entry.phases
                    )
                ),
                evidence=LOG,
                phase=Phase.WARMUP,
            ),
        ),
        pools=(
            MeasuredPool(
                evidence=LOG,
                bytes=ByteRange.exact(pool.bytes.expected),
                tokens=_exact(pool.tokens),
                num_blocks=_exact(pool.num_blocks),
                block_size=pool.block_size,
            ),
        ),
    )
    return replace(found, **changes)


def _expected(size: ByteRange) -> ByteRange:
    return ByteRange.exact(size.expected)


def _exact(count: IntRange) -> IntRange:
    return IntRange(count.expected, count.expected, count.expected)


def replanned(kind: str) -> Any:
    def replan(asked: PlanArguments) -> Plan:
        flags: Mapping[str, Any] = asked.flags
        assert asked.device is not None
        return plan_of(checkpoint(kind), asked.device, engine=asked.engine_text, **flags)

    return replan


def line(found: Reconciliation, name: str) -> Line:
    (one,) = (item for item in found.lines if item.name == name)
    return one


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("flags", [{}, {"engine": "vllm==0.11.0"}, {"engine": "sglang"}])
def test_a_run_as_planned_is_inside_everywhere(kind: str, flags: dict[str, Any]) -> None:
    plan = planned(kind, **flags)
    found = reconcile(plan, run_of(plan))
    assert found.standing is Standing.INSIDE
    assert not found.differences
    assert {"engine", "engine_version", "tp", "device_total_bytes"} <= set(found.agreeing)
    assert not any(item.reasons for item in found.lines)


def test_every_entry_is_spoken_of_once() -> None:
    plan = planned("mixture")
    found = reconcile(plan, run_of(plan))
    told = [name for item in found.section(Section.LEDGER) for name in item.entries]
    held = {
        entry.name for entry in plan.ranks[0].entries if entry.owner not in (Owner.HEADROOM, Owner.KV_CACHE)
    }
    assert sorted(told) == sorted(held)


@pytest.mark.parametrize("kind", ["dense", "mixture", "latent"])
def test_a_flag_that_differs_is_named_first_and_its_share_computed(kind: str) -> None:
    plan = planned(kind, gpu_memory_utilization=0.9)
    run = run_of(planned(kind, gpu_memory_utilization=0.8))
    found = reconcile(plan, run, replan=replanned(kind))
    assert [(item.name, item.planned, item.measured) for item in found.differences] == [
        ("gpu_memory_utilization", 0.9, 0.8)
    ]
    for name in ("pool", "tokens", "blocks"):
        tokens = line(found, name)
        assert tokens.standing is Standing.OUTSIDE
        reason = tokens.reasons[0]
        assert reason.cause is Cause.OTHER_SETTING
        assert reason.is_tested
        assert reason.explains == tokens.difference
        assert reason.share == pytest.approx(1)
        assert not any(item.cause is Cause.UNACCOUNTED for item in tokens.reasons)
    assert line(found, "weights").standing is Standing.INSIDE


def test_of_two_settings_each_has_its_share_and_both_together_all() -> None:
    plan = planned("dense")
    run = run_of(planned("dense", gpu_memory_utilization=0.5, max_num_seqs=64))
    found = reconcile(plan, run, replan=replanned("dense"))
    reasons = [item for item in line(found, "tokens").reasons if item.is_tested]
    assert len(reasons) == 2  # 64 sequences leave more, which explains nothing of less
    assert {item.text for item in reasons} == {
        "all 2 settings that differ, together",
        "gpu_memory_utilization is 0.5, planned 0.92",
    }
    assert max(item.share or 0 for item in reasons) > 1
    assert any(item.share == pytest.approx(1) for item in reasons)


def test_another_version_is_tried() -> None:
    plan = planned("dense", engine="vllm==0.21.0")
    found = reconcile(plan, run_of(planned("dense", engine="vllm==0.19.0")), replan=replanned("dense"))
    assert "engine_version" in {item.name for item in found.differences}
    outside = [item for item in found.lines if item.standing is Standing.OUTSIDE]
    assert outside
    assert any(reason.is_tested for item in outside for reason in item.reasons)


def test_a_smaller_device_is_a_reason_of_its_own() -> None:
    plan = planned("dense")
    smaller = plan.inputs.device_total_bytes - 8 * GIB
    run = replace(run_of(plan), device_total_bytes=ByteRange(smaller - MIB, smaller, smaller + MIB))
    pool = replace(run.pools[0], bytes=ByteRange.exact(plan.kv_pool.bytes.expected - 8 * GIB))  # type: ignore[union-attr]
    found = reconcile(plan, replace(run, pools=(pool,)), replan=replanned("dense"))
    reason = line(found, "pool").reasons[0]
    assert reason.cause is Cause.OTHER_DEVICE
    assert reason.share == pytest.approx(0.92, abs=0.01)


def test_what_follows_from_another_line_says_so_with_its_share() -> None:
    plan = planned("dense")
    run = run_of(plan)
    more = 3 * GIB
    weights = replace(run.figures[0], bytes=ByteRange.exact(run.figures[0].bytes.expected + more))
    pool = replace(run.pools[0], bytes=ByteRange.exact(plan.kv_pool.bytes.expected - more))  # type: ignore[union-attr]
    found = reconcile(plan, replace(run, figures=(weights, run.figures[1]), pools=(pool,)))
    reason = line(found, "pool").reasons[0]
    assert reason.cause is Cause.CONSEQUENCE
    assert reason.explains == -more
    assert reason.share == pytest.approx(1)
    assert reason.evidence == ("weights: +3.00 GiB",)
    assert found.budget is not None
    assert found.budget.measured_terms


@pytest.mark.parametrize(
    ("sign", "text"), [(1, "lm_head is held a second time"), (-1, "lm_head is not held")]
)
def test_a_difference_of_the_size_of_one_line_names_it(sign: int, text: str) -> None:
    plan = planned("dense")
    run = run_of(plan)
    (head,) = (entry for entry in plan.ranks[0].entries if entry.name == "lm_head")
    size = run.figures[0].bytes.expected + sign * head.bytes.expected
    weights = replace(run.figures[0], bytes=ByteRange(size - MIB, size, size + MIB))
    found = reconcile(plan, replace(run, figures=(weights,)))
    assert text in [reason.text for reason in line(found, "weights").reasons]


def test_a_draft_and_adapters_that_were_not_planned() -> None:
    plan = planned("dense")
    run = run_of(plan)
    weights = replace(run.figures[0], bytes=ByteRange.exact(run.figures[0].bytes.expected + GIB))
    more = (("speculative_config", "eagle3"), ("enable_lora", True))
    found = reconcile(plan, replace(run, figures=(weights,), settings=(*run.settings, *more)))
    causes = {reason.cause for reason in line(found, "weights").reasons}
    assert {Cause.DRAFT, Cause.ADAPTERS} <= causes


def test_allocator_values_stay_four() -> None:
    plan = planned("dense")
    total = plan.inputs.device_total_bytes
    state = AllocatorState(
        evidence=LOG,
        phase=Phase.DECODE,
        allocated_bytes=ByteRange.exact(124 * GIB),
        reserved_bytes=ByteRange.exact(126 * GIB),
        pool_free_bytes=ByteRange.exact(2 * GIB),
        device_free_bytes=ByteRange.exact(1 * GIB),
        device_total_bytes=ByteRange.exact(total),
        outside_bytes=ByteRange.exact(GIB),
    )
    found = reconcile(plan, Measurement(sources=(), allocator=(state,)))
    lines = {item.name: item for item in found.section(Section.ALLOCATOR)}
    assert list(lines) == [
        "allocated at decode",
        "reserved at decode",
        "free inside the pool at decode",
        "device free at decode",
        "outside the allocator at decode",
    ]
    predicted = [item.predicted for item in lines.values()]
    assert len(set(predicted)) == len(predicted)
    free = lines["device free at decode"]
    assert free.standing is Standing.OUTSIDE
    (others,) = (reason for reason in free.reasons if reason.cause is Cause.OTHER_PROCESSES)
    assert others.explains == -(total - 128 * GIB)


def test_a_measurement_that_tells_nothing_cannot_be_told() -> None:
    plan = planned("dense")
    found = reconcile(plan, Measurement(sources=()))
    assert found.standing is Standing.UNTOLD
    assert all(item.measured is None for item in found.lines)


def test_host_memory_is_told_only_where_the_ledger_has_the_process() -> None:
    process = HostMemory(process="engine", evidence=LOG, rss_bytes=4 * GIB, pss_bytes=3 * GIB)
    for engine, predicted in (("vllm", False), ("tensorrt-llm", True)):
        found = reconcile(planned("dense", engine=engine), Measurement(sources=(), host=(process,)))
        (one,) = found.section(Section.HOST)
        assert (one.predicted is not None) is predicted
        assert one.measured is not None
        assert (one.measured.low, one.measured.high) == (3 * GIB, 4 * GIB)


def test_printed_settings_become_flags() -> None:
    run = Measurement(
        sources=(),
        engine="vllm",
        engine_version="0.27.1",
        device="NVIDIA H100 80GB HBM3",
        device_total_bytes=ByteRange(int(79.185 * GIB), int(79.19 * GIB), int(79.195 * GIB)),
        tp=4,
        ep=4,
        settings=(
            ("max_seq_len", 8192),
            ("dtype", "torch.bfloat16"),
            ("quantization", "None"),
            ("enforce_eager", "True"),
            ("kv_cache_dtype", "fp8"),
            ("seed", 0),
        ),
    )
    asked = plan_arguments(run)
    assert asked.engine_text == "vllm==0.27.1"
    assert asked.flags == {
        "max_model_len": 8192,
        "dtype": "bfloat16",
        "enforce_eager": True,
        "kv_cache_dtype": "fp8",
        "tensor_parallel_size": 4,
        "enable_expert_parallel": True,
    }
    assert asked.unknown == ("seed",)
    assert asked.device is not None
    assert asked.device.name == "H100 SXM 80GB"
    made = plan_of(checkpoint("mixture"), asked.device, engine=asked.engine_text, **asked.flags)  # type: ignore[arg-type]
    assert compare_settings(made, run).differences == ()


@pytest.mark.parametrize(
    ("engine", "settings", "flags"),
    [
        ("sglang", (("context_len", 4096), ("mem_fraction_static", 0.8)), {"context_length": 4096, "mem_fraction_static": 0.8}),
        ("llama.cpp", (("n_ctx", 8192), ("n_seq_max", 4), ("flash_attn", "enabled"), ("kv_unified", "false")),
         {"ctx_size": 8192, "parallel": 4, "flash_attn": "on", "kv_unified": False}),
        ("tensorrt-llm", (("maxBatchSize", 64), ("tokensPerBlock", 64)), {"max_batch_size": 64, "tokens_per_block": 64}),
    ],
)  # fmt: skip
def test_each_engine_has_its_own_words(
    engine: str, settings: tuple[tuple[str, Any], ...], flags: dict[str, Any]
) -> None:
    assert plan_arguments(Measurement(sources=(), engine=engine, settings=settings)).flags == flags


def test_a_device_by_its_memory_alone() -> None:
    def device(gib: float) -> PlanArguments:
        size = int(gib * GIB)
        return plan_arguments(
            Measurement(
                sources=(), engine="vllm", device_total_bytes=ByteRange(size - 5 * MIB, size, size + 5 * MIB)
            )
        )

    odd = device(55.5).device
    assert odd is not None
    assert (odd.architecture, odd.total_bytes) == ("unknown", int(55.5 * GIB))
    shared = device(79.19)
    assert shared.device is not None
    assert shared.device.architecture == "unknown"
    assert "A100" in shared.notes[0]
    assert "H100" in shared.notes[0]
    assert plan_arguments(Measurement(sources=(), engine="vllm")).device is None


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize(
    "flags", [{}, {"engine": "vllm==0.11.0", "max_model_len": 4096}, {"engine": "tensorrt-llm"}]
)
def test_a_plan_can_be_made_again_from_its_settings(kind: str, flags: dict[str, Any]) -> None:
    plan = planned(kind, **flags)
    assert replanned(kind)(own_arguments(plan)).kv_pool == plan.kv_pool


@pytest.mark.parametrize(
    ("offset", "says"), [(1, "too small for a line"), (-1, "cut off instead of rounded")]
)
def test_a_miss_within_the_last_place_is_told_by_its_direction(offset: int, says: str) -> None:
    plan = planned("dense")
    held, unit = plan.ranks[0].owned(Owner.WEIGHTS).expected, 100_000
    middle = held + offset * unit
    figure = Figure(
        owners=(Owner.WEIGHTS,),
        name="weights",
        bytes=ByteRange(middle - unit // 2, middle, middle + unit // 2),
        evidence=measured("run.log:7"),
    )
    found = reconcile(plan, Measurement(sources=(), engine="vllm", figures=(figure,)))
    (line,) = (line for line in found.lines if line.name == "weights")
    reason = next(reason for reason in line.reasons if reason.cause is Cause.ROUNDING)
    assert says in reason.text
    assert reason.evidence == (
        f"it misses by {offset * 50_000:+,} bytes, a unit of its last place is 100,000",
    )


def test_weights_on_another_device_than_planned_are_no_agreement() -> None:
    """A server that was built without a GPU holds a model planned for one in a buffer of the host."""
    plan = planned("dense")
    assert plan.kv_pool is not None
    on_host = Figure(
        owners=(Owner.WEIGHTS,),
        name="CPU_Mapped model buffer",
        bytes=plan.ranks[0].owned(Owner.WEIGHTS),
        evidence=measured("run.log:7"),
        entries=("CPU model buffer",),
    )
    tokens = plan.kv_pool.tokens.expected
    pool = MeasuredPool(evidence=measured("run.log:9"), tokens=IntRange(tokens, tokens, tokens))
    found = reconcile(plan, Measurement(sources=(), engine="vllm", figures=(on_host,), pools=(pool,)))
    assert [line.name for line in found.elsewhere] == ["CPU_Mapped model buffer"]
    assert found.standing is Standing.UNTOLD
    there = replace(on_host, entries=())
    assert (
        reconcile(plan, Measurement(sources=(), engine="vllm", figures=(there,), pools=(pool,))).standing
        is Standing.INSIDE
    )
