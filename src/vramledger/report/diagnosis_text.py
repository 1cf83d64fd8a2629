"""A diagnosis as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramledger.diagnosis.diagnosis import Diagnosis
from vramledger.diagnosis.evidence_lines import evidence_lines
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.terms import Confidence, FailureClass
from vramledger.ledger import ByteRange
from vramledger.report.text import Line, columns, line, utc_text, wrapped
from vramledger.units import counted, format_bytes

_STYLES = {Confidence.HIGH: "bad", Confidence.MEDIUM: "unsure", Confidence.LOW: "unsure"}
_LONGEST_QUOTE = 240
_DOMAINS = {
    "device": "device memory",
    "host": "host memory",
    "kv-pool": "the engine's KV pool",
    "workspace": "a workspace of fixed size",
    "request-slots": "request slots, not bytes",
    "shared-memory-per-block": "on-chip shared memory of a kernel, not device memory",
    "shared-memory-segment": "a shared-memory mount, not device memory",
    "none": "no lack of memory",
}


def diagnosis_lines(
    told: Iterable[Diagnosis], *, sources: Iterable[tuple[str, str]], width: int = 80, explain: bool = False
) -> Iterator[Line]:
    """Every failure: class, numbers, the moment it stood in, evidence, what would help. With `explain` also the rules that spoke
    and those that could not."""
    found = list(told)
    if not found:
        read = ", ".join(f"{name} ({kind})" for name, kind in sources)
        yield from wrapped(f"no memory failure found in {read}", width, rest="  ", style="good")
        return
    if all(item.was_survived for item in found):
        yield from wrapped("no memory failure found; the program went on after these:", width, style="good")
        yield line()
    for number, item in enumerate(found):
        if number:
            yield line()
        yield from _failure(item, width, explain=explain)


def _failure(told: Diagnosis, width: int, *, explain: bool) -> Iterator[Line]:
    answer = told.answer
    yield from wrapped(_title(told), width, rest="  ", style=_STYLES[answer.confidence])
    kind = told.incident.kind
    if kind is not None:
        yield from wrapped(f"{kind.name}: {kind.meaning}", width, first="  ")
    if told.told_in_words and kind is None:
        yield from wrapped(
            "no program's message tells it; it is read from words, a trend or where the log ends",
            width,
            first="  ",
        )
    place = told.incident.first.place
    when = "" if told.incident.first.at_s is None else f", {utc_text(told.incident.first.at_s)}"
    echo = _echo(told)
    yield from wrapped(f"first cause at {place}{when}{echo}", width, first="  ", rest="    ", style="dim")
    yield from _numbers(told, width)
    yield from _moment(told, width)
    yield from _evidence(told, width)
    yield from _why(told, width, explain=explain)
    if told.ledger:
        rows = [
            (
                f"  {entry.owner.value}",
                entry.entry,
                "" if entry.bytes is None else format_bytes(entry.bytes),
            )
            for entry in told.ledger
        ]
        yield line("ledger lines", "head")
        yield from columns(rows, right=(2,), width=width, wrap_column=1)
    if told.remedies:
        yield line("would help", "head")
        for number, remedy in enumerate(told.remedies, 1):
            yield from wrapped(remedy.change, width, first=f"  {number}. ", style="good")
            basis = {"ledger": "by the ledger", "messages": "by the log's numbers"}.get(
                remedy.basis, "not sized"
            )
            text = f"{remedy.effect} ({basis}{f'; needs {remedy.needs}' if remedy.needs else ''})"
            yield from wrapped(text, width, first="     ")
    if told.prevention:
        yield from wrapped(told.prevention, width, first="prevented by  ", style="dim")
    if answer.surer and answer.confidence is not Confidence.HIGH:
        yield from wrapped(answer.surer[0], width, first="surer with    ", style="unsure")


def _title(told: Diagnosis) -> str:
    answer, facts = told.answer, told.facts
    found = answer.failure_class
    name = (
        "the class cannot be told"
        if found is None
        else "none of the six classes"
        if found is FailureClass.NONE
        else found.value
    )
    rivals = [kind.value for kind, score in answer.scores if score == answer.scores[0][1]]
    if found is None and len(rivals) > 1:
        name += f": {' or '.join(rivals)}"
    parts = [f"{name}" if found is None else f"{name}, {answer.confidence.value} confidence"]
    if answer.runner_up is not None:
        parts.append(f"next {answer.runner_up.value}")
    if facts.standing is Standing.CONSEQUENCE:
        raised = told.incident.exception
        parts.append(
            "the first cause is not in what was read"
            if raised is None
            else f"ended by {raised.values['exception']} ({raised.place}), which says nothing of memory"
        )
    elif facts.domain is not None:
        parts.append(_DOMAINS[facts.domain.value])
    if facts.stage is not None:
        parts.append(f"at {facts.stage.value}")
    if not told.is_failure:
        parts.append("not a crash")
    if told.repeats:
        parts.append(f"{told.repeats + 1} times")
    return " · ".join(parts)


def _echo(told: Diagnosis) -> str:
    count = len(told.incident.lines) - 1
    ranks = [name for name, _ in told.incident.ranks if name]
    text = f"; {counted(count, 'more message')} of the same failure" if count > 0 else ""
    return text + (
        f" by {', '.join(ranks[:4])}{' ...' if len(ranks) > 4 else ''}" if count > 0 and ranks else ""
    )


def _size(size: ByteRange) -> str:
    """A print of 0.0 GiB is no nothing: it is less than half of its last digit."""
    return (
        format_bytes(size.expected) if size.expected or not size.high else f"under {format_bytes(size.high)}"
    )


def _numbers(told: Diagnosis, width: int) -> Iterator[Line]:
    sums = told.arithmetic
    rows = [
        (f"  {name}", _size(size))
        for name, size in (
            ("wanted", sums.wanted_bytes),
            ("available", sums.available_bytes),
            ("missing", sums.missing_bytes),
            ("limit" if told.facts.domain is Domain.HOST else "device", sums.total_bytes),
        )
        if size is not None
    ]
    held = [(f"  {item.who}", _size(item.bytes)) for item in sums.holders]
    if not rows and not held and not sums.lines:
        return
    yield line("numbers", "head")
    yield from columns([*rows, *held], right=(1,), width=width)
    for text in sums.lines:
        yield from wrapped(text, width, first="  ", rest="    ")


def _moment(told: Diagnosis, width: int) -> Iterator[Line]:
    facts = told.facts
    parts = []
    if facts.since_ready_s is not None:
        parts.append(f"{facts.since_ready_s:,.0f} s after ready")
    elif facts.ready is False:
        parts.append("before the instance was ready")
    if facts.running_requests is not None:
        waiting = "" if facts.waiting_requests is None else f", {facts.waiting_requests:,} waiting"
        parts.append(f"{facts.running_requests:,} running{waiting}")
    if facts.scheduled_tokens is not None:
        parts.append(f"{facts.scheduled_tokens:,} tokens scheduled")
    if facts.kv_usage_ratio is not None:
        parts.append(f"KV {100 * facts.kv_usage_ratio:.1f} % used")
    if told.moment.free_blocks is not None:
        parts.append(f"{told.moment.free_blocks:,} KV blocks free")
    if facts.free_cells is not None:
        parts.append(f"{facts.free_cells:,} cells free at least")
    if facts.prefill_just_before:
        parts.append("a prompt just before")
    elif facts.decode_just_before:
        parts.append("generation just before")
    if facts.preemptions:
        parts.append(f"{facts.preemptions:,} preemptions before")
    if facts.previous_engine_s is not None:
        parts.append(f"another engine's last line {facts.previous_engine_s:,.0f} s before the start")
    for trend in told.trends[:2]:
        if trend.rises:
            parts.append(
                f"{trend.name} of {trend.source} rises {format_bytes(int(trend.slope_bytes_per_h))}/h"
            )
    for peak in told.snapshots[:1]:
        parts.append(
            f"snapshot: {format_bytes(peak.free_bytes)} free in the pool, largest piece "
            f"{format_bytes(peak.largest_free_run_bytes)}"
        )
    if parts:
        yield from wrapped("; ".join(parts), width, first="at that moment  ", rest="  ", style="head")


def _evidence(told: Diagnosis, width: int) -> Iterator[Line]:
    yield line("evidence", "head")
    for what, item in evidence_lines(told):
        text = " ".join(item.text.split())
        if len(text) > _LONGEST_QUOTE:
            text = text[: _LONGEST_QUOTE - 3] + "..."
        yield from wrapped(f"{what}: {text}", width, first=f"  {item.place} ", rest="    ", style="dim")


def _why(told: Diagnosis, width: int, *, explain: bool) -> Iterator[Line]:
    spoken = told.answer.spoken
    yield line("because", "head")
    if not spoken.applied:
        yield line("  no rule had the evidence that it needs")
    for rule in spoken.applied:
        says = ", ".join(f"{kind.value} {int(weight):+d}" for kind, weight in rule.says.items())
        yield from wrapped(f"{rule.why} ({says})", width, first="  ", rest="    ")
    if explain:
        yield line("could not speak", "head")
        for rule, lacking in spoken.unasked:
            yield from wrapped(
                f"{rule.name}: {', '.join(name.replace('_', ' ') for name in lacking)} not known",
                width,
                first="  ",
                rest="    ",
                style="dim",
            )
