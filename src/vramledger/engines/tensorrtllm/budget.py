"""What one kind of rank takes before its KV pool, and what the engine's share of the rest is.

Source: tensorrt_llm/_torch/pyexecutor/_util.py (`configure_kv_cache_capacity`, `_cal_max_memory`);
cpp/tensorrt_llm/batch_manager/trtGptModelInflightBatching.cpp for the TRT back end.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.engines.held_weights import HeldWeights
from vramledger.engines.recent import Recent
from vramledger.engines.surroundings import Surroundings, communicators, driver_context
from vramledger.engines.tensorrtllm.activation import (
    RUNTIME_BUFFERS,
    StepBytes,
    graph_bytes,
    step_bytes,
)
from vramledger.engines.tensorrtllm.beams import beam_bytes
from vramledger.engines.tensorrtllm.kv_layers import KvLayer, draft_layers, kv_layers
from vramledger.engines.tensorrtllm.ranks import RankKind
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.engines.tensorrtllm.weights import absorbed_bytes, draft_weights, rank_weights
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ZERO, ByteRange
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import MIB

SLACK = ByteRange(0, 4 * MIB, 64 * MIB)
"""What torch's allocator keeps beside the weights, or TensorRT beside an engine."""


class RankTerms(Struct, frozen=True, kw_only=True):
    """Every term of one kind of rank. `available` is what is left for KV before the share is taken."""

    kind: RankKind
    layers: tuple[KvLayer, ...]
    weights: HeldWeights
    draft: HeldWeights | None
    absorbed_bytes: int
    context: Surroundings
    communicators: Surroundings | None
    step: StepBytes
    decode_step: StepBytes
    runtime_buffers: ByteRange
    decoder_bytes: int
    graphs: ByteRange
    adapters: ByteRange
    available: ByteRange

    @property
    def loaded_bytes(self) -> int:
        """Weights of the target, what it keeps twice of them, and of a draft."""
        draft = self.draft.total_bytes if self.draft else 0
        return self.weights.total_bytes + self.absorbed_bytes + draft

    @property
    def outside(self) -> ByteRange:
        """What is there beside torch's tensors: context and communicators."""
        return self.context.bytes + (self.communicators.bytes if self.communicators else ZERO)


class _Model(Struct, frozen=True, kw_only=True):
    """What depends on the model and how it is cut and stored, and on no size of memory or batch."""

    weights: HeldWeights
    draft: HeldWeights | None
    absorbed_bytes: int
    layers: tuple[KvLayer, ...]


_MODELS: Recent[_Model] = Recent(size=256)


def _of_model(checkpoint: Checkpoint, settings: Settings, device: Device, kind: RankKind) -> _Model:
    """Kept between questions that differ in lengths, batches and shares alone."""
    flags = settings.flags
    if flags.speculative is not None:
        return _make(checkpoint, settings, device, kind)
    key = (
        kind.cuts, kind.stage, settings.backend, settings.dtype, settings.cache, device.architecture, flags.quantization,
        flags.mamba_ssm_cache_dtype, flags.tp_size, flags.enable_attention_dp,
    )  # fmt: skip
    return _MODELS.get(checkpoint, key, lambda: _make(checkpoint, settings, device, kind))


def _make(checkpoint: Checkpoint, settings: Settings, device: Device, kind: RankKind) -> _Model:
    model, flags = checkpoint.model, settings.flags
    layers = kv_layers(model, kind.stage.layers, flags, settings.dtype, settings.cache)
    drafts = flags.speculative
    if drafts is not None and (kind.stage.is_last or not drafts.is_one_model):
        layers = (*layers, *draft_layers(model, flags, settings.dtype, settings.cache))
    return _Model(
        weights=rank_weights(checkpoint, settings, kind, device),
        draft=draft_weights(settings, kind),
        absorbed_bytes=absorbed_bytes(checkpoint, settings, kind),
        layers=layers,
    )


def rank_terms(checkpoint: Checkpoint, settings: Settings, device: Device, kind: RankKind) -> RankTerms:
    """All terms of one kind of rank."""
    model, flags = checkpoint.model, settings.flags
    found = _of_model(checkpoint, settings, device, kind)
    weights, draft, absorbed, layers = found.weights, found.draft, found.absorbed_bytes, found.layers
    context, ranks = driver_context(device), communicators(flags.tp_size * flags.pp_size)
    step, decode_step = step_bytes(model, settings, kind.stage.layers)
    loaded = weights.total_bytes + absorbed + (draft.total_bytes if draft else 0)
    held = ByteRange.exact(loaded) + SLACK + context.bytes
    if ranks is not None:
        held = held + ranks.bytes
    after_load = _not_negative(device.total - held)
    percent = flags.lora_device_cache_percent if flags.enable_lora else 0.0
    adapters = ByteRange(
        *(int(size * percent) for size in (after_load.low, after_load.expected, after_load.high))
    )
    buffers = ZERO if settings.is_pytorch else RUNTIME_BUFFERS
    decoder = beam_bytes(settings) if settings.is_pytorch else decoder_bytes(settings, model.vocab_size)
    taken = held + adapters
    if settings.runs_estimation or not settings.is_pytorch:
        taken = taken + step.bytes + buffers + ByteRange.exact(decoder)
    return RankTerms(
        kind=kind,
        layers=layers,
        weights=weights,
        draft=draft,
        absorbed_bytes=absorbed,
        context=context,
        communicators=ranks,
        step=step,
        decode_step=decode_step,
        runtime_buffers=buffers,
        decoder_bytes=decoder,
        graphs=graph_bytes(settings, len(kind.stage.layers)),
        adapters=adapters,
        available=_not_negative(device.total - taken),
    )


def decoder_bytes(settings: Settings, vocab: int) -> int:
    """Logits and penalties of the TRT back end's decoder: two 4-byte rows of the vocabulary for each sequence of a
    batch of at most 512, and the tokens of the longest request."""
    rows = min(settings.max_batch, 512) * settings.flags.max_beam_width
    return rows * (2 * 4 * vocab + 4 * settings.asked_len)


def share(available: ByteRange, settings: Settings) -> ByteRange:
    """int(available x free_gpu_memory_fraction), end by end."""
    return ByteRange(
        *(int(size * settings.fraction) for size in (available.low, available.expected, available.high))
    )


def _not_negative(size: ByteRange) -> ByteRange:
    return ByteRange(max(size.low, 0), max(size.expected, 0), max(size.high, 0))
