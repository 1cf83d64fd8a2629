"""A workload as a page."""

from __future__ import annotations

from vramledger.report.text import Line, columns_within, line, wrapped
from vramledger.report.workload_document import SpreadDocument, WorkloadPart
from vramledger.units import counted


def workload_lines(part: WorkloadPart, *, width: int) -> list[Line]:
    """One trace: how many, when, how long, what they share, what was noted."""
    lines = [line(part.file, "head"), *wrapped(_when(part), width), line()]
    rows = [["", "mean", "p50", "p90", "p95", "p99", "max", "total"]]
    rows.append(["prompt tokens", *_cells(part.prompt_tokens)])
    rows.append(["output tokens", *_cells(part.output_tokens)])
    if part.pause_ns is not None:
        rows.append(["pause s", *_seconds(part.pause_ns)])
    lines += columns_within(rows, width, drop=(7, 3, 1), styles=["dim"])
    lines.append(line())
    for text in (_shared(part), _talks(part), _tenants(part), _others(part)):
        if text:
            lines += wrapped(text, width)
    for note in part.notes:
        lines += wrapped(note, width, first="- ", style="dim")
    return lines


def _when(part: WorkloadPart) -> str:
    text = counted(part.requests, "request")
    if part.rate_per_s is None:
        return f"{text}, all at one time"
    text += f" over {part.span_ns / 1e9:,.1f} s, {part.rate_per_s:,.4g} a second"
    if part.arrival_cv is not None:
        text += f"; CV of the gaps {part.arrival_cv:.3f}"
    if part.busiest_minute is not None:
        text += f"; busiest minute {part.busiest_minute:.2f} times the mean"
    return text


def _cells(spread: SpreadDocument) -> list[str]:
    values = (spread.p50, spread.p90, spread.p95, spread.p99, spread.max, spread.total)
    return [f"{spread.mean:,.1f}", *(f"{value:,}" for value in values)]


def _seconds(spread: SpreadDocument) -> list[str]:
    values = (spread.mean, spread.p50, spread.p90, spread.p95, spread.p99, spread.max, spread.total)
    return [f"{value / 1e9:,.1f}" for value in values]


def _shared(part: WorkloadPart) -> str:
    reuse = part.reuse
    if reuse is None:
        return "No prefix blocks are named: nothing is known of what prompts share."
    return (
        f"Prefixes: {reuse.reusable_blocks:,} of {reuse.prompt_blocks:,} prompt blocks of {reuse.block_tokens} tokens "
        f"({reuse.reusable_share:.2%}) came before, were nothing evicted; {counted(reuse.requests_with_a_hit, 'request')} "
        f"({reuse.requests_with_a_hit / part.requests:.2%}) with at least one."
    )


def _talks(part: WorkloadPart) -> str:
    if not part.conversations:
        return ""
    return (
        f"{counted(part.conversations, 'conversation')} of {part.requests_of_conversations / part.conversations:,.1f} "
        f"requests on average, {part.longest_conversation:,} at most; {part.following:,} sent after another's end."
    )


def _tenants(part: WorkloadPart) -> str:
    if part.num_tenants < 2:
        return ""
    shares = ", ".join(
        f"{item.tenant or '(none)'} {item.requests / part.requests:.1%}" for item in part.tenants[:5]
    )
    return f"{counted(part.num_tenants, 'tenant')}: {shares}{', ...' if part.num_tenants > 5 else ''}."


def _others(part: WorkloadPart) -> str:
    said = [
        f"{count:,} {what}"
        for count, what in (
            (part.branched, "with parallel branches"),
            (part.cancelled, "cancelled"),
            (part.with_deadline, "with a deadline"),
        )
        if count
    ]
    return f"{', '.join(said)}." if said else ""
