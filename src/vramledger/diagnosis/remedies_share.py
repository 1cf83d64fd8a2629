"""Remedies that change the engine's share of the device."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor

from vramledger.diagnosis.remedy import (
    Basis,
    Case,
    Remedy,
    bytes_per_token,
    device_bytes,
    gained_tokens,
    kv_effect,
    pool_tokens_of,
    share_of,
    tried_on_plan,
    whole_setting,
)
from vramledger.diagnosis.terms import Stage
from vramledger.units import format_bytes

SHARE_STEP = 0.01
# Above it an engine's own context and libraries no longer fit beside its share.
LARGEST_SHARE = 0.97
POOL_STEP = 0.02


def less_share(case: Case) -> Iterator[Remedy]:
    name, share = case.knobs.share, share_of(case, case.knobs.share)
    planned = None if case.base is None else case.base.inputs.device_total_bytes
    size = planned if case.facts.total_bytes is None else case.facts.total_bytes.expected
    if name is None:
        return
    if share is None or size is None:
        yield Remedy(
            change=f"lower {name}",
            effect="every hundredth leaves a hundredth of the device outside the pool",
            needs=f"the value of {name} and the device's size",
        )
        return
    missing = case.missing_bytes or 0
    steps = max(1, ceil(missing / (SHARE_STEP * size)))
    lower = round(share - steps * SHARE_STEP, 4)
    if lower <= 0:
        return
    freed = int((share - lower) * size)
    tried = tried_on_plan(case, {name: lower})
    tokens = None if tried is None else gained_tokens(*tried)
    basis = Basis.LEDGER
    if tokens is None:
        basis, per_token = Basis.MESSAGES, bytes_per_token(case)
        tokens = None if per_token is None else -floor(freed / per_token)
    yield Remedy(
        change=f"{name} {share:g} → {lower:g}",
        effect=f"leaves {format_bytes(freed)} more outside the pool{kv_effect(tokens)}",
        frees_bytes=freed,
        tokens=tokens,
        basis=basis,
        needs="" if tokens is not None else "--model and --device, for the KV tokens that it costs",
    )


def more_share(case: Case) -> Iterator[Remedy]:
    """Only where the engine's own share, not the device, is what ran out."""
    if case.facts.stage is not Stage.KV_SIZING or case.sums.missing_bytes is None:
        return
    if "kv_cache_memory_bytes" in case.settings:
        if (enough := _enough_for_one(case)) is not None:
            yield enough
            return
        yield Remedy(
            change=f"raise kv_cache_memory_bytes by {format_bytes(case.missing_bytes or 0)}",
            effect="it is what KV was given, whatever the share is; the device must have it free",
            frees_bytes=case.missing_bytes,
            tokens=0,
            basis=Basis.MESSAGES,
        )
        return
    name, share = case.knobs.share, share_of(case, case.knobs.share)
    size = device_bytes(case)
    if name is None or share is None or size is None:
        return
    steps = max(1, ceil((case.missing_bytes or 0) / (SHARE_STEP * size)))
    higher = round(share + steps * SHARE_STEP, 4)
    if higher > LARGEST_SHARE:
        return
    yield Remedy(
        change=f"{name} {share:g} → {higher:g}",
        effect=f"adds {format_bytes(int((higher - share) * size))} to what KV may take, if that is free on the device",
        frees_bytes=int((higher - share) * size),
        basis=Basis.MESSAGES,
    )


def _enough_for_one(case: Case) -> Remedy | None:
    """The least stated pool that holds one request by the ledger; a message rounds small pools to nothing."""
    pool = None if case.base is None else case.base.kv_pool
    if pool is None or pool.longest_context.expected >= pool.context_len:
        return None
    # An engine may keep a block that no request gets.
    for needed in (pool.admission_bytes_per_request, pool.admission_bytes_per_request + pool.bytes_per_block):
        tried = tried_on_plan(case, {"kv_cache_memory_bytes": needed})
        if tried is not None and tried[1].verdict.holds:
            gained = gained_tokens(*tried)
            return Remedy(
                change=f"kv_cache_memory_bytes {pool.bytes.expected} → {needed}",
                effect=f"holds one request of {pool.context_len:,} tokens{kv_effect(gained)}",
                frees_bytes=needed - pool.bytes.expected,
                tokens=gained,
                basis=Basis.LEDGER,
            )
    return None


def startup_share(case: Case) -> Iterator[Remedy]:
    name, share = case.knobs.share, share_of(case, case.knobs.share)
    largest = case.sums.largest_share
    if name is None or largest is None or largest <= 0:
        return
    tried = tried_on_plan(case, {name: largest})
    tokens = None if tried is None else pool_tokens_of(tried[1])
    left = "" if tokens is None else f"; the pool then holds {tokens:,} tokens"
    size = case.sums.total_bytes
    yield Remedy(
        change=f"{name} {f'{share:g} ' if share else ''}→ {largest:g}",
        effect=f"the largest that passes the start-up check while others hold what they hold"
        f"{f', {format_bytes(int(largest * size.expected))} in all' if size is not None else ''}{left}",
        basis=Basis.LEDGER if tokens is not None else Basis.MESSAGES,
        needs="" if tokens is not None else "--model, for the KV tokens that it leaves",
    )


def feasible_share(case: Case) -> Iterator[Remedy]:
    """A share between what the static set needs and what comes after it leaves; none where the two cross."""
    interval, name = case.sums.share_interval, case.knobs.share
    before = case.moment.sizes.get("free_before_load_bytes")
    if interval is None or name is None or before is None:
        return
    low, high = interval
    share = min(ceil(100 * low + 2) / 100, floor(100 * high) / 100)
    now = case.settings.get(name)
    if low < share <= high and share < 1 and share != now:
        freed = int((share - low) * before.expected)
        yield Remedy(
            change=f"{name} {f'{now} ' if isinstance(now, float) else ''}→ {share:g}",
            effect=f"leaves {format_bytes(freed)} for KV; below {low:.3f} there is none",
            frees_bytes=freed,
            basis=Basis.MESSAGES,
        )


def larger_pool(case: Case) -> Iterator[Remedy]:
    if case.facts.pool_loss_tokens:
        return
    if case.knobs.share is None:
        name, now = case.knobs.length, whole_setting(case, case.knobs.length)
        pool = case.facts.pool_bytes
        if name is None or now is None:
            return
        more = "" if pool is None else f" and takes {format_bytes(pool.expected)} more"
        yield Remedy(
            change=f"{name} {now} → {2 * now}",
            effect=f"doubles the pool's tokens{more}",
            tokens=now,
            basis=Basis.MESSAGES,
        )
        return
    share, size = share_of(case, case.knobs.share), device_bytes(case)
    if share is None or size is None or share + POOL_STEP > LARGEST_SHARE:
        return
    tried = tried_on_plan(case, {case.knobs.share: round(share + POOL_STEP, 4)})
    per_token = bytes_per_token(case)
    tokens = (
        gained_tokens(*tried)
        if tried is not None
        else None
        if per_token is None
        else int(POOL_STEP * size / per_token)
    )
    if tokens is None:
        return
    yield Remedy(
        change=f"{case.knobs.share} {share:g} → {share + POOL_STEP:g}",
        effect=f"adds {tokens:,} KV tokens; {format_bytes(int(POOL_STEP * size))} less are left for activations",
        tokens=tokens,
        basis=Basis.LEDGER if tried is not None else Basis.MESSAGES,
    )
