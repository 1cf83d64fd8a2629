"""The experiment: its steps one after the other, each kept as it ends, the rest gone on with another time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vramledger.experiment.journal import open_journal
from vramledger.experiment.plan import Step
from vramledger.experiment.result import Experiment, Target
from vramledger.release.experiment.order import Order, checked_order, need_libraries
from vramledger.release.experiment.work import Skipped, Told, Work

StepOf = Callable[[Work], None]


def run_experiment(order: Order, *, told: Told = lambda _: None) -> Experiment:
    """Do what of it is not done yet, and return all of it.

    Raises InputError and its kin for what cannot be begun or was begun otherwise, OutputError where nothing can be kept. What ends it in the
    middle (a signal) leaves a folder that is gone on with.
    """
    need_libraries()
    order = checked_order(order)
    with open_journal(order.out, fresh=order.fresh) as journal:
        begun = Experiment(began_s=0.0, made_by=order.made_by, plan=order.plan, target=_target(order))
        work = Work(order, journal, begun, told=told)
        if not work.is_continued:
            work.change(began_s=work.clock())
        for step in Step:
            if work.is_over(step):
                continue
            if step in work.plan.skip:
                work.end(step, "skipped", "the plan says so")
                continue
            work.told(step.value)
            work.begin(step)
            try:
                STEPS.get(step, _missing)(work)
            except Skipped as reason:
                work.end(step, "skipped", str(reason))
            else:
                work.end(step, "done")
        return work.now


def _target(order: Order) -> Target:
    url = order.target or ""
    return Target(
        url=url,
        engine_url=order.engine_url or url,
        gateway_url=order.gateway_url,
        engine=order.engine,
        model=order.model or "",
        launched=() if order.launch is None else (order.launch,),
    )


def _missing(work: Work) -> None:
    raise Skipped("this version has no such step yet")


STEPS: Mapping[Step, StepOf] = {}
