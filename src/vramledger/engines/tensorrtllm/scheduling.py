"""What TensorRT-LLM schedules by: the capacity policy, and the micro-batch's limits.

Source: cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp; tensorrt_llm/llmapi/llm_args.py (chunked prefill is off unless asked
for, the overlap scheduler is on in the PyTorch back end).
"""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.engines.scheduling import EngineScheduling, Planned
from vramledger.errors import InputError

RULES = {
    "GUARANTEED_NO_EVICT": "tensorrt-llm-no-evict",
    "MAX_UTILIZATION": "tensorrt-llm-max-utilization",
    "STATIC_BATCH": "static-batch",
}


def scheduling(plan: Plan) -> EngineScheduling:
    """Raises InputError for a capacity policy that is not simulated."""
    planned = Planned(plan)
    policy = planned.text("capacity_scheduler_policy", "GUARANTEED_NO_EVICT").upper()
    if policy not in RULES:
        raise InputError(
            f"--capacity-scheduler-policy {policy} is not simulated; {', '.join(RULES)} are", policy=policy
        )
    length = planned.count("max_seq_len")
    step = planned.count("max_num_tokens")
    chunked = planned.switch("enable_chunked_prefill", False)
    return EngineScheduling(
        rules=RULES[policy],
        batches=max(plan.inputs.tp, 1) if planned.switch("enable_attention_dp", False) else 1,
        batches_share_experts=True,
        max_num_seqs=planned.count("max_batch_size"),
        max_num_batched_tokens=step,
        max_model_len=length,
        chunked_prefill=chunked,
        prefix_caching=planned.switch("enable_block_reuse", True),
        async_scheduling=planned.text("backend", "pytorch") == "pytorch",
    )
