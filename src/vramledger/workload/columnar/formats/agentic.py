"""Conversations of coding agents as kv-cache-tester publishes them: one a line, its requests inside, subagents nested.

Block ids are local to a conversation, so each gets a range of its own. `t` is when a request started, in seconds since
its conversation's start; that of a subagent is when it had ended (it started `duration_ms` before), and its own requests
count from its start. Conversations have no common clock: when they start is chosen (`Starts`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from itertools import chain
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct, field

from vramledger.errors import InputError
from vramledger.units import counted
from vramledger.workload.columnar.findings import Findings, too_long
from vramledger.workload.columnar.json_lines import BlockId, Tokens, decoded
from vramledger.workload.columnar.linking import continued, later_in_groups
from vramledger.workload.columnar.piece import LATEST_NS
from vramledger.workload.columnar.runs import HeldRuns
from vramledger.workload.columnar.source import Source
from vramledger.workload.columns import Ints, RequestColumns, Workload, columns_with
from vramledger.workload.reading_options import FORMATS, Starts
from vramledger.workload.request import WorkloadHeader

MOST_IDS = 2**40
MOST_PROMPT_BLOCKS = 2**22
SLACK_S = 1.0
"""Recorded starts are whole seconds: one may seem to come so much before the end that it waited for."""
_Seconds = Annotated[float, Meta(ge=0, le=10**9)]


class _Call(Struct):
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
    requests: list[_Call] | None = None


class _Conversation(Struct):
    requests: list[_Call]
    id: str = ""
    block_size: Annotated[int, Meta(ge=1, le=2**20)] = 64
    hash_id_scope: str = "local"


class _Sent(Struct):
    """A call with its place among those of the conversation: when, after whom, in which thread of turns."""

    call: _Call
    start_s: float
    end_s: float
    parent: int
    pause_s: float
    thread: int


def agentic_workload(source: Source, found: Findings) -> Workload:
    """All conversations, their starts chosen by the options."""
    found.note(f"read as agentic: {FORMATS['agentic']}")
    held = HeldRuns()
    base, carried, subagents = 0, 0, 0
    starts = _starts(found.options.starts)
    names: set[str] = set()
    for line, conversation in decoded(source, found, _Conversation):
        name = conversation.id or f"line {line}"
        if name in names:
            found.bad(line, "is a conversation whose id came before", value=name)
            continue
        names.add(name)
        _check_alike(conversation, line, found)
        columns, threads, most = _columns(conversation, line, next(starts), base, found)
        subagents += threads - 1
        base = _next_base(base, most, line, found)
        thread, columns = columns.priority, columns._replace(priority=np.zeros_like(columns.priority))
        if found.options.link_turns and columns.rows:
            columns, more = continued(columns, conversation.block_size, later_in_groups(thread))
            carried += more
        held.add(columns)
    ordered = held.in_order()
    if not ordered.rows:
        raise InputError(f"{source.name} holds no request", file=source.name)
    _note(found, len(names), subagents, carried)
    header = WorkloadHeader(
        name=source.path.name,
        source=source.name,
        block_tokens=found.block_tokens,
        tenants=tuple(found.tenants),
        boundaries=found.boundaries(),
        notes=found.notes(),
    )
    return Workload(header, ordered.batches)


def _note(found: Findings, conversations: int, subagents: int, carried: int) -> None:
    starts = found.options.starts
    how = {
        "poisson": f"at random, {starts.gap_ns / 1e9:,.6g} s apart on average (seed {starts.seed})",
        "even": f"every {starts.gap_ns / 1e9:,.6g} s",
        "together": "all at once",
    }[starts.kind]
    found.note(f"{counted(conversations, 'conversation')} without a common clock start {how}, as was chosen")
    if subagents:
        found.note(f"{counted(subagents, 'subagent')} nested in them")
    if carried:
        found.note(
            f"{counted(carried, 'turn')} named on with the blocks of the turn that continues it (link_turns)"
        )


def _starts(starts: Starts) -> Iterator[int]:
    """When one conversation after the other starts."""
    rng = np.random.default_rng(starts.seed)
    at = 0.0
    while True:
        yield round(at)
        if starts.kind == "even":
            at += starts.gap_ns
        elif starts.kind == "poisson":
            at += float(rng.exponential(starts.gap_ns))
        if at > LATEST_NS // 2:
            raise InputError(f"conversations {starts.gap_ns / 1e9:,.6g} s apart would start too far away")


def _check_alike(conversation: _Conversation, line: int, found: Findings) -> None:
    """All conversations must have blocks of one length, and ids of one scope."""
    if found.block_tokens is None:
        found.block_tokens = conversation.block_size
    elif found.block_tokens != conversation.block_size:
        found.refuse(
            line,
            f"has blocks of {conversation.block_size} tokens, conversations before it of {found.block_tokens}",
        )
    if conversation.hash_id_scope != "local":
        found.refuse(
            line, "has block ids of another scope than its own conversation", value=conversation.hash_id_scope
        )


def _next_base(base: int, most: int, line: int, found: Findings) -> int:
    if base + most + 1 > MOST_IDS:
        found.refuse(
            line, f"has block ids so large that conversations' ranges end above {MOST_IDS}", value=most
        )
    return base + most + 1


def _columns(
    conversation: _Conversation, line: int, start_ns: int, base: int, found: Findings
) -> tuple[RequestColumns, int, int]:
    """(requests in order of start, threads, the largest id). `priority` has each request's thread for the moment."""
    sent, threads = _laid_out(conversation.requests)
    sent = _usable(sent, line, conversation.block_size, found)
    order = sorted(range(len(sent)), key=lambda place: (sent[place].start_s, place))
    place_of = {old: new for new, old in enumerate(order)}
    calls = [sent[place] for place in order]
    ids = [_ids(item.call) for item in calls]
    offsets = np.zeros(len(calls) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, ids), dtype=np.int64, count=len(ids)), out=offsets[1:])
    flat = np.concatenate(ids) if ids else np.empty(0, dtype=np.int64)
    most = int(flat.max()) if len(flat) else -1
    number = found.conversation(conversation.id or line)
    follow = found.options.follow_parents
    columns = columns_with(
        block_offsets=offsets,
        block_ids=flat + base,
        arrival_ns=[start_ns + round(item.start_s * 10**9) for item in calls],
        prompt_tokens=[item.call.prompt_tokens for item in calls],
        output_tokens=[max(item.call.output_tokens, 1) for item in calls],
        boundary=[found.boundary(item.call.model[:200]) for item in calls],
        conversation=[number] * len(calls),
        parent=[place_of[item.parent] if follow and item.parent >= 0 else -1 for item in calls],
        pause_ns=[round(item.pause_s * 10**9) if follow and item.parent >= 0 else 0 for item in calls],
        priority=[item.thread for item in calls],
    )
    return columns, threads, most


def _ids(call: _Call) -> Ints:
    if call.hash_runs is None:
        return np.array(call.hash_ids or (), dtype=np.int64)
    return np.fromiter(
        chain.from_iterable(range(first, first + count) for first, count in call.hash_runs), dtype=np.int64
    )


def _usable(sent: list[_Sent], line: int, block_tokens: int, found: Findings) -> list[_Sent]:
    """Calls with a prompt, and parents among them."""
    kept: list[_Sent] = []
    place_of = {-1: -1}
    for place, item in enumerate(sent):
        call = item.call
        blocks = (
            sum(count for _, count in call.hash_runs)
            if call.hash_runs is not None
            else len(call.hash_ids or ())
        )
        why = None
        if call.prompt_tokens < 1:
            why = "has a request with a prompt of no tokens"
        elif blocks > -(-call.prompt_tokens // block_tokens):
            why = f"has a request that names more blocks of {block_tokens} tokens than its prompt has"
        if why is not None:
            found.bad(line, why, value=f"request {place + 1}", then="without one of its requests")
            place_of[place] = place_of[item.parent]
            continue
        longest = found.options.max_model_len
        if longest is not None and call.prompt_tokens > longest:
            found.count(too_long(longest), (line,))
        if not call.output_tokens:
            found.count("with an output of no tokens, counted as 1: engines make one", (line,))
        item.parent = place_of[item.parent]
        place_of[place] = len(kept)
        kept.append(item)
    return kept


def _laid_out(requests: list[_Call]) -> tuple[list[_Sent], int]:
    """Calls of a conversation, each after the last call that had ended when it started, and how many threads they are.

    A subagent's first call follows the call that started it; what comes after a subagent follows its last call.
    """
    sent: list[_Sent] = []
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
    return sent, threads


def _send_subagent(
    sent: list[_Sent], calls: list[_Call], begin_s: float, outside: list[tuple[float, int]], *, thread: int
) -> None:
    ended = [_last_ended(outside, begin_s)] if outside else []
    ended = [item for item in ended if item[1] >= 0]
    before = -1
    for call in calls:
        if call.requests is None:
            _send(sent, call, begin_s, ended, before, thread=thread)
            before = len(sent) - 1


def _send(
    sent: list[_Sent],
    call: _Call,
    offset_s: float,
    ended: list[tuple[float, int]],
    before: int,
    *,
    thread: int,
) -> None:
    start_s = offset_s + call.t
    end_s, parent = _last_ended(ended, start_s)
    pause_s = max(0.0, start_s - end_s) if parent >= 0 else 0.0
    if parent >= 0 and parent == before and call.think_time is not None:
        pause_s = call.think_time
    sent.append(_Sent(call, start_s, start_s + (call.api_time or 0.0), parent, pause_s, thread))
    insort(ended, (sent[-1].end_s, len(sent) - 1))


def _last_ended(ended: list[tuple[float, int]], at_s: float) -> tuple[float, int]:
    place = bisect_right(ended, (at_s + SLACK_S, 2**62)) - 1
    return ended[place] if place >= 0 else (0.0, -1)
