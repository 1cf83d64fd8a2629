"""An experiment in the making: its value, kept in its folder after every change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from vramledger.experiment.journal import Journal, is_blank, refuse_changed
from vramledger.experiment.plan import ExperimentPlan, Step
from vramledger.experiment.result import Check, Experiment, Snapshot, Stage, State, StepState
from vramledger.release.experiment.order import Order

Told = Callable[[str], None]
Kept = Callable[[Experiment, StepState | Stage], None]
"""What hears of each step that begins or is over and of each stage that was sent, when the experiment with it is on disk."""


class Skipped(Exception):
    """A step that cannot be done here; its text says why."""


class Work:
    """What the steps share. `now` is the experiment so far; every change of it is on disk when the call returns."""

    def __init__(
        self,
        order: Order,
        journal: Journal,
        begun: Experiment,
        *,
        told: Told,
        kept: Kept = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        before = journal.load()
        if before is not None and is_blank(before):
            before = None
        if before is not None:
            refuse_changed(before, begun, journal.folder)
        self.order = order
        self.journal = journal
        self.told = told
        self.kept = kept
        self.clock = clock
        self.is_continued = before is not None
        self.now = begun if before is None else before
        journal.save(self.now)

    @property
    def plan(self) -> ExperimentPlan:
        return self.now.plan

    def change(self, **fields: Any) -> None:
        """Fields of the experiment anew."""
        self.now = replace(self.now, **fields)
        self.journal.save(self.now)

    def state(self, step: Step) -> StepState:
        return next((one for one in self.now.steps if one.step is step), StepState(step=step))

    def is_over(self, step: Step) -> bool:
        """Whether it is done or was found to be impossible."""
        return self.state(step).state != "open"

    def begin(self, step: Step, *, since_s: float | None = None) -> None:
        """Now, or since an earlier instant; one that was begun before has begun then."""
        found = self.state(step)
        began_s = found.began_s if found.began_s is not None else since_s or self.clock()
        self._put(replace(found, state="open", began_s=began_s))

    def end(self, step: Step, state: State, why: str = "") -> None:
        found = self.state(step)
        ended_s = self.clock()
        began_s = found.began_s if found.began_s is not None else ended_s
        self._put(replace(found, state=state, why=why, began_s=began_s, ended_s=ended_s))

    def _put(self, state: StepState) -> None:
        others = {one.step: one for one in self.now.steps} | {state.step: state}
        self.change(steps=tuple(others[step] for step in Step if step in others))
        self.kept(self.now, state)

    def stages(self, step: Step) -> tuple[Stage, ...]:
        """Those of a step that were sent whole, in the order in which they were."""
        return tuple(stage for stage in self.now.stages if stage.step is step and stage.is_whole)

    def add_stage(self, stage: Stage) -> None:
        """In the place of one of its name that was left in the middle."""
        kept = tuple(one for one in self.now.stages if one.name != stage.name)
        self.change(stages=(*kept, stage))
        self.kept(self.now, stage)

    def add_snapshots(self, *snapshots: Snapshot) -> None:
        self.change(snapshots=(*self.now.snapshots, *snapshots))

    def add_checks(self, *checks: Check) -> None:
        """In the place of those of the same name and step."""
        names = {(check.name, check.step) for check in checks}
        kept = tuple(one for one in self.now.checks if (one.name, one.step) not in names)
        self.change(checks=(*kept, *checks))

    def note(self, text: str) -> None:
        if text not in self.now.notes:
            self.change(notes=(*self.now.notes, text))
