"""Whether a request can be served at all, by an empty pool."""

from __future__ import annotations

from vramledger.admission.need import most_blocks
from vramledger.kvcache.blocks.layout import GroupKind, PoolLayout
from vramledger.simulation.schedulers.sequence import lengths_of
from vramledger.simulation.schedulers.sglang_admission import output_room
from vramledger.simulation.settings import Scheduling, SimulationSettings
from vramledger.units import ceil_div
from vramledger.workload.request import Request


def can_ever_fit(settings: SimulationSettings, request: Request) -> bool:
    """Whether the model takes the prompt and one token more, and the pool every token that will be computed."""
    scheduler = settings.scheduler
    if request.prompt_tokens + 1 > scheduler.max_model_len:
        return False
    usable_blocks = settings.layout.usable_blocks
    output_tokens, expected_tokens = lengths_of(request, scheduler.max_model_len)
    tokens = request.prompt_tokens + output_tokens - 1
    match scheduler.scheduling:
        case Scheduling.SGLANG:  # It cuts the output to the pool's room.
            page_tokens = settings.layout.groups[0].block_tokens
            room = output_room(usable_blocks * page_tokens, request.prompt_tokens, page_tokens)
            return room >= 1
        case Scheduling.TRTLLM_NO_EVICT | Scheduling.STATIC_BATCH | Scheduling.TRTLLM_MAX_UTILIZATION:
            # Without chunks a prompt runs in one step, and none longer than a step is taken (llmapi/llm.py, _check_arguments).
            if not scheduler.chunked_prefill and request.prompt_tokens > scheduler.max_num_batched_tokens:
                return False
            # The first two reserve all that was asked for; the third looks a step ahead, up to that.
            tokens = request.prompt_tokens + expected_tokens
        case Scheduling.VLLM | Scheduling.LLAMACPP:
            if (
                scheduler.reserve_full_prompt
                and reserved_blocks(settings.layout, request.prompt_tokens) > usable_blocks
            ):
                return False
    steps = 2 if scheduler.async_scheduling else 1
    return most_blocks(settings.layout, tokens, scheduler.max_num_batched_tokens, steps) <= usable_blocks


def reserved_blocks(layout: PoolLayout, prompt_tokens: int) -> int:
    """Blocks that must be free for a prompt of which nothing is cached, where the whole of it is reserved."""
    total = 0
    for group in layout.groups:
        blocks = ceil_div(prompt_tokens, group.block_tokens)
        if group.kind is GroupKind.STATE:
            blocks = min(blocks, 1) if group.keeps_states else group.state_blocks
        elif group.kind is GroupKind.CROSS:
            blocks = 0
        elif group.admission_blocks is not None:
            blocks = min(blocks, group.admission_blocks)
        total += blocks
    return total
