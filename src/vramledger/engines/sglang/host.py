"""What an instance keeps in host memory: HiCache's pools, adapters.

Source: sglang srt/mem_cache/pool_host/base.py (`HostKVCache`), hicache_auto_size.py; srt/lora/lora.py.
"""

from __future__ import annotations

from vramledger.engines.sglang.layers import StageCells
from vramledger.engines.sglang.settings import Settings
from vramledger.evidence import calculated
from vramledger.ledger import AFTER_LOAD, SERVING, ByteRange, Entry, Lifetime, Owner
from vramledger.models.checkpoint import Checkpoint
from vramledger.units import round_up

DEFAULT_RATIO = 2.0


def hicache_tokens(tokens: int, cell_bytes: int, settings: Settings) -> int:
    """Tokens of one rank's host pool: the device's times the ratio, or what a size in GB (10^9) holds; whole pages and
    one more."""
    flags, page = settings.flags, settings.page_size
    if flags.hicache_size > 0:
        count = int(flags.hicache_size * 1e9 // cell_bytes) if cell_bytes else 0
    else:
        count = int(tokens * (flags.hicache_ratio or DEFAULT_RATIO))
    return round_up(count, page) + page


def host_entries(tokens: int, stages: list[StageCells], settings: Settings) -> tuple[Entry, ...]:
    """Pinned pools of all ranks of the instance together; none without `--enable-hierarchical-cache`."""
    flags = settings.flags
    if not flags.enable_hierarchical_cache or not tokens:
        return ()
    total = 0
    parts = []
    for cells in stages:
        cell = cells.full_cell - cells.draft_bytes + int(settings.swa_full_tokens_ratio * cells.swa_cell)
        count = hicache_tokens(tokens, cell, settings)
        total += count * cell * flags.tp_size * flags.replicas
        parts.append(f"{count} tokens x {cell} B x {flags.tp_size * flags.replicas} ranks")
    return (
        Entry(
            owner=Owner.KV_CACHE,
            name="HiCache pools",
            lifetime=Lifetime.WORKER,
            phases=SERVING,
            bytes=ByteRange.exact(total),
            evidence=calculated("sglang srt/mem_cache/pool_host/base.py", " + ".join(parts)),
            inside_budget=False,
        ),
    )


def adapters_on_host(checkpoint: Checkpoint, settings: Settings) -> tuple[Entry, ...]:
    """Every adapter that was named, whole, in each process; those of `/load_lora_adapter` come later."""
    adapters = settings.flags.adapter
    if not adapters:
        return ()
    from vramledger.models.adapters.placing import place

    flags = settings.flags
    processes = flags.tp_size * flags.pp_size * flags.replicas
    sizes = [settings.dtype.bytes_for(place(adapter, checkpoint).elements) for adapter in adapters]
    return (
        Entry(
            owner=Owner.ADAPTERS,
            name="adapters in host memory",
            lifetime=Lifetime.WORKER,
            phases=AFTER_LOAD,
            bytes=ByteRange.exact(processes * sum(sizes)),
            evidence=calculated(
                "sglang srt/lora/lora.py, weights of every loaded adapter",
                f"{processes} processes x ({' + '.join(map(str, sizes))}) B",
            ),
            inside_budget=False,
        ),
    )
