"""The KV pool of a plan as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from vramledger.ledger import ByteRange
from vramledger.pool import FloatRange, IntRange, KvGroup, KvPart, KvPool
from vramledger.report.text import Line, columns, gib, gib_range, line, spread, wrapped

_HEAD = ("group", "layers", "tokens/block", "bytes/page", "blocks/request")
_HEADS_OF_TWO = (("group", "layers", "tokens", "bytes", "blocks"), ("", "", "/block", "/page", "/request"))


def pool_lines(pool: KvPool, *, width: int) -> Iterator[Line]:
    """Size, groups of layers, and what the bytes come to in blocks, tokens and requests."""
    size = ByteRange(pool.bytes.low, pool.bytes.expected, pool.bytes.high)
    yield from wrapped(f"KV pool: {gib_range(size)} GiB, {pool.dtype}", width, style="head")
    yield from _groups(pool, width)
    facts = [
        ("bytes", f"{pool.bytes_per_token:,} a token, {pool.bytes_per_block:,} a block"
         + (f", {pool.state_bytes_per_sequence:,} constant state a sequence" if pool.state_bytes_per_sequence else "")),
        ("blocks", f"{_count_range(pool.num_blocks)} of {pool.block_size:,} tokens"),
        ("tokens", _count_range(pool.tokens)),
        ("concurrency", f"{_ratio_range(pool.max_concurrency)} at {pool.context_len:,} tokens"),
        ("longest context", _count_range(pool.longest_context)),
    ]  # fmt: skip
    if pool.steady_bytes_per_request != pool.admission_bytes_per_request:
        facts += [
            ("admission", f"{gib(pool.admission_bytes_per_request)} GiB a request: {_ratio_range(pool.max_concurrency)} requests"),
            ("steady state", f"{gib(pool.steady_bytes_per_request)} GiB a request: {_ratio_range(pool.steady_concurrency)} requests"),
        ]  # fmt: skip
    facts.append(("log line", pool.tokens_rule))
    if len(pool.groups) > 1:
        facts[2:2] = [
            ("", f"{group.kind}: {_count_range(group.pool_blocks)} {_of_what(group, pool)}")
            for group in pool.groups
            if group.pool_blocks is not None
        ]
    for what, text in facts:
        yield from wrapped(text, width, first=f"  {what:<16} ")


def _groups(pool: KvPool, width: int) -> Iterator[Line]:
    """The table of groups; its headings take two lines where the page is too narrow for one."""
    rows: list[tuple[str, ...]] = []
    for group, alike in groupby(pool.groups):
        count = len(list(alike))
        parts = group.parts or (
            KvPart(kind=group.kind, num_layers=group.num_layers, page_bytes=group.page_bytes),
        )
        for index, part in enumerate(parts):
            padded = group.padding_layers and len(parts) == 1
            rows.append(
                (
                    f"{count} x {part.kind}" if count > 1 else part.kind,
                    f"{part.num_layers}+{group.padding_layers}" if padded else str(part.num_layers),
                    f"{group.block_size:,}",
                    f"{part.page_bytes:,}",
                    "same blocks" if index else f"{group.blocks_per_request:,}",
                )
            )
    if _table_width([_HEAD, *rows]) <= width:
        yield from _table([_HEAD, *rows], heads=1)
        return
    narrow = [*_HEADS_OF_TWO, *((*row[:4], row[4].removesuffix(" blocks")) for row in rows)]
    if _table_width(narrow) <= width:
        yield from _table(narrow, heads=2)
        return
    # A kind with so long a name stands above its figures.
    lines = _table([("", *row[1:]) for row in narrow], heads=2)
    yield from lines[:2]
    for row, figures in zip(rows, lines[2:], strict=True):
        yield line(f"  {row[0]}")
        yield figures


def _table(rows: Sequence[Sequence[str]], *, heads: int) -> list[Line]:
    indented = [(f"  {row[0]}", *row[1:]) for row in rows]
    return columns(indented, right=(1, 2, 3, 4), styles=("dim",) * heads)


def _table_width(rows: Sequence[Sequence[str]]) -> int:
    return 2 + sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2


def _of_what(group: KvGroup, pool: KvPool) -> str:
    """What one block of a group's own pool is."""
    return "states" if group.block_size >= pool.context_len else f"of {group.block_size:,} tokens"


def _count_range(count: IntRange) -> str:
    return spread(count.low, count.high, f"{count.expected:,}", (f"{count.low:,}", f"{count.high:,}"))


def _ratio_range(ratio: FloatRange) -> str:
    shown = f"{ratio.expected:.2f}x"
    return shown if ratio.low == ratio.high else f"{shown} ({ratio.low:.2f} to {ratio.high:.2f})"
