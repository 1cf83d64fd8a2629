"""Measured terms in the place of calculated ones, and the pool that the budget then leaves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from five_kinds import FIVE, planned
from vramledger.answer import Plan
from vramledger.evidence import EvidenceKind, measured
from vramledger.ledger import AFTER_LOAD, ByteRange, Entry, Owner, Phase, total
from vramledger.measurement import Figure, MeasuredPool, Measurement
from vramledger.pool import IntRange
from vramledger.reconciliation.arguments import flags_of
from vramledger.reconciliation.measured_ledger import measured_ledger
from vramledger.reconciliation.measured_plan import recomputed_budget, reconciled_plan
from vramledger.reconciliation.result import interval
from vramledger.units import GIB, MIB

LOG = measured("run.log:1")
NOTHING = Measurement(sources=())
ENGINES: tuple[dict[str, Any], ...] = (
    {},
    {"engine": "vllm==0.8.5"},
    {"engine": "vllm==0.21.0"},
    {"engine": "vllm", "pp": 2},
    {"engine": "sglang"},
    {"engine": "tensorrt-llm"},
)


def figure(
    owners: tuple[Owner, ...], size: int, name: str = "figure", phase: Phase | None = None, **more: Any
) -> Figure:
    return Figure(owners=owners, name=name, bytes=ByteRange.exact(size), evidence=LOG, phase=phase, **more)


def of(plan: Plan, *figures: Figure, **more: Any) -> Measurement:
    return Measurement(sources=(), engine=plan.inputs.engine, figures=figures, **more)


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("flags", ENGINES)
def test_with_nothing_measured_the_budget_leaves_the_planned_pool(kind: str, flags: dict[str, Any]) -> None:
    plan = planned(kind, **flags)
    assert plan.kv_pool is not None
    budget = recomputed_budget(plan, NOTHING)
    assert budget is not None
    assert budget.num_blocks == interval(plan.kv_pool.num_blocks)
    assert budget.tokens.expected == plan.kv_pool.tokens.expected
    assert not budget.measured_terms


def test_a_cache_of_a_stated_length_is_no_remainder() -> None:
    assert recomputed_budget(planned("dense", engine="llamacpp", tp=1), NOTHING) is None


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("flags", [{}, {"engine": "sglang"}])
def test_heavier_weights_leave_so_much_less(kind: str, flags: dict[str, Any]) -> None:
    plan = planned(kind, **flags)
    pool, rank = plan.kv_pool, plan.ranks[0]
    assert pool is not None
    held = total(entry.bytes for entry in rank.entries if entry.owner is Owner.WEIGHTS).expected
    budget = recomputed_budget(plan, of(plan, figure((Owner.WEIGHTS,), held + 3 * GIB)))
    assert budget is not None
    less = pool.bytes.expected - budget.pool_bytes.expected
    assert abs(less - 3 * GIB) <= 2 * pool.bytes.expected / pool.num_blocks.expected
    assert budget.measured_terms == ("figure",)


def test_a_measured_total_moves_the_budget() -> None:
    plan = planned("dense", gpu_memory_utilization=0.9)
    size = ByteRange.exact(plan.inputs.device_total_bytes - GIB)
    budget = recomputed_budget(plan, Measurement(sources=(), device_total_bytes=size))
    assert budget is not None
    assert budget.budget_bytes.expected == pytest.approx(plan.budget_bytes - 0.9 * GIB, abs=2)
    assert budget.pool_bytes.expected < budget.planned_bytes.expected - 0.9 * GIB + 8 * MIB


def test_one_line_keeps_its_name_and_several_become_one() -> None:
    rank = planned("dense").ranks[0]
    one = measured_ledger(rank.entries, [figure((Owner.WEIGHTS,), 7, entries=("lm_head",))])
    assert one.measured == ("lm_head",)
    (head,) = (entry for entry in one.entries if entry.name == "lm_head")
    assert head.bytes == ByteRange.exact(7)
    assert head.evidence.kind is EvidenceKind.MEASURED
    assert "in place of the calculated lm_head 525336576 B" in head.evidence.formula
    all_of_them = measured_ledger(rank.entries, [figure((Owner.WEIGHTS,), 9 * GIB, "weights")])
    assert [entry.name for entry in all_of_them.entries if entry.owner is Owner.WEIGHTS] == ["weights"]


def test_a_wide_figure_stands_for_what_narrower_ones_leave() -> None:
    rank = planned("dense").ranks[0]
    weights = figure((Owner.WEIGHTS,), 9 * GIB, "weights")
    wide = figure((Owner.WEIGHTS, Owner.ALLOCATOR), 10 * GIB, "consumed", Phase.WARMUP)
    found = measured_ledger(rank.entries, [wide, weights])
    sizes = {entry.name: entry.bytes.expected for entry in found.entries if entry.name in found.measured}
    assert sizes == {"weights": 9 * GIB, "consumed, the rest of it": GIB}


def test_a_figure_that_cuts_across_another_is_not_used() -> None:
    rank = planned("dense").ranks[0]
    one = figure((Owner.WEIGHTS,), GIB, "first", entries=("embedding", "attention"))
    other = figure((Owner.WEIGHTS,), GIB, "second", entries=("attention", "mlp", "norms"))
    found = measured_ledger(rank.entries, [one, other])
    assert found.measured == ("first",)
    assert found.notes == ("second is not put into the ledger: it cuts across first",)


def test_uncharged_lines_of_a_figure_stay_calculated() -> None:
    rank = planned("dense").ranks[0]
    lines = [
        entry for entry in rank.entries if entry.owner is Owner.WORKSPACE and Phase.WARMUP in entry.phases
    ]
    outside = [entry for entry in lines if not entry.inside_budget]
    assert outside
    assert len(outside) < len(lines)
    found = measured_ledger(rank.entries, [figure((Owner.WORKSPACE,), 4 * GIB, "workspace", Phase.WARMUP)])
    assert set(outside) < set(found.entries)
    (made,) = (entry for entry in found.entries if entry.name in found.measured)
    assert made.bytes.expected == 4 * GIB - total(entry.bytes for entry in outside).expected
    assert made.evidence.kind is EvidenceKind.CALCULATED


@given(
    sizes=st.lists(st.integers(0, 2**40), min_size=1, max_size=3),
    picks=st.lists(st.sets(st.sampled_from(list(Owner)), min_size=1), min_size=3, max_size=3),
    phase=st.none() | st.sampled_from(Phase),
)
@settings(max_examples=60)
def test_what_no_figure_covers_stays(sizes: list[int], picks: list[set[Owner]], phase: Phase | None) -> None:
    rank = planned("mixture").ranks[0]
    figures = [
        figure(tuple(pick), size, f"figure {place}", phase)
        for place, (size, pick) in enumerate(zip(sizes, picks, strict=False))
    ]
    found = measured_ledger(rank.entries, figures)
    told = {owner for item in figures for owner in item.owners}
    kept = [entry for entry in rank.entries if entry.owner not in told]
    assert [entry for entry in found.entries if entry in kept] == kept
    for each in Phase:
        before = {entry.name for entry in rank.entries if each in entry.phases}
        after = {entry.name for entry in found.entries if each in entry.phases}
        assert bool(before) == bool(after)


def test_the_measured_plan_holds_what_was_measured_and_says_so() -> None:
    plan = planned("dense")
    assert plan.kv_pool is not None
    pool = MeasuredPool(
        evidence=LOG,
        num_blocks=IntRange(100_000, 100_000, 100_000),
        tokens=IntRange(1_600_000, 1_600_000, 1_600_000),
    )
    found = reconciled_plan(plan, of(plan, figure((Owner.WEIGHTS,), 9 * GIB, "weights"), pools=(pool,)))
    rank = found.ranks[0]
    by_name = {entry.name: entry for entry in rank.entries}
    assert by_name["weights"].bytes == ByteRange.exact(9 * GIB)
    assert rank.weights.device_bytes == ByteRange.exact(9 * GIB)
    assert by_name["KV pool"].bytes == ByteRange.exact(100_000 * plan.kv_pool.bytes_per_block)
    assert by_name["KV pool"].evidence.kind is EvidenceKind.MEASURED
    assert found.kv_pool is not None
    assert found.kv_pool.tokens.expected == 1_600_000
    assert found.notes[-1].startswith("2 line(s) of the ledger are measured")
    assert _charged(rank.entries) < _charged(plan.ranks[0].entries)


def _charged(entries: tuple[Entry, ...]) -> int:
    return sum(
        entry.bytes.expected
        for entry in entries
        if entry.inside_budget and entry.phases & AFTER_LOAD == AFTER_LOAD
    )


def test_a_member_of_an_enumeration_is_read_by_its_name() -> None:
    flags, unknown = flags_of("vllm", [("load_format", "LoadFormat.AUTO"), ("dtype", "torch.bfloat16")])
    assert (flags["load_format"], unknown) == ("auto", ())
