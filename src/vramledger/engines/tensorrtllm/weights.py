"""Weights of one rank: the checkpoint's tensors as stored, or as an engine was built with them.

Source: tensorrt_llm/_torch/modules/linear.py, quantization/ (weight-only: one fp16 scale an output row; fp8: one scale
a matrix; the head stays as it is).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vramledger.engines.held_weights import HeldWeights, held_weights, retyped
from vramledger.engines.partition import Cuts, PipelineStage, local_part, local_sizes
from vramledger.engines.tensorrtllm.ranks import RankKind
from vramledger.engines.tensorrtllm.settings import Settings
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Dense, Fp8, Granularity, GroupInt, Int8, Mxfp, Packing, WeightFormat
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import LatentAttention
from vramledger.models.quantization import StoredTensor
from vramledger.models.tensors import AxisKind, Component, Role, Tensor
from vramledger.units import round_up

_KEPT = (Role.LM_HEAD, Role.EMBEDDING, Role.ROUTER)


LATENT_B = (Role.Q_B, Role.KV_B)
"""Up-projections of latents, which the TRT back end keeps as plain parameters in the model's type; its routers are
float32 (layers/attention.py, layers/moe.py)."""


EXPERT_ALIGNMENT, EXPERT_INPUT_ALIGNMENT = 128, 512
"""4-bit float experts are padded to whole tiles of their kernels, the inputs of the first matrix further on data-centre
Blackwell (_torch/modules/fused_moe/quantization.py: `weight_alignment`, `input_hidden_alignment`)."""


def rank_weights(checkpoint: Checkpoint, settings: Settings, kind: RankKind, device: Device) -> HeldWeights:
    """The target's share, an MTP block's included. Raises FlagError where the plan does not divide the model."""
    return held_weights(
        checkpoint,
        kind.cuts,
        kind.stage,
        format_of=partial(_format, checkpoint=checkpoint, settings=settings),
        is_held=partial(_is_held, settings=settings),
        sizes_of=_sizes_of(checkpoint, settings, device),
    )


def absorbed_bytes(checkpoint: Checkpoint, settings: Settings, kind: RankKind) -> int:
    """The keys' up-projections of latents, kept a second time and transposed (`k_b_proj_trans` of layers/attention.py
    and _torch/modules/attention.py): in 8 bits where the checkpoint scales them in blocks, else in the model's type."""
    stored = {
        item.format for item in checkpoint.stored if item.tensor.role is Role.KV_B and item.tensor.linear
    }
    in_blocks = any(isinstance(found, Fp8) and found.scale is Granularity.BLOCK for found in stored)
    dtype = DType.F8_E4M3 if in_blocks and settings.is_pytorch else settings.dtype
    total = 0
    for layer in checkpoint.model.layers[kind.stage.layers.start : kind.stage.layers.stop]:
        for mixer in layer.token_mixers:
            if isinstance(mixer, LatentAttention):
                heads = -(-mixer.q_heads // kind.cuts.attention)
                total += dtype.bytes_for(heads * mixer.kv_lora_rank * mixer.nope_dim)
    return total


def _sizes_of(
    checkpoint: Checkpoint, settings: Settings, device: Device
) -> Callable[[Tensor, Cuts], list[int]]:
    """The local shapes by the rules of the back end."""
    if not settings.is_pytorch:
        return _engine_sizes
    four_bit = any(
        isinstance(item.format, Mxfp) and item.format.bits == 4
        for item in checkpoint.stored
        if item.tensor.num_experts
    )
    if not four_bit:
        return local_sizes
    inputs = EXPERT_INPUT_ALIGNMENT if device.architecture == "blackwell" else EXPERT_ALIGNMENT
    return partial(_padded_sizes, input_alignment=inputs)


def _padded_sizes(tensor: Tensor, cuts: Cuts, *, input_alignment: int) -> list[int]:
    """Local shape of an expert tensor after padding: columns between the matrices and hidden widths to whole tiles."""
    if not tensor.num_experts:
        return local_sizes(tensor, cuts)
    out = []
    for place, axis in enumerate(tensor.axes):
        is_input = place == len(tensor.axes) - 1 and tensor.linear and tensor.role is not Role.EXPERT_DOWN
        hidden = input_alignment if is_input else EXPERT_ALIGNMENT
        multiples = {AxisKind.INTERMEDIATE: EXPERT_ALIGNMENT, AxisKind.HIDDEN: hidden}
        out.append(
            sum(round_up(local_part(part, tensor, cuts), multiples.get(part.kind, 1)) for part in axis)
        )
    return out


def _engine_sizes(tensor: Tensor, cuts: Cuts) -> list[int]:
    """An engine's tensors; every rank has the whole embedding unless it was converted with --use_parallel_embedding."""
    if tensor.role is Role.EMBEDDING:
        return list(tensor.shape)
    return local_sizes(tensor, cuts)


def draft_weights(settings: Settings, kind: RankKind) -> HeldWeights | None:
    """A draft model of its own: on the last stage inside the target's executor, on every stage beside it."""
    drafts = settings.flags.speculative
    if drafts is None or drafts.draft is None or (drafts.is_one_model and not kind.stage.is_last):
        return None
    draft = drafts.draft
    return held_weights(
        draft,
        kind.cuts,
        PipelineStage(layers=range(draft.model.num_layers), is_first=True, is_last=True),
        format_of=lambda item: retyped(item, draft.model.dtype, settings.dtype),
        is_held=lambda tensor: tensor.component is not Component.DRAFT,
    )


def _is_held(tensor: Tensor, *, settings: Settings) -> bool:
    drafts = settings.flags.speculative
    if tensor.component is Component.DRAFT:
        shared = tensor.role in (Role.EMBEDDING, Role.LM_HEAD)
        return drafts is not None and drafts.decoding_type == "MTP" and not shared
    return tensor.component is Component.DECODER or settings.is_pytorch


def _format(item: StoredTensor, *, checkpoint: Checkpoint, settings: Settings) -> WeightFormat:
    stored = retyped(item, checkpoint.model.dtype, settings.dtype)
    tensor = item.tensor
    if not settings.is_pytorch and tensor.role is Role.ROUTER:
        return Dense(dtype=DType.F32)
    if not settings.is_pytorch and tensor.role in LATENT_B and tensor.linear:
        return Dense(dtype=settings.dtype)
    if settings.flags.quantization is None or not tensor.linear or tensor.role in _KEPT:
        return stored
    match settings.flags.quantization:
        case "fp8":
            return Fp8(scale=Granularity.TENSOR, static_input=True)
        case "int8_weight_only":
            return Int8(scale=Granularity.CHANNEL, scale_dtype=settings.dtype)
        case "int4_weight_only":
            return GroupInt(bits=4, group_size=-1, packing=Packing.COMPRESSED_TENSORS, zero_points=False)
        case _:
            return stored
