"""The answer about capacity, as values."""

from __future__ import annotations

from msgspec import Struct

from vramledger.search.capacity.bands import Band
from vramledger.simulation.settings import Slo
from vramledger.simulation.summary import GroupSummary, PoolSummary, Quantiles


class Percentiles(Struct, frozen=True, kw_only=True):
    """Of a time at one load, in milliseconds, the worst replication's."""

    p50: float
    p95: float
    p99: float


class LoadPoint(Struct, frozen=True, kw_only=True):
    """One load that was tried. `per_s` is the arrival rate it stands for."""

    load: float
    per_s: float
    goodput: Band
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    latency_ms: Percentiles
    preemptions: int
    used_p95: float
    left_at_last_arrival: int

    @property
    def ttft_p99_ms(self) -> float:
        """The first token's, for who shows one."""
        return self.ttft_ms.p99

    @property
    def tpot_p99_ms(self) -> float:
        """A later token's."""
        return self.tpot_ms.p99


class Relief(Struct, frozen=True, kw_only=True):
    """What more of one resource does at the first load that is not met: the goodput with it, and the share of what was missed
    that it recovers."""

    resource: str
    change: str
    goodput: float
    recovered: float


class Change(Struct, frozen=True, kw_only=True):
    """The capacity with one thing changed; `per_s` None where that could not be had (`refusal` says why). `is_least` is that every
    load tried was met."""

    factor: str
    change: str
    per_s: float | None
    relative: float | None
    is_least: bool = False
    refusal: str = ""


class BurstRoom(Struct, frozen=True, kw_only=True):
    """A burst of `factor` times the operating load for `lasts_s`: its own requests, and the share of them served well."""

    factor: float
    lasts_s: float
    requests: int
    goodput: float


class RestartRoom(Struct, frozen=True, kw_only=True):
    """What an outage of `down_s` does: requests that come at once, the share of them served well, and how long after the
    restart service is as asked again, None where requests end first."""

    down_s: float
    herd: int
    herd_goodput: float
    calm_s: float | None


class Capacity(Struct, frozen=True, kw_only=True):
    """The largest load that is served well, with everything it is so under.

    `load` is a multiple of the workload's own arrival rate `base_per_s`; 0 is that no load is. `low` and `high` are the ends of
    the interval of `confidence`. `beyond` is the nearest load tried that is not met, None where the aim was met at every load.
    Active tokens are one replica's at the answer's load, `peak_tokens` the most in each of several spans of the run.
    """

    slo: Slo
    aim: float
    confidence: float
    resolution: float
    replications: int
    requests: int
    base_per_s: float
    load: float
    low: float
    high: float
    beyond: float | None
    is_monotone: bool
    points: tuple[LoadPoint, ...]
    at: GroupSummary | None = None
    pool: PoolSummary | None = None
    active_tokens: Quantiles = Quantiles()
    peak_tokens: Quantiles = Quantiles()
    binds: tuple[str, ...] = ()
    reliefs: tuple[Relief, ...] = ()
    operating_load: float = 0.0
    bursts: tuple[BurstRoom, ...] = ()
    restarts: tuple[RestartRoom, ...] = ()
    changes: tuple[Change, ...] = ()
    runs: int = 0
    notes: tuple[str, ...] = ()

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return self.load * self.base_per_s
