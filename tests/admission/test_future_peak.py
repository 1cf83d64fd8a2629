"""The future peak of what runs: by hand, by brute force over every step, and kept up to date."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.admission.future_peak import FuturePeak
from vramledger.admission.growth import Growth
from vramledger.admission.holding import NEVER, Holding, peak_blocks, usage_blocks
from vramledger.admission.need import Need
from vramledger.admission.usage_run import UsageRun
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind, PoolLayout

PLAIN = Need(PoolLayout(num_blocks=1000, groups=(BlockGroup(block_tokens=4),)), step_tokens=8)
WINDOWED = Need(
    PoolLayout(
        num_blocks=1000,
        groups=(
            BlockGroup(block_tokens=4),
            BlockGroup(kind=GroupKind.WINDOW, block_tokens=4, window_tokens=9),
            BlockGroup(kind=GroupKind.STATE, block_tokens=4, state_blocks=2),
        ),
    ),
    step_tokens=3,
)


def test_one_that_ends_makes_room_for_one_that_grows() -> None:
    # 8 tokens growing to 10 and 4 growing to 20, in blocks of 4: 3 + 2 blocks when the first ends, then 5 of the second alone.
    short, long = Holding(8, 2, 2), Holding(4, 16, 16)
    assert peak_blocks([short, long], PLAIN) == 5
    # A sum of maxima would say 3 + 5.
    assert peak_blocks([short._replace(hold_end=NEVER), long], PLAIN) == 8
    # One that waits up to 10 steps holds its 3 blocks while the second grows to 4 + 12 tokens; the peak is the second's end still.
    assert peak_blocks([short._replace(hold_end=12), long], PLAIN) == 7


def test_blocks_of_equal_keys_are_held_until_the_last_of_their_holders_ends() -> None:
    first, second = Holding(8, 2, 2, keys=(1, 2)), Holding(8, 9, 9, keys=(1, 2))
    assert usage_blocks([first, second], PLAIN, 2) == 2 + 1 + 1
    assert usage_blocks([first, second], PLAIN, 9) == 5
    assert peak_blocks([first, second], PLAIN) == 5


def test_branches_hold_the_full_blocks_of_their_prompt_once() -> None:
    # Three branches of 10 tokens that grow to 14: 2 blocks in common, 2 each of their own.
    assert peak_blocks([Holding(10, 4, 4, branches=3, common_blocks=2)], PLAIN) == 2 + 3 * 2


@st.composite
def holdings(draw: st.DrawFn) -> Holding:
    growth = draw(st.integers(0, 40))
    tokens = draw(st.integers(1, 40))
    depth = draw(st.integers(0, tokens // 4))
    family = draw(st.integers(0, 2))
    branches = draw(st.sampled_from([1, 1, 1, 2, 3]))
    return Holding(
        offset_tokens=tokens,
        growth_end=growth,
        hold_end=draw(st.sampled_from([growth, growth + 3, growth + 20, NEVER])),
        branches=branches,
        common_blocks=tokens // 4 if branches > 1 and draw(st.booleans()) else 0,
        # Chained: whoever names a block names all before it, and the first of two families is the same.
        keys=tuple(range(depth))
        if family == 0
        else tuple(100 * family + i if i else 0 for i in range(depth)),
    )


@given(st.lists(holdings(), max_size=8), st.sampled_from([PLAIN, WINDOWED]))
def test_the_peak_lies_at_an_end(rows: list[Holding], need: Need) -> None:
    last = max((min(row.hold_end, 70) for row in rows), default=0)
    brute = max((usage_blocks(rows, need, step) for step in range(last + 1)), default=0)
    assert peak_blocks(rows, need) == brute


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "remove", "advance"]), holdings()), min_size=1, max_size=90
    ),
    holdings(),
    st.sampled_from([PLAIN, WINDOWED]),
    st.integers(0, 60),
)
def test_what_is_kept_up_to_date_equals_what_is_computed_anew(
    changes: list[tuple[str, Holding]], extra: Holding, need: Need, step: int
) -> None:
    peak = FuturePeak(need)
    rows: dict[int, Holding] = {}
    now = 0
    for number, (change, holding) in enumerate(changes):
        if change == "add":
            rows[number] = holding
            peak.add(number, holding)
        elif change == "advance":
            now += holding.growth_end % 3
            peak.advance(now)
        elif rows:
            gone = min(rows, key=lambda name: (rows[name].offset_tokens, name))
            assert peak.remove(gone) == rows.pop(gone)
        # Whatever was not removed is held now, even if it should have ended.
        lasting = [row._replace(hold_end=NEVER) for row in rows.values()]
        assert peak.blocks_now == usage_blocks(lasting, need, now)
    assert peak.peak() == peak_blocks(rows.values(), need)
    assert peak.peak(extra) == peak_blocks([*rows.values(), extra], need)
    assert peak.usage_at(step) == usage_blocks(rows.values(), need, step)
    assert all(peak.is_held(key) == any(key in row.keys for row in rows.values()) for key in range(10))


def test_room_comes_with_the_end_that_frees_enough() -> None:
    peak = FuturePeak(PLAIN)
    for name, holding in enumerate((Holding(16, 3, 3), Holding(8, 5, 5), Holding(4, 20, 20))):
        peak.add(name, holding)
    # At their ends 5 + 3 + 2, then 4 + 3, then 6 blocks are in use.
    assert peak.peak() == 10
    assert peak.first_room(3, 14) is None
    assert peak.first_room(6, 13) == 3
    assert peak.first_room(8, 14) == 5
    assert peak.first_room(9, 14) == 20


def test_one_that_ends_before_many_others_is_asked_about() -> None:
    rows = [Holding(8, 100 + number, 100 + number) for number in range(100)]
    peak = FuturePeak(PLAIN)
    for name, holding in enumerate(rows):
        peak.add(name, holding)
    early = Holding(4, 3, 5)
    assert peak.peak(early) == peak_blocks([*rows, early], PLAIN)


@pytest.mark.parametrize(("block_tokens", "tokens"), [(1, 10**7), (3, 1500), (16, 1500), (100, 1500)])
def test_hundreds_are_kept_up_to_date_over_a_long_time(block_tokens: int, tokens: int) -> None:
    random = Random(block_tokens)
    need = Need(PoolLayout(num_blocks=1000, groups=(BlockGroup(block_tokens=block_tokens),)), step_tokens=64)
    peak, now = FuturePeak(need), 10**9
    rows: dict[int, Holding] = {}
    peak.advance(now)

    def holding() -> Holding:
        growth = now + int(random.lognormvariate(4.5, 1)) + 1
        held, branches = random.randint(1, tokens), random.choice([1] * 9 + [3])
        end = growth + random.choice([0, 1, 5, 5, 5])
        if random.random() < 0.05:
            end = NEVER
        depth = random.randint(0, min(20, held // block_tokens)) if branches == 1 else 0
        return Holding(held - now, growth, end, branches, keys=tuple(range(depth)))

    for number in range(1200):
        if len(rows) < 250 and random.random() < 0.6:
            rows[number] = holding()
            peak.add(number, rows[number])
        elif rows and random.random() < 0.9:
            gone = random.choice(list(rows))
            assert peak.remove(gone) is rows.pop(gone)
        else:
            now += random.choice([1, 1, 3, 40])
            peak.advance(now)
        if number % 40 == 0:
            extra, step = holding(), now + random.randint(0, 100)
            assert peak.peak() == peak_blocks(rows.values(), need)
            assert peak.peak(extra) == peak_blocks([*rows.values(), extra], need)
            assert peak.usage_at(step) == usage_blocks(rows.values(), need, step)
            lasting = [row._replace(hold_end=NEVER) for row in rows.values()]
            assert peak.blocks_now == usage_blocks(lasting, need, now)


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 40), st.integers(1, 3)), max_size=30),
    st.sampled_from([1, 2, 3, 16]),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 29),
)
def test_blocks_that_growing_sequences_begin_are_counted(
    rows: list[tuple[int, int, int]], size: int, after: int, more: int, gone: int
) -> None:
    growth, through = Growth(size), after + more
    for row in rows:
        growth.add(*row)
    if gone < len(rows):
        growth.remove(*rows.pop(gone))
    assert growth.begun(after, through) == sum(
        branches * max(0, (min(through, last) + base) // size - (after + base) // size)
        for base, last, branches in rows
        if last > after
    )


def test_a_question_looks_into_few_runs_of_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    need = Need(PoolLayout(num_blocks=1000, groups=(BlockGroup(block_tokens=16),)), step_tokens=64)
    random, peak = Random(1), FuturePeak(need)

    def holding() -> Holding:
        growth = 20 + int(random.lognormvariate(5.5, 1))
        return Holding(random.randint(50, 1500), growth, growth + 6)

    for number in range(1024):
        peak.add(number, holding())
    looked: list[int] = []
    most = UsageRun.most

    def counted(self: UsageRun, *asked: object) -> int:
        looked.append(len(self.ends))
        return most(self, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(UsageRun, "most", counted)
    for _ in range(200):
        peak.peak(holding())
    # Of some 500 ends one run of at most 96 as a rule.
    assert sum(looked) < 200 * 2 * 96
