"""What would help, and by how many bytes or tokens: changes tried on the ledger where the model is known, else sized from what
the log and the message state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from math import ceil, floor

from msgspec import Struct

from vramledger.answer import Plan
from vramledger.diagnosis.arithmetic import Arithmetic
from vramledger.diagnosis.facts import Facts
from vramledger.diagnosis.knobs import Knobs, knobs_of
from vramledger.diagnosis.messages.kind import Domain, Standing
from vramledger.diagnosis.moment import Moment
from vramledger.diagnosis.rules_arithmetic import slack_covers
from vramledger.diagnosis.terms import FailureClass, Stage
from vramledger.errors import VramledgerError
from vramledger.ledger import Owner, Phase, RankLedger
from vramledger.observation import Value
from vramledger.units import format_bytes

# The plan of the failing instance with some flags changed; raises VramledgerError where it cannot be made.
Planner = Callable[[Mapping[str, object]], Plan]

MOST = 3
SHARE_STEP = 0.01
_TRANSIENT = frozenset({Owner.ACTIVATION, Owner.WORKSPACE})


class Basis(StrEnum):
    """Where a remedy's size is from; a rule gives none."""

    LEDGER = "ledger"
    MESSAGES = "messages"
    RULE = "rule"


class Remedy(Struct, frozen=True, kw_only=True):
    """One change. `frees_bytes` is what it frees for what failed, on the fullest rank; `tokens` what the KV pool gains or loses.
    None where that cannot be said. `needs` is what would size it."""

    change: str
    effect: str
    frees_bytes: int | None = None
    tokens: int | None = None
    basis: Basis = Basis.RULE
    needs: str = ""


class Case(Struct, frozen=True, kw_only=True):
    """One failure and what is known to size remedies with."""

    facts: Facts
    moment: Moment
    sums: Arithmetic
    failure_class: FailureClass | None
    planner: Planner | None = None
    base: Plan | None = None

    @property
    def knobs(self) -> Knobs:
        return knobs_of(self.facts.engine)

    @property
    def settings(self) -> Mapping[str, Value]:
        planned = {} if self.base is None else dict(self.base.inputs.settings)
        return {**planned, **self.facts.settings}

    @property
    def missing_bytes(self) -> int | None:
        missing = self.sums.missing_bytes
        return None if missing is None else missing.high


def remedies(
    facts: Facts,
    moment: Moment,
    sums: Arithmetic,
    failure_class: FailureClass | None,
    planner: Planner | None = None,
    base: Plan | None = None,
) -> tuple[Remedy, ...]:
    """At most three, the one that costs least of those that are large enough first. `base` is the failing instance's plan, what
    `planner` gives without changes."""
    case = Case(
        facts=facts,
        moment=moment,
        sums=sums,
        failure_class=failure_class,
        planner=planner,
        base=base,
    )
    found: dict[str, Remedy] = {}
    for item in _candidates(case):
        found.setdefault(item.change, item)
    missing = case.missing_bytes or 0
    ranked = sorted(
        enumerate(found.values()),
        key=lambda pair: (
            pair[1].frees_bytes is not None and pair[1].frees_bytes < missing,
            pair[0],
        ),
    )
    return tuple(item for _, item in ranked[:MOST])


def _candidates(case: Case) -> Iterator[Remedy]:
    facts = case.facts
    if facts.standing is Standing.BENIGN:
        return
    if facts.domain is Domain.REQUEST_SLOTS:
        yield from _slots(case)
        return
    if facts.domain in (Domain.SHARED_MEMORY_PER_BLOCK, Domain.NONE, Domain.SHARED_SEGMENT):
        yield from _not_memory(case)
        return
    if facts.domain is Domain.HOST:
        yield from _host(case)
        return
    if facts.domain is Domain.KV_POOL:
        yield from _pool(case)
        return
    if slack_covers(facts) and facts.domain is Domain.DEVICE:
        yield from _expandable(case)
    match case.failure_class:
        case FailureClass.LOAD_TIME:
            yield from _others(case)
            yield from _startup_share(case)
            yield from _feasible_share(case)
            if facts.stage is not Stage.STARTUP_CHECK:
                yield from _static_set(case)
        case FailureClass.WARM_UP:
            yield from _fewer_sequences(case)
            yield from _smaller_steps(case)
            yield from _less_share(case)
            yield from _no_graphs(case)
        case FailureClass.PREFILL_SPIKE:
            yield from _smaller_steps(case)
            yield from _less_share(case)
            yield from _expandable(case)
        case FailureClass.DECODE_GROWTH:
            yield from _cap(case)
            yield from _narrow_kv(case)
            yield from _leak(case)
        case FailureClass.FRAGMENTATION:
            yield from _expandable(case)
            yield from _less_share(case)
            yield from _smaller_steps(case)
        case FailureClass.RECOVERY:
            yield from _others(case)
            yield from _wait(case)
        case _:
            yield from _less_share(case)


def _static_set(case: Case) -> Iterator[Remedy]:
    """Of a static set that does not fit: KV only where KV was asked for."""
    if case.facts.stage in (Stage.KV_SIZING, Stage.KV_ALLOC, None):
        yield from _shorter(case)
        yield from _narrow_kv(case)
        yield from _more_share(case)
    yield from _more_ranks(case)


def transient_bytes(rank: RankLedger) -> int:
    """What a step holds of activations and workspaces at its worst."""
    return max(
        sum(
            entry.bytes.expected
            for entry in rank.entries
            if entry.owner in _TRANSIENT and phase in entry.phases
        )
        for phase in Phase
    )


def _worst(plan: Plan, measure: Callable[[RankLedger], int]) -> int:
    return max((measure(rank) for rank in plan.ranks), default=0)


def _tokens(plan: Plan) -> int | None:
    return None if plan.kv_pool is None else plan.kv_pool.tokens.expected


def _tried(case: Case, changes: Mapping[str, object]) -> tuple[Plan, Plan] | None:
    """The plan as it is and as it would be; None where there is no planner or the change cannot be planned."""
    if case.planner is None or case.base is None:
        return None
    try:
        return case.base, case.planner(changes)
    except VramledgerError:
        return None


def _gained(before: Plan, after: Plan) -> int | None:
    old, new = _tokens(before), _tokens(after)
    return None if old is None or new is None else new - old


def _kv_effect(gained: int | None) -> str:
    if gained is None:
        return ""
    if gained == 0:
        return ", costs no KV"
    return f", {'adds' if gained > 0 else 'costs'} {abs(gained):,} KV tokens"


def _number(case: Case, name: str | None) -> int | None:
    value = None if name is None else case.settings.get(name)
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return value if isinstance(value, int) and value > 0 else None


def _ratio(case: Case, name: str | None) -> float | None:
    value = None if name is None else case.settings.get(name)
    if isinstance(value, float) and 0 < value <= 1:
        return value
    return case.knobs.default_share if value is None else None


def _smaller_steps(case: Case) -> Iterator[Remedy]:
    name = case.knobs.chunk
    now = _number(case, name) or case.knobs.usual_chunk
    if name is None:
        return
    if now is None or now < 2:
        yield Remedy(
            change=f"lower {name}",
            effect="activations of a step shrink with the tokens in it",
            needs=f"the value of {name}",
        )
        return
    half = now // 2
    tried = _tried(case, {name: half})
    if tried is not None:
        before, after = tried
        freed = _worst(before, transient_bytes) - _worst(after, transient_bytes)
        yield Remedy(
            change=f"{name} {now} → {half}",
            effect=f"frees {format_bytes(freed)} of activation and workspace a rank{_kv_effect(_gained(before, after))}",
            frees_bytes=freed,
            tokens=_gained(before, after),
            basis=Basis.LEDGER,
        )
        return
    peak = case.facts.activation_bytes
    if peak is not None:
        yield Remedy(
            change=f"{name} {now} → {half}",
            effect=f"frees up to {format_bytes(peak.expected // 2)} of the profiled activation peak of "
            f"{format_bytes(peak.expected)} (in proportion)",
            frees_bytes=peak.expected // 2,
            basis=Basis.MESSAGES,
        )
        return
    wanted = case.facts.requested_bytes
    halves = (
        f"; the request of {format_bytes(wanted.expected)} halves if it scales with the step"
        if wanted
        else ""
    )
    yield Remedy(
        change=f"{name} {now} → {half}",
        effect=f"halves the tokens of a step{halves}",
        frees_bytes=wanted.expected // 2 if wanted is not None else None,
        basis=Basis.MESSAGES if wanted is not None else Basis.RULE,
        needs="--model and --device",
    )


def _less_share(case: Case) -> Iterator[Remedy]:
    name, share = case.knobs.share, _ratio(case, case.knobs.share)
    total = case.facts.total_bytes
    if name is None:
        return
    if share is None or (total is None and case.base is None):
        yield Remedy(
            change=f"lower {name}",
            effect="every hundredth leaves a hundredth of the device outside the pool",
            needs=f"the value of {name} and the device's size",
        )
        return
    size = total.expected if total is not None else case.base.inputs.device_total_bytes  # type: ignore[union-attr]
    missing = case.missing_bytes or 0
    steps = max(1, ceil(missing / (SHARE_STEP * size)))
    lower = round(share - steps * SHARE_STEP, 4)
    if lower <= 0:
        return
    freed = int((share - lower) * size)
    tried = _tried(case, {name: lower})
    tokens = None if tried is None else _gained(*tried)
    basis = Basis.LEDGER
    if tokens is None:
        basis, per_token = Basis.MESSAGES, _bytes_per_token(case)
        tokens = None if per_token is None else -floor(freed / per_token)
    yield Remedy(
        change=f"{name} {share:g} → {lower:g}",
        effect=f"leaves {format_bytes(freed)} more outside the pool{_kv_effect(tokens)}",
        frees_bytes=freed,
        tokens=tokens,
        basis=basis,
        needs="" if tokens is not None else "--model and --device, for the KV tokens that it costs",
    )


def _bytes_per_token(case: Case) -> float | None:
    """By the log's own pool: its bytes over its tokens."""
    pool = case.facts.pool_bytes
    for item in case.moment.notable:
        tokens = item.values.get("kv_tokens", item.values.get("cells_count"))
        if pool is not None and isinstance(tokens, int) and tokens > 0:
            return pool.expected / tokens
    needed, length = case.facts.needed_bytes, case.sums.wanted_tokens
    return needed.expected / length if needed is not None and length else None


def _more_share(case: Case) -> Iterator[Remedy]:
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
    name, share = case.knobs.share, _ratio(case, case.knobs.share)
    total = case.facts.total_bytes or case.moment.sizes.get("total_bytes")
    size = (
        total.expected
        if total is not None
        else None
        if case.base is None
        else case.base.inputs.device_total_bytes
    )
    if name is None or share is None or size is None:
        return
    steps = max(1, ceil((case.missing_bytes or 0) / (SHARE_STEP * size)))
    higher = round(share + steps * SHARE_STEP, 4)
    if higher > 0.97:
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
        tried = _tried(case, {"kv_cache_memory_bytes": needed})
        if tried is not None and tried[1].verdict.holds:
            gained = _gained(*tried)
            return Remedy(
                change=f"kv_cache_memory_bytes {pool.bytes.expected} → {needed}",
                effect=f"holds one request of {pool.context_len:,} tokens{_kv_effect(gained)}",
                frees_bytes=needed - pool.bytes.expected,
                tokens=gained,
                basis=Basis.LEDGER,
            )
    return None


def _startup_share(case: Case) -> Iterator[Remedy]:
    name, share = case.knobs.share, _ratio(case, case.knobs.share)
    largest = case.sums.largest_share
    if name is None or largest is None or largest <= 0:
        return
    tried = _tried(case, {name: largest})
    tokens = None if tried is None else _tokens(tried[1])
    left = "" if tokens is None else f"; the pool then holds {tokens:,} tokens"
    size = case.sums.total_bytes
    yield Remedy(
        change=f"{name} {f'{share:g} ' if share else ''}→ {largest:g}",
        effect=f"the largest that passes the start-up check while others hold what they hold"
        f"{f', {format_bytes(int(largest * size.expected))} in all' if size is not None else ''}{left}",
        basis=Basis.LEDGER if tokens is not None else Basis.MESSAGES,
        needs="" if tokens is not None else "--model, for the KV tokens that it leaves",
    )


def _feasible_share(case: Case) -> Iterator[Remedy]:
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


def _shorter(case: Case) -> Iterator[Remedy]:
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


def _narrow_kv(case: Case) -> Iterator[Remedy]:
    changes = dict(case.knobs.narrow_kv)
    if not changes or all(case.settings.get(name) == value for name, value in changes.items()):
        return
    text = ", ".join(f"{name} {value}" for name, value in changes.items())
    tried = _tried(case, changes)
    if tried is not None:
        gained, old = _gained(*tried), _tokens(tried[0])
        freed = _worst(tried[0], _cache) - _worst(tried[1], _cache)
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


def _more_ranks(case: Case) -> Iterator[Remedy]:
    name = case.knobs.parallel
    if name is None:
        return
    now = _number(case, name) or 1
    tried = _tried(case, {name: 2 * now})
    effect, freed, basis = "each rank holds half of what is cut over ranks", None, Basis.RULE
    if tried is not None:
        freed = _worst(tried[0], _static) - _worst(tried[1], _static)
        effect, basis = f"weights of a rank shrink by {format_bytes(freed)}", Basis.LEDGER
    else:
        weights = case.facts.weights_bytes
        if weights is not None:
            freed, basis = weights.expected // 2, Basis.MESSAGES
            effect = (
                f"about {format_bytes(freed)} of {format_bytes(weights.expected)} of weights leave this rank"
            )
    yield Remedy(
        change=f"{name} {now} → {2 * now}",
        effect=effect,
        frees_bytes=freed,
        basis=basis,
        needs="" if freed is not None else "--model and --device",
    )


def _static(rank: RankLedger) -> int:
    return rank.owned(Owner.WEIGHTS).expected


def _fewer_sequences(case: Case) -> Iterator[Remedy]:
    name, now = case.knobs.sequences, _number(case, case.knobs.sequences)
    if name is None or case.facts.stage not in (
        Stage.SAMPLER_WARMUP,
        Stage.GRAPH_CAPTURE,
        Stage.WARMUP_FORWARD,
        Stage.PROFILE_RUN,
        None,
    ):
        return
    if now is None or now < 2:
        yield Remedy(
            change=f"lower {name}",
            effect="sampler rows and captured sizes shrink with it",
            needs=f"the value of {name}",
        )
        return
    tried = _tried(case, {name: now // 2})
    if tried is None:
        yield Remedy(
            change=f"{name} {now} → {now // 2}",
            effect="halves sampler rows and the largest captured size",
            needs="--model and --device",
        )
        return
    freed = _worst(tried[0], _sequence_bytes) - _worst(tried[1], _sequence_bytes)
    gained = _gained(*tried)
    yield Remedy(
        change=f"{name} {now} → {now // 2}",
        effect=f"frees {format_bytes(freed)} of sampler, activation and graphs a rank{_kv_effect(gained)}",
        frees_bytes=freed,
        tokens=gained,
        basis=Basis.LEDGER,
    )


def _sequence_bytes(rank: RankLedger) -> int:
    return transient_bytes(rank) + rank.owned(Owner.GRAPH_POOL).expected


def _no_graphs(case: Case) -> Iterator[Remedy]:
    setting = case.knobs.graphs_off
    if setting is None or case.facts.graphs_off is True or case.facts.stage is not Stage.GRAPH_CAPTURE:
        return
    tried = _tried(case, {setting[0]: setting[1]})
    freed = None
    if tried is not None:
        freed = _worst(tried[0], _graphs) - _worst(tried[1], _graphs)
    elif case.facts.graph_bytes is not None:
        freed = case.facts.graph_bytes.expected
    yield Remedy(
        change=f"{setting[0]}={setting[1]}",
        effect=f"no graphs{f': frees {format_bytes(freed)}' if freed else ''}; steps are launched one kernel at a time, which costs speed",
        frees_bytes=freed,
        basis=Basis.RULE if freed is None else Basis.LEDGER if tried is not None else Basis.MESSAGES,
    )


def _graphs(rank: RankLedger) -> int:
    return rank.owned(Owner.GRAPH_POOL).expected


def _expandable(case: Case) -> Iterator[Remedy]:
    if not case.knobs.expandable or case.facts.domain not in (Domain.DEVICE, None):
        return
    slack, wanted = case.facts.slack_bytes, case.facts.requested_bytes
    if slack is None or wanted is None:
        if case.failure_class is FailureClass.FRAGMENTATION:
            yield Remedy(change=case.knobs.expandable, effect="free pieces of the allocator can be joined")
        return
    room = slack.expected + (0 if case.facts.free_bytes is None else case.facts.free_bytes.expected)
    if room < wanted.expected:
        return
    yield Remedy(
        change=case.knobs.expandable,
        effect=f"makes {format_bytes(slack.expected)} of reserved pieces usable for the request of "
        f"{format_bytes(wanted.expected)}; not together with a sleep mode that maps memory itself",
        frees_bytes=slack.expected,
        tokens=0,
        basis=Basis.MESSAGES,
    )


def _others(case: Case) -> Iterator[Remedy]:
    held = case.facts.others_bytes
    if (
        held is None
        and case.sums.largest_share is not None
        and case.sums.total_bytes
        and case.sums.available_bytes
    ):
        held = case.sums.total_bytes - case.sums.available_bytes
    if held is None or case.sums.total_bytes is None or held.expected < case.sums.total_bytes.expected // 20:
        return
    if (case.facts.siblings_alike or 0) > 0:
        yield Remedy(
            change="give each rank its own device (CUDA_VISIBLE_DEVICES, local rank)",
            effect=f"{case.facts.siblings_alike} more processes of this size are on the device",
            frees_bytes=held.expected,
            basis=Basis.MESSAGES,
        )
        return
    yield Remedy(
        change="end or move what else holds the device (nvidia-smi names its processes)",
        effect=f"frees up to {format_bytes(held.expected)}",
        frees_bytes=held.expected,
        basis=Basis.MESSAGES,
    )


def _wait(case: Case) -> Iterator[Remedy]:
    ago = case.facts.previous_engine_s
    yield Remedy(
        change="start again once the previous holder has given its memory back; do not lower the share for it",
        effect="wait until free memory is what an empty device has"
        + (f"; the previous engine's last line is {ago:.0f} s older" if ago is not None else ""),
        frees_bytes=None if case.sums.missing_bytes is None else case.sums.missing_bytes.expected,
        basis=Basis.MESSAGES if case.sums.missing_bytes is not None else Basis.RULE,
    )


def _pool(case: Case) -> Iterator[Remedy]:
    """Of a pool that ran full: fewer requests at once, narrower KV, a larger pool; of broken books a restart."""
    if case.failure_class is FailureClass.RECOVERY:
        yield from _wait(case)
    yield from _cap(case)
    yield from _narrow_kv(case)
    yield from _larger_pool(case)
    if case.facts.pool_loss_tokens:
        yield from _leak(case)


def _larger_pool(case: Case) -> Iterator[Remedy]:
    if case.facts.pool_loss_tokens:
        return
    if case.knobs.share is None:
        name, now = case.knobs.length, _number(case, case.knobs.length)
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
    share, size = _ratio(case, case.knobs.share), _device_bytes(case)
    if share is None or size is None or share + 0.02 > 0.97:
        return
    tried = _tried(case, {case.knobs.share: round(share + 0.02, 4)})
    per_token = _bytes_per_token(case)
    tokens = (
        _gained(*tried) if tried is not None else None if per_token is None else int(0.02 * size / per_token)
    )
    if tokens is None:
        return
    yield Remedy(
        change=f"{case.knobs.share} {share:g} → {share + 0.02:g}",
        effect=f"adds {tokens:,} KV tokens; {format_bytes(int(0.02 * size))} less are left for activations",
        tokens=tokens,
        basis=Basis.LEDGER if tried is not None else Basis.MESSAGES,
    )


def _device_bytes(case: Case) -> int | None:
    total = case.facts.total_bytes or case.moment.sizes.get("total_bytes")
    if total is not None:
        return total.expected
    return None if case.base is None else case.base.inputs.device_total_bytes


def _cap(case: Case) -> Iterator[Remedy]:
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
    return None if case.base is None else _tokens(case.base)


def _leak(case: Case) -> Iterator[Remedy]:
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
        yield from _less_share(case)


def _shorter_context(case: Case) -> Iterator[Remedy]:
    """Of a KV cache that is allocated for the whole context at once."""
    facts, name = case.facts, case.knobs.length
    now = _number(case, name)
    if facts.stage is not Stage.KV_ALLOC or name is None or now is None or facts.requested_bytes is None:
        return
    half = facts.requested_bytes.expected // 2
    yield Remedy(
        change=f"{name} {now} → {now // 2}",
        effect=f"this allocation shrinks by {format_bytes(half)}, costs {now // 2:,} KV tokens",
        frees_bytes=half,
        tokens=-(now // 2),
        basis=Basis.MESSAGES,
    )


def _host(case: Case) -> Iterator[Remedy]:
    facts = case.facts
    yield from _shorter_context(case)
    base = case.base
    if (
        base is not None
        and base.ranks
        and facts.stage in (None, Stage.STARTING, Stage.HOST_LOAD, Stage.WEIGHT_LOAD)
    ):
        peak = max((rank.weights.host_peak_bytes for rank in base.ranks), key=lambda size: size.expected)
        ranks = sum(len(rank.ranks) for rank in base.ranks)
        yield Remedy(
            change=f"give the host at least {format_bytes(peak.expected * ranks)} while weights are read",
            effect=f"{ranks} loaders of {format_bytes(peak.expected)} each at their peak",
            frees_bytes=None,
            basis=Basis.LEDGER,
        )
    if facts.needed_bytes is not None and facts.available_bytes is not None:
        short = facts.needed_bytes.expected - facts.available_bytes.expected
        yield Remedy(
            change=f"a host with {format_bytes(short)} more memory, or a smaller model or format",
            effect=f"{format_bytes(facts.needed_bytes.expected)} are needed",
            frees_bytes=short,
            basis=Basis.MESSAGES,
        )
    elif facts.requested_bytes is not None:
        yield Remedy(
            change=f"leave room for {format_bytes(facts.requested_bytes.expected)} more under the process's limit (ulimit -v, cgroup)",
            effect="one allocation of that size was refused",
            frees_bytes=facts.requested_bytes.expected,
            basis=Basis.MESSAGES,
        )
    resident = facts.resident_bytes
    yield Remedy(
        change="raise the container's or host's limit, or let fewer processes load at once",
        effect=f"the killed process had {format_bytes(resident.expected)} resident" if resident else "",
        needs="" if resident else "the kernel's line, for what the process had resident",
    )


def _slots(case: Case) -> Iterator[Remedy]:
    name = case.knobs.sequences or "the number of request slots"
    yield Remedy(
        change=f"raise {name}, or send fewer requests at once", effect="slots are counted, not bytes"
    )


def _not_memory(case: Case) -> Iterator[Remedy]:
    facts = case.facts
    if facts.domain is Domain.SHARED_SEGMENT:
        yield Remedy(
            change="a larger /dev/shm (--shm-size, an emptyDir of medium Memory)", effect="the mount was full"
        )
    elif facts.requested_bytes is not None and facts.domain is Domain.SHARED_MEMORY_PER_BLOCK:
        yield Remedy(
            change="another kernel, smaller blocks or fewer stages; no memory flag helps",
            effect=f"the kernel wants {facts.requested_bytes.expected:,} bytes of on-chip memory a block",
            basis=Basis.MESSAGES,
        )
