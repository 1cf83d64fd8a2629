"""How SGLang words what it prints while it serves, 0.1.17 to 0.5.23: steps, retraction, sleep.

Source: sglang srt/managers/scheduler.py (tp_worker.py to 0.3), scheduler_metrics_mixin.py to 0.5.12,
managers/scheduler_components/metrics_reporter.py and pool_stats_observer.py since 0.5.13; the routes of
entrypoints/http_server.py as its access log prints them.
"""

from __future__ import annotations

from vramledger.engines.log_pattern import LinePattern, line_pattern
from vramledger.observation import Event

_USAGE = (
    r"(?:full )?token usage: (?:full=)?(?P<kv_usage_ratio>NUM)"
    r"(?:, (?:#swa token: (?P<window_used_tokens>NUM), )?swa(?: token usage: |=)(?P<window_usage_ratio>NUM))?"
    r"(?:, (?:mamba num: (?P<state_used_count>NUM), )?mamba usage: (?P<state_usage_ratio>NUM))?"
)
_ITERATION = r"(?: \[(?P<step_id>NUM)\])?"

SERVING: tuple[LinePattern, ...] = (
    line_pattern(
        Event.STEP,
        "Decode batch",
        rf"Decode batch{_ITERATION}[.,] #running-req: (?P<running_requests>NUM), "
        r"(?:#(?:full )?token: (?:full=)?(?P<kv_used_tokens>NUM)(?:, swa=NUM)?, )?"
        rf"{_USAGE}(?:.{{0,500}}?#retracted-req: (?P<retracted_requests>NUM))?"
        r"(?:.{0,500}?#queue-req: (?P<waiting_requests>NUM))?",
        source="sglang managers/scheduler.py and its successors, 0.2.5 on",
        phase="decode",
    ),
    line_pattern(
        Event.STEP,
        "#cached-token: ",
        rf"Prefill? batch{_ITERATION}(?:\(mixed #running-req: (?P<mixed_requests>NUM)\))?[.,] #new-seq: (?P<new_requests>NUM), "
        r"#new-token: (?P<scheduled_tokens>NUM), #cached-token: (?P<cached_tokens>NUM), "
        rf"(?:cache hit rate: (?P<cache_hit_percent>NUM)%, )?(?:{_USAGE}, )?"
        r"(?:.{0,200}?#running-req: (?P<running_requests>NUM))?(?:.{0,200}?#queue-req: (?P<waiting_requests>NUM))?"
        r"(?:, #pending-token: (?P<waiting_tokens>NUM))?",
        source="sglang managers/scheduler.py and its successors, 0.1.17 on",
        phase="prefill",
    ),
    line_pattern(
        Event.PREEMPTION,
        "#retracted_reqs: ",
        r"#retracted_reqs: (?P<preempted_requests>NUM)(?:, #aborted_retracted_reqs: (?P<aborted_requests>NUM))?"
        r"(?:, #new_tokens_gained: (?P<gained_tokens>NUM))?(?:, #mamba_num_gained: (?P<gained_states_count>NUM))?"
        r"(?:, #new_token_ratio: (?P<before_ratio>NUM) -> (?P<after_ratio>NUM))?",
        source="sglang managers/scheduler.py; 'decode out of memory happened' to 0.4.6, 'KV cache pool is full' since 0.4.7",
    ),
    line_pattern(
        Event.SLEEP,
        "/release_memory_occupation HTTP",
        r'"POST /release_memory_occupation HTTP[^"]{0,8}" 200',
        source="sglang entrypoints/http_server.py, 0.4.3 on",
    ),
    line_pattern(
        Event.WAKE,
        "/resume_memory_occupation HTTP",
        r'"POST /resume_memory_occupation HTTP[^"]{0,8}" 200',
        source="sglang entrypoints/http_server.py, 0.4.3 on",
    ),
)
