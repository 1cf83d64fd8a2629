"""Weights of one process: what the checkpoint stores, in the type the model runs in, cut by the tensor-parallel plan.

Source: transformers modeling_utils.py, quantizers/quantizer_bnb_4bit.py, quantizer_bnb_8bit.py.
"""

from __future__ import annotations

from functools import partial

from vramledger.engines.held_weights import HeldWeights, held_weights, retyped
from vramledger.engines.partition import PipelineStage
from vramledger.engines.recent import Recent
from vramledger.engines.transformers import tp_plan
from vramledger.engines.transformers.settings import Settings
from vramledger.formats.weights import Bnb4, Bnb8, Dense, WeightFormat
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.quantization import StoredTensor
from vramledger.models.tensors import Component, Role, Tensor

_WEIGHTS: Recent[HeldWeights] = Recent(size=64)


def rank_weights(checkpoint: Checkpoint, settings: Settings) -> HeldWeights:
    """One process's share. Raises FlagError where the plan does not divide the model."""
    key = (settings.dtype, settings.flags.quantization, settings.flags.tp_size)
    return _WEIGHTS.get(checkpoint, key, lambda: _held(checkpoint, settings))


def _held(checkpoint: Checkpoint, settings: Settings) -> HeldWeights:
    model, tp = checkpoint.model, settings.flags.tp_size
    return held_weights(
        checkpoint,
        tp_plan.cuts(tp_plan.cut_parts(model, tp), tp),
        PipelineStage(layers=range(model.num_layers), is_first=True, is_last=True),
        format_of=partial(_format, checkpoint=checkpoint, settings=settings),
        is_held=_is_held,
        sizes_of=tp_plan.sizes_of,
    )


def _is_held(tensor: Tensor) -> bool:
    """Draft heads are left on disk."""
    return tensor.component is not Component.DRAFT


def _format(item: StoredTensor, *, checkpoint: Checkpoint, settings: Settings) -> WeightFormat:
    """bitsandbytes takes every linear but the head; experts are stacked parameters, which it leaves alone."""
    stored = retyped(item, checkpoint.model.dtype, settings.dtype)
    tensor = item.tensor
    plain = isinstance(stored, Dense) and tensor.linear and not tensor.num_experts
    if not plain or tensor.role in (Role.LM_HEAD, Role.EMBEDDING, Role.ROUTER):
        return stored
    match settings.flags.quantization:
        case "bnb-4bit":
            return Bnb4(double_quant=True, dtype=settings.dtype)
        case "bnb-8bit":
            return Bnb8()
        case _:
            return stored
