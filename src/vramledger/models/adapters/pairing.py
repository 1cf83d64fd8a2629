"""Header rows of an adapter's file put together: A with its B, and what is beside them."""

from __future__ import annotations

from collections.abc import Iterable

from vramledger.errors import HeaderError
from vramledger.models.adapters.adapter import ExtraTensor, LoraPair
from vramledger.models.adapters.names import PartKind, parse_name
from vramledger.models.sources.header_table import HeaderRow
from vramledger.models.sources.names import compress

_SIDES = {
    PartKind.A: (False, False),
    PartKind.B: (True, False),
    PartKind.EMBEDDING_A: (False, True),
    PartKind.EMBEDDING_B: (True, True),
}

MOST_SHAPES = 256

Group = tuple[str, bool, int]
"""A module's template, whether it is an embedding, and the rank its matrices share."""


def pair_up(
    rows: Iterable[HeaderRow], where: str
) -> tuple[tuple[LoraPair, ...], tuple[ExtraTensor, ...], tuple[str, ...]]:
    """Pairs, extras, and modules where A or B has no partner of its rank.

    A's rows and B's columns are the rank; an embedding's A is [rank, tokens]. Raises HeaderError, naming the file
    `where`, for a module of more shapes than any model has.
    """
    sides: dict[Group, tuple[list[HeaderRow], list[HeaderRow]]] = {}
    extras: list[ExtraTensor] = []
    for row in rows:
        module, kind = parse_name(row.template)
        side = _SIDES.get(kind)
        if side is None or len(row.shape) not in (2, 3):
            extras.append(
                ExtraTensor(
                    module=module,
                    kind=PartKind.OTHER if side is not None else kind,
                    shape=row.shape,
                    count=row.count,
                    dtype=row.dtype,
                    stored_bytes=row.total_bytes,
                )
            )
            continue
        is_b, is_embedding = side
        rank = row.shape[-1] if is_b else row.shape[-2]
        sides.setdefault((module, is_embedding, rank), ([], []))[is_b].append(row)
    pairs: list[LoraPair] = []
    alone: dict[str, None] = {}
    for (module, is_embedding, rank), (first, second) in sides.items():
        if len(first) > MOST_SHAPES or len(second) > MOST_SHAPES:
            raise HeaderError(
                f"{where}: {module[:120]} has more than {MOST_SHAPES} shapes of rank {rank}",
                file=where,
                key=module,
            )
        found, complete = _match(module, first, second, is_embedding=is_embedding)
        pairs.extend(found)
        if not complete:
            alone[module] = None
    return tuple(pairs), tuple(extras), tuple(alone)


def _match(
    module: str, first: list[HeaderRow], second: list[HeaderRow], *, is_embedding: bool
) -> tuple[list[LoraPair], bool]:
    """Pairs of rows of one module and rank, by the first indices they share; whether nothing is left over."""
    out: list[LoraPair] = []
    taken: dict[int, int] = {}
    for a in first:
        for b in second:
            shared = _shared(a, b)
            if shared is None:
                continue
            count = min(_count(a, shared), _count(b, shared))
            for row in (a, b):
                taken[id(row)] = taken.get(id(row), 0) + count
            out.append(
                LoraPair(
                    module=module,
                    rank=a.shape[-2],
                    stack=a.shape[0] if len(a.shape) == 3 else 1,
                    d_in=a.shape[-1],
                    d_out=b.shape[-2],
                    layers=compress(shared),
                    count=count,
                    dtype=a.dtype,
                    stored_bytes=count * (a.tensor_bytes + b.tensor_bytes),
                    is_embedding=is_embedding,
                )
            )
    return out, all(taken.get(id(row), 0) == row.count for row in (*first, *second))


def _shared(a: HeaderRow, b: HeaderRow) -> tuple[int, ...] | None:
    """First indices in both, None where there are none in common; a path without an index has none."""
    if a.shape[:-2] != b.shape[:-2]:
        return None
    if not a.layers and not b.layers:
        return ()
    shared = {index for run in a.layers for index in run} & {index for run in b.layers for index in run}
    return tuple(sorted(shared)) or None


def _count(row: HeaderRow, shared: tuple[int, ...]) -> int:
    """Tensors of a row under some of its first indices, which all hold as many."""
    return row.count * len(shared) // row.num_layers if shared else row.count
