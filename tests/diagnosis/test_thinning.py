"""Long logs are kept short without losing what stands around a failure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramledger.diagnosis.thinning import LINES_AFTER, LINES_BEFORE, MOST_OF_A_KIND, thinned
from vramledger.observation import Event, Observation, Place

EVENTS = st.sampled_from((Event.STEP, Event.FAILURE, Event.READY, Event.ADMITTED, Event.PREEMPTION))


def said(events: list[Event]) -> list[Observation]:
    return [
        Observation(event=event, values={}, place=Place(source="log", line=number))
        for number, event in enumerate(events, 1)
    ]


@given(st.lists(EVENTS, max_size=200))
def test_a_short_log_is_kept_as_it_is(events: list[Event]) -> None:
    assert list(thinned(said(events))) == said(events)


def test_steps_stay_where_a_failure_is() -> None:
    events = [Event.READY, *[Event.STEP] * 5_000, Event.FAILURE, *[Event.STEP] * 5_000]
    kept = list(thinned(said(events)))
    failure = next(index for index, item in enumerate(kept) if item.event is Event.FAILURE)
    assert failure == 1 + LINES_BEFORE
    assert kept[failure - 1].place.line == kept[failure].place.line - 1
    assert [item.place.line for item in kept] == sorted(item.place.line for item in kept)
    assert len(kept) == 1 + LINES_BEFORE + 1 + LINES_AFTER + LINES_BEFORE


def test_a_message_without_end_is_bounded() -> None:
    kept = list(thinned(said([Event.FAILURE] * 100_000)))
    assert len(kept) == MOST_OF_A_KIND
