"""What vLLM V1 schedules by.

Source: vllm config/scheduler.py and v1/core/sched/scheduler.py of 0.18.1, 0.19.0, 0.20.2, 0.23.0, 0.24.0 and 0.33.0: the whole
prompt is reserved since 0.19 (`scheduler_reserve_full_isl`), with windows in mind since 0.20.2, the watermark is a setting since
0.24 (0 unless set), a long prefill that is alone is unbounded since 0.31, and one that preempts itself by priority stops nobody
else since 0.33. v1/core/block_pool.py: block 0 is the null block;
blocks without a hash are the next to be given out since 0.24. config/cache.py: windows and states are kept sparsely since 0.29
(`prefix_cache_retention_interval` 0 unless set); v1/core/single_type_kv_cache_manager.py: a prompt's last state is renewed in 0.32
alone. v1/core/kv_cache_coordinator.py: blocks that no hit can need are not registered since 0.23.
"""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.engines.scheduling import EngineScheduling, Planned, PoolRules
from vramledger.engines.vllm.version import parse_version
from vramledger.errors import InputError


def scheduling(plan: Plan) -> EngineScheduling:
    """Raises InputError for a plan under V0, whose scheduler is not simulated."""
    version = parse_version(plan.inputs.engine_version)
    planned = Planned(plan)
    if planned.text("engine", "V1") != "V1":
        raise InputError(
            f"vllm {version} plans under V0, whose scheduler is not simulated; plan with --use-v1 or a release from 0.11 on",
            engine_version=str(version),
        )
    return EngineScheduling(
        rules="vllm",
        pool=PoolRules(
            reserved_blocks=1,
            uncached_first=version.since(24),
            retention_tokens=0 if version.since(29) else None,
            renews_states=version.since(32) and not version.since(33),
            aligned_commits=version.since(23),
            caps_admission=version.since(20, 2),
        ),
        batches=max(plan.inputs.dp, 1),
        batches_share_experts=True,
        max_num_seqs=planned.count("max_num_seqs"),
        max_num_batched_tokens=planned.count("max_num_batched_tokens"),
        max_model_len=planned.count("max_model_len"),
        chunked_prefill=planned.switch("enable_chunked_prefill", True),
        prefix_caching=planned.switch("enable_prefix_caching", True),
        reserve_full_prompt=planned.switch("scheduler_reserve_full_isl", version.since(19)),
        priority=planned.text("scheduling_policy", "fcfs") == "priority",
        long_prefill_token_threshold=planned.count("long_prefill_token_threshold", 0),
        async_scheduling=planned.switch("async_scheduling", version.since(14)),
        long_prefill_alone_unbounded=version.since(31),
        priority_goes_on=version.since(33),
        states_for_resend=version.since(32),
    )
