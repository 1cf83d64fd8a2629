"""An experiment as a person reads it: how it stands, its figures, its conditions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

from vramledger.experiment.aims import aims_text
from vramledger.experiment.result import Check, Experiment, ForecastError, Stage, Trend
from vramledger.report.quantity_words import (
    NS_PER_S,
    figures,
    percent,
    plain_name,
    rate_text,
    share_text,
    time_text,
    trimmed,
)
from vramledger.telemetry.command_words import without_secrets
from vramledger.units import counted, format_bytes

Style = Literal["good", "unsure", "bad", ""]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the head: its name, its value, what is to be known with it."""

    name: str
    value: str
    note: str = ""
    style: Style = ""


def standing(found: Experiment) -> tuple[str, Style]:
    """How it stands in a word or three, and whether that is good."""
    if found.failure is not None:
        return "failed", "bad"
    if found.point is None:
        return "not finished", "unsure"
    if found.point.per_s <= 0:
        return "no load holds", "bad"
    if doubts(found):
        return "holds, with reservations", "unsure"
    return "holds", "good"


def doubts(found: Experiment) -> tuple[str, ...]:
    """What keeps a load that holds from being the whole answer."""
    out = [f"{item.step.value}: {item.why or 'failed'}" for item in found.steps if item.state == "failed"]
    if found.point is not None and found.point.per_s > 0 >= found.point.low_per_s:
        out.append("the interval reaches down to nothing: too few requests were sent to be sure of any load")
    out += [
        f"{plain_name(item.name)} did not pass{f': {item.words}' if item.words else ''}"
        for item in found.checks
        if item.passed is False
    ]
    out += [f"{trend_name(item)} {item.words or 'grows'}" for item in found.trends if is_growth(item)]
    if found.pool is not None and found.pool.agrees is False:
        out.append(found.pool.words or "the engine's KV pool is not the planned one")
    late = [item.name for item in found.stages if not item.drift.is_trusted]
    if late:
        out.append(f"the client was late in {', '.join(late)}, and may have changed what it measured")
    return tuple(out)


def trend_name(trend: Trend) -> str:
    """What moved; of a process also whose it is: "RSS of VLLM::EngineCore"."""
    process = trend.source.partition(" (")[2].rstrip(")") if trend.source.startswith("proc:") else ""
    return f"{plain_name(trend.name)} of {process}" if process else plain_name(trend.name)


def is_growth(trend: Trend) -> bool:
    return trend.verdict == "grows"


def notes_of(found: Experiment) -> tuple[str, ...]:
    """Its notes; of one that is over and was given no manifest also how to come by one."""
    if found.manifest_digest is not None or found.point is None:
        return found.notes
    text = (
        "no --manifest was given: no plan stands beside what was measured, and no manifest was written; one with these results: "
        "vramledger manifest MODEL --device NAME --engine NAME ... --experiment DIR --measurement DIR/measurement.json -o manifest.json"
    )
    return (*found.notes, text)


def verdict_text(found: Experiment) -> str:
    """The experiment's verdict, or what can be said before it has one."""
    if found.verdict:
        return found.verdict
    if found.failure is not None:
        return found.failure.words or f"{found.failure.classification} in {found.failure.step.value}"
    if found.point is not None:
        return found.point.words
    done = sum(item.state == "done" for item in found.steps)
    return (
        f"{done} of {counted(len(found.steps), 'step')} done; the same command with the same folder goes on"
    )


def head_facts(found: Experiment) -> list[Fact]:
    """The figures that a release is decided by."""
    out = []
    point = found.point
    if point is not None:
        ends = f"{figures(point.low_per_s)} to {figures(point.high_per_s)} at {percent(point.confidence)}"
        beyond = f"; missed at {rate_text(point.beyond_per_s)}" if point.beyond_per_s is not None else ""
        if point.is_limit_of_load:
            beyond = "; every load tried held"
        style: Style = "good" if point.per_s > 0 else "bad"
        out.append(Fact(name="load held", value=rate_text(point.per_s), note=ends + beyond, style=style))
        note = "what is missed first" if point.binds else "nothing bound up to the highest load"
        out.append(Fact(name="binds", value=point.binds or "nothing yet", note=note))
        aim = percent(found.plan.goodput)
        out.append(Fact(name="goodput there", value=share_text(point.goodput),
                        note=f"risk of a miss {share_text(point.risk)}; aim {aim}"))  # fmt: skip
        if point.headroom_bytes is not None:
            out.append(
                Fact(
                    name="least headroom",
                    value=format_bytes(point.headroom_bytes),
                    note="the least that was free",
                )
            )
    if found.pool is not None:
        out.append(_pool_fact(found))
    error = median_error(found.forecast_errors)
    if error is not None:
        note = (
            f"median over {counted(len(found.forecast_errors), 'figure')} foretold before they were measured"
        )
        out.append(Fact(name="forecast off by", value=share_text(error), note=note))
    if found.trends:
        out.append(_growth_fact(found.trends))
    if found.checks:
        out.append(_checks_fact(found.checks))
    worst = max(found.stages, key=lambda item: item.drift.late_ns.p99, default=None)
    if worst is not None:
        trusted = all(item.drift.is_trusted for item in found.stages)
        out.append(Fact(name="client late by", value=time_text(worst.drift.late_ns.p99),
                        note=f"p99 of its worst stage; {'trusted' if trusted else 'not trusted'}",
                        style="" if trusted else "bad"))  # fmt: skip
    return out


def _pool_fact(found: Experiment) -> Fact:
    pool = found.pool
    assert pool is not None
    tokens = pool.engine_tokens if pool.engine_tokens is not None else pool.planned_tokens
    value = "not told" if tokens is None else f"{tokens:,} tokens"
    if tokens is None:
        note = "neither planned nor told by the engine"
    elif pool.engine_tokens is None:
        note = "planned; the engine does not tell"
    elif pool.planned_tokens is None:
        note = "by the engine; nothing planned"
    else:
        note = f"planned {pool.planned_tokens:,}"
    styles: dict[bool | None, Style] = {True: "good", False: "bad", None: ""}
    return Fact(name="KV pool", value=value, note=note, style=styles[pool.agrees])


def _growth_fact(trends: Sequence[Trend]) -> Fact:
    grows = [trend_name(item) for item in trends if is_growth(item)]
    untold = sum(item.verdict == "untold" for item in trends)
    if grows:
        return Fact(
            name="growth", value=f"{len(grows)} of {len(trends)} grow", note=", ".join(grows), style="bad"
        )
    if untold == len(trends):
        return Fact(name="growth", value="not told", note="too short or too noisy to say", style="unsure")
    note = f"{len(trends)} watched" + (f", {untold} not told" if untold else "")
    return Fact(name="growth", value="none found", note=note, style="unsure" if untold else "good")


def _checks_fact(checks: Sequence[Check]) -> Fact:
    passed = sum(item.passed is True for item in checks)
    failed = sum(item.passed is False for item in checks)
    untold = len(checks) - passed - failed
    note = ", ".join(
        text for count, text in ((failed, f"{failed} failed"), (untold, f"{untold} not told")) if count
    )
    return Fact(name="checks", value=f"{passed} of {len(checks)} passed", note=note or "all of them",
                style="bad" if failed else "unsure" if untold else "good")  # fmt: skip


def median_error(errors: Sequence[ForecastError]) -> float | None:
    """The median of how far the forecasts were off, None where none was made."""
    return median(abs(item.relative) for item in errors) if errors else None


def model_name(found: Experiment) -> str:
    """The model's name, of a path its last part."""
    name = found.target.model
    return name.rstrip("/").rpartition("/")[2] if name.startswith(("/", "./", "../", "~")) else name


def launch_text(words: Sequence[str]) -> str:
    """A command as it may be shown."""
    return " ".join(without_secrets(words))


def conditions_of(found: Experiment) -> list[tuple[str, str]]:
    """What the verdict holds under, by name."""
    plan, target = found.plan, found.target
    who = " ".join(part for part in (target.engine, target.engine_version) if part) or "not known"
    arrivals = plan.arrivals + (
        f", burstiness {trimmed(figures(plan.burstiness))}" if plan.arrivals == "gamma" else ""
    )
    out = [
        ("engine", who),
        ("model", target.model or "not known"),
        (
            "asked at",
            target.url + (f", engine at {target.engine_url}" if target.engine_url != target.url else ""),
        ),
        ("context", "not known" if target.context_len is None else f"{target.context_len:,} tokens"),
        ("aims", f"{aims_text(plan.slo) or 'no aim'}, for {percent(plan.goodput)} of the requests offered"),
        ("workload", plan.workload or "built-in cohorts for the context length"),
        ("arrivals", f"{arrivals}, open loop, seed {plan.seed}"),
        (
            "stages",
            f"{trimmed(time_text(plan.stage_s * NS_PER_S))} each, at least {counted(plan.stage_requests, 'request')}",
        ),
        (
            "steady",
            f"{trimmed(time_text(plan.steady_s * NS_PER_S))} at {percent(plan.steady_load)} of the knee",
        ),
    ]
    if target.launched:
        out.insert(2, ("started as", launch_text(target.launched)))
    if target.gateway_url is not None:
        out.append(("gateway", target.gateway_url))
    if found.manifest_digest is not None:
        out.append(("manifest", found.manifest_digest))
    return out


def forecast_figures(stage: Stage) -> list[tuple[str, float, float]]:
    """Figures of a stage that were foretold and measured: name, forecast, measured, both in nanoseconds."""
    ours = stage.forecast
    if ours is None:
        return []
    out = []
    for name, forecast, measured in (
        ("TTFT", ours.ttft_ns, stage.measured.ttft_ns),
        ("TPOT", ours.tpot_ns, stage.measured.tpot_ns),
        ("latency", ours.latency_ns, stage.measured.latency_ns),
    ):
        if forecast.count and measured.count:
            out += [
                (f"{name} p50", float(forecast.p50), float(measured.p50)),
                (f"{name} p99", float(forecast.p99), float(measured.p99)),
            ]
    return out
