"""Why a line is outside: rules in the order in which they are asked, each with the evidence for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from vramledger.reconciliation.device_reasons import other_processes, print_rounding, smallest_rank
from vramledger.reconciliation.owner_reasons import (
    draft_and_adapters,
    graphs_beside_capture,
    modelled_activation,
    observed_ranges,
    quantised_weights,
    unmeasured_terms,
    weights_of_a_size,
)
from vramledger.reconciliation.reason_facts import LEAST_SHARE, Facts, Rule, signed
from vramledger.reconciliation.result import Cause, Line, Reason, Standing, Unit
from vramledger.reconciliation.setting_reasons import consequence, other_settings

RULES: tuple[Rule, ...] = (
    other_settings,
    consequence,
    weights_of_a_size,
    draft_and_adapters,
    print_rounding,
    other_processes,
    graphs_beside_capture,
    modelled_activation,
    smallest_rank,
    unmeasured_terms,
    quantised_weights,
    observed_ranges,
)


def with_reasons(line: Line, facts: Facts) -> Line:
    """The line with its reasons: what was computed first, what explains most nearly all of it before the rest, then what is
    only likely. Nothing that is only likely is told where a computed reason leaves nothing to explain."""
    if line.standing is not Standing.OUTSIDE:
        return line
    found = [reason for rule in RULES for reason in rule(line, facts)]
    computed = sorted(
        (reason for reason in found if reason.explains is not None),
        key=lambda reason: (abs(1 - (reason.share or 0)), len(reason.evidence)),
    )
    is_explained = bool(computed) and abs(1 - (computed[0].share or 0)) <= LEAST_SHARE
    likely = [] if is_explained else [reason for reason in found if reason.explains is None]
    rest = _unaccounted(line, computed, is_alone=not found)
    return replace(line, reasons=(*computed, *likely, *rest))


def _unaccounted(line: Line, computed: Sequence[Reason], *, is_alone: bool) -> Iterator[Reason]:
    """What is left when the one reason that explains most is taken away; reasons overlap, so that they are not added."""
    difference = line.difference
    if not difference:
        return
    best = min((abs(difference - (reason.explains or 0)) for reason in computed), default=None)
    if best is None:
        if is_alone:
            yield Reason(cause=Cause.UNACCOUNTED, text="nothing here explains it", explains=None)
        return
    if best / abs(difference) > LEAST_SHARE:
        left = min((difference - (reason.explains or 0) for reason in computed), key=abs)
        shown = (
            signed(left)
            if line.unit is Unit.BYTES
            else f"{left:+,.2f}"
            if isinstance(left, float)
            else f"{left:+,}"
        )
        yield Reason(cause=Cause.UNACCOUNTED, text=f"{shown} is left unexplained", share=left / difference)
