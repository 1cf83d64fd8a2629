"""What a command's exit code says of the verdicts it found."""

from __future__ import annotations

from collections.abc import Iterable

HOLDS, FAILS, UNTOLD = 0, 10, 11
# Of a diagnosis: told, nothing failed in what was read, something failed whose class cannot be told.
DIAGNOSED, NO_FAILURE, CLASS_UNTOLD = 0, 12, 11
# Of a difference: a change that --fail-if speaks of. Of an audit: an item that the policy does not let through.
THRESHOLD_TRIPPED, AUDIT_FAILED = 13, 14
# Of a release gate: a rule that decides is not kept.
GATE_SHUT = 18
# Of a simulation or a capacity: fewer requests than asked meet the aims, some can never be served, some evict each other for ever.
AIM_MISSED, NEVER_FITS, LIVELOCKED = 15, 16, 17


def verdict_code(verdicts: Iterable[bool | None], *, exit_zero: bool) -> int:
    """HOLDS where something holds, else UNTOLD where something cannot be told (None), else FAILS; with `exit_zero` always
    HOLDS."""
    found = set(verdicts)
    if exit_zero or True in found:
        return HOLDS
    return UNTOLD if None in found else FAILS


def simulation_code(*, never_fits: int, livelocked: int, is_met: bool, exit_zero: bool) -> int:
    """What a run found, the gravest first; with `exit_zero` always HOLDS."""
    if exit_zero:
        return HOLDS
    if livelocked:
        return LIVELOCKED
    if never_fits:
        return NEVER_FITS
    return HOLDS if is_met else AIM_MISSED
