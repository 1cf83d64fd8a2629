"""What vLLM's memory lines say, as figures of the ledger: which entries each covers, on which rank.

Source of what a line covers: v1/worker/gpu_worker.py (`determine_available_memory`, `compile_or_warm_up_model`),
utils/mem_utils.py, worker/worker.py for V0. Terms are named after vramledger.engines.vllm.entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from vramledger.engines.vllm.log_instance import Instance
from vramledger.engines.vllm.log_said import Said, as_range, evidence_of, said_by_rank
from vramledger.evidence import Evidence, measured
from vramledger.ledger import ByteRange, Owner, Phase, total
from vramledger.measurement import Figure
from vramledger.observation import Event, Observation

# Worker-long terms of the workspace and the allocator that are not what a line about weights or peaks counts.
_ITERATION_WORKSPACE = (
    "top-k and top-p scratch", "unpacked matrix", "Marlin's partial sums", "expert routing", "tokens of other ranks",
    "MLA up-projection", "LoRA products", "index logits", "partial outputs of paged attention", "experts in transit",
)  # fmt: skip
_LASTING_WORKSPACE = (
    "experts' kernels", "attention backend", "matrix library", "runner buffers", "top-k and top-p buffer",
)  # fmt: skip
_ALLOCATOR_REST = ("idle between weights", "loaded kernels", "blocks cached by the profile run")
_MADE_BEFORE_PROFILE = (
    "runner buffers", "penalty counts", "grammar bitmask", "sampling tables", "expert maps", "expert load window",
    "expert rearrangement buffer", "received from the stage before",
)  # fmt: skip
# Made after the pool is sized: no term of the budget.
_AFTER_POOL = (
    "block tables", "page indices of attention", "block maps of attention", "gathered latents", "files on the device",
)  # fmt: skip


class Covered(Struct, frozen=True, kw_only=True):
    """What a printed value covers."""

    event: Event
    value: str
    name: str
    owners: tuple[Owner, ...]
    entries: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    phase: Phase | None = None
    inside_budget_only: bool = False


_WEIGHTS = (Owner.WEIGHTS, Owner.ADAPTERS, Owner.ALLOCATOR)
_COVERED = (
    Covered(
        event=Event.WEIGHTS,
        value="weights_bytes",
        name="weights after load",
        owners=_WEIGHTS,
        without=(*_ALLOCATOR_REST, "layers fetched ahead"),
    ),
    Covered(
        event=Event.PROFILE,
        value="non_torch_bytes",
        name="growth outside torch",
        owners=(Owner.ALLOCATOR, Owner.COLLECTIVES, Owner.RUNTIME_CONTEXT),
        without=("idle between weights", "stranded beside weights", "blocks cached by the profile run"),
        phase=Phase.WARMUP,
        inside_budget_only=True,
    ),
    Covered(
        event=Event.PROFILE,
        value="consumed_bytes",
        name="consumed for good: weights, buffers, kernels",
        owners=(*_WEIGHTS, Owner.WORKSPACE, Owner.COLLECTIVES, Owner.RUNTIME_CONTEXT),
        without=(*_ITERATION_WORKSPACE, *_AFTER_POOL),
        phase=Phase.WARMUP,
        inside_budget_only=True,
    ),
    Covered(
        event=Event.KV_BUDGET,
        value="resident_bytes",
        name="resident before the pool",
        owners=(*_WEIGHTS, Owner.WORKSPACE, Owner.ACTIVATION, Owner.COLLECTIVES, Owner.RUNTIME_CONTEXT),
        without=_AFTER_POOL,
        phase=Phase.WARMUP,
        inside_budget_only=True,
    ),
    Covered(
        event=Event.GRAPHS,
        value="graph_bytes",
        name="CUDA graphs as captured",
        owners=(Owner.GRAPH_POOL,),
        phase=Phase.WARMUP,
    ),
    Covered(
        event=Event.GRAPH_ESTIMATE,
        value="graph_bytes",
        name="CUDA graphs as estimated before capture",
        owners=(Owner.GRAPH_POOL,),
        phase=Phase.WARMUP,
        inside_budget_only=True,
    ),
    Covered(
        event=Event.BUFFER,
        value="size_bytes",
        name="",
        owners=(Owner.WORKSPACE,),
    ),
)
_ACTIVATION = Covered(
    event=Event.PROFILE,
    value="activation_peak_bytes",
    name="peak of the profile run",
    owners=(Owner.ACTIVATION, Owner.WORKSPACE),
    without=(*_MADE_BEFORE_PROFILE, *_AFTER_POOL),
    phase=Phase.PREFILL,
    inside_budget_only=True,
)
_BUFFER_ENTRIES = {"workspace": "experts' kernels", "layers fetched ahead": "layers fetched ahead"}


def figures(instance: Instance) -> tuple[Figure, ...]:
    """Everything printed of memory that the ledger has entries for."""
    out: list[Figure] = []
    for covered in _COVERED:
        if covered.event is Event.BUFFER:
            out += _buffers(instance, covered)
            continue
        accept = _not_encoder if covered.event is Event.GRAPHS else lambda said: True
        found = said_by_rank(instance, covered.event, covered.value, accept)
        if covered.event is Event.WEIGHTS and _loads_apart(instance):
            found = _summed(instance, found)
        out += _figures(covered, found)
    named = {figure.name for figure in out}
    if "weights after load" not in named:
        out += _figures(_COVERED[0], said_by_rank(instance, Event.PROFILE, "weights_bytes"))
    if "CUDA graphs as captured" not in named:
        captured = next(item for item in _COVERED if item.event is Event.GRAPHS)
        out += _figures(captured, said_by_rank(instance, Event.PROFILE, "graph_bytes"))
    out += _activation(instance)
    return tuple(out)


def _loads_apart(instance: Instance) -> bool:
    """Whether target and draft each print a load: V0's spec_decode_worker.py; a V1 runner loads both and prints once."""
    return "speculative_config" in instance.settings and instance.settings.get("core") != "V1"


def _summed(instance: Instance, last: Iterable[Said]) -> list[Said]:
    """All loads of each who printed several, together."""
    out = []
    for item in last:
        loads = [
            (said, size)
            for said in instance.observations
            if said.event is Event.WEIGHTS
            and (size := as_range(said.values.get("weights_bytes"))) is not None
            and (instance.rank(said), said.process or "") == (item.rank, item.process)
        ]
        formula = " + ".join(f"{size.expected} B on line {said.place.line}" for said, size in loads)
        out.append(
            Said(
                bytes=total(size for _, size in loads),
                rank=item.rank,
                process=item.process,
                evidence=measured(item.evidence.source, f"target and draft, {formula}"),
            )
        )
    return out


def _not_encoder(said: Observation) -> bool:
    return not str(said.values.get("graph_kind", "")).startswith("Encoder")


def _figures(covered: Covered, said: Iterable[Said]) -> Iterator[Figure]:
    """One figure a rank; of processes whose ranks are not told one that spans them."""
    unranked: list[Said] = []
    for item in said:
        if item.rank is None:
            unranked.append(item)
        else:
            yield _figure(covered, _not_negative(item.bytes), item.evidence, (item.rank,))
    if unranked:
        widest = max(unranked, key=lambda item: item.bytes.expected)
        size = ByteRange(
            min(item.bytes.low for item in unranked),
            widest.bytes.expected,
            max(item.bytes.high for item in unranked),
        )
        evidence = widest.evidence
        if len(unranked) > 1:
            evidence = measured(evidence.source, f"of {len(unranked)} processes whose ranks are not told")
        yield _figure(covered, _not_negative(size), evidence, ())


def _figure(covered: Covered, size: ByteRange, evidence: Evidence, ranks: tuple[int, ...]) -> Figure:
    return Figure(
        owners=covered.owners,
        name=covered.name,
        bytes=size,
        evidence=evidence,
        entries=covered.entries,
        without=covered.without,
        phase=covered.phase,
        ranks=ranks,
        inside_budget_only=covered.inside_budget_only,
    )


def _not_negative(size: ByteRange) -> ByteRange:
    """A difference of free memory may be printed below 0 where something was freed meanwhile."""
    return ByteRange(max(size.low, 0), max(size.expected, 0), max(size.high, 0))


def _activation(instance: Instance) -> Iterator[Figure]:
    """The profile's peak. Since 0.27 it is what is beyond the consumed memory, and the summary line adds the graph
    estimate to it, which is taken off again here: printed by the same rank it is known, else the sum is stated as such."""
    consumed = any("consumed_bytes" in said.values for said in instance.observations)
    if not consumed:
        yield from _figures(_ACTIVATION, said_by_rank(instance, Event.PROFILE, "activation_peak_bytes"))
        return
    estimates = {
        (item.rank, item.process): item
        for item in said_by_rank(instance, Event.GRAPH_ESTIMATE, "graph_bytes")
    }
    estimated = _estimate_is_counted(instance)
    transient: list[Said] = []
    summed: list[Said] = []
    for item in said_by_rank(instance, Event.PROFILE, "activation_peak_bytes", _is_summary):
        estimate = estimates.get((item.rank, item.process))
        if not estimated:
            transient.append(item)
        elif estimate is None:
            summed.append(item)
        else:
            evidence = measured(
                item.evidence.source,
                f"{item.bytes.expected} B printed - {estimate.bytes.expected} B of graph estimate, {estimate.evidence.source}",
            )
            transient.append(
                Said(
                    bytes=item.bytes - estimate.bytes, rank=item.rank, process=item.process, evidence=evidence
                )
            )
    beyond = _without(_ACTIVATION, _LASTING_WORKSPACE)
    yield from _figures(beyond, transient)
    yield from _figures(
        Covered(
            event=beyond.event,
            value=beyond.value,
            name="peak of the profile run and graph estimate",
            owners=(*beyond.owners, Owner.GRAPH_POOL),
            without=beyond.without,
            phase=beyond.phase,
            inside_budget_only=True,
        ),
        summed,
    )


def _is_summary(said: Observation) -> bool:
    return "fits_budget_bytes" in said.values


def _without(covered: Covered, more: tuple[str, ...]) -> Covered:
    return Covered(
        event=covered.event,
        value=covered.value,
        name=covered.name,
        owners=covered.owners,
        without=(*covered.without, *more),
        phase=covered.phase,
        inside_budget_only=covered.inside_budget_only,
    )


def _estimate_is_counted(instance: Instance) -> bool:
    """Whether the engine took its graph estimate from the budget; where it says nothing, whether it made one."""
    told = [
        said.values["subtracted"]
        for said in instance.observations
        if said.event is Event.GRAPH_ESTIMATE and "subtracted" in said.values
    ]
    if told:
        return bool(told[-1])
    return instance.settings.get("enforce_eager") is not True


def _buffers(instance: Instance, covered: Covered) -> Iterator[Figure]:
    """Named buffers on the device; those in host memory are no entry of a rank."""
    latest: dict[tuple[str, int | None], tuple[Observation, ByteRange]] = {}
    for said in instance.observations:
        name, size = str(said.values.get("buffer", "")), as_range(said.values.get("size_bytes"))
        entry = _BUFFER_ENTRIES.get(name, name if name.startswith("attention backend") else "")
        if said.event is Event.BUFFER and size is not None and "device" not in said.values and entry:
            latest[entry, instance.rank(said)] = said, size
    for (entry, rank), (said, size) in latest.items():
        owner = Owner.WEIGHTS if entry == "layers fetched ahead" else Owner.WORKSPACE
        yield Figure(
            owners=(owner,),
            name=entry,
            bytes=size,
            evidence=evidence_of(said, instance),
            entries=(entry,),
            ranks=() if rank is None else (rank,),
        )
