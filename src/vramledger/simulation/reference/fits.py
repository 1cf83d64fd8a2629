"""Whether a request can be served at all, by an empty pool."""

from __future__ import annotations

from vramledger.kvcache.blocks.layout import GroupKind, PoolLayout
from vramledger.simulation.schedulers.sequence import lengths_of
from vramledger.simulation.settings import SimulationSettings
from vramledger.units import ceil_div
from vramledger.workload.request import Request


def can_ever_fit(settings: SimulationSettings, request: Request) -> bool:
    """Whether the model takes the prompt and one token more, and the pool every token that will be computed."""
    scheduler = settings.scheduler
    if request.prompt_tokens + 1 > scheduler.max_model_len:
        return False
    output_tokens, _ = lengths_of(request, scheduler.max_model_len)
    tokens = request.prompt_tokens + output_tokens - 1
    return (
        most_blocks(settings.layout, tokens, scheduler.max_num_batched_tokens)
        <= settings.layout.usable_blocks
    )


def most_blocks(layout: PoolLayout, tokens: int, step_tokens: int) -> int:
    """Blocks that one sequence of `tokens` holds at its most, where a step computes at most `step_tokens` of it.

    A window's or chunk's blocks go back when the next step begins, so the step's own tokens come on top of it.
    """
    total = 0
    for group in layout.groups:
        size = group.block_tokens
        window = group.window_tokens or 0
        if group.kind is GroupKind.STATE:
            total += group.state_blocks
        elif group.kind is GroupKind.WINDOW:
            total += min(ceil_div(tokens, size), ceil_div(window - 1 + step_tokens, size) + 1)
        elif group.kind is GroupKind.CHUNK:
            total += min(ceil_div(tokens, size), ceil_div(window + step_tokens, size))
        elif group.kind is GroupKind.FULL:
            total += ceil_div(tokens, size)
    return total
