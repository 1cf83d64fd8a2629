"""Why two releases' figures may say nothing of each other although both are known."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.experiment_result import LoadConditions
from vramledger.manifest.load_quantities import is_latency, seen_at
from vramledger.manifest.thresholds import Judged, Outcome

_LOADS_ALIKE = 0.1
_LOADS_MAY_DIFFER = 0.05


def comparable(judged: Judged, old: ManifestDocument, new: ManifestDocument) -> Judged:
    """UNTOLD where the two were loaded with different things."""
    if old.experiment is None or new.experiment is None:
        return judged
    was, now = old.experiment.conditions, new.experiment.conditions
    differing = [
        f"{before}, now {after}"
        for before, after in zip(_essence(was), _essence(now), strict=True)
        if before != after
    ]
    if not differing:
        return judged
    return Judged(
        text=judged.text,
        outcome=Outcome.UNTOLD,
        why=f"OLD was loaded otherwise: {'; '.join(differing)}",
    )


def at_loads(judged: Judged, name: str, old: ManifestDocument, new: ManifestDocument) -> Judged:
    """UNTOLD for a latency that was better under less load or worse under more: it grows with the load whatever the release."""
    was, now = seen_at(old, name), seen_at(new, name)
    if judged.outcome is Outcome.UNTOLD or not is_latency(name) or was is None or now is None:
        return judged
    if judged.outcome is Outcome.HELD and now < was * (1 - _LOADS_MAY_DIFFER):
        word = "less"
    elif judged.outcome is Outcome.TRIPPED and now > was * (1 + _LOADS_MAY_DIFFER):
        word = "more"
    else:
        return judged
    return Judged(
        text=judged.text,
        outcome=Outcome.UNTOLD,
        why=f"NEW was seen under {word} load ({now:.4g} requests/s, OLD {was:.4g}); {judged.why}",
    )


def _essence(load: LoadConditions) -> tuple[str, ...]:
    """What a capacity is the capacity for, each part in words."""
    limits = (("ttft", load.ttft_limit_s), ("tpot", load.tpot_limit_s), ("e2e", load.latency_limit_s))
    return (
        *(f"{name} {'of any length' if limit is None else f'{limit:g} s'}" for name, limit in limits),
        f"{load.goodput * 100:g} % of requests",
        load.workload,
        f"{load.arrivals} arrivals"
        + (f" of burstiness {load.burstiness:g}" if load.arrivals == "gamma" else ""),
        "behind a gateway" if load.is_behind_gateway else "no gateway",
    )


def doubted(judged: Judged, *documents: ManifestDocument) -> Judged:
    """UNTOLD where a client did not keep its own schedule: what it saw may be its own doing."""
    if judged.outcome is Outcome.UNTOLD or all(
        document.experiment is None or document.experiment.is_drift_trusted for document in documents
    ):
        return judged
    return Judged(
        text=judged.text,
        outcome=Outcome.UNTOLD,
        why=f"the client sent late, so that latencies may be its own; {judged.why}",
    )


def notes(old: ManifestDocument, new: ManifestDocument) -> Iterator[str]:
    """What to know of a comparison of two releases."""
    if old.digest == new.digest:
        yield "OLD and NEW are the same manifest"
    for name, was, now in (
        ("the model", old.plan.inputs.architecture, new.plan.inputs.architecture),
        ("the engine", old.plan.inputs.engine, new.plan.inputs.engine),
        ("the device", old.plan.inputs.device, new.plan.inputs.device),
    ):
        if was != now:
            yield f"{name} is another: {was} before, {now} after"
    if old.experiment is None or new.experiment is None:
        return
    for name in ("prompt_tokens_mean", "output_tokens_mean"):
        before, after = getattr(old.experiment.conditions, name), getattr(new.experiment.conditions, name)
        if before and after and abs(after / before - 1) > _LOADS_ALIKE:
            word = name.partition("_")[0]
            yield f"requests had {before:,.0f} {word} tokens each before, {after:,.0f} after: the loads are not quite alike"
    point = old.experiment.operating_point
    if point is not None and point.is_limit_of_load:
        yield "OLD served every load that it was tried with: its capacity is at least the one that is compared"
