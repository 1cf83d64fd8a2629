"""The script on a real server does, call by call, what its plain second writing does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.shared.valkey_server import ValkeyServer, needs_valkey, valkey_server
from vramledger.gateway.shared.terms import Ask

pytestmark = needs_valkey

LEASE_MS = 1000
COUNTS = st.one_of(st.integers(0, 12), st.integers(0, 2000), st.sampled_from([0, 10**9, 2**40]))
TOTALS = st.sampled_from([10, 1000, 2**40, 0])
CALLS = st.tuples(
    st.just("call"),
    st.sampled_from("abcde"),
    st.tuples(*[COUNTS] * 6, TOTALS, TOTALS, COUNTS, COUNTS),
    st.sampled_from(["", "first", "second"]),
    st.booleans(),
    st.sampled_from([0, 0, 0, 0, 0, 0, 0, -1, -3]),
)
OTHERS = st.one_of(
    st.tuples(st.just("time"), st.one_of(st.integers(0, 400), st.integers(-5000, 5000))),
    st.tuples(st.sampled_from(["forget", "restart", "save", "take_over"])),
)
EVENTS = st.integers(0, 7).flatmap(lambda which: CALLS if which else OTHERS)


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with valkey_server() as server:
        yield server


@given(events=st.lists(EVENTS, min_size=8, max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_script_and_its_model_answer_alike(server: ValkeyServer, events: list[tuple[Any, ...]]) -> None:
    from gateway.shared.ledgers import ModelLedger, ServerLedger

    real, model = ServerLedger(server), ModelLedger()
    wall_ms = number = 0
    try:
        for event in events:
            if event[0] == "time":
                wall_ms = max(0, wall_ms + event[1])
                real.set_time(wall_ms)
                model.set_time(wall_ms)
            elif event[0] == "call":
                _, name, counts, epoch, is_leaving, behind = event
                number += 1
                ask = Ask._make((max(1, number + behind), *counts, epoch, is_leaving))
                assert real.call(name, ask, LEASE_MS) == model.call(name, ask, LEASE_MS)
                assert real.names() == model.names()
            else:
                getattr(real, event[0])()
                getattr(model, event[0])()
    finally:
        real.close()
