"""Printed sizes of one instance by who printed them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from vramledger.engines.vllm.log_instance import Instance
from vramledger.evidence import Evidence, measured
from vramledger.ledger import ByteRange
from vramledger.observation import Event, Observation, Value
from vramledger.units import GIB


class Said(Struct, frozen=True, kw_only=True):
    """One printed size on one rank (None where the log does not tell), the last that the rank printed."""

    bytes: ByteRange
    rank: int | None
    process: str
    evidence: Evidence


def as_range(value: Value | None) -> ByteRange | None:
    """A printed size; one that is whole bytes is exact. A GiB with one decimal was rounded to two and lost a zero."""
    if isinstance(value, ByteRange):
        if value.high - value.low == 2 * (GIB // 20):
            return ByteRange(value.expected - GIB // 200, value.expected, value.expected + GIB // 200)
        return value
    return ByteRange.exact(value) if isinstance(value, int) and not isinstance(value, bool) else None


def evidence_of(said: Observation, instance: Instance) -> Evidence:
    return measured(f"{said.place}, vllm {instance.version or 'of unknown version'}")


def said_by_rank(
    instance: Instance, event: Event, name: str, accept: Callable[[Observation], bool] = lambda said: True
) -> list[Said]:
    """The last value of `name` that each rank, or each process of unknown rank, printed."""
    out: dict[object, Said] = {}
    for said in instance.observations:
        size = as_range(said.values.get(name)) if said.event is event and accept(said) else None
        if size is None:
            continue
        rank = instance.rank(said)
        process = said.process or ""
        out[rank if rank is not None else process] = Said(
            bytes=size, rank=rank, process=process, evidence=evidence_of(said, instance)
        )
    return list(out.values())
