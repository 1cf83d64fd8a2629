"""JSON lines of which each is a request: a time, two lengths, and ids of the blocks of its prompt.

- Mooncake (FAST 2025): `timestamp` in ms, ids of 512-token blocks, chained and global.
- Qwen-Bailian (ATC 2025): `timestamp` in s, ids of 16-token blocks, each a salted hash of the block's own tokens, `chat_id`,
  `parent_chat_id` (-1: none), `turn`, `type`.
- What was sent in a measured vLLM run: `arrival_time_ns`, ids of full 16-token blocks, chained from the prompt's start.

Sources: the READMEs of kvcache-ai/Mooncake (FAST25-release) and alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct, field

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
MEASURED_BLOCK_TOKENS = 16
_Time = Annotated[int, Meta(ge=0, le=LATEST_NS)] | Annotated[float, Meta(ge=0, le=LATEST_NS)]


class _Mooncake(Struct, gc=False):
    timestamp: _Time
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[BlockId] = []


class _Bailian(_Mooncake, kw_only=True, gc=False):
    chat_id: int
    parent_chat_id: int = -1


class _Measured(_Mooncake, kw_only=True, gc=False):
    timestamp: _Time = field(name="arrival_time_ns")
    input_length: Tokens = field(name="input_toks")
    output_length: Tokens = field(name="output_toks")
    hash_ids: list[BlockId] = field(name="prompt_block16_ids", default_factory=list)


def mooncake_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of a Mooncake trace."""
    return _pieces(source, found, _Mooncake, unit="ms", block_tokens=MOONCAKE_BLOCK_TOKENS)


def bailian_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of a Bailian trace with the chats that they follow."""
    return _pieces(source, found, _Bailian, unit="s", block_tokens=BAILIAN_BLOCK_TOKENS)


def measured_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of a measured run."""
    return _pieces(source, found, _Measured, unit="ns", block_tokens=MEASURED_BLOCK_TOKENS)


def _pieces(
    source: Source, found: Findings, kind: type[_Mooncake], *, unit: str, block_tokens: int
) -> Iterator[Piece]:
    found.block_tokens = block_tokens
    unit_ns = UNIT_NS[found.options.time_unit or unit]
    for rows, batch in in_batches(decoded(source, found, kind), lambda item: item.hash_ids):
        chats = [item for item in batch if isinstance(item, _Bailian)]
        yield checked_piece(
            found,
            rows,
            arrival_ns=serial_ns([item.timestamp for item in batch], unit_ns, rows, found),
            prompt_tokens=[item.input_length for item in batch],
            output_tokens=[item.output_length for item in batch],
            blocks=[item.hash_ids for item in batch],
            ids=[item.chat_id for item in chats] or None,
            parent_ids=[None if item.parent_chat_id < 0 else item.parent_chat_id for item in chats] or None,
        )
