"""Blocks are back when the engine holds no more above the books than before the request ended; turns are known by their prompts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramledger.gateway import blocks_back, turns
from vramledger.gateway.admitter import (
    Decision,
    Ended,
    Ending,
    Kind,
    PromptTokens,
    RequestFacts,
    TokenSource,
    Verdict,
)
from vramledger.gateway.blocks_back import BlocksBack
from vramledger.gateway.record import RequestRecord
from vramledger.gateway.telemetry import Telemetry
from vramledger.gateway.turns import Turns


def record(
    finished_ns: int, *, blocks: int = 5, instance: int = 0, prompt: int = 0, real: int = 0, output: int = 0
) -> RequestRecord:
    """One that was booked with so long a prompt, and really had another one; blocks of one token."""
    facts = RequestFacts(number=1, kind=Kind.CHAT, model="m", prompt_bytes=0, arrival_ns=1)
    numbers = {"need_blocks": blocks, "block_size": 1, "prompt_tokens": prompt}
    decision = Decision(verdict=Verdict.ADMIT, rule="fits", numbers=numbers, instance=instance)
    ending = Ending(how=Ended.COMPLETED, prompt_tokens=real, output_tokens=output)
    return RequestRecord(
        facts=facts, decision=decision, admitted_ns=1, finished_ns=finished_ns, ending=ending
    )


def test_blocks_are_back_at_the_first_sample_that_shows_it() -> None:
    told: list[RequestRecord] = []
    back = BlocksBack(told.append)
    back.sampled(0, 100, used_blocks=12, booked_blocks=10)  # the books are off by 2, and stay so
    first, second = record(150), record(210, blocks=3)
    back.ended(first)
    back.sampled(0, 200, used_blocks=12, booked_blocks=5)
    assert not told
    back.sampled(0, 205, used_blocks=7, booked_blocks=5)
    assert told == [first]
    assert first.blocks_back_ns == 205
    back.ended(second)
    back.sampled(0, 209, used_blocks=4, booked_blocks=2)  # asked before it ended
    assert told == [first]
    back.sampled(0, 230, used_blocks=9, booked_blocks=7)  # another one began
    assert told == [first, second]


@st.composite
def ends(draw: st.DrawFn) -> tuple[list[tuple[int, int, int, int]], int]:
    """Requests as (prompt as booked, as it was, when it ends, how long the engine keeps it), and how often the engine is asked."""
    request = st.tuples(st.integers(1, 90), st.integers(1, 90), st.integers(1, 400), st.integers(0, 200))
    return draw(st.lists(request, min_size=1, max_size=8)), draw(st.integers(3, 60))


@given(ends())
def test_blocks_are_seen_to_be_back_at_the_latest_when_all_are(
    story: tuple[list[tuple[int, int, int, int]], int],
) -> None:
    requests, period = story
    output = 7
    told: list[RequestRecord] = []
    back = BlocksBack(told.append)
    back.sampled(
        0,
        0,
        used_blocks=sum(real + output for _, real, _, _ in requests),
        booked_blocks=sum(booked + output for booked, _, _, _ in requests),
    )
    records = {}
    for place, (booked, real, end, keeps) in sorted(enumerate(requests), key=lambda one: one[1][2]):
        one = record(end, prompt=booked, real=real, output=output)
        one.released_ns = end
        records[place] = (one, end + keeps)
    pending = sorted(records.values(), key=lambda one: one[0].finished_ns)
    for now in range(period, 1000, period):
        while pending and pending[0][0].finished_ns <= now:
            back.ended(pending.pop(0)[0])
        used = sum(
            real + output
            for (_, real, _, _), (_, gone) in zip(requests, _in_order(records), strict=True)
            if gone > now
        )
        booked_blocks = sum(booked + output for booked, _, end, _ in requests if end > now)
        back.sampled(0, now, used_blocks=used, booked_blocks=booked_blocks)
    assert len(told) == len(requests)
    last = max(gone for _, gone in records.values())
    for one, _ in records.values():
        assert one.finished_ns <= one.blocks_back_ns < last + period
    if len(requests) == 1:
        ((one, gone),) = records.values()
        assert gone <= one.blocks_back_ns < max(gone, one.finished_ns) + period


def _in_order(records: dict[int, tuple[RequestRecord, int]]) -> list[tuple[RequestRecord, int]]:
    return [records[place] for place in range(len(records))]


def test_nothing_is_guessed_where_the_engine_does_not_say() -> None:
    told: list[RequestRecord] = []
    back = BlocksBack(told.append)
    back.ended(record(100))
    back.sampled(0, 150, used_blocks=0, booked_blocks=0)
    back.sampled(1, 150, used_blocks=4, booked_blocks=4)
    back.ended(record(160, instance=1, blocks=0))
    back.sampled(1, 170, used_blocks=None, booked_blocks=4)
    back.ended(record(180, instance=1))
    back.sampled(1, 190, used_blocks=0, booked_blocks=0)
    assert not told
    assert back.unseen == 0


def test_what_is_never_seen_is_given_up() -> None:
    back = BlocksBack(lambda record: None)
    back.sampled(0, 1, used_blocks=4, booked_blocks=4)
    for _ in range(blocks_back.MOST_WAITING + 3):
        back.ended(record(10))
    assert back.unseen == 3
    back.sampled(0, 20, used_blocks=9, booked_blocks=0)
    assert back.unseen == 3
    back.sampled(0, 11 + blocks_back.GIVEN_UP_NS, used_blocks=9, booked_blocks=0)
    assert back.unseen == blocks_back.MOST_WAITING + 3


def test_of_an_engine_that_falls_silent_nothing_is_waited_for() -> None:
    back = BlocksBack(lambda record: None)
    back.sampled(0, 1, used_blocks=4, booked_blocks=4)
    back.ended(record(10))
    back.sampled(0, 20, used_blocks=None, booked_blocks=0)
    assert back.unseen == 1


def test_the_time_is_told_by_the_instances_name() -> None:
    telemetry = Telemetry(instances=["left", "right"])
    for instance, used in ((0, 2), (1, 4)):
        telemetry.sampled(instance, 100, used, used)
    for observer in telemetry.observers:
        observer.ended(record(1_000, instance=1))
    telemetry.sampled(1, 5_001_000, 0, 0)
    ((labels, value),) = telemetry.requests.blocks_return.series().values
    assert labels == ("right",)
    assert not isinstance(value, float | int)
    assert abs(value.total - 0.005) < 1e-12


def turn(
    keys: tuple[int, ...],
    arrival_ns: int,
    finished_ns: int,
    *,
    tool: bool = True,
    tenant: int = 1,
    cached: int | None = 0,
) -> RequestRecord:
    prompt = PromptTokens(
        tokens=16 * len(keys) + 5, most_tokens=16 * len(keys) + 5, source=TokenSource.ENGINE, keys=keys
    )
    facts = RequestFacts(
        number=1, kind=Kind.CHAT, model="m", prompt_bytes=0, prompt=prompt, arrival_ns=arrival_ns, tenant=tenant,
        after_tool=tool,
    )  # fmt: skip
    ending = Ending(how=Ended.COMPLETED, cached_prompt_tokens=cached)
    return RequestRecord(facts=facts, admitted_ns=1, finished_ns=finished_ns, ending=ending)


def test_a_tools_pause_is_the_time_between_two_turns() -> None:
    told = Turns()
    first = turn((1, 2), 10, 20, tool=False)
    second = turn((1, 2, 3, 4), 50, 60, cached=32)
    third = turn((1, 2, 3, 4, 5), 100, 110, cached=16)
    fourth = turn((1, 2, 3, 4, 5, 6), 200, 210, cached=None)
    fifth = turn((1, 2, 3, 4, 5, 6, 7), 300, 310, cached=0)
    for one in (first, second, third, fourth, fifth):
        told.ended(one)
    assert [one.tool_pause_ns for one in (first, second, third, fourth, fifth)] == [None, 30, 40, 90, 90]
    assert [one.prefix_kept for one in (first, second, third, fourth, fifth)] == [
        "",
        "kept",
        "part",
        "",
        "lost",
    ]


def test_tenants_do_not_continue_each_others_turns() -> None:
    told = Turns()
    told.ended(turn((1, 2), 10, 20))
    others = turn((1, 2, 3), 50, 60, tenant=2)
    told.ended(others)
    assert others.tool_pause_ns is None


def test_only_so_many_turns_are_remembered() -> None:
    told = Turns()
    for number in range(turns.REMEMBERED + 1):
        told.ended(turn((-number - 1,), 10, 20))
    forgotten, known = turn((-1, 7), 50, 60), turn((-2, 8), 50, 60)
    told.ended(known)
    told.ended(forgotten)
    assert (known.tool_pause_ns, forgotten.tool_pause_ns) == (30, None)
