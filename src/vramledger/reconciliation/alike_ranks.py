"""Ranks that are alike print the same figures: one line for all of them, that of the rank that binds.

It is the largest of what is held and the smallest of what is left; the evidence says how far the others are from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from vramledger.evidence import Evidence
from vramledger.ledger import ByteRange, Owner
from vramledger.measurement import AllocatorState, Figure

Pick = Callable[..., Any]

_PICKS: tuple[tuple[tuple[str, ...], Pick], ...] = (
    (("allocated_bytes", "reserved_bytes", "outside_bytes"), max),
    (("pool_free_bytes", "device_free_bytes", "device_total_bytes", "largest_free_run_bytes"), min),
)
_OF_A_RANK = frozenset({"bytes", "evidence", "ranks"})


def one_figure(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """Figures of one kind of rank: what several of its ranks state of the same lines as one figure."""
    groups: dict[tuple[object, ...], list[Figure]] = {}
    for figure in figures:
        of = tuple(value for name, value in asdict(figure).items() if name not in _OF_A_RANK)
        groups.setdefault((*of, bool(figure.ranks)), []).append(figure)
    return tuple(_figure(found) for found in groups.values())


def _figure(found: Sequence[Figure]) -> Figure:
    """The last that each rank stated, together."""
    last = {figure.ranks: figure for figure in found}
    figures = list(last.values())
    if len(figures) < 2:
        return figures[0]
    pick: Pick = min if figures[0].owners == (Owner.KV_CACHE,) else max
    binding: Figure = pick(figures, key=_expected)
    ranks = tuple(sorted({rank for figure in figures for rank in figure.ranks}))
    return replace(
        binding, ranks=ranks, evidence=_of_ranks(binding.evidence, [figure.bytes for figure in figures])
    )


def _expected(figure: Figure) -> int:
    return figure.bytes.expected


def one_state(states: Iterable[AllocatorState]) -> AllocatorState:
    """The states of one point over ranks of one kind."""
    found = list({state.ranks: state for state in states}.values())
    if len(found) < 2:
        return found[0]
    sizes = {
        name: pick(told, key=_middle)
        for names, pick in _PICKS
        for name in names
        if (told := [size for state in found if (size := getattr(state, name)) is not None])
    }
    ranks = tuple(sorted({rank for state in found for rank in state.ranks}))
    evidence = _of_ranks(found[-1].evidence, [])
    return replace(found[-1], ranks=ranks, evidence=evidence, **sizes)


def _middle(size: ByteRange) -> int:
    return size.expected


def _of_ranks(evidence: Evidence, sizes: Sequence[ByteRange]) -> Evidence:
    told = f"{evidence.formula}; " if evidence.formula else ""
    middles = sorted(size.expected for size in sizes)
    spread = f"{len(middles)} ranks, {middles[0]} to {middles[-1]} B" if middles else "ranks that are alike"
    return replace(evidence, formula=f"{told}of {spread}")
