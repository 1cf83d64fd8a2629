"""Bytes that one rank leaves for KV, by the formula of the version.

Source: vllm v1/worker/gpu_worker.py (`determine_available_memory`), worker/worker.py for V0.
"""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from vramledger.engines.allocator import Slack
from vramledger.engines.device_tensors import NO_SLACK
from vramledger.engines.vllm.activation import ActivationPeak, activation_peak, spread
from vramledger.engines.vllm.attention_buffers import AttentionWorkspace, chosen_backend, split_accumulators
from vramledger.engines.vllm.buffers import runner_buffers
from vramledger.engines.vllm.context_parallel import context_extras
from vramledger.engines.vllm.extras import Extra, charged_bytes, loaded_bytes
from vramledger.engines.vllm.graphs import GraphPlan, capture_plan, estimate_is_subtracted, graph_bytes
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.kv_shape import kv_shape
from vramledger.engines.vllm.kv_transfer import KvShape, transfer_extras
from vramledger.engines.vllm.lora import LoraBytes, lora_bytes, lora_transients
from vramledger.engines.vllm.matrix_libraries import matrix_extras, partial_sums_bytes
from vramledger.engines.vllm.offload import Offload, offload, offload_extras, on_device
from vramledger.engines.vllm.parallel import parallel_extras
from vramledger.engines.vllm.request_state import state_extras
from vramledger.engines.vllm.runtime import (
    Observed,
    cached_by_profile,
    charges_reserved,
    collectives,
    context,
    counts_context_in_budget,
    loaded_kernels,
)
from vramledger.engines.vllm.sampler import profiled_path, sampler_extras
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind
from vramledger.engines.vllm.sparse_buffer import sparse_buffer
from vramledger.engines.vllm.speculation import draft_forward_bytes, draft_weights
from vramledger.engines.vllm.spikes import spike_extras
from vramledger.engines.vllm.unpacking import UNPACKED_FROM_TOKENS
from vramledger.engines.vllm.weights import RankWeights, rank_weights
from vramledger.engines.vllm.workspace import (
    MoeWorkspace,
    attention_workspace,
    mla_prefill_bytes,
    moe_workspace,
)
from vramledger.formats.kv import KvFormat
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ZERO, ByteRange
from vramledger.models.checkpoint import Checkpoint


class RankTerms(Struct, frozen=True, kw_only=True):
    """Every term of one kind of rank, before they become ledger entries. `bytes_per_block` is one pool block
    on this rank; `split_bytes` of the graphs are attention's partial outputs."""

    kind: RankKind
    bytes_per_block: int
    weights: RankWeights
    draft: RankWeights | None
    lora: LoraBytes | None
    activation: ActivationPeak
    activation_range: ByteRange
    moe: MoeWorkspace | None
    attention_backend: str
    attention_workspace: AttentionWorkspace
    split_bytes: int
    split_formula: str
    buffer_bytes: int
    buffer_formula: str
    context: Observed
    collectives: Observed | None
    kernels: Observed
    cached: Observed | None
    idle: ByteRange
    idle_charged: bool
    graphs: ByteRange
    graph_plan: GraphPlan
    graphs_charged: bool
    buffers_charged: bool
    extras: tuple[Extra, ...]
    offload: Offload
    kv_shape: KvShape
    available: ByteRange

    @property
    def loading_bytes(self) -> int:
        """ "Model loading took": the target, its adapters' slots and the draft."""
        draft = self.draft.total_bytes if self.draft else 0
        held = self.weights.total_bytes + draft + (self.lora.total if self.lora else 0)
        return held + loaded_bytes(self.extras)

    @property
    def slack(self) -> Slack:
        """The allocator's slack beside all weights."""
        return self.weights.slack + (self.draft.slack if self.draft else NO_SLACK)


def requested_bytes(total_bytes: int, settings: Settings) -> int:
    """ceil(total x utilisation), in whole bytes without the noise of a float product."""
    return ceil(round(total_bytes * settings.gpu_memory_utilization, 3))


def rank_terms(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    kind: RankKind,
    layout: Layout,
    cache: KvFormat,
) -> RankTerms:
    """All terms of one kind of rank and what they leave."""
    model = checkpoint.model
    weights = rank_weights(checkpoint, settings, kind, device)
    moved = offload(weights, settings, kind)
    weights = on_device(weights, moved)
    draft = draft_weights(model, settings, kind, device)
    lora = lora_bytes(model, kind, settings) if settings.lora is not None else None
    moe = moe_workspace(model, settings, kind, device, expert_format=weights.expert_format)
    mla = mla_prefill_bytes(model, settings, layout.block_size or 1)
    buffers, formula = runner_buffers(model, settings, kind)
    graphs_plan = capture_plan(settings, device)
    graphs = graph_bytes(model, settings, graphs_plan)
    charged = estimate_is_subtracted(settings, device)
    kernels = loaded_kernels(settings, device)
    moe_bytes = moe.buffer_bytes if moe else 0
    persistent_moe = moe_bytes if moe is not None and moe.persistent else 0
    sparse = sparse_buffer(model, settings, cache)
    backend = chosen_backend(model, settings, device)
    attention = attention_workspace(
        model, settings, device, backend, sparse=sparse, experts_bytes=persistent_moe
    )
    split_bytes, split_formula = split_accumulators(model, settings, device, backend, graphs_plan)
    spared = checkpoint.quantization.startswith("awq") and settings.max_tokens < UNPACKED_FROM_TOKENS
    activation = activation_peak(
        model,
        settings,
        kind,
        path=profiled_path(settings, device),
        transient=(
            ("unpacked matrix", 0 if spared else weights.dequantised_bytes),
            ("Marlin's partial sums", partial_sums_bytes(device, weights.kernels)),
            ("expert routing", moe.routing_bytes if moe else 0),
            ("experts' kernels", moe_bytes - persistent_moe),
            ("tokens of other ranks", moe.gathered_bytes if moe else 0),
            (
                "MLA up-projection" if mla >= sparse.logits_bytes else "index logits",
                max(mla, sparse.logits_bytes),
            ),
            *lora_transients(model, settings),
        ),
        draft_bytes=draft_forward_bytes(model, settings, kind),
    )
    expected = activation.peak_bytes
    peak = spread(expected)
    loaded = weights.total_bytes + (draft.total_bytes if draft else 0) + (lora.total if lora else 0)
    shape = kv_shape(layout, settings, kind)
    buffers_charged = settings.version.since(27)
    extras = (
        *parallel_extras(model, settings, kind, device, weights=weights, activation=activation),
        *matrix_extras(settings, device, weights.kernels),
        *state_extras(model, settings, kind, charged=buffers_charged),
        *sampler_extras(model, settings, kind, device),
        *spike_extras(model, settings, kind, device, activation),
        *offload_extras(moved, settings),
        *transfer_extras(settings, shape),
        *context_extras(model, settings, device),
    )
    lasting = ByteRange.exact(loaded + persistent_moe) + charged_bytes(extras)
    idle_bytes = weights.slack.idle_bytes + (draft.slack.idle_bytes if draft else 0)
    idle = ByteRange(0, idle_bytes, idle_bytes)
    idle_charged = charges_reserved(settings)
    if attention.charged:
        lasting = lasting + attention.bytes
    if idle_charged:
        lasting = lasting + idle
    if buffers_charged:
        lasting = lasting + ByteRange.exact(buffers)
    cached = cached_by_profile(settings, expected)
    taken = lasting + peak + kernels.bytes + (graphs if charged else ZERO)
    if cached is not None:
        taken = taken + cached.bytes
    outside_context, outside_collectives = context(device), collectives(settings, device)
    if counts_context_in_budget(settings, device):
        taken = taken + outside_context.bytes
        if outside_collectives is not None:
            taken = taken + outside_collectives.bytes
    low, middle, high = (requested_bytes(size, settings) for size in _totals(device))
    return RankTerms(
        kind=kind,
        bytes_per_block=layout.bytes_per_block(kind.kv_layers),
        weights=weights,
        draft=draft,
        lora=lora,
        activation=activation,
        activation_range=peak,
        moe=moe,
        attention_backend=backend,
        attention_workspace=attention,
        split_bytes=min(split_bytes, graphs.low),
        split_formula=split_formula,
        buffer_bytes=buffers,
        buffer_formula=formula,
        context=outside_context,
        collectives=outside_collectives,
        kernels=kernels,
        cached=cached,
        idle=idle,
        idle_charged=idle_charged,
        graphs=graphs,
        graph_plan=graphs_plan,
        graphs_charged=charged,
        buffers_charged=buffers_charged,
        extras=extras,
        offload=moved,
        kv_shape=shape,
        available=ByteRange(low, middle, high) - taken,
    )


def _totals(device: Device) -> tuple[int, int, int]:
    return device.total_low_bytes, device.total_bytes, device.total_high_bytes
