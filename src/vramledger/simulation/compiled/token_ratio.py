"""The share of running requests' remaining output that SGLang reserves (rules: `schedulers.sglang_admission`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from vramledger.simulation.compiled.jit import compiled
from vramledger.simulation.compiled.memory import (
    CHOSEN_AT,
    CLIP,
    COMPUTED,
    EXPECTED,
    PROMPT,
    RATIO,
    STEP,
    Memory,
    row_of,
)  # fmt: skip
from vramledger.simulation.schedulers.sglang_admission import RETRACT_DECODE_STEPS


@compiled
def ratios(m: Any) -> Any:
    """The ratio now, at first, at least, and what a decode step takes off, as floats in memory."""
    return m[RATIO : RATIO + 4].view(np.float64)


@compiled
def decay(m: Memory, steps: int) -> None:
    """So many decode steps ran without retraction."""
    floats = ratios(m)
    for _ in range(steps):
        if floats[0] == floats[2]:
            return
        floats[0] = max(floats[0] - floats[3], floats[2])


@compiled
def reset_ratio(m: Memory) -> None:
    """The instance is idle."""
    floats = ratios(m)
    floats[0] = floats[1]


@compiled
def ratio_after_retraction(m: Memory, generated: int, count: int, most: int) -> None:
    """What the requests that stay have used, with room for some steps each."""
    ratios(m)[0] = min(1.0, (generated + RETRACT_DECODE_STEPS * count) / (most + 1))


@compiled
def reserved_tokens(m: Memory, count: int) -> float:
    """Tokens held back for the output of the decoding requests, which lie in order in the chosen."""
    ratio = ratios(m)[0]
    total = 0.0
    for place in range(count):
        row = row_of(m, m[m[CHOSEN_AT] + place])
        generated = m[row + COMPUTED] + m[STEP] + 1 - m[row + PROMPT]
        total += min(m[row + EXPECTED] - generated, m[CLIP]) * ratio
    return total
