"""What stages send: at the rate that was asked for, of the kind that was asked for, and nothing that the engine cannot take."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.experiment.plan import ExperimentPlan, Kind
from vramledger.experiment.replay import drawn_gaps_ns, replayed
from vramledger.experiment.shapes import LEAVE, MARGIN_TOKENS, Source, read_source, stage_requests
from vramledger.workload.request import Request, WorkloadHeader

NS = 1_000_000_000
PLAN = ExperimentPlan()
TRACE = Source(
    name="trace",
    header=WorkloadHeader(name="trace", source="trace", block_tokens=16),
    requests=tuple(
        Request(
            arrival_ns=number * NS,
            prompt_tokens=40 + 20 * (number % 5),
            output_tokens=10 + number % 7,
            blocks=tuple(range(100 * number, 100 * number + 2)),
            conversation=number // 2,
            parent=number - 1 if number % 2 else None,
            pause_ns=NS // 10 if number % 2 else 0,
        )
        for number in range(40)
    ),
)


def stage(
    kind: Kind = Kind.MIXED, plan: ExperimentPlan = PLAN, **more: object
) -> tuple[WorkloadHeader, tuple[Request, ...]]:
    asked: dict[str, object] = {
        "per_s": 5.0, "seconds": 60.0, "seed": 1, "context_len": 2048, "pool_tokens": 8192, "source": None, **more
    }  # fmt: skip
    return stage_requests(plan, kind, **asked)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=40)
@given(
    kind=st.sampled_from(Kind),
    context_len=st.integers(80, 40_000),
    pool_tokens=st.none() | st.integers(80, 100_000),
    per_s=st.floats(0.2, 20),
    seed=st.integers(0, 2**31),
    arrivals=st.sampled_from(["poisson", "gamma", "even", "trace"]),
)
def test_whatever_the_engine_every_request_fits_and_comes_in_time(
    kind: Kind, context_len: int, pool_tokens: int | None, per_s: float, seed: int, arrivals: str
) -> None:
    plan = ExperimentPlan(arrivals=arrivals, burstiness=2.0)  # type: ignore[arg-type]
    source = TRACE if arrivals == "trace" else None
    _, requests = stage(
        kind, plan, context_len=context_len, pool_tokens=pool_tokens, per_s=per_s, seconds=10.0, seed=seed, source=source
    )  # fmt: skip
    for number, one in enumerate(requests):
        assert one.prompt_tokens >= 1
        assert one.output_tokens >= 1
        assert (
            one.prompt_tokens + one.output_tokens
            <= min(context_len, pool_tokens or context_len) - MARGIN_TOKENS
        )
        assert 0 <= one.arrival_ns < 10 * NS
        assert one.parent is None or one.parent < number
    assert [one.arrival_ns for one in requests] == sorted(one.arrival_ns for one in requests)


def test_the_same_seed_is_the_same_stage() -> None:
    assert stage() == stage()
    assert stage() != stage(seed=2)


def test_requests_come_at_the_rate_that_was_asked_for() -> None:
    for kind in (Kind.SHORT, Kind.MIXED, Kind.PREFIX_HIT, Kind.CANCELLED, Kind.TOOLS):
        _, requests = stage(kind, per_s=10.0, seconds=400.0)
        starts = sum(one.parent is None for one in requests)
        # Four standard deviations of a Poisson count of 4,000.
        assert abs(starts - 4000) < 4 * 4000**0.5, kind


def test_mixed_ones_are_longer_than_short_ones() -> None:
    _, short = stage(Kind.SHORT)
    _, mixed = stage(Kind.MIXED)
    assert max(one.prompt_tokens for one in mixed) > 2 * max(one.prompt_tokens for one in short)
    assert max(one.output_tokens for one in mixed) > 2 * max(one.output_tokens for one in short)


def test_hits_and_misses_differ_in_what_is_shared_alone() -> None:
    _, hits = stage(Kind.PREFIX_HIT)
    _, misses = stage(Kind.PREFIX_MISS)
    lengths = [(one.arrival_ns, one.prompt_tokens, one.output_tokens) for one in hits]
    assert lengths == [(one.arrival_ns, one.prompt_tokens, one.output_tokens) for one in misses]
    assert not any(one.blocks for one in misses)
    named = sum(min(16 * len(one.blocks), one.prompt_tokens) for one in hits)
    assert 0.6 < named / sum(one.prompt_tokens for one in hits) < 0.9


def test_some_clients_leave_and_within_what_a_request_takes() -> None:
    _, requests = stage(Kind.CANCELLED, seconds=400.0, typical_ns=3 * NS)
    leaving = [one.cancel_ns for one in requests if one.cancel_ns is not None]
    assert abs(len(leaving) / len(requests) - LEAVE) < 0.05
    assert all(0 < one <= 3 * NS for one in leaving)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), requests=st.integers(1, 4))
def test_of_few_clients_one_leaves_at_least(seed: int, requests: int) -> None:
    even = ExperimentPlan(arrivals="even")
    _, sent = stage(Kind.CANCELLED, even, per_s=1.0, seconds=requests, seed=seed, typical_ns=3 * NS)
    assert sum(one.cancel_ns is not None for one in sent) >= min(len(sent), 1)


def test_agents_wait_for_tools_and_grow() -> None:
    _, requests = stage(Kind.TOOLS)
    later = [one for one in requests if one.parent is not None]
    assert later
    assert all(one.pause_ns > 0 for one in later)
    for one in later:
        parent = requests[one.parent or 0]
        assert one.conversation == parent.conversation
        assert one.prompt_tokens >= parent.prompt_tokens
        assert one.blocks[: len(parent.blocks)] == parent.blocks[: len(one.blocks)]


def test_a_trace_is_sent_on_its_own_times_stretched() -> None:
    _, requests = stage(Kind.MIXED, ExperimentPlan(arrivals="trace"), source=TRACE, per_s=1.0, seconds=10.0)
    # Every other request follows the one before; the trace has half a start a second, so it is sent twice as fast.
    assert [one.arrival_ns for one in requests if one.parent is None] == [number * NS for number in range(10)]
    assert all(one.pause_ns == NS // 10 for one in requests if one.parent is not None)


def test_a_trace_that_is_too_short_is_sent_again_under_other_names() -> None:
    sent = replayed(TRACE.requests, per_s=2.0, seconds=60.0, is_own_times=True)
    starts = [one for one in sent if one.parent is None]
    assert len(starts) == 120
    once, twice = starts[0], starts[20]
    assert (once.prompt_tokens, once.output_tokens) == (twice.prompt_tokens, twice.output_tokens)
    assert not {*once.blocks} & {*twice.blocks}
    conversations = [one.conversation for one in starts]
    assert len(set(conversations)) == len(conversations)


@given(
    gaps_ms=st.lists(st.integers(0, 10_000), min_size=3, max_size=40),
    per_s=st.floats(0.5, 20),
    seconds=st.floats(2, 60),
)
def test_bursts_are_stretched_and_as_many_come_as_the_rate_says(
    gaps_ms: list[int], per_s: float, seconds: float
) -> None:
    assume(gaps_ms[0] > 0)
    times_ms = [0, *accumulate(gaps_ms)]
    trace = [Request(arrival_ns=at_ms * 1_000_000, prompt_tokens=9, output_tokens=1) for at_ms in times_ms]
    sent = replayed(trace, per_s=per_s, seconds=seconds, is_own_times=True)
    wanted = round(per_s * seconds)
    # Those that come together with the first that is too late are too late with it.
    together = max(times_ms.count(at_ms) for at_ms in times_ms)
    assert wanted - together < len(sent) <= wanted
    if len(sent) > 1:
        stretch = sent[1].arrival_ns / gaps_ms[0]
        for at_ms, one in zip(times_ms, sent, strict=False):
            assert one.arrival_ns == pytest.approx(at_ms * stretch, rel=1e-3, abs=10)


def test_a_trace_without_turns_waits_for_tools_all_the_same() -> None:
    alone = Source(
        name="t", header=TRACE.header, requests=tuple(one for one in TRACE.requests if one.parent is None)
    )
    _, requests = stage(Kind.TOOLS, ExperimentPlan(arrivals="trace"), source=alone)
    assert any(one.parent is not None for one in requests)


def test_short_ones_of_a_trace() -> None:
    _, requests = stage(Kind.SHORT, source=TRACE)
    assert {one.prompt_tokens for one in requests} <= {40, 60, 80}
    assert all(one.parent is None and not one.blocks for one in requests)


def test_longer_ones_than_the_engine_takes_are_cut_and_told_of() -> None:
    header, requests = stage(Kind.MIXED, source=TRACE, context_len=100)
    assert any("cut to the 92 tokens" in note for note in header.notes)
    assert max(one.prompt_tokens for one in requests) < 92


@pytest.mark.parametrize("burstiness", [0.0, 0.5, 1.0, 3.0])
def test_gaps_have_the_mean_and_variation_that_were_asked_for(burstiness: float) -> None:
    gaps = drawn_gaps_ns(10.0, burstiness, 7)
    drawn = [next(gaps) / NS for _ in range(40_000)]
    mean = sum(drawn) / len(drawn)
    deviation = (sum((one - mean) ** 2 for one in drawn) / len(drawn)) ** 0.5
    assert mean == pytest.approx(0.1, rel=0.05)
    assert deviation / mean == pytest.approx(burstiness, rel=0.1)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="too few"):
        stage(context_len=60)
    with pytest.raises(InputError, match="no trace"):
        stage(plan=ExperimentPlan(arrivals="trace"))
    with pytest.raises(InputError, match="none that can be sent"):
        stage(per_s=0.0)
    together = Source(
        name="t",
        header=TRACE.header,
        requests=tuple(Request(arrival_ns=0, prompt_tokens=9, output_tokens=1) for _ in range(3)),
    )
    with pytest.raises(InputError, match="come at once"):
        stage(plan=ExperimentPlan(arrivals="trace"), source=together)
    _, drawn = stage(source=together, per_s=2.0)
    assert len(drawn) > 3


def test_a_file_of_cohorts_and_a_trace_are_told_apart(tmp_path: Path) -> None:
    cohorts = tmp_path / "w.toml"
    cohorts.write_text("[[cohort]]\nname = 'a'\nprompt_tokens = 100\noutput_tokens = 10\nrate_per_s = 1.0\n")
    source = read_source(cohorts)
    _, requests = stage(Kind.MIXED, source=source)
    assert {(one.prompt_tokens, one.output_tokens) for one in requests} == {(100, 10)}
    assert {(one.prompt_tokens, one.output_tokens) for one in stage(Kind.SHORT, source=source)[1]} == {
        (100, 10)
    }
    trace = tmp_path / "t.csv"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,50,5\n1.0,60,6\n2.0,70,7\n")
    assert len(read_source(trace).requests) == 3


@pytest.mark.parametrize("source", [None, TRACE])
def test_a_burst_has_the_same_rate_in_gaps_that_vary_more(source: Source | None) -> None:
    def variation(kind: Kind) -> tuple[float, int]:
        _, requests = stage(kind, seconds=400.0, source=source)
        times = [one.arrival_ns for one in requests if one.parent is None]
        gaps = [later - before for before, later in pairwise(times)]
        return pstdev(gaps) / fmean(gaps), len(times)

    even, count = variation(Kind.MIXED)
    bursts, in_bursts = variation(Kind.BURST)
    assert even < 1.3
    assert bursts > 2
    assert count / 2 < in_bursts < 2 * count
