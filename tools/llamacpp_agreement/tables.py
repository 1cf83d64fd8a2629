"""The table of agreement, worst first."""

from __future__ import annotations

from collections.abc import Sequence

from tools.llamacpp_agreement.compare import Outcome

from vramledger.engines.llamacpp.version import NEWEST
from vramledger.units import MIB


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Every case with both sides, those that differ and the largest differences of compute buffers first."""
    ordered = sorted(outcomes, key=lambda item: (not item.problem, -abs(item.compute_error), item.case.name))
    wrong = sum(bool(item.problem) for item in outcomes)
    worst = max((abs(item.compute_error) for item in outcomes), default=0.0)
    exact = sum(
        item.engine is not None and item.plan.compute_bytes == item.engine.compute_bytes for item in outcomes
    )
    lines = [
        "# Agreement with llama.cpp",
        "",
        f"Made by `make agreement-llamacpp`: llama.cpp {NEWEST} measures a header-only GGUF file of each model itself, without",
        "allocating, and the plan is compared. Model, KV and state buffers have to be equal to the byte, compute buffers to",
        f"3 %. {len(outcomes)} cases, {wrong} differ; compute buffers are equal to the byte in {exact}, the largest difference is",
        f"{100 * worst:.2f} %. MiB, plan / engine; worst first.",
        "",
        "| case | kind | model | KV and state | compute | difference |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for item in ordered:
        theirs = item.engine
        pairs = [
            _pair(item.plan.model_bytes, theirs.model_bytes if theirs else None),
            _pair(item.plan.context_bytes, theirs.context_bytes if theirs else None),
            _pair(item.plan.compute_bytes, theirs.compute_bytes if theirs else None),
        ]
        word = item.problem.replace("|", "/")[:80] if item.problem else f"{100 * item.compute_error:+.2f} %"
        lines.append(f"| {item.case.name} | {item.case.kind} | {' | '.join(pairs)} | {word} |")
    return "\n".join(lines) + "\n"


def _pair(ours: int, theirs: int | None) -> str:
    if theirs is None:
        return f"{ours / MIB:,.2f} / refused"
    return f"{ours / MIB:,.2f}" if ours == theirs else f"{ours / MIB:,.2f} / {theirs / MIB:,.2f}"
