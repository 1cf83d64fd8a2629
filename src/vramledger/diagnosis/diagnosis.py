"""From observations to diagnoses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from vramledger.diagnosis.arithmetic import Arithmetic, arithmetic
from vramledger.diagnosis.classify import Answer, classify
from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.gathering import FreePieces, facts_of, frames_near, measured_settings
from vramledger.diagnosis.incident import Incident, engine_of, incidents, standing_of
from vramledger.diagnosis.ledger_lines import LedgerLine, ledger_lines, prevention
from vramledger.diagnosis.messages.kind import Standing
from vramledger.diagnosis.moment import Moment, moment, time_of
from vramledger.diagnosis.remarks import symptoms
from vramledger.diagnosis.remedies import remedies
from vramledger.diagnosis.remedy import Planner, Remedy
from vramledger.diagnosis.trends import Trend, trends
from vramledger.errors import VramledgerError
from vramledger.observation import Event, Observation, Sample, Value

_KERNEL = frozenset({"kernel-oom-kill", "cgroup-oom-kill", "kernel-oom-constraint", "cgroup-events"})


class Diagnosis(Struct, frozen=True, kw_only=True):
    """One failure told: what happened when, what ran short, of which class, by which rules, how sure.

    `is_failure` is False where everything said is a warning that its program survived, a trend, or a benign message.
    `told_in_words` where no program's message tells it. `repeats` counts further incidents that are the same.
    """

    incident: Incident
    moment: Moment
    arithmetic: Arithmetic
    facts: Facts
    answer: Answer
    trends: tuple[Trend, ...] = ()
    snapshots: tuple[FreePieces, ...] = ()
    is_failure: bool = True
    told_in_words: bool = False
    repeats: int = 0
    ledger: tuple[LedgerLine, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    prevention: str = ""

    @property
    def was_survived(self) -> bool:
        """Whether its program went on: a warning, or what only reads like a shortage."""
        return self.facts.standing in (Standing.WARNING, Standing.BENIGN)


def diagnose(
    observations: Iterable[Observation],
    *,
    samples: Iterable[Sample] = (),
    snapshots: Sequence[FreePieces] = (),
    settings: Mapping[str, Value] | None = None,
    engine: str | None = None,
) -> list[Diagnosis]:
    """Every failure that the sources tell, in order; empty where they tell none.

    Observations of several sources are joined on time. Where no message of a failure is there, a description in words, a log that
    ends while its instance starts, or memory that rises under constant load is one, and says so.
    """
    everything = list(observations)
    readings = list(samples)
    given = _given_settings(settings or {})
    described = _described(everything)
    found = incidents(item for item in everything if item.event not in (Event.FRAME, Event.REMARK))
    in_words = False
    if not found:
        standin = _without_message(everything, described, readings)
        in_words = True
        found = [] if standin is None else [standin]
    kernel = any(item.values.get("message") in _KERNEL for item in everything) or None
    told = [
        _diagnosis(item, everything, readings, snapshots, given, engine, described, kernel, in_words=in_words)
        for item in found
    ]
    return _without_repeats(told)


def _diagnosis(
    incident: Incident,
    everything: Sequence[Observation],
    samples: Sequence[Sample],
    snapshots: Sequence[FreePieces],
    settings: Mapping[str, Value],
    engine: str | None,
    described: frozenset[str],
    kernel: bool | None,
    *,
    in_words: bool,
) -> Diagnosis:
    first = incident.first
    before = incident.before or _around(incident)
    now = moment(before, time_of(first))
    name = engine_of(first) or _engine_of(before) or engine
    stated = measured_settings(name, before)
    sums = arithmetic(incident.companions, now.sizes, {**stated, **settings})
    rising = trends(samples, since_s=now.ready_at_s, until_s=None if in_words else first.at_s)
    facts = facts_of(
        incident,
        now,
        sums,
        engine=name,
        stated=stated,
        after=_after(everything, first),
        frames=frames_near(incident, everything),
        trends=rising,
        snapshots=snapshots,
        symptoms=described,
        settings=settings,
        kernel_says_oom=kernel,
    )
    return Diagnosis(
        incident=incident,
        moment=now,
        arithmetic=sums,
        facts=facts,
        answer=classify(facts),
        trends=rising,
        snapshots=tuple(snapshots),
        is_failure=standing_of(first) in (Standing.CAUSE, Standing.CONSEQUENCE) and not in_words,
        told_in_words=in_words,
    )


def _described(everything: Sequence[Observation]) -> frozenset[str]:
    """What is said in words: in lines that no program printed, and by a shortage in words of no known program."""
    found: set[str] = set()
    for item in everything:
        name = item.values.get("message")
        if item.event is Event.REMARK or name == "unnamed-shortage":
            found |= symptoms(item.text)
        elif name == "ggml-no-vmm":
            found.add("no-virtual-memory")
    return frozenset(found)


def _around(incident: Incident) -> Sequence[Observation]:
    """What engines said until then, for a failure told by a source that is no engine's log (the kernel's)."""
    logs: dict[str, list[Observation]] = {}
    for item in incident.others_before:
        if item.engine is not None:
            logs.setdefault(item.place.source, []).append(item)
    return next(iter(logs.values())) if len(logs) == 1 else ()


def _after(everything: Sequence[Observation], first: Observation) -> list[Observation]:
    """What engines said after a failure in its own source, the first 200 of it."""
    place = first.place
    found = (
        item
        for item in everything
        if item.place.source == place.source
        and item.place.line > place.line
        and item.event not in (Event.FAILURE, Event.FRAME, Event.REMARK)
    )
    return list(islice(found, 200))


def _engine_of(before: Sequence[Observation]) -> str | None:
    return next((item.engine for item in reversed(before) if item.engine is not None), None)


def _given_settings(settings: Mapping[str, Value]) -> dict[str, Value]:
    return {name.replace("-", "_"): value for name, value in settings.items()}


def _without_message(
    everything: Sequence[Observation], described: frozenset[str], samples: Sequence[Sample]
) -> Incident | None:
    """What stands for a failure that no message tells: the words, or the last line of a start-up that never ended."""
    remarks = [item for item in everything if item.event is Event.REMARK and symptoms(item.text)]
    if remarks:
        return Incident(first=remarks[0], lines=tuple(remarks), before=_before(everything, remarks[0]))
    last = next(
        (item for item in reversed(everything) if item.event not in (Event.FRAME, Event.REMARK)), None
    )
    if last is None:
        return None
    now = moment(everything, time_of(last))
    rises = any(item.rises for item in trends(samples, since_s=now.ready_at_s, until_s=None))
    if rises or (now.ready is False and any(item.event is Event.WEIGHTS for item in everything)):
        return Incident(first=last, lines=(), before=tuple(everything))
    return None


def _before(everything: Sequence[Observation], first: Observation) -> tuple[Observation, ...]:
    return tuple(
        item
        for item in everything
        if item.place.source == first.place.source
        and item.place.line < first.place.line
        and item.event not in (Event.FRAME, Event.REMARK)
    )


def _without_repeats(told: list[Diagnosis]) -> list[Diagnosis]:
    """The same failure again (same message, stage and class) is counted with the first."""
    kept: dict[tuple[object, ...], Diagnosis] = {}
    for item in told:
        key = (item.facts.kind, item.facts.stage, item.answer.failure_class, item.facts.domain)
        if key in kept:
            kept[key] = replace(kept[key], repeats=kept[key].repeats + 1)
        else:
            kept[key] = item
    return list(kept.values())


def with_remedies(told: Diagnosis, planner: Planner | None) -> Diagnosis:
    """The same with what would help, the ledger's lines and what would have prevented it; `planner` plans the failing instance."""
    found = told.answer.failure_class
    base = None
    refused = ""
    if planner is not None:
        try:
            base = planner({})
        except VramledgerError as problem:
            planner, refused = None, f"a plan, which is refused: {problem}"
    helping = remedies(told.facts, told.moment, told.arithmetic, found, planner, base)
    if refused:
        helping = tuple(
            replace(item, needs=refused if "--model" in item.needs else item.needs) for item in helping
        )
    return replace(
        told,
        remedies=helping,
        ledger=ledger_lines(told.facts, found, base),
        prevention=prevention(told.facts, found),
    )
