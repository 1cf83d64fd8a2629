"""What SGLang schedules by: a soft reservation of outputs.

Source: sglang srt/managers/scheduler.py and schedule_policy.py, srt/environ.py (the ratios): the share of a running request's
remaining output that is reserved starts at 0.7 x conservativeness (at most 1) and falls to 0.14 of that in 600 steps
without a retraction; DP attention multiplies conservativeness by 0.3.
"""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.engines.scheduling import EngineScheduling, Planned
from vramledger.errors import InputError

INITIAL_RATIO, FLOOR_SHARE, DECAY_STEPS = 0.7, 0.14, 600
DP_ATTENTION = 0.3
CONTEXTS, FEWEST, MOST = 512, 2048, 4096


def scheduling(plan: Plan) -> EngineScheduling:
    """Raises InputError for a plan without a pool."""
    planned = Planned(plan)
    pool = plan.kv_pool
    if pool is None:
        raise InputError("the plan leaves no KV pool: there is nothing to schedule over")
    context, tokens = planned.count("context_length"), pool.tokens.expected
    chunk = planned.count("chunked_prefill_size")
    prefill = planned.count("max_prefill_tokens", 16_384)
    ratio = INITIAL_RATIO * (DP_ATTENTION if planned.switch("enable_dp_attention", False) else 1)
    return EngineScheduling(
        rules="sglang",
        batches=max(plan.inputs.dp, 1),
        batches_share_experts=planned.switch("enable_dp_attention", False),
        max_num_seqs=_requests(planned, context, tokens),
        max_num_batched_tokens=chunk if chunk > 0 else prefill,
        max_model_len=context,
        chunked_prefill=chunk > 0,
        prefix_caching=not planned.switch("disable_radix_cache", False),
        reserve_full_prompt=True,
        async_scheduling=not planned.switch("disable_overlap_schedule", False),
        initial_new_token_ratio=ratio,
        min_new_token_ratio=FLOOR_SHARE * ratio,
        new_token_ratio_decay_steps=DECAY_STEPS,
        max_prefill_tokens=prefill,
    )


def _requests(planned: Planned, context: int, tokens: int) -> int:
    """What was asked for, or 512 contexts' worth of tokens within bounds; half of the pool's tokens at most
    (model_runner_kv_cache_mixin.py)."""
    default = max(min(int(tokens / context * CONTEXTS), MOST), FEWEST)
    return max(1, min(planned.count("max_running_requests", default), tokens // 2))
