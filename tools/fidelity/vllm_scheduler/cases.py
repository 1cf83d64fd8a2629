"""Random workloads on tight pools, by seed.

A case is JSON: `settings` (a scheduler's and a pool's), `requests` (tokens of the prompt, the output tokens that the
model will make, the step before which it is sent and maybe cancelled) and `max_steps`.
"""

from __future__ import annotations

import random
from typing import Any

Case = dict[str, Any]
STOP_TOKEN = 1
"""Ends an output before its bound, as in probe.py."""

FAMILIES = ("plain", "shared", "tight", "priority", "windows", "long", "states")


def cases(count: int, *, seed: int = 0) -> list[Case]:
    """`count` cases, the families in turn, each synchronous and asynchronous."""
    return [case(number, seed) for number in range(count)]


def case(number: int, seed: int) -> Case:
    """Case `number` of a seed."""
    family = FAMILIES[number % len(FAMILIES)]
    rng = random.Random(f"{seed}/{number}")
    settings = _settings(rng, family)
    settings["async_scheduling"] = (number // len(FAMILIES)) % 2 == 1
    requests = _requests(rng, family, settings)
    return {
        "name": f"{family}-{seed}-{number}",
        "settings": settings,
        "requests": requests,
        "max_steps": 3000,
    }


def _settings(rng: random.Random, family: str) -> dict[str, Any]:
    block_tokens = rng.choice((4, 8, 16))
    max_model_len = rng.choice((64, 96, 160)) if family != "long" else 320
    groups: list[dict[str, Any]] = [{"kind": "full", "block_tokens": block_tokens}]
    if family == "windows":
        groups += _other_groups(rng, block_tokens)
    if family == "states":
        state = {"kind": "state", "block_tokens": max_model_len}
        keeps = {"kind": "kept-state", "block_tokens": block_tokens}
        groups += rng.choice(([state], [keeps], [keeps], [keeps, keeps]))
    chunked = rng.random() < 0.8
    budget = rng.choice((7, 16, 24, 33, 64))
    per_sequence = -(-max_model_len // block_tokens) * len(groups)
    room = rng.uniform(1.0, 1.6) if family in ("tight", "priority") else rng.uniform(1.0, 4)
    return {
        "max_num_seqs": rng.choice((3, 8, 16, 16)),
        "max_num_batched_tokens": max(budget, 16) if chunked else max_model_len,
        "max_model_len": max_model_len,
        "chunked_prefill": chunked,
        "prefix_caching": rng.random() < 0.85 and groups[-1]["kind"] != "state",
        "priority": family == "priority",
        "long_prefill_token_threshold": rng.choice((0, 0, 5, 12)) if chunked else 0,
        "watermark": rng.choice((0.0, 0.0, 0.05, 0.2)),
        "reserve_full_prompt": rng.random() < 0.6,
        "num_blocks": 1 + int(per_sequence * room) + 2,
        "groups": groups,
        # The engine's own default is 0: windows are kept where a prompt ends and where prefixes part.
        "retention_interval": rng.choice(
            (None, 0, 0, 2 * block_tokens) if groups[-1]["kind"] in ("window", "kept-state") else (None, 0)
        ),
    }


def _other_groups(rng: random.Random, block_tokens: int) -> list[dict[str, Any]]:
    """One or two groups beside full attention, alike or not."""
    window = {
        "kind": "window",
        "block_tokens": block_tokens,
        "window_tokens": rng.choice((block_tokens, block_tokens + 1, 2 * block_tokens + 3, 3 * block_tokens)),
    }
    chunk = {"kind": "chunk", "block_tokens": block_tokens, "window_tokens": 2 * block_tokens}
    wide = {**window, "block_tokens": 2 * block_tokens}
    return rng.choice(([window], [window], [window, window], [chunk], [wide], [window, wide]))


def _requests(rng: random.Random, family: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    longest = settings["max_model_len"]
    shares = rng.random() < 0.2 if family not in ("shared", "windows", "states") else True
    stems = [[rng.randrange(10, 100) for _ in range(longest)] for _ in range(3)]
    requests: list[dict[str, Any]] = []
    step = 0
    for number in range(rng.randint(8, 30)):
        step += rng.choice((0, 0, 0, 1, 2, 5)) if rng.random() < 0.9 else 40
        prompt_tokens = rng.randint(1, longest - 2) if rng.random() < 0.3 else rng.randint(1, longest // 4)
        own = [1000 * (number + 1) + place for place in range(prompt_tokens)]
        prompt = own
        earlier = [r for r in requests if r["at_step"] + 30 < step]
        if (
            shares and earlier and rng.random() < 0.3
        ):  # A later turn: an earlier prompt and its outputs, and more.
            parent = rng.choice(earlier)
            prompt = (parent["prompt"] + parent["outputs"][:-1] + own)[: max(prompt_tokens, 1)]
        elif shares and rng.random() < 0.8:
            common = rng.randint(0, prompt_tokens)
            prompt = rng.choice(stems)[:common] + own[common:]
        outputs = rng.randint(1, max(1, min(longest - len(prompt), rng.choice((3, 30, 100)))))
        stops = rng.random() < 0.3
        made = [500_000 + 1000 * number + place for place in range(outputs)]
        bound = outputs + rng.choice((0, 1, 7)) if stops else outputs
        if bound > outputs:
            made[-1] = STOP_TOKEN
        requests.append(
            {
                "prompt": prompt,
                "outputs": made,
                "max_output_tokens": bound,
                "priority": rng.randrange(3) if settings["priority"] else 0,
                "at_step": step,
                "cancel_step": step + rng.randint(0, 30) if rng.random() < 0.12 else None,
            }
        )
    return requests
