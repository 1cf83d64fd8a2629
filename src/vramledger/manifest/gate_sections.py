"""The sections of a gate's policy that ask for more than one figure: the checklist, and the experiment."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.errors import InputError
from vramledger.manifest.audit import Audited, audit, trips
from vramledger.manifest.audit import Policy as AuditPolicyName
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.experiment_result import ExperimentResult
from vramledger.manifest.finding import State
from vramledger.manifest.gate_policy import AuditRules, ExperimentRules, Weight
from vramledger.manifest.gate_reason import Kept, Reason


def audited_reasons(
    rules: AuditRules,
    untold: Weight,
    old: ManifestDocument | None,
    new: ManifestDocument,
    where: str,
) -> Iterator[Reason]:
    """The checklist of `new`, and what `old` passed of it and `new` does not. Raises InputError for an item that there is not."""
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


def experiment_reasons(
    rules: ExperimentRules, untold: Weight, found: ExperimentResult | None
) -> Iterator[Reason]:
    """Whether there is an experiment, whether the engine lived, whether every step went through, what grew."""
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
        why="as long as it was under load" if found.failure is None else found.failure,
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
