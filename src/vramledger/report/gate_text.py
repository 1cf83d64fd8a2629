"""A release gate as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.manifest.gate_reason import Gated, Kept, Reason
from vramledger.report.gate_document import GateSideDocument
from vramledger.report.text import Line, line, wrapped

_MARKS = {Kept.KEPT: "kept  ", Kept.SHORT: "SHORT ", Kept.UNTOLD: "untold", Kept.NOT_ASKED: "-     "}
_STYLES = {Kept.KEPT: "good", Kept.SHORT: "bad", Kept.UNTOLD: "unsure", Kept.NOT_ASKED: "dim"}
_VERDICTS = {True: ("passes", "good"), False: ("does not pass", "bad"), None: ("cannot be told", "unsure")}


def gate_lines(
    found: Gated,
    *,
    policy: str,
    old: GateSideDocument | None,
    new: GateSideDocument,
    width: int = 80,
) -> Iterator[Line]:
    """The two sides, every rule with its figures, and the verdict with the rules that decide it."""
    for word, side in (("old", old), ("new", new)):
        if side is not None:
            yield from wrapped(f"{word}: {side.file}", width, rest="  ", style="head")
            yield from wrapped(
                f"{side.model_revision}, {side.engine_revision}", width, first="  ", style="dim"
            )
            for note in side.notes:
                yield from wrapped(f"note: {note}", width, first="  ")
    section = ""
    for reason in found.reasons:
        if reason.section != section:
            section = reason.section
            yield line()
            yield line(section, "head")
        yield from _rule(reason, width)
    yield line()
    for note in found.notes:
        yield from wrapped(f"note: {note}", width, rest="  ")
    yield from wrapped(verdict_text(found, policy=policy), width, rest="  ", style=_VERDICTS[found.passes][1])


def verdict_text(found: Gated, *, policy: str) -> str:
    """ "does not pass for capacity_requests_per_s < -5%; policy release.toml"."""
    word = _VERDICTS[found.passes][0]
    deciding = [reason.rule for reason in found.reasons if reason.decides]
    warned = sum(reason.kept in (Kept.SHORT, Kept.UNTOLD) and not reason.decides for reason in found.reasons)
    told = f" for {', '.join(deciding)}" if deciding else ""
    more = f"; {warned} {'warning' if warned == 1 else 'warnings'}" if warned else ""
    return f"{word}{told}{more}; policy {policy or 'as usual (--print-policy)'}"


def _rule(reason: Reason, width: int) -> Iterator[Line]:
    only_warns = reason.kept in (Kept.SHORT, Kept.UNTOLD) and not reason.decides
    mark = f"  {_MARKS[reason.kept]}  "
    warning = " (warning)" if only_warns else ""
    style = "unsure" if only_warns else _STYLES[reason.kept]
    yield from wrapped(f"{reason.rule}{warning}", width, first=mark, style=style)
    yield from wrapped(reason.why, width, first="          ")
