"""What a simulation is run with."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from vramledger.engines.scheduling import SchedulerLimits
from vramledger.kvcache.blocks.layout import PoolLayout
from vramledger.simulation.step_model import StepModel


class Scheduling(StrEnum):
    """Whose rules decide what runs in a step."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM_NO_EVICT = "tensorrt-llm-no-evict"
    TRTLLM_MAX_UTILIZATION = "tensorrt-llm-max-utilization"
    STATIC_BATCH = "static-batch"
    LLAMACPP = "llama.cpp"


class SchedulerSettings(SchedulerLimits, frozen=True, kw_only=True):
    """An engine's limits, and whose rules decide within them."""

    scheduling: Scheduling = Scheduling.VLLM


class Router(StrEnum):
    """Which replica a request goes to."""

    ROUND_ROBIN = "round-robin"
    LEAST_KV = "least-kv"
    PREFIX_AWARE = "prefix-aware"


class Fleet(Struct, frozen=True, kw_only=True):
    """Replicas of one instance. With `prefill_replicas` those only prefill, and the KV goes over a link to the others.

    A replica with more than `prefix_load_percent` of the mean load is not chosen for the prefix that it has.
    """

    replicas: int = 1
    router: Router = Router.ROUND_ROBIN
    prefill_replicas: int = 0
    link_bytes_per_s: int = 0
    kv_bytes_per_token: int = 0
    prefix_load_percent: int = 150


class ToolWait(StrEnum):
    """What becomes of a conversation's KV while its next turn is being prepared.

    `RELEASE` is what engines do: blocks stay findable until evicted. `PRESERVE` pins them, `SWAP` moves them to the host and
    back, `DISCARD` drops them and computes them anew. `LEARNED` pins them while nobody waits for room or the wait is likely short, as learned
    from those before (`admission.tool_wait`), and then releases them, or moves them to the host where a link is given and that wastes less.
    """

    RELEASE = "release"
    PRESERVE = "preserve"
    SWAP = "swap"
    DISCARD = "discard"
    LEARNED = "learned"


class Slo(Struct, frozen=True, kw_only=True):
    """What a request must meet to count as served well; None is no aim."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None


class SimulationSettings(Struct, frozen=True, kw_only=True):
    """Everything a run depends on besides its workload: equal settings and workload give equal results, bit for bit."""

    layout: PoolLayout
    scheduler: SchedulerSettings
    step: StepModel
    fleet: Fleet = Fleet()
    tool_wait: ToolWait = ToolWait.RELEASE
    slo: Slo = Slo()
    host_link_bytes_per_s: int = 0
    host_swap_bytes: int = 0
    follow_parents: bool = True
    time_limit_ps: int | None = None
