"""What became of many requests, by the column. Imports numpy, so import this module late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramledger.errors import InputError
from vramledger.simulation.outcome import RequestOutcome, Status

MOST_PS = 2**63 - 1
Ints = npt.NDArray[np.int64]


class OutcomeColumns(NamedTuple):
    """Consecutive requests, in order of the workload: one array a field of `RequestOutcome`, of 64-bit whole numbers."""

    number: Ints
    replica: Ints
    status: Ints
    sent_ps: Ints
    admitted_ps: Ints
    first_token_ps: Ints
    end_ps: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    hit_tokens: Ints
    recomputed_tokens: Ints
    preemptions: Ints

    def outcomes(self) -> Iterator[RequestOutcome]:
        """The same outcomes one by one."""
        for values in zip(*(column.tolist() for column in self), strict=True):
            fields = dict(zip(self._fields, values, strict=True))
            fields["status"] = Status(fields["status"])
            yield RequestOutcome(**fields)


def outcome_columns(outcomes: Iterable[RequestOutcome]) -> OutcomeColumns:
    """The columns of `outcomes`. Raises InputError where one ends too late for 64 bits of picoseconds."""
    rows = list(outcomes)
    latest_ps = max((max(row.sent_ps, row.end_ps) for row in rows), default=0)
    if latest_ps > MOST_PS:
        raise InputError(
            f"the run takes {latest_ps / (86_400 * 10**12):,.0f} days, more than the {MOST_PS // (86_400 * 10**12)} that a "
            "simulation's picoseconds hold: is a link or a step this slow? Else take fewer requests (--limit)"
        )
    return OutcomeColumns(
        *(
            np.array([int(getattr(row, name)) for row in rows], dtype=np.int64)
            for name in OutcomeColumns._fields
        )
    )
