"""What an experiment does: its aims, the load it sends, how long it looks."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from vramledger.simulation.settings import Slo


class Step(StrEnum):
    """The steps, in their order."""

    LOAD = "load"
    """Memory before the engine is started and after its weights are there."""
    WARM_UP = "warm-up"
    """Every shape that the load will have, once, and what graphs are captured; memory again."""
    POOL = "pool"
    """The KV pool as the engine tells of it, beside the plan's."""
    SHORT = "short"
    """Short requests, their rate raised until the aims are missed or the engine refuses."""
    MIXED = "mixed"
    """Long prompts and long outputs among them, the rate raised again."""
    PREFIX = "prefix"
    """The same load with prompts that share a beginning, and with prompts that share none."""
    DISTURBED = "disturbed"
    """Arrivals in bursts, clients that leave, and conversations that wait for tools."""
    STEADY = "steady"
    """One load for long, watched for what grows."""
    RESTART = "restart"
    """The engine restarted, and replaced while a second one comes up, under load."""
    POINT = "operating-point"
    """The largest load that is served well, from all of the above."""


class Kind(StrEnum):
    """What the requests of a stage are like."""

    SHORT = "short"
    MIXED = "mixed"
    PREFIX_HIT = "prefix-hit"
    PREFIX_MISS = "prefix-miss"
    BURST = "burst"
    """As mixed, with gamma arrivals whose gaps vary three times as much as their mean."""
    CANCELLED = "cancelled"
    TOOLS = "tools"


class ExperimentPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a person may choose. Times in seconds, rates in requests (of agents: sessions) a second.

    `goodput` is the share of offered requests that must meet `slo`. `workload` is a cohort file or a trace; None: cohorts made for the
    engine's context length. `start_per_s` None is found from the warm-up. A ladder of stages of `stage_s` each (and at least
    `stage_requests` requests) is climbed by `growth`, at most `most_stages` high; around the knee it is refined to `resolution`.
    `steady_load` is the share of the knee that is held for `steady_s`.
    """

    slo: Slo = Slo(ttft_ms=2000.0, tpot_ms=200.0)
    goodput: float = 0.95
    confidence: float = 0.95
    workload: str | None = None
    arrivals: Literal["poisson", "gamma", "even", "trace"] = "poisson"
    burstiness: float = 1.0
    seed: int = 0
    start_per_s: float | None = None
    growth: float = 1.5
    resolution: float = 0.1
    stage_s: float = 60.0
    stage_requests: int = 30
    most_stages: int = 12
    steady_s: float = 1800.0
    steady_load: float = 0.8
    drain_s: float = 60.0
    interval_s: float = 1.0
    retries: int = 3
    skip: tuple[Step, ...] = ()
