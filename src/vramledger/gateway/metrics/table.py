"""Every metric of the gateway. docs/observability.md is written from this table."""

from __future__ import annotations

from vramledger.gateway.metrics.metric import Metric, counter, gauge, histogram

NS_PER_S = 1_000_000_000
UPSTREAM = ("upstream",)
"""The name of an engine. Not `instance`: Prometheus gives every series a label of that name, the address that it asked."""

OF_UPSTREAMS: tuple[Metric, ...] = (
    gauge("engine_up", "Whether the engine answered when it was last asked", labels=UPSTREAM, field="is_up"),
    gauge(
        "engine_state_age_seconds",
        "How old the engine's own word about its state is",
        unit="seconds",
        labels=UPSTREAM,
        field="age_ns",
        divisor=NS_PER_S,
    ),
    gauge("block_size_tokens", "Tokens of a block", unit="tokens", labels=UPSTREAM, field="block_size"),
    gauge("pool_blocks", "Blocks of the KV pool", unit="blocks", labels=UPSTREAM, field="total_blocks"),
    gauge(
        "free_blocks",
        "Blocks that no sequence holds, by the engine",
        unit="blocks",
        labels=UPSTREAM,
        field="free_blocks",
    ),
    gauge(
        "used_blocks",
        "Blocks that sequences hold, by the engine",
        unit="blocks",
        labels=UPSTREAM,
        field="used_blocks",
    ),
    gauge(
        "cached_blocks",
        "Free blocks whose content can still be found, by the engine",
        unit="blocks",
        labels=UPSTREAM,
        field="cached_blocks",
    ),
    gauge(
        "booked_blocks",
        "Blocks that admitted requests hold, by the gateway's books",
        unit="blocks",
        labels=UPSTREAM,
        field="booked_blocks",
    ),
    gauge(
        "reserved_blocks",
        "The most blocks that admitted requests will hold at once, by the gateway's books",
        unit="blocks",
        labels=UPSTREAM,
        field="reserved_blocks",
    ),
    gauge(
        "limit_blocks",
        "Blocks that admitted requests may hold",
        unit="blocks",
        labels=UPSTREAM,
        field="limit_blocks",
    ),
    gauge(
        "upstream_queued_requests",
        "Requests that wait for a reservation at this engine",
        unit="requests",
        labels=UPSTREAM,
        field="queued_requests",
    ),
    gauge(
        "books_disagreement_blocks",
        "Blocks held by the engine's word beyond those of the gateway's books; negative where the books hold more",
        unit="blocks",
        labels=UPSTREAM,
        field="disagreement_blocks",
    ),
    gauge(
        "foreign_blocks",
        "Blocks that the engine holds and nothing admitted explains",
        unit="blocks",
        labels=UPSTREAM,
        field="foreign_blocks",
    ),
    gauge(
        "doubt_blocks",
        "Blocks that are kept free because the engine's word is old",
        unit="blocks",
        labels=UPSTREAM,
        field="doubt_blocks",
    ),
    gauge(
        "is_careful",
        "Whether every bound is reserved in full, for what the engine holds is not known",
        labels=UPSTREAM,
        field="is_careful",
    ),
    gauge(
        "granted_blocks",
        "Blocks of the pool that this gateway may use, where several share it",
        unit="blocks",
        labels=UPSTREAM,
        field="granted_blocks",
    ),
    gauge(
        "other_gateways_blocks",
        "Blocks that other gateways may use, as last heard",
        unit="blocks",
        labels=UPSTREAM,
        field="other_gateways_blocks",
    ),
    gauge(
        "is_granted",
        "Whether the store's word about this gateway's part is relied on",
        labels=UPSTREAM,
        field="is_granted",
    ),
    counter(
        "grant_lapses",
        "Times that the grant ran out before the store answered again",
        labels=UPSTREAM,
        field="total_lapses",
    ),
    counter(
        "engine_restarts",
        "Times that the engine was seen to have begun anew",
        labels=UPSTREAM,
        field="total_restarts",
    ),
    counter(
        "engine_readings", "Times that the engine said how it is", labels=UPSTREAM, field="total_readings"
    ),
    counter(
        "engine_failed_readings",
        "Times that the engine was asked how it is and did not say",
        labels=UPSTREAM,
        field="total_failed_readings",
    ),
    gauge(
        "physical_tokens",
        "Tokens that the blocks in use have room for, each block once",
        unit="tokens",
        labels=UPSTREAM,
        field="physical_tokens",
    ),
    gauge(
        "logical_tokens",
        "Tokens of all admitted sequences, shared ones counted for each",
        unit="tokens",
        labels=UPSTREAM,
        field="logical_tokens",
    ),
    gauge(
        "engine_running_requests",
        "Requests that the engine runs",
        unit="requests",
        labels=UPSTREAM,
        field="running_requests",
    ),
    gauge(
        "engine_waiting_requests",
        "Requests that wait inside the engine",
        unit="requests",
        labels=UPSTREAM,
        field="waiting_requests",
    ),
    gauge(
        "upstream_admitted_requests",
        "Requests that hold a reservation at this engine",
        unit="requests",
        labels=UPSTREAM,
        field="admitted_requests",
    ),
    gauge(
        "device_total_bytes",
        "Memory of the device",
        unit="bytes",
        labels=UPSTREAM,
        field="device_total_bytes",
    ),
    gauge(
        "device_allocated_bytes",
        "Device memory that the engine's allocator has given out",
        unit="bytes",
        labels=UPSTREAM,
        field="device_allocated_bytes",
    ),
    gauge(
        "device_reserved_bytes",
        "Device memory that the engine's allocator has taken",
        unit="bytes",
        labels=UPSTREAM,
        field="device_reserved_bytes",
    ),
    gauge(
        "device_free_bytes",
        "Device memory that nobody has taken",
        unit="bytes",
        labels=UPSTREAM,
        field="device_free_bytes",
    ),
    gauge("weights_bytes", "Weights on the device", unit="bytes", labels=UPSTREAM, field="weights_bytes"),
    gauge(
        "runtime_bytes",
        "Contexts, libraries and workspaces on the device",
        unit="bytes",
        labels=UPSTREAM,
        field="runtime_bytes",
    ),
    gauge("pool_bytes", "The KV pool on the device", unit="bytes", labels=UPSTREAM, field="pool_bytes"),
    gauge(
        "graph_pool_bytes",
        "Captured graphs on the device",
        unit="bytes",
        labels=UPSTREAM,
        field="graph_pool_bytes",
    ),
    gauge("adapter_bytes", "Adapters on the device", unit="bytes", labels=UPSTREAM, field="adapter_bytes"),
    gauge("adapters", "Adapters that are loaded", labels=UPSTREAM, field="adapters"),
    counter(
        "engine_prompt_tokens",
        "Prompt tokens that the engine computed",
        unit="tokens",
        labels=UPSTREAM,
        field="total_prompt_tokens",
    ),
    counter(
        "engine_output_tokens",
        "Tokens that the engine generated",
        unit="tokens",
        labels=UPSTREAM,
        field="total_output_tokens",
    ),
    counter(
        "reused_tokens",
        "Prompt tokens that the engine found in its prefix cache",
        unit="tokens",
        labels=UPSTREAM,
        field="total_reused_tokens",
    ),
    counter(
        "evicted_tokens",
        "Cached tokens whose blocks the engine took for others",
        unit="tokens",
        labels=UPSTREAM,
        field="total_evicted_tokens",
    ),
    counter(
        "preempted_requests",
        "Times that the engine put a running request back to make room",
        unit="requests",
        labels=UPSTREAM,
        field="total_preempted_requests",
    ),
    counter(
        "preempted_tokens",
        "Tokens that preempted requests held",
        unit="tokens",
        labels=UPSTREAM,
        field="total_preempted_tokens",
    ),
    counter(
        "swapped_tokens",
        "Tokens that the engine moved to host memory to make room",
        unit="tokens",
        labels=UPSTREAM,
        field="total_swapped_tokens",
    ),
    counter(
        "recomputed_tokens",
        "Tokens that the engine computed again after a preemption",
        unit="tokens",
        labels=UPSTREAM,
        field="total_recomputed_tokens",
    ),
)
UPSTREAM_INFO = gauge("upstream_info", "1; which engine an upstream is", labels=("upstream", "engine"))

OF_GATEWAY: tuple[Metric, ...] = (
    gauge("queue_requests", "Requests that wait to be admitted", unit="requests", field="queue.requests"),
    gauge(
        "queue_tokens",
        "Prompts as counted and outputs as reserved of those that wait",
        unit="tokens",
        field="queue.tokens",
    ),
    gauge(
        "queue_oldest_age_seconds",
        "How long the one that waits longest has waited",
        unit="seconds",
        field="queue.oldest_age_ns",
        divisor=NS_PER_S,
    ),
    gauge("admitted_requests", "Requests that hold a reservation", unit="requests", field="admitted"),
    gauge("in_flight_requests", "Requests that an engine works on", unit="requests", field="in_flight"),
    gauge("client_connections", "Connections of clients that are open", field="client_connections"),
    gauge("upstream_connections", "Connections to engines that are open", field="upstream_connections"),
    gauge("held_body_bytes", "Bodies of requests that are held", unit="bytes", field="held_body_bytes"),
    gauge("draining", "Whether the gateway takes no new requests", field="draining"),
)

OF_COUNTERS: tuple[Metric, ...] = (
    counter("client_connections_accepted", "Connections of clients", field="connections"),
    counter(
        "client_connections_refused", "Connections above the limit of open ones", field="connections_refused"
    ),
    counter("http_requests", "Requests that arrived whole, priced or not", field="requests"),
    counter("bad_requests", "Requests refused for their form", field="bad_requests"),
    counter(
        "turned_away_requests",
        "Requests without a known key or to a path that does not pass",
        field="turned_away",
    ),
    counter("queue_entries", "Requests that were queued", field="queued"),
    counter("policy_failures", "Times that the policy raised instead of answering", field="policy_failures"),
    counter("released_reservations", "Reservations and places in the queue given back", field="released"),
    counter("clients_left", "Clients that left before their answer was complete", field="clients_left"),
    counter(
        "stalled_readers", "Clients that were cut off because they read nothing", field="stalled_readers"
    ),
    counter("upstream_connections_opened", "Connections made to engines", field="upstream_connections"),
    counter("upstream_reuses", "Requests sent on a connection that was open", field="upstream_reused"),
    counter(
        "upstream_retries",
        "Requests sent again because the engine had closed the connection",
        field="upstream_retries",
    ),
    counter(
        "served_elsewhere",
        "Answers of another engine than the one that holds the reservation, behind Envoy",
        field="served_elsewhere",
    ),
    counter("upstream_failures", "Requests that an engine failed to answer", field="upstream_failures"),
    counter("upstream_timeouts", "Requests that an engine did not answer in time", field="upstream_timeouts"),
    counter("truncated_answers", "Answers that broke off after they had begun", field="truncated_answers"),
    counter("engine_errors", "Errors that engines answered with", field="engine_errors"),
    counter(
        "engine_stream_errors",
        "Of these, errors inside a stream that began with 200",
        field="engine_errors_in_streams",
    ),
    counter(
        "engine_out_of_memory_errors",
        "Errors that said that the engine's memory ran out",
        field="engine_ran_out",
    ),
    counter("unread_events", "Events of streams that could not be read", field="unread_events"),
)
OF_SHARING: tuple[Metric, ...] = (
    counter("store_calls", "Terms of an engine sent to the store that gateways share", field="calls"),
    counter("store_answers", "Of these, answered with terms", field="answers"),
    counter("store_unreachable", "Times that the store did not answer in time", field="unreachable"),
    counter("store_errors", "Answers of the store that were no terms", field="errors"),
    counter("overdue_grants", "Times that requests ran on after their lease was over", field="overdue"),
)
NOT_TOLD = frozenset({"admitted", "rejected", "never_fit", "unavailable"})
"""Counters that `admissions` tells with their rules."""

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
VERY_SHORT_S = (1e-6, 2.5e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 1e-2, 0.1)
SIGNED_TOKENS = (-4096.0, -1024.0, -256.0, -64.0, -16.0, -1.0, 0.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)

ADMISSIONS = counter(
    "admissions",
    "Priced requests by the policy's last word (admit, reject, unavailable, never-fits; left: the client did not wait for it) and its rule",
    labels=("outcome", "rule"),
)
REQUESTS = counter(
    "requests", "Priced requests that ended, by kind and how they ended", labels=("kind", "outcome")
)
ANSWERS = counter("answers", "Answers to priced requests by their status", labels=("code",))
TENANT_REQUESTS = counter(
    "tenant_requests", "Priced requests that ended, by tenant", labels=("tenant", "outcome")
)
TENANT_PROMPT = counter("tenant_prompt_tokens", "Prompt tokens by tenant", unit="tokens", labels=("tenant",))
TENANT_CACHED = counter(
    "tenant_cached_prompt_tokens",
    "Of these, found in the engine's prefix cache",
    unit="tokens",
    labels=("tenant",),
)
TENANT_OUTPUT = counter("tenant_output_tokens", "Output tokens by tenant", unit="tokens", labels=("tenant",))
MODEL_REQUESTS = counter(
    "model_requests", "Priced requests that ended, by model", labels=("model", "outcome")
)
PROMPT = counter("prompt_tokens", "Prompt tokens as engines reported them", unit="tokens", labels=("model",))
CACHED = counter(
    "cached_prompt_tokens", "Of these, found in the engine's prefix cache", unit="tokens", labels=("model",)
)
OUTPUT = counter(
    "output_tokens",
    "Output tokens as engines reported them, else events of streams",
    unit="tokens",
    labels=("model",),
)
RESERVED = counter(
    "reserved_output_tokens",
    "Output tokens that admitted requests were given room for",
    unit="tokens",
    labels=("model",),
)
COUNTED = counter("counted_prompts", "Prompts by who counted their tokens", labels=("source",))
ANSWER_BYTES = counter("answer_bytes", "Bodies of answers that engines gave", unit="bytes")
TOOL_TURNS = counter("tool_turns", "Requests that bring a tool's result", labels=("continued",))

QUEUE_TIME = histogram(
    "queue_time_seconds",
    "How long requests waited for the policy's last word; those let in at once with 0",
    unit="seconds",
    labels=("outcome",),
    buckets=(0.0, *SECONDS),
)
TTFT = histogram(
    "time_to_first_token_seconds",
    "From a streaming request's arrival until its first event with output",
    unit="seconds",
    labels=("model",),
    buckets=SECONDS,
)
TPOT = histogram(
    "time_per_output_token_seconds",
    "From a stream's first output to its end, over the output tokens after the first",
    unit="seconds",
    labels=("model",),
    buckets=SHORT_S,
)
DURATION = histogram(
    "request_duration_seconds",
    "From a completed request's arrival to the last byte of its answer",
    unit="seconds",
    labels=("model",),
    buckets=SECONDS,
)
DECISION = histogram(
    "decision_seconds", "What the policy's first answer took", unit="seconds", buckets=VERY_SHORT_S
)
RESERVATION_ERROR = histogram(
    "reservation_error_tokens",
    "Output tokens of completed requests above what was reserved for them (of one branch); negative where less came",
    unit="tokens",
    buckets=SIGNED_TOKENS,
)
COUNT_ERROR = histogram(
    "prompt_count_error_tokens",
    "Prompt tokens by the engine above those counted before it was asked",
    unit="tokens",
    labels=("source",),
    buckets=SIGNED_TOKENS,
)
RELEASE = histogram(
    "reservation_release_seconds",
    "From the end or the cancellation of an admitted request until the gateway's reservation is free",
    unit="seconds",
    buckets=VERY_SHORT_S,
)
BLOCKS_BACK = histogram(
    "blocks_return_seconds",
    "From the end or the cancellation of an admitted request until the engine was seen to hold its blocks no more",
    unit="seconds",
    labels=UPSTREAM,
    buckets=SHORT_S,
)
TOOL_PAUSE = histogram(
    "tool_pause_seconds",
    "From the end of a turn until its tool's result came",
    unit="seconds",
    buckets=SECONDS,
)

OF_REQUESTS: tuple[Metric, ...] = (
    ADMISSIONS, REQUESTS, ANSWERS, TENANT_REQUESTS, TENANT_PROMPT, TENANT_CACHED, TENANT_OUTPUT, MODEL_REQUESTS,
    PROMPT, CACHED, OUTPUT, RESERVED, COUNTED, ANSWER_BYTES, TOOL_TURNS,
    QUEUE_TIME, TTFT, TPOT, DURATION, DECISION, RESERVATION_ERROR, COUNT_ERROR, RELEASE, BLOCKS_BACK, TOOL_PAUSE,
)  # fmt: skip

OBSERVER_FAILURES = counter("observer_failures", "Times that something that observes requests failed")
UNSEEN_BLOCKS = counter(
    "unseen_block_returns", "Ended requests whose blocks the engine was not seen to give back in time"
)
LOG_LINES = counter(
    "request_log_lines", "Lines of the request log, by whether they were written", labels=("state",)
)
SPANS = counter("spans", "Spans of traces: made, exported, or lost on the way", labels=("state",))
BUILD = gauge("build_info", "1; the release that runs", labels=("version",))
OF_ITSELF: tuple[Metric, ...] = (OBSERVER_FAILURES, UNSEEN_BLOCKS, LOG_LINES, SPANS, BUILD)

METRICS: tuple[Metric, ...] = (
    *OF_UPSTREAMS,
    UPSTREAM_INFO,
    *OF_GATEWAY,
    *OF_COUNTERS,
    *OF_SHARING,
    *OF_REQUESTS,
    *OF_ITSELF,
)
