"""What transformers' continuous batching schedules by.

Source: transformers generation/continuous_batching/scheduler.py (FIFOScheduler: running requests first, then the queue in
order, prompts cut to the batch's tokens) and cache.py (blocks of equal prefixes are shared).
"""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.engines.scheduling import EngineScheduling, Planned


def scheduling(plan: Plan) -> EngineScheduling:
    planned = Planned(plan)
    return EngineScheduling(
        rules="vllm",
        max_num_seqs=planned.count("max_requests_per_batch"),
        max_num_batched_tokens=planned.count("max_batch_tokens"),
        max_model_len=planned.count("max_length"),
        prefix_caching=planned.switch("allow_block_sharing", True),
        reserve_full_prompt=False,
        async_scheduling=planned.switch("use_async_batching", False),
    )
