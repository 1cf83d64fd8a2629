"""Workloads longer than a simulation's clock are refused, not wrapped around."""

from __future__ import annotations

import msgspec
import pytest

from vramledger.errors import InputError
from vramledger.simulation.time_bounds import LATEST_NS, within_clock
from vramledger.workload.columns import Workload, columns_of
from vramledger.workload.request import Request, WorkloadHeader


def workload(**times: int) -> Workload:
    first = Request(arrival_ns=0, prompt_tokens=1, output_tokens=1)
    last = msgspec.structs.replace(first, **{"arrival_ns": 1, **times})
    return Workload.of(WorkloadHeader(name="long", source=""), columns_of([first, last]))


def test_what_fits_the_clock_passes_unchanged() -> None:
    long = workload(arrival_ns=LATEST_NS)
    assert list(within_clock(long).requests()) == list(long.requests())
    assert LATEST_NS * 1000 < 2**63


@pytest.mark.parametrize(
    "field", ["arrival_ns", "pause_ns", "cancel_ns", "first_token_deadline_ns", "deadline_ns"]
)
def test_what_does_not_is_told(field: str) -> None:
    with pytest.raises(InputError, match="long goes on for more than 104 days"):
        list(within_clock(workload(**{field: LATEST_NS + 1})).batches())
