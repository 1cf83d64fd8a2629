"""Weights kept in host memory: `--cpu-offload-gb` and the prefetching groups of layers.

Source: vllm model_executor/models/utils.py (maybe_offload_to_cpu, up to 0.17), model_executor/offloader/uva.py and
prefetch.py, config/offload.py since.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from vramledger.engines.device_tensors import GroupBytes
from vramledger.engines.vllm.extras import Extra
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.engines.vllm.weights import RankWeights
from vramledger.errors import FlagError
from vramledger.evidence import calculated
from vramledger.ledger import SERVING, ByteRange, Entry, Lifetime, Owner, Phase
from vramledger.units import GIB, format_bytes

# A layer's parameters in the order its class builds them: attention, then the channel mixer, then norms.
_LAYER_ORDER = ("attention", "recurrent", "routers", "experts", "shared experts", "mlp", "norms")
# Which of them a name segment of --cpu-offload-params or --offload-params stands for.
_SEGMENTS = {
    "self_attn": ("attention",), "attn": ("attention",), "mlp": ("mlp", "experts", "shared experts", "routers"),
    "experts": ("experts",), "w13_weight": ("experts",), "w2_weight": ("experts",),
    "shared_experts": ("shared experts",), "gate": ("routers",),
}  # fmt: skip


class Offload(Struct, frozen=True, kw_only=True):
    """Bytes of a rank's weights that lie in host memory, by group, and how they get to the device."""

    by_group: dict[str, int]
    largest_layer_bytes: int
    prefetch_bytes: int
    formula: str

    @property
    def total_bytes(self) -> int:
        return sum(self.by_group.values())


NO_OFFLOAD = Offload(by_group={}, largest_layer_bytes=0, prefetch_bytes=0, formula="")


def offload(weights: RankWeights, settings: Settings, kind: RankKind) -> Offload:
    """What a rank keeps in host memory. Layers of a stage are taken as alike.

    Raises FlagError for a name of parameters that is not known here, and a group of layers smaller than its
    offloaded part.
    """
    flags = settings.flags
    backend = flags.offload_backend
    groups = flags.offload_group_size
    if groups and backend in (None, "auto", "prefetch"):
        return _prefetched(weights, settings, kind)
    if flags.cpu_offload_gb and backend in (None, "auto", "uva"):
        return _until_full(weights, settings, kind)
    return NO_OFFLOAD


def _named(text: str | None, flag: str) -> frozenset[str] | None:
    """Groups of weights by the segments of parameters' names; None for all."""
    if not text:
        return None
    out: set[str] = set()
    for segment in text.replace(",", " ").split():
        known = _SEGMENTS.get(segment.rpartition(".")[2], _SEGMENTS.get(segment))
        if known is None:
            raise FlagError(
                f"--{flag.replace('_', '-')} {segment!r} is not a segment known here: {', '.join(_SEGMENTS)}",
                flag=flag,
                value=segment,
            )
        out.update(known)
    return frozenset(out)


def _layer_parts(weights: RankWeights, layers: int, wanted: frozenset[str] | None) -> list[tuple[str, int]]:
    """(group, bytes) of each parameter of one layer, in order; what a stage has once is no layer's."""
    out = []
    for name in _LAYER_ORDER:
        group = weights.groups.get(name)
        if group is None or (wanted is not None and name not in wanted):
            continue
        shapes = [
            (repeat, experts * rows * columns * repeat) for repeat, experts, rows, columns in group.parts
        ]
        of_all = sum(size for _, size in shapes)
        out += [
            (name, group.total * size // (of_all * layers))
            for repeat, size in shapes
            if size and (repeat > 1 or layers == 1)
        ]
    return out


def _until_full(weights: RankWeights, settings: Settings, kind: RankKind) -> Offload:
    """Whole parameters of the first layers until the budget is reached: the last one goes over it."""
    flags = settings.flags
    budget = int(flags.cpu_offload_gb * GIB)
    layers = len(kind.layers)
    if not layers:
        return NO_OFFLOAD
    parts = _layer_parts(weights, layers, _named(flags.cpu_offload_params, "cpu_offload_params"))
    layer = sum(size for _, size in parts)
    whole = min(budget // layer, layers) if layer else 0
    held: dict[str, int] = {}
    for name, size in parts:
        held[name] = held.get(name, 0) + whole * size
    taken = whole * layer
    for name, size in parts if whole < layers else []:
        if taken >= budget:
            break
        held[name] += size
        taken += size
    return Offload(
        by_group={name: size for name, size in held.items() if size},
        largest_layer_bytes=layer,
        prefetch_bytes=0,
        formula=f"whole parameters of {layer} B a layer until {flags.cpu_offload_gb} GiB",
    )


def _prefetched(weights: RankWeights, settings: Settings, kind: RankKind) -> Offload:
    """The last `num_in_group` layers of every group; `prefetch_step` layers' buffers stay on the device."""
    flags = settings.flags
    size, last, step = flags.offload_group_size, flags.offload_num_in_group, flags.offload_prefetch_step
    if last > size:
        raise FlagError(
            f"--offload-num-in-group {last} is more than --offload-group-size {size}",
            flag="offload_num_in_group",
            value=last,
        )
    layers = len(kind.layers)
    if not layers:
        return NO_OFFLOAD
    parts = _layer_parts(weights, layers, _named(flags.offload_params, "offload_params"))
    layer = sum(part for _, part in parts)
    count = sum(index % size >= size - last for index in range(layers))
    held: dict[str, int] = {}
    for name, part in parts:
        held[name] = held.get(name, 0) + count * part
    return Offload(
        by_group={name: part for name, part in held.items() if part},
        largest_layer_bytes=layer,
        prefetch_bytes=step * layer if count else 0,
        formula=f"{count} of {layers} layers x {layer} B: the last {last} of every {size}",
    )


def on_device(weights: RankWeights, moved: Offload) -> RankWeights:
    """The weights without what lies in host memory."""
    if not moved.by_group:
        return weights
    groups = {
        name: _less(group, moved.by_group[name]) if name in moved.by_group else group
        for name, group in weights.groups.items()
    }
    return replace(weights, groups=groups)


def _less(group: GroupBytes, size: int) -> GroupBytes:
    return GroupBytes(
        elements=group.elements,
        scales=group.scales,
        padding=group.padding,
        tensors=group.tensors,
        parts=group.parts,
        elsewhere=min(size, group.total),
    )


def offload_extras(moved: Offload, settings: Settings) -> tuple[Extra, ...]:
    """What reading weights from host memory takes on the device: nothing where the device reads it in place (V1),
    a whole layer's copy in V0's forward, buffers of the layers fetched ahead."""
    out = []
    if moved.prefetch_bytes:
        out.append(
            Extra(
                owner=Owner.WEIGHTS,
                name="layers fetched ahead",
                bytes=ByteRange.exact(moved.prefetch_bytes),
                charged=settings.version.since(27),
                evidence=calculated(
                    "vllm model_executor/offloader/prefetch.py (StaticBufferPool)",
                    f"{settings.flags.offload_prefetch_step} slots x {moved.largest_layer_bytes} B",
                ),
            )
        )
    elif moved.by_group and not settings.v1:
        out.append(
            Extra(
                owner=Owner.ACTIVATION,
                name="a layer copied from host memory",
                bytes=ByteRange.exact(moved.largest_layer_bytes),
                charged=True,
                phases=SERVING | {Phase.WARMUP, Phase.RECOVERY},
                lifetime=Lifetime.ITERATION,
                evidence=calculated(
                    "vllm model_executor/models/utils.py (maybe_offload_to_cpu)",
                    f"parameters of one layer {moved.largest_layer_bytes} B",
                ),
            )
        )
    return tuple(out)


def offload_host_entry(moved: Offload, ranks: int) -> tuple[Entry, ...]:
    """The pinned copies of all ranks that are alike."""
    if not moved.by_group:
        return ()
    size = moved.total_bytes
    return (
        Entry(
            owner=Owner.WEIGHTS,
            name="offloaded weights",
            lifetime=Lifetime.WORKER,
            phases=frozenset(Phase),
            bytes=ByteRange.exact(size * ranks),
            evidence=calculated(
                "vllm model_executor/offloader", f"{ranks} ranks x {format_bytes(size)}: {moved.formula}"
            ),
            inside_budget=False,
        ),
    )
