"""vLLM's log lines while it serves: steps, requests, preemptions, and what it dumps when a step fails."""

from __future__ import annotations

from functools import partial

from vramledger.engines.log_pattern import line_pattern
from vramledger.observation import Event

_step = partial(line_pattern, Event.STEP)
_admitted = partial(line_pattern, Event.ADMITTED)
_finished = partial(line_pattern, Event.FINISHED)
_preemption = partial(line_pattern, Event.PREEMPTION)

STEPS = (
    _step(
        "Avg prompt throughput: ",
        r"(?:Engine (?P<engine_id>NUM): |(?P<engines_count>[0-9]{1,6}) Engines Aggregated: )?Avg prompt throughput: "
        r"(?P<prompt_tokens_per_s>NUM) tokens/s, Avg generation throughput: (?P<generated_tokens_per_s>NUM) tokens/s, Running: "
        r"(?P<running_requests>NUM) reqs, (?:Swapped: (?P<swapped_requests>NUM) reqs, )?(?:Waiting|Pending): "
        r"(?P<waiting_requests>NUM) reqs,?(?: Deferred: (?P<deferred_requests>NUM) reqs,)?"
        r"(?: KV fetch: (?P<kv_fetch_waiting_requests>NUM) waiting to start, (?P<kv_fetching_requests>NUM) in progress, "
        r"(?P<kv_fetched_requests>NUM) completed waiting,)?(?: Preemptions: (?P<preempted_requests>NUM),)? "
        r"(?P<pool_device>[A-Za-z]{2,12}) KV cache usage: (?P<kv_usage_percent>NUM)%"
        r"(?:, CPU KV cache usage: (?P<swap_usage_percent>NUM)%)?(?:, Prefix cache hit rate: (?P<prefix_hit_percent>NUM)%)?"
        r"(?:, Corrupted: (?P<corrupted_requests>NUM) reqs)?"
        r"(?:, External prefix cache hit rate: (?P<external_prefix_hit_percent>NUM)%)?"
        r"(?:, MM cache hit rate: (?P<encoder_hit_percent>NUM)%)?",
        source="engine/metrics.py (V0), v1/metrics/loggers.py (engine number from 0.8.1, deferred from 0.20, fetches from 0.32)",
    ),
    _step(
        "Iteration(",
        r"(?:Engine (?P<engine_id>NUM): )?Iteration\((?P<step_id>NUM)\): (?P<prefill_requests>NUM) context requests, "
        r"(?P<prefill_tokens>NUM) context tokens, (?P<decode_requests>NUM) generation requests, (?P<decode_tokens>NUM) generation "
        r"tokens, iteration elapsed time: NUM ms(?: \(dummy\))?"
        r"(?:, (?P<pool_device>[A-Za-z]{2,12}) KV cache usage: (?P<kv_usage_percent>NUM)%)?",
        source="v1/engine/core.py 0.14-0.25, v1/metrics/loggers.py from 0.26, with --enable-logging-iteration-details",
    ),
    _step(
        "Prefix cache hit rate: GPU: ",
        r"Prefix cache hit rate: GPU: (?P<prefix_hit_percent>NUM)%, CPU: (?P<swap_prefix_hit_percent>NUM)%",
        source="engine/metrics.py, 0.6-0.10",
    ),
    _step(
        "SpecDecoding metrics: ",
        r"SpecDecoding metrics: .{0,200}?Accepted: (?P<accepted_tokens>NUM) tokens, Drafted: (?P<drafted_tokens>NUM) tokens",
        source="v1/spec_decode/metrics.py, from 0.8",
    ),
    _step(
        "Dumping scheduler stats: ",
        r"Dumping scheduler stats: SchedulerStats\(num_running_reqs=(?P<running_requests>NUM), num_waiting_reqs="
        r"(?P<waiting_requests>NUM),(?:.{0,400}?(?:kv_cache_usage|gpu_cache_usage)=(?P<kv_usage_ratio>[0-9.e-]{1,30}))?",
        source="logging_utils/dump_input.py, from 0.9, when a step fails",
        failing=True,
    ),
    _step(
        "Dumping scheduler output for model execution: ",
        r"\A.{0,200}?Dumping scheduler output for model execution: .*total_num_scheduled_tokens=(?P<scheduled_tokens>NUM)",
        source="logging_utils/dump_input.py, from 0.9, when a step fails",
        failing=True,
    ),
    _step(
        "total_num_scheduled_tokens=",
        r"\btotal_num_scheduled_tokens=(?P<scheduled_tokens>NUM)",
        source="v1/core/sched/output.py (SchedulerOutput, where it is printed)",
    ),
)

REQUESTS = (
    _admitted("Added request ", r"Added request (?P<request>[^\s]{1,200}?)\.?$", source="engine/async_llm_engine.py, v1/engine/async_llm.py", stage="engine"),
    _admitted(
        "Received request ",
        r"Received request (?P<request>[^\s:]{1,200}): (?:prompt|params): (?:SamplingParams\(.{0,1500}?max_tokens="
        r"(?P<max_new_tokens>NUM),)?",
        source="entrypoints/logger.py, entrypoints/serve/utils/request_logger.py (prompts to 0.10)",
        stage="front end",
    ),
    _finished(
        "inished request ",
        r"Finished request (?P<request>[^\s]{1,200}?)\.?$",
        source="engine/async_llm_engine.py, to 0.10",
        reason="finished",
    ),
    _finished(
        "ejecting request ",
        r"(?P<reason>Request queue full|Max queued tokens reached) - rejecting request (?P<request>[^\s]{1,200}) \("
        r"(?:current=(?P<queued_requests>NUM), n=NUM, max=(?P<limit_requests>NUM)|current_tokens=(?P<queued_tokens>NUM), "
        r"max=(?P<limit_tokens>NUM))\)",
        source="v1/engine/async_llm.py, from 0.29, debug from 0.33",
    ),
    _finished(
        "Aborted request",
        r"Aborted request(?:\(s\))? (?P<request>[^\s]{1,2000}?)\.?$",
        source="engine/async_llm_engine.py, v1/engine/async_llm.py",
        reason="aborted",
    ),
    _finished(
        "Request ",
        r"Request (?P<request>[^\s]{1,200}) (?P<reason>aborted\.|failed \([^)]{1,40}\)|failed due to [^.]{1,80}|failed\.$)",
        source="v1/engine/async_llm.py, from 0.9",
    ),
    _finished(
        "there's not enough kv cache blocks to run the entire sequence",
        r"Failing the request (?P<request>[^\s]{1,200}) because there's not enough kv cache blocks",
        source="core/scheduler.py, V0",
        reason="not enough KV blocks",
    ),
)  # fmt: skip

REARRANGEMENTS = (
    _step(
        "Rearranging experts ",
        r"Rearranging experts (?P<rearranging>[^.]{0,120})\.\.\.",
        source="distributed/eplb/eplb_state.py, from 0.9.2",
    ),
    _step(
        "Rearranged experts",
        r"Rearranged experts[^0-9]{0,120}? in (?P<rearranged_s>NUM) s",
        source="distributed/eplb/eplb_state.py, from 0.9.2",
    ),
)

PREEMPTIONS = (
    _preemption(
        " mode because there is not enough KV cache space",
        r"Sequence group (?P<request>[^\s]{1,200}) is preempted by (?:PreemptionMode\.)?(?P<mode>[A-Z]{4,12}) mode because there "
        r"is not enough KV cache space.{0,300}? total_(?:num_)?cumulative_preemption(?:_cnt)?=(?P<total_preempted_requests>NUM)",
        source="core/scheduler.py, V0 from 0.4.1",
    ),
    _preemption(
        " mode because there is not enough KV cache space",
        r"Sequence group (?P<request>[^\s]{1,200}) is preempted by (?:PreemptionMode\.)?(?P<mode>[A-Za-z]{4,12}) mode because",
        source="core/scheduler.py, V0",
    ),
    _preemption(
        "Recovered from KV load failure: ",
        r"Recovered from KV load failure: (?P<preempted_requests>NUM) request\(s\) rescheduled \((?P<lost_tokens>NUM) tokens",
        source="v1/core/sched/scheduler.py, from 0.11.1",
        mode="KV load failure",
    ),
)

SERVING_PATTERNS = STEPS + REQUESTS + REARRANGEMENTS + PREEMPTIONS
