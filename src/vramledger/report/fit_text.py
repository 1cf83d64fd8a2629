"""A search as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramledger.report.text import Line, columns, gib, line, wrapped
from vramledger.search.fit import Candidate, Fit
from vramledger.search.rows import Row
from vramledger.search.terms import terms_of

MOST_REASONS = 6
NUMBERS = ("tokens", "requests", "price", "pp", "host GiB")
GIVES_WAY = ("requests", "host GiB", "pp")
"""Columns that a narrow page leaves out, the first first."""


def fit_lines(found: Fit, *, width: int = 80, limit: int = 20, front: bool = False) -> Iterator[Line]:
    """The page, no line longer than `width` where no single word is; lists are cut at `limit`.

    With `front` only the best of what holds are shown.
    """
    yield from wrapped(_counts(found), width, rest="  ", style="head")
    if found.holding:
        yield from _holding(found, width, limit, front=front)
    for title, rows in (
        ("cannot be told", found.untold),
        ("does not hold, the most useful near miss first", found.near),
    ):
        if rows:
            yield line()
            yield line(f"{title} ({len(rows):,})", "head")
            few = limit if not found.holding else min(limit, 5)
            for row in rows[:few]:
                yield from _missed(row, width)
    if found.refused:
        yield line()
        yield line("not started or not asked", "head")
        for refusal in found.refused[:MOST_REASONS]:
            yield from wrapped(refusal.reason, width, first=f"  {refusal.count:>6,}  ")
        rest = found.refused[MOST_REASONS:]
        if rest:
            yield line(f"  {sum(item.count for item in rest):>6,}  for {len(rest)} other reasons")


def _counts(found: Fit) -> str:
    parts = [f"{found.points:,} plans: {len(found.holding):,} hold", f"{len(found.near):,} do not"]
    if found.untold:
        parts.append(f"{len(found.untold):,} cannot be told")
    refused = sum(item.count for item in found.refused)
    if refused:
        parts.append(f"{refused:,} are not started or not asked")
    if found.pruned:
        parts.append(f"{found.pruned:,} have more weights than memory")
    if found.beyond_limits:
        parts.append(f"{found.beyond_limits:,} take more devices than allowed")
    return ", ".join(parts)


def _holding(found: Fit, width: int, limit: int, *, front: bool) -> Iterator[Line]:
    eligible = [item for item in found.holding if item.is_best or not front]
    shown = eligible[:limit]
    table = _table([item.row for item in shown], [item.is_best for item in shown])
    if len({item.row.engine for item in found.holding}) > 1:
        table["engine"] = [item.row.engine for item in shown]
    for name in GIVES_WAY:
        if _narrowest(table) > width:
            table.pop(name, None)
    yield line(f"holds, by {found.order.value}", "head")
    right = [number for number, name in enumerate(table) if name in NUMBERS]
    styles = ["dim", *("good" if item.is_best else "" for item in shown)]
    rows = [tuple(table), *zip(*table.values(), strict=True)]
    yield from columns(rows, right=right, styles=styles, width=width, wrap_column=1)
    if len(eligible) > limit:
        yield line(f"  and {len(eligible) - limit:,} more (--limit)", "dim")
    yield from wrapped(_front_text(found.holding), width, style="dim", rest="  ")
    first = eligible[0].row
    yield from wrapped(f"the first: {first.engine} {first.flags}".rstrip(), width, rest="  ")


def _table(rows: Sequence[Row], best: Sequence[bool]) -> dict[str, list[str]]:
    """Cells of each column by its head; prices and host memory where they tell something."""
    table = {
        "": ["*" if is_best else "" for is_best in best],
        "device": [f"{row.devices} x {row.device}" for row in rows],
        "tp": [f"{row.tp}" + (" ep" if row.ep else "") for row in rows],
        "pp": [f"{row.pp}" for row in rows],
        "weights": [row.weights for row in rows],
        "KV": [row.kv for row in rows],
        "tokens": [f"{row.pool_tokens:,}" if row.pool_tokens is not None else "" for row in rows],
        "requests": [
            f"{row.max_concurrency:,.2f}" if row.max_concurrency is not None else "" for row in rows
        ],
    }
    if any(row.price is not None for row in rows):
        table["price"] = [f"{row.price:,.2f}" if row.price is not None else "" for row in rows]
    if not all(terms_of(row.engine).keeps_weights for row in rows):
        table["host GiB"] = [gib(row.host_bytes or 0) for row in rows]
    return table


def _narrowest(table: dict[str, list[str]]) -> int:
    """Columns of the page where devices go over several lines."""
    widths = [
        max(
            map(
                len,
                [name, *(word for cell in cells for word in (cell.split() if name == "device" else [cell]))],
            )
        )
        for name, cells in table.items()
    ]
    return sum(widths) + 2 * (len(widths) - 1)


def _front_text(holding: Sequence[Candidate]) -> str:
    spent = "price" if all(item.cost.price is not None for item in holding) else "devices"
    count = sum(item.is_best for item in holding)
    return (
        f"* no plan is at least as good in {spent}, tokens and precision and better in one ({count:,} plans)"
    )


def _missed(row: Row, width: int) -> Iterator[Line]:
    what = f"{row.devices} x {row.device}, tp {row.tp} pp {row.pp}{' ep' if row.ep else ''}, {row.weights}, KV {row.kv}"
    lacks = f": {row.owner.value}, {gib(row.shortfall_bytes)} GiB short" if row.owner is not None else ""
    yield from wrapped(f"{what}, {row.engine}{lacks}", width, first="  ", rest="    ")
    yield from wrapped(row.reason, width, first="    ", rest="    ", style="dim")
