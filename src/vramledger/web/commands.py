"""The commands behind the page, and which of their options it may set. What names a file of the server's is not among them."""

from __future__ import annotations

from msgspec import Struct


class Command(Struct, frozen=True, kw_only=True):
    """`options` by Python's name to the flag; `files` likewise, whose values are uploads; `switches` have a `--no-` form.
    `alone` is added to what is run and not shown: where it is answered, which changes nothing of the answer."""

    options: dict[str, str]
    files: dict[str, str] = {}
    switches: frozenset[str] = frozenset()
    has_engine_flags: bool = False
    is_long: bool = False
    alone: tuple[str, ...] = ()


def _flags(*names: str) -> dict[str, str]:
    return {name: f"--{name.replace('_', '-')}" for name in names}


_WORKLOAD = {
    **_flags(
        "requests",
        "rate",
        "seed",
        "time_unit",
        "on_bad_row",
        "link_turns",
        "follow_parents",
        "conversation_starts",
    ),
    **_flags("workload_seed", "limit", "scale_time", "arrivals_at"),
    "trace_format": "--format",
    "trace_columns": "--column",
    "conversation_gap_s": "--conversation-gap",
}
_SIMULATED = {
    **_WORKLOAD,
    **_flags(
        "device",
        "engine",
        "headers",
        "blocks",
        "watermark",
        "scheduling",
        "replicas",
        "router",
        "prefill_replicas",
    ),
    **_flags(
        "link",
        "tool_wait",
        "host_link",
        "host_swap",
        "slo_ttft_ms",
        "slo_tpot_ms",
        "slo_latency_ms",
        "goodput",
        "how",
    ),
}
_SIMULATED_FILES = {
    "workload": "--workload",
    "plan_file": "--plan",
    "manifest_file": "--manifest",
    "step_model": "--step-model",
}
_HEADERS = frozenset({"headers"})
_TURNS = frozenset({"headers", "link_turns", "follow_parents"})
_AXES = (
    "tp",
    "pp",
    "ep",
    "weights",
    "kv",
    "context",
    "concurrency",
    "flags",
    "engine",
    "headers",
    "price",
    "exit_zero",
)

# A process that a confined one starts would not be confined, and not be ended with it.
_IN_ONE_PROCESS = ("--jobs=1",)

COMMANDS: dict[str, Command] = {
    "plan": Command(
        options=_flags("device", "engine", "concurrency", "headers", "exit_zero"), switches=_HEADERS, has_engine_flags=True
    ),
    "model": Command(options=_flags("headers"), switches=_HEADERS),
    "kv": Command(options={**_flags("context", "batch", "tp"), "formats": "--format"}),
    "compare": Command(
        options=_flags("device", "engine", "tp", "pp", "ep", "context", "concurrency", "kv", "flags", "headers", "exit_zero"),
        switches=_HEADERS,
    ),
    "fit": Command(
        options=_flags("devices", *_AXES, "max_devices", "max_nodes", "devices_per_node", "order", "limit", "front"),
        switches=_HEADERS,
        is_long=True,
        alone=_IN_ONE_PROCESS,
    ),
    "sweep": Command(options=_flags("device", *_AXES), switches=_HEADERS, is_long=True, alone=_IN_ONE_PROCESS),
    "workload": Command(options=_flags("cohorts", "max_model_len") | _WORKLOAD, switches=_TURNS, is_long=True),
    "simulate": Command(
        options={**_SIMULATED, "admission": "--admission", "compare": "--compare-tool-waits", "exit_zero": "--exit-zero"},
        files=_SIMULATED_FILES,
        switches=_TURNS,
        has_engine_flags=True,
        is_long=True,
    ),
    "capacity": Command(
        options={
            **_SIMULATED,
            **_flags("confidence", "resolution", "replications", "exit_zero"),
            "operating": "--operating-share",
            "with_headroom": "--headroom",
            "with_changes": "--sensitivity",
        },
        files=_SIMULATED_FILES,
        switches=_TURNS | {"with_headroom", "with_changes"},
        has_engine_flags=True,
        is_long=True,
        alone=_IN_ONE_PROCESS,
    ),
    "layout": Command(
        options={**_flags("device", "engine", "prompt", "output", "concurrency", "headers", "exit_zero"), "page_sizes": "--vmm-page"},
        files={"lengths": "--lengths"},
        switches=_HEADERS,
        has_engine_flags=True,
        is_long=True,
    ),
    "log": Command(options=_flags("engine"), is_long=True),
    "snapshot": Command(options=_flags("request", "device_free", "blocks"), is_long=True),
    "diagnose": Command(
        options={**_flags("device", "engine", "exit_zero"), "settings": "--set"}, files={"model": "--model"}, is_long=True
    ),
    "reconcile": Command(
        options=_flags("device", "engine", "headers", "exit_zero"),
        files={"model": "--model", "logs": "--log"},
        switches=_HEADERS,
        has_engine_flags=True,
        is_long=True,
    ),
    "diff": Command(options={"expressions": "--fail-if", "list_quantities": "--list-quantities"}),
    "audit": Command(options={"required": "--require"}),
}  # fmt: skip
