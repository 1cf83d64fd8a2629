"""An audit as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.manifest.audit import Audited, Policy, trips
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.finding import State
from vramledger.report.manifest_text import verdict_text
from vramledger.report.text import Line, line, wrapped

_STYLES = {State.PASSED: "good", State.FAILED: "bad", State.NOT_EVIDENCED: "unsure"}
_MARKS = {State.PASSED: "passed       ", State.FAILED: "FAILED       ", State.NOT_EVIDENCED: "not evidenced"}
_CITED = 3


def audit_lines(
    manifest: ManifestDocument,
    found: tuple[Audited, ...],
    *,
    policy: Policy,
    notes: tuple[str, ...] = (),
    width: int = 80,
    brief: bool = False,
) -> Iterator[Line]:
    """Every item with its evidence, what would evidence it where it is not passed, and what the policy makes of it; `brief`
    leaves out evidence and what would be it."""
    yield from wrapped(manifest.model_revision, width, rest="  ", style="head")
    yield from wrapped(manifest.engine_revision, width, rest="  ", style="head")
    yield from wrapped(manifest.digest, width, style="dim")
    yield from wrapped(verdict_text(manifest), width, rest="  ")
    for audited in found:
        item, finding = audited.item, audited.finding
        if not brief:
            yield line()
        mark = f"{_MARKS[finding.state]}  "
        required = " (required)" if audited.is_required else ""
        yield from wrapped(
            f"{item.title} [{item.name}]{required}", width, first=mark, style=_STYLES[finding.state]
        )
        if finding.reason and (not brief or finding.state is State.FAILED):
            yield from wrapped(finding.reason, width, first="  ", rest="  ")
        if brief:
            continue
        for cited in finding.evidence[:_CITED]:
            when = f", {cited.at}" if cited.at else ""
            yield from wrapped(f"{cited.text} ({cited.source}{when})", width, first="  - ")
        if len(finding.evidence) > _CITED:
            yield line(f"  - and {len(finding.evidence) - _CITED} more")
        if finding.state is not State.PASSED:
            yield from wrapped(f"evidenced by {item.evidenced_by}", width, first="  > ", style="dim")
    yield line()
    for note in notes:
        yield from wrapped(f"note: {note}", width, rest="  ")
    states = [audited.finding.state for audited in found]
    counts = ", ".join(f"{states.count(state)} {state.value}" for state in State)
    tripped = trips(found, policy)
    verdict = f"does not pass for {', '.join(item.item.name for item in tripped)}" if tripped else "passes"
    yield from wrapped(
        f"{counts}; policy {policy.value}: {verdict}", width, rest="  ", style="bad" if tripped else "good"
    )
