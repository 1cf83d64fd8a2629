"""The requests of the steady stretch one by one: when each was due and how long its first token took."""

from __future__ import annotations

from vramledger.experiment.plan import Step
from vramledger.report.chart import Panel, inline
from vramledger.report.experiment_evidence import Evidence
from vramledger.report.experiment_picture import AIM, MEASURED, UNIT, Clock, Key, Picture
from vramledger.report.quantity_words import time_text, trimmed
from vramledger.units import counted

_TOP, _HEIGHT, _BOTTOM, _LEFT = 14, 130, 44, 64
MOST = 3000


def request_pictures(evidence: Evidence) -> list[Picture]:
    """Times to first token over the stretch, those that missed an aim apart; none without records. Of many requests every n-th."""
    stages = [
        item for item in evidence.found.stages if item.step is Step.STEADY and evidence.rows.get(item.name)
    ]
    if not stages:
        return []
    slo = evidence.found.plan.slo
    clock = Clock(((stages[0].began_s, max(item.ended_s for item in stages)),))
    found = [
        (clock.at(stage.began_s + row.due_ns / 1e9), float(row.ttft_ns), row.is_good(slo))
        for stage in stages
        for row in evidence.rows[stage.name]
        if row.ttft_ns is not None and row.ttft_ns > 0
    ]
    if not found:
        return []
    step = -(-len(found) // MOST)
    shown = found[::step]
    limit = None if slo.ttft_ms is None else slo.ttft_ms * 1e6
    values = [value for _, value, _ in shown] + ([limit] if limit is not None else [])
    panel = Panel(_TOP, _HEIGHT, most_x=clock.end, least_y=min(values) / 1.3, most_y=max(values) * 1.3, width=UNIT,
                  left=_LEFT, right=12, log_y=True)  # fmt: skip
    parts = [*panel.grid(clock.unit, shown_y=lambda value: trimmed(time_text(value)), marks_y=5)]
    if limit is not None:
        parts.append(panel.path([(0.0, limit), (clock.end, limit)], AIM, dash="2 3"))
    for good, colour in ((True, MEASURED), (False, "var(--bad)")):
        places = "".join(
            f"M{panel.x(x):.1f} {panel.y(value):.1f}h0" for x, value, is_good in shown if is_good is good
        )
        if places:
            parts.append(
                f'<path d="{places}" stroke="{colour}" stroke-width="4" stroke-linecap="round" stroke-opacity="0.55"/>'
            )
    missed = sum(not is_good for _, _, is_good in found)
    words = f"{counted(len(found), 'request')}, {missed:,} missed an aim"
    if step > 1:
        words += f"; every {step}th is drawn"
    return [
        Picture(
            title="time to first token, request by request",
            words=words,
            keys=(Key(MEASURED, "met every aim", "ring"), Key("var(--bad)", "missed one", "ring"), Key(AIM, "aim", "dash")),
            drawings=(inline(UNIT, _TOP + _HEIGHT + _BOTTOM, parts, says=words),),
        )
    ]  # fmt: skip
