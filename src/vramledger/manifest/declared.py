"""What nobody can measure or calculate: what an operator declares, tested, or found under load.

A file of declarations (`vramledger manifest --facts FILE`) holds these values; each says where it comes from and when.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.errors import InputError
from vramledger.models.sources.json_file import parse_json_object

Text = Annotated[str, Meta(min_length=1, max_length=4000)]
Time = Annotated[
    str, Meta(description="UTC, as 2026-11-30T01:02:03Z.", pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
]
Whole = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Positive = Annotated[float, Meta(ge=0)]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that a person writes: a key that is not known is a slip of the pen."""


class PrefixSharingBoundary(_Strict, frozen=True, kw_only=True):
    """What keeps cached prefixes apart, for each thing that could: "salted by tenant", "one model an instance", a digest
    of the tokenizer. Null is not declared."""

    tenant: Text | None = None
    model: Text | None = None
    tokenizer: Text | None = None
    template: Text | None = None
    adapter: Text | None = None
    source: Text | None = None
    at: Time | None = None


class ToolWaitPolicy(_Strict, frozen=True, kw_only=True):
    """What becomes of a request's KV while a tool runs. `hold` keeps the blocks, for `limit_s` at most (null: without
    end); `never` says that no request waits for a tool."""

    action: Literal["hold", "offload", "drop", "never"]
    limit_s: Positive | None = None
    source: Text
    at: Time | None = None


class AdmissionPolicy(_Strict, frozen=True, kw_only=True):
    """Whether requests are admitted by free blocks, and by what the running ones may still grow to."""

    by_free_blocks: bool
    by_future_growth: bool
    source: Text
    at: Time | None = None


class CommunicationOverlap(_Strict, frozen=True, kw_only=True):
    """Which collectives run beside computation ("none", "all-to-all of two half batches"), and so keep their buffers."""

    overlapped: Text
    source: Text
    at: Time | None = None


class AdapterRevision(_Strict, frozen=True, kw_only=True):
    """A LoRA adapter that is served: its name, its revision (a commit or a digest), its rank and its bytes on a rank."""

    name: Text
    revision: Text | None = None
    rank: Whole | None = None
    bytes_per_rank: Whole | None = None


class Trial(_Strict, frozen=True, kw_only=True):
    """A test that was run. Free blocks of the pool before and after where the test counts them."""

    name: Literal["kv_returned_after_cancellation", "rolling_update", "recovery_headroom"]
    passed: bool
    source: Text
    at: Time
    free_blocks_before: Whole | None = None
    free_blocks_after: Whole | None = None
    smallest_headroom_bytes: Annotated[
        int | None, Meta(description="The least that was free on a device during the test.")
    ] = None


class Latency(_Strict, frozen=True, kw_only=True):
    """A latency at one percentile, its limit where the SLO has one."""

    metric: Literal["ttft", "tpot", "itl", "e2e", "queue"]
    percentile: Annotated[float, Meta(gt=0, le=100)]
    seconds: Positive
    limit_s: Positive | None = None


class Interval(_Strict, frozen=True, kw_only=True):
    """Where a figure lies with `confidence`."""

    low: Positive
    high: Positive
    confidence: Annotated[float, Meta(gt=0, lt=1)]


class CapacityResult(_Strict, frozen=True, kw_only=True):
    """One operating point: the load offered, what was answered within the SLO, and the latencies seen."""

    arrival: Literal["steady", "poisson", "burst", "trace", "closed"]
    requests_per_s: Positive | None = None
    concurrency: Whole | None = None
    prompt_tokens: Whole | None = None
    output_tokens: Whole | None = None
    slo: Text | None = None
    goodput_requests_per_s: Positive | None = None
    goodput_interval: Interval | None = None
    latencies: tuple[Latency, ...] = ()
    preemptions: Whole | None = None
    kv_usage_peak_ratio: Positive | None = None
    duration_s: Positive | None = None
    source: Text
    at: Time


class Facts(_Strict, frozen=True, kw_only=True):
    """A file of declarations. `adapters` empty says that none is served, null that nobody said."""

    schema_version: Annotated[str, Meta(pattern=r"^1\.\d+$")]
    kind: Literal["facts"]
    prefix_sharing_boundary: PrefixSharingBoundary | None = None
    tool_wait_policy: ToolWaitPolicy | None = None
    admission: AdmissionPolicy | None = None
    communication_overlap: CommunicationOverlap | None = None
    adapters: tuple[AdapterRevision, ...] | None = None
    tests: tuple[Trial, ...] = ()
    capacity_results: tuple[CapacityResult, ...] = ()


NOTHING_DECLARED = Facts(schema_version="1.0", kind="facts")


def read_facts(data: bytes, where: str) -> Facts:
    """The declarations in `data`; `where` names the file in messages. Raises InputError for what is none."""
    raw = parse_json_object(data, where, InputError)
    try:
        return msgspec.convert(raw, Facts)
    except msgspec.ValidationError as problem:
        raise InputError(
            f"{where} holds no declarations of version 1: {problem}; vramledger schema facts has their form",
            file=where,
            reason=str(problem),
        ) from None


def read_capacity(data: bytes, where: str) -> tuple[CapacityResult, ...]:
    """Operating points: an object with `capacity_results`, which may be a file of declarations. Raises InputError."""
    raw = parse_json_object(data, where, InputError)
    try:
        return msgspec.convert(raw.get("capacity_results"), tuple[CapacityResult, ...])
    except msgspec.ValidationError as problem:
        raise InputError(
            f"{where} holds no capacity_results: {problem}", file=where, reason=str(problem)
        ) from None
