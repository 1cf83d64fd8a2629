"""Mooncake traces (FAST 2025) and Qwen-Bailian usage traces (ATC 2025): lengths, and ids of the prompt's blocks.

Mooncake: `timestamp` in ms, ids of 512-token blocks, chained and global. Bailian: `timestamp` in s, ids of 16-token blocks,
each a salted hash of the block's own tokens, `chat_id`, `parent_chat_id` (-1: none), `turn`, `type`. Sources: the
READMEs of kvcache-ai/Mooncake (FAST25-release) and alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.json_lines import (
    BlockId,
    Tokens,
    checked_piece,
    decoded,
    in_batches,
    serial_ns,
)
from vramledger.workload.columnar.piece import LATEST_NS, Piece
from vramledger.workload.columnar.source import Source
from vramledger.workload.reading_options import UNIT_NS

MOONCAKE_BLOCK_TOKENS = 512
BAILIAN_BLOCK_TOKENS = 16
_Time = Annotated[int, Meta(ge=0, le=LATEST_NS)] | Annotated[float, Meta(ge=0, le=LATEST_NS)]


class _Mooncake(Struct, gc=False):
    timestamp: _Time
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[BlockId] = []


class _Bailian(_Mooncake, kw_only=True, gc=False):
    chat_id: int
    parent_chat_id: int = -1


def mooncake_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of a Mooncake trace."""
    found.block_tokens = MOONCAKE_BLOCK_TOKENS
    unit = UNIT_NS[found.options.time_unit or "ms"]
    for rows, batch in in_batches(decoded(source, found, _Mooncake), lambda item: item.hash_ids):
        yield checked_piece(
            found,
            rows,
            arrival_ns=serial_ns([item.timestamp for item in batch], unit, rows, found),
            prompt_tokens=[item.input_length for item in batch],
            output_tokens=[item.output_length for item in batch],
            blocks=[item.hash_ids for item in batch],
        )


def bailian_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of a Bailian trace with the chats that they follow."""
    found.block_tokens = BAILIAN_BLOCK_TOKENS
    unit = UNIT_NS[found.options.time_unit or "s"]
    for rows, batch in in_batches(decoded(source, found, _Bailian), lambda item: item.hash_ids):
        yield checked_piece(
            found,
            rows,
            arrival_ns=serial_ns([item.timestamp for item in batch], unit, rows, found),
            prompt_tokens=[item.input_length for item in batch],
            output_tokens=[item.output_length for item in batch],
            blocks=[item.hash_ids for item in batch],
            ids=[item.chat_id for item in batch],
            parent_ids=[None if item.parent_chat_id < 0 else item.parent_chat_id for item in batch],
        )
