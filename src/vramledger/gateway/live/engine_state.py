"""What an engine says of the moment, in blocks of its pool. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from vramledger.gateway.live.capacity import Capacity
from vramledger.observation import Sample
from vramledger.units import ceil_div


class EngineState(Struct, frozen=True, kw_only=True):
    """Between `asked_ns` and `answered_ns` it was so; each figure None where the engine does not tell it.

    `used_blocks` are held by requests, `kept_blocks` are free but still have content that can be found, and `totals` are its counters since its start, by the names of `engines.metrics_table`.
    """

    asked_ns: int
    answered_ns: int
    used_blocks: int | None = None
    kept_blocks: int | None = None
    running_count: int | None = None
    waiting_count: int | None = None
    totals: Mapping[str, float] = {}
    replicas: int = 1
    """Data-parallel ones behind this address, each with a pool of its own."""

    def is_of_a_later_start_than(self, earlier: EngineState) -> bool:
        """A counter fell: the engine was started anew in between."""
        return any(value < earlier.totals.get(name, value) for name, value in self.totals.items())


def state_of(
    samples: Iterable[Sample], capacity: Capacity, *, asked_ns: int, answered_ns: int
) -> EngineState:
    """Figures of several ranks or replicas behind one address: what replicas hold and run is summed, of a replica's ranks the fullest is taken.
    What two paths tell is told once."""
    most: dict[tuple[str, str], float] = {}
    by_source: dict[tuple[str, str], float] = {}
    for sample in samples:
        if sample.value < 0:
            continue
        name = sample.name
        place = name, _replica(sample.label)
        most[place] = max(most.get(place, 0), sample.value)
        told = name, sample.source
        by_source[told] = by_source.get(told, 0) + sample.value
    summed: dict[str, float] = {}
    for (name, _), value in by_source.items():
        summed[name] = max(summed.get(name, 0), value)
    over_replicas: dict[str, float] = {}
    for (name, _), value in most.items():
        over_replicas[name] = over_replicas.get(name, 0) + value
    totals = {name: value for name, value in summed.items() if name.startswith("total_")}
    return EngineState(
        asked_ns=asked_ns,
        answered_ns=answered_ns,
        used_blocks=_used_blocks(over_replicas, capacity),
        kept_blocks=_blocks(over_replicas, "kv_evictable_tokens", capacity),
        running_count=_whole(summed, "running_requests"),
        waiting_count=_whole(summed, "waiting_requests"),
        totals=totals,
        replicas=len({place for name, place in most if name in ("kv_usage_ratio", "kv_used_tokens")}) or 1,
    )


def _replica(label: str) -> str:
    """Which data-parallel replica a sample is of: vLLM's label engine, SGLang's dp_rank."""
    return next((part for part in label.split(",") if part.startswith(("engine=", "dp_rank="))), "")


def _used_blocks(values: Mapping[str, float], capacity: Capacity) -> int | None:
    usable = capacity.layout.usable_blocks
    if "kv_used_blocks" in values:
        used = int(values["kv_used_blocks"])
    elif (tokens := _blocks(values, "kv_used_tokens", capacity)) is not None:
        used = tokens
    elif "kv_usage_ratio" in values:
        used = round(values["kv_usage_ratio"] * usable / capacity.replicas)
    else:
        return None
    return min(used, usable)


def _blocks(values: Mapping[str, float], name: str, capacity: Capacity) -> int | None:
    return ceil_div(int(values[name]), capacity.layout.key_tokens) if name in values else None


def _whole(values: Mapping[str, float], name: str) -> int | None:
    return int(values[name]) if name in values else None
