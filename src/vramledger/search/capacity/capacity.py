"""How much a plan serves well: the whole answer, from runs that a crew does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from vramledger.errors import InputError
from vramledger.search.capacity.bands import Band, goodput_band
from vramledger.search.capacity.changes import POOL, changes, reliefs
from vramledger.search.capacity.crews import Crew
from vramledger.search.capacity.headroom import bursts, restarts
from vramledger.search.capacity.largest import MOST_TIMES, Found, largest_loads, search_of
from vramledger.search.capacity.result import (
    BurstRoom,
    Capacity,
    Change,
    LoadPoint,
    Percentiles,
    Relief,
    RestartRoom,
)
from vramledger.search.capacity.study import BASE, Case, Measure, Study, Task
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_model import PS_PER_S
from vramledger.simulation.summary import GroupSummary, Quantiles, quantiles_of
from vramledger.workload.request import WorkloadHeader

if TYPE_CHECKING:
    from vramledger.workload.columns import RequestColumns

_PS_PER_MS = PS_PER_S // 1000
SHORT = 10
"""A run that lasts fewer times its p99 latency than this says little of a steady load."""

BACKLOG = 0.1
"""A larger share of requests that have not ended when the last comes is told of."""
BINDING = 0.5
LEAST_SPANS = 3

Told = Callable[[str], None]


class Question(Struct, frozen=True, kw_only=True):
    """What is asked: the share of offered requests that must meet all aims, how sure, how fine, and what else.

    `operating` is the share of the capacity that burst and restart headroom are told at.
    """

    aim: float = 0.99
    confidence: float = 0.95
    resolution: float = 0.02
    start: float = 1.0
    seed: int = 0
    width: int = 2
    operating: float = 0.8
    with_headroom: bool = True
    with_changes: bool = True


class Extra(Struct, frozen=True, kw_only=True):
    """A change that the settings alone cannot tell of: another plan (a KV format) or another workload (a prefix hit)."""

    factor: str
    change: str
    case: Case | None = None
    refusal: str = ""


def study_of(
    header: WorkloadHeader,
    tables: Mapping[str, tuple[RequestColumns, ...]],
    settings: SimulationSettings,
    question: Question,
    extras: Sequence[Extra] = (),
    *,
    how: str = "auto",
) -> Study:
    """The study behind a question. `tables` has the replications of the workload under "base". Raises InputError without requests."""
    if not tables[BASE] or not all(table.rows > 1 for table in tables[BASE]):
        raise InputError("a capacity needs a workload of at least two requests", argument="workload")
    if any(table.arrival_ns.min() == table.arrival_ns.max() for table in tables[BASE]):
        raise InputError(
            "all requests come at one time, so there is no rate to scale: --rate draws arrivals for a trace without times",
            argument="workload",
        )
    cases = {BASE: Case(settings=settings)}
    cases |= {f"relief {name}": Case(settings=changed) for name, _, changed in reliefs(settings)}
    if question.with_changes:
        cases |= {f"{factor} {change}": case for factor, change, case in changes(settings)}
        cases |= {f"{item.factor} {item.change}": item.case for item in extras if item.case is not None}
    return Study(header=header, tables=tables, cases=cases, aim=question.aim, how=how)


def find_capacity(
    study: Study,
    question: Question,
    work: Crew,
    extras: Sequence[Extra] = (),
    told: Told = lambda text: None,
) -> Capacity:
    """The answer. Equal studies and questions give equal answers, whichever crew works."""
    from vramledger.workload.columnar.load_shapes import per_s, span_ns

    settings = study.cases[BASE].settings
    tables = study.tables[BASE]
    base_per_s = sum(per_s(table) for table in tables) / len(tables)
    runs = _Runs(study, question, work)
    told("the largest load")
    most = most_load(runs.measures(BASE, question.start), tables)
    start = min(question.start, most)
    found = runs.searches([BASE], start, question.resolution, most=most, is_base=True)[BASE]
    at = runs.measures(BASE, found.load) if found.load else ()
    beyond = runs.measures(BASE, found.beyond) if found.beyond is not None else ()
    told("what binds")
    relief = _reliefs(runs, settings, found)
    operating = found.load * question.operating
    burst_rooms: tuple[BurstRoom, ...] = ()
    restart_rooms: tuple[RestartRoom, ...] = ()
    if question.with_headroom and found.load:
        told("burst and restart headroom")
        at_operating = runs.measures(BASE, operating)
        in_flight_s = max(item.requests.latency_ps.mean for item in at_operating) / PS_PER_S
        span_s = min(span_ns(table) for table in tables) / operating / 1e9
        burst_rooms = bursts(runs.shaped, operating, span_s)
        restart_rooms = restarts(runs.shaped, operating, span_s, in_flight_s)
    changed: tuple[Change, ...] = ()
    if question.with_changes and found.load and found.beyond is not None:
        changed = tuple(_changes(runs, settings, extras, question, found, base_per_s, most, told))
    # The answer's own run: that at its load, or, where no load is met, the least that was tried.
    shown = at or beyond
    return Capacity(
        slo=settings.slo,
        aim=question.aim,
        confidence=question.confidence,
        resolution=question.resolution,
        replications=len(tables),
        requests=sum(table.rows for table in tables),
        base_per_s=base_per_s,
        load=found.load,
        low=found.low,
        high=found.high,
        beyond=found.beyond,
        is_monotone=found.is_monotone,
        points=tuple(_point(load, band, runs, base_per_s) for load, band in found.tried),
        at=shown[0].requests if shown else None,
        pool=shown[0].pool if shown else None,
        active_tokens=shown[0].pool.active_tokens,
        peak_tokens=quantiles_of(peak for item in shown for peak in item.peaks),
        binds=binding(beyond, relief, found),
        reliefs=relief,
        operating_load=operating,
        bursts=burst_rooms,
        restarts=restart_rooms,
        changes=changed,
        runs=runs.count,
        notes=_notes(found, shown, question, tables),
    )


def most_load(measures: Sequence[Measure], tables: Sequence[RequestColumns]) -> float:
    """The largest load at which conversations still come over `LEAST_SPANS` times as long as one takes, answers and pauses together:
    beyond it a workload of this length is one crowd and says nothing of a rate."""
    from vramledger.workload.columnar.load_shapes import span_ns, starts

    most = float("inf")
    for item, table in zip(measures, tables, strict=True):
        answers_s = item.requests.latency_ps.mean * item.requests.latency_ps.count / PS_PER_S
        pauses_s = int(table.pause_ns[table.parent >= 0].sum()) / 1e9
        takes_s = (answers_s + pauses_s) / max(starts(table), 1)
        if takes_s > 0:
            most = min(most, span_ns(table) / 1e9 / (LEAST_SPANS * takes_s))
    return most if 0 < most < MOST_TIMES else MOST_TIMES


class _Runs:
    """Measures by case and load, each run once, over all replications."""

    def __init__(self, study: Study, question: Question, work: Crew) -> None:
        self._replications = len(study.tables[BASE])
        self._question, self._work = question, work
        self._known: dict[tuple[str, float], tuple[Measure, ...]] = {}
        self.count = 0

    def searches(
        self, cases: Sequence[str], start: float, resolution: float, *, most: float, is_base: bool
    ) -> dict[str, Found]:
        """The largest load of each case, none above `most`, the searches side by side."""
        question = self._question
        made = {
            case: search_of(
                aim=question.aim,
                start=start,
                resolution=resolution,
                width=question.width,
                step=2.0 if is_base else 1.15,
                with_bands=is_base,
                most=most,
            )
            for case in cases
        }
        return largest_loads(self._bands, made)

    def _bands(self, asked: Mapping[str, list[float]]) -> dict[str, list[Band]]:
        self.fill([(case, load) for case, loads in asked.items() for load in loads])
        return {case: [self.band(case, load) for load in loads] for case, loads in asked.items()}

    def measures(self, case: str, load: float) -> tuple[Measure, ...]:
        self.fill([(case, load)])
        return self._known[(case, load)]

    def band(self, case: str, load: float) -> Band:
        blocks = [block for item in self.measures(case, load) for block in item.blocks]
        return goodput_band(blocks, confidence=self._question.confidence, seed=self._question.seed)

    def shaped(self, tasks: Sequence[Task]) -> list[list[Measure]]:
        """For each task its measures over all replications."""
        from msgspec.structs import replace

        each = [replace(task, replication=number) for task in tasks for number in range(self._replications)]
        done = self._work(each)
        self.count += len(each)
        return [done[place : place + self._replications] for place in range(0, len(done), self._replications)]

    def fill(self, wanted: Sequence[tuple[str, float]]) -> None:
        """Run what is not known yet, all at once."""
        new = [key for key in wanted if key not in self._known]
        done = self.shaped([Task(case=case, replication=0, load=load) for case, load in new])
        self._known |= {key: tuple(items) for key, items in zip(new, done, strict=True)}


def _reliefs(runs: _Runs, settings: SimulationSettings, found: Found) -> tuple[Relief, ...]:
    """Each resource relieved at the first load that is not met."""
    if found.beyond is None:
        return ()
    runs.fill([(f"relief {name}", found.beyond) for name, _, _ in reliefs(settings)])
    base = runs.band(BASE, found.beyond).expected
    rows = []
    for name, change, _ in reliefs(settings):
        goodput = runs.band(f"relief {name}", found.beyond).expected
        recovered = (goodput - base) / (1 - base) if base < 1 else 0.0
        rows.append(Relief(resource=name, change=change, goodput=goodput, recovered=recovered))
    return tuple(rows)


def binding(beyond: Sequence[Measure], reliefs: Sequence[Relief], found: Found) -> tuple[str, ...]:
    """What binds: the resources of which a quarter more, alone, recovers at least half of what the first load beyond misses, the
    most first. The pool where nothing fits it; none where every load tried is met, or where only several together would do."""
    if not beyond:
        return ()
    if all(item.requests.never_fits + item.requests.livelocked for item in beyond) and not found.load:
        return (POOL,)
    return tuple(
        item.resource
        for item in sorted(reliefs, key=lambda item: -item.recovered)
        if item.recovered >= BINDING
    )


def _changes(
    runs: _Runs,
    settings: SimulationSettings,
    extras: Sequence[Extra],
    question: Question,
    found: Found,
    base_per_s: float,
    most: float,
    told: Told,
) -> list[Change]:
    """The capacity with each thing changed in turn, searched near the answer."""
    everything = [(factor, change, "") for factor, change, _ in changes(settings)]
    everything += [(item.factor, item.change, item.refusal) for item in extras]
    told(f"sensitivity to {len(everything)} changes")
    there = runs.searches(
        [f"{factor} {change}" for factor, change, refusal in everything if not refusal],
        found.load,
        max(question.resolution, 0.02),
        most=most,
        is_base=False,
    )
    rows = []
    for factor, change, refusal in everything:
        searched = None if refusal else there[f"{factor} {change}"]
        if searched is not None and not searched.load:
            refusal = f"less than {searched.tried[0][0] * base_per_s:.3g}/s"  # noqa: PLW2901
            searched = None
        rows.append(
            Change(
                factor=factor,
                change=change,
                per_s=None if searched is None else searched.load * base_per_s,
                relative=None if searched is None else searched.load / found.load - 1,
                is_least=searched is not None and searched.beyond is None,
                refusal=refusal,
            )
        )
    return sorted(rows, key=lambda item: -abs(item.relative or 0.0))


def _point(load: float, band: Band, runs: _Runs, base_per_s: float) -> LoadPoint:
    measures = runs.measures(BASE, load)
    return LoadPoint(
        load=load,
        per_s=load * base_per_s,
        goodput=band,
        ttft_ms=_worst(item.requests.ttft_ps for item in measures),
        tpot_ms=_worst(item.requests.tpot_ps for item in measures),
        latency_ms=_worst(item.requests.latency_ps for item in measures),
        preemptions=sum(item.preemptions for item in measures),
        used_p95=max(item.pool.used_blocks.p95 / max(item.pool.usable_blocks, 1) for item in measures),
        left_at_last_arrival=sum(item.left_at_last_arrival for item in measures),
    )


def _worst(found: Iterable[Quantiles]) -> Percentiles:
    each = tuple(found)
    return Percentiles(
        **{name: max(getattr(one, name) for one in each) / _PS_PER_MS for name in ("p50", "p95", "p99")}
    )


def _notes(
    found: Found, shown: Sequence[Measure], question: Question, tables: Sequence[RequestColumns]
) -> tuple[str, ...]:
    notes = []
    if not found.is_monotone:
        notes.append(
            "goodput does not fall evenly with load: a load above one that misses the aim meets it again; the answer is the load "
            "up to which every load tried meets it"
        )
    lengths = [_length_of(item.requests) for item in shown]
    if found.load and lengths and min(lengths) < SHORT:
        notes.append(
            f"at the answer's load the requests come in {min(lengths):.1f} times the p99 latency; queues that build up more slowly are "
            f"not seen, so take a longer workload before you trust it"
        )
    if found.load:
        notes += _backlog(shown)
    if found.load and found.beyond is None:
        notes.append(
            f"at {found.load:.3g} times the workload's own rate, conversations come within {LEAST_SPANS} times what one takes: this "
            f"workload is too short to try more, so take a longer one (--requests)"
        )
    if found.load and not found.low:
        notes.append(
            f"{sum(table.rows for table in tables):,} requests are too few, or too uneven, to be sure of {question.aim:.2%} "
            f"at {question.confidence:.0%} confidence at any load"
        )
    return tuple(notes)


def _backlog(shown: Sequence[Measure]) -> Iterator[str]:
    """That more requests come at the answer's load than end, where the replication that is worst in this tells so."""
    worst = max(shown, key=lambda item: item.left_at_last_arrival / item.requests.offered, default=None)
    if worst is None or worst.left_at_last_arrival <= BACKLOG * worst.requests.offered:
        return
    offered, left = worst.requests.offered, worst.left_at_last_arrival
    yield (
        f"at the answer's load {left:,} of {offered:,} requests had not ended when the last came: {worst.requests.offered_per_s:.3g}/s "
        f"came and {worst.requests.offered_per_s * (offered - left) / offered:.3g}/s ended, so this is no load to be kept up; bound the "
        f"wait (--slo-ttft-ms, --slo-latency-ms) or take a longer workload"
    )


def _length_of(requests: GroupSummary) -> float:
    """How many p99 latencies the requests' arrivals span."""
    latency_ps = requests.latency_ps.p99
    return (requests.last_sent_ps - requests.first_sent_ps) / latency_ps if latency_ps else float("inf")
