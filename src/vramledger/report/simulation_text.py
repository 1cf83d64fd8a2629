"""A simulated run as a person reads it in a terminal: the answer, latencies, the pool over time, what threatens, conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramledger.report.load_conditions import condition_lines, title
from vramledger.report.simulation_document import MS, Simulation
from vramledger.report.text import Line, columns, columns_within, line, wrapped
from vramledger.simulation.admission import AdmissionCounts
from vramledger.simulation.findings import Finding, Level, worst_first
from vramledger.simulation.outcome import PoolSample
from vramledger.simulation.step_model import PS_PER_S
from vramledger.simulation.summary import GroupSummary, PoolSummary, Quantiles
from vramledger.simulation.tool_waits import ToolWaitRow
from vramledger.units import counted

MOST_GROUPS = 12
_HINDSIGHT = "least in hindsight"
_STYLES = {Level.THREATENS: "bad", Level.CLOSE: "unsure", Level.CLEAR: "good", Level.UNTOLD: "dim"}
_SHADES = " .:-=+*#%@"
_STATES = (
    "finished",
    "cancelled",
    "never_fits",
    "expired",
    "livelocked",
    "unfinished",
    "rejected",
    "failed",
)


def simulation_lines(found: Simulation, *, width: int = 80) -> Iterator[Line]:
    """The page."""
    requests = found.summary.all
    yield from wrapped(title(found.conditions), width, rest="  ", style="head")
    yield line()
    yield from wrapped(found.verdict, width, rest="  ", style="good" if found.holds else "bad")
    for text in found.never_served:
        yield from wrapped(text, width, rest="  ", style="bad")
    yield from wrapped(condition_in_short(found), width, rest="  ")
    yield line()
    yield from latency_lines(requests, found, width)
    yield from wrapped(_counts(requests), width, first="  ", rest="    ")
    if found.admission is not None:
        yield from wrapped(admission_in_short(found.admission), width, first="  ", rest="    ")
    if found.summary.groups:
        yield line()
        yield from _groups(found.summary.groups, width)
    yield line()
    yield from pool_lines(found.pool, found.run.samples, width)
    yield from wrapped(_work(found), width, first="  ", rest="    ")
    yield line()
    yield line("ways to run out of memory", "head")
    yield from finding_lines(found.findings, width)
    if found.tool_waits is not None:
        yield line()
        yield from tool_wait_lines(found.tool_waits, width)
    yield line()
    yield line("this holds under", "head")
    yield from condition_lines(found.conditions, width)
    for note in found.run.notes:
        yield from wrapped(note, width, first="  ", rest="    ")


def condition_in_short(found: Simulation) -> str:
    """The weakest condition, right under the answer."""
    step = found.conditions.settings.step
    error = "" if step.relative_error is None else f", off by {step.relative_error:.1%} where it was fitted"
    return f"provided that steps take the {step.evidence.kind.value} time: {step.evidence.source}{error}"


def admission_in_short(found: AdmissionCounts) -> str:
    """What the policy in front of the queue did."""
    refused = ", ".join(f"{count:,} by {rule}" for rule, count in found.refused.items())
    reserves = (
        "" if found.policy == found.reservation.value else f", which reserves by {found.reservation.value}"
    )
    return (
        f"admission by {found.policy}{reserves}: {found.let_in_at_once:,} let in at once, {found.waited:,} waited first, "
        f"{sum(found.refused.values()):,} refused{f' ({refused})' if refused else ''}"
    )


def latency_lines(requests: GroupSummary, found: Simulation, width: int) -> list[Line]:
    """Percentiles with the aim of each and how many missed it."""
    slo = found.conditions.settings.slo
    rows: list[tuple[str, ...]] = [("", "mean", "p50", "p90", "p95", "p99", "max", "aim", "missed")]
    for name, values, aim, missed in (
        ("TTFT, ms", requests.ttft_ps, slo.ttft_ms, requests.missed_ttft),
        ("TPOT, ms", requests.tpot_ps, slo.tpot_ms, requests.missed_tpot),
        ("latency, ms", requests.latency_ps, slo.latency_ms, requests.missed_latency),
        ("queue, ms", requests.queue_ps, None, 0),
    ):
        shown = [
            _ms(value) for value in (values.mean, values.p50, values.p90, values.p95, values.p99, values.max)
        ]
        aims = ("-", "-") if aim is None else (f"{aim:,g}", f"{missed:,}")
        rows.append((name, *shown, *aims) if values.count else (name, *["-"] * 6, *aims))
    error = requests.latency_ps.relative_error
    lines = columns_within(rows, width, drop=(3, 1, 5), styles=("head",))
    if error:
        lines.append(line(f"  percentiles from a histogram, off by at most {error:.2%}", "dim"))
    return lines


def _ms(value_ps: float) -> str:
    value = value_ps / MS
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value < 10 else f"{value:.1f}"


def _counts(requests: GroupSummary) -> str:
    states = [
        f"{getattr(requests, name):,} {name.replace('_', ' ')}" for name in _STATES if getattr(requests, name)
    ]
    end = f"{requests.output_tokens_per_s:,.0f} output tokens/s over {requests.seconds:,.1f} s"
    if requests.first_sent_ps == requests.last_sent_ps:
        return f"offered {requests.offered:,}, all at one time: {', '.join(states)}; {end}"
    return (
        f"offered {requests.offered:,}, {requests.offered_per_s:.4g}/s: {', '.join(states)}; good "
        f"{requests.good_per_s:.4g}/s; {end}"
    )


def _groups(groups: Sequence[GroupSummary], width: int) -> Iterator[Line]:
    rows = [("tenant", "offered", "goodput", "TTFT p95", "TPOT p95", "latency p95", "preempted")]
    rows += [
        (
            group.name[:24],
            f"{group.offered:,}",
            f"{group.goodput:.1%}",
            _ms(group.ttft_ps.p95),
            _ms(group.tpot_ps.p95),
            _ms(group.latency_ps.p95),
            f"{group.preempted:,}",
        )
        for group in groups[:MOST_GROUPS]
    ]
    yield from columns(rows, right=range(1, 7), styles=("head",), width=width)
    if len(groups) > MOST_GROUPS:
        yield line(f"  and {len(groups) - MOST_GROUPS:,} more; --json has all", "dim")


def pool_lines(pool: PoolSummary, samples: Sequence[PoolSample], width: int) -> Iterator[Line]:
    """Quantiles of the pool, and a strip of it over time."""
    yield line("pool of one replica over time", "head")
    usable = max(pool.usable_blocks, 1)
    rows = [("", "mean", "p50", "p95", "p99", "peak", "of")]
    capacity = f"{pool.capacity_tokens:,}"
    listed: list[tuple[str, Quantiles | None, str]] = [
        ("active tokens", pool.active_tokens, capacity),
        ("logical tokens", pool.logical_tokens, ""),
        ("last-block waste", pool.waste_tokens, ""),
        ("used blocks", pool.used_blocks, f"{pool.usable_blocks:,}"),
        ("running", pool.running, ""),
        ("waiting", pool.waiting, ""),
    ]
    rows += [
        (
            name,
            f"{found.mean:,.0f}",
            f"{found.p50:,}",
            f"{found.p95:,}",
            f"{found.p99:,}",
            f"{found.max:,}",
            of,
        )
        for name, found, of in listed
        if found is not None
    ]
    yield from columns_within(rows, width, drop=(1, 4), styles=("head",))
    if samples:
        yield from _strips(samples, usable, width)
    yield from wrapped(
        f"{pool.samples:,} samples, {pool.spacing_ps / PS_PER_S:.4g} s apart; peaks between them are not seen"
        + (f"; idle {pool.idle_share:.1%} of the time" if pool.idle_share >= 0.01 else ""),
        width,
        first="  ",
        style="dim",
    )


def _strips(samples: Sequence[PoolSample], usable: int, width: int) -> Iterator[Line]:
    """Used blocks and waiting requests from left to right, the most of each span of time."""
    end_ps = max(sample.at_ps for sample in samples) + 1
    cells = width - 12
    used, waiting = [0] * cells, [0] * cells
    for sample in samples:
        place = sample.at_ps * cells // end_ps
        used[place] = max(used[place], sample.used_blocks)
        waiting[place] = max(waiting[place], sample.waiting)
    if len(samples) < cells:
        return
    tops = max(used), max(waiting)
    for name, values, top in (("used", used, tops[0]), ("waiting", waiting, tops[1])):
        text = "".join(
            _SHADES[min(value * len(_SHADES) // (max(top, 1) + 1), len(_SHADES) - 1)] for value in values
        )
        yield line(f"  {name:<7} [{text}]")
    yield line(
        f"  from 0 to {end_ps / PS_PER_S:,.1f} s; '@' is {tops[0] / usable:.1%} of the blocks, and {tops[1]:,} waiting",
        "dim",
    )


def _work(found: Simulation) -> str:
    counters = found.run.counters
    looked_up = sum(item.looked_up_tokens for item in counters)
    hit = sum(item.hit_tokens for item in counters)
    share = f" ({hit / looked_up:.1%} of {looked_up:,} looked up)" if looked_up else ""
    return (
        f"{sum(item.steps for item in counters):,} steps, {sum(item.computed_tokens for item in counters):,} tokens computed, "
        f"{hit:,} found in the cache{share}, {sum(item.evicted_blocks for item in counters):,} cached blocks evicted, "
        f"{sum(item.copied_blocks for item in counters):,} copied; {counted(sum(item.preemptions for item in counters), 'preemption')}, "
        f"{sum(item.recomputed_tokens for item in counters):,} tokens computed again"
    )


def finding_lines(findings: Sequence[Finding], width: int) -> Iterator[Line]:
    """What threatens first."""
    for item in worst_first(findings):
        when = "" if item.at_ps < 0 else f"from {item.at_ps / PS_PER_S:,.1f} s: "
        first = f"  {item.level.value:<9}  {item.shortage.value:<13}  "
        parts = wrapped(f"{when}{item.summary}", width, first=first)
        head, rest = parts[0][0][0], parts[1:]
        yield ((head[:11], _STYLES[item.level]), (head[11:], ""))
        yield from rest


def tool_wait_lines(rows: Sequence[ToolWaitRow], width: int) -> Iterator[Line]:
    """Ways to treat a conversation's KV between turns, the least wasteful first, and after how long a wait it is best let go."""
    best = min((row for row in rows if row.policy != _HINDSIGHT), key=lambda row: row.waste_token_s)
    least = next((row.waste_token_s for row in rows if row.policy == _HINDSIGHT), 0.0)
    yield line(f"KV between turns: what {rows[0].waits:,} waits would waste in a full pool", "head")
    after = (
        ""
        if best.patience_s is None
        else f" after {best.patience_s:,.3g} s (p{best.wait_quantile:.0%})".replace("%", "")
    )
    over = f", {best.waste_token_s / least:.2f} x the least in hindsight" if least else ""
    yield from wrapped(f"least: {best.policy}{after}{over}", width, first="  ", rest="    ")
    table: list[tuple[str, ...]] = [
        ("policy", "patience, s", "kept", "Mtoken-s", "link, GB", "recomputed", "PFLOP")
    ]
    for row in sorted(rows, key=lambda row: row.waste_token_s):
        table.append(
            (
                row.policy.replace("preserve, then", "then"),
                "" if row.patience_s is None else f"{row.patience_s:,.3g}",
                f"{row.found_share:.0%}",
                f"{row.waste_token_s / 1e6:,.3f}",
                f"{row.link_bytes / 1e9:,.1f}",
                f"{row.recomputed_tokens:,}",
                "-"
                if row.recomputed_tokens and not row.recompute_flops
                else f"{row.recompute_flops / 1e15:,.1f}",
            )
        )
    yield from columns(table, right=range(1, 7), styles=("head",), width=width)
    if not any(row.policy == "swap" for row in rows):
        yield from wrapped(
            "swap is left out: it needs --host-link and a plan that knows a token's bytes",
            width,
            first="  ",
            style="dim",
        )
