"""Which part of each tensor a rank holds.

Source: vllm model_executor/layers/linear.py, vocab_parallel_embedding.py, fused_moe/config.py,
distributed/utils.py (get_pp_indices).
"""

from __future__ import annotations

from itertools import product

from vramledger.engines.partition import (
    TOWERS,
    Cuts,
    PipelineStage,
    dealt,
    given_stages,
    repetitions,
    stage_ranges,
)
from vramledger.engines.vllm.expert_parallel import check_eplb, keeps_shared_whole
from vramledger.engines.vllm.flags import ParallelPlan, VllmFlags
from vramledger.engines.vllm.support import has_left
from vramledger.engines.vllm.version import VllmVersion
from vramledger.errors import FlagError
from vramledger.models.mixers import (
    CompressedAttention,
    FullAttention,
    LatentAttention,
    MixtureOfExperts,
)
from vramledger.models.model import Model
from vramledger.models.tensors import Component, Role, Stage, Tensor

MAX_EXTRA_LAYERS = 1024


class RankKind(PipelineStage, frozen=True, kw_only=True):
    """One kind of rank: its pipeline stage, its layers, and what part of everything it holds."""

    ranks: tuple[int, ...]
    stage: int
    cuts: Cuts

    @property
    def kv_layers(self) -> range:
        """Layer indices whose KV a rank keeps: its own, and a draft's layers after the last."""
        return range(self.layers.start, self.layers.stop + MAX_EXTRA_LAYERS) if self.is_last else self.layers


def pipeline_layers(
    num_layers: int, pp: int, version: VllmVersion, partition: tuple[int, ...] | None
) -> list[range]:
    """Layers of each stage.

    The remainder goes one layer each to the stages from the second last backwards since 0.8 (the first stage
    last of all), all of it to the last stage before; VLLM_PP_LAYER_PARTITION overrides.
    Raises FlagError for a partition that does not add up or more stages than layers.
    """
    if partition is not None:
        return given_stages(num_layers, pp, partition, flag="pp_layer_partition")
    if pp > num_layers:
        raise FlagError(f"--pp {pp} is more than the {num_layers} layers", flag="pp", value=pp)
    base, remainder = divmod(num_layers, pp)
    counts = [base] * pp
    if version.since(8):
        for offset in range(remainder):
            counts[(pp - 2 - offset) % pp] += 1
    else:
        counts[-1] += remainder
    return stage_ranges(counts)


def rank_kinds(model: Model, plan: ParallelPlan, flags: VllmFlags, version: VllmVersion) -> list[RankKind]:
    """The distinct kinds of rank, each with the world ranks that are of it.

    Ranks are numbered dp-major, then pp, pcp and tp. Within a stage ranks differ only where the experts do not
    divide evenly: the first ranks of the expert group get one more (fused_moe/layer.py).
    """
    stages = pipeline_layers(model.num_layers, plan.pp, version, flags.pp_layer_partition)
    experts = {
        layer.channel_mixer.num_experts
        for layer in model.layers
        if isinstance(layer.channel_mixer, MixtureOfExperts)
    }
    check_eplb(plan, flags)
    uneven = any((count + flags.num_redundant_experts) % plan.ep for count in experts)
    if uneven and flags.num_redundant_experts:
        physical = min(experts) + flags.num_redundant_experts
        raise FlagError(
            f"--num-redundant-experts {flags.num_redundant_experts} makes {physical} experts a layer, "
            f"which {plan.ep} ranks do not share evenly",
            flag="num_redundant_experts",
            value=flags.num_redundant_experts,
        )
    kinds: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for dp_rank, stage, pcp_rank, tp_rank in product(
        range(plan.dp), range(plan.pp), range(plan.pcp), range(plan.tp)
    ):
        position = (dp_rank * plan.pcp + pcp_rank) * plan.tp + tp_rank
        share = _expert_share_class(position, experts, plan, flags) if uneven else 0
        world = ((dp_rank * plan.pp + stage) * plan.pcp + pcp_rank) * plan.tp + tp_rank
        kinds.setdefault((stage, share), []).append((world, position))
    out = []
    for (stage, _), alike in kinds.items():
        out.append(
            RankKind(
                ranks=tuple(world for world, _ in alike),
                stage=stage,
                layers=stages[stage],
                is_first=stage == 0,
                is_last=stage == plan.pp - 1,
                cuts=_cuts(
                    plan,
                    flags,
                    alike[0][1],
                    whole_shared=keeps_shared_whole(model.model_type, plan, flags, version),
                ),
            )
        )
    return out


def _expert_share_class(position: int, experts: set[int], plan: ParallelPlan, flags: VllmFlags) -> int:
    return sum(dealt(count + flags.num_redundant_experts, plan.ep, position) for count in sorted(experts))


def _cuts(plan: ParallelPlan, flags: VllmFlags, expert_position: int, *, whole_shared: bool = False) -> Cuts:
    """What tp and expert parallelism make of a rank; the experts' columns are cut over the ranks of their group
    that do not deal them out (fused_moe/config.py)."""
    return Cuts(
        attention=plan.tp,
        dense=plan.tp,
        shared=1 if whole_shared else plan.tp,
        vocab=plan.tp,
        expert_width=plan.expert_group // plan.ep,
        expert_ranks=plan.ep,
        expert_rank=expert_position,
        redundant_experts=flags.num_redundant_experts,
        towers=None if flags.mm_encoder_tp_mode == "data" else plan.tp,
    )


def check_heads(model: Model, plan: ParallelPlan) -> None:
    """Raises FlagError where tp does not divide the attention heads (config/model.py, verify_with_parallel_config)."""
    for mixer in model.token_mixers:
        if (
            isinstance(mixer, FullAttention | LatentAttention | CompressedAttention)
            and mixer.q_heads % plan.tp
        ):
            raise FlagError(
                f"{mixer.q_heads} attention heads of the model do not divide by --tensor-parallel-size {plan.tp}",
                flag="tensor_parallel_size",
                value=plan.tp,
            )


# Encoders that run through Transformers' own classes, and projectors made of replicated linears
# (models/gemma4_mm.py, gemma3n_mm.py, qwen2_audio.py, internvl.py, lfm2_vl.py).
WHOLE_TOWERS = frozenset({"gemma4", "gemma3n", "qwen2_audio"})
WHOLE_PROJECTORS = frozenset({"internvl", "lfm2_vl"})


def is_whole(tensor: Tensor, model_type: str, version: VllmVersion) -> bool:
    """Whether every rank holds all of a tensor that the plan could divide: what the engine does not build of
    parallel layers. InternVL's encoder divides its MLPs only (models/interns1_vit.py), Whisper's decoder looks
    tokens up in a plain, unpadded table (models/whisper.py). GPTBigCode left the engine with 0.25: through
    Transformers, whose class has no tensor-parallel plan, its MLPs are replicated (models/transformers/base.py)."""
    if model_type == "gpt_bigcode" and has_left("GPTBigCodeForCausalLM", version):
        return tensor.role in (Role.UP, Role.DOWN)
    if tensor.component in TOWERS and model_type in WHOLE_TOWERS:
        return True
    if tensor.component is Component.PROJECTOR and model_type in WHOLE_PROJECTORS:
        return True
    if tensor.component is Component.VISION and model_type == "internvl":
        return tensor.role in (Role.Q, Role.K, Role.V, Role.O)
    return model_type == "whisper" and tensor.role is Role.EMBEDDING


# Models whose classes build both ends, the last norm, or the embedding alone on every pipeline stage.
BOTH_ENDS = frozenset(
    (
        "gpt_oss",
        "jamba",
        "mixtral",
        "nemotron_h",
        "olmoe",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_vl_moe",
        "stablelm",
    )
)
FINAL_NORM = (BOTH_ENDS - {"qwen3_next"}) | {
    "cohere", "cohere2", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "granitemoe",
    "granitemoehybrid", "mamba",
}  # fmt: skip
EMBEDDING_ALONE = frozenset(("qwen3_5", "qwen3_5_moe"))


def stage_repetitions(tensor: Tensor, kind: RankKind, *, tied: bool, model_type: str) -> int:
    """How many of a tensor's repetitions a rank's stage holds: one of every stage for what a class builds on each."""
    outside = not tensor.layers and tensor.component not in (*TOWERS, Component.DRAFT)
    if outside and _is_on_every_stage(tensor, model_type):
        return tensor.repetitions
    return repetitions(tensor, kind, tied=tied)


def _is_on_every_stage(tensor: Tensor, model_type: str) -> bool:
    ends = (Role.EMBEDDING, Role.LM_HEAD) if model_type in BOTH_ENDS else (Role.EMBEDDING,)
    if model_type in BOTH_ENDS | EMBEDDING_ALONE and tensor.role in ends:
        return True
    return tensor.role is Role.NORM and tensor.stage is Stage.LAST and model_type in FINAL_NORM
