"""Whether a release may go out, by a policy: every rule kept, not kept, or not to be told, with the figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.expression import parse_requirement, parse_threshold
from vramledger.manifest.gate_comparison import judge_change, judge_requirement
from vramledger.manifest.gate_doubts import at_loads, comparable, doubted, notes
from vramledger.manifest.gate_policy import GatePolicy, Rule, Weight, rule_of
from vramledger.manifest.gate_reason import Gated, Kept, Reason
from vramledger.manifest.gate_sections import audited_reasons, experiment_reasons
from vramledger.manifest.load_quantities import is_under_load
from vramledger.manifest.quantities import quantities, value_of
from vramledger.manifest.quantity import Bounds, Quantity
from vramledger.manifest.thresholds import Judged, Outcome


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
        *(() if policy.audit is None else audited_reasons(policy.audit, policy.untold, old, new, where)),
        *(
            ()
            if policy.experiment is None
            else experiment_reasons(policy.experiment, policy.untold, new.experiment)
        ),
    )
    return Gated(reasons=reasons, notes=() if old is None else tuple(notes(old, new)))


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
            judged = doubted(judged, new)
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
            judged = doubted(at_loads(comparable(judged, old, new), name, old, new), old, new)
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
