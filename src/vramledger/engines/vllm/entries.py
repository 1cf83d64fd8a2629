"""The ledger of one kind of rank: terms as entries with owner, lifetime, phases and evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vramledger.engines.checkpoint_reading import Reading
from vramledger.engines.entry import entry as _entry
from vramledger.engines.recent import Recent
from vramledger.engines.vllm.activation_entries import activation_entries
from vramledger.engines.vllm.attention_buffers import buffer_entries
from vramledger.engines.vllm.budget import RankTerms, requested_bytes
from vramledger.engines.vllm.extras import extra_entries
from vramledger.engines.vllm.graphs import GRAPH_OBSERVATIONS
from vramledger.engines.vllm.held_contexts import held_entry
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.load_peak import load_entry
from vramledger.engines.vllm.request_state import block_table_bytes
from vramledger.engines.vllm.runtime import counts_context_in_budget
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.speculation import condition
from vramledger.engines.vllm.weights import RankWeights
from vramledger.evidence import assumed, calculated, reported
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

POOL = AFTER_LOAD
RULES = "vllm"


def rank_entries(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    terms: RankTerms,
    layout: Layout,
    pool: ByteRange,
    read: Reading,
) -> tuple[Entry, ...]:
    """Every entry of one kind of rank; `pool` is what its KV tensors take, `read` what reading the files does."""
    out = _weight_entries(settings, terms)
    out += _adapter_entries(settings, terms)
    blocks = pool.expected // terms.bytes_per_block if terms.bytes_per_block else 0
    held = held_entry(layout, settings, terms.bytes_per_block, pool)
    if held is not None:
        out.append(held)
        pool = ByteRange(
            pool.low - held.bytes.low, pool.expected - held.bytes.expected, pool.high - held.bytes.high
        )
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
    out += activation_entries(settings, terms.activation)
    out += _workspace_entries(settings, terms)
    out += extra_entries(terms.extras)
    if read.device.high:
        out.append(load_entry(settings, read))
    out += buffer_entries(
        checkpoint.model, settings, device, terms.attention_backend,
        [group.spec.block_size for group in layout.groups],
        num_blocks=blocks,
    )  # fmt: skip
    out += _outside_entries(settings, device, terms, layout)
    return tuple(entry for entry in out if entry.bytes.high)


def _pages(layout: Layout, terms: RankTerms) -> str:
    """The pages that make one block on this stage."""
    widest = max(layout.groups, key=lambda group: group.page_sum(terms.kind.kv_layers), default=None)
    if widest is None:
        return "none"
    counts = Counter(widest.pages(terms.kind.kv_layers))
    return " + ".join(f"{count} layers x {page} B" for page, count in counts.items())


_recent: Recent[tuple[Entry, ...]] = Recent(512)


def _weight_entries(settings: Settings, terms: RankTerms) -> list[Entry]:
    plan, weights = settings.plan, terms.weights
    heaviest = weights
    if terms.draft is not None and terms.draft.load_peak_extra_bytes > weights.load_peak_extra_bytes:
        heaviest = terms.draft
    source = f"{RULES} model_executor/layers, tp {plan.tp} pp {plan.pp} ep {plan.ep}"
    out = list(_recent.get(weights, source, lambda: tuple(_held_entries(weights, source))))
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
            Owner.WORKSPACE, "repacking at load", frozenset({Phase.LOAD}), heaviest.load_peak_extra_bytes,
            calculated(f"{RULES} process_weights_after_loading", heaviest.load_peak_formula),
            lifetime=Lifetime.ITERATION,
        )
    )  # fmt: skip
    return out


def _held_entries(weights: RankWeights, source: str) -> Iterator[Entry]:
    for name, group in weights.groups.items():
        yield _entry(Owner.WEIGHTS, name, ALL_PHASES, group.total, calculated(source, group.formula))
    yield _entry(
        Owner.WEIGHTS, "absorbed MLA copies", ALL_PHASES, weights.absorbed_bytes,
        calculated(f"{RULES} layers/attention/mla_attention.py", "W_UK, W_UV kept beside a quantised kv_b"),
    )  # fmt: skip
    yield _entry(
        Owner.WEIGHTS, "rope tables", ALL_PHASES, weights.rope_bytes,
        calculated(f"{RULES} layers/rotary_embedding", weights.rope_formula),
    )  # fmt: skip


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
            Owner.WORKSPACE, f"attention backend ({terms.attention_backend})", AFTER_LOAD, attention.bytes,
            calculated(attention.source, attention.formula), inside=attention.charged,
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
            Owner.GRAPH_POOL, "CUDA graphs", AFTER_LOAD, terms.graphs - ByteRange.exact(terms.split_bytes),
            reported(GRAPH_OBSERVATIONS, terms.graph_plan.text), inside=terms.graphs_charged,
        )
    )  # fmt: skip
    if terms.split_bytes:
        out.append(
            _entry(
                Owner.GRAPH_POOL, f"split-KV outputs in graphs ({terms.attention_backend})", AFTER_LOAD,
                terms.split_bytes,
                calculated("flash-attention hopper/flash_api.cpp, FlashMLA csrc/flash_api.cpp", terms.split_formula),
                inside=terms.graphs_charged,
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
