"""Contexts that stay in the radix cache between turns, and beams: what they leave of the pools for other requests.

SGLang evicts what no request refers to (mem_cache/radix_cache.py); a context that must be there when its tool comes back
is KV that no other request may use, whoever keeps it referenced. A beam is a row of the request table and shares the
slots of the prefix it came from (beam_search/coordinator.py, fork.py).
"""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.engines.sglang.budget import RankTerms, Sized
from vramledger.engines.sglang.capacity import guaranteed, request_tokens, window_tokens
from vramledger.engines.sglang.pools import Pools, slots_per_request
from vramledger.engines.sglang.settings import Settings
from vramledger.pool import KvPool
from vramledger.units import ceil_div, format_bytes


def _held(settings: Settings) -> tuple[int, int]:
    """Contexts of one attention group or replica, and the tokens of each."""
    asked = settings.flags.requests
    tokens = settings.context_len if asked.held_tokens is None else asked.held_tokens
    return ceil_div(asked.held_contexts, settings.flags.dp_size), tokens


def held_bytes(pool: KvPool, terms: RankTerms, settings: Settings) -> int:
    """Of one rank's pools: tokens of full layers, windows of windowed ones, and one recurrent state of each context."""
    contexts, tokens = _held(settings)
    cells = terms.cells
    each = request_tokens(tokens, settings) * (cells.full_cell if cells.is_hybrid_swa else cells.plain_cell)
    if cells.is_hybrid_swa:
        each += window_tokens(tokens, terms, settings) * cells.swa_cell
    each += pool.state_bytes_per_sequence // max(slots_per_request(settings), 1)
    return contexts * each


def beside_held(sized: Sized, terms: RankTerms, settings: Settings) -> Sized:
    """The pools as other requests find them, each beam a running request; the same where nothing is asked."""
    if not settings.flags.requests.held_contexts and settings.flags.requests.beams == 1:
        return sized
    low, expected, high = (_beside(item, terms, settings) for item in (sized.low, sized.expected, sized.high))
    return replace(sized, low=low, expected=expected, high=high)


def _beside(pools: Pools, terms: RankTerms, settings: Settings) -> Pools:
    contexts, tokens = _held(settings)
    left = max(pools.tokens - contexts * request_tokens(tokens, settings), 0) if contexts else pools.tokens
    swa = pools.swa_tokens
    if contexts and swa is not None:
        swa = max(swa - contexts * window_tokens(tokens, terms, settings), 0)
    running, why = pools.max_running_requests, pools.capped_by
    if contexts and pools.slots is not None:
        states = max(pools.slots - contexts, 0) // max(slots_per_request(settings), 1)
        if states < running:
            running, why = states, f"{pools.slots:,} recurrent states less one of each held context"
    return replace(
        pools,
        tokens=left,
        swa_tokens=swa,
        max_running_requests=running // settings.flags.requests.beams,
        capped_by=why,
    )


def held_conditions(pool: KvPool | None, beside: Sized, terms: RankTerms, settings: Settings) -> list[str]:
    """What a verdict with held contexts or beams rests on; `beside` is what `beside_held` left."""
    if pool is None:
        return []
    asked, out = settings.flags.requests, []
    if asked.held_contexts:
        _, tokens = _held(settings)
        count, _ = guaranteed(beside.low, terms, settings)
        out.append(
            f"{asked.held_contexts:,} contexts of {tokens:,} tokens stay referenced for tools: "
            f"{format_bytes(held_bytes(pool, terms, settings))} of the pool, beside which {count:.2f} full-length "
            "requests run"
        )
    if asked.beams > 1:
        out.append(
            f"a request of {asked.beams} beams is {asked.beams} of the requests that run at once; its beams share the "
            f"tokens of their prompt and of the prefix they came from: up to {asked.beams} times what one generates"
        )
    return out
