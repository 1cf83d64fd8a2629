"""What became of many requests, by the column. Imports numpy, so import this module late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vramledger.simulation.outcome import RequestOutcome, Status

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
    """The columns of `outcomes`."""
    rows = list(outcomes)
    return OutcomeColumns(
        *(
            np.array([int(getattr(row, name)) for row in rows], dtype=np.int64)
            for name in OutcomeColumns._fields
        )
    )
