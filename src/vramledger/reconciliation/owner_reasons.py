"""Reasons by what a line is of: weights, activation, graphs, and lines that rest on observations."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.evidence import EvidenceKind
from vramledger.ledger import Owner, Phase
from vramledger.reconciliation.reason_facts import LEAST_SHARE, Facts, shared, signed
from vramledger.reconciliation.result import Cause, Line, Reason, Section
from vramledger.units import format_bytes

_FAR_FROM_CHANCE = 8
_MOST_NAMES = 4
_PLAIN = frozenset({"", "none", "bfloat16", "bf16", "float16", "f16", "float32", "f32"})


def weights_of_a_size(line: Line, facts: Facts) -> Iterator[Reason]:
    """The difference is the size of one line: it is held twice, or not at all."""
    difference = line.difference
    if Owner.WEIGHTS not in line.owners or not difference or line.measured is None:
        return
    rounding = line.measured.high - line.measured.low
    slack = max(rounding, abs(difference) * LEAST_SHARE)
    for entry in facts.entries(line):
        size = entry.bytes.expected
        # A size of a few roundings would be met by chance.
        if size >= _FAR_FROM_CHANCE * rounding and abs(abs(difference) - size) <= slack:
            how = "is held a second time" if difference > 0 else "is not held"
            explains = size if difference > 0 else -size
            yield Reason(
                cause=Cause.WEIGHT_FORMAT,
                text=f"{entry.name} {how}",
                evidence=(
                    f"the ledger has {format_bytes(size)} for it, the difference is {signed(difference)}",
                ),
                explains=explains,
                share=shared(line, explains),
            )


def draft_and_adapters(line: Line, facts: Facts) -> Iterator[Reason]:
    """What is loaded with the weights and was not planned, or the other way round."""
    if Owner.WEIGHTS not in line.owners or not line.difference:
        return
    planned = {
        entry.name
        for rank in facts.plan.ranks
        for entry in rank.entries
        if entry.owner in (Owner.WEIGHTS, Owner.ADAPTERS)
    }
    speculative = next(
        (name for name, value in facts.measurement.settings if "speculative" in name and value not in ("None", "", False, 0)), None
    )  # fmt: skip
    if (speculative is not None) != ("draft model" in planned) and facts.measurement.settings:
        more = speculative is not None
        if more == (line.difference > 0):
            yield Reason(
                cause=Cause.DRAFT,
                text="a draft model is loaded that was not planned" if more else "no draft model is loaded, one was planned",
                evidence=(f"{speculative} is {facts.setting(speculative or '')}",) if speculative else ("no speculative setting was printed",),
            )  # fmt: skip
    adapters = facts.setting("enable_lora") in (True, "True")
    if adapters and not any(
        entry.owner is Owner.ADAPTERS for rank in facts.plan.ranks for entry in rank.entries
    ):
        yield Reason(
            cause=Cause.ADAPTERS,
            text="slots for adapters are held that were not planned",
            evidence=("enable_lora is True",),
        )


def quantised_weights(line: Line, facts: Facts) -> Iterator[Reason]:
    """Layers that stay as they were, and layouts of kernels: what a quantised model holds beside its files."""
    plain = facts.plan.inputs.quantization.lower() in _PLAIN
    if Owner.WEIGHTS not in line.owners or plain or not line.difference:
        return
    direction = "more" if line.difference > 0 else "less"
    yield Reason(
        cause=Cause.WEIGHT_FORMAT,
        text=f"layers kept unquantised, or repacked for a kernel, hold {direction} than planned",
        evidence=(f"the weights are {facts.plan.inputs.quantization}",),
    )


def modelled_activation(line: Line, facts: Facts) -> Iterator[Reason]:
    """The peak of a step is a model of it, with the spread of the logs that print it."""
    if Owner.ACTIVATION not in line.owners or line.predicted is None or line.measured is None:
        return
    ratio = line.measured.expected / line.predicted.expected if line.predicted.expected else None
    entries = [entry for entry in facts.entries(line) if entry.owner is Owner.ACTIVATION]
    word = "higher" if (line.difference or 0) > 0 else "lower"
    yield Reason(
        cause=Cause.ACTIVATION,
        text=f"the real peak is {word} than its model"
        + (f", {ratio:.2f} times" if ratio is not None else ""),
        evidence=tuple(dict.fromkeys(entry.evidence.source for entry in entries)),
    )


def graphs_beside_capture(line: Line, facts: Facts) -> Iterator[Reason]:
    """An estimate before the pool is made, and what captures took after it, are two figures."""
    if Owner.GRAPH_POOL not in line.owners or line.measured is None:
        return
    others = [
        item
        for item in facts.lines
        if item is not line and item.section in (Section.LEDGER, Section.GRAPHS) and item.owners == (Owner.GRAPH_POOL,)
        and item.measured is not None and item.predicted is not None
    ]  # fmt: skip
    for other in others:
        if other.measured is not None:
            yield Reason(
                cause=Cause.GRAPHS,
                text=f"{line.name} is {format_bytes(int(line.measured.expected))}, "
                f"{other.name} {format_bytes(int(other.measured.expected))}",
                evidence=("the engine's estimate and what its captures took differ",),
            )


def unmeasured_terms(line: Line, facts: Facts) -> Iterator[Reason]:
    """What else the pool is made smaller by, of which nothing was measured: the widest ranges first."""
    rank = facts.rank(line) if line.section is Section.LEDGER else next(iter(facts.plan.ranks), None)
    if rank is None or (
        line.section is not Section.POOL and not any(item.is_remainder for item in facts.entries(line))
    ):
        return
    told = {
        name
        for item in facts.lines
        if item.section is Section.LEDGER and item.ranks == rank.ranks and item.measured is not None
        for name in item.entries
    }
    left = [
        entry
        for entry in rank.entries
        if entry.inside_budget and entry.name not in told and not entry.bytes.is_exact and not entry.is_remainder
        and Phase.WARMUP in entry.phases and entry.owner is not Owner.KV_CACHE
    ]  # fmt: skip
    if not left or not any(entry.is_remainder for entry in rank.entries):
        return
    left.sort(key=lambda entry: entry.bytes.low - entry.bytes.high)
    yield Reason(
        cause=Cause.UNMEASURED,
        text=f"{len(left)} charged lines are not measured, the widest {left[0].name}",
        evidence=tuple(
            f"{entry.name}: {format_bytes(entry.bytes.low)} to {format_bytes(entry.bytes.high)}"
            for entry in left[:_MOST_NAMES]
        ),
    )


def observed_ranges(line: Line, facts: Facts) -> Iterator[Reason]:
    """Lines that rest on observations elsewhere: their range is that of what was seen, and this is one more."""
    weak = (EvidenceKind.ASSUMED, EvidenceKind.REPORTED)
    found = [entry for entry in facts.entries(line) if entry.evidence.kind in weak]
    for entry in found[:3]:
        yield Reason(
            cause=Cause.OBSERVED_RANGE,
            text=f"{entry.name} is {entry.evidence.kind.value}, {format_bytes(entry.bytes.low)} to {format_bytes(entry.bytes.high)}",
            evidence=(entry.evidence.source,),
        )
