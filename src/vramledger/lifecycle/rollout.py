"""Replacing one instance by another: what lies on a device and on the host in every step, for each way to do it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import reduce

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.engines.lifecycle import SleepLevel
from vramledger.ledger import SERVING, ZERO, ByteRange, Phase, RankLedger
from vramledger.lifecycle.sleeping import asleep, host_bytes_asleep, host_bytes_awake
from vramledger.units import format_bytes


class Way(StrEnum):
    """How an update is done. `recreate` ends the old instance first; `side-by-side` starts the new one on the devices
    of the serving old one; `asleep` starts it beside the sleeping old one, which can be woken again;
    `surge` starts it on devices of its own."""

    RECREATE = "recreate"
    SIDE_BY_SIDE = "side-by-side"
    ASLEEP = "asleep"
    SURGE = "surge"


class Step(Struct, frozen=True, kw_only=True):
    """One moment of an update. `device_bytes` is what the fullest device holds, `host_bytes` what all processes of
    both instances hold, `tokens` what the pools in service hold together."""

    name: str
    device_bytes: ByteRange
    device_total_bytes: int
    host_bytes: ByteRange
    tokens: int
    devices: int


class Rollout(Struct, frozen=True, kw_only=True):
    """One way to update. `holds` is None where the range of what is held crosses the device's end, or the host's size
    was not said; `shortfall_bytes` is what is missing on the fullest device at least, `host_shortfall_bytes` on the host;
    `tokens_lost` how many tokens of pool are out of service at worst, against the smaller of before and after."""

    way: Way
    level: str
    steps: tuple[Step, ...]
    holds: bool | None
    shortfall_bytes: int
    host_shortfall_bytes: int
    tokens_lost: int
    devices: int
    conditions: tuple[str, ...]


def rollouts(
    old: Plan,
    new: Plan,
    *,
    levels: tuple[SleepLevel, ...],
    free_bytes_required: int,
    host_total_bytes: int | None,
    replicas: int = 1,
) -> tuple[Rollout, ...]:
    """Every way to replace `old` by `new`, one replica of `replicas` at a time, both on devices of one kind.

    `free_bytes_required` is what the new engine wants to find free when it starts (0: it takes what it finds);
    `levels` are the old engine's ways to sleep.
    """
    plans: list[tuple[Way, SleepLevel | None, list[_Moment]]] = [
        (Way.RECREATE, None, _recreate(old, new)),
        (Way.SIDE_BY_SIDE, None, _side_by_side(old, new)),
    ]
    plans += [(Way.ASLEEP, level, _beside_sleeper(old, new, level)) for level in levels]
    plans.append((Way.SURGE, None, _surge(old, new)))
    return tuple(
        _judged(way, level, moments, old, new, free_bytes_required, host_total_bytes, replicas)
        for way, level, moments in plans
    )


class _Moment(Struct, frozen=True, kw_only=True):
    """A step before it is summed: bytes of the fullest device, of which `others` are not the starting instance's."""

    name: str
    held: ByteRange
    others: ByteRange
    host: ByteRange
    serving: tuple[Plan, ...]
    starts: bool = False
    extra_devices: int = 0


def _recreate(old: Plan, new: Plan) -> list[_Moment]:
    return [
        _Moment(
            name="old serves", held=_serving(old), others=ZERO, host=host_bytes_awake(old), serving=(old,)
        ),
        _Moment(name="old has ended", held=ZERO, others=ZERO, host=ZERO, serving=()),
        *_starting(new, beside=ZERO, host=ZERO, serving=()),
        _Moment(
            name="new serves", held=_serving(new), others=ZERO, host=host_bytes_awake(new), serving=(new,)
        ),
    ]


def _side_by_side(old: Plan, new: Plan) -> list[_Moment]:
    rows = _pairs(old, new)
    held = [_Pair(beside=_rank_serving(before), rank=after) for before, after in rows]
    return [
        _Moment(
            name="old serves", held=_serving(old), others=ZERO, host=host_bytes_awake(old), serving=(old,)
        ),
        *_start_on(new, held, host=host_bytes_awake(old), serving=(old,)),
        _Moment(
            name="both serve",
            held=_most(pair.beside + _rank_serving(pair.rank) for pair in held),
            others=ZERO,
            host=host_bytes_awake(old) + host_bytes_awake(new),
            serving=(old,),
        ),
        _Moment(
            name="new serves", held=_serving(new), others=ZERO, host=host_bytes_awake(new), serving=(new,)
        ),
    ]


def _beside_sleeper(old: Plan, new: Plan, level: SleepLevel) -> list[_Moment]:
    held = [
        _Pair(beside=ZERO if before is None else asleep(before, level).device_bytes, rank=after)
        for before, after in _pairs(old, new)
    ]
    host = host_bytes_asleep(old, level)
    return [
        _Moment(name="old serves", held=_serving(old), others=ZERO, host=host_bytes_awake(old), serving=(old,)),
        _Moment(
            name=f"old sleeps (level {level.name})", held=_most(pair.beside for pair in held), others=ZERO, host=host,
            serving=(),
        ),
        *_start_on(new, held, host=host, serving=()),
        _Moment(
            name="new serves, old sleeps",
            held=_most(pair.beside + _rank_serving(pair.rank) for pair in held),
            others=ZERO,
            host=host + host_bytes_awake(new),
            serving=(new,),
        ),
        _Moment(name="old has ended", held=_serving(new), others=ZERO, host=host_bytes_awake(new), serving=(new,)),
    ]  # fmt: skip


def _surge(old: Plan, new: Plan) -> list[_Moment]:
    extra = _world(new)
    before = _serving(old)
    started = [
        _Moment(
            name=moment.name, held=before.upper(moment.held), others=moment.others, host=moment.host,
            serving=moment.serving, starts=moment.starts, extra_devices=extra,
        )
        for moment in _starting(new, beside=ZERO, host=host_bytes_awake(old), serving=(old,))
    ]  # fmt: skip
    return [
        _Moment(name="old serves", held=before, others=ZERO, host=host_bytes_awake(old), serving=(old,)),
        *started,
        _Moment(
            name="both serve", held=before.upper(_serving(new)), others=ZERO, host=host_bytes_awake(old) + host_bytes_awake(new),
            serving=(old,), extra_devices=extra,
        ),
        _Moment(name="new serves", held=_serving(new), others=ZERO, host=host_bytes_awake(new), serving=(new,)),
    ]  # fmt: skip


class _Pair(Struct, frozen=True, kw_only=True):
    """One kind of device: what is on it already, and the rank of the new instance that comes to it, if one does."""

    beside: ByteRange
    rank: RankLedger | None


def _pairs(old: Plan, new: Plan) -> list[tuple[RankLedger | None, RankLedger | None]]:
    """The kinds of device: rank i of the new instance comes to the device of rank i of the old."""
    kinds: dict[tuple[int | None, int | None], tuple[RankLedger | None, RankLedger | None]] = {}
    before, after = _by_rank(old), _by_rank(new)
    for index in range(max(len(before), len(after))):
        one, two = before.get(index), after.get(index)
        kinds[(_first(one), _first(two))] = (one, two)
    return list(kinds.values())


def _by_rank(plan: Plan) -> dict[int, RankLedger]:
    return {index: rank for rank in plan.ranks for index in rank.ranks}


def _first(rank: RankLedger | None) -> int | None:
    return None if rank is None else rank.ranks[0]


def _world(plan: Plan) -> int:
    return sum(len(rank.ranks) for rank in plan.ranks)


def _starting(new: Plan, *, beside: ByteRange, host: ByteRange, serving: tuple[Plan, ...]) -> list[_Moment]:
    return _start_on(new, [_Pair(beside=beside, rank=rank) for rank in new.ranks], host=host, serving=serving)


def _start_on(new: Plan, held: list[_Pair], *, host: ByteRange, serving: tuple[Plan, ...]) -> list[_Moment]:
    """Load and warm-up of the new instance on devices that already hold something."""
    others = _most(pair.beside for pair in held if pair.rank is not None)
    loading = host + host_bytes_awake(new) + _host_peak(new)
    return [
        _Moment(
            name="new loads", held=_most(pair.beside + _phase(pair.rank, Phase.LOAD) for pair in held), others=others,
            host=loading, serving=serving, starts=True,
        ),
        _Moment(
            name="new warms up", held=_most(pair.beside + _phase(pair.rank, Phase.WARMUP) for pair in held),
            others=others, host=host + host_bytes_awake(new), serving=serving,
        ),
    ]  # fmt: skip


def _phase(rank: RankLedger | None, phase: Phase) -> ByteRange:
    return ZERO if rank is None else rank.occupied(phase)


def _rank_serving(rank: RankLedger | None) -> ByteRange:
    return _most(_phase(rank, phase) for phase in SERVING)


def _serving(plan: Plan) -> ByteRange:
    return _most(_rank_serving(rank) for rank in plan.ranks)


def _most(ranges: Iterable[ByteRange]) -> ByteRange:
    return reduce(ByteRange.upper, ranges, ZERO)


def _host_peak(plan: Plan) -> ByteRange:
    """Ranks map the same weight files while they load, so one rank's peak stands for all. What the page cache keeps
    beyond that is given back when somebody needs it, and is not counted."""
    peak = _most(rank.weights.host_peak_bytes for rank in plan.ranks)
    return ByteRange(peak.low, peak.expected, peak.expected)


def _judged(
    way: Way,
    level: SleepLevel | None,
    moments: list[_Moment],
    old: Plan,
    new: Plan,
    free_bytes_required: int,
    host_total_bytes: int | None,
    replicas: int,
) -> Rollout:
    """The steps summed over what else is in service, and whether the fullest device and the host hold them."""
    device = min(rank.device_total_bytes for plan in (old, new) for rank in plan.ranks)
    own = replicas * _world(old)
    steps = tuple(
        Step(
            name=moment.name,
            device_bytes=moment.held,
            device_total_bytes=device,
            host_bytes=moment.host,
            tokens=(replicas - 1) * _tokens(old) + sum(_tokens(plan) for plan in moment.serving),
            devices=max(own, (replicas - 1) * _world(old) + _world(new)) + moment.extra_devices,
        )
        for moment in moments
    )
    # What the starting engine wants to find free counts as taken when it starts.
    wanted = [
        moment.others + ByteRange.exact(free_bytes_required)
        for moment in moments
        if moment.starts and free_bytes_required
    ]
    fullest = _most([*(step.device_bytes for step in steps), *wanted])
    host = _most(step.host_bytes for step in steps)
    surely = fullest.high <= device
    possibly = fullest.low <= device
    host_surely = host_total_bytes is None or host.high <= host_total_bytes
    host_possibly = host_total_bytes is None or host.low <= host_total_bytes
    holds: bool | None = None
    if surely and host_surely:
        holds = True
    elif not (possibly and host_possibly):
        holds = False
    return Rollout(
        way=way,
        level="" if level is None else level.name,
        steps=steps,
        holds=holds,
        shortfall_bytes=max(fullest.low - device, 0),
        host_shortfall_bytes=max(host.low - (host_total_bytes or host.low), 0),
        tokens_lost=max(replicas * _tokens(old) - min(step.tokens for step in steps), 0),
        devices=max(step.devices for step in steps),
        conditions=_conditions(way, level, host, host_total_bytes, free_bytes_required),
    )


def _tokens(plan: Plan) -> int:
    return 0 if plan.kv_pool is None else plan.kv_pool.tokens.expected


def _conditions(
    way: Way,
    level: SleepLevel | None,
    host: ByteRange,
    host_total_bytes: int | None,
    free_bytes_required: int,
) -> tuple[str, ...]:
    found = []
    if level is not None:
        found.append(f"the old instance was started with {level.needs}")
    if way is Way.RECREATE:
        found.append(
            "the old process has ended, and the driver has its memory back, before the new one starts"
        )
    if way is not Way.RECREATE and free_bytes_required:
        found.append(
            f"the new engine finds its budget of {format_bytes(free_bytes_required)} free when it starts"
        )
    if way in (Way.SIDE_BY_SIDE, Way.ASLEEP) and not free_bytes_required:
        found.append(
            "the new pool is of the size it has on an empty device; made of what is free, it is smaller"
        )
    if host_total_bytes is None and host.high:
        found.append(f"the host has {format_bytes(host.high)} for both instances")
    return tuple(found)
