"""Why a line is outside: rules in the order in which they are asked, each with the evidence for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.evidence import EvidenceKind
from vramledger.ledger import ByteRange, Entry, Owner, Phase, RankLedger
from vramledger.measurement import Measurement
from vramledger.reconciliation.allocator_lines import BEFORE_LOAD
from vramledger.reconciliation.result import (
    Budget,
    Cause,
    Line,
    Number,
    Reason,
    Section,
    SettingDifference,
    Standing,
    Unit,
)
from vramledger.reconciliation.trials import Trials, moves
from vramledger.units import format_bytes

_LEAST_SHARE = 0.02
_WORTH_TELLING = 0.005
_FAR_FROM_CHANCE = 8
_MOST_NAMES = 4
_MODEL = ("model", "architecture")
_PLAIN = frozenset({"", "none", "bfloat16", "bf16", "float16", "f16", "float32", "f32"})


class Facts(Struct, frozen=True, kw_only=True):
    """What the rules look at. `lines` are all lines as they stand, without reasons."""

    plan: Plan
    measurement: Measurement
    differences: tuple[SettingDifference, ...]
    lines: tuple[Line, ...]
    trials: Trials
    budget: Budget | None
    remade: dict[int, tuple[Line, ...]]

    def entries(self, line: Line) -> list[Entry]:
        """The ledger's lines that a line covers."""
        rank = self.rank(line)
        return [] if rank is None else [entry for entry in rank.entries if entry.name in line.entries]

    def rank(self, line: Line) -> RankLedger | None:
        return next((item for item in self.plan.ranks if item.ranks == line.ranks), None)

    def setting(self, name: str) -> object:
        return dict(self.measurement.settings).get(name)


Rule = Callable[[Line, Facts], Iterator[Reason]]


def with_reasons(line: Line, facts: Facts, rules: Sequence[Rule]) -> Line:
    """The line with its reasons: what was computed first, what explains most nearly all of it before the rest, then what is
    only likely. Nothing that is only likely is told where a computed reason leaves nothing to explain."""
    if line.standing is not Standing.OUTSIDE:
        return line
    found = [reason for rule in rules for reason in rule(line, facts)]
    computed = sorted(
        (reason for reason in found if reason.explains is not None),
        key=lambda reason: (abs(1 - (reason.share or 0)), len(reason.evidence)),
    )
    is_explained = bool(computed) and abs(1 - (computed[0].share or 0)) <= _LEAST_SHARE
    likely = [] if is_explained else [reason for reason in found if reason.explains is None]
    rest = _unaccounted(line, computed, is_alone=not found)
    return replace(line, reasons=(*computed, *likely, *rest))


def shared(line: Line, explains: Number) -> float | None:
    """The part of the line's difference, None for a difference of nothing."""
    difference = line.difference
    return explains / difference if difference else None


def other_settings(line: Line, facts: Facts) -> Iterator[Reason]:
    """A setting that differs: how much of the difference goes away under the measured one, or that it may matter."""
    if not facts.differences:
        return
    by_name = {item.name: item for item in facts.differences}
    tried: set[str] = set()
    for trial, moved in moves(facts.trials, lambda plan: _again(line, plan, facts)):
        tried.update(trial.names)
        share = shared(line, moved)
        if share is None or share < _LEAST_SHARE:
            continue
        told = [_told(by_name[name]) for name in trial.names]
        cause = Cause.OTHER_DEVICE if trial.names == ("device_total_bytes",) else Cause.OTHER_SETTING
        text = told[0] if len(told) == 1 else f"all {len(told)} settings that differ, together"
        yield Reason(
            cause=cause,
            text=text,
            evidence=tuple(told) if len(told) > 1 else ("a plan under the measured setting",),
            explains=moved,
            share=share,
            is_tested=True,
        )
    model = [_told(item) for item in by_name.values() if item.name in _MODEL]
    if model:
        yield Reason(cause=Cause.OTHER_MODEL, text="; ".join(model), evidence=("plan the model that ran",))
    open_ones = [item for name, item in by_name.items() if name not in (*tried, *_MODEL)]
    if open_ones:
        yield Reason(
            cause=Cause.OTHER_SETTING,
            text=f"{'; '.join(_told(item) for item in open_ones)}: not tried",
            evidence=("no plan could be made under it",)
            if facts.trials.again is not None
            else ("name the model with --model to have it tried",),
        )


def _told(item: SettingDifference) -> str:
    return f"{item.name} is {item.measured}, planned {item.planned}"


def _again(line: Line, plan: Plan, facts: Facts) -> Number | None:
    """What another plan predicts for a line: that of the same place among its own lines."""
    for other in facts.remade.get(id(plan), ()):
        if (other.section, other.name, other.unit) == (line.section, line.name, line.unit) and (
            other.ranks == line.ranks or len(facts.plan.ranks) == 1
        ):
            return None if other.predicted is None else other.predicted.expected
    return None


def consequence(line: Line, facts: Facts) -> Iterator[Reason]:
    """The remainder takes what the other charged lines leave: the pool that the budget leaves with measured terms says how much
    of its difference is theirs."""
    budget = facts.budget
    if budget is None or not (
        budget.measured_terms or budget.budget_bytes.expected != facts.plan.budget_bytes
    ):
        return
    is_pool = line.section is Section.POOL or any(item.is_remainder for item in facts.entries(line))
    per_unit = _unit_bytes(line, facts.plan)
    if not is_pool or not per_unit:
        return
    moved = budget.pool_bytes.expected - budget.planned_bytes.expected
    explains = moved / per_unit if line.unit is not Unit.BYTES else moved
    share = shared(line, explains)
    if share is None or share < _LEAST_SHARE:
        return
    evidence = [f"{item.name}: {_signed(item.difference or 0)}" for item in _charged_lines(budget, facts)]
    other = budget.budget_bytes.expected - facts.plan.budget_bytes
    if other:
        evidence.insert(0, f"the budget of this device: {_signed(other)}")
    yield Reason(
        cause=Cause.CONSEQUENCE,
        text="it is what the other lines leave of the budget",
        evidence=tuple(evidence),
        explains=explains if line.unit is Unit.REQUESTS else int(explains),
        share=share,
    )


def _charged_lines(budget: Budget, facts: Facts) -> list[Line]:
    """Lines that moved the pool, the largest difference first: of lines within lines the wide one, of two over the same entries
    the one that is charged."""
    rank = next((item for item in facts.plan.ranks if item.ranks == budget.ranks), None)
    if rank is None:
        return []
    told: dict[frozenset[str], Line] = {}
    for item in facts.lines:
        if (
            item.section is Section.LEDGER
            and item.ranks == rank.ranks
            and item.difference
            and _is_charged_rest(item, rank)
        ):
            of = frozenset(item.entries)
            if of not in told or item.name in budget.measured_terms:
                told[of] = item
    widest = [item for of, item in told.items() if not any(of < other for other in told)]
    return sorted(widest, key=lambda item: -abs(item.difference or 0))


def _is_charged_rest(line: Line, rank: RankLedger) -> bool:
    """Whether a line speaks of charged entries only, none of them the remainder."""
    found = [entry for entry in rank.entries if entry.name in line.entries and entry.owner in line.owners]
    return bool(found) and all(entry.inside_budget and not entry.is_remainder for entry in found)


def _unit_bytes(line: Line, plan: Plan) -> float:
    """Bytes of one unit of a pool line, by the plan's own pool."""
    pool = plan.kv_pool
    if line.unit is Unit.BYTES:
        return 1
    if pool is None:
        return 0
    counts = {
        Unit.BLOCKS: pool.num_blocks.expected,
        Unit.TOKENS: pool.tokens.expected,
        Unit.REQUESTS: pool.max_concurrency.expected,
    }
    count = counts[line.unit]
    return pool.bytes.expected / count if count else 0


def weights_of_a_size(line: Line, facts: Facts) -> Iterator[Reason]:
    """The difference is the size of one line: it is held twice, or not at all."""
    difference = line.difference
    if Owner.WEIGHTS not in line.owners or not difference or line.measured is None:
        return
    rounding = line.measured.high - line.measured.low
    slack = max(rounding, abs(difference) * _LEAST_SHARE)
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
                    f"the ledger has {format_bytes(size)} for it, the difference is {_signed(difference)}",
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


def other_processes(line: Line, facts: Facts) -> Iterator[Reason]:
    """Memory of the device that neither is free nor belongs to the instance: what was missing before anything was loaded, or
    what the instance's own figures leave of what is taken."""
    of_device = line.section is Section.ALLOCATOR and line.name.startswith("device free")
    if not of_device and line.section is not Section.POOL and Owner.KV_CACHE not in line.owners:
        return
    found = _taken_before(line, facts) or _taken_beside(facts)
    if found is None:
        return
    others, evidence = found
    explains = -others if of_device else None
    yield Reason(
        cause=Cause.OTHER_PROCESSES,
        text=f"others hold {format_bytes(others)} of the device",
        evidence=(evidence,),
        explains=explains,
        share=None if explains is None else shared(line, explains),
    )


def _taken_before(line: Line, facts: Facts) -> tuple[int, str] | None:
    """What was missing of the device before the load, beyond what contexts and communicators may take."""
    for before in facts.lines:
        same = before.ranks == line.ranks or line.section is not Section.ALLOCATOR
        ours, theirs = before.predicted, before.measured
        if not before.name.startswith(tuple(f"device free at {point}" for point in BEFORE_LOAD)) or not same:
            continue
        if ours is not None and theirs is not None and theirs.high < ours.low:
            source = "" if before.evidence is None else f"{before.evidence.source}: "
            told = f"{format_bytes(int(theirs.expected))} free before the load, {format_bytes(int(ours.expected))} expected"
            return int(ours.expected - theirs.expected), f"{source}{told}"
    return None


def _taken_beside(facts: Facts) -> tuple[int, str] | None:
    """What is taken of the device less what the instance holds by its own figures."""
    for state in facts.measurement.allocator:
        total, free, held, outside = (
            state.device_total_bytes or facts.measurement.device_total_bytes,
            state.device_free_bytes,
            state.reserved_bytes,
            state.outside_bytes,
        )
        if total is None or free is None or held is None or outside is None:
            continue
        others = total - free - held - outside
        if others.low > 0:
            return others.expected, _shares_of_device(state.evidence.source, total, free, held, outside)
    return None


def _shares_of_device(
    source: str, total: ByteRange, free: ByteRange, held: ByteRange, outside: ByteRange
) -> str:
    told = f"{format_bytes(held.expected)} reserved, {format_bytes(outside.expected)} outside the allocator"
    return f"{source}: {format_bytes(total.expected)} less {format_bytes(free.expected)} free, {told}"


def smallest_rank(line: Line, facts: Facts) -> Iterator[Reason]:
    """The engine takes the smallest pool of its ranks."""
    count = sum(len(rank.ranks) for rank in facts.plan.ranks)
    told = line.evidence is not None and any(
        figure.ranks for figure in facts.measurement.figures if Owner.KV_CACHE in figure.owners
    )
    if line.section is Section.POOL and count > 1 and (line.difference or 0) < 0 and not told:
        yield Reason(
            cause=Cause.SMALLEST_RANK,
            text=f"the smallest of {count} ranks decides",
            evidence=("the measurement does not tell the ranks apart",),
        )


def print_rounding(line: Line, _facts: Facts) -> Iterator[Reason]:
    """A miss that is no larger than the rounding: some prints cut off instead."""
    if line.measured is None or line.beyond is None or line.measured.is_exact:
        return
    width = line.measured.high - line.measured.low
    if 0 < abs(line.beyond) <= width:
        yield Reason(
            cause=Cause.ROUNDING,
            text="the print may be cut off instead of rounded, or is a sum of rounded figures",
            evidence=(f"it misses by {_signed(line.beyond)}, a unit of its last place is {_signed(width)}",),
        )


def _unaccounted(line: Line, computed: Sequence[Reason], *, is_alone: bool) -> Iterator[Reason]:
    """What is left when the one reason that explains most is taken away; reasons overlap, so that they are not added."""
    difference = line.difference
    if not difference:
        return
    best = min((abs(difference - (reason.explains or 0)) for reason in computed), default=None)
    if best is None:
        if is_alone:
            yield Reason(cause=Cause.UNACCOUNTED, text="nothing here explains it", explains=None)
        return
    if best / abs(difference) > max(_LEAST_SHARE, _WORTH_TELLING):
        left = min((difference - (reason.explains or 0) for reason in computed), key=abs)
        shown = (
            _signed(left)
            if line.unit is Unit.BYTES
            else f"{left:+,.2f}"
            if isinstance(left, float)
            else f"{left:+,}"
        )
        yield Reason(cause=Cause.UNACCOUNTED, text=f"{shown} is left unexplained", share=left / difference)


def _signed(size: Number) -> str:
    return f"{'-' if size < 0 else '+'}{format_bytes(abs(int(size)))}"


RULES: tuple[Rule, ...] = (
    other_settings,
    consequence,
    weights_of_a_size,
    draft_and_adapters,
    print_rounding,
    other_processes,
    graphs_beside_capture,
    modelled_activation,
    smallest_rank,
    unmeasured_terms,
    quantised_weights,
    observed_ranges,
)
