"""A device's memory as a bar: one letter a share, a letter for each owner."""

from __future__ import annotations

from vramledger.ledger import Owner, Phase, RankLedger
from vramledger.report.text import Line, Span

FILLS: dict[Owner, str] = {
    Owner.WEIGHTS: "W",
    Owner.ADAPTERS: "L",
    Owner.KV_CACHE: "K",
    Owner.ACTIVATION: "A",
    Owner.WORKSPACE: "S",
    Owner.COLLECTIVES: "C",
    Owner.GRAPH_POOL: "G",
    Owner.RUNTIME_CONTEXT: "R",
    Owner.ALLOCATOR: "F",
    Owner.HEADROOM: "H",
}
FREE = "."


def memory_bar(ledger: RankLedger, phase: Phase, width: int) -> Line:
    """What is held in `phase` (expected bytes) over `width` cells; `|` is the end of the device where more is
    held than it has."""
    sizes = {
        owner: sum(
            entry.bytes.expected for entry in ledger.entries if entry.owner is owner and phase in entry.phases
        )
        for owner in FILLS
    }
    held = sum(sizes.values())
    total = ledger.device_total_bytes
    cells = width - 2
    over = held > total
    if over:
        cells -= 1
    counts = shares([*sizes.values(), max(total - held, 0)], cells)
    spans: list[Span] = [
        (FILLS[owner] * count, owner.value) for owner, count in zip(FILLS, counts, strict=False)
    ]
    spans.append((FREE * counts[-1], "dim"))
    spans = [span for span in spans if span[0]]
    if over:
        spans = _with_end(spans, cells * total // held)
    return (("[", ""), *spans, ("]", ""))


def shares(sizes: list[int], cells: int) -> list[int]:
    """`cells` divided in proportion to `sizes` by largest remainder."""
    total = sum(sizes)
    if total <= 0:
        return [0] * len(sizes)
    counts = [size * cells // total for size in sizes]
    by_rest = sorted(range(len(sizes)), key=lambda index: -(sizes[index] * cells % total))
    for index in by_rest[: cells - sum(counts)]:
        counts[index] += 1
    return counts


def _with_end(spans: list[Span], position: int) -> list[Span]:
    out: list[Span] = []
    seen = 0
    placed = False
    for text, style in spans:
        if not placed and seen + len(text) >= position:
            cut = position - seen
            out += [(text[:cut], style), ("|", "bad"), (text[cut:], style)]
            placed = True
        else:
            out.append((text, style))
        seen += len(text)
    return out
