"""Agent runs of LMCache, counted: calls of several agents with start times, chained ids of 64-token blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.json_lines import BlockId, Tokens, checked_piece, decoded, in_batches
from vramledger.workload.columnar.piece import LATEST_NS, Piece
from vramledger.workload.columnar.source import Source

BLOCK_TOKENS = 64


class _Call(Struct, gc=False):
    set: str
    session_id: str
    timestamp_us: Annotated[int, Meta(ge=0, le=LATEST_NS // 1000)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[BlockId] = []


def agent_run_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Calls of all runs; the set is the tenant, the run the conversation.

    Only starts of calls were recorded, no ends: pauses are not known, so calls come when the trace saw them.
    """
    found.block_tokens = BLOCK_TOKENS
    found.note(
        "only starts of calls were recorded: each is sent at its own time, none after the end of another"
    )
    for rows, batch in in_batches(decoded(source, found, _Call), lambda item: item.hash_ids):
        yield checked_piece(
            found,
            rows,
            arrival_ns=[item.timestamp_us * 1000 for item in batch],
            prompt_tokens=[item.input_length for item in batch],
            output_tokens=[item.output_length for item in batch],
            blocks=[item.hash_ids for item in batch],
            tenant=[found.tenant(item.set) for item in batch],
            conversation=[found.conversation((item.set, item.session_id)) for item in batch],
        )
