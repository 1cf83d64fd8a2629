"""The plan of an SGLang instance: settings, terms of every kind of rank, pools, ledger, verdict."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.answer import Plan, PlanInputs
from vramledger.engines.checkpoint_reading import Reading
from vramledger.engines.held_weights import weight_figures
from vramledger.engines.load_entries import device_load_entries, host_load_entries
from vramledger.engines.remedies import planned
from vramledger.engines.requests import shown_requests
from vramledger.engines.sglang.budget import (
    Free,
    RankTerms,
    Sized,
    free_before,
    largest_slot,
    rank_terms,
    size_pools,
)
from vramledger.engines.sglang.capacity import kv_pool
from vramledger.engines.sglang.entries import pool_bytes, rank_entries
from vramledger.engines.sglang.experts import experts_note
from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.host import adapters_on_host, host_entries
from vramledger.engines.sglang.layers import unknown_pool
from vramledger.engines.sglang.load_peak import SOURCE, check_load_format, how, reading
from vramledger.engines.sglang.log_lines import log_lines
from vramledger.engines.sglang.remedies import changes
from vramledger.engines.sglang.settings import Settings, resolve
from vramledger.engines.sglang.sharding import rank_kinds
from vramledger.engines.sglang.spikes import check_requests, request_entries
from vramledger.engines.sglang.verdict import judge
from vramledger.engines.sglang.version import NEWEST, SglangVersion
from vramledger.hardware.catalogue import Device
from vramledger.ledger import Owner, RankLedger
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import GIB

NO_FLAGS = SglangFlags()


def plan(
    checkpoint: Checkpoint,
    device: Device,
    *,
    version: SglangVersion = NEWEST,
    flags: SglangFlags | None = None,
    concurrency: int = 1,
    remedies: bool = False,
) -> Plan:
    """Ledger, pools and verdict of one SGLang instance; the verdict is about `concurrency` full-length requests over
    all its replicas and attention groups.

    With `remedies`, a plan that does not surely hold names single changes under which it does, each of them planned.
    Raises FlagError for contradictory flags and for a parallel plan that does not divide the model.
    """

    def plan_under(changed: SglangFlags, requests: int) -> Plan:
        return _answer(checkpoint, device, version, changed, requests)

    return planned(plan_under, changes, flags or SglangFlags(), concurrency, remedies=remedies)


def _answer(
    checkpoint: Checkpoint, device: Device, version: SglangVersion, flags: SglangFlags, concurrency: int
) -> Plan:
    """The plan without remedies."""
    model = checkpoint.model
    settings = resolve(checkpoint, device, version, flags)
    check_requests(settings)
    check_load_format(settings)
    terms = [rank_terms(checkpoint, settings, device, kind) for kind in rank_kinds(model, settings, device)]
    free = free_before(settings, device)
    sized = size_pools(terms, free, settings)
    unknown = unknown_pool(model)
    read = reading(checkpoint, settings)
    limit = max(model.max_position_embeddings, settings.context_len)
    pool = None if unknown else kv_pool(terms, sized, settings, limit=limit)
    ranks = tuple(
        _rank_ledger(checkpoint, settings, device, item, free, sized, unknown, read) for item in terms
    )
    return Plan(
        inputs=_inputs(checkpoint, settings, device),
        budget_bytes=int(free.pre.expected * settings.mem_fraction_static),
        ranks=ranks,
        kv_pool=pool,
        verdict=judge(
            checkpoint, settings, device, terms, free, sized, pool, ranks, unknown=unknown, concurrency=concurrency
        ),
        host=(
            *(() if unknown else host_entries(sized.expected.tokens, [item.cells for item in terms], settings)),
            *adapters_on_host(checkpoint, settings),
            *host_load_entries(
                read,
                source=SOURCE,
                how=how(settings.flags),
                is_size_known=bool(checkpoint.largest_file_bytes),
            ),
        ),
        printed=() if unknown else _printed(settings, terms, free, sized),
        notes=(
            *model.notes,
            *checkpoint.differences,
            *settings.notes,
            *experts_note(model, settings, terms[0].experts),
        ),
    )  # fmt: skip


def _printed(settings: Settings, terms: list[RankTerms], free: Free, sized: Sized) -> tuple[str, ...]:
    first = terms[0]
    pre = free.pre.expected / GIB
    weights = (first.weights.held + free.growth.bytes).expected / GIB
    avail = pre - weights - first.window_bytes / GIB
    pools = sum(pool_bytes(first, sized.expected, settings)) / GIB
    rest = (first.resident(settings) + free.growth.bytes).expected / GIB
    after = pre - rest - pools
    outside = (first.workspace.bytes) / GIB
    return log_lines(
        settings,
        first.cells,
        sized.expected,
        largest_slot(terms),
        pre_gib=pre,
        avail_gib=avail,
        weights_gib=weights,
        after_pool_gib=after,
        at_end_gib=after - outside,
    )


def _rank_ledger(
    checkpoint: Checkpoint,
    settings: Settings,
    device: Device,
    item: RankTerms,
    free: Free,
    sized: Sized,
    unknown: str,
    read: Reading,
) -> RankLedger:
    entries = rank_entries(settings, item, free, sized)
    if unknown:
        entries = tuple(entry for entry in entries if entry.owner is not Owner.KV_CACHE)
    loaded = item.weights.held + free.growth.bytes
    return RankLedger(
        ranks=item.kind.ranks,
        entries=(
            *entries,
            *device_load_entries(read, source=SOURCE, how=how(settings.flags)),
            *request_entries(checkpoint.model, settings, item, sized),
        ),
        weights=replace(
            weight_figures(checkpoint, loaded.expected), device_bytes=loaded, host_peak_bytes=read.host
        ),
        device_total_bytes=device.total_bytes,
    )


def _inputs(checkpoint: Checkpoint, settings: Settings, device: Device) -> PlanInputs:
    flags = settings.flags
    shown: dict[str, object] = {
        "context_length": settings.context_len,
        "mem_fraction_static": round(settings.mem_fraction_static, 6),
        "chunked_prefill_size": settings.chunked_prefill_size,
        "cuda_graph_max_bs": settings.chunk.decode_max_bs,
        "page_size": settings.page_size,
        "attention_backend": settings.attention_backend,
        "dtype": settings.dtype.value,
        "kv_cache_dtype": settings.kv_dtype,
    }
    for name in SglangFlags.__struct_fields__:
        value = getattr(flags, name)
        if name == "adapter" and value:
            shown[name] = ", ".join(adapter.id for adapter in value)
        elif name == "requests":
            shown |= shown_requests(flags.requests)
        elif name not in shown and value != getattr(NO_FLAGS, name):
            shown[name] = value if isinstance(value, str | int | float | bool) else ",".join(map(str, value))
    return PlanInputs(
        model=checkpoint.model.id,
        architecture=checkpoint.model.architecture,
        quantization=checkpoint.quantization,
        engine="sglang",
        engine_version=str(settings.version),
        device=device.name,
        device_total_bytes=device.total_bytes,
        tp=flags.tp_size,
        pp=flags.pp_size,
        dp=flags.dp_size,
        ep=flags.ep_size,
        settings=tuple((name, _plain(value)) for name, value in shown.items()),
    )


def _plain(value: object) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else str(value)
