"""A published reconciliation comes back as the value it was."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.reconciliation.document import read_reconciliation, reconciliation_document
from vramledger.reconciliation.result import (
    Cause,
    Interval,
    Line,
    Reason,
    Reconciliation,
    Section,
    SettingDifference,
    Standing,
    Unit,
    standing_of,
)

INTERVALS = st.tuples(*[st.integers(-(2**40), 2**45)] * 3).map(lambda three: Interval(*sorted(three)))
REASONS = st.builds(
    Reason,
    cause=st.sampled_from(Cause),
    text=st.text(max_size=20),
    evidence=st.lists(st.text(max_size=9), max_size=2).map(tuple),
    explains=st.none() | st.integers(-(2**40), 2**40),
    share=st.none() | st.floats(-10, 10),
    is_tested=st.booleans(),
)
LINES = st.builds(
    lambda predicted, measured, section, reasons: Line(
        section=section,
        name="line",
        unit=Unit.BYTES,
        standing=standing_of(predicted, measured),
        predicted=predicted,
        measured=measured,
        reasons=reasons,
    ),
    st.none() | INTERVALS,
    st.none() | INTERVALS,
    st.sampled_from(Section),
    st.lists(REASONS, max_size=2).map(tuple),
)


def with_lines(lines: tuple[Line, ...]) -> Reconciliation:
    return Reconciliation(
        model="tiny",
        engine="vllm",
        engine_version="0.33.0",
        device="L4",
        sources=("run.log",),
        differences=(SettingDifference(name="tp", planned=1, measured=2, flag="tp"),),
        agreeing=("max_num_seqs",),
        unknown_settings=("seed",),
        lines=lines,
        budget=None,
    )


@given(lines=st.lists(LINES, max_size=3).map(tuple))
def test_there_and_back(lines: tuple[Line, ...]) -> None:
    found = with_lines(lines)
    text = msgspec.json.encode(reconciliation_document(found))
    assert read_reconciliation(text, where="r.json") == found


@given(predicted=INTERVALS, measured=INTERVALS)
def test_a_line_misses_by_nothing_exactly_where_it_is_inside(predicted: Interval, measured: Interval) -> None:
    line = Line(
        section=Section.LEDGER,
        name="line",
        unit=Unit.BYTES,
        standing=standing_of(predicted, measured),
        predicted=predicted,
        measured=measured,
    )
    assert (line.beyond == 0) is (line.standing is Standing.INSIDE)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"kind":"plan"}', b"\xff\x00", b"[" * 50_000])
def test_junk_is_no_reconciliation(text: bytes) -> None:
    with pytest.raises(InputError, match=r"r\.json is not a reconciliation"):
        read_reconciliation(text, where="r.json")
