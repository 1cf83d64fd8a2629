"""Kinds of rank of one instance, and how each tensor is cut on them.

Source: sglang srt/distributed/utils.py (`get_pp_indices`), layers/dp_attention.py, layers/moe/ep_moe, and the models'
`use_attn_tp_group` arguments.
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.engines.partition import Cuts, PipelineStage, given_stages, stage_ranges
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.version import SglangVersion
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import Device
from vramledger.models.mixers import CompressedAttention, FullAttention, LatentAttention, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.models.tensors import Component, Role, Tensor


class RankKind(PipelineStage, frozen=True, kw_only=True):
    """Ranks that hold the same share: those of one pipeline stage.

    `embedding_cuts` and `head_cuts` differ from `cuts` only under DP attention.
    """

    ranks: tuple[int, ...]
    stage: int
    cuts: Cuts
    embedding_cuts: Cuts
    head_cuts: Cuts

    def cuts_of(self, tensor: Tensor) -> Cuts:
        """How this tensor is cut."""
        if tensor.role is Role.EMBEDDING:
            return self.embedding_cuts
        return self.head_cuts if tensor.role is Role.LM_HEAD else self.cuts


def pipeline_layers(num_layers: int, settings: Settings) -> list[range]:
    """Layers of each stage: the last stages get one more since 0.5.6, the last one the whole remainder before.

    Raises FlagError for a partition that does not add up or more stages than layers.
    """
    pp, partition = settings.flags.pp_size, settings.flags.pp_layer_partition
    if partition is not None:
        return given_stages(num_layers, pp, partition, flag="pp_layer_partition")
    if pp > num_layers:
        raise FlagError(
            f"--pp-size {pp} is more than the {num_layers} layers", flag="pp_size", value=pp
        )  # fmt: skip
    base, remainder = divmod(num_layers, pp)
    counts = [base] * pp
    if settings.version.since(*EVEN_STAGES_SINCE):
        for stage in range(pp - remainder, pp):
            counts[stage] += 1
    else:
        counts[-1] += remainder
    return stage_ranges(counts)


EVEN_STAGES_SINCE = (5, 6)
ATTENTION_GROUP_EMBEDDING_SINCE = (5, 9)


def rank_kinds(model: Model, settings: Settings, device: Device) -> list[RankKind]:
    """One kind a stage; ranks are numbered replica-major, then by stage and tensor-parallel rank.

    Raises FlagError where heads or experts do not divide.
    """
    flags = settings.flags
    _check(model, settings)
    cuts = _cuts(model, settings, device)
    group = replace(cuts, vocab=flags.attn_tp)
    grouped = flags.enable_dp_attention
    whole = replace(cuts, vocab=1)
    embedding = cuts
    if grouped:
        embedding = group if settings.version.since(*ATTENTION_GROUP_EMBEDDING_SINCE) else whole
    head = group if grouped and flags.enable_dp_lm_head else cuts
    stages = pipeline_layers(model.num_layers, settings)
    width = flags.tp_size * flags.pp_size
    return [
        RankKind(
            layers=layers,
            is_first=stage == 0,
            is_last=stage == flags.pp_size - 1,
            ranks=tuple(
                replica * width + stage * flags.tp_size + rank
                for replica in range(flags.replicas)
                for rank in range(flags.tp_size)
            ),
            stage=stage,
            cuts=cuts,
            embedding_cuts=embedding,
            head_cuts=head,
        )
        for stage, layers in enumerate(stages)
    ]


def _cuts(model: Model, settings: Settings, device: Device) -> Cuts:
    """Attention by its group, MLPs and experts over all ranks; shared experts are whole beside an all-to-all and where
    every rank's copy is among the routed ones."""
    flags = settings.flags
    return Cuts(
        attention=flags.attn_tp,
        dense=1 if flags.moe_dense_tp_size == 1 else flags.tp_size,
        shared=1
        if flags.moe_a2a_backend != "none" or _copies_shared(model, settings, device)
        else flags.tp_size,
        vocab=flags.tp_size,
        expert_width=flags.tp_size // flags.ep_size,
        expert_ranks=flags.ep_size,
        redundant_experts=flags.ep_num_redundant_experts,
        towers=flags.attn_tp,
        flag="tp_size",
    )


def _copies_shared(model: Model, settings: Settings, device: Device) -> bool:
    """DeepSeek-V3's shared expert as tp more routed ones, each cut over tp (`n_share_experts_fusion`): 0.4.5 to 0.4.6,
    on NVIDIA from Hopper on, up to 0.4.6.post4 on AMD too."""
    version = settings.version
    if not version.since(4, 5) or version.since(4, 7) or model.model_type != "deepseek_v3":
        return False
    mixtures = [
        layer.channel_mixer for layer in model.layers if isinstance(layer.channel_mixer, MixtureOfExperts)
    ]
    if not any(mixture.num_experts == 256 for mixture in mixtures):
        return False
    if device.vendor == "amd":
        return version < LAST_READ_FUSION
    return device.architecture.startswith(("hopper", "blackwell"))


LAST_READ_FUSION = SglangVersion(0, 4, 6, 5)


def _check(model: Model, settings: Settings) -> None:
    flags = settings.flags
    for mixer in model.token_mixers:
        heads = (
            mixer.q_heads if isinstance(mixer, FullAttention | LatentAttention | CompressedAttention) else 0
        )
        if heads % flags.attn_tp:
            raise FlagError(
                f"{heads} attention heads of the model do not divide by the {flags.attn_tp} ranks of --tp-size"
                + (" that share an attention group" if flags.enable_dp_attention else ""),
                flag="tp_size",
                value=flags.tp_size,
            )
    for layer in model.layers:
        mixture = layer.channel_mixer
        if flags.ep_size > 1 and isinstance(mixture, MixtureOfExperts):
            physical = mixture.num_experts + flags.ep_num_redundant_experts
            if physical % flags.ep_size:
                raise FlagError(
                    f"{physical} experts of a layer do not divide by --ep-size {flags.ep_size}",
                    flag="ep_size",
                    value=flags.ep_size,
                )


def is_loaded(tensor: Tensor, settings: Settings) -> bool:
    """Whether the engine loads a tensor: drafts of the checkpoint only for speculation, towers not where the language
    part runs alone."""
    if tensor.component is Component.DRAFT:
        return False
    if tensor.component in (Component.VISION, Component.AUDIO, Component.PROJECTOR):
        return not settings.flags.language_only
    return True
