"""Whether a release may go out, by a policy: every rule kept, not kept, or not to be told, with the figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from vramledger.errors import InputError
from vramledger.manifest.audit import Audited, audit, trips
from vramledger.manifest.audit import Policy as AuditPolicyName
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.experiment_result import ExperimentResult, LoadConditions
from vramledger.manifest.expression import parse_requirement, parse_threshold
from vramledger.manifest.finding import State
from vramledger.manifest.gate_comparison import judge_change, judge_requirement
from vramledger.manifest.gate_policy import AuditRules, ExperimentRules, GatePolicy, Rule, Weight, rule_of
from vramledger.manifest.load_quantities import conditions_text, is_latency, is_under_load, seen_at
from vramledger.manifest.quantities import quantities, value_of
from vramledger.manifest.quantity import Bounds, Quantity
from vramledger.manifest.thresholds import Judged, Outcome

_LOADS_ALIKE = 0.1
_LOADS_MAY_DIFFER = 0.05


class Kept(StrEnum):
    """What became of a rule."""

    KEPT = "kept"
    SHORT = "not kept"
    UNTOLD = "cannot be told"
    NOT_ASKED = "not asked"


class Reason(Struct, frozen=True, kw_only=True):
    """One rule and what became of it. `section` is where the policy has it; `decides` is whether the gate stays shut for it."""

    section: str
    rule: str
    kept: Kept
    why: str
    decides: bool = False


class Gated(Struct, frozen=True, kw_only=True):
    """All rules in the policy's order. `notes` are what to know of the comparison."""

    reasons: tuple[Reason, ...]
    notes: tuple[str, ...] = ()

    @property
    def passes(self) -> bool | None:
        """False where a rule that decides is not kept, None where none is and one that decides cannot be told."""
        shut = {reason.kept for reason in self.reasons if reason.decides}
        if Kept.SHORT in shut:
            return False
        return None if Kept.UNTOLD in shut else True


def gate(
    new: ManifestDocument, policy: GatePolicy, *, old: ManifestDocument | None = None, where: str = "policy"
) -> Gated:
    """`new` held against the policy, and against `old` where there is one; `where` names the policy in messages.

    Raises InputError for an expression of the policy that cannot be read or an audit item that there is not.
    """
    after = quantities(new)
    before = {} if old is None else quantities(old)
    known = {**before, **after}
    reasons = (
        *_requirements(policy, known, after, new, where),
        *_changes(policy, known, before, after, old, new, where),
        *(() if policy.audit is None else _audited(policy.audit, policy.untold, old, new, where)),
        *(() if policy.experiment is None else _experiment(policy.experiment, policy.untold, new.experiment)),
    )
    return Gated(reasons=reasons, notes=() if old is None else tuple(_notes(old, new)))


def _requirements(
    policy: GatePolicy,
    known: Mapping[str, Quantity],
    after: Mapping[str, Quantity],
    new: ManifestDocument,
    where: str,
) -> Iterator[Reason]:
    for item in policy.keep:
        rule = rule_of(item)
        wanted = parse_requirement(rule.expression, known, asked=f"{where}: keep")
        judged = judge_requirement(
            wanted, after.get(wanted.name), value_of(after, wanted.name), policy.confidence
        )
        if is_under_load(wanted.name):
            judged = _doubted(judged, new)
        yield _reason("keep", rule, judged, policy.untold)


def _changes(
    policy: GatePolicy,
    known: Mapping[str, Quantity],
    before: Mapping[str, Quantity],
    after: Mapping[str, Quantity],
    old: ManifestDocument | None,
    new: ManifestDocument,
    where: str,
) -> Iterator[Reason]:
    # One experiment in both is one figure, which has not changed, however well it is known.
    is_one = old is not None and old.experiment == new.experiment
    for item in policy.fail_if:
        rule = rule_of(item)
        threshold = parse_threshold(rule.expression, known, asked=f"{where}: fail_if", settings_may_lack=True)
        if old is None:
            yield Reason(
                section="fail_if",
                rule=threshold.text,
                kept=Kept.NOT_ASKED,
                why="there is no OLD to compare with",
            )
            continue
        name = threshold.name
        judged = judge_change(
            threshold,
            value_of(before, name),
            value_of(after, name),
            bounds=(None, None) if is_one else (_bounds(before, name), _bounds(after, name)),
            confidence=policy.confidence,
        )
        if is_under_load(name):
            judged = _doubted(_at_loads(_comparable(judged, old, new), name, old, new), old, new)
        yield _reason("fail_if", rule, judged, policy.untold)


def _bounds(found: Mapping[str, Quantity], name: str) -> Bounds | None:
    quantity = found.get(name)
    return None if quantity is None else quantity.bounds


def _reason(section: str, rule: Rule, judged: Judged, untold: Weight) -> Reason:
    kept = {Outcome.TRIPPED: Kept.SHORT, Outcome.HELD: Kept.KEPT, Outcome.UNTOLD: Kept.UNTOLD}[judged.outcome]
    weight = rule.weight if kept is Kept.SHORT else (rule.untold or untold)
    why = f"{judged.why} ({rule.why})" if rule.why else judged.why
    return Reason(
        section=section,
        rule=judged.text,
        kept=kept,
        why=why,
        # A rule that only warns does so too where it cannot be told.
        decides=kept in (Kept.SHORT, Kept.UNTOLD) and weight == "fail" and rule.weight == "fail",
    )


def _comparable(judged: Judged, old: ManifestDocument, new: ManifestDocument) -> Judged:
    """UNTOLD where the two were loaded with different things."""
    if old.experiment is None or new.experiment is None:
        return judged
    was, now = old.experiment.conditions, new.experiment.conditions
    if _essence(was) == _essence(now):
        return judged
    return Judged(
        text=judged.text,
        outcome=Outcome.UNTOLD,
        why=f"OLD was loaded otherwise ({conditions_text(was)}) than NEW ({conditions_text(now)})",
    )


def _at_loads(judged: Judged, name: str, old: ManifestDocument, new: ManifestDocument) -> Judged:
    """UNTOLD for a latency that was better under less load or worse under more: it grows with the load whatever the release."""
    was, now = seen_at(old, name), seen_at(new, name)
    if judged.outcome is Outcome.UNTOLD or not is_latency(name) or was is None or now is None:
        return judged
    if judged.outcome is Outcome.HELD and now < was * (1 - _LOADS_MAY_DIFFER):
        word = "less"
    elif judged.outcome is Outcome.TRIPPED and now > was * (1 + _LOADS_MAY_DIFFER):
        word = "more"
    else:
        return judged
    return Judged(
        text=judged.text,
        outcome=Outcome.UNTOLD,
        why=f"NEW was seen under {word} load ({now:.4g} requests/s, OLD {was:.4g}); {judged.why}",
    )


def _essence(load: LoadConditions) -> tuple[object, ...]:
    return (
        load.ttft_limit_s, load.tpot_limit_s, load.latency_limit_s, load.goodput, load.workload, load.arrivals,
        load.burstiness if load.arrivals == "gamma" else None, load.is_behind_gateway,
    )  # fmt: skip


def _doubted(judged: Judged, *documents: ManifestDocument) -> Judged:
    """UNTOLD where a client did not keep its own schedule: what it saw may be its own doing."""
    if judged.outcome is Outcome.UNTOLD or all(
        document.experiment is None or document.experiment.is_drift_trusted for document in documents
    ):
        return judged
    return Judged(
        text=judged.text,
        outcome=Outcome.UNTOLD,
        why=f"the client sent late, so that latencies may be its own; {judged.why}",
    )


def _audited(
    rules: AuditRules,
    untold: Weight,
    old: ManifestDocument | None,
    new: ManifestDocument,
    where: str,
) -> Iterator[Reason]:
    try:
        found = audit(new, policy=rules.policy, required=rules.require)
    except InputError as problem:
        raise InputError(f"{where}: audit.require: {problem.message}", source=where) from None
    tripped = trips(found, rules.policy)
    for audited in tripped:
        is_failed = audited.finding.state is State.FAILED
        yield Reason(
            section="audit",
            rule=audited.item.name,
            kept=Kept.SHORT if is_failed else Kept.UNTOLD,
            why=f"{audited.item.title}: {audited.finding.state.value}, {audited.finding.reason}",
            decides=is_failed or untold == "fail" or audited.item.name in rules.require,
        )
    if not tripped:
        states = [audited.finding.state for audited in found]
        yield Reason(
            section="audit",
            rule=f"policy {rules.policy.value}",
            kept=Kept.KEPT,
            why=", ".join(f"{states.count(state)} {state.value}" for state in State),
        )
    if old is not None:
        yield from _lost(rules, old, found, {audited.item.name for audited in tripped})


def _lost(
    rules: AuditRules, old: ManifestDocument, found: tuple[Audited, ...], told: set[str]
) -> Iterator[Reason]:
    passed = {
        item.item.name
        for item in audit(old, policy=AuditPolicyName.WARN)
        if item.finding.state is State.PASSED
    }
    for audited in found:
        name, state = audited.item.name, audited.finding.state
        if name in passed and state is not State.PASSED and name not in told:
            yield Reason(
                section="audit",
                rule=f"{name} not lost",
                kept=Kept.SHORT,
                why=f"{audited.item.title}: OLD passed it; now {state.value}, {audited.finding.reason}",
                decides=rules.losses == "fail",
            )


def _experiment(rules: ExperimentRules, untold: Weight, found: ExperimentResult | None) -> Iterator[Reason]:
    if found is None:
        yield Reason(
            section="experiment",
            rule="an experiment",
            kept=Kept.UNTOLD if rules.required else Kept.NOT_ASKED,
            why="none is in it: vramledger experiment makes one, vramledger manifest --experiment puts it in",
            decides=rules.required and untold == "fail",
        )
        return
    if found.operating_point is None:
        yield Reason(
            section="experiment",
            rule="an operating point",
            kept=Kept.UNTOLD,
            why="the experiment ended before it had one",
            decides=rules.required and untold == "fail",
        )
    yield Reason(
        section="experiment",
        rule="the engine lived",
        kept=Kept.KEPT if found.failure is None else Kept.SHORT,
        why="to the end of the experiment" if found.failure is None else found.failure,
        decides=found.failure is not None and rules.ended == "fail",
    )
    for text in found.failed:
        yield Reason(
            section="experiment",
            rule="no step failed",
            kept=Kept.SHORT,
            why=text,
            decides=rules.steps == "fail",
        )
    yield from _grown(rules, found)


def _grown(rules: ExperimentRules, found: ExperimentResult) -> Iterator[Reason]:
    growing = [trend for trend in found.trends if trend.verdict == "grows"]
    for trend in growing:
        allowed = trend.name in rules.may_grow
        yield Reason(
            section="experiment",
            rule="nothing grew",
            kept=Kept.KEPT if allowed else Kept.SHORT,
            why=f"{trend.name} by {trend.low_per_hour:,.4g} to {trend.high_per_hour:,.4g} {trend.unit} an hour"
            + (", which may grow" if allowed else f" ({trend.confidence:g} confidence)"),
            decides=not allowed and rules.growing == "fail",
        )
    if growing:
        return
    flat = [trend for trend in found.trends if trend.verdict != "untold"]
    yield Reason(
        section="experiment",
        rule="nothing grew",
        kept=Kept.KEPT if flat else Kept.UNTOLD,
        why=f"{len(flat)} of {len(found.trends)} quantities were watched long enough"
        if found.trends
        else "no steady stretch was watched",
    )


def _notes(old: ManifestDocument, new: ManifestDocument) -> Iterator[str]:
    if old.digest == new.digest:
        yield "OLD and NEW are the same manifest"
    for name, was, now in (
        ("the model", old.plan.inputs.architecture, new.plan.inputs.architecture),
        ("the engine", old.plan.inputs.engine, new.plan.inputs.engine),
        ("the device", old.plan.inputs.device, new.plan.inputs.device),
    ):
        if was != now:
            yield f"{name} is another: {was} before, {now} after"
    if old.experiment is None or new.experiment is None:
        return
    for name in ("prompt_tokens_mean", "output_tokens_mean"):
        before, after = getattr(old.experiment.conditions, name), getattr(new.experiment.conditions, name)
        if before and after and abs(after / before - 1) > _LOADS_ALIKE:
            word = name.partition("_")[0]
            yield f"requests had {before:,.0f} {word} tokens each before, {after:,.0f} after: the loads are not quite alike"
    point = old.experiment.operating_point
    if point is not None and point.is_limit_of_load:
        yield "OLD served every load that it was tried with: its capacity is at least the one that is compared"
