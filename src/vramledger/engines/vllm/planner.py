"""The plan of a vLLM instance: settings, terms of every kind of rank, pool, ledger, verdict."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from vramledger.answer import Plan, PlanInputs
from vramledger.engines.checkpoint_reading import UNREAD_FILES, Reading
from vramledger.engines.recent import Recent
from vramledger.engines.remedies import with_remedies
from vramledger.engines.requests import shown_requests
from vramledger.engines.vllm.attention_backends import sparse_cache_type
from vramledger.engines.vllm.budget import RankTerms, rank_terms, requested_bytes
from vramledger.engines.vllm.context_parallel import check_interleave
from vramledger.engines.vllm.entries import rank_entries
from vramledger.engines.vllm.experts import experts_note, placement_note
from vramledger.engines.vllm.flags import ParallelPlan, Speculation, VllmFlags
from vramledger.engines.vllm.host_memory import host_memory
from vramledger.engines.vllm.host_side import host_entries
from vramledger.engines.vllm.kv_connectors import keeps_groups
from vramledger.engines.vllm.kv_groups import Layout, plan_groups
from vramledger.engines.vllm.kv_pool import fit_context, kv_pool
from vramledger.engines.vllm.kv_specs import LayerSpec, layer_specs
from vramledger.engines.vllm.kv_transfer import transfer_conditions
from vramledger.engines.vllm.load_peak import reading
from vramledger.engines.vllm.log_lines import log_lines
from vramledger.engines.vllm.lora import lora_bytes
from vramledger.engines.vllm.names import check_names
from vramledger.engines.vllm.pipeline import StageRoom, balanced_partition, binding_text
from vramledger.engines.vllm.remedies import Asked, changes, joined
from vramledger.engines.vllm.settings import Settings, resolve
from vramledger.engines.vllm.sharding import RankKind, check_heads, pipeline_layers, rank_kinds
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
from vramledger.verdict import Verdict


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
    if not remedies:
        return answer
    partition = _even_partition(checkpoint, device, version, parallel, flags)
    if answer.verdict.holds:
        notes = [*answer.notes, *_other_placement(answer, checkpoint, device, version, parallel, flags)]
        if partition is not None:
            notes.append(_partition_note(answer, checkpoint, device, version, parallel, flags, partition))
        return replace(answer, notes=tuple(notes))

    def plan_under(asked: Asked, requests: int) -> Plan:
        return _answer(checkpoint, device, version, *asked, requests)

    return with_remedies(answer, changes(answer, parallel, flags, concurrency, partition), plan_under)


def _answer(
    checkpoint: Checkpoint,
    device: Device,
    version: VllmVersion,
    parallel: ParallelPlan,
    flags: VllmFlags,
    concurrency: int,
) -> Plan:
    """The plan without remedies."""
    prepared = _prepare(checkpoint, device, version, parallel, flags)
    settings, layout, kind_of_kv = prepared.settings, prepared.layout, prepared.kind_of_kv
    terms, available = prepared.terms, prepared.available
    checked = [_checked(item, room, settings) for item, room in zip(terms, available, strict=True)]
    if settings.auto_context:
        settings = fit_context(layout, settings, terms, checked)
    pool = kv_pool(
        layout, settings, terms, available, kind_of_kv, limit=checkpoint.model.max_position_embeddings
    )
    apart = _layout_apart(checkpoint, settings, device, kind_of_kv)
    if pool is not None and apart is not None:
        pool = widened(pool, apart, settings, available)
    read = reading(checkpoint, settings)
    adapters = _adapters(checkpoint, settings, terms[0].kind)
    ranks = tuple(_rank_ledger(checkpoint, settings, device, item, layout, pool, read) for item in terms)
    return Plan(
        inputs=_inputs(checkpoint, settings, device),
        budget_bytes=requested_bytes(device.total_bytes, settings),
        ranks=ranks,
        kv_pool=pool,
        host=(
            *host_memory(checkpoint, settings, device, layout, read),
            *adapters.host,
            *host_entries(checkpoint.model, settings, terms, pool),
        ),
        verdict=_with_conditions(
            judge(
                checkpoint,
                settings,
                device,
                terms,
                layout,
                checked,
                pool,
                ranks,
                concurrency=concurrency,
                refusals=adapters.refusals,
            ),
            transfer_conditions(settings, max(item.kv_shape.request_bytes for item in terms)),
        ),
        printed=log_lines(settings, device, terms, available, pool),
        notes=(
            *checkpoint.model.notes,
            *checkpoint.differences,
            *settings.notes,
            *support_notes(checkpoint, settings),
            *notes_on_draft(checkpoint.model, settings, apart),
            *experts_note(checkpoint.model, settings, terms),
            *_binding_note(prepared),
            *adapters.notes,
        ),
    )


def _with_conditions(verdict: Verdict, more: tuple[str, ...]) -> Verdict:
    """A verdict that has conditions, with more of them."""
    if not more or not verdict.conditions:
        return verdict
    return replace(verdict, conditions=(*verdict.conditions, *more))


class _Prepared(Struct, frozen=True, kw_only=True):
    """A plan up to what every kind of rank leaves for KV."""

    settings: Settings
    kind_of_kv: KvFormat
    layout: Layout
    terms: list[RankTerms]
    available: list[ByteRange]

    @property
    def rooms(self) -> list[StageRoom]:
        """What is left of every kind of rank, as expected."""
        return [
            StageRoom(
                stage=item.kind.stage,
                layers=item.kind.layers,
                ranks=item.kind.ranks,
                room_bytes=room.expected,
                bytes_per_block=item.bytes_per_block,
            )
            for item, room in zip(self.terms, self.available, strict=True)
        ]


def _prepare(
    checkpoint: Checkpoint, device: Device, version: VllmVersion, parallel: ParallelPlan, flags: VllmFlags
) -> _Prepared:
    settings = resolve(checkpoint.model, device, version, parallel, flags)
    check(settings, checkpoint.model)
    check_heads(checkpoint.model, parallel)
    check_names(checkpoint, settings, device)
    kind_of_kv = cache_format(checkpoint, settings, device)
    layout = kv_layout(checkpoint, settings, device, kind_of_kv)
    check_interleave(layout, settings)
    kinds = rank_kinds(checkpoint.model, parallel, flags, version)
    terms = [rank_terms(checkpoint, settings, device, kind, layout, kind_of_kv) for kind in kinds]
    available = [_available(item, settings, device) for item in terms]
    return _Prepared(
        settings=settings, kind_of_kv=kind_of_kv, layout=layout, terms=terms, available=available
    )


def _binding_note(prepared: _Prepared) -> tuple[str, ...]:
    """Which pipeline stage binds the pool; nothing where a flag states the pool."""
    flags = prepared.settings.flags
    if flags.num_gpu_blocks_override is not None or flags.kv_cache_memory_bytes is not None:
        return ()
    text = binding_text(prepared.rooms)
    return () if text is None else (text,)


def _even_partition(
    checkpoint: Checkpoint, device: Device, version: VllmVersion, parallel: ParallelPlan, flags: VllmFlags
) -> tuple[int, ...] | None:
    """A partition of layers under which the pool is larger, None where none was found."""
    if (
        parallel.pp == 1
        or flags.num_gpu_blocks_override is not None
        or flags.kv_cache_memory_bytes is not None
    ):
        return None

    def rooms_of(partition: tuple[int, ...]) -> list[StageRoom] | None:
        try:
            changed = replace(flags, pp_layer_partition=partition)
            return _prepare(checkpoint, device, version, parallel, changed).rooms
        except VramledgerError:
            return None

    stages = pipeline_layers(checkpoint.model.num_layers, parallel.pp, version, flags.pp_layer_partition)
    counts = tuple(len(layers) for layers in stages)
    best = balanced_partition(counts, rooms_of)
    return None if best == counts else best


def _partition_note(
    answer: Plan,
    checkpoint: Checkpoint,
    device: Device,
    version: VllmVersion,
    parallel: ParallelPlan,
    flags: VllmFlags,
    partition: tuple[int, ...],
) -> str:
    changed = replace(flags, pp_layer_partition=partition)
    other = _answer(checkpoint, device, version, parallel, changed, 1)
    here = answer.kv_pool.tokens.expected if answer.kv_pool is not None else 0
    there = other.kv_pool.tokens.expected if other.kv_pool is not None else 0
    return f"VLLM_PP_LAYER_PARTITION={joined(partition)}: pool of {there:,} tokens ({here:,} here)"


def _other_placement(
    answer: Plan,
    checkpoint: Checkpoint,
    device: Device,
    version: VllmVersion,
    parallel: ParallelPlan,
    flags: VllmFlags,
) -> tuple[str, ...]:
    """Experts cut by columns where they are dealt out, and the other way round."""
    if not checkpoint.model.is_moe or parallel.expert_group == 1 or flags.enable_eplb:
        return ()
    other = replace(parallel, enable_expert_parallel=not parallel.enable_expert_parallel)
    try:
        changed = _answer(checkpoint, device, version, other, replace(flags, all2all_backend=None), 1)
    except VramledgerError:
        return ()
    return (placement_note(answer, changed),)


class _Adapters(Struct, frozen=True, kw_only=True):
    """What adapters add to a plan beside their slots."""

    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    host: tuple[Entry, ...] = ()


def _adapters(checkpoint: Checkpoint, settings: Settings, kind: RankKind) -> _Adapters:
    """Why named ones do not load, what each takes of its slot, and what the processes keep in host memory."""
    lora = settings.lora
    if lora is None:
        return _Adapters()
    from vramledger.engines.vllm.lora_adapters import adapter_notes, adapter_uses, host_entry

    uses = adapter_uses(checkpoint, settings, kind)
    whole = replace(settings, plan=ParallelPlan())
    (alone,) = rank_kinds(checkpoint.model, ParallelPlan(), NO_FLAGS, settings.version)
    one = lora_bytes(checkpoint.model, alone, whole).of_one(lora.slots)
    entry = host_entry(settings, uses, one * 8 // lora.dtype.bits)
    return _Adapters(
        refusals=tuple(f"adapter {use.placed.adapter.id} {text}" for use in uses for text in use.refusals),
        notes=adapter_notes(uses, lora),
        host=() if entry is None or not entry.bytes.high else (entry,),
    )


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


_recent: Recent[Layout] = Recent(256)


def kv_layout(checkpoint: Checkpoint, settings: Settings, device: Device, kind: KvFormat) -> Layout:
    """Groups of the model's KV layers under these settings."""
    if settings.flags.speculative is not None:
        return _kv_layout(checkpoint, settings, device, kind)
    known = settings.without_batches()
    return _recent.get(checkpoint, (known, device, kind), lambda: _kv_layout(checkpoint, known, device, kind))


def _kv_layout(checkpoint: Checkpoint, settings: Settings, device: Device, kind: KvFormat) -> Layout:
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
    if not keeps_groups(settings.flags, settings.version, settings.plan.world_size):
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
    read: Reading,
) -> RankLedger:
    per_block = item.bytes_per_block
    blocks = pool.num_blocks if pool is not None else IntRange(0, 0, 0)
    held = ByteRange(blocks.low * per_block, blocks.expected * per_block, blocks.high * per_block)
    return RankLedger(
        ranks=item.kind.ranks,
        entries=rank_entries(checkpoint, settings, device, item, layout, held, read),
        weights=WeightFigures(
            disk_bytes=checkpoint.disk_bytes,
            disk_evidence=checkpoint.disk_evidence,
            host_peak_bytes=read.host,
            host_evidence=_host_evidence(checkpoint, read),
            device_bytes=ByteRange.exact(item.loading_bytes),
        ),
        device_total_bytes=device.total_bytes,
    )


NO_FLAGS = VllmFlags()


def _host_evidence(checkpoint: Checkpoint, read: Reading) -> Evidence:
    """What the host holds while files are read: of files whose sizes are known, or of the usual size."""
    if checkpoint.largest_file_bytes:
        return calculated("vllm model_executor/model_loader/weight_utils.py", read.formula)
    return assumed(UNREAD_FILES, read.formula)


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
        if name == "requests":
            shown |= shown_requests(flags.requests)
        elif name not in shown and value != getattr(NO_FLAGS, name):
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
