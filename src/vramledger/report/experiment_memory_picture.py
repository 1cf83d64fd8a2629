"""Memory over time: what was held in all, and whose it is, as far as the log or the ledger tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from vramledger.answer import Plan
from vramledger.ledger import Owner, Phase
from vramledger.observation import Sample
from vramledger.report.chart import Panel, Point, extremes, inline, text
from vramledger.report.experiment_evidence import Evidence, summed, tracks
from vramledger.report.experiment_picture import (
    DIM,
    INK,
    NARROW,
    WIDE,
    Clock,
    Key,
    Picture,
    loads_behind,
    pieces,
)
from vramledger.report.quantity_words import quantity_text
from vramledger.telemetry.marks import LOADED, LOADING, MARK
from vramledger.units import GIB, MIB

_TOP, _HEIGHT, _BOTTOM = 30, 230, 44
_CELLS = 350


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one owner from a moment on; `measured` is whether a log or an endpoint told them, else the plan did."""

    owner: Owner
    size_bytes: int
    from_s: float
    measured: bool


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where memory is held, what was held there in all at each time, and who is known to hold it."""

    name: str
    held: tuple[Point, ...]
    bands: tuple[Band, ...]
    limit_bytes: int | None = None


def memory_pictures(evidence: Evidence) -> list[Picture]:
    """One for each device, or one for the host where there is none."""
    return [_picture(evidence, place) for place in places(evidence)]


def places(evidence: Evidence) -> list[Place]:
    """Devices where samples tell of any, else the engine's processes, their shared pages counted once where that is told."""
    devices = tracks(evidence.samples, "device_used_bytes")
    if devices:
        limits = {
            track.source: int(track.points[-1][1]) for track in tracks(evidence.samples, "device_total_bytes")
        }
        bands = _bands(evidence, on_host=False)
        return [
            Place(name=track.label or track.source, held=track.points, bands=bands, limit_bytes=limits.get(track.source))
            for track in devices
        ]  # fmt: skip
    for name, words in (("pss_bytes", "proportional"), ("rss_bytes", "resident")):
        found = tracks(evidence.samples, name)
        if found:
            label = f"the engine's {'process' if len(found) == 1 else 'processes'}, {words}"
            return [Place(name=label, held=summed(found), bands=_bands(evidence, on_host=True))]
    return []


def _bands(evidence: Evidence, *, on_host: bool) -> tuple[Band, ...]:
    """Owners from the bottom up, as they come: weights with the load, the rest after it. A measured figure stands before a planned one."""
    loading_s, loaded_s = _moments(evidence.samples)
    sizes = measured_by_owner(evidence, on_host=on_host)
    planned = _planned(evidence, on_host=on_host)
    out = []
    for owner in Owner:
        if owner is Owner.HEADROOM:
            continue
        size = sizes.get(owner, 0 if sizes else planned.get(owner, 0))
        if size > 0:
            first = loading_s if owner in (Owner.WEIGHTS, Owner.RUNTIME_CONTEXT) else loaded_s
            out.append(Band(owner=owner, size_bytes=size, from_s=first, measured=owner in sizes))
    return tuple(out)


def _moments(samples: Sequence[Sample]) -> tuple[float, float]:
    """When weights began to come, and when they were there."""
    marks = [sample for sample in samples if sample.name == MARK]
    first = min((sample.at_s for sample in samples), default=0.0)
    loading = next((mark.at_s for mark in marks if mark.label == LOADING), first)
    return loading, next((mark.at_s for mark in marks if mark.label == LOADED), loading)


def measured_by_owner(evidence: Evidence, *, on_host: bool) -> dict[Owner, int]:
    """By owner, figures of one rank that cover that owner alone. Without a device all are on the host, whatever they are called."""
    found = evidence.measurement
    if found is None:
        return {}
    sizes: dict[Owner, int] = {}
    for figure in found.figures:
        if len(figure.owners) == 1 and (on_host or not figure.on_host) and figure.ranks in ((), (0,)):
            owner = figure.owners[0]
            sizes[owner] = sizes.get(owner, 0) + figure.bytes.expected
    return sizes


def _planned(evidence: Evidence, *, on_host: bool) -> dict[Owner, int]:
    """By owner what a plan says is there at least. A plan's device whose weights lie elsewhere is none."""
    plan = evidence.plan
    if plan is None:
        return {}
    ranks = plan.ranks[:1] if not on_host or holds_weights(plan) else ()
    entries = [*(plan.host if on_host else ()), *(entry for rank in ranks for entry in rank.entries)]
    sizes: dict[Owner, int] = {}
    for entry in entries:
        if Phase.DECODE in entry.phases and entry.bytes.low > 0:
            sizes[entry.owner] = sizes.get(entry.owner, 0) + entry.bytes.low
    return sizes


def holds_weights(plan: Plan) -> bool:
    """Whether the plan's first kind of rank has weights at all."""
    return bool(plan.ranks) and any(entry.owner is Owner.WEIGHTS for entry in plan.ranks[0].entries)


def _picture(evidence: Evidence, place: Place) -> Picture:
    found = evidence.found
    most = max(value for _, value in place.held)
    known = sum(band.size_bytes for band in place.bands)
    top = max(most, known) * 1.12
    limit = place.limit_bytes
    if limit is not None and limit < 2.5 * top:
        top = max(top, limit * 1.04)
    unit = GIB if top >= GIB else MIB
    clock = Clock.of(at_s for at_s, _ in place.held)
    drawings = []
    for width in (WIDE, NARROW):
        panel = Panel(_TOP, _HEIGHT, most_x=clock.end, most_y=top / unit, width=width, left=58, right=12)
        parts = [
            *loads_behind(panel, clock, found, named=width == WIDE),
            *_stack(panel, clock, place.bands, unit),
            *panel.grid(clock.unit, marks_x=10 if width == WIDE else 5),
            *(
                panel.path([(clock.at(x), y / unit) for x, y in extremes(piece, _CELLS)], INK, width=1.8)
                for piece in pieces(place.held)
            ),
            *_snapshots(evidence, panel, clock, place, unit),
            text(panel.left - 52, 12, "GiB" if unit == GIB else "MiB", colour=DIM),
        ]
        if limit is not None and limit <= top:
            parts += [
                panel.path([(0.0, limit / unit), (clock.end, limit / unit)], "var(--bad)", dash="6 4"),
                text(panel.right - 4, panel.y(limit / unit) - 4, "all of the device", anchor="end", colour="var(--bad)"),
            ]  # fmt: skip
        says = f"memory of {place.name}: at most {quantity_text(most, 'bytes')}"
        drawings.append(
            inline(
                width, _TOP + _HEIGHT + _BOTTOM, parts, says=says, kind="wide" if width == WIDE else "narrow"
            )
        )
    rest = most - known
    words = f"at most {quantity_text(most, 'bytes')}"
    if place.bands:
        by = "measured" if all(band.measured for band in place.bands) else "at least, by the plan"
        words += f", of which {quantity_text(known, 'bytes')} have an owner ({by})"
        if rest < 0:
            words += "; what is reserved and was never touched is not held by the process"
    keys = [
        *(Key(colour_of(band.owner), f"{band.owner.value.replace('_', ' ')} {quantity_text(band.size_bytes, 'bytes')}", "area")
          for band in place.bands),
        Key(INK, "held in all"),
    ]  # fmt: skip
    return Picture(
        title=f"memory over time: {place.name}", words=words, keys=tuple(keys), drawings=tuple(drawings)
    )


def _stack(panel: Panel, clock: Clock, bands: Sequence[Band], unit: int) -> Iterator[str]:
    below = 0.0
    for band in bands:
        low, high = below / unit, (below + band.size_bytes) / unit
        first, end = clock.at(band.from_s), clock.end
        told = f"{band.owner.value}: {quantity_text(band.size_bytes, 'bytes')}, {'measured' if band.measured else 'planned'}"
        yield panel.area(
            [(first, low), (end, low)], [(first, high), (end, high)], colour_of(band.owner), 0.75, title=told
        )
        below += band.size_bytes


def _snapshots(evidence: Evidence, panel: Panel, clock: Clock, place: Place, unit: int) -> Iterator[str]:
    """A point on the line at each moment that was held fast."""
    for shot in evidence.found.snapshots:
        if not any(first <= shot.at_s <= last for first, last in clock.spans):
            continue
        _, value = min(place.held, key=lambda point: abs(point[0] - shot.at_s))
        told = f"{shot.label}: {quantity_text(value, 'bytes')}"
        yield panel.ring(clock.at(shot.at_s), value / unit, INK, told)


def colour_of(owner: Owner) -> str:
    return f"var(--{owner.value.replace('_', '-')})"
