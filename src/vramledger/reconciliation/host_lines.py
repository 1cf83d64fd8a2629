"""Host memory of the instance's processes beside what the ledger has for the host."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.engines import find_serving
from vramledger.ledger import Entry, Owner, Phase
from vramledger.measurement import HostMemory, Measurement
from vramledger.reconciliation.coverage import together
from vramledger.reconciliation.ledger_lines import line_of_figure
from vramledger.reconciliation.result import Interval, Line, Section, Standing, Unit, interval, standing_of

_OF_A_STEP = frozenset({Owner.ACTIVATION, Owner.WORKSPACE})


def host_lines(plan: Plan, measurement: Measurement) -> tuple[Line, ...]:
    """What the engine states of its host memory, its processes' sum beside what the ledger has, and each process.

    Where ranks live on the host the sum is of the processes that hold them: a server's front ends are no part of a plan. It lies
    between the proportional shares, less than what the instance would hold alone, and the resident sets, which count shared pages
    in each process.
    """
    told = [figure for figure in measurement.figures if figure.on_host]
    lines = [line_of_figure(figure, plan.host, Section.HOST) for figure in told]
    last = {(item.process, item.pid): item for item in measurement.host}
    found = tuple(last.values())
    if not found:
        return tuple(lines)
    lines += [_sum(plan, found)] if len(found) > 1 or _resident(found[0]) is not None else []
    lines += [_process(item) for item in found] if len(found) > 1 else []
    return tuple(lines)


def _sum(plan: Plan, everything: tuple[HostMemory, ...]) -> Line:
    found = _of_ranks(plan, everything) if is_on_host(plan) else everything
    phase = found[-1].phase
    entries = host_entries(plan)
    ours = _predicted(entries, phase)
    measured = _held(found)
    what = f"{len(found)} {'process' if len(found) == 1 else 'processes'}"
    return Line(
        section=Section.HOST,
        name=f"{what} (proportional to resident)" if _has_both(found) else f"{what} (resident)",
        unit=Unit.BYTES,
        standing=standing_of(ours, measured),
        predicted=ours,
        measured=measured,
        entries=tuple(entry.name for entry in entries),
        phase=phase,
        evidence=found[-1].evidence,
    )


def _of_ranks(plan: Plan, found: tuple[HostMemory, ...]) -> tuple[HostMemory, ...]:
    serving = find_serving(plan.inputs.engine)
    for beginning in serving.rank_processes if serving is not None else ():
        if chosen := tuple(item for item in found if item.process.startswith(beginning)):
            return chosen
    return found


def _has_both(found: tuple[HostMemory, ...]) -> bool:
    return all(item.pss_bytes is not None and item.rss_bytes is not None for item in found)


def _held(found: tuple[HostMemory, ...]) -> Interval | None:
    shares = [size for item in found if (size := _resident(item)) is not None]
    resident = [size for item in found if (size := item.rss_bytes) is not None]
    if not shares:
        return None
    low, high = sum(shares), sum(resident) if _has_both(found) else sum(shares)
    return Interval(low, high if len(found) == 1 else low, max(low, high))


def host_entries(plan: Plan) -> tuple[Entry, ...]:
    """All that the ledger has on the host: where the engine runs on it, the ranks' own lines too."""
    if not is_on_host(plan):
        return plan.host
    return (*plan.host, *(entry for rank in plan.ranks for _ in rank.ranks for entry in rank.entries))


def is_on_host(plan: Plan) -> bool:
    return plan.inputs.device.startswith("cpu:") or dict(plan.inputs.settings).get("gpus") == 0


def _predicted(entries: tuple[Entry, ...], phase: Phase | None) -> Interval | None:
    """None where the ledger leaves out the process itself: its interpreter and libraries are no less than the rest.

    A process holds what it has touched. Buffers of a step are given back after it, or are larger than what a step touches, and a
    sample may miss the step that needs most: they count for the high end alone.
    """
    if not any(entry.owner is Owner.RUNTIME_CONTEXT for entry in entries):
        return None
    held = [entry for entry in entries if entry.owner is not Owner.HEADROOM]
    lasting = [entry for entry in held if entry.owner not in _OF_A_STEP]
    most = interval(together(held, phase, held))
    return replace(most, low=min(most.low, together(lasting, phase, lasting).low))


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
