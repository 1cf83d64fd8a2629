"""A capacity as a person reads it in a terminal: the answer, what binds, the pool there, room for bursts and restarts,
what it is sensitive to, and what all of that holds under."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.report.capacity_document import Answer
from vramledger.report.load_conditions import condition_lines, title
from vramledger.report.simulation_document import MS
from vramledger.report.text import Line, columns, line, wrapped
from vramledger.search.capacity.result import Capacity, Change, LoadPoint

MOST_LOADS = 12
_RESOURCES = {
    "pool": "the KV pool",
    "activation": "the tokens of a step (max_num_batched_tokens, which activation memory is held for)",
    "max_num_seqs": "max_num_seqs",
    "latency": "the time of a step",
}


def capacity_lines(answer: Answer, *, width: int = 80) -> Iterator[Line]:
    """The page."""
    found = answer.capacity
    yield from wrapped(title(answer.conditions), width, rest="  ", style="head")
    yield line()
    yield from wrapped(answer.summary, width, rest="  ", style="good" if found.load else "bad")
    step = answer.conditions.settings.step
    yield from wrapped(
        f"provided that steps take the {step.evidence.kind.value} time: {step.evidence.source}",
        width,
        rest="  ",
    )
    yield from wrapped(f"what binds there: {_binding(found)}", width, rest="  ")
    for note in found.notes:
        yield from wrapped(f"note: {note}", width, rest="  ", style="unsure")
    yield line()
    yield from _pool(found, width)
    if found.reliefs:
        yield line()
        yield from _reliefs(found, width)
    if found.bursts or found.restarts:
        yield line()
        yield from _headroom(found, width)
    if found.changes:
        yield line()
        yield from _tornado(found, width)
    yield line()
    yield from _loads(found, width)
    yield line()
    yield line("this holds under", "head")
    yield from condition_lines(answer.conditions, width)
    yield from wrapped(
        f"{found.runs:,} runs of {found.requests // max(found.replications, 1):,} requests, {found.replications} "
        f"replication{'s' if found.replications > 1 else ''}, the same at every load; resolution {found.resolution:.1%}; interval by "
        f"bootstrap over blocks of consecutive requests",
        width,
        first="  ",
        rest="    ",
    )


def _binding(found: Capacity) -> str:
    """The resources that bind, each with the share of the missed goodput that a quarter more of it recovers."""
    if found.beyond is None:
        return "nothing, up to the loads that were tried"
    recovered = {item.resource: item.recovered for item in found.reliefs}
    if found.binds:
        texts = [f"{_RESOURCES[name]} ({recovered.get(name, 0.0):.0%})" for name in found.binds]
        return f"{' and '.join(texts)}: the share of the goodput missed at the next higher load that a quarter more of it recovers"
    best = max(found.reliefs, key=lambda item: item.recovered)
    return f"no resource alone; a quarter more of {_RESOURCES[best.resource]} recovers {best.recovered:.0%} of the goodput missed at the next higher load"


def _pool(found: Capacity, width: int) -> Iterator[Line]:
    """Requests and pool at the answer's load."""
    if found.at is None or found.pool is None:
        return
    where = "at that load" if found.load else "at the lowest load tried"
    requests, pool = found.at, found.pool
    yield line(f"{where}, one replica", "head")
    rows: list[tuple[str, ...]] = [("", "p50", "p95", "p99", "peak")]
    for name, values, unit in (
        ("active tokens", found.active_tokens, 1),
        ("  most in a twentieth of the run", found.peak_tokens, 1),
        ("running requests", pool.running, 1),
        ("waiting requests", pool.waiting, 1),
        ("TTFT, ms", requests.ttft_ps, MS),
        ("TPOT, ms", requests.tpot_ps, MS),
        ("latency, ms", requests.latency_ps, MS),
    ):
        shown = [value / unit for value in (values.p50, values.p95, values.p99, values.max)]
        rows.append(
            (name, *(f"{value:,.1f}" if value < 100 and unit > 1 else f"{value:,.0f}" for value in shown))
        )
    yield from columns(rows, right=range(1, 5), styles=("head",))
    hit = requests.hit_tokens / max(requests.prompt_tokens, 1)
    yield from wrapped(
        f"pool {pool.capacity_tokens:,} tokens, {pool.used_blocks.p95 / max(pool.usable_blocks, 1):.1%} of the blocks used at p95, "
        f"{pool.full_share:.1%} of the time above 95%; {requests.preemptions:,} preemptions; {hit:.1%} of prompt tokens hit",
        width,
        first="  ",
        rest="    ",
    )


def _reliefs(found: Capacity, width: int) -> Iterator[Line]:
    beyond = (found.beyond or 0.0) * found.base_per_s
    goodput = next((point.goodput.expected for point in found.points if point.load == found.beyond), 0.0)
    yield line(f"what would relieve {beyond:.4g}/s, where goodput is {goodput:.2%}", "head")
    rows = [
        (item.resource, item.change, f"{item.goodput:.2%}", f"{item.recovered:.0%} of what is missed")
        for item in sorted(found.reliefs, key=lambda item: -item.goodput)
    ]
    for row in columns(rows, right=(2, 3), width=width - 2):
        yield (("  ", ""), *row)


def _headroom(found: Capacity, width: int) -> Iterator[Line]:
    share = found.operating_load / found.load if found.load else 0.0
    yield line(
        f"room at {found.operating_load * found.base_per_s:.4g}/s, {share:.0%} of the capacity", "head"
    )
    yield from _burst_table(found)
    for restart in found.restarts:
        calm = (
            "the aims are not met again before the requests end"
            if restart.calm_s is None
            else f"the aims are met again after {restart.calm_s:,.1f} s"
        )
        yield from wrapped(
            f"restart after {restart.down_s:g} s down: {restart.herd:,} requests at once, "
            f"{restart.herd_goodput:.1%} of them within the aims; {calm}",
            width,
            first="  ",
            rest="    ",
        )


def _burst_table(found: Capacity) -> Iterator[Line]:
    """The goodput of bursts' own requests: a row a height, a column a length."""
    lengths = sorted({item.lasts_s for item in found.bursts})
    if not lengths:
        return
    cells = {(item.factor, item.lasts_s): f"{item.goodput:.1%}" for item in found.bursts}
    rows = [("  goodput of a burst of", *(f"{length:g} s" for length in lengths))]
    for factor in sorted({item.factor for item in found.bursts}):
        name = "    no burst" if factor == 1 else f"    {factor:g} x that load"
        rows.append((name, *(cells.get((factor, length), "-") for length in lengths)))
    yield from columns(rows, right=range(1, len(lengths) + 1), styles=("dim",))


def _tornado(found: Capacity, width: int) -> Iterator[Line]:
    """Bars to the left for less and to the right for more."""
    yield line(
        f"sensitivity: the capacity with one thing changed, to within {max(found.resolution, 0.02):.0%}",
        "head",
    )
    names = [f"{item.factor} {item.change}" for item in found.changes]
    wide = max(map(len, names))
    most = max((abs(item.relative or 0.0) for item in found.changes), default=0.0) or 1.0
    half = max((width - wide - 27) // 2, 4)
    for name, item in zip(names, found.changes, strict=True):
        if item.relative is None or item.per_s is None:
            yield from wrapped(
                f"{name.ljust(wide)}  {item.refusal}", width, first="  ", rest=" " * (wide + 4)
            )
            continue
        yield line(
            f"  {name.ljust(wide)} {_least(item):>10}/s {item.relative:>+7.1%} {_bar(item, most, half)}"
        )


def _least(item: Change) -> str:
    return f"{'>=' if item.is_least else ''}{item.per_s:.4g}"


def _bar(item: Change, most: float, half: int) -> str:
    size = round(abs(item.relative or 0.0) / most * half)
    left, right = ("#" * size, "") if (item.relative or 0.0) < 0 else ("", "#" * size)
    return f"{left.rjust(half)}|{right}"


def _loads(found: Capacity, width: int) -> Iterator[Line]:
    """Goodput over offered load, at most a dozen of the loads tried, those around the answer first."""
    yield line("goodput over offered load", "head")
    kept = sorted(found.points, key=lambda point: abs(point.load - (found.load or point.load)))[:MOST_LOADS]
    rows: list[tuple[str, ...]] = [
        ("requests/s", "goodput", "band", "TTFT p99", "TPOT p99", "used p95", "preempted", "left")
    ]
    rows += [_load_row(point) for point in sorted(kept, key=lambda point: point.load)]
    yield from columns(rows, right=range(8), styles=("head",), width=width)
    if len(found.points) > MOST_LOADS:
        yield line(f"  and {len(found.points) - MOST_LOADS} further away; --json has all", "dim")
    yield from wrapped(
        "times in ms, of the worst replication; left: requests not finished when the last one arrived",
        width,
        first="  ",
        style="dim",
    )


def _load_row(point: LoadPoint) -> tuple[str, ...]:
    band = point.goodput
    return (
        f"{point.per_s:.4g}",
        f"{band.expected:.2%}",
        f"{band.low:.1%}-{band.high:.1%}",
        f"{point.ttft_p99_ms:,.0f}",
        f"{point.tpot_p99_ms:,.1f}",
        f"{point.used_p95:.0%}",
        f"{point.preemptions:,}",
        f"{point.left_at_last_arrival:,}",
    )
