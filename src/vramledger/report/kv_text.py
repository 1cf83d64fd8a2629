"""KV formats of a model as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.formats.kv_shapes import Side
from vramledger.kvcache.format_costs import FormatCost, LengthCost
from vramledger.ledger import ByteRange
from vramledger.report.bar import shares
from vramledger.report.kv_document import Comparison, effective_bits
from vramledger.report.text import Line, Span, columns, gib, line, wrapped
from vramledger.units import GIB

_LETTERS = {
    "packed_bytes": ("P", "kv_cache"),
    "scale_bytes": ("S", "activation"),
    "window_bytes": ("W", "weights"),
    "outlier_bytes": ("O", "runtime_context"),
    "tables_bytes": ("T", "collectives"),
    "padding_bytes": ("#", "allocator"),
}
_LEGEND = "P packed values, S scales and zero points, W window in full precision, O outliers, T tables, I index keys"


def kv_lines(comparison: Comparison, *, width: int = 80) -> Iterator[Line]:
    """Raw bits, bytes a token by length, bytes at the longest, their share of a 16-bit cache, workspace; then a bar
    each; then the formats that are not for this model."""
    model = comparison.model
    yield from wrapped(f"{model.id} · {model.architecture} · KV formats", width, rest="  ", style="head")
    per_rank = f"one of {comparison.tp} ranks" if comparison.tp > 1 else "one rank"
    count = f"{comparison.sequences} sequences" if comparison.sequences > 1 else "one sequence"
    yield from wrapped(f"{count}, {per_rank}", width, first="  ")
    shown = [cost for cost in comparison.costs if cost.lengths]
    if shown:
        yield line()
        yield from _table(shown, comparison, width)
        yield line()
        yield from _bars(shown, comparison, width)
    yield from _notes(comparison, width)


def _table(shown: list[FormatCost], comparison: Comparison, width: int) -> Iterator[Line]:
    """The columns that fit: shorter lengths give way first, then the raw bits, then the bits that come of them."""
    contexts = [length_text(length.context_len) for length in shown[0].lengths]
    full = comparison.full.lengths[-1]
    table: dict[str, list[str]] = {"format": [cost.store.name for cost in shown]}
    table["bits"] = [f"{cost.raw_bits:.3g}" for cost in shown]
    for index, context in enumerate(contexts):
        table[context] = [_per_token(cost.lengths[index], comparison.sequences) for cost in shown]
    last = [cost.lengths[-1] for cost in shown]
    table["eff"] = [f"{effective_bits(length, full):.2f}" for length in last]
    table["GiB"] = [gib(length.bytes) for length in last]
    table["ratio"] = [f"{length.bytes / full.bytes:.2f}" if full.bytes else "-" for length in last]
    table["work"] = [_workspace(length.workspace) for length in last]
    for name in (*contexts[:-1], "bits", "eff"):
        if sum(2 + max(len(name), *map(len, cells)) for name, cells in table.items()) - 2 <= width:
            break
        del table[name]
    lengths = ", ".join(name for name in contexts if name in table)
    told = f"at {contexts[-1]}: eff bits an element takes in all, GiB, ratio to 16 bits, GiB of workspace"
    left_out = [name for name in contexts if name not in table]
    if left_out:
        told += f"; too narrow a page for {', '.join(left_out)}"
    yield from wrapped(f"bytes a token at {lengths}; {told}", width, style="dim")
    rows = [tuple(table), *zip(*table.values(), strict=True)]
    yield from columns(rows, right=range(1, len(table)), styles=("head",), width=width)


def _per_token(length: LengthCost, sequences: int) -> str:
    size = length.bytes / (length.context_len * sequences)
    return f"{size:,.0f}"


def _workspace(workspace: ByteRange | None) -> str:
    if workspace is None:
        return "?"
    if not workspace.high:
        return "0"
    return gib(workspace.high) if workspace.is_exact else f"0-{gib(workspace.high)}"


def _bars(shown: list[FormatCost], comparison: Comparison, width: int) -> Iterator[Line]:
    last = shown[0].lengths[-1].context_len
    largest = max([cost.lengths[-1].bytes for cost in shown] + [comparison.full.lengths[-1].bytes])
    yield from wrapped(
        f"bytes at {last:,} tokens, [] is {largest / GIB:.2f} GiB: {_LEGEND}", width, style="dim"
    )
    names = max(len(cost.store.name) for cost in shown)
    for cost in shown:
        yield (
            (cost.store.name.ljust(names) + " ", ""),
            *_bar(cost.lengths[-1], largest, max(width - names - 1, 12)),
        )


def _bar(length: LengthCost, largest: int, width: int) -> Iterator[Span]:
    total: Side = length.key + length.value
    sizes = [getattr(total, name) for name in _LETTERS]
    counts = shares([*sizes, length.index_bytes, largest - length.bytes], width - 2)
    yield ("[", "")
    for (letter, style), count in zip([*_LETTERS.values(), ("I", "adapters")], counts, strict=False):
        if count:
            yield (letter * count, style)
    yield ("." * counts[-1], "dim")
    yield ("]", "")


def _notes(comparison: Comparison, width: int) -> Iterator[Line]:
    refused: dict[str, list[str]] = {}
    noted: dict[str, list[str]] = {}
    for cost in comparison.costs:
        if cost.refusal:
            refused.setdefault(cost.refusal, []).append(cost.store.name)
        for note in cost.notes:
            noted.setdefault(note, []).append(cost.store.name)
    if comparison.state_bytes_per_sequence != 0:
        size = comparison.state_bytes_per_sequence
        shown = "of unknown size" if size is None else f"{size:,} bytes a sequence"
        yield line()
        yield from wrapped(f"constant state of recurrent layers, whatever the format: {shown}", width)
    for title, found in (("not for this model", refused), ("notes", noted)):
        if found:
            yield line()
            yield line(title, "head")
            for text, names in found.items():
                everyone = len(names) == sum(bool(cost.lengths) for cost in comparison.costs) > 1
                who = "all" if everyone and title == "notes" else ", ".join(names)
                yield from wrapped(f"{who}: {text}", width, first="  ", rest="    ")


def length_text(tokens: int) -> str:
    """ "8K" for 8192, "1M" for 1048576, the number itself where it is no multiple of 1024."""
    for size, unit in ((2**20, "M"), (2**10, "K")):
        if tokens and tokens % size == 0:
            return f"{tokens // size:,}{unit}"
    return f"{tokens:,}"
