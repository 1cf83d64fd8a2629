"""What a simulation is run with."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

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


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """An engine's limits, in the words of the field; what an engine does not have it ignores.

    `max_num_batched_tokens` is the tokens of one step (SGLang: its chunk; a step's decodes come on top there).
    `long_prefill_token_threshold` bounds a long prefill's tokens in a step; where `long_prefill_alone_unbounded` (vLLM since 0.31)
    not those of a request that is alone.
    `watermark` is the share of blocks kept free when a waiting request is admitted beside running ones.
    `reserve_full_prompt` admits only where the whole prompt has room now (vLLM's scheduler_reserve_full_isl).
    `priority` orders by priority, smallest first; with `priority_goes_on` (vLLM since 0.33) the running ones behind one that
    preempted itself are still served. `states_for_resend`: the last state that a prefill keeps is one from which the same prompt sent
    again can start (vLLM since 0.32; before, the last block boundary of the prompt). `async_scheduling` plans a step before the last one's tokens are known.
    """

    scheduling: Scheduling = Scheduling.VLLM
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    chunked_prefill: bool = True
    prefix_caching: bool = True
    priority: bool = False
    priority_goes_on: bool = False
    states_for_resend: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_alone_unbounded: bool = True
    watermark: float = 0.0
    reserve_full_prompt: bool = True
    async_scheduling: bool = False
    # SGLang: the share of a running request's remaining output that is reserved (design: schedule_policy.py).
    initial_new_token_ratio: float = 0.7
    min_new_token_ratio: float = 0.098
    new_token_ratio_decay_steps: int = 600
    clip_max_new_tokens: int = 4096
    max_prefill_tokens: int = 16_384


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
    back, `DISCARD` drops them and computes them anew.
    """

    RELEASE = "release"
    PRESERVE = "preserve"
    SWAP = "swap"
    DISCARD = "discard"


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
