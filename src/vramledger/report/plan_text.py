"""A plan as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.answer import Plan
from vramledger.models.model import ParameterCounts
from vramledger.report.ledger_text import host_lines, ledger_lines
from vramledger.report.pool_text import pool_lines
from vramledger.report.text import Line, billions, gib, line, wrapped
from vramledger.verdict import Verdict


def plan_lines(
    plan: Plan, *, width: int = 80, explain: bool = False, parameters: ParameterCounts | None = None
) -> Iterator[Line]:
    """The page, no line longer than `width` (60 at least) where no single word is."""
    yield from _header(plan, parameters, width)
    for rank in plan.ranks:
        yield line()
        yield from ledger_lines(rank, plan.budget_bytes, width=width, explain=explain)
    if plan.host:
        yield line()
        yield from host_lines(plan.host, width=width, explain=explain)
    yield line()
    if plan.kv_pool is None:
        yield line("KV pool: this model keeps no KV cache", "head")
    else:
        yield from pool_lines(plan.kv_pool, width=width)
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
