"""An experiment's value as parts of a manifest: operating points, tests, and what only an experiment tells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.experiment.result import Experiment, PoolConfirmed
from vramledger.manifest.declared import CapacityResult, Facts, Trial
from vramledger.manifest.derived import TESTS
from vramledger.manifest.experiment_points import capacity_results, cut, date
from vramledger.manifest.experiment_result import ExperimentResult
from vramledger.manifest.experiment_summary import result_of

TrialName = Literal["kv_returned_after_cancellation", "rolling_update", "recovery_headroom"]


class ExperimentFacts(Struct, frozen=True, kw_only=True):
    """What of an experiment goes into a manifest."""

    capacity_results: tuple[CapacityResult, ...]
    tests: tuple[Trial, ...]
    result: ExperimentResult


def facts_of(experiment: Experiment, *, source: str = "experiment.json") -> ExperimentFacts:
    """The operating point, every whole stage of load, the tests that passed or failed, and the result. `source` names the experiment.

    A stage whose client was late itself gives no latencies: they might be the client's. A check that nothing tells is no test.
    Raises InputError for figures that cannot be, such as a load below 0.
    """
    counted = tuple(stage for stage in experiment.stages if stage.is_whole and stage.measured.offered)
    found = ExperimentFacts(
        capacity_results=capacity_results(experiment, counted, source),
        tests=tuple(_trials(experiment, source)),
        result=result_of(experiment, counted),
    )
    try:
        return msgspec.convert(msgspec.to_builtins(found), ExperimentFacts)
    except msgspec.ValidationError as problem:
        raise InputError(
            f"{source} says what no manifest can: {problem}", file=source, reason=str(problem)
        ) from None


def with_experiment(facts: Facts, found: ExperimentFacts) -> Facts:
    """Declarations with what the experiment found: its operating points after theirs, its tests in place of theirs of the same
    name."""
    run = {test.name for test in found.tests}
    return replace(
        facts,
        capacity_results=(*facts.capacity_results, *found.capacity_results),
        tests=(*(test for test in facts.tests if test.name not in run), *found.tests),
    )


def _trials(experiment: Experiment, source: str) -> Iterable[Trial]:
    """One trial a name. Where the same was looked at more than once, it passed if it passed every time."""
    for name in TESTS:
        found = [check for check in experiment.checks if check.name == name and check.passed is not None]
        if not found:
            continue
        failed = [check for check in found if not check.passed]
        told = failed[-1] if failed else found[-1]
        before, after = (_free_blocks(used, told.unit, experiment.pool) for used in (told.before, told.after))
        headrooms = [
            check.smallest_headroom_bytes for check in found if check.smallest_headroom_bytes is not None
        ]
        yield Trial(
            name=cast("TrialName", name),
            passed=not failed,
            source=cut(
                ", ".join(part for part in (f"{source}: {told.step.value}", told.source, told.words) if part)
            ),
            at=date(told.at_s or experiment.began_s),
            free_blocks_before=before,
            free_blocks_after=after,
            smallest_headroom_bytes=min(headrooms, default=None),
        )


def _free_blocks(used: float | None, unit: str, pool: PoolConfirmed | None) -> int | None:
    """Of the pool that the engine confirmed, where what was in use of it is told in blocks, tokens or as a share."""
    if used is None or pool is None or pool.engine_blocks is None:
        return None
    per_block = {"blocks": 1.0, "tokens": 1 / (pool.block_size or 1), "ratio": float(pool.engine_blocks)}
    if unit not in per_block:
        return None
    return max(pool.engine_blocks - round(used * per_block[unit]), 0)
