"""What an engine schedules by, in words that all engines share."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.errors import InputError


class EngineScheduling(Struct, frozen=True, kw_only=True):
    """The limits of one instance's scheduler.

    `rules` names whose rules decide: "vllm", "sglang", "tensorrt-llm-no-evict", "tensorrt-llm-max-utilization",
    "static-batch" or "llama.cpp". `reserved_blocks` are never given out (vLLM's null block), `uncached_first` is how a block without findable
    content comes back to the pool, `retention_tokens`, `renews_states` and `aligned_commits` what of windows and states is kept findable and when
    (kvcache.blocks.layout.PoolLayout), `caps_admission` whether a whole prompt is reserved by what a windowed group can hold at
    most. The other fields are those of the simulation's `SchedulerSettings`, with the same names.
    """

    rules: str
    reserved_blocks: int = 0
    uncached_first: bool = True
    retention_tokens: int | None = None
    renews_states: bool = False
    aligned_commits: bool = True
    caps_admission: bool = False
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
    initial_new_token_ratio: float = 0.7
    min_new_token_ratio: float = 0.098
    new_token_ratio_decay_steps: int = 600
    clip_max_new_tokens: int = 4096
    max_prefill_tokens: int = 16_384


class Planned:
    """The settings of a plan by name, each asked for as the type it has."""

    def __init__(self, plan: Plan) -> None:
        self._values: Mapping[str, str | int | float | bool] = dict(plan.inputs.settings)

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number. Raises InputError where the plan has none and there is no default."""
        value = self._values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"the plan's settings have no whole number {name}", setting=name)
        return value

    def number(self, name: str, default: float) -> float:
        value = self._values.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InputError(f"the plan's setting {name} is no number", setting=name)
        return float(value)

    def switch(self, name: str, default: bool) -> bool:
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            raise InputError(f"the plan's setting {name} is neither true nor false", setting=name)
        return value

    def text(self, name: str, default: str) -> str:
        value = self._values.get(name, default)
        if not isinstance(value, str):
            raise InputError(f"the plan's setting {name} is no text", setting=name)
        return value
