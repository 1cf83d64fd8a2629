"""Compute buffers: the scratch of the largest graph on each device, reserved when a context is made.

Source: llama.cpp src/llama-context.cpp (sched_reserve: a prompt's graph and a generation's), through the graph
builder and allocator here. Bytes on a device the engine was not asked about are known to a few percent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramledger.engines.llamacpp.architectures import Architecture
from vramledger.engines.llamacpp.caches import Caches
from vramledger.engines.llamacpp.file_tensors import FileTensor
from vramledger.engines.llamacpp.graph_blocks import Batch, GraphRules
from vramledger.engines.llamacpp.graph_memory import scratch_bytes
from vramledger.engines.llamacpp.graph_models import GraphPlan, build_graph
from vramledger.engines.llamacpp.placement import Placement
from vramledger.engines.llamacpp.settings import Settings
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.engines.recent import Recent
from vramledger.models.mixers import RECURRENT, Layer
from vramledger.models.model import Model

OFFLOADED_BATCH = 32
"""Batches of at least this many tokens are computed on a device where the weight is on the host (CUDA, ROCm)."""
PIPELINE_COPIES = 4


_recent: Recent[Mapping[int, int]] = Recent(1024)


def compute_bytes(
    model: Model,
    architecture: Architecture,
    tensors: Sequence[FileTensor],
    settings: Settings,
    caches: Caches,
    placement: Placement,
    *,
    every_layer: bool = False,
) -> Mapping[int, int]:
    """Bytes of each compute buffer by device, HOST for the CPU's. Layers that repeat are built twice, unless
    `every_layer` asks for all."""
    layers = model.layers if every_layer or _varies(model) else representatives(model, placement, caches)
    prompt = _graph_bytes(model, architecture, tensors, settings, caches, placement, layers, settings.tokens)
    step = _graph_bytes(model, architecture, tensors, settings, caches, placement, layers, settings.slots)
    devices = [*range(settings.devices), HOST]
    return {device: max(prompt.get(device, 0), step.get(device, 0)) for device in devices}


def _graph_bytes(
    model: Model,
    architecture: Architecture,
    tensors: Sequence[FileTensor],
    settings: Settings,
    caches: Caches,
    placement: Placement,
    layers: Sequence[Layer],
    tokens: int,
) -> Mapping[int, int]:
    is_step = tokens == settings.slots
    batch = Batch(
        tokens=tokens,
        sequences=settings.slots,
        outputs=tokens if is_step else min(tokens, settings.outputs),
        streams=settings.streams,
        flash=settings.flash,
        key_type=settings.key_type,
        value_type=settings.value_type,
    )
    build = settings.build
    plan = GraphPlan(
        batch=batch,
        rules=GraphRules(
            rows=build.writes_rows,
            fused_gate=build.fuses_gates,
            half_mask=build.has_half_mask,
            mixed_input=build.mixes_inputs,
            embedding_input=build.plans_embeddings,
            rotated_cache=build.rotates_caches,
            second_mask=architecture.windows and not build.has_windows,
        ),
        layer_devices=placement.layers,
        output_device=placement.output,
        cache_devices=placement.layers if settings.flags.kv_offload else (HOST,) * len(placement.layers),
        cells=caches.cells,
        window_cells=caches.window_cells,
        window_layers=caches.window_layers,
        host_attention=not settings.flags.kv_offload,
        offloads=settings.offloads and tokens >= OFFLOADED_BATCH,
    )
    several = copies(settings, placement)
    places = tuple(placement.places.items())
    built = tuple(layer.index for layer in layers)
    return _recent.get(
        model,
        (architecture, plan, several, places, built),
        lambda: scratch_bytes(
            build_graph(model, architecture, tensors, placement.places, plan, layers), copies=several
        ),
        also=tensors,
    )


def copies(settings: Settings, placement: Placement) -> int:
    """Copies of what crosses devices: several with pipeline parallelism, which takes everything offloaded whole."""
    flags = settings.flags
    whole = placement.offloaded == placement.total_layers and not flags.overrides()
    layered = flags.split_mode in (None, "layer") and flags.kv_offload
    return PIPELINE_COPIES if settings.pipelines and settings.devices > 1 and whole and layered else 1


def _varies(model: Model) -> bool:
    """Whether layers leave free blocks of so many sizes that which of them is reused goes by the whole sequence."""
    recurrent = sum(isinstance(mixer, RECURRENT) for mixer in model.token_mixers)
    return 0 < recurrent < len(model.token_mixers) or model.model_type.startswith(("gemma3n", "gemma4"))


def representatives(model: Model, placement: Placement, caches: Caches) -> list[Layer]:
    """Enough layers that every kind stands on every device after every other: the first three of each kind on a
    device and the last two."""
    seen: dict[object, int] = {}
    kept = []
    for layer in model.layers:
        experts = placement.places.get(
            f"blk.{layer.index}.ffn_up_exps.weight", placement.places.get(f"blk.{layer.index}.ffn_up.weight")
        )
        kind = (
            layer.token_mixers,
            layer.channel_mixer,
            layer.index in caches.window_layers,
            placement.layers[layer.index],
            experts,
            model.model_type.startswith("gemma3n") and layer.index < 10,
        )
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= 3 or layer.index >= model.num_layers - 2:
            kept.append(layer)
    return kept
