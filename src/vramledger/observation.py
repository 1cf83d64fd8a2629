"""What an outside source said: one line of a log, one sample of a probe.

Pure values; reading files, sockets and drivers is the business of telemetry, knowing an engine's wording that of its
folder under engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from vramledger.ledger import ByteRange, Phase

Value = int | float | str | bool | ByteRange


class Event(StrEnum):
    """What kind of thing was said, alike for all engines."""

    VERSION = "version"  # engine_version
    SETTINGS = "settings"  # the engine's own names and values, as many as were printed
    MODEL = "model"  # model, architecture, quantization, dtype, context_len
    DEVICE = "device"  # device, total_bytes, free_bytes
    RANK = "rank"  # a process's place: rank_id, world_size, dp_rank_id, pp_rank_id, tp_rank_id, ep_rank_id, ep_size
    LOAD_BEGIN = "load_begin"  # free_bytes where printed
    WEIGHTS = "weights"  # weights_bytes and what else the line counts
    PROFILE = "profile"  # activation_peak_bytes, non_torch_bytes, ... as an engine prints them
    KV_BUDGET = "kv_budget"  # kv_cache_bytes: what is left for the pool
    KV_POOL = "kv_pool"  # kv_tokens, num_blocks, block_size, kv_cache_bytes, max_concurrency, context_len
    STATE_POOL = "state_pool"  # recurrent states, request slots, second pools
    GRAPH_ESTIMATE = "graph_estimate"  # graph_bytes
    GRAPH_SHAPE = (
        "graph_shape"  # one captured size: shape, graph_bytes (its increment) or free_bytes after it
    )
    GRAPHS = "graphs"  # graph_bytes, seconds, over all captured sizes
    BUFFER = "buffer"  # a named buffer: device, buffer ("model", "kv", "compute", ...), size_bytes
    MEMORY = "memory"  # a point at which an engine prints free or used memory: point, free_bytes, used_bytes
    WARMUP = "warmup"  # a warm-up step began or ended: step, shape
    READY = "ready"
    ADMITTED = (
        "admitted"  # a request came in: request, prompt_tokens where printed, stage where several tell of it
    )
    STEP = "step"  # running_requests, waiting_requests, kv_usage_ratio, scheduled_tokens, kv_free_blocks ...
    FINISHED = "finished"  # a request ended: request, reason where printed
    PREEMPTION = "preemption"  # preempted or retracted requests
    SLEEP = "sleep"
    WAKE = "wake"
    FRAME = "frame"  # a function whose name in a traceback tells what was under way: function, stage
    REMARK = "remark"  # something said in words of a failure: symptom
    FAILURE = "failure"  # a message of the failure catalogue; the value "message" names its kind
    EXIT = "exit"  # exit_code or signal


class Place(Struct, frozen=True, kw_only=True):
    """Where it was said: file (or address, or probe), line from 1 (0 where there are none), byte offset of the line."""

    source: str
    line: int = 0
    offset_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


class Observation(Struct, frozen=True, kw_only=True):
    """One thing that was said.

    Names in `values` end in their unit; a printed size is a ByteRange as wide as its rounding. `at_s` is Unix time, None
    where no time was printed (a time without a year or zone is read in the nearest past year, as UTC, and so
    compares only within one source). `rank` is the world rank where the line tells, `process` the printer's own label
    ("EngineCore pid=6585", "TP0"), `container` what a collector says of where it ran (a compose service, a pod, a unit).
    `text` is the line without prefixes, at most 4,000 characters.
    """

    event: Event
    values: Mapping[str, Value]
    place: Place
    text: str = ""
    engine: str | None = None
    at_s: float | None = None
    rank: int | None = None
    process: str | None = None
    container: str | None = None


class Sample(Struct, frozen=True, kw_only=True):
    """One reading of one quantity. `name` ends in its unit ("device_used_bytes", "kv_usage_ratio", "rss_bytes"); `source`
    is the probe and what it asked ("nvml:0", "proc:6585", "metrics:http://127.0.0.1:8000")."""

    at_s: float
    source: str
    name: str
    value: int | float
    rank: int | None = None
    pid: int | None = None
    phase: Phase | None = None
    label: str = ""
