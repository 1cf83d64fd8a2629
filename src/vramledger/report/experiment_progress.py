"""What is said of an experiment while it runs: a line for each step that begins and each stage that was sent."""

from __future__ import annotations

from vramledger.experiment.plan import Step
from vramledger.experiment.remaining import remaining_s
from vramledger.experiment.result import Experiment, Stage, StepState
from vramledger.report.quantity_words import NS_PER_S, rate_text, share_text, time_text
from vramledger.units import counted

STEPS = list(Step)


def progress_text(found: Experiment, kept: StepState | Stage) -> str | None:
    """One line, None where there is nothing to say: "[4/10] short; about 8.5 min left"."""
    if isinstance(kept, Stage):
        return f"  {_stage(kept)}{left_text(found)}"
    place = f"[{STEPS.index(kept.step) + 1}/{len(STEPS)}] {kept.step.value}"
    if kept.state == "open":
        return f"{place}{left_text(found)}"
    is_of_failure = found.failure is not None and kept.state == "skipped"
    return None if kept.state == "done" or is_of_failure else f"{place} {kept.state}: {kept.why}"


def left_text(found: Experiment) -> str:
    """ "; about 8.5 min left", empty where that is less than a second."""
    left_s = remaining_s(found)
    return f"; about {minutes_text(left_s)} left" if left_s >= 1 else ""


def minutes_text(time_s: float) -> str:
    """As exact as an estimate is: "50 s", "9 min", "1 h 20 min"."""
    if time_s < 100:
        return f"{max(round(time_s, -1), 10):.0f} s"
    minutes = round(time_s / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _stage(stage: Stage) -> str:
    figures = stage.measured
    parts = [f"{stage.name}: {rate_text(stage.per_s)}, {counted(figures.offered, 'request')}"]
    if figures.offered:
        parts.append(f"{share_text(figures.goodput)} within the aims")
    if figures.ttft_ns.count:
        parts.append(f"TTFT p99 {time_text(figures.ttft_ns.p99)}")
    if not stage.is_whole:
        parts.append(f"cut off after {time_text((stage.ended_s - stage.began_s) * NS_PER_S)}")
    return ", ".join(parts)
