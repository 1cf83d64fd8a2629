"""What might make a plan hold, one change at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.engines.sglang.flags import SglangFlags
from vramledger.units import counted

Candidate = tuple[str, SglangFlags, int]
WIDTHS = (2, 4, 8, 16, 32)
FRACTIONS = (0.85, 0.88, 0.9, 0.92, 0.95)
SMALLEST_CONTEXT = 256


def changes(answer: Plan, flags: SglangFlags, concurrency: int) -> tuple[Iterator[Candidate], ...]:
    """Single changes by kind, the least intrusive value of each first."""
    return (
        _fractions(answer, flags, concurrency),
        _caps(flags, concurrency),
        _tokens(answer, flags, concurrency),
        _formats(answer, flags, concurrency),
        _requests(answer, flags, concurrency),
        _contexts(answer, flags, concurrency),
        _widths(flags, concurrency),
    )


def _fractions(answer: Plan, flags: SglangFlags, concurrency: int) -> Iterator[Candidate]:
    now = float(dict(answer.inputs.settings)["mem_fraction_static"])
    for fraction in sorted(FRACTIONS, key=lambda value: abs(value - now)):
        if fraction != now:
            yield (
                f"--mem-fraction-static {fraction}",
                replace(flags, mem_fraction_static=fraction),
                concurrency,
            )


def _caps(flags: SglangFlags, concurrency: int) -> Iterator[Candidate]:
    if flags.max_running_requests is not None and flags.max_running_requests < concurrency:
        changed = replace(flags, max_running_requests=concurrency)
        yield f"--max-running-requests {concurrency}", changed, concurrency
    if not flags.disable_radix_cache:
        yield "--disable-radix-cache", replace(flags, disable_radix_cache=True), concurrency


def _tokens(answer: Plan, flags: SglangFlags, concurrency: int) -> Iterator[Candidate]:
    pool = answer.kv_pool
    if flags.max_total_tokens is not None:
        yield "no --max-total-tokens", replace(flags, max_total_tokens=None), concurrency
    if pool is not None and not pool.bytes_per_token:
        tokens = pool.context_len * ceil(concurrency / flags.dp_size)
        yield f"--max-total-tokens {tokens}", replace(flags, max_total_tokens=tokens), concurrency


def _formats(answer: Plan, flags: SglangFlags, concurrency: int) -> Iterator[Candidate]:
    pool = answer.kv_pool
    if pool is not None and pool.dtype in ("bfloat16", "float16"):
        yield "--kv-cache-dtype fp8_e4m3", replace(flags, kv_cache_dtype="fp8_e4m3"), concurrency


def _requests(answer: Plan, flags: SglangFlags, concurrency: int) -> Iterator[Candidate]:
    pool = answer.kv_pool
    if pool is None or concurrency == 1:
        return
    count = int(pool.max_concurrency.low) * flags.dp_size
    if 1 <= count < concurrency:
        yield f"at most {counted(count, 'request')} of this length at once", flags, count


def _contexts(answer: Plan, flags: SglangFlags, concurrency: int) -> Iterator[Candidate]:
    pool = answer.kv_pool
    if pool is None:
        return
    share = ceil(concurrency / flags.dp_size)
    length = max(pool.tokens.low // share // pool.block_size * pool.block_size, 0)
    while length >= SMALLEST_CONTEXT:
        if length < pool.context_len:
            yield f"--context-length {length}", replace(flags, context_length=length), concurrency
        length //= 2


def _widths(flags: SglangFlags, concurrency: int) -> Iterator[Candidate]:
    for width in WIDTHS:
        if width > flags.tp_size and width % flags.ep_size == 0 and width % flags.attn_dp == 0:
            yield f"--tp-size {width}", replace(flags, tp_size=width), concurrency
