"""Stages, and which part of each tensor a rank holds.

Source: tensorrt_llm/mapping.py (`pp_layers`: an even split, the first stages one layer more), _torch/modules
(linear.py, embedding.py, gated_mlp.py, fused_moe), `pad_vocab_size`.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from vramledger.engines.partition import Cuts, PipelineStage, dealt, stage_ranges
from vramledger.engines.tensorrtllm.flags import TrtLlmFlags
from vramledger.errors import FlagError
from vramledger.models.mixers import CompressedAttention, FullAttention, LatentAttention, MixtureOfExperts
from vramledger.models.model import Model


class RankKind(Struct, frozen=True, kw_only=True):
    """Ranks that hold the same: a pipeline stage, and a share of the experts where they do not divide evenly."""

    ranks: tuple[int, ...]
    stage: PipelineStage
    cuts: Cuts


def rank_kinds(model: Model, flags: TrtLlmFlags) -> list[RankKind]:
    """Every kind of rank. Raises FlagError for a plan that does not divide the model."""
    _check(model, flags)
    tp, pp = flags.tp_size, flags.pp_size
    if pp > model.num_layers:
        raise FlagError(
            f"--pp-size {pp} is more than the {model.num_layers} layers", flag="pp_size", value=pp
        )
    stages = stage_ranges([dealt(model.num_layers, pp, stage) for stage in range(pp)])
    shares = _expert_shares(model, flags.ep)
    out = []
    for number, layers in enumerate(stages):
        stage = PipelineStage(layers=layers, is_first=number == 0, is_last=number == pp - 1)
        for first, last in pairwise(shares):
            per_expert_rank = tp // flags.ep
            inside = range(first * per_expert_rank, last * per_expert_rank)
            out.append(
                RankKind(
                    ranks=tuple(number * tp + rank for rank in inside),
                    stage=stage,
                    cuts=_cuts(flags, expert_rank=first),
                )
            )
    return out


def _cuts(flags: TrtLlmFlags, *, expert_rank: int) -> Cuts:
    """Attention data parallelism keeps everything but the experts whole on every rank."""
    tp = flags.tp_size
    whole = flags.enable_attention_dp
    ways = 1 if whole else tp
    return Cuts(
        attention=ways,
        dense=ways,
        shared=ways,
        vocab=ways,
        vocab_padding=ways,
        expert_width=tp // flags.ep,
        expert_ranks=flags.ep,
        expert_rank=expert_rank,
        towers=None,
        flag="tp_size",
    )


def _expert_shares(model: Model, ep: int) -> list[int]:
    """Edges between expert ranks that hold different numbers of experts."""
    counts = {
        layer.channel_mixer.num_experts
        for layer in model.layers
        if isinstance(layer.channel_mixer, MixtureOfExperts)
    }
    edges = {0, ep} | {count % ep for count in counts if ep > 1}
    return sorted(edges)


def _check(model: Model, flags: TrtLlmFlags) -> None:
    ways = 1 if flags.enable_attention_dp else flags.tp_size
    for mixer in model.token_mixers:
        if isinstance(mixer, FullAttention | LatentAttention | CompressedAttention) and mixer.q_heads % ways:
            raise FlagError(
                f"{mixer.q_heads} attention heads of the model do not divide by --tp-size {ways}",
                flag="tp_size",
                value=ways,
            )
