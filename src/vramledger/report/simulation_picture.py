"""A simulated run over time, in SVG: blocks used, cached and free; requests running and waiting; each replica in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramledger.report.chart import Panel, key, picture, text
from vramledger.report.load_conditions import title
from vramledger.report.simulation_document import Simulation
from vramledger.simulation.outcome import PoolSample
from vramledger.simulation.step_model import PS_PER_S

MOST_REPLICAS = 16
_USED, _CACHED, _FREE = "#3b6ea8", "#9dbcd9", "#eeeeee"
_RUNNING, _WAITING, _FULL = "#2f7d4f", "#c8563f", "#c8563f"
_HEIGHT, _LOWER, _GAP = 200, 110, 60


def simulation_svg(found: Simulation) -> str:
    """The picture. Of more than 16 replicas the first 16 are drawn and the rest counted."""
    parts = [
        text(20, 24, title(found.conditions), size=14),
        text(20, 42, found.verdict, colour="#2f7d4f" if found.holds else "#c8563f"),
        *key(52, ((_USED, "blocks used"), (_CACHED, "cached, held by none"), (_FREE, "free"),
                  (_RUNNING, "requests running"), (_WAITING, "waiting"))),
    ]  # fmt: skip
    top = 100
    replicas = sorted({sample.replica for sample in found.run.samples})
    usable = found.pool.usable_blocks
    for replica in replicas[:MOST_REPLICAS]:
        samples = [sample for sample in found.run.samples if sample.replica == replica]
        counters = found.run.counters[replica] if replica < len(found.run.counters) else None
        told = "" if counters is None else f", {counters.preemptions:,} preemptions"
        parts += _replica(samples, usable, top, f"replica {replica}{told}")
        top += _HEIGHT + _LOWER + 2 * _GAP
    if len(replicas) > MOST_REPLICAS:
        parts.append(text(20, top, f"and {len(replicas) - MOST_REPLICAS:,} replicas more"))
        top += 20
    return picture(top, parts)


def _replica(samples: Sequence[PoolSample], usable: int, top: int, name: str) -> Iterator[str]:
    times = [sample.at_ps / PS_PER_S for sample in samples]
    end_s = max(times[-1], 1e-9)
    pool = Panel(top, _HEIGHT, most_x=end_s, most_y=max(usable, 1))
    used = [(at, float(sample.used_blocks)) for at, sample in zip(times, samples, strict=True)]
    held = [
        (at, float(sample.used_blocks + sample.cached_blocks))
        for at, sample in zip(times, samples, strict=True)
    ]
    floor = [(at, 0.0) for at in times]
    yield pool.area(floor, [(at, float(usable)) for at in times], _FREE)
    yield pool.area(used, held, _CACHED)
    yield pool.area(floor, used, _USED)
    yield from pool.axes(f"{name}: blocks of the pool", "", "")
    most = max(max(sample.running, sample.waiting) for sample in samples)
    lower = Panel(top + _HEIGHT + _GAP, _LOWER, most_x=end_s, most_y=max(most, 1))
    yield lower.path(
        [(at, float(sample.running)) for at, sample in zip(times, samples, strict=True)], _RUNNING
    )
    yield lower.path(
        [(at, float(sample.waiting)) for at, sample in zip(times, samples, strict=True)], _WAITING
    )
    yield from lower.axes("requests", "seconds of simulated time", "")
