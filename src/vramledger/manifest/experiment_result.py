"""What an experiment on a live engine found, as the manifest keeps it.

Unlike declarations nobody writes these by hand: `experiment_facts` makes them of an experiment's own value. A later minor version may
add fields, which an older reader leaves alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.manifest.declared import Latency, Positive, Time, Whole

Share = Annotated[float, Meta(ge=0, le=1)]
Confidence = Annotated[float, Meta(gt=0, lt=1)]
LONGEST_TEXT = 4000
Said = Annotated[str, Meta(max_length=LONGEST_TEXT)]


def limits_text(
    ttft_limit_s: float | None, tpot_limit_s: float | None, latency_limit_s: float | None, goodput: float
) -> str:
    """ "95 % of requests within ttft 2 s, tpot 0.2 s"."""
    limits = [
        f"{name} {limit_s:g} s"
        for name, limit_s in (("ttft", ttft_limit_s), ("tpot", tpot_limit_s), ("e2e", latency_limit_s))
        if limit_s is not None
    ]
    return f"{goodput * 100:g} % of requests {'within ' + ', '.join(limits) if limits else 'answered'}"


class LoadConditions(msgspec.Struct, frozen=True, kw_only=True):
    """What a capacity is the capacity for; of two that differ in one of these neither is more than the other.

    `goodput` is the share of offered requests that had to meet the limits. `workload` is the name of its file, "cohorts for N tokens" where the
    experiment made them itself. Token counts are a request's mean, as the engine counted them.
    """

    ttft_limit_s: Positive | None
    tpot_limit_s: Positive | None
    latency_limit_s: Positive | None
    goodput: Share
    workload: Said
    arrivals: Literal["poisson", "gamma", "even", "trace"]
    burstiness: Positive
    is_behind_gateway: bool
    prompt_tokens_mean: Positive | None = None
    output_tokens_mean: Positive | None = None


class OperatingPointResult(msgspec.Struct, frozen=True, kw_only=True):
    """The largest load that was served well, 0 where none was, with the ends of its interval. Latencies are those of the stage at
    `seen_at_requests_per_s`, the nearest not above; a percentile is there only where enough requests tell it."""

    requests_per_s: Positive
    low_requests_per_s: Positive
    high_requests_per_s: Positive
    confidence: Confidence
    goodput: Share
    risk: Share
    beyond_requests_per_s: Annotated[
        float | None, Meta(description="The least load that was tried and missed the limits; null: none did.")
    ]
    binds: Said
    headroom_bytes: Annotated[
        int | None, Meta(description="The least that was free on a device, of the host where there is none.")
    ]
    is_limit_of_load: Annotated[
        bool, Meta(description="Every load that was tried was served well: the engine may hold more.")
    ]
    seen_at_requests_per_s: Positive | None = None
    latencies: tuple[Latency, ...] = ()


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The time of an engine's step in whole picoseconds, fitted to `stages`:

        overhead + max(floor, tokens * token) + decode_seqs * decode_seq + kv_tokens * kv_token + pairs * pair_per_1024 / 1024

    `relative_error` is over requests that it was not fitted to, null where none were kept for that.
    """

    overhead_ps: Whole
    floor_ps: Whole
    token_ps: Whole
    decode_seq_ps: Whole
    kv_token_ps: Whole
    pair_ps_per_1024: Whole
    outside_ps: Annotated[Whole, Meta(description="What a request takes besides the engine's steps.")] = 0
    stages: tuple[Said, ...]
    fitted_requests: Whole
    held_out_requests: Whole
    relative_error: Positive | None


class TrendResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a quantity grew over the steady stretch: its slope an hour in `unit`, with the ends of its interval. "untold" is too short
    or too noisy to say."""

    name: Said
    source: Said
    unit: Said
    slope_per_hour: float
    low_per_hour: float
    high_per_hour: float
    confidence: Confidence
    allowance_per_hour: float
    verdict: Literal["flat", "grows", "falls", "untold"]


class PoolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The KV pool as the engine told it; `agrees` is whether that lies in the plan's range, null where either is not known."""

    tokens: Whole | None
    blocks: Whole | None
    block_size: Whole | None
    agrees: bool | None
    source: Said


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at once, such as that KV came back; null is that nothing tells."""

    name: Said
    passed: bool | None
    words: Said


class ForecastErrorResult(msgspec.Struct, frozen=True, kw_only=True):
    """How far the simulator's forecasts of one figure were off, over the stages that were foretold before they were sent."""

    figure: Said
    stages: Whole
    mean_absolute_relative: Positive
    largest_absolute_relative: Positive


class ExperimentResult(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment. `skipped` and `failed` are steps of it, with why. `failure` is the class of the engine's end, null where it lived."""

    made_by: Said
    began_at: Time | None
    engine: Said | None
    engine_version: Said | None
    model: Said
    context_len: Whole | None
    seed: int
    conditions: LoadConditions
    operating_point: OperatingPointResult | None
    latency_model: StepTimes | None
    pool: PoolResult | None
    trends: tuple[TrendResult, ...]
    steady_requests_per_s: Positive | None
    steady_s: Positive | None
    steady_latencies: tuple[Latency, ...]
    checks: tuple[CheckResult, ...]
    forecast_errors: tuple[ForecastErrorResult, ...]
    skipped: tuple[Said, ...]
    failed: tuple[Said, ...]
    failure: Said | None
    is_drift_trusted: Annotated[
        bool, Meta(description="Whether the client kept its own schedule in every stage that counts.")
    ]
