"""A cache of any size, by the book: what it finds of each prompt."""

from __future__ import annotations

from vramledger.workload.columns import Workload


def found_tokens(workload: Workload) -> tuple[int, int]:
    """Tokens of leading blocks that an earlier request had within the same boundary, and tokens of all prompts."""
    block_tokens = workload.header.block_tokens or 1
    seen: set[tuple[int, int]] = set()
    found = prompts = 0
    for request in workload.requests():
        own = [(request.boundary, block) for block in request.blocks]
        in_prompt = min(len(own), (request.prompt_tokens - 1) // block_tokens)
        leading = next((place for place in range(in_prompt) if own[place] not in seen), in_prompt)
        found += leading * block_tokens
        prompts += request.prompt_tokens
        seen.update(own)
    return found, prompts


def hit_share(workload: Workload) -> float:
    found, prompts = found_tokens(workload)
    return found / prompts
