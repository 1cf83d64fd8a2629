"""A release as a person reads it in a terminal: what was done, how prediction and measurement stand, what the audit found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from vramledger.manifest.audit import Policy
from vramledger.release.exercise import Step
from vramledger.release.steps import Release
from vramledger.report.audit_text import audit_lines
from vramledger.report.reconciliation_text import reconciliation_lines
from vramledger.report.text import Line, columns, line, wrapped
from vramledger.units import counted


def release_lines(found: Release, *, out: Path, policy: Policy, width: int = 80) -> Iterator[Line]:
    """The command, what was asked of the engine, the reconciliation, the audit, and the files."""
    inputs = found.plan.inputs
    yield from wrapped(
        f"release of {inputs.model} · {inputs.engine} {inputs.engine_version} · {inputs.device}",
        width,
        rest="  ",
        style="head",
    )
    yield from wrapped(" ".join(found.command), width, first="  ", rest="    ", style="dim")
    yield line(f"  ready after {found.ready_after_s:.1f} s")
    yield line()
    yield from _asked(found.exercise.steps, width)
    yield from _returned(found, width)
    yield line()
    yield from reconciliation_lines(found.reconciliation, width=width)
    yield line()
    yield from audit_lines(found.manifest, found.audit, policy=policy, width=width, brief=True)
    yield line()
    yield from wrapped(
        f"files in {out}; vramledger audit {out / 'manifest.json'} has the evidence of each item",
        width,
        rest="  ",
    )


def _asked(steps: Sequence[Step], width: int) -> Iterator[Line]:
    yield line("what the engine was asked", "head")
    rows = [("  step", "requests", "prompt tokens", "output tokens", "first token s", "failed")]
    for step in steps:
        first = [item.first_token_s for item in step.answers if item.first_token_s is not None]
        rows.append(
            (
                f"  {step.name}",
                f"{len(step.answers)}",
                f"{sum(item.prompt_tokens for item in step.answers):,}",
                f"{sum(item.output_tokens or 0 for item in step.answers):,}",
                f"{max(first):.2f}" if first else "-",
                f"{len(step.failed)}",
            )
        )
    yield from columns(rows, right=range(1, 6), styles=("dim",), width=width)
    errors = Counter(item.error for step in steps for item in step.failed)
    for error, count in errors.most_common(3):
        yield from wrapped(
            f"{counted(count, 'request')}: {error}", width, first="  ", rest="    ", style="bad"
        )


def _returned(found: Release, width: int) -> Iterator[Line]:
    returned = found.exercise.returned
    text = f"{counted(returned.dropped, 'stream')} dropped: "
    if returned.seconds is None:
        text += "requests still ran two minutes later"
    elif returned.holds is None:
        text += f"nothing ran {returned.seconds:.1f} s later; the engine shows no usage of its pool"
    else:
        text += (
            f"usage {returned.usage_before:.1%} before, {returned.usage_while:.1%} while they ran, "
            f"{returned.usage_after:.1%} {returned.seconds:.1f} s later"
        )
    styles = {True: "good", False: "bad", None: "unsure"}
    yield from wrapped(text, width, first="  ", rest="    ", style=styles[returned.holds])
