"""Host memory of one instance beside weight files: offloaded weights and KV, swap space, experts in transit."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vramledger.engines.vllm.budget import RankTerms
from vramledger.engines.vllm.eplb import eplb_host_entries
from vramledger.engines.vllm.experts import experts_bytes
from vramledger.engines.vllm.kv_transfer import transfer_host_entries
from vramledger.engines.vllm.offload import offload_host_entry
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import calculated
from vramledger.ledger import AFTER_LOAD, ByteRange, Entry, Lifetime, Owner
from vramledger.models.mixers import MixtureOfExperts
from vramledger.models.model import Model
from vramledger.pool import KvPool
from vramledger.units import GIB, format_gib

SWAP_SPACE_GIB = 4.0
SWAP_SPACE_UNTIL = 16


def host_entries(
    model: Model, settings: Settings, terms: Sequence[RankTerms], pool: KvPool | None
) -> tuple[Entry, ...]:
    """What the processes of one instance, with all its replicas, keep in host memory."""
    out: list[Entry] = []
    for item in terms:
        out += offload_host_entry(item.offload, len(item.kind.ranks))
    out += _swap_space(settings, terms)
    if pool is not None:
        widest = max(terms, key=lambda item: item.bytes_per_block)
        held = ByteRange(pool.bytes.low, pool.bytes.expected, pool.bytes.high)
        of_one = transfer_host_entries(settings, widest.kv_shape, held)
        out += [_of_replicas(entry, settings.plan.dp) for entry in of_one]
    fullest = max(terms, key=experts_bytes)
    stage = sum(
        layer.index in fullest.kind.layers and isinstance(layer.channel_mixer, MixtureOfExperts)
        for layer in model.layers
    )
    if stage:
        ranks = settings.plan.world_size * settings.plan.dp
        out += eplb_host_entries(settings, layer_bytes=experts_bytes(fullest) // stage * ranks)
    return tuple(entry for entry in out if entry.bytes.high)


def _of_replicas(entry: Entry, count: int) -> Entry:
    """An entry of one replica for all of them."""
    if count == 1:
        return entry
    size, evidence = entry.bytes, entry.evidence
    return replace(
        entry,
        bytes=ByteRange(size.low * count, size.expected * count, size.high * count),
        evidence=replace(evidence, formula=f"{count} replicas x ({evidence.formula})"),
    )


def _swap_space(settings: Settings, terms: Sequence[RankTerms]) -> list[Entry]:
    """V0's pinned blocks for preempted sequences: whole ones within `--swap-space` GiB of every rank."""
    if settings.v1 or settings.version.since(SWAP_SPACE_UNTIL + 1):
        return []
    asked = settings.flags.swap_space
    size = int((SWAP_SPACE_GIB if asked is None else asked) * GIB)
    total = 0
    for item in terms:
        if item.bytes_per_block:
            total += size // item.bytes_per_block * item.bytes_per_block * len(item.kind.ranks)
    if not total:
        return []
    return [
        Entry(
            owner=Owner.KV_CACHE,
            name="swap space",
            lifetime=Lifetime.WORKER,
            phases=AFTER_LOAD,
            bytes=ByteRange.exact(total),
            evidence=calculated(
                "vllm worker/cache_engine.py (cpu_cache)",
                f"{settings.plan.world_size * settings.plan.dp} ranks x whole blocks of {format_gib(size)}, pinned",
            ),
            inside_budget=False,
        )
    ]
