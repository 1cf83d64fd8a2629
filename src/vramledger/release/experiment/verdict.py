"""What an experiment comes to, in a sentence, and under which conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.experiment.aims import aims_text
from vramledger.experiment.plan import ExperimentPlan
from vramledger.experiment.result import Experiment, Target
from vramledger.units import format_bytes


def verdict_of(found: Experiment) -> str:
    """The load that holds, at which aims and at what risk, what binds, what room is left; or that none does, or why nothing can be told."""
    point, failure = found.point, found.failure
    ended = (
        ""
        if failure is None
        else f"the engine ended in {failure.stage or failure.step.value}: {failure.words}"
    )
    if point is None:
        return ended or "no load was measured, so nothing can be told"
    limits = aims_text(found.plan.slo)
    aims = f"{100 * found.plan.goodput:g}% of requests {f'within {limits}' if limits else 'answered'}"
    if point.per_s <= 0:
        return "; ".join(
            part for part in (f"no load that was tried holds {aims}", point.words, ended) if part
        )
    interval = f"{point.low_per_s:.4g} to {point.high_per_s:.4g} at {point.confidence:.0%}"
    parts = [f"holds {point.per_s:.4g} requests/s ({interval}) with {aims}, risk {point.risk:.1%}"]
    if point.is_limit_of_load:
        parts.append("more was not tried")
    elif point.binds:
        parts.append(f"{point.binds} binds")
    if point.headroom_bytes is not None:
        parts.append(f"headroom {format_bytes(point.headroom_bytes)}")
    return "; ".join((*parts, *((ended,) if ended else ())))


def conditions_of(found: Experiment) -> tuple[str, ...]:
    """What the verdict is true under."""
    return tuple(_conditions(found.plan, found.target, found))


def _conditions(plan: ExperimentPlan, target: Target, found: Experiment) -> Iterator[str]:
    engine = " ".join(part for part in (target.engine, target.engine_version) if part)
    yield f"{engine or 'an engine that does not say which'}, model {target.model or 'unnamed'}, context {target.context_len or 'not told'}"
    if found.pool is not None and found.pool.words:
        yield f"KV pool: {found.pool.words}"
    yield "through a gateway" if target.engine_url != target.url else "asked directly"
    lengths = [
        f"{stage.kind.value} {stage.measured.prompt_tokens_mean or 0:.0f} + {stage.measured.output_tokens_mean or 0:.0f}"
        for stage in {stage.kind: stage for stage in found.stages if stage.measured.answered}.values()
    ]
    if lengths:
        yield f"prompt + output tokens a request: {', '.join(lengths)}"
    bursts = f" (burstiness {plan.burstiness:g})" if plan.arrivals == "gamma" else ""
    yield f"{plan.arrivals} arrivals{bursts}, seed {plan.seed}"
    yield f"workload: {plan.workload or 'cohorts made for the context length'}"
    late = [stage.name for stage in found.stages if not stage.drift.is_trusted]
    if late:
        yield f"the client was late in {', '.join(late)}: latencies there are upper bounds"
