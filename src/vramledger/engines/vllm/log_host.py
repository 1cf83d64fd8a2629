"""What vLLM's log says of host memory, as figures of a plan's host entries: all ranks of an instance together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vramledger.engines.vllm.log_instance import Instance
from vramledger.engines.vllm.log_said import Said, said_by_rank
from vramledger.evidence import measured
from vramledger.ledger import Owner, total
from vramledger.measurement import Figure
from vramledger.observation import Event, Observation

_OWNERS = {"offloaded weights": Owner.WEIGHTS, "offloaded KV": Owner.KV_CACHE}


def host_figures(instance: Instance) -> tuple[Figure, ...]:
    """One figure for each kind of buffer that every rank told of; a part of the ranks would be no sum."""
    return tuple(_figures(instance))


def _figures(instance: Instance) -> Iterator[Figure]:
    ranks = instance.world_size * (instance.whole("data_parallel_size") or 1)
    for name, owner in _OWNERS.items():
        found = said_by_rank(instance, Event.BUFFER, "size_bytes", _of(name))
        if len(found) == ranks:
            yield _figure(name, owner, found)
    pools = said_by_rank(instance, Event.KV_POOL, "host_kv_bytes")
    if pools:
        yield _figure("HiSparse host pool", Owner.KV_CACHE, pools[-1:])


def _of(name: str) -> Callable[[Observation], bool]:
    return lambda said: said.values.get("buffer") == name


def _figure(name: str, owner: Owner, found: list[Said]) -> Figure:
    formula = f"{len(found)} ranks together" if len(found) > 1 else ""
    return Figure(
        owners=(owner,),
        name=name,
        bytes=total(item.bytes for item in found),
        evidence=measured(found[-1].evidence.source, formula),
        entries=(name,),
        on_host=True,
    )
