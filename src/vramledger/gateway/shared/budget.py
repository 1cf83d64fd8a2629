"""What a gateway may use of one engine instance: all of it where it stands alone, a grant where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Budget(Protocol):
    """Blocks of KV and places among the running sequences of one instance that this gateway may use now.

    Every property is local and cheap, and may change between two calls: each decision reads them anew and admits what stays within them.
    A figure may fall below what runs already; then nothing more is admitted until enough has ended. All calls come from the event loop's thread.
    """

    on_change: Callable[[], None]
    """Called when more may be used than before: those that wait are to be asked again."""

    @property
    def blocks(self) -> int:
        """Blocks that all admitted requests together may hold, now and at their peak."""

    @property
    def places(self) -> int:
        """Sequences that may be admitted and not ended."""

    @property
    def total_blocks(self) -> int:
        """Of the instance, whoever uses them: what needs more never fits. 0 until it was told."""

    @property
    def total_places(self) -> int: ...

    @property
    def other_blocks(self) -> int:
        """Blocks that other gateways may use, as last heard: used blocks up to so many are theirs and not unaccounted for."""

    @property
    def is_careful(self) -> bool:
        """Nothing more may be admitted, whatever the engine has free, because what others do is not known."""

    def offer(self, total_blocks: int, total_places: int, epoch: str = "") -> None:
        """What the instance has, as read from the engine or given; told again when it changes. `epoch` differs after each of its starts."""

    def want(
        self,
        blocks: int,
        places: int,
        *,
        held_blocks: int,
        held_places: int,
        next_blocks: int = 0,
        next_places: int = 0,
    ) -> None:
        """What could be used now, told at each decision and each release.

        `held` is what admitted requests have reserved (their future peak); `blocks` and `places` are that and what those that wait need beside
        it. `next` is what the request whose turn it is needs by itself, so that one larger than this gateway's share has its turn too.
        """


def nobody() -> None:
    """Nobody waits."""


class WholeBudget:
    """A gateway that stands alone before its instance: all of it."""

    def __init__(self, total_blocks: int = 0, total_places: int = 0) -> None:
        self.on_change: Callable[[], None] = nobody
        self.total_blocks = total_blocks
        self.total_places = total_places
        self.other_blocks = 0
        self.is_careful = False

    @property
    def blocks(self) -> int:
        return self.total_blocks

    @property
    def places(self) -> int:
        return self.total_places

    def offer(self, total_blocks: int, total_places: int, epoch: str = "") -> None:
        del epoch
        is_more = total_blocks > self.total_blocks or total_places > self.total_places
        self.total_blocks, self.total_places = total_blocks, total_places
        if is_more:
            self.on_change()

    def want(
        self,
        blocks: int,
        places: int,
        *,
        held_blocks: int,
        held_places: int,
        next_blocks: int = 0,
        next_places: int = 0,
    ) -> None:
        """Nothing to ask for: it has everything."""
