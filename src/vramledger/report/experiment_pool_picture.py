"""The KV pool in use and the requests that run and wait, over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramledger.report.chart import Panel, Point, envelope, inline, text
from vramledger.report.experiment_evidence import Evidence, summed, tracks
from vramledger.report.experiment_picture import DIM, NARROW, WIDE, Clock, Key, Picture, loads_behind, pieces
from vramledger.report.experiment_words import share_text

_TOP, _POOL, _GAP, _REQUESTS, _BOTTOM = 30, 170, 42, 110, 44
_USED, _RUNNING, _WAITING = "var(--kv-cache)", "var(--s1)", "var(--bad)"


def pool_picture(evidence: Evidence) -> Picture | None:
    """None where nothing tells of the pool or of requests."""
    used = pool_use(evidence)
    running = summed(tracks(evidence.samples, "running_requests")[:1])
    waiting = summed(tracks(evidence.samples, "waiting_requests")[:1])
    every = [*used, *running, *waiting]
    if not every:
        return None
    clock = Clock.of(x for x, _ in every)
    most = max((y for _, y in (*running, *waiting)), default=0.0)
    drawings = []
    for width in (WIDE, NARROW):
        wide = width == WIDE
        parts: list[str] = []
        top = _TOP
        if used:
            pool = Panel(top, _POOL, most_x=clock.end, most_y=1.0, width=width, left=58, right=12)
            parts += [
                *loads_behind(pool, clock, evidence.found, named=wide),
                *_counted(pool, clock, [(x, min(y, 1.0)) for x, y in used], _USED, width, filled=True),
                *pool.grid("", shown_y=lambda share: f"{100 * share:.0f}%", marks_x=10 if wide else 5),
            ]
            top += _POOL + _GAP
        below = Panel(
            top, _REQUESTS, most_x=clock.end, most_y=max(most, 1.0) * 1.08, width=width, left=58, right=12
        )
        parts += [
            *loads_behind(below, clock, evidence.found, named=wide and not used),
            *below.grid(clock.unit, marks_x=10 if wide else 5, marks_y=5),
            *_counted(below, clock, running, _RUNNING, width),
            *_counted(below, clock, waiting, _WAITING, width),
            text(below.left, top - 6, "requests", colour=DIM),
        ]
        drawings.append(
            inline(
                width, top + _REQUESTS + _BOTTOM, parts, says=_says(used), kind="wide" if wide else "narrow"
            )
        )
    keys = [Key(_USED, "KV pool in use: mean, least to most", "area")] if used else []
    if running:
        keys.append(Key(_RUNNING, "requests running: mean, least to most", "area"))
    if waiting:
        keys.append(Key(_WAITING, "waiting", "area"))
    return Picture(
        title="the KV pool and its requests", words=_says(used), keys=tuple(keys), drawings=tuple(drawings)
    )


def _counted(
    panel: Panel, clock: Clock, points: Sequence[Point], colour: str, width: int, *, filled: bool = False
) -> Iterator[str]:
    """A line of means in a band from the least to the most; down to nothing where it is `filled`."""
    found = pieces(points) if points else []
    for piece in found:
        share = max(len(piece) * _cells(width) // len(points), 2)
        low, mean, high = envelope([(clock.at(x), y) for x, y in piece], share)
        if filled:
            yield panel.area([(x, 0.0) for x, _ in mean], mean, colour, 0.5)
        if low is not high and low != high:
            yield panel.area(low, high, colour, 0.22)
        yield panel.path(mean, colour, width=1.6)


def _cells(width: int) -> int:
    return width // 5


def pool_use(evidence: Evidence) -> tuple[Point, ...]:
    """The share of the pool in use, by the engine's own ratio, else by its tokens or blocks over the pool confirmed; () where none tells."""
    ratios = tracks(evidence.samples, "kv_usage_ratio")
    if ratios:
        return ratios[0].points
    pool = evidence.found.pool
    if pool is None:
        return ()
    for name, whole in (("kv_used_tokens", pool.engine_tokens), ("kv_used_blocks", pool.engine_blocks)):
        found = tracks(evidence.samples, name)
        if found and whole:
            return tuple((x, y / whole) for x, y in found[0].points)
    return ()


def _says(used: tuple[Point, ...]) -> str:
    if not used:
        return "the engine does not tell of its pool"
    full = sum(y >= 0.95 for _, y in used) / len(used)
    return f"at most {share_text(max(y for _, y in used))} in use; nearly full (95 %) in {share_text(full)} of the readings"
