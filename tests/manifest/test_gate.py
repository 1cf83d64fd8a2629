"""The release gate: what shuts it, what only warns, and what cannot be told."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from experiment_values import check, experiment, point, stage, trend
from manifests import facts, given, whole
from vramledger.errors import FlagError, InputError
from vramledger.experiment.plan import ExperimentPlan, Step
from vramledger.experiment.result import Drift, Experiment, Failure, Stage, StepState
from vramledger.manifest.build import build
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.experiment_facts import facts_of, with_experiment
from vramledger.manifest.gate import gate
from vramledger.manifest.gate_policy import (
    AuditRules,
    ExperimentRules,
    GatePolicy,
    Rule,
    default_policy,
    default_policy_text,
    read_policy,
)
from vramledger.manifest.gate_reason import Gated, Kept, Reason
from vramledger.simulation.settings import Slo


def released(found: Experiment | None = None, flags: dict[str, Any] | None = None) -> ManifestDocument:
    """A release of which everything is evidenced, with this experiment."""
    parts = facts_of(found or experiment())
    return build(given(flags=flags, facts=with_experiment(facts(), parts), experiment=parts.result))


def with_point(**changes: Any) -> ManifestDocument:
    return released(experiment(point=point(**changes)))


def slower(factor: float, *, steady_per_s: float = 3.2) -> tuple[Stage, ...]:
    """The usual stages, the steady one with first tokens that took `factor` times as long."""
    kept = [item for item in experiment().stages if item.step is not Step.STEADY]
    last = stage("steady", steady_per_s, step=Step.STEADY, seconds=1800.0)
    seen = last.measured.ttft_ns
    figures = replace(last.measured, ttft_ns=replace(seen, p95=round(seen.p95 * factor)))
    return (*kept, replace(last, measured=figures))


SAME = released()
NARROW = with_point(low_per_s=3.9, high_per_s=4.1)


def asked(*fail_if: str | Rule, keep: tuple[str | Rule, ...] = (), **more: Any) -> GatePolicy:
    return GatePolicy(keep=keep, fail_if=fail_if, **more)


def only(found: Gated) -> Reason:
    (reason,) = found.reasons
    return reason


def test_the_usual_policy_lets_a_release_through_that_lost_nothing() -> None:
    assert gate(SAME, default_policy(), old=SAME).passes is True
    assert gate(NARROW, default_policy(), old=with_point(low_per_s=3.8)).passes is True
    assert gate(SAME, default_policy()).passes is True


def test_the_usual_policy_says_all_that_a_policy_can() -> None:
    text = default_policy_text()
    for kind in (GatePolicy, AuditRules, ExperimentRules):
        for name in kind.__struct_fields__:
            assert f"{name} = " in text or f"[{name}]" in text
    assert default_policy() == read_policy(text.encode(), "p")


@pytest.mark.parametrize(
    ("new", "rule"),
    [
        (with_point(per_s=2.0, low_per_s=1.9, high_per_s=2.1), "capacity_requests_per_s < -5%"),
        (released(flags={"gpu_memory_utilization": 0.5}), "kv_tokens < -2%"),
        (released(experiment(trends=(trend(verdict="grows"),))), "nothing grew"),
        (
            released(experiment(failure=Failure(step=Step.SHORT, at_s=1.0, words="killed"))),
            "the engine lived",
        ),
        (
            released(experiment(steps=(StepState(step=Step.RESTART, state="failed", why="no start"),))),
            "no step failed",
        ),
        (
            released(
                experiment(checks=(check("kv_returned_after_cancellation", Step.DISTURBED, passed=False),))
            ),
            "cancellation",
        ),
        (released(experiment(stages=slower(2.0))), "steady_ttft_p95_s > +20%"),
    ],
)
def test_what_shuts_the_gate_is_named(new: ManifestDocument, rule: str) -> None:
    found = gate(new, default_policy(), old=SAME)
    assert found.passes is False
    shut = {reason.rule: reason for reason in found.reasons if reason.decides}
    assert shut[rule].kept is Kept.SHORT
    assert shut[rule].why


def test_an_interval_that_does_not_decide_is_a_reason_of_its_own() -> None:
    wide = with_point(per_s=3.6, low_per_s=2.6, high_per_s=4.6)
    found = gate(wide, asked("capacity_requests_per_s < -20%"), old=SAME)
    assert found.passes is None
    assert only(found).kept is Kept.UNTOLD
    assert "3.6 (2.6 to 4.6) requests/s after" in only(found).why
    assert gate(wide, asked("capacity_requests_per_s < -20%", untold="warn"), old=SAME).passes is True


def test_a_rule_may_warn_alone() -> None:
    lost = with_point(per_s=2.0, low_per_s=1.9, high_per_s=2.1)
    rule = "capacity_requests_per_s < -5%"
    warned = gate(lost, asked(Rule(expression=rule, weight="warn", why="being looked at")), old=SAME)
    assert (warned.passes, only(warned).kept, only(warned).decides) == (True, Kept.SHORT, False)
    assert only(warned).why.endswith("(being looked at)")
    unknown = Rule(expression="capacity_requests_per_s >= 1", untold="warn")
    assert gate(whole(), asked(keep=(unknown,))).passes is True
    assert gate(whole(), asked(keep=("capacity_requests_per_s >= 1",))).passes is None


def test_a_capacity_under_another_load_is_not_compared() -> None:
    rule = asked("capacity_requests_per_s < -5%")
    for plan, said in (
        (ExperimentPlan(slo=Slo(ttft_ms=3000.0, tpot_ms=200.0)), "ttft 2 s, now ttft 3 s"),
        (ExperimentPlan(workload="/loads/agents.toml"), "now agents.toml"),
        (
            ExperimentPlan(arrivals="gamma", burstiness=3.0),
            "poisson arrivals, now gamma arrivals of burstiness 3",
        ),
        (ExperimentPlan(goodput=0.9), "95 % of requests, now 90 % of requests"),
    ):
        found = gate(released(experiment(plan=plan)), rule, old=SAME)
        assert found.passes is None
        assert only(found).why.startswith("OLD was loaded otherwise: ")
        assert only(found).why.endswith(said)
    target = replace(experiment().target, gateway_url="http://127.0.0.1:9")
    assert gate(released(experiment(target=target)), rule, old=SAME).passes is None
    # A seed is no other load, nor is how long it was looked at.
    alike = ExperimentPlan(slo=experiment().plan.slo, seed=9, steady_s=60.0)
    narrow = point(low_per_s=3.99, high_per_s=4.01)
    old = released(experiment(point=narrow))
    assert gate(released(experiment(plan=alike, point=narrow)), rule, old=old).passes is True


def test_a_late_client_tells_nothing_of_capacity() -> None:
    late = tuple(replace(item, drift=Drift(is_trusted=False)) for item in experiment().stages)
    found = gate(released(experiment(stages=late)), asked(keep=("capacity_requests_per_s >= 1",)))
    assert found.passes is None
    assert "sent late" in only(found).why
    # Far beyond the point a client may be late, and in stages that are looked at for something else.
    late_ones = (
        stage("mixed-4", 9.0),
        stage("prefix-hit", 3.2, step=Step.PREFIX),
        stage("short-2", 3.0, step=Step.SHORT),
    )
    beyond = (
        *experiment().stages,
        *(replace(item, drift=Drift(is_trusted=False)) for item in late_ones),
    )
    assert gate(released(experiment(stages=beyond)), asked(keep=("capacity_requests_per_s >= 1",))).passes


def test_a_latency_is_compared_where_its_load_allows_it() -> None:
    rule = asked("steady_ttft_p95_s > +20%")
    assert gate(released(experiment(stages=slower(2.0, steady_per_s=3.0))), rule, old=SAME).passes is False
    more = gate(released(experiment(stages=slower(2.0, steady_per_s=4.0))), rule, old=SAME)
    assert (more.passes, only(more).kept) == (None, Kept.UNTOLD)
    assert "under more load (4 requests/s, OLD 3.2)" in only(more).why
    assert gate(released(experiment(stages=slower(0.5, steady_per_s=4.0))), rule, old=SAME).passes is True
    less = gate(released(experiment(stages=slower(1.0, steady_per_s=2.0))), rule, old=SAME)
    assert "under less load" in only(less).why


def test_what_old_passed_is_not_to_be_lost() -> None:
    lost = released(experiment(checks=()))
    without = build(given(facts=replace(facts(), tests=()), experiment=lost.experiment))
    policy = GatePolicy(audit=AuditRules())
    found = gate(without, policy, old=SAME)
    assert found.passes is False
    assert {reason.rule for reason in found.reasons if reason.decides} == {
        "cancellation not lost", "update-and-recovery not lost",
    }  # fmt: skip
    assert gate(without, policy).passes is True
    assert gate(without, GatePolicy(audit=AuditRules(losses="warn")), old=SAME).passes is True
    wanted = gate(without, GatePolicy(audit=AuditRules(require=("cancellation",)), untold="warn"))
    assert wanted.passes is None


def test_a_release_without_an_experiment_cannot_be_told() -> None:
    found = gate(whole(), default_policy())
    assert found.passes is None
    assert gate(whole(), GatePolicy(experiment=ExperimentRules(required=False))).passes is True
    cut_off = gate(released(experiment(point=None)), GatePolicy(experiment=ExperimentRules()))
    assert cut_off.passes is None


def test_what_may_grow_may() -> None:
    grown = released(experiment(trends=(trend("page cache", verdict="grows"),)))
    policy = GatePolicy(experiment=ExperimentRules(may_grow=("page cache",)))
    assert gate(grown, policy).passes is True
    assert gate(grown, GatePolicy(experiment=ExperimentRules(growing="warn"))).passes is True
    assert gate(grown, GatePolicy(experiment=ExperimentRules())).passes is False
    untold = released(experiment(trends=(trend(verdict="untold"),)))
    (told,) = [r for r in gate(untold, policy).reasons if r.rule == "nothing grew"]
    assert told.kept is Kept.UNTOLD


def test_changes_are_not_asked_of_a_release_alone() -> None:
    found = gate(SAME, asked("kv_tokens < -2%", keep=("kv_tokens >= 1",)))
    assert [reason.kept for reason in found.reasons] == [Kept.KEPT, Kept.NOT_ASKED]
    assert found.passes is True


def test_texts_and_settings_can_be_asked_for() -> None:
    keep = ("engine == vllm", "verdict == holds", "settings.nothing_like_it == not set")
    assert gate(SAME, asked("settings.nothing_like_it != same", keep=keep), old=SAME).passes is True
    assert gate(SAME, asked(keep=("engine == sglang",))).passes is False


def test_what_to_know_of_the_comparison_is_noted() -> None:
    assert gate(SAME, asked("tp != same"), old=SAME).notes == ("OLD and NEW are the same manifest",)
    limit = with_point(is_limit_of_load=True, beyond_per_s=None)
    (note,) = gate(SAME, asked("tp != same"), old=limit).notes
    assert note.startswith("OLD served every load")
    longer = tuple(
        replace(item, measured=replace(item.measured, prompt_tokens=2 * item.measured.prompt_tokens))
        for item in experiment().stages
    )
    (note,) = gate(released(experiment(stages=longer)), asked("tp != same"), old=SAME).notes
    assert note == ("requests had 300 prompt tokens each before, 600 after: the loads are not quite alike")


def test_one_experiment_in_both_has_not_changed() -> None:
    wide = experiment(point=point(low_per_s=1.0, high_per_s=9.0))
    found = gate(released(wide), asked("capacity_requests_per_s < -5%"), old=released(wide))
    assert found.passes is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("untold = 'ignore'", r"policy\.toml: .*untold"),
        ("confidence = 1.0", r"policy\.toml: .*confidence"),
        ("keeps = []", r"there is no setting 'keeps'; did you mean keep"),
        ("[audit]\npolicy = 'lax'", r"policy\.toml: .*policy"),
        ("[audit]\nlosses = 3", r"policy\.toml: .*losses"),
        ("keep = 'headroom >= 0'", r"policy\.toml: .*keep"),
        ("keep = [{expression = 'tp == 1', weigth = 'warn'}]", r"policy\.toml: .*weigth"),
        ("keep = [3]", r"policy\.toml: .*keep"),
        ("", "asks for nothing"),
        ("confidence = 0.9", "asks for nothing"),
        ("keep = ['a', ", "is not TOML"),
        ("keep = [" + "'tp == 1'," * 300 + "]", "more than 200 rules"),
        ("keep = ['" + "x" * 201 + "']", r"policy\.toml: .*keep"),
        ("keep = " + "[" * 3000, "is not TOML"),
    ],
)
def test_a_policy_that_cannot_be_read_names_key_and_value(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_policy(text.encode(), "policy.toml")


def test_expressions_and_items_that_there_are_not_are_refused() -> None:
    with pytest.raises(FlagError, match=r"p\.toml: keep 'headrom >= 0B', column 1: .*did you mean headroom"):
        gate(SAME, asked(keep=("headrom >= 0B",)), where="p.toml")
    with pytest.raises(FlagError, match=r"p\.toml: fail_if 'kv_tokens < 5GiB'"):
        gate(SAME, asked("kv_tokens < 5GiB"), where="p.toml")
    with pytest.raises(InputError, match=r"p\.toml: audit.require: .*'laod' is no item"):
        gate(SAME, GatePolicy(audit=AuditRules(require=("laod",))), where="p.toml")
