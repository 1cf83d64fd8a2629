"""Allocation schemes side by side as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vramledger.kvcache.schemes import Allocation
from vramledger.report.bar import shares
from vramledger.report.layout_document import Layout
from vramledger.report.text import Line, Span, columns, gib, line, wrapped
from vramledger.units import MIB, ceil_div

_ROWS: tuple[tuple[str, Callable[[Allocation], str]], ...] = (
    ("unit, tokens", lambda found: f"{found.unit_tokens:,}"),
    ("unit, MiB", lambda found: f"{found.unit_bytes / MIB:,.2f}"),
    ("used, GiB", lambda found: gib(found.used_bytes)),
    ("held, GiB", lambda found: gib(found.held_bytes.expected)),
    ("  at most, GiB", lambda found: gib(found.held_bytes.high)),
    ("used of held", lambda found: f"{_share(found.used_bytes, found.held_bytes.expected):.1%}"),
    ("rounding, GiB", lambda found: gib(found.waste.rounding_bytes)),
    ("ahead, GiB", lambda found: gib(found.waste.ahead_bytes)),
    ("stale, GiB", lambda found: gib(found.waste.stale_bytes)),
    ("waste a request", lambda found: _short(_wasted(found) // max(found.requests, 1))),
    ("fixed, GiB", lambda found: gib(found.fixed_bytes)),
    ("tables, MiB", lambda found: f"{found.table_bytes / MIB:,.2f}"),
    ("addresses, GiB", lambda found: gib(found.virtual_bytes)),
    ("idle, GiB", lambda found: gib(found.idle_bytes)),
    ("fit running", lambda found: f"{found.fit_running:,}"),
    ("fit at the end", lambda found: f"{found.fit_final:,}"),
)
_LEGEND = (
    "used: tokens at a moment while requests run; rounding: rest of last blocks or pages; ahead: mapped or reserved "
    "for tokens to come; stale: tokens that left a window; fixed: held whatever runs; idle: not returned to the "
    "device when all have ended; fit: requests that fill the pool on the mean, while they run and all at their last length"
)


def layout_lines(layout: Layout, *, width: int = 80) -> Iterator[Line]:
    """The workload, a column for each scheme, a bar for each, and what to know of them."""
    inputs = layout.plan.inputs
    title = f"{inputs.model} · {inputs.engine} {inputs.engine_version} · {inputs.device} · KV layouts"
    yield from wrapped(title, width, rest="  ", style="head")
    if layout.refusal:
        yield from wrapped(layout.refusal, width, first="  ", style="bad")
        return
    yield from wrapped(
        f"{layout.requests:,} requests, mean prompt {layout.mean_prompt_tokens:,.0f} and output "
        f"{layout.mean_output_tokens:,.0f} tokens, longest {layout.lengths.longest:,} of {layout.max_len:,}; "
        f"pool {gib(layout.pool_bytes)} GiB on one rank",
        width,
        first="  ",
    )
    if layout.cut:
        share = layout.cut / layout.lengths.count
        yield from wrapped(
            f"{share:.1%} of the requests are cut to the context", width, first="  ", style="bad"
        )
    if layout.outside_bytes:
        text = f"beside the pool a request has {_short(layout.outside_bytes)} of constant state, in no figure below"
        yield from wrapped(text, width, first="  ")
    shown = [found for found in layout.allocations if not found.refusal]
    yield line()
    yield from _table(shown, width)
    yield line()
    yield from _bars(layout, shown, width)
    yield line()
    yield from wrapped(_LEGEND, width, style="dim")
    yield from _notes(layout, width)


def _table(shown: list[Allocation], width: int) -> Iterator[Line]:
    """Schemes as columns, over several tables where the page is narrow."""
    names = [found.scheme.split(" ", 1) for found in shown]
    cells = [[show(found) for _, show in _ROWS] for found in shown]
    labels = max(len(label) for label, _ in _ROWS)
    start = 0
    while start < len(shown):
        used, end = labels, start
        while end < len(shown):
            wide = 2 + max(map(len, [*names[end], *cells[end]]))
            if end > start and used + wide > width:
                break
            used, end = used + wide, end + 1
        rows = [("", *(name[0] for name in names[start:end])),
                ("", *(name[1] if len(name) > 1 else "" for name in names[start:end]))]  # fmt: skip
        rows += [
            (label, *(column[index] for column in cells[start:end])) for index, (label, _) in enumerate(_ROWS)
        ]
        if start:
            yield line()
        yield from columns(rows, right=range(1, end - start + 1), styles=("head", "head"))
        start = end


def _bars(layout: Layout, shown: list[Allocation], width: int) -> Iterator[Line]:
    yield from wrapped(
        f"[] is the pool, {gib(layout.pool_bytes)} GiB: U used, R rounding, A ahead, S stale, F fixed, T tables; > goes on",
        width,
        style="dim",
    )
    names = max(len(found.scheme) for found in shown)
    for found in shown:
        bar = _bar(found, layout.pool_bytes, max(width - names - 1, 12))
        yield ((found.scheme.ljust(names) + " ", ""), *bar)


def _bar(found: Allocation, pool_bytes: int, width: int) -> Iterator[Span]:
    """Letters in proportion to the pool; what is beyond it is cut off."""
    waste, cells = found.waste, width - 2
    parts = (
        ("U", "kv_cache", found.used_bytes),
        ("R", "runtime_context", waste.rounding_bytes),
        ("A", "activation", waste.ahead_bytes),
        ("S", "workspace", waste.stale_bytes),
        ("F", "allocator", found.fixed_bytes),
        ("T", "collectives", found.table_bytes),
    )
    sizes = [max(size, 0) for _, _, size in parts]
    total = max(sum(sizes), pool_bytes)
    counts = shares([*sizes, total - sum(sizes)], ceil_div(cells * total, pool_bytes))
    left = cells
    yield ("[", "")
    for (letter, style, _), count in zip((*parts, (".", "dim", 0)), counts, strict=True):
        if min(count, left):
            yield (letter * min(count, left), style)
        left -= min(count, left)
    yield ("]", "") if total == pool_bytes else (">", "bad")


def _notes(layout: Layout, width: int) -> Iterator[Line]:
    told: dict[str, list[str]] = {}
    for found in layout.allocations:
        for note in (found.refusal,) if found.refusal else found.notes:
            told.setdefault(note, []).append(found.scheme)
    if told:
        yield line()
    for note, schemes in told.items():
        yield from wrapped(f"{', '.join(schemes)}: {note}", width, first="  ", rest="    ")


def _wasted(found: Allocation) -> int:
    return found.held_bytes.expected - found.used_bytes


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _short(size_bytes: int) -> str:
    """Bytes in the unit that fits a narrow column."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes} B"
