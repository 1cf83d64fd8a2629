"""Whether a workload is run by the compiled simulator, and if not why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from vramledger.errors import InputError
from vramledger.simulation.compiled.coverage import Uncovered, uncovered_settings
from vramledger.simulation.outcome import Run
from vramledger.simulation.settings import SimulationSettings

if TYPE_CHECKING:
    from vramledger.simulation.outcome_columns import OutcomeColumns
    from vramledger.workload.columns import Workload

SMALL_TOKENS = 30_000
"""Workloads of fewer output tokens take the readable simulator less time than machine code takes to load, and far less than to make."""


def simulate_compiled_or_why_not(
    workload: Workload,
    settings: SimulationSettings,
    *,
    samples: int,
    sink: Callable[[OutcomeColumns], None] | None,
    progress: Callable[[int], None] | None,
    has_policies: bool,
    must: bool,
) -> tuple[Run, OutcomeColumns | None] | str:
    """The run, or why the readable simulator has to do it; an empty reason where it is only the faster one.

    With `must`, InputError takes the place of a reason.
    """
    reasons = [*uncovered_settings(settings), *(["admission policies"] if has_policies else [])]
    if reasons:
        return _answer(reasons, must=must)
    if not must and _is_small(workload):
        return ""
    try:
        from vramledger.simulation.compiled.run import simulate_compiled
    except ImportError as error:
        if must:
            raise InputError(
                f"the compiled simulator needs {error.name or 'numba'}: pip install 'vramledger[simulation]'"
            ) from None
        return f"run by the readable simulator: {error.name or 'numba'} is not installed (vramledger[simulation])"
    try:
        return simulate_compiled(workload, settings, samples=samples, sink=sink, progress=progress)
    except Uncovered as error:
        return _answer([str(error)], must=must)


def _answer(reasons: Iterable[str], *, must: bool) -> str:
    told = ", ".join(reasons)
    if must:
        raise InputError(f"the compiled simulator does not cover {told}; how='auto' or 'reference' does")
    return f"run by the readable simulator: the compiled one does not cover {told}"


def _is_small(workload: Workload) -> bool:
    tokens = 0
    for batch in workload.batches():
        tokens += int(batch.output_tokens.sum())
        if tokens > SMALL_TOKENS:
            return False
    return True
