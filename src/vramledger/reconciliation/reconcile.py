"""A plan and a measurement, side by side."""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.measurement import Measurement
from vramledger.reconciliation.allocator_lines import allocator_lines
from vramledger.reconciliation.arguments import PlanArguments, own_arguments
from vramledger.reconciliation.host_lines import host_lines
from vramledger.reconciliation.ledger_lines import graph_lines, ledger_lines
from vramledger.reconciliation.measured_plan import recomputed_budget
from vramledger.reconciliation.pool_lines import pool_lines
from vramledger.reconciliation.reason_facts import Facts
from vramledger.reconciliation.reasons import with_reasons
from vramledger.reconciliation.result import Line, Reconciliation, Standing
from vramledger.reconciliation.settings import compare_settings
from vramledger.reconciliation.trials import Replan, Trials, try_settings


def reconcile(
    plan: Plan,
    measurement: Measurement,
    *,
    replan: Replan | None = None,
    arguments: PlanArguments | None = None,
) -> Reconciliation:
    """What was predicted beside what was measured, and why they differ.

    Settings that differ come first. With `replan`, which plans the same model under other arguments, each of them is tried by
    itself and all together (some dozen plans); `arguments` are those the plan was made with, else what its settings tell.
    Without it nothing is read or planned: the same plan and measurement give the same reconciliation.
    """
    compared = compare_settings(plan, measurement)
    lines = all_lines(plan, measurement)
    outside = any(line.standing is Standing.OUTSIDE for line in lines)
    trials = Trials()
    if replan is not None and outside and compared.differences:
        trials = try_settings(replan, arguments or own_arguments(plan), measurement, compared.differences)
    budget = recomputed_budget(plan, measurement)
    facts = Facts(
        plan=plan,
        measurement=measurement,
        differences=compared.differences,
        lines=lines,
        trials=trials,
        budget=budget,
        remade={id(made): all_lines(made, measurement) for made in _made(trials)},
    )
    return Reconciliation(
        model=plan.inputs.model,
        engine=plan.inputs.engine,
        engine_version=plan.inputs.engine_version,
        device=plan.inputs.device,
        sources=tuple(dict.fromkeys(source.name for source in measurement.sources)),
        differences=compared.differences,
        agreeing=compared.agreeing,
        unknown_settings=compared.unknown,
        lines=tuple(with_reasons(line, facts) for line in lines),
        budget=budget,
        notes=(*measurement.notes, *(() if arguments is None else arguments.notes), *trials.notes),
    )


def all_lines(plan: Plan, measurement: Measurement) -> tuple[Line, ...]:
    """Every line, by section, without reasons."""
    return (
        *ledger_lines(plan, measurement),
        *pool_lines(plan, measurement),
        *allocator_lines(plan, measurement),
        *graph_lines(plan, measurement),
        *host_lines(plan, measurement),
    )


def _made(trials: Trials) -> list[Plan]:
    return [] if trials.again is None else [trials.again, *(trial.plan for trial in trials.found)]
