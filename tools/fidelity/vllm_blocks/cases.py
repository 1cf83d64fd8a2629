"""Pools and seeds. Standard library only: vLLM's Python reads this too."""

from __future__ import annotations

from typing import Any

Case = dict[str, Any]

MAX_MODEL_LEN = 400
IN_FLIGHT_TOKENS = 64

FULL, WINDOW, CHUNK, STATE = "full", "window", "chunk", "state"
SHAPES: dict[str, tuple[tuple[str, int, int], ...]] = {
    "full": ((FULL, 16, 0),),
    "window": ((WINDOW, 16, 40),),
    "full-window": ((FULL, 16, 0), (WINDOW, 16, 50)),
    "windows-full": ((WINDOW, 16, 50), (WINDOW, 16, 50), (FULL, 16, 0)),
    "full-coarse": ((FULL, 8, 0), (WINDOW, 16, 50)),
    "full-fine": ((FULL, 16, 0), (WINDOW, 8, 20)),
    "three-sizes": ((FULL, 32, 0), (WINDOW, 8, 20), (WINDOW, 16, 70)),
    "full-chunk": ((FULL, 16, 0), (CHUNK, 16, 64)),
    "state": ((STATE, 16, 0),),
    "full-state": ((FULL, 16, 0), (STATE, 16, 0)),
    "full-states": ((FULL, 32, 0), (STATE, 32, 0), (STATE, 32, 0)),
}
"""Groups as (kind, tokens a block, window or chunk)."""


def cases(seeds: int, *, first_seed: int = 0, steps: int = 200) -> list[Case]:
    """Every shape with a small and a larger pool, and with each way to retain windows and states that it can tell apart."""
    found = []
    for name, groups in SHAPES.items():
        sparse = any(kind in (WINDOW, STATE) for kind, _, _ in groups)
        for retention in (None, 0, 64) if sparse else (None,):
            for blocks in (30, 80):
                for seed in range(first_seed, first_seed + seeds):
                    found.append(
                        {
                            "name": f"{name}-{retention}-{blocks}-{seed}",
                            "groups": groups,
                            "retention": retention,
                            "blocks": blocks,
                            "seed": seed,
                            "steps": steps,
                        }
                    )
    return found


def admission_blocks(kind: str, block_tokens: int, window: int) -> int | None:
    """What vLLM counts at most for a whole prompt: SlidingWindowSpec and ChunkedLocalAttentionSpec in kv_cache_interface.py."""
    if kind == WINDOW:
        return -(-min(window - 1 + IN_FLIGHT_TOKENS, MAX_MODEL_LEN) // block_tokens) + 1
    if kind == CHUNK:
        return -(-min(window + IN_FLIGHT_TOKENS, MAX_MODEL_LEN) // block_tokens)
    return None
