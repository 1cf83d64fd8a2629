"""What an experiment has found so far: the value that is kept in its folder, resumed from, shown and put into the manifest."""

from __future__ import annotations

from typing import Literal

import msgspec

from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.observation import Sample
from vramledger.simulation.step_model import StepModel
from vramledger.simulation.summary import Quantiles

SCHEMA_VERSION = "1.0"
State = Literal["open", "done", "skipped", "failed"]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Who was asked. `url` is where requests go; `engine_url` is the engine itself where a gateway is between, `gateway_url` then the
    gateway's admin address. What is not known is None."""

    url: str
    engine_url: str
    gateway_url: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    model: str = ""
    context_len: int | None = None
    launched: tuple[str, ...] = ()
    pid: int | None = None


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a step is; `why` says what was skipped or failed. Unix times."""

    step: Step
    state: State = "open"
    why: str = ""
    began_s: float | None = None
    ended_s: float | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at one moment: "before load", "after load", "after warm-up", "before restart", "after drain" and so on."""

    label: str
    at_s: float
    samples: tuple[Sample, ...] = ()


class PoolConfirmed(msgspec.Struct, frozen=True, kw_only=True):
    """The KV pool by the plan (None without one) and by the engine (None where it does not tell). `agrees` is whether what the engine tells
    lies in the plan's range; `words` says it as a sentence."""

    planned_tokens: int | None = None
    planned_tokens_low: int | None = None
    planned_tokens_high: int | None = None
    planned_blocks: int | None = None
    engine_tokens: int | None = None
    engine_blocks: int | None = None
    block_size: int | None = None
    source: str = ""
    agrees: bool | None = None
    words: str = ""


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the client itself was late in sending, over all requests of a stage; `is_trusted` False where that may have changed
    what was measured."""

    late_ns: Quantiles = Quantiles()
    is_trusted: bool = True


class LoadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of load in figures, measured or simulated alike. `offered` counts all requests, and `good` those of them that met every
    aim; `refused` got 429 or 503 (and no more tries), `failed` anything else that was no answer, `left` was not waited for. Percentiles are
    over the requests that got so far. Peaks are None where nothing tells of them."""

    offered: int = 0
    offered_per_s: float = 0.0
    finished: int = 0
    refused: int = 0
    failed: int = 0
    left: int = 0
    good: int = 0
    ttft_ns: Quantiles = Quantiles()
    tpot_ns: Quantiles = Quantiles()
    latency_ns: Quantiles = Quantiles()
    prompt_tokens: int = 0
    cached_prompt_tokens: int | None = None
    output_tokens: int = 0
    output_tokens_per_s: float = 0.0
    preemptions: int | None = None
    kv_usage_peak_ratio: float | None = None
    running_peak: int | None = None

    @property
    def goodput(self) -> float:
        """Good requests of those offered; 1 where none was."""
        return self.good / self.offered if self.offered else 1.0

    @property
    def answered(self) -> int:
        """Requests that got as far as a first token, whose tokens are counted."""
        return self.ttft_ns.count or self.finished

    @property
    def prompt_tokens_mean(self) -> float | None:
        """Of a request that was answered; None where none was."""
        return self.prompt_tokens / self.answered if self.answered and self.prompt_tokens > 0 else None

    @property
    def output_tokens_mean(self) -> float | None:
        """Of a request that was answered; None where none was."""
        return self.output_tokens / self.answered if self.answered and self.output_tokens > 0 else None


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of load. `forecast` was made before it was sent. `records` is the file of its requests, in the folder."""

    step: Step
    name: str
    kind: Kind
    per_s: float
    seconds: float
    seed: int
    began_s: float
    ended_s: float
    records: str
    measured: LoadFigures
    forecast: LoadFigures | None = None
    drift: Drift = Drift()
    is_whole: bool = True
    notes: tuple[str, ...] = ()


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a quantity grew over a stretch: its slope an hour in its own unit with the ends of its interval, and what that says. `allowance`
    is a growth an hour that is not looked at. "untold" is too short or too noisy to say."""

    name: str
    source: str = ""
    unit: str = ""
    slope_per_hour: float
    low_per_hour: float
    high_per_hour: float
    confidence: float
    allowance_per_hour: float = 0.0
    first: float = 0.0
    last: float = 0.0
    samples: int = 0
    verdict: Literal["flat", "grows", "falls", "untold"] = "untold"
    words: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at once: that KV came back, that a restart kept its headroom. `passed` None is that nothing tells."""

    name: str
    step: Step
    passed: bool | None = None
    before: float | None = None
    after: float | None = None
    unit: str = ""
    smallest_headroom_bytes: int | None = None
    source: str = ""
    at_s: float = 0.0
    words: str = ""


class LatencyModel(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a step, fitted to the stages named; `relative_error` is over requests that it was not fitted to. `outside_ns` is what a
    request takes besides the engine's steps."""

    step: StepModel
    outside_ns: int = 0
    stages: tuple[str, ...] = ()
    fitted_requests: int = 0
    held_out_requests: int = 0
    relative_error: float | None = None


class ForecastError(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one stage, foretold and measured, in the figure's own unit; `relative` is their difference by the measured one."""

    stage: str
    figure: str
    forecast: float
    measured: float
    relative: float


class OperatingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The largest load that is served well: `per_s`, 0 where none is, with the ends of its interval. `beyond_per_s` is the least load that was
    tried and missed the aims, None where none did. `binds` is what is missed first there ("time to first token", "kv", "memory",
    "refused"...), `risk` the share of requests that miss the aims at the point. `headroom_bytes` is the least that was free on a device, of the host
    and its control groups where there is none."""

    per_s: float
    low_per_s: float
    high_per_s: float
    confidence: float
    goodput: float
    risk: float
    beyond_per_s: float | None = None
    binds: str = ""
    headroom_bytes: int | None = None
    is_limit_of_load: bool = False
    words: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's end, or an out-of-memory error, before the aims were missed: its class as `vramledger diagnose` tells it."""

    step: Step
    at_s: float
    stage: str = ""
    classification: str = ""
    words: str = ""
    evidence: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Written anew after every stage, so that what ends in the middle is continued; `verdict` and `conditions` come last."""

    schema_version: str = SCHEMA_VERSION
    kind: Literal["experiment"] = "experiment"
    made_by: str = ""
    began_s: float
    plan: ExperimentPlan
    target: Target
    manifest_digest: str | None = None
    steps: tuple[StepState, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    pool: PoolConfirmed | None = None
    stages: tuple[Stage, ...] = ()
    trends: tuple[Trend, ...] = ()
    checks: tuple[Check, ...] = ()
    latency_model: LatencyModel | None = None
    forecast_errors: tuple[ForecastError, ...] = ()
    point: OperatingPoint | None = None
    failure: Failure | None = None
    verdict: str = ""
    conditions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
