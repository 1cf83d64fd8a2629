"""W3C Trace Context: what a client says of its trace, and what the engine is told. Pure.

Rules: https://www.w3.org/TR/trace-context/ (Recommendation, version 00 of the header).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from vramledger.gateway.replies import Headers

HEADER = b"traceparent"
STATE = b"tracestate"
SAMPLED = 1
_VERSION_00 = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LATER = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class ParentContext(msgspec.Struct, frozen=True, kw_only=True):
    """The span that a request belongs to; `is_sampled` is whether its maker recorded it."""

    trace_id: int
    span_id: int
    is_sampled: bool


class RequestTrace(msgspec.Struct, kw_only=True):
    """A request's own span before it is made. `wall_offset_ns` added to the gateway's clock gives Unix time; `progress` are
    (instant, output tokens), thinned out."""

    trace_id: int
    span_id: int
    parent_span_id: int = 0
    is_sampled: bool = False
    wall_offset_ns: int = 0
    progress: list[tuple[int, int]] = []
    stride: int = 1
    skipped: int = 0

    @property
    def name(self) -> str:
        """The trace's identity as others write it."""
        return f"{self.trace_id:032x}"


def parent_of(headers: Headers) -> ParentContext | None:
    """None where there is no valid one; two are as good as none."""
    told = [value for name, value in headers if name == HEADER]
    if len(told) != 1:
        return None
    value = told[0].strip()
    found = _VERSION_00.fullmatch(value) if value.startswith(b"00") else _LATER.fullmatch(value)
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    if not trace_id or not span_id:
        return None
    return ParentContext(trace_id=trace_id, span_id=span_id, is_sampled=bool(flags & SAMPLED))


def tell_engine(headers: Headers, trace: RequestTrace, *, keep_state: bool) -> None:
    """Writes the request's own span into its headers. A vendor's state goes on only with the trace that it belongs to."""
    gone = (HEADER,) if keep_state else (HEADER, STATE)
    value = b"00-%032x-%016x-%02x" % (trace.trace_id, trace.span_id, SAMPLED if trace.is_sampled else 0)
    headers[:] = [pair for pair in headers if pair[0] not in gone]
    headers.append((HEADER, value))
