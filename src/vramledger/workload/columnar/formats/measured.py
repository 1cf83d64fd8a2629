"""What was sent in a measured vLLM run: lengths and ids of full 16-token blocks, chained from the prompt's start."""

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

BLOCK_TOKENS = 16


class _Sent(Struct, gc=False):
    arrival_time_ns: Annotated[int, Meta(ge=0, le=LATEST_NS)]
    input_toks: Tokens
    output_toks: Tokens
    prompt_block16_ids: list[BlockId] = []


def measured_pieces(source: Source, found: Findings) -> Iterator[Piece]:
    """Requests of such a run."""
    found.block_tokens = BLOCK_TOKENS
    unit = UNIT_NS[found.options.time_unit or "ns"]
    for rows, batch in in_batches(decoded(source, found, _Sent), lambda item: item.prompt_block16_ids):
        yield checked_piece(
            found,
            rows,
            arrival_ns=serial_ns([item.arrival_time_ns for item in batch], unit, rows, found),
            prompt_tokens=[item.input_toks for item in batch],
            output_tokens=[item.output_toks for item in batch],
            blocks=[item.prompt_block16_ids for item in batch],
        )
