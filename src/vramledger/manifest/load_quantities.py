"""Quantities that only an experiment on the live engine tells: capacity, latencies there, how long a step takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramledger.evidence import measured
from vramledger.manifest.declared import Latency
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.experiment_result import LoadConditions, StepTimes, limits_text
from vramledger.manifest.quantity import Bounds, Group, Quantity, Unit, Value
from vramledger.simulation.step_model import PS_PER_S, StepModel

CAPACITY = "capacity_requests_per_s"
_STEADY = "steady_"
_UNDER_LOAD = frozenset({CAPACITY, "capacity_headroom"})
_LATENCIES = tuple((metric, percentile) for metric in ("ttft", "tpot", "e2e") for percentile in (50, 95, 99))
_METRICS = {"ttft": "time to first token", "tpot": "time a token after the first", "e2e": "whole answer"}
# A step's coefficients trade against each other from fit to fit; the time of a given step does not.
_STEPS = (
    ("step_decode_1_s", "a decode step of 1 sequence of 1,024 tokens, by the fitted model", 1, 1, 1024, 0),
    ("step_decode_16_s", "a decode step of 16 of them", 16, 16, 16 * 1024, 0),
    ("step_prefill_1024_s", "a step that prefills 1,024 tokens", 1024, 0, 0, 1024 * 512),
)


def load_quantities(manifest: ManifestDocument | None) -> Iterator[Quantity]:
    """In the order of a page; None is the value of all where there is no experiment."""
    found = None if manifest is None else manifest.experiment
    point = None if found is None else found.operating_point
    yield _of(
        Unit.RATE,
        CAPACITY,
        None if point is None else point.requests_per_s,
        "the largest load that was served well",
        None
        if point is None
        else Bounds(
            low=point.low_requests_per_s,
            high=point.high_requests_per_s,
            confidence=point.confidence,
            is_at_least=point.is_limit_of_load,
        ),
    )
    yield _of(
        Unit.TEXT, "capacity_binds", None if point is None else point.binds, "what is missed first beyond it"
    )
    yield _of(
        Unit.TEXT,
        "load_conditions",
        None if found is None else conditions_text(found.conditions),
        "what load it is the capacity for",
    )
    yield _of(
        Unit.BYTES,
        "capacity_headroom",
        None if point is None else point.headroom_bytes,
        "least free on a device under it",
    )
    headrooms = [] if manifest is None else [test.smallest_headroom_bytes for test in manifest.tests]
    yield _of(
        Unit.BYTES,
        "update_headroom",
        min((size for size in headrooms if size is not None), default=None),
        "least free during updates and restarts",
    )
    pool = None if found is None else found.pool
    yield _of(
        Unit.TOKENS,
        "confirmed_kv_tokens",
        None if pool is None else pool.tokens,
        "tokens of the pool, by the live engine",
    )
    yield from _latencies("", () if point is None else point.latencies, "at the operating point")
    yield from _latencies(_STEADY, () if found is None else found.steady_latencies, "over the steady stretch")
    yield from _steps(None if found is None else found.latency_model)
    growing = None if found is None else sum(trend.verdict == "grows" for trend in found.trends)
    yield _of(Unit.COUNT, "growing", growing, "quantities that grew over the steady stretch")


def is_under_load(name: str) -> bool:
    """Whether a quantity holds only for the load that it was measured under."""
    return name in _UNDER_LOAD or is_latency(name)


def is_latency(name: str) -> bool:
    """Whether it is a latency that an experiment saw."""
    bare = name.removeprefix(_STEADY)
    return any(bare == f"{metric}_p{percentile}_s" for metric, percentile in _LATENCIES)


def seen_at(manifest: ManifestDocument, name: str) -> float | None:
    """The load, in requests a second, under which a latency was seen."""
    found = manifest.experiment
    if found is None:
        return None
    if name.startswith(_STEADY):
        return found.steady_requests_per_s
    return None if found.operating_point is None else found.operating_point.seen_at_requests_per_s


def conditions_text(load: LoadConditions) -> str:
    """ "95 % of requests within ttft 2 s, tpot 0.2 s; cohorts ...; poisson arrivals; behind a gateway"."""
    burst = f" of burstiness {load.burstiness:g}" if load.arrivals == "gamma" else ""
    return "; ".join(
        (
            limits_text(load.ttft_limit_s, load.tpot_limit_s, load.latency_limit_s, load.goodput),
            load.workload,
            f"{load.arrivals} arrivals{burst}",
            "behind a gateway" if load.is_behind_gateway else "no gateway",
        )
    )


def _latencies(prefix: str, seen: Sequence[Latency], where: str) -> Iterator[Quantity]:
    known: dict[tuple[str, float], float] = {(item.metric, item.percentile): item.seconds for item in seen}
    for metric, percentile in _LATENCIES:
        yield _of(
            Unit.SECONDS,
            f"{prefix}{metric}_p{percentile}_s",
            known.get((metric, percentile)),
            f"{_METRICS[metric]} {where}, p{percentile}",
        )


def _steps(times: StepTimes | None) -> Iterator[Quantity]:
    for name, about, tokens, seqs, kv_tokens, pairs in _STEPS:
        value = None
        if times is not None:
            step_ps = step_model(times).step_ps(
                tokens=tokens, decode_seqs=seqs, kv_tokens=kv_tokens, pairs=pairs
            )
            value = step_ps / PS_PER_S
        yield _of(Unit.SECONDS, name, value, about)
    error = None if times is None else times.relative_error
    yield _of(Unit.RATIO, "step_error", error, "how far the fitted model is off where it was not fitted")


def step_model(times: StepTimes) -> StepModel:
    """The fitted model as the simulator takes it."""
    return StepModel(
        overhead_ps=times.overhead_ps,
        floor_ps=times.floor_ps,
        token_ps=times.token_ps,
        decode_seq_ps=times.decode_seq_ps,
        kv_token_ps=times.kv_token_ps,
        pair_ps_per_1024=times.pair_ps_per_1024,
        evidence=measured("experiment", f"fitted to {', '.join(times.stages) or 'its stages'}"),
        relative_error=times.relative_error,
    )


def _of(unit: Unit, name: str, value: Value, about: str, bounds: Bounds | None = None) -> Quantity:
    return Quantity(name=name, group=Group.CAPACITY, unit=unit, value=value, about=about, bounds=bounds)
