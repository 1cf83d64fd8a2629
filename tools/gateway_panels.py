"""The panels of the gateway's dashboard. `[job]`, `[upstream]` and `[rate]` stand for what is chosen on it."""

from __future__ import annotations

from typing import NamedTuple


class Panel(NamedTuple):
    """`queries` are (expression, legend)."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    text: str = ""
    kind: str = "timeseries"
    width: int = 8


def quantiles(metric: str, by: str = "") -> tuple[tuple[str, str], ...]:
    more = f", {by}" if by else ""
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (
            f"histogram_quantile({share}, sum by (le{more}) (rate(vramledger_{metric}_bucket{{[job]}}[[rate]])))",
            f"p{round(share * 100)}{legend}",
        )
        for share in (0.5, 0.99)
    )


def rate(metric: str, by: str, where: str = "[job]") -> tuple[str, str]:
    named = ", ".join(by.split())
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split())
    grouped = f"sum by ({named}) " if by else "sum "
    return f"{grouped}(rate(vramledger_{metric}_total{{{where}}}[[rate]]))", legend or metric.replace(
        "_", " "
    )


def gauge(metric: str, legend: str = "{{upstream}}") -> tuple[str, str]:
    return f"vramledger_{metric}{{[upstream]}}", legend


def of_gateway(metric: str, legend: str = "{{instance}}") -> tuple[str, str]:
    return f"vramledger_{metric}{{[job]}}", legend


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "At a glance",
        (
            Panel(
                "Engines that answer",
                "none",
                (("sum(vramledger_engine_up{[upstream]})", "up"),),
                kind="stat",
                width=4,
            ),
            Panel(
                "Pool in use",
                "percentunit",
                (
                    (
                        "max(vramledger_used_blocks{[upstream]} / vramledger_pool_blocks{[upstream]})",
                        "the fullest",
                    ),
                ),
                kind="stat",
                width=4,
            ),
            Panel(
                "Requests that wait",
                "none",
                (("sum(vramledger_queue_requests{[job]})", "waiting"),),
                kind="stat",
                width=4,
            ),
            Panel(
                "Refused",
                "percentunit",
                (
                    (
                        (
                            '(sum(rate(vramledger_admissions_total{[job], outcome=~"reject|unavailable"}[[rate]])) or vector(0))'
                            " / sum(rate(vramledger_admissions_total{[job]}[[rate]]))"
                        ),
                        "refused",
                    ),
                ),
                kind="stat",
                width=4,
            ),
            Panel(
                "Preempted",
                "reqps",
                (("sum(rate(vramledger_preempted_requests_total{[upstream]}[[rate]]))", "preempted"),),
                kind="stat",
                width=4,
            ),
            Panel(
                "Prompt tokens found cached",
                "percentunit",
                (
                    (
                        (
                            "sum(rate(vramledger_cached_prompt_tokens_total{[job]}[[rate]]))"
                            " / sum(rate(vramledger_prompt_tokens_total{[job]}[[rate]]))"
                        ),
                        "cached",
                    ),
                ),
                kind="stat",
                width=4,
            ),
        ),
    ),
    (
        "Admission",
        (
            Panel(
                "Decisions",
                "reqps",
                (rate("admissions", "outcome"),),
                "The policy's last word about each request.",
            ),
            Panel(
                "Why not",
                "reqps",
                (rate("admissions", "outcome rule", '[job], outcome!="admit"'),),
                "By the rule that decided; left: the client did not wait for it.",
            ),
            Panel("Ends", "reqps", (rate("requests", "outcome"), rate("answers", "code"))),
            Panel(
                "Queue",
                "none",
                (
                    of_gateway("queue_requests", "requests {{instance}}"),
                    gauge("upstream_queued_requests", "for {{upstream}}"),
                    rate("queue_entries", ""),
                ),
            ),
            Panel("Tokens that wait", "none", (of_gateway("queue_tokens"),)),
            Panel(
                "Time in the queue",
                "s",
                (*quantiles("queue_time_seconds"), of_gateway("queue_oldest_age_seconds", "oldest")),
            ),
            Panel(
                "Time of a decision",
                "s",
                quantiles("decision_seconds"),
                "What the policy's first answer took.",
            ),
            Panel(
                "Reserved and real output",
                "none",
                (rate("reserved_output_tokens", "model"), rate("output_tokens", "model")),
                "Tokens a second: what admitted requests were given room for, and what came.",
            ),
            Panel(
                "Output beyond its reservation",
                "none",
                (
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(vramledger_reservation_error_tokens_bucket{[job]}[[rate]])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.95, sum by (le) (rate(vramledger_reservation_error_tokens_bucket{[job]}[[rate]])))",
                        "p95",
                    ),
                ),
                "Tokens of completed requests above what was reserved; below 0, room that was kept for nothing.",
            ),
        ),
    ),
    (
        "Pool",
        (
            Panel(
                "Blocks by the engine",
                "none",
                (
                    gauge("used_blocks", "used {{upstream}}"),
                    gauge("free_blocks", "free {{upstream}}"),
                    gauge("cached_blocks", "cached {{upstream}}"),
                    gauge("pool_blocks", "all {{upstream}}"),
                ),
            ),
            Panel(
                "Blocks by the books",
                "none",
                (
                    gauge("booked_blocks", "booked {{upstream}}"),
                    gauge("reserved_blocks", "most that they will hold {{upstream}}"),
                    gauge("limit_blocks", "limit {{upstream}}"),
                ),
            ),
            Panel(
                "Engine against books",
                "none",
                (
                    gauge("books_disagreement_blocks", "disagreement {{upstream}}"),
                    gauge("foreign_blocks", "foreign {{upstream}}"),
                    gauge("doubt_blocks", "kept free in doubt {{upstream}}"),
                    gauge("is_careful", "careful {{upstream}}"),
                ),
            ),
            Panel(
                "Tokens held",
                "none",
                (
                    gauge("physical_tokens", "physical {{upstream}}"),
                    gauge("logical_tokens", "logical {{upstream}}"),
                ),
                "Physical: each block once. Logical: of each sequence all that it has.",
            ),
            Panel(
                "Tokens moved",
                "none",
                tuple(
                    (
                        f"sum by (upstream) (rate(vramledger_{name}_tokens_total{{[upstream]}}[[rate]]))",
                        f"{name} {{{{upstream}}}}",
                    )
                    for name in ("reused", "evicted", "preempted", "swapped", "recomputed")
                ),
                "A second. What an engine does not tell is absent.",
            ),
            Panel(
                "Blocks returned",
                "s",
                (
                    *quantiles("blocks_return_seconds", "upstream"),
                    *quantiles("reservation_release_seconds"),
                    rate("unseen_block_returns", ""),
                ),
                "From a request's end or cancellation until the engine, and the gateway's books, hold its blocks no more.",
            ),
        ),
    ),
    (
        "What users see",
        (
            Panel("Time to first token", "s", quantiles("time_to_first_token_seconds", "model")),
            Panel("Time per output token", "s", quantiles("time_per_output_token_seconds", "model")),
            Panel("Whole requests", "s", quantiles("request_duration_seconds", "model")),
            Panel("Requests by tenant", "reqps", (rate("tenant_requests", "tenant outcome"),)),
            Panel(
                "Tokens by tenant",
                "none",
                (
                    rate("tenant_prompt_tokens", "tenant"),
                    rate("tenant_cached_prompt_tokens", "tenant"),
                    rate("tenant_output_tokens", "tenant"),
                ),
                "A second: prompts, of these cached, outputs.",
            ),
            Panel("Requests by model", "reqps", (rate("model_requests", "model outcome"),)),
            Panel(
                "Tools",
                "none",
                (rate("tool_turns", "continued"), *quantiles("tool_pause_seconds")),
                "Turns that bring a tool's result, by what the engine still held, and how long the tool took in seconds.",
            ),
            Panel(
                "Prompts counted",
                "none",
                (rate("counted_prompts", "source"), *quantiles("prompt_count_error_tokens", "source")),
                "A second by who counted them, and how many tokens the engine found beyond.",
            ),
            Panel(
                "Requests under way",
                "none",
                (of_gateway("admitted_requests", "admitted"), of_gateway("in_flight_requests", "in flight")),
            ),
        ),
    ),
    (
        "Engines",
        (
            Panel(
                "Up, restarted",
                "none",
                (
                    gauge("engine_up"),
                    rate("engine_restarts", "upstream", "[upstream]"),
                    gauge("upstream_info", "{{upstream}} is {{engine}}"),
                ),
            ),
            Panel(
                "Age of their word",
                "s",
                (
                    gauge("engine_state_age_seconds"),
                    rate("engine_readings", "upstream", "[upstream]"),
                    rate("engine_failed_readings", "upstream", "[upstream]"),
                ),
            ),
            Panel(
                "Requests inside",
                "none",
                (
                    gauge("engine_running_requests", "run {{upstream}}"),
                    gauge("engine_waiting_requests", "wait {{upstream}}"),
                    gauge("upstream_admitted_requests", "admitted {{upstream}}"),
                    (
                        "sum by (upstream) (rate(vramledger_preempted_requests_total{[upstream]}[[rate]]))",
                        "preempted a second {{upstream}}",
                    ),
                ),
            ),
            Panel(
                "Device",
                "bytes",
                tuple(
                    gauge(f"device_{name}_bytes", f"{name} {{{{upstream}}}}")
                    for name in ("total", "reserved", "allocated", "free")
                ),
            ),
            Panel(
                "What fills it",
                "bytes",
                tuple(
                    gauge(f"{name}_bytes", f"{name.replace('_', ' ')} {{{{upstream}}}}")
                    for name in ("weights", "runtime", "pool", "graph_pool", "adapter")
                ),
            ),
            Panel(
                "Tokens by the engine",
                "none",
                (
                    rate("engine_prompt_tokens", "upstream", "[upstream]"),
                    rate("engine_output_tokens", "upstream", "[upstream]"),
                    gauge("adapters", "adapters {{upstream}}"),
                    gauge("block_size_tokens", "tokens of a block {{upstream}}"),
                ),
            ),
        ),
    ),
    (
        "The gateway itself",
        (
            Panel(
                "Failures",
                "reqps",
                tuple(
                    rate(name, "")
                    for name in (
                        "engine_errors",
                        "engine_stream_errors",
                        "engine_out_of_memory_errors",
                        "upstream_failures",
                        "upstream_timeouts",
                        "upstream_retries",
                        "served_elsewhere",
                        "truncated_answers",
                        "policy_failures",
                        "observer_failures",
                        "unread_events",
                    )
                ),
            ),
            Panel(
                "Clients",
                "none",
                (
                    of_gateway("client_connections", "open {{instance}}"),
                    *(
                        rate(name, "")
                        for name in (
                            "http_requests",
                            "bad_requests",
                            "turned_away_requests",
                            "client_connections_accepted",
                            "client_connections_refused",
                            "clients_left",
                            "stalled_readers",
                        )
                    ),
                ),
            ),
            Panel(
                "Connections to engines",
                "none",
                (
                    of_gateway("upstream_connections", "open {{instance}}"),
                    rate("upstream_connections_opened", ""),
                    rate("upstream_reuses", ""),
                    rate("released_reservations", ""),
                ),
            ),
            Panel(
                "Memory",
                "bytes",
                (
                    of_gateway("held_body_bytes", "bodies"),
                    ("process_resident_memory_bytes{[job]}", "resident {{instance}}"),
                    rate("answer_bytes", ""),
                ),
            ),
            Panel(
                "Processor time",
                "percentunit",
                (("rate(process_cpu_seconds_total{[job]}[[rate]])", "{{instance}}"),),
            ),
            Panel(
                "Sharing: the store",
                "reqps",
                tuple(
                    rate(name, "")
                    for name in (
                        "store_calls",
                        "store_answers",
                        "store_unreachable",
                        "store_errors",
                        "overdue_grants",
                    )
                ),
            ),
            Panel(
                "Sharing: grants",
                "none",
                (
                    gauge("granted_blocks", "granted {{upstream}}"),
                    gauge("other_gateways_blocks", "of others {{upstream}}"),
                    gauge("is_granted", "relied on {{upstream}}"),
                    rate("grant_lapses", "upstream", "[upstream]"),
                ),
                "What this gateway may use of engines that others use too.",
            ),
            Panel(
                "Logs, traces, release",
                "none",
                (
                    rate("request_log_lines", "state"),
                    rate("spans", "state"),
                    of_gateway("build_info", "{{instance}} {{version}}"),
                    of_gateway("draining", "draining {{instance}}"),
                ),
            ),
        ),
    ),
)
