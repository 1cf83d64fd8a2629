"""What a plan's parallelism keeps on one kind of rank beside weights, pool and activation."""

from __future__ import annotations

from vramledger.engines.vllm.activation import ActivationPeak
from vramledger.engines.vllm.all2all import all2all_extras
from vramledger.engines.vllm.eplb import eplb_extras
from vramledger.engines.vllm.extras import Extra
from vramledger.engines.vllm.pipeline import boundary_extras
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.engines.vllm.weights import RankWeights
from vramledger.hardware.catalogue import Device
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model


def parallel_extras(
    model: Model,
    settings: Settings,
    kind: RankKind,
    device: Device,
    *,
    weights: RankWeights,
    activation: ActivationPeak,
) -> tuple[Extra, ...]:
    """Boundary tensors of the pipeline, all-to-all buffers and load balancing of experts."""
    out = boundary_extras(model, settings, kind)
    moe_layers = sum(
        layer.index in kind.layers and isinstance(layer.channel_mixer, MixtureOfExperts)
        for layer in model.layers
    )
    if not moe_layers:
        return out
    experts = weights.groups.get("experts")
    return (
        *out,
        *all2all_extras(
            model, settings, device, experts_of_stage=moe_layers, expert_format=weights.expert_format
        ),
        *eplb_extras(
            model,
            settings,
            kind.layers,
            experts_bytes=experts.total if experts is not None else 0,
            activation_bytes=activation.peak_bytes,
            hidden_bytes=activation.hidden_bytes,
        ),
    )
