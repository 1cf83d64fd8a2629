"""What SGLang schedules by: a soft reservation of outputs.

Source: sglang srt/managers/scheduler.py and schedule_policy.py, srt/environ.py (the ratios): the share of a running request's
remaining output that is reserved starts at 0.7 x conservativeness (at most 1) and falls to 0.14 of that in 600 steps
without a retraction; DP attention multiplies conservativeness by 0.3.
"""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.engines.scheduling import EngineScheduling, Planned
from vramledger.errors import InputError
from vramledger.pool import KvPool

INITIAL_RATIO, FLOOR_SHARE, DECAY_STEPS = 0.7, 0.14, 600
DP_ATTENTION = 0.3
CONTEXTS, FEWEST, MOST = 512, 2048, 4096


def scheduling(plan: Plan) -> EngineScheduling:
    """Raises InputError for a plan without a pool."""
    planned = Planned(plan)
    pool = plan.kv_pool
    if pool is None:
        raise InputError("the plan leaves no KV pool: there is nothing to schedule over")
    context = planned.count("context_length")
    chunk = planned.count("chunked_prefill_size")
    prefill = planned.count("max_prefill_tokens", 16_384)
    ratio = INITIAL_RATIO * (DP_ATTENTION if planned.switch("enable_dp_attention", False) else 1)
    return EngineScheduling(
        rules="sglang",
        batches=max(plan.inputs.dp, 1),
        batches_share_experts=planned.switch("enable_dp_attention", False),
        max_num_seqs=_requests(planned, pool, context),
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


def _requests(planned: Planned, pool: KvPool, context: int) -> int:
    """What was asked for (its share, where attention is data parallel), or 512 contexts' worth of tokens within bounds; half of the
    pool's tokens at most, and no more than the pool of states has slots for (kv_cache_configurator.py, resolve_max_num_reqs)."""
    tokens = pool.tokens.expected
    found = planned.count("max_running_requests", 0)
    if found:
        shares = planned.count("dp_size", 1) if planned.switch("enable_dp_attention", False) else 1
        found = max(1, found // shares)
    else:
        found = max(min(int(tokens / context * CONTEXTS), MOST), FEWEST)
    slots = [
        group.pool_blocks.expected // max(group.blocks_per_request, 1)
        for group in pool.groups
        if group.kind == "mamba" and group.pool_blocks is not None
    ]
    return max(1, min([found, tokens // 2, *slots]))
