"""`[policy]`: what a person may say of the admission policy, in the units that a person writes. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from vramledger.admission.defaults import Goal
from vramledger.admission.settings import QueueBounds, Reservation
from vramledger.errors import InputError

PS_PER_MS = 1_000_000_000


class Deciding(StrEnum):
    POLICY = "policy"
    """Requests are let in by what the engine has room for."""
    NOBODY = "nobody"
    """Every request is let in at once: keys, paths, limits and metrics alone."""


class PolicySection(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy]`: who is let in and when. What is not given follows from the engine and the goal."""

    decided_by: Deciding = Deciding.POLICY
    """"nobody" lets every request in: for keys, paths, limits and metrics alone."""
    goal: Goal | None = None
    """What the policy is chosen for: deadlines, throughput or no-failure."""
    reservation: Reservation | None = None
    """How much output is reserved: no-evict, quantile, risk or optimistic."""
    safety_tokens: int | None = None
    """Added to each sequence."""
    safety_blocks: int | None = None
    """Kept out of the pool."""
    quantile: float | None = None
    """For the reservation quantile: the share of outputs that are no longer than what is reserved."""
    confidence: float | None = None
    """How sure a learned length has to be."""
    epsilon: float | None = None
    """For the reservation risk: the probability that the pool is exceeded."""
    watermark_blocks: int | None = None
    """For the reservation optimistic: blocks that stay free."""
    deadline_quantile: float | None = None
    """The share of outputs by whose length a completion deadline is judged."""
    queue_requests: int | None = None
    """Most requests that wait for one engine."""
    queue_tokens: int | None = None
    """Most tokens, of prompts and reserved outputs, that wait for one engine."""
    queue_age_ms: int | None = None
    """The longest wait."""
    ageing_ms: int | None = None
    """The wait that makes up for one priority."""

    def __post_init__(self) -> None:
        for name in ("quantile", "confidence", "epsilon", "deadline_quantile"):
            share = getattr(self, name)
            if share is not None and not 0 < share < 1:
                raise InputError(f"policy.{name} is {share}: a share above 0 and below 1 is needed", key=name)
        for name, least in (
            ("safety_tokens", 0), ("safety_blocks", 0), ("watermark_blocks", 0), ("queue_requests", 0),
            ("queue_tokens", 0), ("queue_age_ms", 0), ("ageing_ms", 1),
        ):  # fmt: skip
            count = getattr(self, name)
            if count is not None and count < least:
                raise InputError(f"policy.{name} is {count}: at least {least} is needed", key=name)

    def changes(self) -> dict[str, Any]:
        """Fields of `admission.settings.PolicySettings` that were given."""
        names = (
            "reservation", "safety_tokens", "safety_blocks", "quantile", "confidence", "epsilon", "watermark_blocks", "deadline_quantile",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if (self.queue_requests, self.queue_tokens, self.queue_age_ms) != (None, None, None):
            found["queue"] = QueueBounds(
                max_requests=self.queue_requests,
                max_tokens=self.queue_tokens,
                max_age_ps=None if self.queue_age_ms is None else self.queue_age_ms * PS_PER_MS,
            )
        if self.ageing_ms is not None:
            found["ageing_ps"] = self.ageing_ms * PS_PER_MS
        return found
