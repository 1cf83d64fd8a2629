"""What an engine schedules by, in words that all engines share."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.errors import InputError


class PoolRules(Struct, frozen=True, kw_only=True):
    """What an engine's version does with its pool, beyond what its ledger says.

    `reserved_blocks` of the pool that groups share are never given out (vLLM's null block). `uncached_first`, `retention_tokens`,
    `renews_states` and `aligned_commits` are those of `kvcache.blocks.layout.PoolLayout`. With `caps_admission` a whole prompt
    reserves no more blocks of a windowed group than the window ever holds (vLLM from 0.20.2).
    """

    reserved_blocks: int = 0
    uncached_first: bool = True
    retention_tokens: int | None = None
    renews_states: bool = False
    aligned_commits: bool = True
    caps_admission: bool = True


class SchedulerLimits(Struct, frozen=True, kw_only=True):
    """The limits of one instance's scheduler, in the words of the field; an engine ignores those that it does not have.

    - `max_num_batched_tokens`: tokens of one step (SGLang: of its prefill chunk; the decodes of a step come on top).
    - `long_prefill_token_threshold`: tokens of one prompt that a step computes at most, 0 for no bound. With
      `long_prefill_alone_unbounded` (vLLM since 0.31) a request that is alone is not bound by it.
    - `watermark`: share of the blocks that stay free when a waiting request is admitted while others run.
    - `reserve_full_prompt`: a request is admitted only if its whole prompt has room now (vLLM's scheduler_reserve_full_isl).
    - `priority`: requests are ordered by priority, smallest first. With `priority_goes_on` (vLLM since 0.33) a request that has to
      preempt itself does not stop the running ones behind it.
    - `states_for_resend`: the last state that a prefill keeps is one from which the same prompt, sent again, can start (vLLM since
      0.32; before, that of the prompt's last block boundary).
    - `async_scheduling`: a step is planned before the tokens of the last one are known.
    - `initial_new_token_ratio`, `min_new_token_ratio`, `new_token_ratio_decay_steps`, `clip_max_new_tokens` and `max_prefill_tokens`
      are SGLang's: the share of a running request's remaining output that is reserved, and its bounds (schedule_policy.py).
    """

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


class EngineScheduling(SchedulerLimits, frozen=True, kw_only=True):
    """What one version of an engine schedules by under a plan.

    `rules` names whose rules decide, by a value of `simulation.settings.Scheduling`. `batches` are computed at once, each by its own
    ranks, with requests and a pool of its own (data parallel ranks, DP attention); where `batches_share_experts`, the experts lie
    over the ranks of all of them.
    """

    rules: str
    pool: PoolRules = PoolRules(caps_admission=False)
    batches: int = 1
    batches_share_experts: bool = False


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
