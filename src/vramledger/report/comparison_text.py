"""A comparison as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vramledger.answer import Plan
from vramledger.report.bar import FILLS, memory_bar
from vramledger.report.text import Line, columns, gib, line, wrapped
from vramledger.search.comparison import Column, Comparison, Difference
from vramledger.search.evaluation import Status

TELLING_TERMS = 4
NARROWEST_COLUMN = 12
LABEL = 20
STYLES = {Status.HOLDS: "good", Status.FAILS: "bad", Status.UNTOLD: "unsure", Status.REFUSED: "bad"}


def comparison_lines(comparison: Comparison, *, width: int = 80) -> Iterator[Line]:
    """The page, no line longer than `width` (60 at least) where no single word is."""
    yield from _header(comparison, width)
    for column in comparison.columns:
        if column.held is not None:
            yield line(column.label)
            yield memory_bar(column.held.rank, column.held.phase, width)
    answered = [column for column in comparison.columns if column.plan is not None]
    widest = max((len(column.label) for column in answered), default=0)
    each = max((width - LABEL) // max(NARROWEST_COLUMN, widest + 2), 1)
    for start in range(0, len(answered), each):
        yield line()
        yield from _table(comparison, answered[start : start + each])
    if comparison.differences:
        yield line()
        yield line("tokens in the pool", "head")
        for difference in comparison.differences:
            yield from _difference(comparison, difference, width)
    for column in comparison.columns:
        yield line()
        yield from _column(column, width)


def _header(comparison: Comparison, width: int) -> Iterator[Line]:
    if any(column.name is not None for column in comparison.columns):
        for column in comparison.columns:
            if column.plan is not None:
                yield from wrapped(_subject(column.label, column.plan), width, rest="  ", style="head")
        return
    question = comparison.columns[0].outcome.question
    plan = next((column.plan for column in comparison.columns if column.plan is not None), None)
    parts = [question.device]
    if plan is not None:
        inputs = plan.inputs
        parts = [
            inputs.model,
            inputs.architecture,
            inputs.quantization,
            f"{inputs.device} {gib(inputs.device_total_bytes)} GiB",
        ]
    parts.append(f"tp {question.tp} pp {question.pp}" + (" ep" if question.ep else ""))
    many = f"{question.concurrency:,} request" + ("s" if question.concurrency > 1 else "")
    length = question.context_tokens
    parts.append(f"{many} of {length:,} tokens" if length else f"{many} of the full context")
    if question.kv != "auto":
        parts.append(f"KV {question.kv}")
    yield from wrapped(" · ".join(parts), width, rest="  ", style="head")


def _subject(name: str, plan: Plan) -> str:
    """What a plan that was made before is of."""
    inputs = plan.inputs
    device = f"{inputs.device} {gib(inputs.device_total_bytes)} GiB"
    split = f"tp {inputs.tp} pp {inputs.pp} dp {inputs.dp} ep {inputs.ep}"
    engine = f"{inputs.engine} {inputs.engine_version}"
    return f"{name}: {' · '.join((inputs.model, inputs.quantization, device, engine, split))}"


Cell = Callable[[Plan, Column], str]


def _table(comparison: Comparison, shown: Sequence[Column]) -> Iterator[Line]:
    """GiB of the rank that holds most, then what the pool comes to."""
    rows: list[tuple[str, ...]] = [("GiB, expected", *(column.label for column in shown))]
    styles = ["dim"]

    def add(label: str, cell: Cell, style: str = "") -> None:
        cells = [cell(column.plan, column) for column in shown if column.plan is not None]
        rows.append((label, *cells))
        styles.append(style)

    add("budget", lambda plan, _: gib(plan.budget_bytes))
    for owner in comparison.owners():
        add(
            f"{FILLS[owner]} {owner.value}",
            lambda _, column, owner=owner: gib(column.held.by_owner.get(owner, 0)) if column.held else "",  # type: ignore[misc]
        )
    add("held", lambda _, column: gib(column.held.peak_bytes) if column.held else "", "head")
    add("unused", lambda _, column: gib(column.held.unused_bytes) if column.held else "")
    if any(column.plan.host for column in shown if column.plan is not None):
        add("host memory", lambda plan, _: gib(sum(entry.bytes.expected for entry in plan.host)))
    add("in phase", lambda _, column: column.held.phase.value if column.held else "")
    add(
        "pool tokens", lambda plan, _: f"{plan.kv_pool.tokens.expected:,}" if plan.kv_pool else "none", "head"
    )
    add("bytes a token", lambda plan, _: f"{plan.kv_pool.bytes_per_token:,}" if plan.kv_pool else "")
    add("KV format", lambda plan, _: plan.kv_pool.dtype if plan.kv_pool else "")
    add("context", lambda plan, _: f"{plan.kv_pool.context_len:,}" if plan.kv_pool else "")
    add(
        "requests at once",
        lambda plan, _: f"{plan.kv_pool.max_concurrency.expected:.2f}" if plan.kv_pool else "",
    )
    add("verdict", lambda _, column: column.outcome.status.value)
    yield from columns(rows, right=range(1, len(shown) + 1), styles=styles)


def _difference(comparison: Comparison, item: Difference, width: int) -> Iterator[Line]:
    here, there = comparison.columns[item.column], comparison.columns[item.against]
    sign = "more" if item.tokens >= 0 else "fewer"
    told = item.terms[:TELLING_TERMS]
    parts = [_term(term.name, term.bytes, term.tokens) for term in told]
    rest = item.terms[TELLING_TERMS:]
    if rest:
        parts.append(_term("the rest", sum(t.bytes for t in rest), sum(t.tokens for t in rest)))
    yield from wrapped(
        f"{here.label} has {abs(item.tokens):,} tokens {sign} than {there.label}: {', '.join(parts)}",
        width,
        first="  ",
        rest="    ",
    )


def _term(name: str, size: int, tokens: int) -> str:
    if not size:
        return f"{name} {tokens:+,}"
    return f"{name} {tokens:+,} ({'+' if size > 0 else '-'}{gib(abs(size))} GiB)"


def _column(column: Column, width: int) -> Iterator[Line]:
    outcome, plan = column.outcome, column.plan
    yield from wrapped(
        outcome.reason, width, first=f"{column.label}: ", rest="  ", style=STYLES[outcome.status]
    )
    if plan is None:
        return
    if plan.verdict.shortfall_bytes:
        yield line(f"  shortfall  {gib(plan.verdict.shortfall_bytes)} GiB at least")
    for text in plan.verdict.missing:
        yield from wrapped(text, width, first="  unknown  ", rest="    ")
    for text in plan.notes:
        yield from wrapped(text, width, first="  note     ", rest="    ")
    for text in plan.printed:
        yield from wrapped(text, width, first="  prints   ", rest="    ")
