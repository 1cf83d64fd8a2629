"""Contexts that stay in the pool between turns, and beams: what they leave of it for other requests.

vLLM itself holds nothing for a request that has ended: its blocks stay findable until another request takes them. A
context that must be there when its tool comes back is KV that no other request may use, whoever keeps it referenced.
Beam search runs outside the engine (entrypoints, beam_search): every beam is a request of its own in every step, and beams
share the blocks of their common prefix while prefix caching is on.
"""

from __future__ import annotations

from vramledger.engines.entry import entry
from vramledger.engines.vllm.kv_budget import blocks_per_request, steady_blocks
from vramledger.engines.vllm.kv_groups import Layout
from vramledger.engines.vllm.settings import Settings
from vramledger.evidence import assumed
from vramledger.ledger import AFTER_LOAD, ByteRange, Entry, Lifetime, Owner
from vramledger.pool import KvPool
from vramledger.units import ceil_div, format_bytes


def held_blocks(layout: Layout, settings: Settings) -> int:
    """Blocks of one replica's pool that its share of the held contexts keeps, windows slid."""
    asked = settings.flags.requests
    if not asked.held_contexts:
        return 0
    tokens = settings.context_len if asked.held_tokens is None else asked.held_tokens
    contexts = ceil_div(asked.held_contexts, settings.plan.dp)
    return contexts * sum(steady_blocks(group, tokens, settings) for group in layout.groups)


def held_entry(layout: Layout, settings: Settings, bytes_per_block: int, pool: ByteRange) -> Entry | None:
    """The part of the pool that held contexts take, no more than the pool has."""
    size = held_blocks(layout, settings) * bytes_per_block
    if not size:
        return None
    asked = settings.flags.requests
    tokens = settings.context_len if asked.held_tokens is None else asked.held_tokens
    return entry(
        Owner.KV_CACHE, "contexts held for tools", AFTER_LOAD,
        ByteRange(min(size, pool.low), min(size, pool.expected), min(size, pool.high)),
        assumed(
            "asked for with --held-contexts",
            f"{asked.held_contexts} contexts of {tokens} tokens over {settings.plan.dp} replicas, blocks of "
            f"{bytes_per_block} B",
        ),
        lifetime=Lifetime.REQUEST,
    )  # fmt: skip


def requests_beside(pool: KvPool, layout: Layout, settings: Settings) -> float:
    """Full-length requests of one replica that the pool surely has room for beside what is held."""
    held = held_blocks(layout, settings)
    need = blocks_per_request(layout, settings.context_len, settings)
    if not held or not need:
        return pool.max_concurrency.low
    return min(pool.max_concurrency.low, max(pool.num_blocks.low - held, 0) / need)


def held_conditions(pool: KvPool | None, layout: Layout, settings: Settings) -> list[str]:
    """What a verdict with held contexts or beams rests on."""
    if pool is None:
        return []
    asked, out = settings.flags.requests, []
    held = held_blocks(layout, settings)
    if held:
        tokens = settings.context_len if asked.held_tokens is None else asked.held_tokens
        left = requests_beside(pool, layout, settings)
        out.append(
            f"{asked.held_contexts:,} contexts of {tokens:,} tokens stay referenced for tools: "
            f"{format_bytes(held * pool.bytes_per_block)} of the pool, beside which {left:.2f} full-length requests run"
        )
    if asked.beams > 1:
        shared = (
            "share the blocks of their common prefix and keep their own from where they part"
            if settings.prefix_caching
            else "share no blocks without prefix caching and compute their whole prefix in every step"
        )
        out.append(
            f"a request of {asked.beams} beams is {asked.beams} sequences of the {settings.max_num_seqs} that run at "
            f"once; its beams {shared}: up to {asked.beams} times the KV cache of one"
        )
    return out
