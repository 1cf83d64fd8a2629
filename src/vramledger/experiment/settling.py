"""How long load is sent before and after what is done to the engine."""

from __future__ import annotations

from vramledger.experiment.plan import ExperimentPlan

SETTLE_S = 15.0
SETTLE_REQUESTS = 8
LONGEST_SETTLE_S = 60.0
"""Long enough for some requests to come before and after."""
SETTLES = 5
"""Of a restart and a rolling update together."""


def settle_s(plan: ExperimentPlan, per_s: float) -> float:
    """No longer than a stage, unless so few requests come."""
    return max(min(plan.stage_s, SETTLE_S), min(SETTLE_REQUESTS / per_s, LONGEST_SETTLE_S))
