"""The KV pool as the engine states it beside the planned one."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.ledger import ByteRange, Owner, total
from vramledger.measurement import MeasuredPool, Measurement
from vramledger.pool import IntRange, KvPool
from vramledger.reconciliation.result import (
    Interval,
    Line,
    Section,
    Standing,
    Unit,
    interval,
    standing_of,
)

_DRAFT = "draft"
_KINDS = {
    "sliding window": ("sliding_window", "swa", "kv_swa", "mla_sliding_window"),
    "recurrent states": ("recurrent", "mamba", "linear_attention"),
}
"""What engines' logs call pools of their own, and what plans call the layers."""


def pool_lines(plan: Plan, measurement: Measurement) -> tuple[Line, ...]:
    """Bytes, blocks, tokens and requests at once; of a pool of one kind of layers only what the plan has of that kind.

    What several sources tell of one pool alike stands once, from the one that tells it most closely.
    """
    size = total_bytes(measurement)
    out: list[Line] = []
    for found in measurement.pools:
        told = replace(found, bytes=size) if not found.kind and found.bytes is not None else found
        for line in _lines(plan.kv_pool, told):
            _add(out, line)
    return tuple(out)


def _add(lines: list[Line], new: Line) -> None:
    """Where a line of the same figure is there that may mean the same, the closer of both stays."""
    for at, old in enumerate(lines):
        if old.name == new.name and standing_of(old.measured, new.measured) is Standing.INSIDE:
            lines[at] = min(old, new, key=_width)
            return
    lines.append(new)


def _width(line: Line) -> float:
    return 0 if line.measured is None else line.measured.high - line.measured.low


def main_pool(measurement: Measurement) -> MeasuredPool | None:
    """The pool of the layers that keep every token."""
    return next((pool for pool in measurement.pools if not pool.kind), None)


def total_bytes(measurement: Measurement) -> ByteRange | None:
    """Bytes of all pools, a draft's apart, which no plan counts among its pool; None where one is not told. Several sources may
    tell one pool: the closest print counts."""
    closest: dict[str, ByteRange | None] = {}
    for pool in measurement.pools:
        if pool.kind == _DRAFT:
            continue
        known, size = closest.get(pool.kind), pool.bytes
        if known is None or (size is not None and size.high - size.low < known.high - known.low):
            closest[pool.kind] = size
    sizes = [size for size in closest.values() if size is not None]
    return total(sizes) if sizes and len(sizes) == len(closest) else None


def _lines(pool: KvPool | None, found: MeasuredPool) -> Iterator[Line]:
    of = f" ({found.kind})" if found.kind else ""
    for name, unit, ours, theirs in (
        ("pool", Unit.BYTES, _bytes(pool, found.kind), found.bytes),
        ("blocks", Unit.BLOCKS, _blocks(pool, found.kind), found.num_blocks),
        ("tokens", Unit.TOKENS, _tokens(pool, found.kind), found.tokens),
        ("requests at once", Unit.REQUESTS, _concurrency(pool, found), found.max_concurrency),
    ):
        if theirs is None:
            continue
        measured = interval(theirs)
        yield Line(
            section=Section.POOL,
            name=f"{name}{of}",
            unit=unit,
            standing=standing_of(ours, measured),
            predicted=ours,
            measured=measured,
            owners=(Owner.KV_CACHE,),
            evidence=found.evidence,
        )


def _bytes(pool: KvPool | None, kind: str) -> Interval | None:
    if pool is None:
        return None
    if not kind:
        return interval(pool.bytes)
    sizes = [
        (group.page_bytes * group.num_layers, group.pool_blocks or pool.num_blocks)
        for group in pool.groups
        if group.kind in _KINDS.get(kind, (kind,))
    ]
    if not sizes:
        return None
    return Interval(
        *(sum(page * getattr(count, end) for page, count in sizes) for end in ("low", "expected", "high"))
    )


def _blocks(pool: KvPool | None, kind: str) -> Interval | None:
    if pool is None:
        return None
    if not kind:
        return interval(pool.num_blocks)
    found = _group_blocks(pool, kind)
    return None if found is None else interval(found[0])


def _tokens(pool: KvPool | None, kind: str) -> Interval | None:
    if pool is None:
        return None
    if not kind:
        return interval(pool.tokens)
    found = _group_blocks(pool, kind)
    if found is None:
        return None
    count, size = found
    return Interval(count.low * size, count.expected * size, count.high * size)


def _group_blocks(pool: KvPool, kind: str) -> tuple[IntRange, int] | None:
    """Blocks of the one group of a kind that has a pool of its own, and the tokens of a block."""
    alike = [
        group
        for group in pool.groups
        if group.kind in _KINDS.get(kind, (kind,)) and group.pool_blocks is not None
    ]
    if len(alike) != 1 or alike[0].pool_blocks is None:
        return None
    return alike[0].pool_blocks, alike[0].block_size


def _concurrency(pool: KvPool | None, found: MeasuredPool) -> Interval | None:
    """Requests of one length only: a line about another context is not comparable."""
    if pool is None or (found.context_len is not None and found.context_len != pool.context_len):
        return None
    return interval(pool.max_concurrency)
