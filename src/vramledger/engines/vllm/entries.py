"""The ledger of one kind of rank: terms as entries with owner, lifetime, phases and evidence."""

from __future__ import annotations

from collections import Counter

from vramledger.engines.vllm.budget import (
    ACTIVATION_HIGH_PERCENT,
    ACTIVATION_LOW_PERCENT,
    RankTerms,
    requested_bytes,
)
from vramledger.engines.vllm.buffers import block_table_bytes
from vramledger.engines.vllm.graphs import GRAPH_OBSERVATIONS
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.runtime import counts_context_in_budget
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.speculation import condition
from vramledger.engines.vllm.weights import RankWeights
from vramledger.evidence import Evidence, assumed, calculated, reported
from vramledger.hardware.catalogue import Device
from vramledger.ledger import (
    AFTER_LOAD,
    ALL_PHASES,
    ByteRange,
    Entry,
    Lifetime,
    Owner,
    Phase,
)
from vramledger.models.checkpoint import Checkpoint

PREFILL = frozenset({Phase.WARMUP, Phase.PREFILL, Phase.RECOVERY})
DECODE = frozenset({Phase.DECODE})
POOL = AFTER_LOAD
RULES = "vllm"


def rank_entries(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    terms: RankTerms,
    layout: Layout,
    pool: ByteRange,
) -> tuple[Entry, ...]:
    """Every entry of one kind of rank; `pool` is what its KV tensors take."""
    out = _weight_entries(settings, terms)
    out += _adapter_entries(settings, terms)
    out.append(
        _entry(
            Owner.KV_CACHE, "KV pool", POOL, pool,
            calculated(
                f"{RULES} {settings.version} num_blocks x bytes_per_block",
                f"blocks of {terms.bytes_per_block} B: the widest of {len(layout.groups)} group(s), "
                f"{_pages(layout, terms)}",
            ),
            is_remainder=settings.flags.kv_cache_memory_bytes is None,
        )
    )  # fmt: skip
    out += _activation_entries(settings, terms)
    out += _workspace_entries(settings, terms)
    out += _outside_entries(settings, device, terms, layout)
    return tuple(entry for entry in out if entry.bytes.high)


def _pages(layout: Layout, terms: RankTerms) -> str:
    """The pages that make one block on this stage."""
    widest = max(layout.groups, key=lambda group: group.page_sum(terms.kind.kv_layers), default=None)
    if widest is None:
        return "none"
    counts = Counter(widest.pages(terms.kind.kv_layers))
    return " + ".join(f"{count} layers x {page} B" for page, count in counts.items())


def _entry(
    owner: Owner,
    name: str,
    phases: frozenset[Phase],
    size: ByteRange | int,
    evidence: Evidence,
    *,
    lifetime: Lifetime = Lifetime.WORKER,
    inside: bool = True,
    is_remainder: bool = False,
) -> Entry:
    return Entry(
        owner=owner,
        name=name,
        lifetime=lifetime,
        phases=phases,
        bytes=size if isinstance(size, ByteRange) else ByteRange.exact(size),
        evidence=evidence,
        inside_budget=inside,
        is_remainder=is_remainder,
    )


def _weight_entries(settings: Settings, terms: RankTerms) -> list[Entry]:
    plan, weights = settings.plan, terms.weights
    repacked = max(weights.load_peak_extra_bytes, terms.draft.load_peak_extra_bytes if terms.draft else 0)
    source = f"{RULES} model_executor/layers, tp {plan.tp} pp {plan.pp} ep {plan.ep}"
    out = []
    for name, group in weights.groups.items():
        out.append(_entry(Owner.WEIGHTS, name, ALL_PHASES, group.total, calculated(source, group.formula)))
    out.append(
        _entry(
            Owner.WEIGHTS, "absorbed MLA copies", ALL_PHASES, weights.absorbed_bytes,
            calculated(f"{RULES} layers/attention/mla_attention.py", "W_UK, W_UV kept beside a quantised kv_b"),
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.WEIGHTS, "rope tables", ALL_PHASES, weights.rope_bytes,
            calculated(f"{RULES} layers/rotary_embedding", weights.rope_formula),
        )
    )  # fmt: skip
    if terms.draft is not None:
        out.append(_draft_entry(settings, terms.draft))
    out.append(
        _entry(
            Owner.ALLOCATOR, "stranded beside weights", ALL_PHASES, terms.slack.stranded_bytes,
            calculated("torch c10 CUDACachingAllocator.cpp", "rests of at most 1 MiB stay with their tensor"),
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.ALLOCATOR, "idle between weights", ALL_PHASES, terms.idle,
            calculated("torch c10 CUDACachingAllocator.cpp", "free rests of the weights' segments, reusable by small tensors"),
            inside=terms.idle_charged,
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.WORKSPACE, "repacking at load", frozenset({Phase.LOAD}), repacked,
            calculated(f"{RULES} process_weights_after_loading", "largest module held twice while it is repacked"),
            lifetime=Lifetime.ITERATION,
        )
    )  # fmt: skip
    return out


def _draft_entry(settings: Settings, draft: RankWeights) -> Entry:
    """All of the draft's weights as one line; what it shares with the target is not in it."""
    parts = [f"{name} {group.total} B" for name, group in draft.groups.items()]
    parts += [
        f"{name} {size} B"
        for name, size in (("absorbed MLA copies", draft.absorbed_bytes), ("rope tables", draft.rope_bytes))
        if size
    ]
    return _entry(
        Owner.WEIGHTS, "draft model", ALL_PHASES, draft.total_bytes - draft.slack.stranded_bytes,
        calculated(f"{RULES} v1/spec_decode, model_executor/models, {condition(settings)}", " + ".join(parts)),
    )  # fmt: skip


def _adapter_entries(settings: Settings, terms: RankTerms) -> list[Entry]:
    if terms.lora is None:
        return []
    lora = settings.lora
    slots = f"{lora.slots} slots at rank {lora.rank} in {lora.dtype.value}" if lora is not None else ""
    return [
        _entry(Owner.ADAPTERS, name, ALL_PHASES, size, calculated(f"{RULES} lora/{source}", formula))
        for name, size, source, formula in (
            ("LoRA slots of linears", terms.lora.linears, "layers", slots),
            ("LoRA slots of experts", terms.lora.experts, "layers/fused_moe.py", slots),
            ("LoRA slots of embedding and head", terms.lora.vocabulary, "layers", f"{slots}, the whole vocabulary"),
            (
                "vocabulary rows for adapters", terms.lora.vocabulary_rows, "layers",
                "rows of the base's own embedding and head for added tokens",
            ),
            ("LoRA indices", terms.lora.indices, "punica_wrapper", f"of {settings.max_tokens} tokens"),
        )
    ]  # fmt: skip


def _activation_entries(settings: Settings, terms: RankTerms) -> list[Entry]:
    activation = terms.activation
    decode_forward = activation.forward_bytes * settings.max_rows // max(settings.max_tokens, 1)
    decode = max(decode_forward, activation.sampler_bytes)
    spread = ByteRange(
        decode * ACTIVATION_LOW_PERCENT // 100, decode, decode * ACTIVATION_HIGH_PERCENT // 100
    )
    source = f"{RULES} profile_run; a model of its peak, within 0.92 to 1.15 of the logs that print it"
    return [
        _entry(
            Owner.ACTIVATION, f"activation peak ({activation.binding})", PREFILL, terms.activation_range,
            calculated(source, activation.formula), lifetime=Lifetime.ITERATION,
        ),
        _entry(
            Owner.ACTIVATION, "activation of a decode step", DECODE, spread,
            calculated(source, f"max(forward of {settings.max_rows} rows, sampler)"), lifetime=Lifetime.ITERATION,
        ),
    ]  # fmt: skip


def _workspace_entries(settings: Settings, terms: RankTerms) -> list[Entry]:
    out = []
    if terms.moe is not None and terms.moe.persistent:
        out.append(
            _entry(
                Owner.WORKSPACE, "experts' kernels", AFTER_LOAD, terms.moe.buffer_bytes,
                calculated(f"{RULES} v1/worker/workspace.py, fused_moe/modular_kernel.py", terms.moe.formula),
            )
        )  # fmt: skip
    attention = terms.attention_workspace
    out.append(
        _entry(
            Owner.WORKSPACE, "attention backend", AFTER_LOAD, attention.bytes,
            calculated(attention.source, attention.formula), inside=attention.charged,
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.WORKSPACE, "matrix library", AFTER_LOAD, terms.matmul_bytes,
            calculated("torch cuBLAS workspace", "one handle and stream"),
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.WORKSPACE, "runner buffers", ALL_PHASES, terms.buffer_bytes,
            calculated(f"{RULES} v1/worker/gpu", terms.buffer_formula), inside=terms.buffers_charged,
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.GRAPH_POOL, "CUDA graphs", AFTER_LOAD, terms.graphs,
            reported(GRAPH_OBSERVATIONS, terms.graph_plan.text), inside=terms.graphs_charged,
        )
    )  # fmt: skip
    return out


def _outside_entries(settings: Settings, device: Device, terms: RankTerms, layout: Layout) -> list[Entry]:
    charged = counts_context_in_budget(settings, device)
    out = [
        _entry(
            Owner.RUNTIME_CONTEXT, "driver context and libraries", ALL_PHASES, terms.context.bytes,
            assumed(terms.context.source), inside=charged,
        ),
        _entry(
            Owner.ALLOCATOR, "loaded kernels and fragmentation", AFTER_LOAD, terms.kernels.bytes,
            reported(terms.kernels.source),
        ),
        _entry(
            Owner.WORKSPACE, "block tables and slot mappings", AFTER_LOAD,
            block_table_bytes(settings, [group.spec.block_size for group in layout.groups]),
            calculated(f"{RULES} v1/worker/block_table.py", f"{len(layout.groups)} group(s)"), inside=False,
        ),
    ]  # fmt: skip
    reserve = device.total_bytes - requested_bytes(device.total_bytes, settings)
    out.append(
        _entry(
            Owner.HEADROOM, "above gpu_memory_utilization", frozenset(), reserve,
            calculated(f"{RULES} --gpu-memory-utilization", "held by nobody; what is outside the budget lives in it"),
            inside=False,
        )
    )  # fmt: skip
    if terms.cached is not None:
        out.append(
            _entry(
                Owner.ALLOCATOR, "blocks cached by the profile run", AFTER_LOAD, terms.cached.bytes,
                reported(terms.cached.source),
            )
        )  # fmt: skip
    if terms.collectives is not None:
        out.append(
            _entry(
                Owner.COLLECTIVES, "communicators and all-reduce buffers", ALL_PHASES, terms.collectives.bytes,
                assumed(terms.collectives.source), inside=charged,
            )
        )  # fmt: skip
    return out
