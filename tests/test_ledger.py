"""Ranges of bytes, and a rank's ledger as the sum of what is alive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.evidence import EvidenceKind, assumed, calculated, weakest
from vramledger.ledger import (
    AFTER_LOAD,
    ALL_PHASES,
    SERVING,
    ZERO,
    ByteRange,
    Entry,
    Lifetime,
    Owner,
    Phase,
    RankLedger,
    WeightFigures,
    total,
)

SIZES = st.integers(-(2**45), 2**45)


def ordered(ends: list[int]) -> ByteRange:
    return ByteRange(*sorted(ends))


RANGES = st.lists(SIZES, min_size=3, max_size=3).map(ordered)
ENTRIES = st.lists(
    st.builds(
        Entry,
        owner=st.sampled_from(Owner),
        name=st.text(max_size=5),
        lifetime=st.sampled_from(Lifetime),
        phases=st.frozensets(st.sampled_from(Phase), min_size=1),
        bytes=st.lists(st.integers(0, 2**45), min_size=3, max_size=3).map(ordered),
        evidence=st.just(calculated("a rule")),
        inside_budget=st.booleans(),
    ),
    max_size=8,
)


def ledger(entries: list[Entry]) -> RankLedger:
    return RankLedger(
        ranks=(0,),
        entries=tuple(entries),
        weights=WeightFigures(
            disk_bytes=0,
            disk_evidence=assumed("none"),
            host_peak_bytes=ZERO,
            host_evidence=assumed("none"),
            device_bytes=ZERO,
        ),
        device_total_bytes=2**36,
    )


@pytest.mark.parametrize("ends", [(1, 0, 2), (0, 3, 2), (2, 1, 0)])
def test_a_range_whose_ends_cross_is_refused(ends: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="not a range"):
        ByteRange(*ends)


def test_an_exact_size_has_one_value() -> None:
    size = ByteRange.exact(7)
    assert size == ByteRange(7, 7, 7)
    assert size.is_exact
    assert not ByteRange(6, 7, 7).is_exact


@given(RANGES, RANGES, RANGES)
def test_sums_of_ranges_are_sums_of_their_ends(a: ByteRange, b: ByteRange, c: ByteRange) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c) == total([a, b, c])
    assert a + ZERO == a
    assert total([]) == ZERO


@given(RANGES, RANGES, st.integers(0, 2), st.integers(0, 2))
def test_a_difference_holds_every_difference_of_its_members(
    a: ByteRange, b: ByteRange, left: int, right: int
) -> None:
    member = (a.low, a.expected, a.high)[left] - (b.low, b.expected, b.high)[right]
    found = a - b
    assert found.low <= member <= found.high
    assert found.expected == a.expected - b.expected


@given(RANGES, RANGES)
def test_the_larger_of_two_is_not_below_either(a: ByteRange, b: ByteRange) -> None:
    upper = a.upper(b)
    assert upper == b.upper(a)
    assert upper.upper(a) == upper
    for end in ("low", "expected", "high"):
        assert getattr(upper, end) == max(getattr(a, end), getattr(b, end))


@given(ENTRIES)
def test_a_peak_is_the_sum_of_what_is_alive_in_its_phase(entries: list[Entry]) -> None:
    held = ledger(entries)
    for peak in held.peaks:
        alive = [entry for entry in entries if peak.phase in entry.phases]
        assert peak.bytes.low == sum(entry.bytes.low for entry in alive)
        assert peak.bytes.expected == sum(entry.bytes.expected for entry in alive)
        assert peak.bytes.high == sum(entry.bytes.high for entry in alive)
    assert [peak.phase for peak in held.peaks] == list(Phase)


@given(ENTRIES)
def test_without_a_remainder_a_phase_occupies_its_peak(entries: list[Entry]) -> None:
    held = ledger(entries)
    assert all(peak.occupied == peak.bytes for peak in held.peaks)


@given(ENTRIES, st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_remainder_takes_away_the_spread_of_what_is_charged(
    entries: list[Entry], middle: int, spread: int
) -> None:
    remainder = Entry(
        owner=Owner.KV_CACHE,
        name="pool",
        lifetime=Lifetime.WORKER,
        phases=ALL_PHASES,
        bytes=ByteRange(max(middle - spread, 0), middle, middle + spread),
        evidence=calculated("a rule"),
        is_remainder=True,
    )
    outside = [entry for entry in entries if not entry.inside_budget]
    for peak in ledger([*entries, remainder]).peaks:
        assert peak.bytes.low <= peak.occupied.low
        assert peak.occupied.expected == peak.bytes.expected
        assert peak.occupied.high <= peak.bytes.high
        free = total(entry.bytes for entry in outside if peak.phase in entry.phases)
        assert peak.occupied.high - peak.occupied.low == free.high - free.low


@given(ENTRIES)
def test_the_binding_phase_has_the_largest_peak_and_is_the_first_of_equals(entries: list[Entry]) -> None:
    held = ledger(entries)
    sizes = {peak.phase: peak.bytes.expected for peak in held.peaks}
    largest = max(sizes.values())
    assert held.binding_phase is next(phase for phase in Phase if sizes[phase] == largest)


@given(ENTRIES)
def test_owners_share_all_bytes_between_them(entries: list[Entry]) -> None:
    held = ledger(entries)
    assert total(held.owned(owner) for owner in Owner) == total(entry.bytes for entry in entries)


def test_serving_comes_after_load() -> None:
    assert SERVING < AFTER_LOAD < ALL_PHASES
    assert {Phase.LOAD} == ALL_PHASES - AFTER_LOAD


def test_a_sum_is_as_strong_as_its_weakest_term() -> None:
    assert weakest([EvidenceKind.MEASURED, EvidenceKind.CALCULATED]) is EvidenceKind.CALCULATED
    assert weakest([EvidenceKind.REPORTED, EvidenceKind.ASSUMED]) is EvidenceKind.ASSUMED
    assert weakest([EvidenceKind.MEASURED]) is EvidenceKind.MEASURED
    assert weakest([]) is EvidenceKind.ASSUMED
