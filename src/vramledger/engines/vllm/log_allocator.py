"""What the device and torch's allocator held at the points that vLLM prints, and what its graphs took one by one."""

from __future__ import annotations

from vramledger.engines.vllm.log_instance import Instance
from vramledger.engines.vllm.log_said import as_range, evidence_of
from vramledger.ledger import ByteRange, Phase
from vramledger.measurement import AllocatorState, GraphCapture
from vramledger.observation import Event, Observation
from vramledger.units import MIB


def allocator_states(instance: Instance) -> tuple[AllocatorState, ...]:
    """What the device and torch's allocator held at the points that are printed, the last of each point and rank."""
    out: dict[tuple[str, object], AllocatorState] = {}
    for said in instance.observations:
        state = _state(said, instance)
        if state is not None:
            key = state.point, state.ranks or said.process
            out[key] = _joined(out[key], state) if key in out else state
    return tuple(out.values())


_POINTS = {
    Event.PROFILE: ("before load", Phase.LOAD),
    Event.KV_BUDGET: ("before load", Phase.LOAD),
}
_PHASES = {
    "before load": Phase.LOAD,
    "peak while loading": Phase.LOAD,
    "after load": Phase.LOAD,
    "after profile": Phase.WARMUP,
}


def _state(said: Observation, instance: Instance) -> AllocatorState | None:
    point: object = said.values.get("point")
    if said.event in _POINTS and "free_bytes" in said.values:
        point = _POINTS[said.event][0]
    elif said.event is Event.SLEEP and "used_bytes" in said.values:
        point = "asleep"
    elif said.event is not Event.MEMORY or point not in _PHASES:
        return None
    values = {
        name: as_range(said.values.get(name))
        for name in ("free_bytes", "device_total_bytes", "allocated_bytes")
    }
    used = as_range(said.values.get("used_bytes")) if point == "asleep" else None
    of_device = values["device_total_bytes"]
    if used is not None and (known := device_total(instance)) is not None:
        values["free_bytes"], of_device = known - used, known
    reserved = as_range(said.values.get("reserved_bytes")) if said.event is Event.MEMORY else None
    if not any((*values.values(), reserved)):
        return None
    rank = instance.rank(said)
    return AllocatorState(
        evidence=evidence_of(said, instance),
        phase=_PHASES.get(str(point)),
        point=str(point),
        ranks=() if rank is None else (rank,),
        at_s=said.at_s,
        allocated_bytes=values["allocated_bytes"],
        reserved_bytes=reserved,
        device_free_bytes=values["free_bytes"],
        device_total_bytes=of_device,
    )


def _joined(first: AllocatorState, then: AllocatorState) -> AllocatorState:
    """Two lines about one point: what the later does not tell is kept from the earlier."""
    return AllocatorState(
        evidence=then.evidence,
        phase=then.phase,
        point=then.point,
        ranks=then.ranks,
        at_s=first.at_s if first.at_s is not None else then.at_s,
        allocated_bytes=then.allocated_bytes or first.allocated_bytes,
        reserved_bytes=then.reserved_bytes or first.reserved_bytes,
        device_free_bytes=then.device_free_bytes or first.device_free_bytes,
        device_total_bytes=then.device_total_bytes or first.device_total_bytes,
    )


def device_total(instance: Instance) -> ByteRange | None:
    """The device's memory as the driver tells vLLM, the last that is printed."""
    found = None
    for said in instance.observations:
        found = as_range(said.values.get("device_total_bytes")) or found
    return found


def graph_captures(instance: Instance) -> tuple[GraphCapture, ...]:
    """Increments of captured graphs, from the estimate's own captures (debug lines): the first of a kind, and each
    further one, at least 1 MiB."""
    out = []
    for said in instance.observations:
        first = as_range(said.values.get("graph_bytes"))
        if said.event is not Event.GRAPH_SHAPE or first is None:
            continue
        shape, evidence = str(said.values.get("shape", "")), evidence_of(said, instance)
        out.append(
            GraphCapture(
                shape=f"{shape}, the largest",
                increment_bytes=first,
                evidence=evidence,
                shared_pool=shape != "ENCODER",
            )
        )
        further = as_range(said.values.get("each_further_bytes"))
        if further is not None:
            out.append(
                GraphCapture(
                    shape=f"{shape}, each further",
                    increment_bytes=ByteRange(0, further.expected, further.high)
                    if further.expected <= MIB
                    else further,
                    evidence=evidence,
                    shared_pool=True,
                )
            )
    return tuple(out)
