"""Everything llama.cpp holds under one set of settings: model, context and compute by device and host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from vramledger.engines.llamacpp.architectures import Architecture
from vramledger.engines.llamacpp.caches import Caches, caches_of
from vramledger.engines.llamacpp.compute import compute_bytes
from vramledger.engines.llamacpp.file_model import FileModel
from vramledger.engines.llamacpp.placement import Placement, place
from vramledger.engines.llamacpp.settings import Settings
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.ledger import ByteRange
from vramledger.models.mixers import DenseMlp, FullAttention, LatentAttention, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.units import MIB

DEVICE_TOLERANCE = 0.10
LEAST_TOLERANCE_BYTES = 16 * MIB
"""What a device's compute buffer may differ by: its kernels were not asked, the CPU's were."""


class Measured(Struct, frozen=True, kw_only=True):
    """One configuration. `compute` are ranges by device, HOST for the CPU's buffer."""

    settings: Settings
    placement: Placement
    caches: Caches
    compute: Mapping[int, ByteRange]
    graph_is_known: bool
    vocab: int
    hidden: int

    def cache_device(self, layer: int) -> int:
        """Where the cache of a layer lies."""
        return self.placement.layers[layer] if self.settings.flags.kv_offload else HOST

    def context_bytes(self, device: int) -> int:
        """KV and states of the layers on `device`."""
        return self.kv_bytes(device) + self.state_bytes(device)

    def kv_bytes(self, device: int) -> int:
        return sum(item.bytes for item in self.caches.caches if self.cache_device(item.layer) == device)

    def state_bytes(self, device: int) -> int:
        return sum(item.bytes for item in self.caches.states if self.cache_device(item.layer) == device)

    def model_bytes(self, device: int) -> int:
        if device == HOST:
            again = 0 if self.settings.flags.mmap else self.placement.host_tied_bytes
            return self.placement.host_bytes + again
        return self.placement.device_bytes[device] + self.placement.split_bytes[device]

    def used_bytes(self, device: int) -> int:
        """What the engine's own memory breakdown calls self: model, context and compute."""
        return self.model_bytes(device) + self.context_bytes(device) + self.compute[device].expected


def measure(
    model: Model,
    architecture: Architecture,
    file: FileModel,
    settings: Settings,
    free_bytes: Sequence[int],
    *,
    gpu_layers: int | None = None,
    experts_on_host: int | None = None,
) -> Measured:
    """Sizes under `settings`; `gpu_layers` and `experts_on_host` are what fitting tries."""
    placement = place(
        file.tensors,
        model.num_layers,
        settings,
        free_bytes,
        gpu_layers=gpu_layers,
        experts_on_host=experts_on_host,
        head_first=architecture.head_first,
    )
    caches = caches_of(model, architecture, settings, file.tensors)
    known = bool(architecture.graph)
    has_head = architecture.name != "bert"
    if known:
        sizes = compute_bytes(model, architecture, file.tensors, settings, caches, placement)
        compute = {device: _tolerance(size, device, settings) for device, size in sizes.items()}
    else:
        compute = _bounded(model, settings, caches, has_head)
    return Measured(
        settings=settings,
        placement=placement,
        caches=caches,
        compute=compute,
        graph_is_known=known,
        vocab=model.vocab_size,
        hidden=model.hidden_size,
    )


def _tolerance(size: int, device: int, settings: Settings) -> ByteRange:
    """Exact where the CPU computes everything; a device's kernels and splits may differ."""
    if device == HOST and not settings.devices:
        return ByteRange(size * 97 // 100, size, size * 103 // 100)
    if not size:
        return ByteRange(0, 0, 0)
    spread = max(int(size * DEVICE_TOLERANCE), LEAST_TOLERANCE_BYTES)
    return ByteRange(max(size - spread, 0), size, size + spread)


def _bounded(model: Model, settings: Settings, caches: Caches, has_head: bool) -> dict[int, ByteRange]:
    """A graph that is not built here: the widest of a plain transformer's stages (attention, MLP, logits), from half
    to three times. An encoder has no logits, and its tokens attend to those of their batch alone."""
    tokens, hidden = settings.tokens, model.hidden_size
    mlps = [layer.channel_mixer for layer in model.layers]
    wide = [
        (3 if mixer.gated else 2)
        * mixer.intermediate
        * (mixer.top_k if isinstance(mixer, MixtureOfExperts) else 1)
        for mixer in mlps
        if isinstance(mixer, (DenseMlp, MixtureOfExperts))
    ]
    heads = max(
        (
            mixer.q_heads
            for mixer in model.token_mixers
            if isinstance(mixer, (FullAttention, LatentAttention))
        ),
        default=0,
    )
    cells = caches.cells // settings.streams if has_head else tokens
    scores = 0 if settings.flash else 4 * heads * cells
    mask = (2 if settings.flash else 4) * cells
    attention = tokens * (scores + mask + 4 * 7 * hidden)
    mlp = tokens * (mask + 4 * (max(wide, default=6 * hidden) + 4 * hidden))
    rows = min(tokens, settings.outputs)
    logits = 4 * model.vocab_size * rows + 8 * hidden * tokens if has_head else 0
    size = max(attention, mlp, logits)
    out = {device: ByteRange(size // 2, size, 3 * size) for device in range(settings.devices)}
    inputs = tokens * (8 * hidden + 4 * cells)
    out[HOST] = ByteRange(0, inputs, 3 * inputs) if settings.devices else ByteRange(size // 2, size, 3 * size)
    return out
