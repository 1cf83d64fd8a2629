"""Remedies of a KV pool: shorter or narrower sequences, fewer at once, and of what leaks."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.diagnosis.messages.kind import Domain
from vramledger.diagnosis.remedies_share import less_share
from vramledger.diagnosis.remedy import (
    Basis,
    Case,
    Remedy,
    gained_tokens,
    pool_tokens_of,
    tried_on_plan,
    worst,
)
from vramledger.diagnosis.terms import Stage
from vramledger.ledger import Owner, RankLedger
from vramledger.units import format_bytes


def shorter_context(case: Case) -> Iterator[Remedy]:
    name, longest = case.knobs.length, case.sums.longest_context_tokens
    if name is None or case.facts.stage is not Stage.KV_SIZING or longest is None or longest <= 0:
        return
    now = case.sums.wanted_tokens
    yield Remedy(
        change=f"{name} {f'{now} ' if now else ''}→ {longest}",
        effect=f"one request of that length then fits what is there"
        f"{f'; {now - longest:,} tokens of context less' if now else ''}",
        frees_bytes=case.missing_bytes,
        tokens=0,
        basis=Basis.MESSAGES,
    )


def narrow_kv(case: Case) -> Iterator[Remedy]:
    changes = dict(case.knobs.narrow_kv)
    if not changes or all(case.settings.get(name) == value for name, value in changes.items()):
        return
    text = ", ".join(f"{name} {value}" for name, value in changes.items())
    tried = tried_on_plan(case, changes)
    if tried is not None:
        gained, old = gained_tokens(*tried), pool_tokens_of(tried[0])
        freed = worst(tried[0], _cache) - worst(tried[1], _cache)
        if gained and old:
            effect = f"the pool holds {gained + old:,} tokens where it held {old:,}"
        else:
            effect = f"frees {format_bytes(freed)} of the KV cache a rank, costs no tokens"
        yield Remedy(
            change=text,
            effect=effect,
            frees_bytes=freed if freed > 0 else None,
            tokens=gained,
            basis=Basis.LEDGER,
        )
        return
    needed = case.facts.needed_bytes
    yield Remedy(
        change=text,
        effect="halves the bytes of a 16-bit KV cache"
        + (f": {format_bytes(needed.expected // 2)} less for this request" if needed is not None else ""),
        frees_bytes=None if needed is None else needed.expected // 2,
        basis=Basis.MESSAGES if needed is not None else Basis.RULE,
        needs="--model and --device, for the tokens",
    )


def _cache(rank: RankLedger) -> int:
    return rank.owned(Owner.KV_CACHE).expected


def fewer_requests(case: Case) -> Iterator[Remedy]:
    facts = case.facts
    if facts.domain is not Domain.KV_POOL or facts.pool_loss_tokens is not None:
        return
    name, running = case.knobs.sequences, facts.running_requests
    pool = _pool_tokens(case)
    if name is None:
        return
    if running and pool:
        lower = max(1, running * 9 // 10)
        yield Remedy(
            change=f"{name} → {lower}",
            effect=f"{running} requests filled {pool:,} tokens, {pool // running:,} each; {lower} leave a tenth of the pool free",
            tokens=pool - pool * lower // running,
            basis=Basis.MESSAGES,
        )
        return
    yield Remedy(
        change=f"bound running requests ({name})",
        effect=(f"{pool:,} tokens / " if pool else "the pool's tokens / ")
        + "(prompt + output) of a request is how many it holds",
        basis=Basis.MESSAGES if pool else Basis.RULE,
        needs="the running requests and the pool's tokens (the engine's periodic line)",
    )


def _pool_tokens(case: Case) -> int | None:
    for item in reversed(case.moment.notable):
        for name in ("kv_tokens", "cells_count"):
            tokens = item.values.get(name)
            if isinstance(tokens, int) and not isinstance(tokens, bool):
                return tokens
    return None if case.base is None else pool_tokens_of(case.base)


def leak(case: Case) -> Iterator[Remedy]:
    facts = case.facts
    slope = facts.device_slope_bytes_per_h
    if facts.pool_loss_tokens:
        yield Remedy(
            change="restart the engine, and report the leak with the message's books",
            effect=f"brings {abs(facts.pool_loss_tokens):,} tokens back",
            tokens=abs(facts.pool_loss_tokens),
            basis=Basis.MESSAGES,
        )
    elif slope is not None and slope > 0:
        free = facts.free_bytes.expected if facts.free_bytes is not None else None
        left = "" if free is None else f"; {format_bytes(free)} are left for {free / slope:.1f} h"
        yield Remedy(
            change="restart in turn before the device is full, until the growth is found",
            effect=f"memory rises by {format_bytes(int(slope))} an hour{left}",
            basis=Basis.MESSAGES,
        )
    elif facts.domain is Domain.DEVICE or facts.domain is None:
        yield from less_share(case)
