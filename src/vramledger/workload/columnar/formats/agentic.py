"""Conversations of coding agents as kv-cache-tester publishes them: one a line, its requests inside, subagents nested.

Block ids are local to a conversation, so each gets a range of its own. `t` is when a request started, in seconds since
its conversation's start; that of a subagent is when it had ended (it started `duration_ms` before), and its own requests
count from its start. Conversations have no common clock: when they start is chosen (`Starts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from vramledger.errors import InputError
from vramledger.units import counted
from vramledger.workload.columnar.findings import Findings, too_long
from vramledger.workload.columnar.formats.agentic_calls import Call, Sent, laid_out
from vramledger.workload.columnar.json_lines import decoded
from vramledger.workload.columnar.linking import continued, later_in_groups
from vramledger.workload.columnar.piece import LATEST_NS
from vramledger.workload.columnar.runs import HeldRuns
from vramledger.workload.columnar.source import Source
from vramledger.workload.columns import Ints, RequestColumns, Workload, columns_with
from vramledger.workload.reading_options import FORMATS, Starts
from vramledger.workload.request import WorkloadHeader

MOST_IDS = 2**40


class _Conversation(Struct):
    requests: list[Call]
    id: str = ""
    block_size: Annotated[int, Meta(ge=1, le=2**20)] = 64
    hash_id_scope: str = "local"


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
        columns, thread, most = _columns(conversation, line, next(starts), base, found)
        subagents += int(thread.max(initial=0))
        base = _next_base(base, most, line, found)
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
    rng = np.random.Generator(np.random.PCG64(starts.seed))
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
) -> tuple[RequestColumns, Ints, int]:
    """(requests in order of start, the thread of turns that each belongs to, the largest id of a block)."""
    sent = _usable(laid_out(conversation.requests), line, conversation.block_size, found)
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
    )
    return columns, np.array([item.thread for item in calls], dtype=np.int64), most


def _ids(call: Call) -> Ints:
    if call.hash_runs is None:
        return np.array(call.hash_ids or (), dtype=np.int64)
    return np.fromiter(
        chain.from_iterable(range(first, first + count) for first, count in call.hash_runs), dtype=np.int64
    )


def _usable(sent: list[Sent], line: int, block_tokens: int, found: Findings) -> list[Sent]:
    """Calls with a prompt, and parents among them."""
    kept: list[Sent] = []
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
