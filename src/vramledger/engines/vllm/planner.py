"""The plan of a vLLM instance: settings, terms of every kind of rank, pool, ledger, verdict."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vramledger.answer import Plan, PlanInputs
from vramledger.engines.vllm.attention_backends import sparse_cache_type
from vramledger.engines.vllm.budget import RankTerms, rank_terms, requested_bytes
from vramledger.engines.vllm.entries import rank_entries
from vramledger.engines.vllm.flags import ParallelPlan, Speculation, VllmFlags
from vramledger.engines.vllm.kv_groups import Layout, plan_groups
from vramledger.engines.vllm.kv_pool import fit_context, kv_pool
from vramledger.engines.vllm.kv_specs import LayerSpec, layer_specs
from vramledger.engines.vllm.log_lines import log_lines
from vramledger.engines.vllm.lora import lora_bytes
from vramledger.engines.vllm.lora_adapters import AdapterUse, adapter_notes, adapter_uses, host_entry
from vramledger.engines.vllm.names import check_names
from vramledger.engines.vllm.remedies import find_remedies
from vramledger.engines.vllm.settings import Settings, resolve
from vramledger.engines.vllm.sharding import check_heads, rank_kinds
from vramledger.engines.vllm.speculation import (
    check,
    is_grouping_open,
    marked,
    notes_on_draft,
    set_apart,
    widened,
    with_draft_specs,
)
from vramledger.engines.vllm.support import support_notes
from vramledger.engines.vllm.verdict import judge
from vramledger.engines.vllm.version import NEWEST, VllmVersion
from vramledger.errors import FlagError, UnknownFormat, VramledgerError
from vramledger.evidence import Evidence, assumed, calculated
from vramledger.formats.kv import KV_FORMAT_NAMES, KvFormat, kv_format
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ByteRange, Entry, RankLedger, WeightFigures
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.mixers import ChunkedAttention
from vramledger.pool import IntRange, KvPool
from vramledger.units import GIB

# Transformers' save_pretrained splits at 5 GB; loaders map one file at a time, and the page cache may keep all.
DEFAULT_SHARD_BYTES = 5 * 10**9


def plan(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: VllmVersion = NEWEST,
    parallel: ParallelPlan | None = None,
    flags: VllmFlags | None = None,
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """Ledger, pool and verdict of one vLLM instance; the verdict is about `concurrency` full-length requests
    over all its replicas.

    With `remedies`, a plan that does not surely hold names single changes under which it does, each of them
    planned (some twenty plans). Raises FlagError for contradictory
    flags and for a parallel plan that does not divide the model.
    """
    parallel, flags = parallel or ParallelPlan(), flags or VllmFlags()
    answer = _answer(checkpoint, device, version, parallel, flags, concurrency)
    if answer.verdict.holds or not remedies:
        return answer

    def holds(parallel: ParallelPlan, flags: VllmFlags, concurrency: int) -> bool:
        try:
            return bool(_answer(checkpoint, device, version, parallel, flags, concurrency).verdict.holds)
        except VramledgerError:
            return False

    found = find_remedies(answer, parallel, flags, concurrency, holds)
    return replace(answer, verdict=replace(answer.verdict, remedies=found))


def _answer(
    checkpoint: Checkpoint,
    device: Device,
    version: VllmVersion,
    parallel: ParallelPlan,
    flags: VllmFlags,
    concurrency: int,
) -> Plan:
    """The plan without remedies."""
    settings = resolve(checkpoint.model, device, version, parallel, flags)
    check(settings, checkpoint.model)
    check_heads(checkpoint.model, parallel)
    check_names(checkpoint, settings, device)
    kind_of_kv = cache_format(checkpoint, settings, device)
    layout = kv_layout(checkpoint, settings, device, kind_of_kv)
    kinds = rank_kinds(checkpoint.model, parallel, flags, version)
    terms = [rank_terms(checkpoint, settings, device, kind, layout, kind_of_kv) for kind in kinds]
    available = [_available(item, settings, device) for item in terms]
    checked = [_checked(item, room, settings) for item, room in zip(terms, available, strict=True)]
    if settings.auto_context:
        settings = fit_context(layout, settings, terms, checked)
    pool = kv_pool(
        layout, settings, terms, available, kind_of_kv, limit=checkpoint.model.max_position_embeddings
    )
    apart = _layout_apart(checkpoint, settings, device, kind_of_kv)
    if pool is not None and apart is not None:
        pool = widened(pool, apart, settings, available)
    uses = adapter_uses(checkpoint, settings, kinds[0])
    ranks = tuple(_rank_ledger(checkpoint, settings, device, item, layout, pool) for item in terms)
    return Plan(
        inputs=_inputs(checkpoint, settings, device),
        budget_bytes=requested_bytes(device.total_bytes, settings),
        ranks=ranks,
        kv_pool=pool,
        verdict=judge(
            checkpoint,
            settings,
            device,
            terms,
            layout,
            checked,
            pool,
            ranks,
            concurrency=concurrency,
            refusals=[f"adapter {use.placed.adapter.id} {text}" for use in uses for text in use.refusals],
        ),
        printed=log_lines(settings, device, terms, available, pool),
        notes=(
            *checkpoint.model.notes,
            *checkpoint.differences,
            *settings.notes,
            *support_notes(checkpoint, settings),
            *notes_on_draft(checkpoint.model, settings, apart),
            *(adapter_notes(uses, settings.lora) if settings.lora is not None else ()),
        ),
        host=_host(checkpoint, settings, uses),
    )


def _host(checkpoint: Checkpoint, settings: Settings, uses: tuple[AdapterUse, ...]) -> tuple[Entry, ...]:
    """What the processes keep in host memory for adapters."""
    if settings.lora is None:
        return ()
    whole = replace(settings, plan=ParallelPlan())
    (kind,) = rank_kinds(checkpoint.model, ParallelPlan(), NO_FLAGS, settings.version)
    one = lora_bytes(checkpoint.model, kind, whole).of_one(settings.lora.slots)
    entry = host_entry(settings, uses, one * 8 // settings.lora.dtype.bits)
    return () if entry is None or not entry.bytes.high else (entry,)


def cache_format(checkpoint: Checkpoint, settings: Settings, device: Device) -> KvFormat:
    """The KV element format: the flag's, else what the checkpoint declares, else the model's own type."""
    name = settings.flags.kv_cache_dtype
    if name == "auto" and checkpoint.declared_kv_dtype:
        name = checkpoint.declared_kv_dtype
    name = sparse_cache_type(name, checkpoint.model, settings, device)
    try:
        return kv_format(name, settings.dtype)
    except UnknownFormat:
        from difflib import get_close_matches

        closest = get_close_matches(name, KV_FORMAT_NAMES, n=3) or ["auto", "fp8", "bfloat16"]
        raise FlagError(
            f"--kv-cache-dtype {name} is not a type of vLLM's KV cache; did you mean {', '.join(closest)}?",
            flag="kv_cache_dtype",
            value=name,
            closest=closest,
        ) from None


def kv_layout(checkpoint: Checkpoint, settings: Settings, device: Device, kind: KvFormat) -> Layout:
    """Groups of the model's KV layers under these settings."""
    specs = set_apart(_all_specs(checkpoint, settings, device, kind), checkpoint.model, settings)
    return _grouped(specs, checkpoint, settings)


def _layout_apart(
    checkpoint: Checkpoint, settings: Settings, device: Device, kind: KvFormat
) -> Layout | None:
    """The other grouping that a draft's layers may get, where the rules leave it open."""
    if not is_grouping_open(checkpoint.model, settings):
        return None
    specs = _all_specs(checkpoint, settings, device, kind)
    return _grouped(marked(specs, checkpoint.model), checkpoint, settings)


def _all_specs(
    checkpoint: Checkpoint, settings: Settings, device: Device, kind: KvFormat
) -> tuple[LayerSpec, ...]:
    """Specs of the target's layers and, after them, of the draft's."""
    specs = layer_specs(checkpoint.model, settings, device, kind)
    return with_draft_specs(specs, checkpoint.model, settings, device, kind)


def _grouped(specs: Sequence[LayerSpec], checkpoint: Checkpoint, settings: Settings) -> Layout:
    return plan_groups(
        specs,
        settings.version,
        v1=settings.v1,
        hybrid_manager=_hybrid_manager(checkpoint, settings),
    )


def _hybrid_manager(checkpoint: Checkpoint, settings: Settings) -> bool:
    """On since 0.9.2 unless the flag says no, or the model has chunked local layers before 0.14 (default of
    VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE in envs.py); before that windows were kept at full
    length in the pool."""
    if settings.flags.disable_hybrid_kv_cache_manager or not settings.version.since(9, 2):
        return False
    if settings.version.since(14):
        return True
    return not checkpoint.model.has_mixer(ChunkedAttention)


def _available(terms: RankTerms, settings: Settings, device: Device) -> ByteRange:
    fixed = settings.flags.kv_cache_memory_bytes
    return ByteRange.exact(fixed) if fixed is not None else terms.available


def _checked(terms: RankTerms, available: ByteRange, settings: Settings) -> ByteRange:
    """What the start-up checks plan with: a stated number of blocks stands for its bytes."""
    blocks = settings.flags.num_gpu_blocks_override
    if blocks is None or not terms.bytes_per_block:
        return available
    return ByteRange.exact(blocks * terms.bytes_per_block)


def _rank_ledger(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    item: RankTerms,
    layout: Layout,
    pool: KvPool | None,
) -> RankLedger:
    per_block = item.bytes_per_block
    blocks = pool.num_blocks if pool is not None else IntRange(0, 0, 0)
    held = ByteRange(blocks.low * per_block, blocks.expected * per_block, blocks.high * per_block)
    disk = checkpoint.disk_bytes
    share = checkpoint.largest_file_bytes or min(disk, DEFAULT_SHARD_BYTES)
    return RankLedger(
        ranks=item.kind.ranks,
        entries=rank_entries(checkpoint, settings, device, item, layout, held),
        weights=WeightFigures(
            disk_bytes=disk,
            disk_evidence=checkpoint.disk_evidence,
            host_peak_bytes=ByteRange(min(share, GIB), share, max(disk, share)),
            host_evidence=_host_evidence(checkpoint),
            device_bytes=ByteRange.exact(item.loading_bytes),
        ),
        device_total_bytes=device.total_bytes,
    )


NO_FLAGS = VllmFlags()


def _host_evidence(checkpoint: Checkpoint) -> Evidence:
    """Loaders map one file at a time; the page cache may keep anything from a gibibyte to all of them."""
    if checkpoint.largest_file_bytes:
        return calculated(
            "largest weight file, mapped while it is read", f"{checkpoint.largest_file_bytes} B"
        )
    return assumed(
        f"weight files of {DEFAULT_SHARD_BYTES // 10**9} GB, Transformers' default; headers would tell"
    )


def _inputs(checkpoint: Checkpoint, settings: Settings, device: Device) -> PlanInputs:
    flags = settings.flags
    shown: dict[str, object] = {
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
    lora = settings.lora
    if lora is not None:
        shown |= {
            "enable_lora": True,
            "max_loras": lora.slots,
            "max_lora_rank": lora.rank,
            "max_cpu_loras": lora.cpu_slots,
            "lora_dtype": lora.dtype.value,
        }
        if lora.adapters:
            shown["adapter"] = ", ".join(adapter.id for adapter in lora.adapters)
    for name in VllmFlags.__struct_fields__:
        value = getattr(flags, name)
        if name not in shown and value != getattr(NO_FLAGS, name):
            shown[name] = value
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
        settings=tuple((name, _plain(value)) for name, value in shown.items()),
    )


def _plain(value: object) -> str | int | float | bool:
    """A setting as JSON can hold it; a draft by its method, its length and its model's name."""
    if isinstance(value, Speculation):
        draft = f" of {value.draft.model.id}" if value.draft is not None else ""
        return f"{value.method}, {value.num_speculative_tokens} tokens{draft}"
    return value if isinstance(value, str | int | float | bool) else str(value)
