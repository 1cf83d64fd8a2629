"""The ledger of one kind of rank: terms as entries with owner, lifetime, phases and evidence."""

from __future__ import annotations

from vramledger.engines.entry import entry as _entry
from vramledger.engines.sglang.budget import Free, RankTerms, Sized
from vramledger.engines.sglang.layers import DRAFT_IN_CELL_SINCE
from vramledger.engines.sglang.pools import Pools, pool_rows, request_table_bytes
from vramledger.engines.sglang.runtime import padding_page_bytes
from vramledger.engines.sglang.settings import Settings
from vramledger.evidence import assumed, calculated, reported
from vramledger.ledger import (
    AFTER_LOAD,
    ALL_PHASES,
    ByteRange,
    Entry,
    Lifetime,
    Owner,
    Phase,
)

PREFILL = frozenset({Phase.WARMUP, Phase.PREFILL, Phase.RECOVERY})
DECODE = frozenset({Phase.DECODE})
RULES = "sglang"


def rank_entries(settings: Settings, terms: RankTerms, free: Free, sized: Sized) -> tuple[Entry, ...]:
    """Every entry of one kind of rank."""
    out = _weight_entries(settings, terms, free)
    out += _pool_entries(settings, terms, sized)
    out += _step_entries(settings, terms)
    out += _expert_entries(settings, terms)
    out += _outside_entries(settings, terms, free, sized)
    return tuple(entry for entry in out if entry.bytes.high)


def pool_bytes(terms: RankTerms, pools: Pools, settings: Settings) -> tuple[int, int, int]:
    """Charged bytes on one rank of the full pool, the windowed pool and the recurrent states."""
    cells = terms.cells
    full = pools.tokens * (cells.full_cell if cells.is_hybrid_swa else cells.plain_cell)
    swa = (pools.swa_tokens or 0) * cells.swa_cell
    states = (pools.slots + 1) * terms.slot.total if pools.slots is not None and terms.slot is not None else 0
    return full, swa, states


def _weight_entries(settings: Settings, terms: RankTerms, free: Free) -> list[Entry]:
    flags, weights = settings.flags, terms.weights
    source = f"{RULES} layers/, tp {flags.tp_size} attention tp {flags.attn_tp} pp {flags.pp_size} ep {flags.ep_size}"
    out = [
        _entry(Owner.WEIGHTS, name, ALL_PHASES, group.total, calculated(source, group.formula))
        for name, group in weights.groups.items()
    ]
    out.append(
        _entry(
            Owner.WEIGHTS, "absorbed MLA copies", ALL_PHASES, weights.absorbed_bytes,
            calculated(f"{RULES} models/deepseek_common/deepseek_weight_loader.py", "w_kc and w_vc beside kv_b_proj"),
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.WEIGHTS, "rope tables", ALL_PHASES, weights.rope_bytes,
            calculated(f"{RULES} layers/rotary_embedding", weights.rope_formula),
        )
    )  # fmt: skip
    if terms.draft is not None:
        charged = settings.version.since(*DRAFT_IN_CELL_SINCE)
        out.append(
            _entry(
                Owner.WEIGHTS, "draft model", ALL_PHASES, terms.draft.held,
                calculated(f"{RULES} speculative/", "MTP layers of the checkpoint; embedding and head are shared"),
                inside=charged,
            )
        )  # fmt: skip
    out.append(
        _entry(
            Owner.ALLOCATOR, "rests of the weights' segments", ALL_PHASES, weights.slack,
            calculated("torch c10 CUDACachingAllocator.cpp", "free memory is measured, so whole segments count"),
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.ALLOCATOR, "kernels and rests of loading", AFTER_LOAD, free.growth.bytes,
            reported(free.growth.source),
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.WORKSPACE, "repacking at load", frozenset({Phase.LOAD}), weights.largest_bytes,
            calculated(f"{RULES} process_weights_after_loading", "largest module held twice while it is repacked"),
            lifetime=Lifetime.ITERATION,
        )
    )  # fmt: skip
    out.append(
        _entry(
            Owner.ADAPTERS, "LoRA pool", ALL_PHASES, terms.lora_bytes,
            calculated(
                f"{RULES} lora/mem_pool.py",
                f"{flags.max_loras_per_batch} slots at rank {flags.max_lora_rank} for {', '.join(flags.lora_target_modules)}",
            ),
        )
    )  # fmt: skip
    return out


def _pool_entries(settings: Settings, terms: RankTerms, sized: Sized) -> list[Entry]:
    cells, pools = terms.cells, sized.expected
    ends = [pool_bytes(terms, item, settings) for item in (sized.low, sized.expected, sized.high)]
    full, swa, states = (ByteRange(*sorted(column)) for column in zip(*ends, strict=True))
    source = f"{RULES} {settings.version} model_executor/pool_configurator.py"
    cell = cells.full_cell if cells.is_hybrid_swa else cells.plain_cell
    remainder = settings.flags.max_total_tokens is None
    out = [
        _entry(
            Owner.KV_CACHE, "KV pool", AFTER_LOAD, full,
            calculated(source, f"{pools.tokens} tokens x cell {cell} B ({cells.kind}, {cells.full_layers} layers)"),
            is_remainder=remainder,
        ),
        _entry(
            Owner.KV_CACHE, "windowed layers' pool", AFTER_LOAD, swa,
            calculated(
                source,
                f"{pools.swa_tokens} tokens x {cells.swa_layers} layers x {cells.swa_bytes} B, "
                f"ratio {settings.swa_full_tokens_ratio}",
            ),
            is_remainder=remainder,
        ),
    ]  # fmt: skip
    if terms.slot is not None:
        out.append(
            _entry(
                Owner.KV_CACHE, "recurrent states", AFTER_LOAD, states,
                calculated(
                    f"{RULES} configs/mamba_utils.py",
                    f"({pools.slots} slots + 1) x {terms.slot.total} B over {len(cells.recurrent_layers)} layers",
                ),
                is_remainder=settings.flags.max_mamba_cache_size is None and remainder,
            )
        )  # fmt: skip
    if terms.draft_layer_bytes:
        rows = [pool_rows(item.tokens, settings) for item in (sized.low, sized.expected, sized.high)]
        out.append(
            _entry(
                Owner.KV_CACHE, "draft's KV pool", AFTER_LOAD,
                ByteRange(*(count * terms.draft_layer_bytes for count in rows)),
                calculated(source, f"{rows[1]} rows x {terms.draft_layer_bytes} B, not in the cell before 0.5.14"),
                inside=False,
            )
        )  # fmt: skip
    if cells.overdraft_bytes:
        counts = [item.tokens * cells.overdraft_bytes for item in (sized.low, sized.expected, sized.high)]
        out.append(
            _entry(
                Owner.KV_CACHE, "KV beyond its charge", AFTER_LOAD, ByteRange(*counts),
                calculated(source, f"{pools.tokens} tokens x {cells.overdraft_bytes} B: stored wider than the cell that is charged"),
                inside=False,
            )
        )  # fmt: skip
    padding = padding_page_bytes(cells.full_cell, settings) + padding_page_bytes(cells.swa_cell, settings)
    out.append(
        _entry(
            Owner.KV_CACHE, "padding pages", AFTER_LOAD, padding,
            calculated(f"{RULES} mem_cache/memory_pool.py", f"one page of {settings.page_size} tokens in every layer"),
            inside=False,
        )
    )  # fmt: skip
    return out


def _step_entries(settings: Settings, terms: RankTerms) -> list[Entry]:
    found = terms.activation
    source = f"{RULES} models/; a model of its peak, no version measures or prints it"
    graphs = terms.graphs
    return [
        _entry(
            Owner.ACTIVATION, "activation of a prefill step", PREFILL, found.prefill,
            calculated(source, found.formula), lifetime=Lifetime.ITERATION, inside=False,
        ),
        _entry(
            Owner.ACTIVATION, "activation of a decode step", DECODE, found.decode,
            calculated(source, "forward of the largest captured batch and its logits"), lifetime=Lifetime.ITERATION,
            inside=False,
        ),
        _entry(
            Owner.WORKSPACE, f"attention backend ({settings.attention_backend})", AFTER_LOAD, terms.workspace.bytes,
            calculated(f"{RULES} {terms.workspace.source}", terms.workspace.formula), inside=False,
        ),
        _entry(
            Owner.GRAPH_POOL, "CUDA graphs", AFTER_LOAD, graphs.bytes, assumed(graphs.source), inside=False
        ),
    ]  # fmt: skip


def _expert_entries(settings: Settings, terms: RankTerms) -> list[Entry]:
    found = terms.experts
    if found is None:
        return []
    between = frozenset({Phase.DECODE, Phase.RECOVERY})
    out = [
        _entry(
            Owner.COLLECTIVES, "expert load window", ALL_PHASES, found.window,
            calculated(f"{RULES} eplb/expert_distribution.py, _StatAccumulator", found.window_formula),
        ),
        _entry(
            Owner.COLLECTIVES, "experts being moved", between, found.moved,
            calculated(f"{RULES} eplb/expert_location_updater.py, create_temp_buffers", found.moved_formula),
            lifetime=Lifetime.ITERATION, inside=False,
        ),
    ]  # fmt: skip
    source = f"{RULES} layers/moe/token_dispatcher, made at the first dispatch, after the pool"
    out += [
        _entry(
            Owner.COLLECTIVES, name, AFTER_LOAD, size,
            calculated(source, formula) if known else assumed(f"{source}; sized as DeepEP's"), inside=False,
        )
        for name, size, formula, known in found.dispatch
    ]  # fmt: skip
    return out


def _outside_entries(settings: Settings, terms: RankTerms, free: Free, sized: Sized) -> list[Entry]:
    requests = [item.max_running_requests for item in (sized.low, sized.expected, sized.high)]
    tables = sorted(request_table_bytes(count, settings) for count in requests)
    reserve = int(free.pre.expected * (1 - settings.mem_fraction_static))
    out = [
        _entry(
            Owner.WORKSPACE, "request table", AFTER_LOAD, ByteRange(*tables),
            calculated(
                f"{RULES} mem_cache/memory_pool.py, ReqToTokenPool",
                f"{requests[1]} requests x {settings.context_len} tokens x 4 B",
            ),
            inside=False,
        ),
        _entry(
            Owner.RUNTIME_CONTEXT, "driver context and libraries", ALL_PHASES, free.context.bytes,
            assumed(free.context.source), inside=False,
        ),
        _entry(
            Owner.HEADROOM, "above mem_fraction_static", frozenset(), reserve,
            calculated(
                f"{RULES} --mem-fraction-static",
                f"{free.pre.expected} B free before the load x (1 - {settings.mem_fraction_static:.3f}); held by nobody, "
                "what is outside the budget lives in it",
            ),
            inside=False,
        ),
    ]  # fmt: skip
    if free.collectives is not None:
        out.append(
            _entry(
                Owner.COLLECTIVES, "communicators and all-reduce buffers", ALL_PHASES, free.collectives.bytes,
                assumed(free.collectives.source), inside=False,
            )
        )  # fmt: skip
    return out
