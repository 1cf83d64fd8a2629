"""What an experiment has in rows, alike for a page and a terminal: heads, and cells as text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from vramledger.experiment.result import Experiment, ForecastError, LoadFigures
from vramledger.report.experiment_words import Style, trend_name
from vramledger.report.quantity_words import (
    NS_PER_S,
    figures,
    percent,
    plain_name,
    quantity_text,
    share_text,
    time_text,
    unit_of,
)
from vramledger.report.text import utc_text
from vramledger.simulation.summary import Quantiles

_STATES: dict[str, Style] = {"open": "unsure", "done": "good", "skipped": "", "failed": "bad"}
_VERDICTS: dict[str, Style] = {"flat": "good", "grows": "bad", "falls": "", "untold": "unsure"}
_PASSED: dict[bool | None, tuple[str, Style]] = {
    True: ("passed", "good"),
    False: ("failed", "bad"),
    None: ("not told", "unsure"),
}


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of text under heads. `texts` are the places of columns that are words and not figures; `styles` one for each row; `drop` what a
    narrow terminal leaves out, first first."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int] = frozenset({0})
    styles: tuple[Style, ...] = ()
    drop: tuple[int, ...] = ()


def steps_table(found: Experiment) -> Table:
    """Each step, how far it is, how long it took, and why where that is to be told."""
    rows = []
    for item in found.steps:
        took = ""
        if item.began_s is not None and item.ended_s is not None:
            took = time_text((item.ended_s - item.began_s) * NS_PER_S)
        rows.append((item.step.value, item.state, took, item.why))
    return Table(
        heads=("step", "state", "took", "why"),
        rows=tuple(rows),
        texts=frozenset({0, 1, 3}),
        styles=tuple(_STATES[item.state] for item in found.steps),
    )


def stages_table(found: Experiment) -> Table:
    """Each stretch of load with its figures."""
    heads = (
        "stage", "kind", "offered /s", "requests", "goodput", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "tokens/s",
        "refused", "failed", "left", "preempted", "KV peak", "client late p99",
    )  # fmt: skip
    rows, styles = [], []
    for item in found.stages:
        got = item.measured
        rows.append((
            item.name, item.kind.value, figures(item.per_s), f"{got.offered:,}", share_text(got.goodput),
            *_two(got.ttft_ns), *_two(got.tpot_ns), figures(got.output_tokens_per_s),
            f"{got.refused:,}", f"{got.failed:,}", f"{got.left:,}", _told(got.preemptions),
            "-" if got.kv_usage_peak_ratio is None else share_text(got.kv_usage_peak_ratio),
            time_text(item.drift.late_ns.p99),
        ))  # fmt: skip
        styles.append(_goodput_style(got, found.plan.goodput))
    return Table(
        heads=heads,
        rows=tuple(rows),
        texts=frozenset({0, 1}),
        styles=tuple(styles),
        # What never happened goes first, what did stays.
        drop=tuple(
            sorted((12, 11, 9, 13, 15, 14, 7, 5, 1, 10, 3, 8), key=lambda column: _happened(found, column))
        ),
    )


def _happened(found: Experiment, column: int) -> bool:
    name = {10: "refused", 11: "failed"}.get(column)
    return name is not None and any(getattr(stage.measured, name) for stage in found.stages)


def forecast_table(found: Experiment) -> Table:
    """What was foretold, what came, how far off."""
    rows = []
    for item in found.forecast_errors:
        unit = unit_of(item.figure)
        rows.append((
            item.stage, plain_name(item.figure), quantity_text(item.forecast, unit),
            quantity_text(item.measured, unit), f"{100 * item.relative:+.1f} %",
        ))  # fmt: skip
    return Table(
        heads=("stage", "figure", "foretold", "measured", "off by"), rows=tuple(rows), texts=frozenset({0, 1})
    )


def accuracy_table(found: Experiment) -> Table:
    """Figures that were foretold (of latencies medians and 99th percentiles), over all stages: how far off by the median, to which side, and
    where most."""
    by_figure: dict[str, list[ForecastError]] = {}
    for item in found.forecast_errors:
        if item.figure.endswith((" mean", " p90")):
            continue
        by_figure.setdefault(item.figure, []).append(item)
    rows = []
    for figure, items in by_figure.items():
        worst = max(items, key=lambda item: abs(item.relative))
        rows.append((
            plain_name(figure), f"{len(items):,}", share_text(median(abs(item.relative) for item in items)),
            f"{100 * median(item.relative for item in items):+.1f} %", f"{100 * worst.relative:+.1f} %", worst.stage,
        ))  # fmt: skip
    return Table(
        heads=("figure", "stages", "off by, median", "foretold less measured", "at worst", "in stage"),
        rows=tuple(rows),
        texts=frozenset({0, 5}),
        drop=(3, 1),
    )


def trends_table(found: Experiment, *, has_flat: bool = True) -> Table:
    """What was watched over the steady stretch, and how it moved in an hour; without `has_flat` only what did not stay as it was."""
    rows = []
    trends = [item for item in found.trends if has_flat or item.verdict != "flat"]
    for item in trends:
        unit = item.unit or unit_of(item.name)
        low, high = (_signed(value, unit) for value in (item.low_per_hour, item.high_per_hour))
        is_told = item.verdict != "untold" or item.low_per_hour != item.high_per_hour
        rows.append((
            trend_name(item), item.source, item.verdict, _signed(item.slope_per_hour, unit) if is_told else "-",
            f"{low} to {high} ({percent(item.confidence)})" if is_told else "-", f"{item.samples:,}", item.words,
        ))  # fmt: skip
    return Table(
        heads=("quantity", "source", "verdict", "an hour", "interval", "samples", "in words"),
        rows=tuple(rows),
        texts=frozenset({0, 1, 2, 6}),
        styles=tuple(_VERDICTS[item.verdict] for item in trends),
        drop=(1, 5, 4),
    )


def checks_table(found: Experiment) -> Table:
    """What was looked at once."""
    rows, styles = [], []
    for item in found.checks:
        word, style = _PASSED[item.passed]
        unit = item.unit
        before, after = (
            "" if value is None else quantity_text(value, unit) for value in (item.before, item.after)
        )
        least = item.smallest_headroom_bytes
        rows.append((
            plain_name(item.name), item.step.value, word, before, after,
            "" if least is None else quantity_text(least, "bytes"), item.words,
        ))  # fmt: skip
        styles.append(style)
    return Table(
        heads=("check", "step", "result", "before", "after", "least headroom", "in words"),
        rows=tuple(rows),
        texts=frozenset({0, 1, 2, 6}),
        styles=tuple(styles),
        drop=(1, 5, 3, 4),
    )


def snapshots_table(found: Experiment) -> Table:
    """Memory at each moment that was held fast: the sum over processes, and each device."""
    columns: dict[str, str] = {}
    cells: list[dict[str, float]] = []
    for shot in found.snapshots:
        row: dict[str, float] = {}
        for sample in shot.samples:
            name = _SHOWN.get(sample.name)
            if name is None:
                continue
            key = sample.name if sample.pid is not None else f"{sample.name} {sample.source}"
            columns.setdefault(key, name if sample.pid is not None else f"{name}, {sample.source}")
            row[key] = row.get(key, 0.0) + float(sample.value)
        cells.append(row)
    rows = tuple(
        (shot.label, utc_text(shot.at_s), *(quantity_text(row[key], "bytes") if key in row else "-" for key in columns))
        for shot, row in zip(found.snapshots, cells, strict=True)
    )  # fmt: skip
    return Table(heads=("when", "at", *columns.values()), rows=rows, texts=frozenset({0, 1}), drop=(1,))


_SHOWN = {
    "pss_bytes": "proportional",
    "rss_bytes": "resident",
    "device_used_bytes": "device used",
    "process_device_bytes": "device, processes",
    "torch_reserved_bytes": "reserved by torch",
    "torch_allocated_bytes": "allocated by torch",
    "cgroup_current_bytes": "control group",
    "host_available_bytes": "host available",
}


def without_empty(table: Table) -> Table:
    """A table without columns that have nothing in any row."""
    kept = [
        place for place in range(len(table.heads)) if any(row[place] not in ("", "-") for row in table.rows)
    ]
    where = {place: number for number, place in enumerate(kept)}
    return msgspec.structs.replace(
        table,
        heads=tuple(table.heads[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
        texts=frozenset(where[place] for place in table.texts if place in where),
        drop=tuple(where[place] for place in table.drop if place in where),
    )


def _goodput_style(got: LoadFigures, aim: float) -> Style:
    return "good" if got.goodput >= aim else "bad"


def _two(found: Quantiles) -> Sequence[str]:
    return (time_text(found.p50), time_text(found.p99)) if found.count else ("-", "-")


def _told(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _signed(value: float, unit: str) -> str:
    return ("+" if value > 0 else "") + quantity_text(value, unit)
