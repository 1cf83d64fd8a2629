"""The KV pool that the engine says it has, beside the one that was planned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vramledger.errors import VramledgerError
from vramledger.experiment.result import PoolConfirmed
from vramledger.measurement import MeasuredPool, Measurement
from vramledger.pool import IntRange, KvPool
from vramledger.telemetry.log_measurement import log_measurement
from vramledger.telemetry.merging import merged


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int | None = None
    blocks: int | None = None
    block_size: int | None = None
    source: str = ""
    doubt: str = ""


def pool_confirmed(
    told: Measurement, planned: KvPool | None = None, *, shares_cells: bool | None = None
) -> PoolConfirmed:
    """`told` is what the engine said: over HTTP, in its log, or both merged. `shares_cells` is of llama.cpp, whose server does not say over HTTP
    whether its slots draw from one pool (--kv-unified).

    Tokens are the engine's own count where it gives one, else blocks by their size. It agrees where the count lies in the plan's range.
    """
    pool = next((one for one in told.pools if not one.kind), None)
    found = _of_pool(pool, told.engine) if pool is not None else _of_slots(told, shares_cells)
    if planned is None:
        return PoolConfirmed(
            engine_tokens=found.tokens,
            engine_blocks=found.blocks,
            block_size=found.block_size,
            source=found.source,
            words=_said(found),
        )
    agrees = _agrees(found.tokens, planned.tokens)
    if agrees is None:
        agrees = _agrees(found.blocks, planned.num_blocks)
    return PoolConfirmed(
        planned_tokens=planned.tokens.expected,
        planned_tokens_low=planned.tokens.low,
        planned_tokens_high=planned.tokens.high,
        planned_blocks=planned.num_blocks.expected,
        engine_tokens=found.tokens,
        engine_blocks=found.blocks,
        block_size=found.block_size or planned.block_size,
        source=found.source,
        agrees=agrees,
        words=f"{_said(found)}; {_compared(found, planned, agrees)}",
    )


def with_log(told: Measurement, logs: Sequence[Path]) -> Measurement:
    """What the engine said, with what the log of its last start says; where that is not read, a note says why."""
    if not logs:
        return told
    try:
        said = log_measurement((str(logs[-1]),), engine=told.engine)
    except VramledgerError as problem:
        return merged((told, Measurement(sources=(), notes=(problem.message,))))
    return merged((told, said))


def _of_pool(pool: MeasuredPool, engine: str | None) -> _Told:
    blocks = None if pool.num_blocks is None else pool.num_blocks.expected
    tokens = None if pool.tokens is None else pool.tokens.expected
    if engine == "llamacpp" and tokens is not None:  # a cell is a token
        return _Told(tokens=tokens, blocks=tokens, block_size=1, source=pool.evidence.source)
    if tokens is None and blocks is not None and pool.block_size:
        tokens = blocks * pool.block_size
    return _Told(tokens=tokens, blocks=blocks, block_size=pool.block_size, source=pool.evidence.source)


def _of_slots(told: Measurement, shares_cells: bool | None) -> _Told:
    """llama.cpp's slots: cells are tokens, and every slot names all that it may hold."""
    settings = dict(told.settings)
    slots, length = settings.get("total_slots"), settings.get("n_ctx_slot")
    if not isinstance(slots, int) or not isinstance(length, int) or slots < 1 or length < 1:
        return _Told()
    source = next((one.name for one in told.sources if one.name.endswith(("/props", "/slots"))), "/props")
    if shares_cells is None:
        shares_cells = _flag(settings.get("kv_unified"))
    if slots == 1 or shares_cells is not None:
        cells = length if slots == 1 or shares_cells else slots * length
        return _Told(tokens=cells, blocks=cells, block_size=1, source=source)
    return _Told(
        source=source,
        block_size=1,
        doubt=f"the server names {slots} slots of {length:,} cells and not whether they share them: {length:,} to "
        f"{slots * length:,} tokens; its log tells",
    )


def _flag(value: object) -> bool | None:
    return {"true": True, "false": False}.get(str(value).lower())


def _agrees(found: int | None, planned: IntRange) -> bool | None:
    return None if found is None else planned.low <= found <= planned.high


def _said(found: _Told) -> str:
    if found.doubt:
        return found.doubt
    if found.tokens is None and found.blocks is None:
        return "the engine does not tell how large its KV pool is"
    blocks = ""
    if found.blocks is not None and found.block_size and found.block_size > 1:
        blocks = f" in {found.blocks:,} blocks of {found.block_size}"
    elif found.tokens is None:
        return f"the engine says {found.blocks:,} blocks"
    return f"the engine says {found.tokens:,} tokens{blocks}"


def _compared(found: _Told, planned: KvPool, agrees: bool | None) -> str:
    tokens = planned.tokens
    span = (
        f"{tokens.expected:,}"
        if tokens.low == tokens.high
        else f"{tokens.low:,} to {tokens.high:,} ({tokens.expected:,} expected)"
    )
    if agrees is None:
        return f"planned are {span}"
    if agrees:
        return f"as planned: {span}"
    if found.tokens is None:
        return f"not as planned: {span} in {planned.num_blocks.expected:,} blocks"
    nearest = tokens.high if found.tokens > tokens.high else tokens.low
    off = found.tokens - nearest
    share = f" ({abs(off) / nearest:.1%})" if nearest else ""
    return f"{abs(off):,} {'more' if off > 0 else 'fewer'} than the plan's {span}{share}"
