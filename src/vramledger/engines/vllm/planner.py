"""The plan of a vLLM instance: settings, terms of every kind of rank, pool, ledger, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from vramledger.answer import Plan, PlanInputs
from vramledger.engines.vllm.budget import RankTerms, rank_terms, requested_bytes
from vramledger.engines.vllm.entries import rank_entries
from vramledger.engines.vllm.flags import ParallelPlan, VllmFlags
from vramledger.engines.vllm.kv_budget import (
    blocks_per_request,
    capacity,
    longest_context,
    request_blocks,
    steady_blocks,
    tokens_rule,
    usable_bytes,
)
from vramledger.engines.vllm.kv_groups import Layout, plan_groups
from vramledger.engines.vllm.kv_specs import KvKind, layer_specs, primary_block_size
from vramledger.engines.vllm.settings import Settings, resolve
from vramledger.engines.vllm.sharding import rank_kinds
from vramledger.engines.vllm.verdict import judge
from vramledger.engines.vllm.version import NEWEST, VllmVersion
from vramledger.formats.kv import KvFormat, kv_format
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, RankLedger, WeightFigures
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import ChunkedAttention
from vramledger.pool import FloatRange, IntRange, KvGroup, KvPool
from vramledger.units import GIB, format_gib


def plan(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: VllmVersion = NEWEST,
    parallel: ParallelPlan | None = None,
    flags: VllmFlags | None = None,
) -> Plan:
    """Ledger, pool and verdict of one vLLM instance.

    Raises FlagError for contradictory flags and for a parallel plan that does not divide the model.
    """
    parallel, flags = parallel or ParallelPlan(), flags or VllmFlags()
    settings = resolve(checkpoint.model, device, version, parallel, flags)
    kind_of_kv = cache_format(checkpoint, settings)
    layout = kv_layout(checkpoint, settings, device, kind_of_kv)
    block_size = layout.block_size or primary_block_size(checkpoint.model, settings, device)
    kinds = rank_kinds(checkpoint.model, parallel, flags, version)
    terms = [rank_terms(checkpoint, settings, device, kind, block_size) for kind in kinds]
    available = [_available(item, settings, device) for item in terms]
    if settings.auto_context:
        settings = _fit_context(layout, settings, terms, available)
    pool = kv_pool(layout, settings, terms, available, kind_of_kv)
    ranks = tuple(_rank_ledger(checkpoint, settings, device, item, layout, pool) for item in terms)
    return Plan(
        inputs=_inputs(checkpoint, settings, device),
        budget_bytes=requested_bytes(device.total_bytes, settings),
        ranks=ranks,
        kv_pool=pool,
        verdict=judge(checkpoint, settings, device, terms, layout, available, pool, ranks),
        printed=_printed(settings, terms, available, pool),
        notes=(*checkpoint.model.notes, *checkpoint.differences, *settings.notes),
    )


def cache_format(checkpoint: Checkpoint, settings: Settings) -> KvFormat:
    """The KV element format: the flag's, else what the checkpoint declares, else the model's own type."""
    name = settings.flags.kv_cache_dtype
    if name == "auto" and checkpoint.declared_kv_dtype:
        name = checkpoint.declared_kv_dtype
    return kv_format(name, settings.dtype)


def kv_layout(checkpoint: Checkpoint, settings: Settings, device: Device, kind: KvFormat) -> Layout:
    """Groups of the model's KV layers under these settings."""
    specs = layer_specs(checkpoint.model, settings, device, kind)
    return plan_groups(
        specs,
        settings.version,
        v1=settings.v1,
        hybrid_manager=_hybrid_manager(checkpoint, settings),
    )


def _hybrid_manager(checkpoint: Checkpoint, settings: Settings) -> bool:
    """On since 0.9.2 unless the flag says no or the model has chunked local layers; windows before that
    were kept at full length in the pool."""
    if settings.flags.disable_hybrid_kv_cache_manager or not settings.version.since(9, 2):
        return False
    return not any(
        isinstance(mixer, ChunkedAttention)
        for layer in checkpoint.model.layers
        for mixer in layer.token_mixers
    )


def _available(terms: RankTerms, settings: Settings, device: Device) -> ByteRange:
    fixed = settings.flags.kv_cache_memory_bytes
    return ByteRange.exact(fixed) if fixed is not None else terms.available


def _ends(ranges: Sequence[ByteRange]) -> tuple[tuple[int, ...], ...]:
    return tuple((item.low, item.expected, item.high) for item in ranges)


def _num_blocks(layout: Layout, terms: Sequence[RankTerms], available: Sequence[ByteRange]) -> IntRange:
    """Blocks of the pool: the minimum over kinds of rank, each with its own stage's block."""
    counts = []
    for item, room in zip(terms, available, strict=True):
        per_block = layout.bytes_per_block(item.kind.kv_layers)
        if per_block:
            counts.append([max(end, 0) // per_block for end in (room.low, room.expected, room.high)])
    if not counts:
        return IntRange(1, 1, 1)
    low, expected, high = (min(column) for column in zip(*counts, strict=True))
    return IntRange(low, expected, high)


def _need_bytes(layout: Layout, settings: Settings, item: RankTerms, context_len: int) -> int:
    """What the start-up check asks for a request of `context_len` on one rank: whole pool blocks since 0.14,
    each layer's own pages before."""
    if settings.version.since(14):
        return layout.bytes_per_block(item.kind.kv_layers) * blocks_per_request(layout, context_len, settings)
    return sum(
        member.spec.page_bytes * request_blocks(group.spec, context_len, settings)
        for group in layout.groups
        for member in group.members
        if member.layer in item.kind.kv_layers
    )


def _fit_context(
    layout: Layout, settings: Settings, terms: Sequence[RankTerms], available: Sequence[ByteRange]
) -> Settings:
    from dataclasses import replace

    fitted = min(
        longest_context(
            lambda length, item=item: _need_bytes(layout, settings, item, length),  # type: ignore[misc]
            room.expected,
            layout.bytes_per_block(item.kind.kv_layers),
            settings,
            settings.context_len,
        )
        for item, room in zip(terms, available, strict=True)
    )
    return replace(settings, context_len=max(fitted, 1))


def kv_pool(
    layout: Layout,
    settings: Settings,
    terms: Sequence[RankTerms],
    available: Sequence[ByteRange],
    kind: KvFormat,
) -> KvPool | None:
    """The pool as the engine lays it out, None for a model that keeps no KV."""
    if not layout.groups:
        return None
    override = settings.flags.num_gpu_blocks_override
    blocks = (
        _num_blocks(layout, terms, available) if override is None else IntRange(override, override, override)
    )
    context = settings.context_len
    lines = [capacity(layout, count, settings) for count in (blocks.low, blocks.expected, blocks.high)]
    first = terms[0]
    per_block = max(layout.bytes_per_block(item.kind.kv_layers) for item in terms)
    longest = [
        min(
            longest_context(
                lambda length, item=item: _need_bytes(layout, settings, item, length),  # type: ignore[misc]
                end,
                layout.bytes_per_block(item.kind.kv_layers),
                settings,
                max(context, 1),
            )
            for item in terms
        )
        for end in _pool_ends(blocks, per_block)
    ]
    steady = sum(steady_blocks(group, context, settings) for group in layout.groups)
    steady_bytes = steady * per_block
    return KvPool(
        bytes=IntRange(*(count * per_block for count in (blocks.low, blocks.expected, blocks.high))),
        groups=tuple(
            KvGroup(
                kind=group.spec.kind.value,
                num_layers=len(group.members),
                block_size=group.spec.block_size,
                page_bytes=group.spec.page_bytes,
                blocks_per_request=request_blocks(group.spec, context, settings),
                padding_layers=group.padding_layers,
            )
            for group in layout.groups
        ),
        bytes_per_block=per_block,
        bytes_per_token=_bytes_per_token(layout, first),
        state_bytes_per_sequence=_state_bytes(layout, first),
        block_size=layout.block_size,
        num_blocks=blocks,
        tokens=IntRange(*(line.tokens for line in lines)),
        max_concurrency=FloatRange(*(line.max_concurrency for line in lines)),
        context_len=context,
        longest_context=IntRange(*longest),
        tokens_rule=tokens_rule(settings),
        admission_bytes_per_request=per_block * blocks_per_request(layout, context, settings),
        steady_bytes_per_request=steady_bytes,
        steady_concurrency=FloatRange(
            *(count / steady if steady else 0.0 for count in (blocks.low, blocks.expected, blocks.high))
        ),
        dtype=kind.name,
    )


def _pool_ends(blocks: IntRange, per_block: int) -> tuple[int, int, int]:
    return blocks.low * per_block, blocks.expected * per_block, blocks.high * per_block


def _bytes_per_token(layout: Layout, item: RankTerms) -> int:
    """Bytes one more token costs on a rank in every layer that keeps it, windows included, states not."""
    per_token = 0
    for group in layout.groups:
        if group.spec.kind in (KvKind.RECURRENT, KvKind.COMPRESSOR_STATE):
            continue
        for member in group.members:
            if member.layer in item.kind.kv_layers:
                per_token += member.spec.content_bytes // member.spec.block_size
    return per_token


def _state_bytes(layout: Layout, item: RankTerms) -> int:
    return sum(
        member.spec.content_bytes
        for group in layout.groups
        if group.spec.kind is KvKind.RECURRENT
        for member in group.members
        if member.layer in item.kind.kv_layers
    )


def _rank_ledger(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    item: RankTerms,
    layout: Layout,
    pool: KvPool | None,
) -> RankLedger:
    per_block = layout.bytes_per_block(item.kind.kv_layers)
    held = (
        ByteRange(
            *(
                count * per_block
                for count in (pool.num_blocks.low, pool.num_blocks.expected, pool.num_blocks.high)
            )
        )
        if pool is not None
        else ByteRange.exact(0)
    )
    share = checkpoint.largest_file_bytes or checkpoint.disk_bytes
    return RankLedger(
        ranks=item.kind.ranks,
        entries=rank_entries(checkpoint, settings, device, item, layout, held),
        weights=WeightFigures(
            disk_bytes=checkpoint.disk_bytes,
            host_peak_bytes=ByteRange(min(share, GIB), share, max(checkpoint.disk_bytes, share)),
            device_bytes=ByteRange.exact(item.loading_bytes),
        ),
        device_total_bytes=device.total_bytes,
    )


def _inputs(checkpoint: Checkpoint, settings: Settings, device: Device) -> PlanInputs:
    flags = settings.flags
    shown = {
        "max_model_len": settings.context_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_tokens,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "dtype": settings.dtype.value,
        "enable_prefix_caching": settings.prefix_caching,
        "async_scheduling": settings.async_scheduling,
        "engine": "V1" if settings.v1 else "V0",
        "runner": "V2" if settings.v2_runner else "V1" if settings.v1 else "V0",
    }
    for item in fields(VllmFlags):
        value = getattr(flags, item.name)
        if item.name not in shown and value != item.default:
            shown[item.name] = value
    return PlanInputs(
        model=checkpoint.model.id,
        architecture=checkpoint.model.architecture,
        quantization=checkpoint.quantization,
        engine="vllm",
        engine_version=str(settings.version),
        device=device.name,
        device_total_bytes=device.total_bytes,
        tp=settings.plan.tp,
        pp=settings.plan.pp,
        dp=settings.plan.dp,
        ep=settings.plan.ep,
        settings=tuple((name, str(value)) for name, value in shown.items()),
    )


def _printed(
    settings: Settings, terms: Sequence[RankTerms], available: Sequence[ByteRange], pool: KvPool | None
) -> tuple[tuple[str, str], ...]:
    """The memory lines of the start-up log, expected values."""
    lines = [("Model loading took", format_gib(max(item.loading_bytes for item in terms), 4))]
    lines.append(("Available KV cache memory", format_gib(min(item.expected for item in available))))
    if pool is None:
        return tuple(lines)
    if settings.v1:
        lines.append(("KV cache size", f"{pool.tokens.expected:,} tokens"))
    else:
        lines.append(("# GPU blocks", str(pool.num_blocks.expected)))
    lines.append(
        (
            f"Maximum concurrency for {pool.context_len:,} tokens per request",
            f"{pool.max_concurrency.expected:.2f}x",
        )
    )
    return tuple(lines)


__all__ = ["cache_format", "kv_layout", "kv_pool", "plan", "usable_bytes"]
