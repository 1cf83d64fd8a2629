"""Experts of a plan: what is resident on a rank, what a token touches, and tensor against expert parallelism."""

from __future__ import annotations

from collections.abc import Sequence

from vramledger.answer import Plan
from vramledger.engines.partition import local_experts
from vramledger.engines.vllm.budget import RankTerms
from vramledger.engines.vllm.settings import Settings
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model
from vramledger.units import format_bytes


def experts_note(model: Model, settings: Settings, terms: Sequence[RankTerms]) -> tuple[str, ...]:
    """One sentence of resident against active experts; none for a dense model.

    Every rank of a tensor-parallel plan holds a slice of each expert and touches `top_k` slices a layer for every
    token; with expert parallelism it holds whole experts, and a token's `top_k` lie anywhere.
    """
    mixers = [
        layer.channel_mixer for layer in model.layers if isinstance(layer.channel_mixer, MixtureOfExperts)
    ]
    if not mixers:
        return ()
    fullest = max(terms, key=experts_bytes)
    held = experts_bytes(fullest)
    first = mixers[0]
    plan, flags = settings.plan, settings.flags
    layers = _moe_layers(model, fullest.kind.layers)
    local = local_experts(first.num_experts, fullest.kind.cuts)
    physical = first.num_experts + flags.num_redundant_experts
    touched = held * first.top_k // max(local, 1)
    share = (
        "whole" if plan.ep > 1 else "whole" if plan.expert_group == 1 else f"1/{plan.expert_group} of each"
    )
    of_all = f"{local} of {physical}" if plan.ep > 1 else str(local)
    redundant = f" ({flags.num_redundant_experts} of them copies)" if flags.num_redundant_experts else ""
    where = "on the rank" if plan.ep == 1 else f"somewhere in {plan.ep} ranks"
    stage = " of a stage" if plan.pp > 1 else ""
    resident = (
        f"{of_all} experts{redundant}, {share}, in each of {layers} layers{stage}, {format_bytes(held)}"
    )
    if plan.dp > 1:
        resident += f", the rest of the model again in each of {plan.dp} replicas"
    active = f"{first.top_k} a layer for a token, {format_bytes(touched)} {where}"
    return (f"experts resident on a rank: {resident}; active: {active}",)


def experts_bytes(terms: RankTerms) -> int:
    """Bytes of routed experts on a rank."""
    group = terms.weights.groups.get("experts")
    return group.total if group is not None else 0


def _moe_layers(model: Model, layers: range) -> int:
    return sum(
        layer.index in layers and isinstance(layer.channel_mixer, MixtureOfExperts) for layer in model.layers
    )


def placement_note(here: Plan, other: Plan) -> str:
    """The same plan with the experts placed the other way, both planned."""
    word = "with --enable-expert-parallel" if here.inputs.ep == 1 else "without --enable-expert-parallel"
    held = (
        f"experts {format_bytes(_resident(other))} on the fullest rank ({format_bytes(_resident(here))} here)"
    )
    if other.kv_pool is None or here.kv_pool is None:
        return f"{word}: {held}"
    return (
        f"{word}: {held}, pool of {other.kv_pool.tokens.expected:,} tokens "
        f"({here.kv_pool.tokens.expected:,} here)"
    )


def _resident(plan: Plan) -> int:
    return max(
        sum(entry.bytes.expected for entry in rank.entries if entry.name == "experts") for rank in plan.ranks
    )
