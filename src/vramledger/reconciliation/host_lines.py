"""Host memory of the instance's processes beside what the ledger has for the host."""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.ledger import Entry, Owner, Phase
from vramledger.measurement import HostMemory, Measurement
from vramledger.reconciliation.coverage import together
from vramledger.reconciliation.ledger_lines import line_of_figure
from vramledger.reconciliation.result import Interval, Line, Section, Standing, Unit, interval, standing_of


def host_lines(plan: Plan, measurement: Measurement) -> tuple[Line, ...]:
    """What the engine states of its host memory, the processes' sum (proportional shares where all tell them), and each
    process."""
    told = [figure for figure in measurement.figures if figure.on_host]
    lines = [line_of_figure(figure, plan.host, Section.HOST) for figure in told]
    last = {(item.process, item.pid): item for item in measurement.host}
    found = tuple(last.values())
    if not found:
        return tuple(lines)
    lines += [_sum(plan, found)] if len(found) > 1 or _resident(found[0]) is not None else []
    lines += [_process(item) for item in found] if len(found) > 1 else []
    return tuple(lines)


def _sum(plan: Plan, found: tuple[HostMemory, ...]) -> Line:
    phase = found[-1].phase
    proportional = all(item.pss_bytes is not None for item in found)
    sizes = [item.pss_bytes if proportional else item.rss_bytes for item in found]
    held = sum(size for size in sizes if size is not None)
    how = "proportional" if proportional else "resident, shared pages counted in each"
    entries = host_entries(plan)
    ours = _predicted(entries, phase)
    measured = None if all(size is None for size in sizes) else Interval(held, held, held)
    return Line(
        section=Section.HOST,
        name=f"{len(found)} {'process' if len(found) == 1 else 'processes'} ({how})",
        unit=Unit.BYTES,
        standing=standing_of(ours, measured),
        predicted=ours,
        measured=measured,
        entries=tuple(entry.name for entry in entries),
        phase=phase,
        evidence=found[-1].evidence,
    )


def host_entries(plan: Plan) -> tuple[Entry, ...]:
    """All that the ledger has on the host: where the engine runs on it, the ranks' own lines too."""
    if not is_on_host(plan):
        return plan.host
    return (*plan.host, *(entry for rank in plan.ranks for _ in rank.ranks for entry in rank.entries))


def is_on_host(plan: Plan) -> bool:
    return plan.inputs.device.startswith("cpu:") or dict(plan.inputs.settings).get("gpus") == 0


def _predicted(entries: tuple[Entry, ...], phase: Phase | None) -> Interval | None:
    """None where the ledger leaves out the process itself: its interpreter and libraries are no less than the rest."""
    if not any(entry.owner is Owner.RUNTIME_CONTEXT for entry in entries):
        return None
    held = [entry for entry in entries if entry.owner is not Owner.HEADROOM]
    return interval(together(held, phase, held))


def _resident(item: HostMemory) -> int | None:
    return item.rss_bytes if item.pss_bytes is None else item.pss_bytes


def _process(item: HostMemory) -> Line:
    size = _resident(item)
    return Line(
        section=Section.HOST,
        name=item.process,
        unit=Unit.BYTES,
        standing=Standing.UNTOLD,
        measured=None if size is None else Interval(size, size, size),
        phase=item.phase,
        evidence=item.evidence,
    )
