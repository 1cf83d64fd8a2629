"""A plan as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from vramledger.answer import Plan
from vramledger.ledger import ByteRange, Entry, Owner, RankLedger
from vramledger.models.model import ParameterCounts
from vramledger.pool import FloatRange, IntRange, KvPool
from vramledger.report.bar import FILLS, memory_bar
from vramledger.report.text import Line, billions, gib, line, spread, wrapped
from vramledger.verdict import Verdict

_NUMBERS = 9
_LIFETIME = 9
_EVIDENCE = 10


def plan_lines(
    plan: Plan, *, width: int = 80, explain: bool = False, parameters: ParameterCounts | None = None
) -> Iterator[Line]:
    """The page, no line longer than `width` (60 at least)."""
    yield from _header(plan, parameters, width)
    for rank in plan.ranks:
        yield line()
        yield from _rank(rank, plan, width, explain=explain)
    yield line()
    if plan.kv_pool is None:
        yield line("KV pool: this model keeps no KV cache", "head")
    else:
        yield from _pool(plan.kv_pool, width)
    yield from _printed(plan, width)
    yield line()
    yield from _verdict(plan.verdict, width)
    if explain:
        yield line()
        yield line("settings", "head")
        text = ", ".join(f"{name} {value}" for name, value in plan.inputs.settings)
        yield from wrapped(text, width, first="  ")
    for note in plan.notes:
        yield from wrapped(note, width, first="note: ", rest="  ", style="dim")


def _header(plan: Plan, parameters: ParameterCounts | None, width: int) -> Iterator[Line]:
    inputs = plan.inputs
    parts = [inputs.model, inputs.architecture]
    if parameters is not None:
        size = billions(parameters.total)
        parts.append(
            f"{size} ({billions(parameters.active)} active)"
            if parameters.active != parameters.total
            else size
        )
    parts += [
        inputs.quantization,
        f"{inputs.engine} {inputs.engine_version}",
        f"{inputs.device} {gib(inputs.device_total_bytes)} GiB",
        f"tp {inputs.tp} pp {inputs.pp} dp {inputs.dp}" + (f" ep {inputs.ep}" if inputs.ep > 1 else ""),
    ]
    yield from wrapped(" · ".join(parts), width, rest="  ", style="head")


def _rank(rank: RankLedger, plan: Plan, width: int, *, explain: bool) -> Iterator[Line]:
    binding = rank.binding_phase
    peak = rank.peak(binding)
    yield from wrapped(
        f"{ranks_text(rank.ranks)}: {gib(peak.expected)} of {gib(rank.device_total_bytes)} GiB held in {binding.value}; "
        f"the engine's budget is {gib(plan.budget_bytes)}",
        width,
        style="head",
    )
    yield memory_bar(rank, binding, width)
    name_width = width - (2 + _LIFETIME + 3 * _NUMBERS + _EVIDENCE + 4)
    yield line(
        f"  {'owner / entry'.ljust(name_width)}  {'lifetime'.ljust(_LIFETIME)}"
        f"{_cells('low', 'expected', 'high')}  evidence",
        "dim",
    )
    outside = False
    for owner, group in groupby(sorted(rank.entries, key=_place), key=lambda entry: entry.owner):
        entries = list(group)
        outside = outside or not all(entry.inside_budget for entry in entries)
        if len(entries) > 1:
            together = rank.owned(owner) if _together(entries) else None
            yield _row(f"{FILLS[owner]} {owner.value}", together, name_width, owner=owner)
        for entry in entries:
            name = entry.name + ("" if entry.inside_budget else " *")
            label = f"{FILLS[owner]} {owner.value}: {name}" if len(entries) == 1 else f"    {name}"
            yield from _entry(entry, label, name_width, width, explain=explain)
    yield line("  peaks (GiB)", "dim")
    for item in rank.peaks:
        mark = "binds" if item.phase is binding else ""
        yield _row(
            f"    {item.phase.value}", item.occupied, name_width, evidence=mark, style="head" if mark else ""
        )
    weights = rank.weights
    yield from wrapped(
        f"weights: on disk {gib(weights.disk_bytes)}, host peak {_gib_range(weights.host_peak_bytes)}, "
        f"device steady {_gib_range(weights.device_bytes)} GiB",
        width,
        first="  ",
        rest="    ",
    )
    if outside:
        yield from wrapped(
            "* outside the engine's budget, still on the device", width, first="  ", style="dim"
        )


def _place(entry: Entry) -> int:
    return list(Owner).index(entry.owner)


def _together(entries: list[Entry]) -> bool:
    """Whether the entries are all alive at once, so that their sum means something."""
    return len({entry.phases for entry in entries}) == 1


def _entry(entry: Entry, label: str, name_width: int, width: int, *, explain: bool) -> Iterator[Line]:
    name = label.lstrip()
    lead = label[: len(label) - len(name)]
    parts = wrapped(name, name_width + 2, first=lead, rest=" " * (6 if lead else 4))
    labels = [part[0][0] for part in parts]
    yield _row(
        labels[0],
        entry.bytes,
        name_width,
        lifetime=entry.lifetime.value,
        evidence=entry.evidence.kind.value,
        owner=entry.owner,
    )
    for rest in labels[1:]:
        yield line(rest)
    if explain:
        if entry.evidence.formula:
            yield from wrapped(entry.evidence.formula, width, first="      = ", style="dim")
        yield from wrapped(entry.evidence.source, width, first="      source: ", rest="        ", style="dim")


def _row(
    label: str,
    size: ByteRange | None,
    name_width: int,
    *,
    lifetime: str = "",
    evidence: str = "",
    owner: Owner | None = None,
    style: str = "",
) -> Line:
    if size is None:
        numbers = _cells("", "", "")
    elif size.is_exact:
        numbers = _cells("", gib(size.expected), "")
    else:
        numbers = _cells(gib(size.low), gib(size.expected), gib(size.high))
    text = f"{label.ljust(name_width + 2)}  {lifetime.ljust(_LIFETIME)}{numbers}  {evidence}"
    if owner is not None and text[0] != " ":
        return ((text[0], owner.value), (text[1:], style))
    return line(text, style)


def _cells(*texts: str) -> str:
    return "".join(text.rjust(_NUMBERS) for text in texts)


def _pool(pool: KvPool, width: int) -> Iterator[Line]:
    size = ByteRange(pool.bytes.low, pool.bytes.expected, pool.bytes.high)
    yield from wrapped(f"KV pool: {_gib_range(size)} GiB, {pool.dtype}", width, style="head")
    name = max([5, *(len(part.kind) + 5 for group in pool.groups for part in group.parts)])
    yield line(
        f"  {'group'.ljust(name)}{'layers':>8}{'tokens/block':>14}{'bytes/page':>13}{'blocks/request':>16}",
        "dim",
    )
    for group, alike in groupby(pool.groups):
        count = len(list(alike))
        for index, part in enumerate(group.parts):
            kind = f"{count} x {part.kind}" if count > 1 else part.kind
            padded = group.padding_layers and len(group.parts) == 1
            layers = f"{part.num_layers}+{group.padding_layers}" if padded else str(part.num_layers)
            shared = f"{group.block_size:>14,}{part.page_bytes:>13,}"
            held = f"{group.blocks_per_request:>16,}" if index == 0 else f"{'same blocks':>16}"
            yield line(f"  {kind.ljust(name)}{layers:>8}{shared}{held}")
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
    for what, text in facts:
        yield from wrapped(text, width, first=f"  {what:<17}")


def _printed(plan: Plan, width: int) -> Iterator[Line]:
    if not plan.printed:
        return
    yield line(f"{plan.inputs.engine} {plan.inputs.engine_version} prints (expected values)", "head")
    for text in plan.printed:
        yield from wrapped(text, width, first="  ", rest="    ")


_STYLES = {True: "good", False: "bad", None: "unsure"}


def _verdict(verdict: Verdict, width: int) -> Iterator[Line]:
    yield from wrapped(verdict.summary, width, first="verdict: ", rest="  ", style=_STYLES[verdict.holds])
    if verdict.shortfall_bytes:
        yield line(f"  shortfall  {gib(verdict.shortfall_bytes)} GiB at least")
    for label, texts in (
        ("if", verdict.conditions),
        ("unknown", verdict.missing),
        ("remedy", verdict.remedies),
        ("assumed", verdict.assumed),
    ):
        for text in texts:
            yield from wrapped(text, width, first=f"  {label:<9}")


def ranks_text(ranks: tuple[int, ...]) -> str:
    """ "rank 0", "ranks 0-7", "ranks 0-3, 8-11"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def _gib_range(size: ByteRange) -> str:
    return spread(size.low, size.high, gib(size.expected), (gib(size.low), gib(size.high)))


def _count_range(count: IntRange) -> str:
    return spread(count.low, count.high, f"{count.expected:,}", (f"{count.low:,}", f"{count.high:,}"))


def _ratio_range(ratio: FloatRange) -> str:
    shown = f"{ratio.expected:.2f}x"
    return shown if ratio.low == ratio.high else f"{shown} ({ratio.low:.2f} to {ratio.high:.2f})"
