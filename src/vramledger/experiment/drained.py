"""Whether all that a load took came back: the engine's blocks, the gateway's reservations, and memory of processes and devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from vramledger.experiment.plan import Step
from vramledger.experiment.result import Check, Snapshot
from vramledger.experiment.watching import Watching
from vramledger.observation import Sample
from vramledger.units import MIB, format_bytes

POLL_S = 0.25
ALLOWANCE_BYTES = 16 * MIB
ALLOWANCE_SHARE = 0.01
"""Growth of a process that is not looked at: interpreters and allocators keep some of what they used once."""

_GATEWAY = (
    "gateway_admitted_requests",
    "gateway_waiting_requests",
    "gateway_in_flight_requests",
    "gateway_reserved_blocks",
)


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """`checks` say what came back and what did not, `snapshot` what was there at the end, `waited_s` how long that took."""

    checks: tuple[Check, ...]
    snapshot: Snapshot
    waited_s: float


def drained(
    watching: Watching,
    before: Snapshot,
    *,
    step: Step,
    within_s: float,
    label: str = "after drain",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Drained:
    """Wait until nothing runs, nothing is reserved and memory is as in `before`, `within_s` at most, and say what is so."""
    watching.mark("drain")
    began = clock()
    while True:
        found = watching.snapshot(label)
        checks = returned(before, found, step=step)
        waited_s = clock() - began
        if all(check.passed is not False for check in checks) or waited_s >= within_s:
            return Drained(checks=checks, snapshot=found, waited_s=waited_s)
        sleep(POLL_S)


def returned(before: Snapshot, after: Snapshot, *, step: Step) -> tuple[Check, ...]:
    """Every quantity of one moment beside what it was at another, before the load. `passed` is None where nothing tells it."""
    checks = [
        _nothing_runs(after, step),
        _pool_back(before, after, step),
        *_gateway_back(after, step),
        *_memory_back(before, after, step),
    ]
    return tuple(checks)


def _nothing_runs(after: Snapshot, step: Step) -> Check:
    running = _sum(after, "running_requests")
    waiting = _sum(after, "waiting_requests")
    found = None if running is None else running + (waiting or 0)
    words = (
        "the engine does not tell how many requests it has"
        if found is None
        else "no request is left in the engine"
        if found == 0
        else f"{found:,.0f} requests are still in the engine"
    )
    return Check(
        name="requests_ended",
        step=step,
        passed=None if found is None else found == 0,
        after=found,
        unit="requests",
        source=_source(after, "running_requests"),
        at_s=after.at_s,
        words=words,
    )


def _pool_back(before: Snapshot, after: Snapshot, step: Step) -> Check:
    """By tokens or blocks in use where the engine counts them, else by the share. What can be given up for others is not in use."""
    for name, unit in (
        ("kv_used_tokens", "tokens"),
        ("kv_usage_ratio", "ratio"),
        ("kv_used_blocks", "blocks"),  # a gateway tells them by what the engine said a while ago
    ):
        now = _sum(after, name)
        if now is None:
            continue
        then = _sum(before, name)
        is_back = now <= (then or 0) + (1e-9 if unit == "ratio" else 0)
        said = f"{now:.2%} of the pool" if unit == "ratio" else f"{now:,.0f} {unit}"
        was = f"{then or 0:.2%}" if unit == "ratio" else f"{then or 0:,.0f}"
        kept = _sum(after, "kv_evictable_tokens")
        beside = f"; {kept:,.0f} tokens are kept for prompts that begin alike" if kept else ""
        words = (
            f"all came back to the pool{beside}"
            if is_back
            else f"{said} still in use, {was} before the load{beside}"
        )
        return Check(
            name="kv_returned",
            step=step,
            passed=is_back,
            before=then,
            after=now,
            unit=unit,
            source=_source(after, name),
            at_s=after.at_s,
            words=words,
        )
    return Check(
        name="kv_returned",
        step=step,
        at_s=after.at_s,
        words="the engine does not tell how much of its pool is in use",
    )


def _gateway_back(after: Snapshot, step: Step) -> list[Check]:
    held = {name: value for name in _GATEWAY if (value := _sum(after, name)) is not None}
    if not held:
        return []
    left = [
        f"{value:,.0f} {name.removeprefix('gateway_').replace('_', ' ')}"
        for name, value in held.items()
        if value
    ]
    foreign = _sum(after, "gateway_foreign_blocks")
    return [
        Check(
            name="reservations_returned",
            step=step,
            passed=not left,
            after=sum(held.values()),
            source=_source(after, *held),
            at_s=after.at_s,
            words=(
                f"the gateway still has {', '.join(left)}"
                if left
                else "the gateway holds no reservation"
                + (f"; {foreign:,.0f} blocks in the engine are nobody's that it knows" if foreign else "")
            ),
        )
    ]


def _memory_back(before: Snapshot, after: Snapshot, step: Step) -> list[Check]:
    checks = []
    hosts = _held(before, "private_bytes"), _held(after, "private_bytes")
    name = "private_bytes"
    if not hosts[0] or not hosts[1]:  # another user's processes show no more than this
        hosts, name = (_held(before, "rss_bytes"), _held(after, "rss_bytes")), "rss_bytes"
    if hosts[1]:
        checks.append(_grown("process_memory_returned", hosts, step, after, _source(after, name)))
    devices = _held_on_devices(before), _held_on_devices(after)
    if not devices[1]:
        devices = _held(before, "device_used_bytes"), _held(after, "device_used_bytes")
    if devices[1]:
        source = _source(after, "process_device_bytes", "device_used_bytes")
        checks.append(_grown("device_memory_returned", devices, step, after, source))
    if checks:
        return checks
    return [
        Check(
            name="process_memory_returned",
            step=step,
            at_s=after.at_s,
            words="memory of the engine's processes cannot be seen from here",
        )
    ]


Held = dict[tuple[str, str], float]


def _grown(name: str, held: tuple[Held, Held], step: Step, after: Snapshot, source: str) -> Check:
    """All together, with the largest growth named. Processes that were not there before are growth, too."""
    then, now = sum(held[0].values()), sum(held[1].values())
    grown = now - then
    allowance = max(ALLOWANCE_BYTES, ALLOWANCE_SHARE * then)
    by_owner = sorted(
        ((value - held[0].get(owner, 0.0), owner) for owner, value in held[1].items()), reverse=True
    )
    most = [(size, owner) for size, owner in by_owner if size > 0][:3]
    named = ", ".join(f"{owner[1] or owner[0]} {format_bytes(round(size))}" for size, owner in most)
    size = format_bytes(round(abs(grown)))
    share = f" ({abs(grown) / then:.1%})" if then else ""
    if not held[0]:
        return Check(
            name=name,
            step=step,
            after=now,
            unit="bytes",
            source=source,
            at_s=after.at_s,
            words="there is nothing from before to compare with",
        )
    if grown > allowance:
        words = f"{size}{share} more than before the load: {named}"
    elif grown > 0:
        words = f"as before the load, but for {size}{share}: {named}"
    else:
        words = "as before the load" if grown == 0 else f"{size}{share} less than before the load"
    return Check(
        name=name,
        step=step,
        passed=grown <= allowance,
        before=then,
        after=now,
        unit="bytes",
        source=source,
        at_s=after.at_s,
        words=words,
    )


def _held(snapshot: Snapshot, name: str) -> Held:
    """By source and owner; of a process that swapped, what is swapped out, too."""
    found: Held = {}
    names = (name, "swap_bytes") if name in ("private_bytes", "rss_bytes") else (name,)
    for sample in snapshot.samples:
        if sample.name in names:
            key = (sample.source, sample.label or (f"pid {sample.pid}" if sample.pid else ""))
            found[key] = found.get(key, 0.0) + sample.value
    return found


def _held_on_devices(snapshot: Snapshot) -> Held:
    """By the processes that are watched; by all where none of these is named so by the driver, which may number them otherwise (containers)."""
    watched = {sample.pid for sample in snapshot.samples if sample.source.startswith("proc:")}
    own = tuple(sample for sample in _named(snapshot, "process_device_bytes") if sample.pid in watched)
    return _held(msgspec.structs.replace(snapshot, samples=own) if own else snapshot, "process_device_bytes")


def _sum(snapshot: Snapshot, name: str) -> float | None:
    """Over replicas. Where the metrics and an endpoint both tell, the larger: they were asked one after the other."""
    sums: dict[str, float] = {}
    for sample in _named(snapshot, name):
        sums[sample.source] = sums.get(sample.source, 0.0) + sample.value
    return max(sums.values(), default=None)


def _named(snapshot: Snapshot, *names: str) -> Iterable[Sample]:
    return (sample for sample in snapshot.samples if sample.name in names)


def _source(snapshot: Snapshot, *names: str) -> str:
    return next((sample.source for sample in _named(snapshot, *names)), "")
