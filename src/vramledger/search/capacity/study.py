"""What a study of capacity simulates: cases, loads and shapes of load, and what is kept of each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.summary import GroupSummary, PoolSummary
from vramledger.workload.request import WorkloadHeader

if TYPE_CHECKING:
    from vramledger.workload.columns import RequestColumns

BASE = "base"


class Case(Struct, frozen=True, kw_only=True):
    """One way to run the workload. `tables` names the workload's variant where the change is one of the workload."""

    settings: SimulationSettings
    tables: str = BASE
    output_scale: float = 1.0


class Burst(Struct, frozen=True, kw_only=True, tag=True):
    """`factor` times the load for `lasts_s`, from a quarter of the run on."""

    factor: float
    lasts_s: float


class Outage(Struct, frozen=True, kw_only=True, tag=True):
    """Down for `down_s` from a quarter of the run on; what was sent up to `in_flight_s` before comes once more."""

    down_s: float
    in_flight_s: float


class Task(Struct, frozen=True, kw_only=True):
    """One run: a case, a replication of the workload, and `load` times the workload's own arrival rate."""

    case: str
    replication: int
    load: float
    shape: Burst | Outage | None = None


class Measure(Struct, frozen=True, kw_only=True):
    """What a run says. `blocks` are (good, offered) over runs of consecutive requests, `peaks` the most active tokens
    in each of as many spans of time. Of a shaped run, `herd` requests came at once or in the burst, and `calm_s` is how long after the
    burst's beginning or the restart service is as asked again, None where requests end first."""

    requests: GroupSummary
    pool: PoolSummary
    blocks: tuple[tuple[int, int], ...]
    peaks: tuple[int, ...]
    preemptions: int
    steps: int
    end_s: float
    left_at_last_arrival: int
    herd: int = 0
    herd_good: int = 0
    calm_s: float | None = None


class Study(Struct, frozen=True, kw_only=True):
    """All that a worker has to know; it crosses process and machine borders once.

    `tables` holds the replications of each variant of the workload: `RequestColumns` in memory.
    """

    header: WorkloadHeader
    tables: Mapping[str, tuple[RequestColumns, ...]]
    cases: Mapping[str, Case]
    aim: float = 0.99
    blocks: int = 20
    how: str = "auto"
