"""The largest goodput that any order of admission could have, in a long run of the same mix of requests.

Admission decides when whole requests go in; the engine computes what is in. Of a step's time at least the overhead and the weights' read pass
for every step, and in each step the pool holds no more blocks than it has. So a request costs, of the time of an instance that serves
many at once, at least

    steps * own blocks, summed over its output, over the pool's blocks: steps that it takes for itself, at the time of an empty one,
    + the time of its prefill beyond that of as many empty steps,
    + reading its context once an output token, and its attention,

with every prompt's beginning that came before found in the cache and held by somebody else. If the cheapest requests are served and the others
not, their costs may add up to the time in which they come, and no more. Nobody has such luck: the pool is never exactly full,
lengths are not known, and deadlines bind. What no schedule can do is more.
"""

from __future__ import annotations

from tools.admission_table.scenes import BY_NAME, MAX_RUNNING, STEP, STEP_TOKENS, Part, asked

from vramledger.simulation.step_model import PS_PER_S
from vramledger.units import ceil_div


def largest_goodput(costs_ps: list[int], requests_per_s: float) -> float:
    """The share of requests whose costs, the smallest first, fit into the time in which as many come."""
    left = len(costs_ps) * PS_PER_S / requests_per_s
    served = 0.0
    for cost in sorted(costs_ps):
        if cost > left:
            served += left / cost
            break
        left -= cost
        served += 1
    return served / len(costs_ps)


def least_costs(scene_name: str, part: Part) -> list[int]:
    """What each request of a part costs at least, in picoseconds."""
    scene = BY_NAME[scene_name]
    rows = asked(scene, part)
    known: set[tuple[int, int]] = set()
    costs = []
    for one in rows.requests:
        names = [(one.boundary, block) for block in one.blocks]
        cached = next((place for place, name in enumerate(names) if name not in known), len(names))
        known.update(names)
        cached_tokens = min(cached * (rows.block_tokens or 0), one.prompt_tokens - 1)
        costs.append(
            least_cost(one.prompt_tokens, cached_tokens, one.output_tokens, scene.blocks, scene.block_tokens)
        )
    return costs


def least_cost(prompt_tokens: int, cached_tokens: int, output_tokens: int, blocks: int, size: int) -> int:
    """One request's."""
    own = prompt_tokens - cached_tokens
    decodes = output_tokens - 1
    block_steps = sum((own + place) // size for place in range(1, decodes + 1))
    chunks = ceil_div(own, STEP_TOKENS - MAX_RUNNING)
    return (
        block_steps * (STEP.overhead_ps + STEP.floor_ps) // blocks
        + max(0, own * STEP.token_ps - chunks * STEP.floor_ps)
        + decodes * STEP.decode_seq_ps
        + (decodes * prompt_tokens + decodes * (decodes - 1) // 2) * STEP.kv_token_ps
        + own * (cached_tokens + own // 2) * STEP.pair_ps_per_1024 // 1024
    )
