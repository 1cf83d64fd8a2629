"""What grew over a steady stretch: memory, the pool at rest, latencies, preemptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from statistics import fmean, median
from typing import Literal

from msgspec import Struct

from vramledger.experiment.load_figures import NS_PER_S, at_once
from vramledger.experiment.result import Trend
from vramledger.experiment.served import Served
from vramledger.experiment.slope import STILL, Slope, binned, slope_of
from vramledger.observation import Sample
from vramledger.units import MIB, format_bytes

SHORTEST_S = 60.0
"""A shorter stretch says nothing of hours."""
MOST_OF_IT = 0.9
"""The bins at the ends have their middles within the stretch."""
S_PER_HOUR = 3600
LEAST_BYTES = 16 * MIB
LEAST_SHARE = 0.002
"""Of memory, growth an hour within 16 MiB or 0.2 % of its level, whichever is more, is not looked at."""
LATENCY_SHARE = 0.05
POOL_SHARE = 0.002
RATE_SHARE = 0.05

_MEMORY = (
    "rss_bytes",
    "swap_bytes",
    "cgroup_current_bytes",
    "frontend_rss_bytes",
    "device_used_bytes",
    "process_device_bytes",
    "torch_allocated_bytes",
    "torch_reserved_bytes",
    "torch_inactive_split_bytes",
)
_POOL = ("kv_usage_ratio", "kv_used_tokens", "kv_used_blocks", "total_used_blocks")
_COUNTERS = {
    "total_preempted_requests": "preemptions_per_s",
    "total_evicted_tokens": "evicted_tokens_per_s",
}
UNUSED = "torch_unused_bytes"
"""What torch reserved and nobody uses: what fragmentation makes grow."""


Verdict = Literal["flat", "grows", "falls", "untold"]


class _Series(Struct, frozen=True, kw_only=True):
    """Values by Unix time (of requests: seconds since the stage began), and how much growth an hour of them is not looked at."""

    name: str
    source: str
    unit: str
    times: Sequence[float]
    values: Sequence[float]
    allowance: float
    middle: Callable[[Sequence[float]], float] = fmean


def trends(
    samples: Iterable[Sample],
    *,
    confidence: float = 0.95,
    served: Sequence[Served] = (),
    allowances: Mapping[str, float] | None = None,
) -> tuple[Trend, ...]:
    """One for each quantity of each source over the stretch that the samples and rows are of, in the order memory, pool, rates, latency.

    `allowances` are growths an hour, by quantity, that replace the usual ones. The interval is `slope_of`'s. Of many quantities looked at one
    seems to grow by chance: one grows or falls only where that is sure for all of them at once. What moved at first and then
    stayed, by the second half of the stretch, is flat; where the halves leave it open it is untold.
    """
    readings = list(samples)
    found = [*_memory(readings), *_at_rest(readings), *_rates(readings), *_latencies(served)]
    given = allowances or {}
    among = max(sum(len(set(series.values)) > 1 for series in found), 1)
    return tuple(
        _trend(series, given.get(series.name, series.allowance), confidence, among) for series in found
    )


def _trend(series: _Series, allowance: float, confidence: float, among: int) -> Trend:
    times, values = binned(series.times, series.values, middle=series.middle)
    lasts = bool(times) and times[-1] - times[0] >= SHORTEST_S * MOST_OF_IT
    whole = slope_of(times, values, confidence, among=among) if lasts else None
    tenth = max(len(values) // 10, 1)
    first, last = (fmean(values[:tenth]), fmean(values[-tenth:])) if values else (0.0, 0.0)
    hourly = STILL if whole is None else _hourly(whole)
    verdict: Verdict = "untold"
    words = "too short or too few readings to say"
    if whole is not None:
        half = next(place for place, time in enumerate(times) if time >= (times[0] + times[-1]) / 2)
        late = slope_of(times[half:], values[half:], confidence)
        verdict, words = _verdict(
            hourly, None if late is None else _hourly(late), allowance, series.unit, among
        )
    return Trend(
        name=series.name,
        source=series.source,
        unit=series.unit,
        slope_per_hour=hourly.value,
        low_per_hour=hourly.low,
        high_per_hour=hourly.high,
        confidence=confidence,
        allowance_per_hour=allowance,
        first=first,
        last=last,
        samples=len(series.values),
        verdict=verdict,
        words=words,
    )


def _verdict(
    whole: Slope, late: Slope | None, allowance: float, unit: str, among: int
) -> tuple[Verdict, str]:
    told = f"{shown(whole.value, unit)} an hour ({shown(whole.low, unit)} to {shown(whole.high, unit)})"
    if _is_within(whole, allowance):
        return "flat", f"does not grow: {told}, {shown(allowance, unit)} allowed"
    if late is not None and _is_within(late, allowance):
        return "flat", f"moved at first and then stayed: {shown(late.value, unit)} an hour in the second half"
    directions: tuple[tuple[int, Verdict, float, float], ...] = (
        (1, "grows", whole.low, whole.low_of_all),
        (-1, "falls", -whole.high, -whole.high_of_all),
    )
    for sign, does, least, least_of_all in directions:
        if least <= allowance:
            continue
        if late is not None and sign * late.value <= allowance:
            return "untold", f"{does} by {told}, less so in the second half: a longer stretch would tell"
        if least_of_all > allowance:
            return does, f"{does} by {told}"
        return (
            "untold",
            f"{does} by {told}, as one of {among} looked at may by chance: a longer stretch would tell",
        )
    return "untold", f"too noisy or too short to say: {told}"


def _is_within(slope: Slope, allowance: float) -> bool:
    return -allowance <= slope.low and slope.high <= allowance


def shown(value: float, unit: str) -> str:
    """A quantity as its trend's words have it."""
    if unit == "bytes":
        return ("-" if value < 0 else "") + format_bytes(int(abs(value)))
    if unit == "ns":
        return f"{value / 1e6:.3g} ms"
    return f"{value:.3g} {unit}"


def _hourly(slope: Slope) -> Slope:
    return Slope(**{name: getattr(slope, name) * S_PER_HOUR for name in slope.__struct_fields__})


def _memory(readings: Sequence[Sample]) -> list[_Series]:
    wanted = [item for item in readings if item.name in _MEMORY]
    allocated = at_once(readings, "torch_allocated_bytes")
    unused = [
        Sample(at_s=at_s, source=source, name=UNUSED, value=value - allocated[source, at_s])
        for (source, at_s), value in at_once(readings, "torch_reserved_bytes").items()
        if (source, at_s) in allocated
    ]

    def key(item: Sample) -> tuple[int, str, int, int, str]:
        place = _MEMORY.index(item.name) if item.name in _MEMORY else len(_MEMORY)
        return (
            place,
            item.source,
            -1 if item.pid is None else item.pid,
            -1 if item.rank is None else item.rank,
            item.label,
        )

    found = []
    for (_, source, pid, rank, label), items in groupby(sorted([*wanted, *unused], key=key), key=key):
        ordered = sorted(items, key=lambda item: item.at_s)
        level = fmean(item.value for item in ordered)
        found.append(
            _Series(
                name=ordered[0].name,
                source=_where(source, pid, rank, label),
                unit="bytes",
                times=[item.at_s for item in ordered],
                values=[float(item.value) for item in ordered],
                allowance=max(LEAST_BYTES, LEAST_SHARE * level),
            )
        )
    return found


def _where(source: str, pid: int, rank: int, label: str) -> str:
    """Source and what tells several of its series apart."""
    parts = [
        "" if pid < 0 or source.endswith(f":{pid}") else f"pid {pid}",
        "" if rank < 0 else f"rank {rank}",
        label,
    ]
    apart = ", ".join(part for part in parts if part)
    return f"{source} ({apart})" if apart else source


def _at_rest(readings: Sequence[Sample]) -> list[_Series]:
    """The pool's use at the instants at which nobody ran or waited: what stays in use then was not given back."""
    busy: dict[float, float] = {}
    for name in ("running_requests", "waiting_requests"):
        for (_, at_s), count in at_once(readings, name).items():
            busy[at_s] = busy.get(at_s, 0) + count
    found = []
    for name in _POOL:
        sources: dict[str, list[tuple[float, float]]] = {}
        for (source, at_s), value in sorted(at_once(readings, name).items(), key=lambda pair: pair[0][1]):
            if busy.get(at_s, 1) == 0:
                sources.setdefault(source, []).append((at_s, value))
        for source, items in sources.items():
            values = [value for _, value in items]
            unit = name.rpartition("_")[2]
            found.append(
                _Series(
                    name=f"{name.removesuffix(f'_{unit}')}_at_rest_{unit}",
                    source=source,
                    unit=unit,
                    times=[at_s for at_s, _ in items],
                    values=values,
                    allowance=POOL_SHARE if unit == "ratio" else max(1.0, POOL_SHARE * max(values)),
                )
            )
    return found


def _rates(readings: Sequence[Sample]) -> list[_Series]:
    """How often something happened, from its counter: whether it came to happen more often."""
    found = []
    for counter, name in _COUNTERS.items():
        sources: dict[str, list[tuple[float, float]]] = {}
        for (source, at_s), value in sorted(at_once(readings, counter).items(), key=lambda pair: pair[0][1]):
            sources.setdefault(source, []).append((at_s, value))
        for source, items in sources.items():
            steps = [
                ((earlier[0] + later[0]) / 2, max(later[1] - earlier[1], 0) / (later[0] - earlier[0]))
                for earlier, later in pairwise(items)
                if later[0] > earlier[0]
            ]
            if not steps:
                continue
            values = [value for _, value in steps]
            found.append(
                _Series(
                    name=name,
                    source=source,
                    unit="per_s",
                    times=[at_s for at_s, _ in steps],
                    values=values,
                    allowance=max(RATE_SHARE * fmean(values), 0.001),
                )
            )
    return found


def _latencies(served: Sequence[Served]) -> list[_Series]:
    """Medians over requests by when they were due."""
    found = []
    for name, values in (
        ("ttft_ns", [(row.due_ns, row.ttft_ns) for row in served]),
        ("tpot_ns", [(row.due_ns, row.tpot_ns) for row in served]),
    ):
        told = sorted((due_ns / NS_PER_S, float(value)) for due_ns, value in values if value is not None)
        if told:
            found.append(
                _Series(
                    name=name,
                    source="requests",
                    unit="ns",
                    times=[time for time, _ in told],
                    values=[value for _, value in told],
                    allowance=LATENCY_SHARE * median(value for _, value in told),
                    middle=median,
                )
            )
    return found
