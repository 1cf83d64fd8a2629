"""Which request follows which: from the names that a trace gives, or from the order within a conversation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columns import Ints, RequestColumns

_ALONE = "sent without waiting for its parent"


def parents_by_name(ids: Sequence[object], parent_ids: Sequence[object], rows: Ints, found: Findings) -> Ints:
    """The place of each request's parent, -1 for none, for requests in order of arrival.

    Two requests of one name, a parent that does not exist or comes later, and a circle are bad rows; skipped, the
    request keeps its place and has no parent.
    """
    numbers = rows.tolist()
    place_of: dict[object, int] = {}
    for place, name in enumerate(ids):
        if name is None:
            continue
        if name in place_of:
            found.bad(
                numbers[place],
                f"has an id that {found.unit_of_rows} {numbers[place_of[name]]:,} has too",
                value=name,
                then="that nothing can follow",
            )
            continue
        place_of[name] = place
    out = np.full(len(numbers), -1, dtype=np.int64)
    for place, name in enumerate(parent_ids):
        if name is None:
            continue
        parent = place_of.get(name)
        if parent is None:
            found.bad(numbers[place], "follows a parent that does not exist", value=name, then=_ALONE)
        elif parent < place:
            out[place] = parent
        elif _is_circle(place, ids, parent_ids, place_of):
            found.bad(numbers[place], "follows itself, over its parents in a circle", value=name, then=_ALONE)
        else:
            found.bad(numbers[place], "follows a parent that comes later", value=name, then=_ALONE)
    return out


def _is_circle(
    place: int, ids: Sequence[object], parent_ids: Sequence[object], place_of: dict[object, int]
) -> bool:
    seen = {place}
    here: int | None = place
    while here is not None:
        name = parent_ids[here]
        here = None if name is None else place_of.get(name)
        if here == place:
            return True
        if here is None or here in seen:
            return False
        seen.add(here)
    return False


class ConversationTurns:
    """Parents in a conversation whose requests' ends were recorded: the last one that had ended when the next came.

    Goes over batches in order of arrival; `follow` gives each batch with `parent` (a place in the whole workload) and
    `pause_ns` (from the recorded end to the arrival).
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        self._next_place = 0
        self.linked = 0

    def follow(self, columns: RequestColumns, ends_ns: Ints) -> RequestColumns:
        parent = np.full(columns.rows, -1, dtype=np.int64)
        pause = columns.pause_ns.copy()
        talk = np.flatnonzero(columns.conversation >= 0).tolist()
        conversations, arrivals, ends = (
            columns.conversation.tolist(),
            columns.arrival_ns.tolist(),
            ends_ns.tolist(),
        )
        for place in talk:
            before = self._last.get(conversations[place])
            if before is not None and 0 <= before[1] <= arrivals[place]:
                parent[place] = before[0]
                pause[place] = arrivals[place] - before[1]
                self.linked += 1
            self._last[conversations[place]] = (self._next_place + place, ends[place])
        self._next_place += columns.rows
        return columns._replace(parent=parent, pause_ns=pause)
