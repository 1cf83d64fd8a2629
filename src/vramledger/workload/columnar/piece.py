"""Requests in the order of a file, before they are put in order of arrival."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from vramledger.workload.columns import SCALARS, Ints, RequestColumns, joined

MOST_TOKENS = 2**31
LATEST_NS = 2**62
MOST_BLOCK_IDS = 2**22
"""Identities of a batch, so that a batch of long prompts is not larger than one of short ones."""


class Piece(NamedTuple):
    """Requests with the row or line of the file that each came from.

    `ids` and `parent_ids` are what the trace calls a request and the one it follows (None: it follows none); a piece
    has both or neither. `ends_ns` is when the trace saw the end of each, -1 where it did not.
    """

    columns: RequestColumns
    rows: Ints
    ids: list[object] | None = None
    parent_ids: list[object] | None = None
    ends_ns: Ints | None = None


def ragged(offsets: Ints, order: Ints) -> tuple[Ints, Ints]:
    """(offsets, places): where the values of rows `order` lie among those that `offsets` cut."""
    lengths = np.diff(offsets)[order]
    out = np.zeros(len(order) + 1, dtype=np.int64)
    np.cumsum(lengths, out=out[1:])
    places = np.repeat(offsets[:-1][order] - out[:-1], lengths) + np.arange(out[-1], dtype=np.int64)
    return out, places


def taken(columns: RequestColumns, order: Ints) -> RequestColumns:
    """The rows `order` of `columns`."""
    offsets, places = ragged(columns.block_offsets, order)
    return RequestColumns(
        **{name: getattr(columns, name)[order] for name in SCALARS},
        block_offsets=offsets,
        block_ids=columns.block_ids[places],
    )


def part(columns: RequestColumns, start: int, stop: int) -> RequestColumns:
    """Consecutive rows, without a copy of what they hold."""
    offsets = columns.block_offsets[start : stop + 1]
    return RequestColumns(
        **{name: getattr(columns, name)[start:stop] for name in SCALARS},
        block_offsets=offsets - offsets[0],
        block_ids=columns.block_ids[offsets[0] : offsets[-1]],
    )


def kept(piece: Piece, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Piece:
    """The rows of a piece where `mask` is true."""
    return piece if mask.all() else picked(piece, np.flatnonzero(mask))


def picked(piece: Piece, order: Ints) -> Piece:
    """The rows of a piece at the places `order`, in that order."""
    places = order.tolist()
    return Piece(
        columns=taken(piece.columns, order),
        rows=piece.rows[order],
        ids=None if piece.ids is None else [piece.ids[place] for place in places],
        parent_ids=None if piece.parent_ids is None else [piece.parent_ids[place] for place in places],
        ends_ns=None if piece.ends_ns is None else piece.ends_ns[order],
    )


def merged(pieces: Iterable[Piece]) -> Piece:
    """Pieces in one."""
    parts = list(pieces)
    if len(parts) == 1:
        return parts[0]
    has_ids = any(item.ids is not None for item in parts)
    has_ends = any(item.ends_ns is not None for item in parts)
    return Piece(
        columns=joined(item.columns for item in parts),
        rows=np.concatenate([item.rows for item in parts]) if parts else np.empty(0, dtype=np.int64),
        ids=[name for item in parts for name in item.ids or ()] if has_ids else None,
        parent_ids=[name for item in parts for name in item.parent_ids or ()] if has_ids else None,
        ends_ns=np.concatenate([item.ends_ns for item in parts if item.ends_ns is not None])
        if has_ends
        else None,
    )
