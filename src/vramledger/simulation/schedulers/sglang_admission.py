"""SGLang's admission arithmetic: what one prefill batch may take, and how much of the running requests' output is reserved.

Rules of SGLang 0.5.23 (`managers/schedule_policy.py` PrefillAdder, `mem_cache/prefill_budget.py`,
`managers/scheduler_components/new_token_ratio_tracker.py`, `managers/schedule_batch.py`). Tokens throughout; a page is a block.
The reservation is soft: a running request's remaining output counts by a share that falls while nothing has to be retracted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from vramledger.simulation.settings import SchedulerSettings

RETRACT_DECODE_STEPS = 20
"""Decode steps that a retraction makes room for (SGLANG_RETRACT_DECODE_STEPS)."""


class Decoding(NamedTuple):
    """A running request as admission sees it: what it may generate at most, and what it has."""

    max_output_tokens: int
    generated_tokens: int


class NewTokenRatio:
    """The share of a running request's remaining output that is reserved."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self.initial = min(settings.initial_new_token_ratio, 1.0)
        self.least = min(settings.min_new_token_ratio, 1.0)
        self.decay = (self.initial - self.least) / settings.new_token_ratio_decay_steps
        self.current = self.initial

    def decay_step(self) -> None:
        """A decode step ran without retraction."""
        self.current = max(self.current - self.decay, self.least)

    def reset(self) -> None:
        """The instance is idle."""
        self.current = self.initial

    def retracted(self, kept: Iterable[Decoding]) -> None:
        """Requests were retracted: the share is what those that stay have used, with room for 20 steps each."""
        rows = list(kept)
        generated = sum(row.generated_tokens for row in rows)
        most = sum(row.max_output_tokens for row in rows)
        self.current = min(1.0, (generated + RETRACT_DECODE_STEPS * len(rows)) / (most + 1))


def reserved_tokens(running: Iterable[Decoding], ratio: float, clip_tokens: int) -> float:
    """Tokens held back for the output of running requests.

    Added one by one in order, as Python's own sum does up to 3.11: later ones keep what rounding loses, and a run would depend on the Python that runs it.
    """
    total = 0.0
    for row in running:
        total += min(row.max_output_tokens - row.generated_tokens, clip_tokens) * ratio
    return total


def output_room(pool_tokens: int, prompt_tokens: int, page_tokens: int) -> int:
    """Output tokens that the empty pool has room for beside a prompt; below one the prompt is refused (max_new_tokens_for_memory)."""
    return pool_tokens - _whole_pages(prompt_tokens, page_tokens) - page_tokens - 1


def keep_order(running: list[tuple[int, int]]) -> list[int]:
    """Positions of (generated, prompt) tokens, most worth keeping first; retraction takes from the end.

    Longest output first, ties shortest prompt first; among equals the later one goes first.
    """
    return sorted(range(len(running)), key=lambda i: (running[i][0], -running[i][1]), reverse=True)


class Answer(Enum):
    """How a pass goes on after a candidate."""

    CONTINUE = auto()
    NO_TOKEN = auto()
    """No room: the batch counts as full until a request leaves it."""
    OTHER = auto()
    """The step's budget is spent."""


class Share(NamedTuple):
    """What a candidate gets: 0 tokens is not admitted. A partial one is the batch's last and goes on in the next."""

    tokens: int
    is_partial: bool
    answer: Answer


class PrefillPass:
    """The budgets of one prefill batch. `available_tokens` is what is free or can be evicted when the pass begins."""

    def __init__(
        self,
        settings: SchedulerSettings,
        *,
        page_tokens: int,
        available_tokens: int,
        ratio: float,
        running: Iterable[Decoding],
    ) -> None:
        self._page = page_tokens
        self._clip = settings.clip_max_new_tokens
        self._available = available_tokens
        self._input_left = settings.max_prefill_tokens
        self._chunk_left = settings.max_num_batched_tokens if settings.chunked_prefill else None
        self._reserved = reserved_tokens(running, ratio, self._clip)
        self._reserved_now = 0
        self._admitted = 0

    @property
    def left_in_all(self) -> float:
        """Tokens left when outputs are reserved."""
        return self._available - self._reserved

    @property
    def answer(self) -> Answer:
        """Whether another candidate may be tried."""
        if self.left_in_all <= 0 or self._available - self._reserved_now <= 0:
            return Answer.NO_TOKEN
        if self._input_left <= 0 or (self._chunk_left is not None and self._chunk_left <= 0):
            return Answer.OTHER
        return Answer.CONTINUE

    def resume(self, *, extend_tokens: int, max_output_tokens: int) -> Share:
        """The next chunk of the request that is partly prefilled. It always goes on: waiting would not free anything."""
        if self._chunk_left is None:
            raise ValueError("a request can only be resumed where prefill is chunked")
        left = min(self._chunk_left, int(self.left_in_all))
        if left <= 0:
            left = self._chunk_left
        is_partial = extend_tokens > left
        tokens = min(extend_tokens, left)
        self._charge(tokens, 0 if is_partial else min(max_output_tokens, self._clip))
        return Share(tokens, is_partial, self.answer)

    def add(
        self,
        *,
        prefix_tokens: int,
        extend_tokens: int,
        max_output_tokens: int,
        generated_tokens: int,
        pinned_tokens: int,
    ) -> Share:
        """A candidate of the queue with `extend_tokens` beyond its cached prefix, of which `pinned_tokens` nobody held so far.

        Whole prompt, its own output in full (clipped) and a page must be *less* than what is left.
        """
        output_left = min(max(max_output_tokens - generated_tokens, 0), self._clip)
        if not extend_tokens + output_left + self._page < self.left_in_all - pinned_tokens:
            return Share(0, False, Answer.NO_TOKEN)
        paged = _whole_pages(extend_tokens, self._page)
        if self._chunk_left is None and self._admitted and paged >= self._input_left:
            return Share(0, False, Answer.OTHER)
        tokens = extend_tokens
        is_partial = self._chunk_left is not None and paged > self._chunk_left
        if self._chunk_left is not None and is_partial:
            end = prefix_tokens + self._chunk_left // self._page * self._page
            tokens = end // self._page * self._page - prefix_tokens
            if tokens <= 0:
                return Share(0, False, Answer.OTHER)
        self._available -= pinned_tokens
        # The whole bound is charged here, also of a request that was retracted and has part of its output.
        self._charge(tokens, 0 if is_partial else min(max_output_tokens, self._clip))
        return Share(tokens, is_partial, self.answer)

    def _charge(self, tokens: int, output_tokens: int) -> None:
        paged = _whole_pages(tokens, self._page)
        self._reserved_now += paged + self._page
        self._reserved += paged + self._page + output_tokens
        self._input_left -= paged
        if self._chunk_left is not None:
            self._chunk_left -= paged
        self._admitted += 1


def _whole_pages(tokens: int, page_tokens: int) -> int:
    return -(-tokens // page_tokens) * page_tokens
