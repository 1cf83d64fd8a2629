"""Counts of tokens that an engine tells, and which of them can be true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.experiment.answer import Answer
from vramledger.experiment.load import served_of
from vramledger.experiment.told_counts import Counts, believed
from vramledger.simulation.settings import Slo
from vramledger.workload.request import Request

ASKED = Request(arrival_ns=0, prompt_tokens=100, output_tokens=10)
LARGE = st.integers(0, 2**40)


def told(
    *, prompt: int | None = 100, cached: int | None = 0, output: int | None = 10, events: int = 10
) -> Answer:
    return Answer(
        number=0, at_ns=0, sent_ns=0, first_token_ns=10**6, last_token_ns=10**9, end_ns=10**9, status=200, whole=True,
        prompt_tokens=prompt, cached_prompt_tokens=cached, output_tokens=output, events=events,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        (told(), Counts(prompt_tokens=100, cached_prompt_tokens=0, output_tokens=10)),
        (told(prompt=103, cached=96, events=11), Counts(prompt_tokens=103, cached_prompt_tokens=96, output_tokens=10)),
        (told(output=10**9), Counts(prompt_tokens=100, cached_prompt_tokens=0)),
        (told(output=1, events=40), Counts(prompt_tokens=100, cached_prompt_tokens=0)),
        (told(prompt=2**39), Counts(cached_prompt_tokens=0, output_tokens=10)),
        (told(cached=101), Counts(prompt_tokens=100, output_tokens=10)),
        (told(prompt=None, cached=None, output=None), Counts()),
    ],
)  # fmt: skip
def test_what_is_believed(answer: Answer, counts: Counts) -> None:
    assert believed(ASKED, answer) == counts


def test_a_count_that_cannot_be_true_makes_no_token_fast() -> None:
    slow, tpot_ns = told(output=10**9), (10**9 - 10**6) // 9
    row = served_of(ASKED, slow)
    assert row.tpot_ns == tpot_ns
    assert not row.is_good(Slo(tpot_ms=50.0))


@given(prompt=LARGE, cached=LARGE, output=LARGE, events=st.integers(0, 1000))
def test_no_row_has_more_than_could_be(prompt: int, cached: int, output: int, events: int) -> None:
    row = served_of(ASKED, told(prompt=prompt, cached=cached, output=output, events=events))
    assert (row.prompt_tokens or 0) <= 1056
    assert (row.cached_prompt_tokens or 0) <= (row.prompt_tokens or ASKED.prompt_tokens)
    assert (row.output_tokens or 0) <= ASKED.output_tokens
