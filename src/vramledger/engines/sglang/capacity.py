"""What the pools hold: requests of the whole context at once when each keeps all it may come to need.

SGLang admits by an estimate of what requests will really generate and retracts some where it was too low
(managers/schedule_policy.py); only a full reservation is a guarantee.
"""

from __future__ import annotations

from vramledger.engines.sglang.budget import RankTerms, Sized, largest_slot
from vramledger.engines.sglang.pools import Pools
from vramledger.engines.sglang.settings import Settings
from vramledger.pool import FloatRange, IntRange, KvGroup, KvPool
from vramledger.units import ceil_div, round_up


def request_tokens(length: int, settings: Settings) -> int:
    """Tokens of the full pool that a request of `length` holds: whole pages."""
    return round_up(max(length, 1), settings.page_size)


def window_tokens(length: int, terms: RankTerms, settings: Settings) -> int:
    """Tokens of the windowed pool that a request holds: the window, the page it slides by, the chunk in flight."""
    step = max(min(settings.step_tokens, length) - terms.cells.window, 0)
    return min(request_tokens(length, settings), terms.cells.window + settings.page_size + step)


def guaranteed(pools: Pools, terms: RankTerms, settings: Settings) -> tuple[float, str]:
    """Requests of the full context in one attention group under full reservation, and what sets the number."""
    length = settings.context_len
    found = [(pools.tokens / request_tokens(length, settings), f"{pools.tokens:,} tokens in the pool")]
    if pools.swa_tokens is not None:
        window = window_tokens(length, terms, settings)
        found.append((pools.swa_tokens / window, f"{pools.swa_tokens:,} tokens in the windowed layers' pool"))
    found.append((float(pools.max_running_requests), pools.capped_by))
    return min(found, key=lambda item: item[0])


def missing_bytes(pools: Pools, terms: RankTerms, settings: Settings, requests: int) -> int:
    """What the pools lack at least for so many requests of the full context: windowed layers' tokens beside the full
    layers', neither of which can be taken from the other's pool nor from recurrent states."""
    cells, length = terms.cells, settings.context_len
    full = max(request_tokens(length, settings) * requests - pools.tokens, 0)
    size = full * (cells.full_cell if cells.is_hybrid_swa else cells.plain_cell)
    if pools.swa_tokens is not None:
        window = max(window_tokens(length, terms, settings) * requests - pools.swa_tokens, 0)
        size += window * cells.swa_cell
    return max(int(size), 1)


def longest(pools: Pools, terms: RankTerms, settings: Settings, limit: int) -> int:
    """Tokens one request alone may have: below the pool's, within the model's limit."""
    return max(min(limit, pools.tokens - 1), 0)


def kv_pool(terms: list[RankTerms], sized: Sized, settings: Settings, *, limit: int) -> KvPool | None:
    """The pool of one attention group on one rank, of the stage that takes most; None where nothing is cached."""
    item = max(terms, key=lambda term: term.cells.plain_cell)
    cells, slot = item.cells, largest_slot(terms)
    if not cells.plain_cell and slot is None:
        return None
    ends = (sized.low, sized.expected, sized.high)
    page = settings.page_size
    low, expected, high = (guaranteed(pools, item, settings)[0] for pools in ends)
    states = slot.total * sized.expected.slots_per_request if slot is not None else 0
    full = request_tokens(settings.context_len, settings) * (
        cells.full_cell if cells.is_hybrid_swa else cells.plain_cell
    )
    window = (
        window_tokens(settings.context_len, item, settings) * cells.swa_cell if cells.is_hybrid_swa else 0
    )
    concurrency = FloatRange(low, max(low, expected), max(low, expected, high))
    need = full + window + states
    return KvPool(
        bytes=_range([_charged(pools, item, slot.total if slot else 0) for pools in ends]),
        groups=tuple(_groups(item, sized, settings, slot.total if slot else 0)),
        bytes_per_block=page * (cells.full_cell if cells.is_hybrid_swa else cells.plain_cell),
        bytes_per_token=cells.plain_cell,
        state_bytes_per_sequence=states,
        block_size=page,
        num_blocks=_range([pools.tokens // page for pools in ends]),
        tokens=_range([pools.tokens for pools in ends]),
        max_concurrency=concurrency,
        context_len=settings.context_len,
        longest_context=_range([longest(pools, item, settings, limit) for pools in ends]),
        tokens_rule="max_total_num_tokens of one attention group: free memory less the reserve, over the cell of a token, "
        "in whole pages; with windowed layers' own pool it is the full layers' pool",
        admission_bytes_per_request=need,
        steady_bytes_per_request=need,
        steady_concurrency=concurrency,
        dtype=settings.kv_dtype,
    )


def _range(counts: list[int]) -> IntRange:
    low, expected, high = sorted(counts)
    return IntRange(low, expected, high)


def _charged(pools: Pools, item: RankTerms, slot_total: int) -> int:
    cells = item.cells
    size = pools.tokens * (cells.full_cell if cells.is_hybrid_swa else cells.plain_cell)
    size += (pools.swa_tokens or 0) * cells.swa_cell
    return size + ((pools.slots + 1) * slot_total if pools.slots is not None else 0)


def _groups(item: RankTerms, sized: Sized, settings: Settings, slot_total: int) -> list[KvGroup]:
    cells, page = item.cells, settings.page_size
    ends = (sized.low, sized.expected, sized.high)
    out = []
    if cells.full_layers:
        kind = {"MHA": "full_attention", "MLA": "mla", "DSA": "dsa"}[cells.kind]
        per_layer = cells.full_cell // cells.full_layers
        out.append(
            KvGroup(
                kind=kind,
                num_layers=cells.full_layers,
                block_size=page,
                page_bytes=page * per_layer,
                blocks_per_request=ceil_div(settings.context_len, page),
                pool_blocks=_range([pools.tokens // page for pools in ends]),
            )
        )
    if cells.is_hybrid_swa:
        out.append(
            KvGroup(
                kind="sliding_window",
                num_layers=cells.swa_layers,
                block_size=page,
                page_bytes=page * cells.swa_bytes,
                blocks_per_request=ceil_div(window_tokens(settings.context_len, item, settings), page),
                pool_blocks=_range([(pools.swa_tokens or 0) // page for pools in ends]),
                window_tokens=cells.window,
            )
        )
    if slot_total and cells.recurrent_layers:
        out.append(
            KvGroup(
                kind="mamba",
                num_layers=len(cells.recurrent_layers),
                block_size=settings.context_len,
                page_bytes=slot_total // len(cells.recurrent_layers),
                blocks_per_request=sized.expected.slots_per_request,
                pool_blocks=_range([pools.slots or 0 for pools in ends]),
            )
        )
    return out
