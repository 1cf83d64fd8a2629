"""Requests put in order of arrival, within a bounded window where a trace is too long to be held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from vramledger.errors import InputError
from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.piece import Piece, kept, merged, picked

WINDOW = 4 * 65_536
"""Requests that wait for earlier ones."""


def in_order(piece: Piece) -> Piece:
    """A piece by arrival; requests of one instant stay as they were."""
    arrivals = piece.columns.arrival_ns
    if not len(arrivals) or (np.diff(arrivals) >= 0).all():
        return piece
    return picked(piece, np.argsort(arrivals, kind="stable"))


def in_windows(pieces: Iterable[Piece], found: Findings) -> Iterator[Piece]:
    """Pieces by arrival where none is later than WINDOW rows. Raises InputError where one is."""
    waiting: Piece | None = None
    latest = -1
    for piece in pieces:
        waiting = in_order(piece if waiting is None else merged((waiting, piece)))
        ready = waiting.columns.rows - WINDOW
        if ready > 0:
            mask = np.arange(waiting.columns.rows) < ready
            out, waiting = kept(waiting, mask), kept(waiting, ~mask)
            latest = _checked(out, latest, found)
            yield out
    if waiting is not None and waiting.columns.rows:
        _checked(waiting, latest, found)
        yield waiting


def _checked(piece: Piece, latest: int, found: Findings) -> int:
    arrivals = piece.columns.arrival_ns
    if int(arrivals[0]) < latest:
        raise InputError(
            f"{found.source_name}: {found.unit_of_rows} {int(piece.rows[0]):,} is out of order by more than "
            f"{WINDOW:,} {found.unit_of_rows}s; sort the file by time",
            file=found.source_name,
            row=int(piece.rows[0]),
        )
    return int(arrivals[-1])


class Disorder:
    """How far requests of a file are from being in order."""

    def __init__(self) -> None:
        self.count = 0
        self.worst_ns = 0
        self.first_ns: int | None = None
        self.last_ns = 0

    def see(self, piece: Piece) -> None:
        """Look at the next piece in the file's order."""
        arrivals = piece.columns.arrival_ns
        if not len(arrivals):
            return
        start = int(arrivals[0]) if self.first_ns is None else self.last_ns
        highest = np.maximum(np.maximum.accumulate(arrivals), start)
        late = highest - arrivals
        self.count += int(np.count_nonzero(late))
        self.worst_ns = max(self.worst_ns, int(late.max()))
        low = int(arrivals.min())
        self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
        self.last_ns = int(highest[-1])
