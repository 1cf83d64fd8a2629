"""Cohorts for an engine that nobody has described a workload for, sized by the longest request that it takes."""

from __future__ import annotations

from vramledger.workload.agents import Agent
from vramledger.workload.cohort import Cohort
from vramledger.workload.quantiles import Quantiles

LEAST_TOKENS = 64
"""An engine whose longest request is shorter is no place for a workload."""
PREFIX_HIT = 0.75
PREFIX_TEXTS = 2


def short_cohorts(longest_tokens: int) -> tuple[Cohort, ...]:
    """Questions and short answers."""
    return (_questions(longest_tokens),)


def mixed_cohorts(longest_tokens: int) -> tuple[Cohort, ...]:
    """Short ones, with long prompts and long outputs among them: one in five each."""
    longest = longest_tokens
    return (
        _questions(longest, weight=6.0),
        Cohort(
            name="long prompts",
            weight=2.0,
            prompt_tokens=_spread(min(4096, longest // 3), min(8192, longest // 2), min(16384, longest * 5 // 8)),
            output_tokens=_spread(min(96, longest // 32), min(256, longest // 16), min(384, longest // 10)),
            max_output_tokens="output",
        ),
        Cohort(
            name="long outputs",
            weight=2.0,
            prompt_tokens=_spread(min(192, longest // 32), min(512, longest // 16), min(768, longest // 10)),
            output_tokens=_spread(min(768, longest // 6), min(1536, longest // 3), min(2048, longest // 2)),
            max_output_tokens="output",
        ),
    )  # fmt: skip


def tool_cohorts(longest_tokens: int) -> tuple[Cohort, ...]:
    """Agents of a few turns that grow by answers and tools' results, and wait for tools meanwhile."""
    longest = longest_tokens
    head = max(longest // 16, 4)
    return (
        Cohort(
            name="agents",
            weight=1.0,
            prompt_tokens=Quantiles(
                min=2 * head + 8,
                p50=max(min(4096, longest // 3), 2 * head + 8),
                p95=max(min(12288, longest // 2), 2 * head + 8),
                p99=max(min(16384, longest * 5 // 8), 2 * head + 8),
                max=max(min(16384, longest * 5 // 8), 2 * head + 8),
            ),
            output_tokens=_spread(min(96, longest // 32), min(256, longest // 16), min(384, longest // 10)),
            max_output_tokens="output",
            agent=Agent(
                turns=Quantiles(p50=4, p95=7, p99=8, max=8),
                tool_tokens=head,
                system_tokens=head,
                tool_wait_ms=Quantiles(p50=400, p95=2000, p99=4000, max=5000),
            ),
        ),
    )


def _questions(longest: int, *, weight: float = 1.0) -> Cohort:
    return Cohort(
        name="questions",
        weight=weight,
        prompt_tokens=_spread(min(192, longest // 32), min(512, longest // 12), min(768, longest // 8)),
        output_tokens=_spread(min(96, longest // 32), min(192, longest // 16), min(256, longest // 12)),
        max_output_tokens="output",
    )


def _spread(half: int, most: int, longest: int) -> Quantiles:
    """Half are not longer than `half`, all but one in twenty not longer than `most`, and none longer than `longest`."""
    half = max(half, 2)
    most = max(most, half)
    longest = max(longest, most)
    return Quantiles(min=max(half // 4, 1), p50=half, p95=most, p99=longest, max=longest)
