"""The lines that a diagnosis rests on, in the order in which they were printed."""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.diagnosis.diagnosis import Diagnosis
from vramledger.diagnosis.incident import standing_of
from vramledger.diagnosis.messages.kind import Standing
from vramledger.observation import Observation

MOST = 16


def evidence_lines(told: Diagnosis) -> list[tuple[str, Observation]]:
    """What each is to the failure, and the line; at most 16, the message itself always among them."""
    incident, now = told.incident, told.moment
    before: list[tuple[str, Observation]] = [(item.event.value, item) for item in now.notable]
    if now.stage_line is not None and all(item is not now.stage_line for _, item in before):
        before.append(("stage", now.stage_line))
    if incident.earlier is not None and told.facts.previous_engine_s is not None:
        before.insert(0, ("previous engine", incident.earlier))
    before = before[-(MOST // 2) :]
    first = ("description" if told.told_in_words else "first cause", incident.first)
    if told.told_in_words and told.facts.symptoms == frozenset():
        first = ("last line", incident.first)
    after = _once_a_kind(item for item in incident.lines if item is not incident.first)
    found, seen = [], set()
    for what, item in (*before, first, *after):
        key = (item.place.source, item.place.line, item.text)
        if key not in seen:
            seen.add(key)
            found.append((what, item))
    return found[:MOST]


def _once_a_kind(lines: Iterable[Observation]) -> list[tuple[str, Observation]]:
    """The first line of each kind of message and printer, with the number of further ones."""
    groups: dict[tuple[object, ...], list[Observation]] = {}
    for item in lines:
        groups.setdefault((item.event, item.values.get("message"), item.process, item.rank), []).append(item)
    return [
        (_word(standing_of(items[0])) + (f" ({len(items)} times)" if len(items) > 1 else ""), items[0])
        for items in groups.values()
    ]


def _word(standing: Standing | None) -> str:
    return "" if standing is None else standing.value
