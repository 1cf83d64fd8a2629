"""The policy for an engine and a goal, where nobody chose another. docs/admission.md has what each does, by trace and load."""

from __future__ import annotations

from enum import StrEnum

from vramledger.admission.books import Pace
from vramledger.admission.settings import PolicySettings, QueueBounds, Reservation
from vramledger.engines.full_pool import WhenFull
from vramledger.kvcache.blocks.layout import PoolLayout


class Goal(StrEnum):
    """What an operator wants most."""

    DEADLINES = "deadlines"
    """As many requests as can be in time for their first token. Needs deadlines and a service time; without these it is `THROUGHPUT`."""
    THROUGHPUT = "throughput"
    """As many tokens as the engine can, in order of arrival: an engine that preempts is only kept from most of that."""
    NO_FAILURE = "no-failure"
    """No request that was let in is ever evicted or ends with an error for want of room, whatever it generates up to its bound."""


QUANTILE = 0.8
"""Reserving what four of five requests do not exceed leaves no room idle that the engine would have used, but for `WATERMARK`."""
WATERMARK = 0.02
"""Share of the pool that is to stay free: beside learned lengths it takes up most of what they are wrong by, and where nothing is reserved
for answers it is as fast as none in a burst, with a third of the preemptions."""
FIRST_GUESS_TOKENS = 256
"""Until lengths are known an engine that preempts loses less by a wrong guess than by idling: where clients name no bound, a request may grow to
all that the model allows, and a pool of such reservations serves one at a time."""


def default_settings(
    goal: Goal,
    when_full: WhenFull,
    *,
    layout: PoolLayout,
    max_model_len: int,
    max_running: int,
    step_tokens: int | None = None,
    lag_steps: int = 0,
    queue: QueueBounds | None = None,
) -> PolicySettings:
    """Settings for an engine that answers a full pool with `when_full`.

    Where requests fail all that they may grow to is reserved, whatever the goal: one too many costs everything that runs. The same where the
    engine itself lets nobody in before: what is let in earlier would only wait there, in order of arrival. Where it preempts, a learned length
    is reserved for deadlines, and for throughput only a share of the pool kept free. `step_tokens` and `lag_steps` are those of `Pace`; a step that has no room for a prompt beside `max_running` tokens bounds
    no wait, and no end is relied on.
    """
    if goal is Goal.NO_FAILURE or when_full is not WhenFull.RECOMPUTE:
        reservation = Reservation.NO_EVICT
    else:
        reservation = Reservation.OPTIMISTIC if goal is Goal.THROUGHPUT else Reservation.QUANTILE
    return PolicySettings(
        layout=layout,
        max_model_len=max_model_len,
        max_running=max_running,
        pace=Pace(step_tokens=step_tokens, max_running=max_running, lag_steps=lag_steps),
        reservation=reservation,
        watermark_blocks=int(layout.usable_blocks * WATERMARK),
        quantile=QUANTILE,
        confidence=QUANTILE,
        first_guess_tokens=FIRST_GUESS_TOKENS,
        puts_behind=goal is not Goal.THROUGHPUT,
        queue=QueueBounds() if queue is None else queue,
    )
