"""Two sides' steps of one case, and the compact form in which an engine's are kept."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

Step = dict[str, Any]
FIELDS = ("tokens", "admitted", "preempted", "running", "waiting", "blocks", "free", "ended", "free_after")
IN_DIGEST = ("running", "waiting", "blocks")


def first_difference(ours: list[Step], theirs: list[Step]) -> str:
    """Where two runs part, in words; empty where they do not."""
    for place, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        parts = [
            f"{name}: ours {mine[name]}, theirs {other[name]}" for name in mine if mine[name] != other[name]
        ]
        if parts:
            return f"step {place}: " + "; ".join(parts)
    if len(ours) != len(theirs):
        return f"{len(ours)} steps of ours, {len(theirs)} of theirs"
    return ""


def compact(step: Step) -> list[Any]:
    """A step as it is kept: queues and block tables only as a checksum."""
    kept = [step[name] for name in FIELDS if name not in IN_DIGEST]
    digest = crc32(json.dumps([step[name] for name in IN_DIGEST], sort_keys=True).encode())
    return [*kept, digest]


def counted(steps: list[Step]) -> dict[str, int]:
    """What a run had of the events that matter."""
    return {
        "steps": len(steps),
        "tokens": sum(count for step in steps for _, count in step["tokens"]),
        "admissions": sum(len(step["admitted"]) for step in steps),
        "hits": sum(hit > 0 for step in steps for _, hit in step["admitted"]),
        "preemptions": sum(len(step["preempted"]) for step in steps),
    }
