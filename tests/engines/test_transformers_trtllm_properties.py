"""What holds for every plan of transformers and TensorRT-LLM, whatever the model, the device, the release and the flags."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from five_kinds import checkpoint
from vramledger import Plan, VramledgerError, plan
from vramledger.ledger import Owner, Phase
from vramledger.units import GIB

KINDS = st.sampled_from(("dense", "mixture", "latent", "windowed", "recurrent"))
RELEASES = st.sampled_from(
    (
        "transformers==5.0.0",
        "transformers==5.9.0",
        "transformers==5.17.0",
        "transformers==5.23.0",
        "tensorrt-llm==0.13.0",
        "tensorrt-llm==1.1.0",
        "tensorrt-llm==1.3.0",
    )
)
MEMORY = st.integers(1, 160)
WIDTHS = st.sampled_from((1, 1, 2, 4))
LENGTHS = st.sampled_from((None, 512, 8192, 32768))
few = settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])


def planned(kind: str, gib: int, release: str, tp: int, length: int | None, **asked: Any) -> Plan | None:
    """None for what an engine refuses."""
    name = "max_length" if release.startswith("transformers") else "max_seq_len"
    asked[name] = length
    try:
        return plan(checkpoint(kind), f"custom:{gib}GiB", engine=release, tp=tp, **asked)
    except VramledgerError:
        return None


@few
@given(KINDS, MEMORY, RELEASES, WIDTHS, LENGTHS, st.integers(1, 300))
def test_a_plan_is_consistent(
    kind: str, gib: int, release: str, tp: int, length: int | None, concurrency: int
) -> None:
    found = planned(kind, gib, release, tp, length, concurrency=concurrency)
    assume(found is not None)
    assert found is not None
    pool, verdict = found.kv_pool, found.verdict
    assert pool is not None
    for ends in (pool.bytes, pool.num_blocks, pool.tokens, pool.longest_context):
        assert 0 <= ends.low <= ends.expected <= ends.high
    assert sum(len(rank.ranks) for rank in found.ranks) == tp
    for rank in found.ranks:
        assert {phase for entry in rank.entries for phase in entry.phases} == set(Phase)
        weights = sum(entry.bytes.expected for entry in rank.entries if entry.owner is Owner.WEIGHTS)
        assert weights == rank.weights.device_bytes.expected
        if verdict.holds:
            assert rank.occupied(Phase.DECODE).expected <= rank.device_total_bytes
    if verdict.holds:
        assert verdict.shortfall_bytes == 0
        assert pool.max_concurrency.low >= concurrency
        assert verdict.conditions
    if verdict.holds is False:
        assert verdict.summary.startswith("does not fit")


@few
@given(KINDS, MEMORY, st.integers(1, 60), RELEASES, WIDTHS, LENGTHS)
def test_a_larger_device_never_holds_less(
    kind: str, gib: int, more: int, release: str, tp: int, length: int | None
) -> None:
    less, better = (planned(kind, size, release, tp, length) for size in (gib, gib + more))
    assume(less is not None and better is not None)
    assert less is not None
    assert better is not None
    assert less.kv_pool is not None
    assert better.kv_pool is not None
    assert better.kv_pool.tokens.expected >= less.kv_pool.tokens.expected
    assert better.kv_pool.longest_context.low >= less.kv_pool.longest_context.low
    if less.verdict.holds:
        assert better.verdict.holds


@few
@given(KINDS, RELEASES, st.sampled_from((2, 4)), LENGTHS)
def test_more_ranks_hold_less_each(kind: str, release: str, tp: int, length: int | None) -> None:
    one, many = (planned(kind, 160, release, size, length) for size in (1, tp))
    assume(one is not None and many is not None)
    assert one is not None
    assert many is not None
    whole, share = (found.ranks[0].weights.device_bytes.expected for found in (one, many))
    assert whole / tp * 0.99 <= share <= whole
    assert one.kv_pool is not None
    assert many.kv_pool is not None
    assert many.kv_pool.bytes_per_token <= one.kv_pool.bytes_per_token


@few
@given(KINDS, st.integers(40, 160), RELEASES, LENGTHS)
def test_the_same_question_has_the_same_answer(kind: str, gib: int, release: str, length: int | None) -> None:
    first = planned(kind, gib, release, 1, length)
    assume(first is not None)
    assert first == planned(kind, gib, release, 1, length)
    assert GIB * gib == first.inputs.device_total_bytes  # type: ignore[union-attr]
