"""When the calls of an agent's conversation are sent and after which other call, from what was recorded of them."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Annotated

from msgspec import Meta, Struct, field

from vramledger.workload.columnar.json_lines import BlockId, Tokens

MOST_PROMPT_BLOCKS = 2**22
SLACK_S = 1.0
"""Recorded starts are whole seconds: one may seem to come so much before the end that it waited for."""
_Seconds = Annotated[float, Meta(ge=0, le=10**9)]


class Call(Struct):
    t: _Seconds
    type: str = ""
    model: str = ""
    prompt_tokens: Tokens = field(default=0, name="in")
    output_tokens: Tokens = field(default=0, name="out")
    hash_runs: list[tuple[BlockId, Annotated[int, Meta(ge=0, le=MOST_PROMPT_BLOCKS)]]] | None = None
    hash_ids: list[BlockId] | None = None
    api_time: _Seconds | None = None
    think_time: _Seconds | None = None
    duration_ms: Annotated[float, Meta(ge=0)] | None = None
    requests: list[Call] | None = None


class Sent(Struct):
    """A call with when it was sent, after which other one (its place, -1: none), and in which thread of turns: 0 is the
    conversation's own, others are its subagents'.
    """

    call: Call
    start_s: float
    end_s: float
    parent: int
    pause_s: float
    thread: int


def laid_out(requests: list[Call]) -> list[Sent]:
    """Calls of a conversation, each after the last call that had ended when it started.

    A subagent's first call follows the call that started it; what comes after a subagent follows its last call.
    """
    sent: list[Sent] = []
    threads = 1
    ended: list[tuple[float, int]] = []
    before = -1
    for call in requests:
        if call.requests is None:
            _send(sent, call, 0.0, ended, before, thread=0)
            before = len(sent) - 1
            continue
        if not call.requests:
            continue
        inner = call.requests
        span_s = max(nested.t + (nested.api_time or 0.0) for nested in inner)
        begin_s = max(0.0, call.t - (span_s if call.duration_ms is None else call.duration_ms / 1000))
        _send_subagent(sent, inner, begin_s, ended, thread=threads)
        insort(ended, (max(call.t, sent[-1].start_s), len(sent) - 1))
        threads += 1
        before = -1
    return sent


def _send_subagent(
    sent: list[Sent], calls: list[Call], begin_s: float, outside: list[tuple[float, int]], *, thread: int
) -> None:
    ended = [_last_ended(outside, begin_s)] if outside else []
    ended = [item for item in ended if item[1] >= 0]
    before = -1
    for call in calls:
        if call.requests is None:
            _send(sent, call, begin_s, ended, before, thread=thread)
            before = len(sent) - 1


def _send(
    sent: list[Sent],
    call: Call,
    offset_s: float,
    ended: list[tuple[float, int]],
    before: int,
    *,
    thread: int,
) -> None:
    start_s = offset_s + call.t
    end_s, parent = _last_ended(ended, start_s)
    if parent >= 0:
        start_s = max(start_s, sent[parent].start_s)
    pause_s = max(0.0, start_s - end_s) if parent >= 0 else 0.0
    if parent >= 0 and parent == before and call.think_time is not None:
        pause_s = call.think_time
    sent.append(Sent(call, start_s, start_s + (call.api_time or 0.0), parent, pause_s, thread))
    insort(ended, (sent[-1].end_s, len(sent) - 1))


def _last_ended(ended: list[tuple[float, int]], at_s: float) -> tuple[float, int]:
    place = bisect_right(ended, (at_s + SLACK_S, 2**62)) - 1
    return ended[place] if place >= 0 else (0.0, -1)
