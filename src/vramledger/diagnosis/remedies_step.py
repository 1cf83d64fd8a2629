"""Remedies that make a step, its sampler and its graphs smaller, or let free pieces be joined."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.diagnosis.messages.kind import Domain
from vramledger.diagnosis.remedy import (
    Basis,
    Case,
    Remedy,
    gained_tokens,
    kv_effect,
    transient_bytes,
    tried_on_plan,
    whole_setting,
    worst,
)
from vramledger.diagnosis.terms import FailureClass, Stage
from vramledger.ledger import Owner, RankLedger
from vramledger.units import format_bytes


def smaller_steps(case: Case) -> Iterator[Remedy]:
    name = case.knobs.chunk
    now = whole_setting(case, name) or case.knobs.usual_chunk
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
    tried = tried_on_plan(case, {name: half})
    if tried is not None:
        before, after = tried
        freed = worst(before, transient_bytes) - worst(after, transient_bytes)
        yield Remedy(
            change=f"{name} {now} → {half}",
            effect=f"frees {format_bytes(freed)} of activation and workspace a rank{kv_effect(gained_tokens(before, after))}",
            frees_bytes=freed,
            tokens=gained_tokens(before, after),
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


def fewer_sequences(case: Case) -> Iterator[Remedy]:
    name, now = case.knobs.sequences, whole_setting(case, case.knobs.sequences)
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
    tried = tried_on_plan(case, {name: now // 2})
    if tried is None:
        yield Remedy(
            change=f"{name} {now} → {now // 2}",
            effect="halves sampler rows and the largest captured size",
            needs="--model and --device",
        )
        return
    freed = worst(tried[0], _sequence_bytes) - worst(tried[1], _sequence_bytes)
    gained = gained_tokens(*tried)
    yield Remedy(
        change=f"{name} {now} → {now // 2}",
        effect=f"frees {format_bytes(freed)} of sampler, activation and graphs a rank{kv_effect(gained)}",
        frees_bytes=freed,
        tokens=gained,
        basis=Basis.LEDGER,
    )


def _sequence_bytes(rank: RankLedger) -> int:
    return transient_bytes(rank) + rank.owned(Owner.GRAPH_POOL).expected


def no_graphs(case: Case) -> Iterator[Remedy]:
    setting = case.knobs.graphs_off
    if setting is None or case.facts.graphs_off is True or case.facts.stage is not Stage.GRAPH_CAPTURE:
        return
    tried = tried_on_plan(case, {setting[0]: setting[1]})
    freed = None
    if tried is not None:
        freed = worst(tried[0], _graphs) - worst(tried[1], _graphs)
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


def expandable_segments(case: Case) -> Iterator[Remedy]:
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
