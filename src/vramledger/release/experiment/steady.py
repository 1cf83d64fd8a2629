"""One load held for long, and what grew meanwhile."""

from __future__ import annotations

from vramledger.experiment.drained import drained
from vramledger.experiment.plan import Kind, Step
from vramledger.experiment.record_file import records_of
from vramledger.experiment.result import Stage
from vramledger.experiment.trend import trends
from vramledger.release.experiment.climbing import steady_per_s
from vramledger.release.experiment.live import Live
from vramledger.release.experiment.sending import learn, send
from vramledger.release.experiment.work import Work


def steady(work: Work, live: Live) -> None:
    """Held, drained, and looked over. A stretch that was cut off is held anew: half of one tells of no trend."""
    plan = work.plan
    stage = next(iter(work.stages(Step.STEADY)), None)
    if stage is None:
        learn(work, live)
        before = live.watching.snapshot("before steady")
        stage = send(
            work,
            live,
            step=Step.STEADY,
            kind=Kind.MIXED,
            name="steady",
            per_s=steady_per_s(work, live),
            seconds=plan.steady_s,
        )
        work.told("steady: draining")
        found = drained(live.watching, before, step=Step.STEADY, within_s=plan.drain_s)
        work.add_checks(*found.checks)
        work.add_snapshots(before, found.snapshot)
    look_over(work, live, stage)


def look_over(work: Work, live: Live, stage: Stage) -> None:
    """The trends of a stretch, from what was sampled and what its requests saw."""
    work.told(f"{stage.name}: looking for what grew")
    samples = live.watching.between(stage.began_s, stage.began_s + stage.seconds)
    served = records_of(work.journal.folder, stage, work.plan.slo)
    work.change(trends=trends(samples, confidence=work.plan.confidence, served=served))
