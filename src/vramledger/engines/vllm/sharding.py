"""Which part of each tensor a rank holds.

Source: vllm model_executor/layers/linear.py, vocab_parallel_embedding.py, fused_moe/config.py,
distributed/utils.py (get_pp_indices).
"""

from __future__ import annotations

from itertools import pairwise, product

from msgspec import Struct

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
from vramledger.models.tensors import AxisKind, Component, Part, Role, Stage, Tensor
from vramledger.units import round_up

VOCAB_PADDING = 64
MAX_EXTRA_LAYERS = 1024
TOWERS = (Component.VISION, Component.AUDIO, Component.PROJECTOR)


class RankKind(Struct, frozen=True, kw_only=True):
    """One kind of rank: its pipeline stage, its layers, how many of the experts it holds."""

    ranks: tuple[int, ...]
    stage: int
    layers: range
    is_first: bool
    is_last: bool
    expert_position: int

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
        if len(partition) != pp or sum(partition) != num_layers or min(partition) < 0:
            raise FlagError(
                f"pp-layer-partition {partition} does not give {num_layers} layers to {pp} stages",
                flag="pp_layer_partition",
                value=partition,
            )
        counts = list(partition)
    else:
        if pp > num_layers:
            raise FlagError(f"--pp {pp} is more than the {num_layers} layers", flag="pp", value=pp)
        base, remainder = divmod(num_layers, pp)
        counts = [base] * pp
        if version.since(8):
            for offset in range(remainder):
                counts[(pp - 2 - offset) % pp] += 1
        else:
            counts[-1] += remainder
    edges = [sum(counts[:index]) for index in range(pp + 1)]
    return [range(start, end) for start, end in pairwise(edges)]


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
    if flags.num_redundant_experts and plan.ep == 1:
        raise FlagError(
            "--num-redundant-experts needs --enable-expert-parallel over more than one rank",
            flag="num_redundant_experts",
            value=flags.num_redundant_experts,
        )
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
                expert_position=alike[0][1],
            )
        )
    return out


def _expert_share_class(position: int, experts: set[int], plan: ParallelPlan, flags: VllmFlags) -> int:
    return sum(position < (count + flags.num_redundant_experts) % plan.ep for count in sorted(experts))


def local_experts(num_experts: int, kind: RankKind, plan: ParallelPlan, flags: VllmFlags) -> int:
    """Experts of one layer on a rank."""
    if plan.ep == 1:
        return num_experts
    physical = num_experts + flags.num_redundant_experts
    return physical // plan.ep + (1 if kind.expert_position < physical % plan.ep else 0)


def local_kv_heads(kv_heads: int, tp: int) -> int:
    """KV heads a rank keeps: divided, or one where there are more ranks than heads.

    Raises FlagError where neither number divides the other (model_executor/layers/linear.py).
    """
    if kv_heads % tp == 0:
        return kv_heads // tp
    if tp % kv_heads == 0:
        return 1
    raise FlagError(
        f"{kv_heads} KV heads of the model neither divide by --tensor-parallel-size {tp} nor divide it",
        flag="tensor_parallel_size",
        value=tp,
    )


def divided(count: int, tp: int, what: str) -> int:
    """count / tp, or a FlagError that names `what`."""
    if count % tp:
        raise FlagError(
            f"{count} {what} of the model do not divide by --tensor-parallel-size {tp}",
            flag="tensor_parallel_size",
            value=tp,
        )
    return count // tp


def extended_groups(groups: int, tp: int) -> int:
    """Mamba-2 groups after replication to a multiple that tp divides."""
    return groups if groups % tp == 0 else groups + (tp - groups)


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


def padded_vocab(rows: int) -> int:
    return round_up(rows, VOCAB_PADDING)


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


def local_part(part: Part, tensor: Tensor, kind: RankKind, plan: ParallelPlan, flags: VllmFlags) -> int:
    """Positions of one axis part that a rank holds.

    Raises FlagError, naming the tensor, where tp does not divide what it must.
    """
    tp = plan.tp
    if tensor.component in TOWERS and (flags.mm_encoder_tp_mode == "data" or not _divides(part, tp)):
        return part.size
    match part.kind:
        case AxisKind.VOCAB if tensor.role in (Role.EMBEDDING, Role.LM_HEAD):
            rows = padded_vocab(part.size)
            if rows % tp:
                raise _indivisible(tensor, rows, tp)
            return rows // tp
        case AxisKind.KV_HEADS:
            width = part.size // part.units
            return local_kv_heads(part.units, tp) * width
        case AxisKind.Q_HEADS | AxisKind.SSM_HEADS:
            if part.units % tp:
                raise _indivisible(tensor, part.units, tp)
            return part.size // tp
        case AxisKind.INTERMEDIATE:
            ways = plan.expert_group // plan.ep if tensor.num_experts else tp
            if part.size % ways:
                raise _indivisible(tensor, part.size, ways)
            return part.size // ways
        case AxisKind.SSM_GROUPS:
            width = part.size // part.units
            return extended_groups(part.units, tp) * width // tp
        case AxisKind.EXPERTS:
            return local_experts(part.size, kind, plan, flags)
        case _:
            return part.size


def _divides(part: Part, tp: int) -> bool:
    return part.units % tp == 0


def _indivisible(tensor: Tensor, size: int, ways: int) -> FlagError:
    module = tensor.name.replace("{layer}", "*").replace("{expert}", "*").replace("{block}", "*")
    return FlagError(
        f"--tensor-parallel-size: {size} of {module} cannot be cut into {ways} equal parts",
        flag="tensor_parallel_size",
        value=ways,
    )


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


def repetitions(tensor: Tensor, kind: RankKind, plan: ParallelPlan, *, tied: bool, model_type: str) -> int:
    """How many of a tensor's repetitions a rank's stage holds.

    A tied embedding also sits on the last stage, where it is the head; encoders and their projectors sit on
    every stage.
    """
    if tensor.component in TOWERS:
        return tensor.repetitions
    if tensor.component is Component.DRAFT:
        return tensor.repetitions if kind.is_last else 0
    if tensor.layers and tensor.component is Component.DECODER:
        if plan.pp == 1:
            return len(tensor.layers)
        return sum(layer in kind.layers for layer in tensor.layers)
    ends = (Role.EMBEDDING, Role.LM_HEAD) if model_type in BOTH_ENDS else (Role.EMBEDDING,)
    if model_type in BOTH_ENDS | EMBEDDING_ALONE and tensor.role in ends:
        return tensor.repetitions
    if tensor.role is Role.NORM and tensor.stage is Stage.LAST and model_type in FINAL_NORM:
        return tensor.repetitions
    if tensor.stage is Stage.EVERY:
        return tensor.repetitions
    if tensor.stage is Stage.LAST:
        return tensor.repetitions if kind.is_last else 0
    if kind.is_first or (tied and kind.is_last and tensor.role is Role.EMBEDDING):
        return tensor.repetitions
    return 0
