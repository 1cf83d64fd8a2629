"""A step's time from a data sheet: what has to be read and computed, over what the device can.

A decoding step waits for the weights and for the cached tokens it reads; a prefill computes. Between the two the step model
takes the larger (Williams et al., "Roofline", 2009). How much of a sheet's rate a real engine reaches is `Efficiency`,
and assumed; with `IDEAL` the result is a bound that no engine passes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from msgspec import Struct

from vramledger.engines import find_scheduling
from vramledger.errors import InputError
from vramledger.evidence import assumed
from vramledger.ledger import Owner
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.tensors import Component, Role
from vramledger.simulation.attention_work import (
    absorbed_flops,
    cache_bytes,
    longest_tokens,
    pair_flops,
    selected_flops,
)
from vramledger.simulation.step_model import PS_PER_S, StepModel

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.hardware.catalogue import Device
    from vramledger.ledger import RankLedger
    from vramledger.models.checkpoint import Checkpoint
    from vramledger.models.model import Model


class Efficiency(Struct, frozen=True, kw_only=True):
    """Shares of a data sheet's rates that are reached, and what every step costs besides.

    The defaults lie between the two measured vLLM runs of docs/fidelity.md, where a full decoding step takes 1.2 and 1.5 times
    the bound, a full prefill step 1.15 and 1.7 times. With them FP8 Llama 8B and 70B on H100 and H200 come out at 0.91 to 1.13 times
    the throughput that TensorRT-LLM 1.0 publishes (docs/source/performance/perf-overview.md) from 500 tokens of output on, at 1.17 to
    1.44 times it where answers of 128 tokens leave little but prefill; the bound is 1.26 to 2.08 times it, and never below.
    `reduce_latency_s` is one all-reduce of few bytes.
    """

    weights: float = 0.85
    kv: float = 0.75
    compute: float = 0.7
    link: float = 0.7
    overhead_s: float = 0.001
    reduce_latency_s: float = 10e-6


ASSUMED = Efficiency()
IDEAL = Efficiency(weights=1, kv=1, compute=1, link=1, overhead_s=0, reduce_latency_s=0)


def roofline_step(
    plan: Plan,
    checkpoint: Checkpoint,
    device: Device,
    *,
    efficiency: Efficiency = ASSUMED,
    batch_seqs: int = 32,
) -> StepModel:
    """The step model of one instance of `plan` on `device`, evidence assumed.

    Of a mixture of experts those weights are read that decoding batches of `batch_seqs` sequences touch on average: all batches
    that share them. Stages of a pipeline are passed one after another; that several batches are under way is not modelled.
    Raises InputError naming the rates that the catalogue does not have.
    """
    shape = _Shape.of(plan)
    _check_rates(shape, device, is_moe=checkpoint.model.is_moe)
    bandwidth, half = device.memory_bandwidth_bytes_per_s or 0, device.half_flops_per_s or 0
    model, tp = checkpoint.model, shape.ways
    compute = (device.fp8_flops_per_s or half) if _computes_in_fp8(checkpoint) else half
    weights = _read_bytes(plan, shape, checkpoint, batch_seqs)
    token, head = _flops(model)
    full, per_seq = cache_bytes(plan, model)
    longest = longest_tokens(plan)
    pair = sum(pair_flops(model, longest)) / tp
    reduce_s, reductions = _exchange(shape, model, device, efficiency)
    per_weight, per_kv = bandwidth * efficiency.weights, bandwidth * efficiency.kv
    flops = compute * efficiency.compute
    return StepModel(
        overhead_ps=_ps(efficiency.overhead_s + reductions * efficiency.reduce_latency_s),
        floor_ps=_ps(weights / per_weight),
        token_ps=_ps(
            token / tp / flops + selected_flops(model) / tp / (half * efficiency.compute) + reduce_s
        ),
        decode_seq_ps=_ps(per_seq / per_kv + head / tp / flops + reduce_s),
        kv_token_ps=_ps(max(float(full) / per_kv, absorbed_flops(model) / tp / (half * efficiency.compute))),
        pair_ps_per_1024=_ps(1024 * pair / (half * efficiency.compute)),
        evidence=assumed(
            f"roofline of {device.name}'s data sheet at {efficiency.weights:g} of its bandwidth for weights, {efficiency.kv:g} "
            f"for cached tokens, {efficiency.compute:g} of its FLOPs",
            f"{weights / 1e9:.2f} GB of weights a step at {bandwidth / 1e9:.0f} GB/s; {token / 1e9:.2f} GFLOP a token at "
            f"{compute / 1e12:.1f} TFLOP/s over {tp} ranks; {float(full):.0f} bytes a cached token"
            + (f"; experts that {shape.sharing * batch_seqs} sequences touch" if model.is_moe else "")
            + (f"; {shape.stages} stages in turn, one batch under way" if shape.stages > 1 else ""),
        ),
    )


class _Shape(Struct, frozen=True, kw_only=True):
    """How an instance's ranks are dealt out: `ways` of them compute one batch's tokens in each of `stages`, beside `batches` - 1
    others, and `sharing` batches meet at the same experts."""

    ways: int
    stages: int
    batches: int
    sharing: int

    @classmethod
    def of(cls, plan: Plan) -> _Shape:
        rules = find_scheduling(plan.inputs.engine)(plan)
        stages = max(plan.inputs.pp, 1)
        ranks = sum(len(rank.ranks) for rank in plan.ranks) // stages
        return cls(
            ways=max(ranks // rules.batches, 1),
            stages=stages,
            batches=rules.batches,
            sharing=rules.batches if rules.batches_share_experts else 1,
        )


def touched_experts(num_experts: int, top_k: int, tokens: int) -> float:
    """Experts of one layer that `tokens` tokens choose between them, on average where each is chosen alike."""
    return num_experts * (1 - (1 - min(top_k, num_experts) / num_experts) ** tokens)


def _check_rates(shape: _Shape, device: Device, *, is_moe: bool) -> None:
    needed = {
        "memory bandwidth": device.memory_bandwidth_bytes_per_s,
        "half-precision FLOPs": device.half_flops_per_s,
    }
    if shape.ways > 1 or (shape.sharing > 1 and is_moe):
        needed["link bandwidth"] = device.link_bandwidth_bytes_per_s or device.pcie_bandwidth_bytes_per_s
    missing = [name for name, rate in needed.items() if not rate]
    if missing:
        raise InputError(
            f"{device.name}: the catalogue has no {' and no '.join(missing)}, so a step's time cannot be assumed; "
            "fit a step model from a measured run, or give its constants",
            device=device.name,
            missing=missing,
        )


def _ps(seconds: float) -> int:
    return round(seconds * PS_PER_S)


def _computes_in_fp8(checkpoint: Checkpoint) -> bool:
    name = checkpoint.quantization.lower()
    return "fp8" in name or "f8_e4m3" in name


def _read_bytes(plan: Plan, shape: _Shape, checkpoint: Checkpoint, batch_seqs: int) -> float:
    """Weights that a step reads one after another: of every stage, one rank's."""
    model = checkpoint.model
    total = read = 0.0
    for stored in checkpoint.stored:
        tensor = stored.tensor
        is_head = tensor.role is Role.EMBEDDING and model.tie_word_embeddings
        if tensor.component is not Component.DECODER or (tensor.role is Role.EMBEDDING and not is_head):
            continue
        share = 1.0
        if tensor.num_experts and tensor.layers:
            share = _touched_share(model, tensor.layers[0], batch_seqs * shape.sharing)
        total += stored.stored_bytes
        read += share * stored.stored_bytes
    at_once = shape.ways * shape.batches
    held = sum(
        len(rank.ranks) * _held_bytes(rank, with_embedding=model.tie_word_embeddings) for rank in plan.ranks
    )
    return held / at_once * (read / total if total else 1.0)


def _held_bytes(rank: RankLedger, *, with_embedding: bool) -> int:
    """The decoder's own weights on a rank; towers, tables and a separate embedding are not read in a decoding step."""
    aside = ("rope", "vision", "audio", "projector", "encoder", "draft")
    return sum(
        entry.bytes.expected
        for entry in rank.entries
        if entry.owner is Owner.WEIGHTS
        and not entry.name.startswith(aside)
        and (with_embedding or entry.name != "embedding")
    )


def _touched_share(model: Model, layer_index: int, batch_seqs: int) -> float:
    for layer in model.layers:
        if layer.index == layer_index and isinstance(layer.channel_mixer, MixtureOfExperts):
            mixer = layer.channel_mixer
            return touched_experts(mixer.num_experts, mixer.top_k, batch_seqs) / mixer.num_experts
    return 1.0


def _flops(model: Model) -> tuple[float, float]:
    """FLOPs of the matrices for one token, and of the output head for one that is sampled."""
    share = {
        layer.index: Fraction(
            min(layer.channel_mixer.top_k, layer.channel_mixer.num_experts), layer.channel_mixer.num_experts
        )
        for layer in model.layers
        if isinstance(layer.channel_mixer, MixtureOfExperts)
    }
    body = Fraction(0)
    for tensor in model.tensors:
        if tensor.component is not Component.DECODER or tensor.role in (Role.EMBEDDING, Role.LM_HEAD):
            continue
        if tensor.num_experts and tensor.layers:
            body += tensor.total_elements * share.get(tensor.layers[0], Fraction(1))
        else:
            body += tensor.total_elements
    return float(2 * body), 2.0 * model.vocab_size * model.hidden_size


def recompute_flops(model: Model) -> tuple[int, int]:
    """FLOPs of computing one token anew, the output head's left out, and of one (query, key) pair of attention."""
    return round(_flops(model)[0]), sum(pair_flops(model))


def _exchange(shape: _Shape, model: Model, device: Device, efficiency: Efficiency) -> tuple[float, int]:
    """Time that one token takes on the link, and how often a step waits for it.

    Ranks of one batch add up two results a layer in a ring. Batches that share experts gather their tokens and scatter the
    results, once each a layer of experts. A link's sheet counts both directions.
    """
    link = (device.link_bandwidth_bytes_per_s or device.pcie_bandwidth_bytes_per_s or 0) / 2 * efficiency.link
    seconds, times, row = 0.0, 0, 2 * model.hidden_size
    if shape.ways > 1:
        seconds += 2 * model.num_layers * 2 * (shape.ways - 1) / shape.ways * row / link
        times += 2 * model.num_layers
    if shape.sharing > 1 and model.is_moe:
        layers = sum(isinstance(layer.channel_mixer, MixtureOfExperts) for layer in model.layers)
        seconds += layers * 2 * (shape.sharing - 1) * row / link
        times += 2 * layers
    return seconds, times
