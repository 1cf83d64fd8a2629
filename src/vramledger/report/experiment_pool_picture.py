"""The KV pool in use and the requests that run and wait, over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from vramledger.observation import Sample
from vramledger.report.chart import Panel, Point, envelope, inline, short, text
from vramledger.report.experiment_evidence import Evidence, Track, summed, tracks
from vramledger.report.experiment_picture import DIM, NARROW, WIDE, Clock, Key, Picture, loads_behind, pieces
from vramledger.report.quantity_words import share_text

_TOP, _POOL, _GAP, _REQUESTS, _BOTTOM = 30, 170, 42, 110, 44
_USED, _RUNNING, _WAITING, _BEFORE = "var(--kv-cache)", "var(--s1)", "var(--bad)", "var(--s2)"


def pool_picture(evidence: Evidence) -> Picture | None:
    """None where nothing tells of the pool or of requests."""
    used, is_share = pool_use(evidence)
    running, waiting, before = (
        requests_of(evidence.samples, name)
        for name in ("running_requests", "waiting_requests", "gateway_waiting_requests")
    )
    every = [*used, *running, *waiting, *before]
    if not every:
        return None
    clock = Clock.of(x for x, _ in every)
    most = max((y for _, y in (*running, *waiting, *before)), default=0.0)
    full = 1.0 if is_share else max((y for _, y in used), default=1.0) * 1.08
    drawings = []
    for width in (WIDE, NARROW):
        wide = width == WIDE
        parts: list[str] = []
        top = _TOP
        if used:
            pool = Panel(top, _POOL, most_x=clock.end, most_y=full, width=width, left=58, right=12)
            parts += [
                *loads_behind(pool, clock, evidence.found, named=wide),
                *_counted(pool, clock, [(x, min(y, full)) for x, y in used], _USED, width, filled=True),
                *pool.grid(
                    "",
                    shown_y=(lambda share: f"{100 * share:.0f}%") if is_share else short,
                    marks_x=10 if wide else 5,
                ),
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
            *_counted(below, clock, before, _BEFORE, width),
            text(below.left - 54, top - 6, "requests", colour=DIM),
        ]
        drawings.append(
            inline(
                width,
                top + _REQUESTS + _BOTTOM,
                parts,
                says=_says(used, is_share),
                kind="wide" if wide else "narrow",
            )
        )
    keys = [Key(_USED, "KV pool in use: mean, least to most", "area")] if used else []
    if running:
        keys.append(Key(_RUNNING, "requests running: mean, least to most", "area"))
    if waiting:
        keys.append(Key(_WAITING, "waiting", "area"))
    if before:
        keys.append(Key(_BEFORE, "waiting at the gateway", "area"))
    return Picture(
        title="the KV pool and its requests",
        words=_says(used, is_share),
        keys=tuple(keys),
        drawings=tuple(drawings),
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


def pool_use(evidence: Evidence) -> tuple[tuple[Point, ...], bool]:
    """The pool in use over time, and whether as a share of it: by the engine's own ratio, else by its tokens or blocks over those that it or
    the pool confirmed tells. Of two instances the fuller one. Tokens alone where nothing tells how many there are; () where nothing tells."""
    samples, pool = evidence.samples, evidence.found.pool
    ratios = tracks(samples, "kv_usage_ratio")
    if ratios:
        return fullest(ratios), True
    for used, whole, confirmed in (
        ("kv_used_tokens", "kv_pool_tokens", pool.engine_tokens if pool is not None else None),
        ("kv_used_blocks", "kv_pool_blocks", pool.engine_blocks if pool is not None else None),
    ):
        found = tracks(samples, used)
        sizes = {track.source: track.points[-1][1] for track in tracks(samples, whole)}
        shares = [
            replace(track, points=tuple((x, y / size) for x, y in track.points))
            for track in found
            if (size := sizes.get(track.source) or confirmed)
        ]
        if shares:
            return fullest(shares), True
    return fullest(tracks(samples, "kv_used_tokens")), False


def requests_of(samples: Sequence[Sample], name: str) -> tuple[Point, ...]:
    """Requests over all instances: by their metrics where those tell, else by whoever does."""
    found = tracks(samples, name)
    metrics = [track for track in found if track.source.startswith("metrics:")]
    return summed(metrics or found[:1])


def fullest(found: Sequence[Track]) -> tuple[Point, ...]:
    """At each time the most that any track has."""
    most: dict[float, float] = {}
    for track in found:
        for x, y in track.points:
            most[x] = max(y, most.get(x, y))
    return tuple(sorted(most.items()))


def _says(used: tuple[Point, ...], is_share: bool) -> str:
    if not used:
        return "the engine does not tell of its pool"
    if not is_share:
        return f"at most {max(y for _, y in used):,.0f} tokens in use; nothing tells how many there are"
    full = sum(y >= 0.95 for _, y in used) / len(used)
    return f"at most {share_text(max(y for _, y in used))} in use; nearly full (95 %) in {share_text(full)} of the readings"
