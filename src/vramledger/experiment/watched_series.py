"""What is watched for growth over a steady stretch: memory, the pool at rest, rates of preemption and eviction, latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from statistics import fmean, median

from msgspec import Struct

from vramledger.experiment.load_figures import NS_PER_S, at_once
from vramledger.experiment.served import Served
from vramledger.observation import Sample
from vramledger.units import MIB

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
REQUESTS = "requests"
"""The source of what requests saw themselves."""
UNUSED = "torch_unused_bytes"
"""What torch reserved and nobody uses: what fragmentation makes grow."""


class Series(Struct, frozen=True, kw_only=True):
    """Values by Unix time (of requests: seconds since the stage began), and how much growth an hour of them is not looked at."""

    name: str
    source: str
    unit: str
    times_s: Sequence[float]
    values: Sequence[float]
    allowance_per_hour: float
    middle: Callable[[Sequence[float]], float] = fmean


def watched(samples: Iterable[Sample], served: Sequence[Served] = ()) -> list[Series]:
    """One for each quantity of each source, in the order memory, pool, rates, latency."""
    readings = list(samples)
    return [*_memory(readings), *_at_rest(readings), *_rates(readings), *_latencies(served)]


def _memory(readings: Sequence[Sample]) -> list[Series]:
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
            Series(
                name=ordered[0].name,
                source=_where(source, pid, rank, label),
                unit="bytes",
                times_s=[item.at_s for item in ordered],
                values=[float(item.value) for item in ordered],
                allowance_per_hour=max(LEAST_BYTES, LEAST_SHARE * level),
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


def _at_rest(readings: Sequence[Sample]) -> list[Series]:
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
                Series(
                    name=f"{name.removesuffix(f'_{unit}')}_at_rest_{unit}",
                    source=source,
                    unit=unit,
                    times_s=[at_s for at_s, _ in items],
                    values=values,
                    allowance_per_hour=POOL_SHARE if unit == "ratio" else max(1.0, POOL_SHARE * max(values)),
                )
            )
    return found


def _rates(readings: Sequence[Sample]) -> list[Series]:
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
                Series(
                    name=name,
                    source=source,
                    unit="per_s",
                    times_s=[at_s for at_s, _ in steps],
                    values=values,
                    allowance_per_hour=max(RATE_SHARE * fmean(values), 0.001),
                )
            )
    return found


def _latencies(served: Sequence[Served]) -> list[Series]:
    """Medians over requests by when they were due."""
    found = []
    for name, values in (
        ("ttft_ns", [(row.due_ns, row.ttft_ns) for row in served]),
        ("tpot_ns", [(row.due_ns, row.tpot_ns) for row in served]),
    ):
        told = sorted((due_ns / NS_PER_S, float(value)) for due_ns, value in values if value is not None)
        if told:
            found.append(
                Series(
                    name=name,
                    source=REQUESTS,
                    unit="ns",
                    times_s=[time for time, _ in told],
                    values=[value for _, value in told],
                    allowance_per_hour=LATENCY_SHARE * median(value for _, value in told),
                    middle=median,
                )
            )
    return found
