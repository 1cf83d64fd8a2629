"""What is told of measured runs, with the worst lines first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from tools.fidelity.curves import CurveError
from tools.fidelity.pools import PoolCheck
from tools.fidelity.replay import Figure, Part, Replay

AIM_PERCENT = 2.0
AIMED = ("TTFT mean", "TTFT p99", "TPOT mean", "latency mean", "makespan")
_PUBLISHED = {
    "TTFT mean": "TTFT Mean",
    "TTFT p50": "TTFT Median",
    "TTFT p90": "TTFT P90",
    "TTFT p99": "TTFT P99",
    "TPOT mean": "TPOT Mean",
    "TPOT p50": "TPOT Median",
    "TPOT p90": "TPOT P90",
    "TPOT p99": "TPOT P99",
    "latency mean": "Latency Mean",
    "latency p50": "Latency Median",
    "latency p90": "Latency P90",
    "latency p99": "Latency P99",
}
PUBLISHED_COUNTS = (194, 110_596, 4_848)
"""What LLMServingSim 2.0 counted on the RTX 4090 run: preemptions, recomputed tokens, hit tokens."""


class Report(Struct, frozen=True, kw_only=True):
    """One run's results."""

    name: str
    model: str
    device: str
    engine_version: str
    pool: PoolCheck
    replay: Replay
    curves: tuple[CurveError, ...]
    published: dict[str, float]
    picture: str = ""


def worst_lines(reports: Sequence[Report]) -> list[str]:
    """Every figure of every part, the largest difference first."""
    rows = [
        (figure.percent, report.name, part.name, figure)
        for report in reports
        for part in report.replay.parts
        for figure in part.figures
    ]
    rows.sort(key=lambda row: -abs(row[0]))
    return [
        f"{percent:+7.2f} %  {name:24} {part:12} {figure.name:13} {seconds(figure.measured_s):>10} measured, "
        f"{seconds(figure.simulated_s)} simulated"
        for percent, name, part, figure in rows
    ]


def text(reports: Sequence[Report], *, worst: int) -> str:
    lines = ["Worst figures:", *(f"  {line}" for line in worst_lines(reports)[:worst])]
    for report in reports:
        lines += ["", f"{report.name}: {report.model} on {report.device}, vllm {report.engine_version}"]
        lines.append(f"  KV blocks {_pool_words(report.pool)}")
        lines += [f"  {line}" for line in table(report, plain=True)]
        lines.append(f"  {counts(report)}")
        lines += [f"  {curve_words(error)}" for error in report.curves]
        lines.append(f"  {admission(report.replay)}")
    missed = missed_aims(reports)
    lines += [
        "",
        f"Aims within {AIM_PERCENT:g} % on the whole run: {'all met' if not missed else ', '.join(missed)}",
    ]
    return "\n".join(lines)


def missed_aims(reports: Sequence[Report]) -> list[str]:
    """Figures of whole runs that are further off than the aim."""
    return [
        f"{report.name} {figure.name} {figure.percent:+.2f} %"
        for report in reports
        for part in report.replay.parts
        if part.name == "whole run"
        for figure in part.figures
        if figure.name in AIMED and abs(figure.percent) > AIM_PERCENT
    ]


def table(report: Report, *, plain: bool) -> Iterator[str]:
    """Measured and simulated on the whole run, then the differences by part."""
    by_part = {part.name: part for part in report.replay.parts}
    whole = by_part["whole run"]
    heads = [
        "",
        "measured",
        "simulated",
        "whole run",
        "fitted half",
        "other half",
        "roofline",
        "LLMServingSim",
    ]
    rows = [heads]
    for place, figure in enumerate(whole.figures):
        published = report.published.get(_PUBLISHED.get(figure.name, ""))
        rows.append(
            [
                figure.name,
                seconds(figure.measured_s),
                seconds(figure.simulated_s),
                _percent(figure),
                _percent(by_part["fitted half"].figures[place]),
                _percent(by_part["other half"].figures[place]),
                _percent(_whole(report.replay.roofline).figures[place]),
                "-" if published is None else f"{published:+.1f} %",
            ]
        )
    if plain:
        widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
        for row in rows:
            yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        return
    yield f"| {' | '.join(rows[0])} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows[1:]:
        yield f"| {' | '.join(row)} |"


def _whole(parts: Sequence[Part]) -> Part:
    return next(part for part in parts if part.name == "whole run")


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"


def _percent(figure: Figure) -> str:
    return f"{figure.percent:+.2f} %"


def count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _pool_words(pool: PoolCheck) -> str:
    words = f"{pool.low:,} to {pool.high:,}, expected {pool.expected:,}"
    if pool.expected_with_recorded_total is not None:
        words += f" ({pool.expected_with_recorded_total:,} with the card's recorded total)"
    if pool.recorded is None:
        return f"{words}; not recorded"
    return f"{words}; recorded {pool.recorded:,}, {'inside' if pool.is_inside else 'OUTSIDE'}"


def counts(report: Report) -> str:
    counters = report.replay.counters
    words = (
        f"Simulated: {counters.preemptions} preemptions, {counters.recomputed_tokens:,} tokens recomputed, "
        f"{counters.hit_tokens:,} prompt tokens hit, {counters.steps:,} steps"
    )
    if report.name.startswith("RTX4090_Llama-3.1-8B") and report.published:
        preemptions, recomputed, hits = PUBLISHED_COUNTS
        words += f" (LLMServingSim 2.0: {preemptions}, {recomputed:,} and {hits:,})"
    return words


def curve_words(error: CurveError) -> str:
    unit = " points" if error.unit == "%" else ""
    return (
        f"{error.name}: mean {error.measured_mean:.1f}{error.unit} measured, {error.simulated_mean:.1f}{error.unit} simulated, "
        f"{error.mean_distance:.2f}{unit} apart on average"
    )


def admission(made: Replay) -> str:
    order = "in the measured order" if made.same_order else "in ANOTHER order than measured"
    return (
        f"Requests are admitted {order}, {made.admission_median_s:.2f} s from the measured instant in the middle and "
        f"{made.admission_p95_s:.2f} s at p95"
    )
