"""A gateway's part of one instance, as it knows it: what it may use now, what it asks for, what it gives back. No socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from vramledger.errors import InputError
from vramledger.gateway.shared.budget import nobody
from vramledger.gateway.shared.settings import SharingSettings, WhenLost
from vramledger.gateway.shared.terms import MOST, Answer, Ask

Pair = tuple[int, int]
"""Blocks, places."""
NONE: Pair = (0, 0)


def elapsed_ns() -> int:
    """Time that goes on while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime_ns(BOOT) if BOOT is not None else time.monotonic_ns()


BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Standing(Enum):
    """How things stand between a gateway and the store."""

    JOINING = "joining"
    """Not answered yet, or answered by a store that does not give out yet."""
    GRANTED = "granted"
    LOST = "lost"
    """Not answered for so long that the grant is not relied on."""


class Grant:
    """A `Budget` that is a part of an instance. `wake` is called when the store is to be asked soon.

    What it may use never grows but by an answer of the store, and is lowered before the store is told. It counts from the time at which the
    call began that was answered, so that it ends here before it ends there.
    """

    def __init__(
        self,
        settings: SharingSettings,
        *,
        clock_ns: Callable[[], int] = elapsed_ns,
        wake: Callable[[], None] = nobody,
    ) -> None:
        self.on_change: Callable[[], None] = nobody
        self.other_epoch = ""
        """By which another gateway knows the instance, if not by this one's: it may have started anew."""
        self.answer: Answer | None = None
        self.lapses = 0
        """Times that the grant ran out before the store answered again."""
        self._settings = settings
        self._clock_ns = clock_ns
        self._wake = wake
        self._blocks, self._places = NONE
        self._share: Pair = NONE
        self._held: Pair = NONE
        self._want: Pair = NONE
        self._next: Pair = NONE
        self._asked: Pair = NONE
        self._total: Pair = NONE
        self._fallback: Pair = NONE
        self._chunk: Pair = (1, 1)
        self._epoch = ""
        self._number = 0
        self._has_lapsed = False
        self._spend_until_ns = self._covered_until_ns = self._ask_at_ns = clock_ns()

    @property
    def blocks(self) -> int:
        return self._blocks if self._clock_ns() < self._spend_until_ns else self._lost()[0]

    @property
    def places(self) -> int:
        return self._places if self._clock_ns() < self._spend_until_ns else self._lost()[1]

    @property
    def total_blocks(self) -> int:
        return self._total[0]

    @property
    def total_places(self) -> int:
        return self._total[1]

    @property
    def other_blocks(self) -> int:
        return 0 if self.answer is None else self.answer.other_blocks

    @property
    def is_careful(self) -> bool:
        return self._settings.when_lost is WhenLost.STOP and self.standing is not Standing.GRANTED

    @property
    def standing(self) -> Standing:
        if self.answer is None:
            return Standing.JOINING
        if self._clock_ns() >= self._spend_until_ns:
            return Standing.LOST
        return Standing.JOINING if self.answer.opens_in_ms and not any(self.answer[:2]) else Standing.GRANTED

    @property
    def is_overdue(self) -> bool:
        """Requests run here whose blocks the store may have given to others."""
        return self.answer is not None and any(self._held) and self._clock_ns() >= self._covered_until_ns

    @property
    def ask_at_ns(self) -> int:
        """When the store is to be asked next."""
        return self._ask_at_ns

    def offer(self, total_blocks: int, total_places: int, epoch: str = "") -> None:
        for name, count in (("total_blocks", total_blocks), ("total_places", total_places)):
            if not 0 <= count <= MOST:
                raise InputError(f"{name} is {count}: from 0 to 2^40 is needed", name=name, value=count)
        if (self._total, self._epoch) == ((total_blocks, total_places), epoch):
            return
        settings = self._settings
        self._total, self._epoch = (total_blocks, total_places), epoch_word(epoch)
        self._chunk = max(1, total_blocks // settings.chunks), max(1, total_places // settings.chunks)
        if settings.when_lost is WhenLost.SHARE:
            self._fallback = int(total_blocks * settings.share), int(total_places * settings.share)
        self._soon()

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
        self._held = held_blocks, held_places
        self._want = blocks, places
        self._next = next_blocks, next_places
        share_blocks, share_places = self._share
        if self._blocks > share_blocks or self._places > share_places:
            self._settle()
        asked_blocks, asked_places = self._asked
        if (blocks > asked_blocks and blocks > self._blocks) or (
            places > asked_places and places > self._places
        ):
            self._soon()

    def ask(self, *, is_leaving: bool = False) -> Ask:
        """What to tell the store now. What is given back is not used from here on."""
        now = self._clock_ns()
        if now >= self._spend_until_ns:
            if self.answer is not None and not self._has_lapsed:
                self._has_lapsed = True
                self.lapses += 1
            self._blocks, self._places = self._lost()
        self._asked = NONE if is_leaving else (min(self._want[0], MOST), min(self._want[1], MOST))
        self._give_back()
        self._number += 1
        self._ask_at_ns = now + self._pause_ns()
        return Ask(
            self._number,
            self._blocks,
            self._places,
            *self._asked,
            *(NONE if is_leaving else (min(self._next[0], MOST), min(self._next[1], MOST))),
            *self._total,
            *self._spare(),
            self._epoch,
            is_leaving,
        )

    def answered(self, answer: Answer, began_ns: int) -> None:
        """The store's answer to the last `ask`; `began_ns` is the time before it was sent."""
        before = self.blocks, self.places
        self.answer = answer
        self.other_epoch = answer.other_epoch
        self._has_lapsed = False
        self._spend_until_ns = began_ns + self._settings.spend_ns
        self._covered_until_ns = began_ns + self._settings.covered_ns
        self._blocks, self._places = answer.blocks, answer.places
        # Where it has all that it asked for, it is nobody else who decides how much of that goes back.
        asked, spare = self._asked, self._spare()
        self._share = (
            answer.share_blocks if answer.share_blocks < asked[0] + spare[0] else MOST,
            answer.share_places if answer.share_places < asked[1] + spare[1] else MOST,
        )
        self._settle()
        self._ask_at_ns = min(self._ask_at_ns, began_ns + self._pause_ns())
        if self.blocks > before[0] or self.places > before[1]:
            self.on_change()

    def _settle(self) -> None:
        """What is above its share and not held is not used any more, and goes back with the next call."""
        blocks = max(self._held[0], min(self._blocks, self._share[0]))
        places = max(self._held[1], min(self._places, self._share[1]))
        if blocks < self._blocks or places < self._places:
            self._blocks, self._places = min(blocks, self._blocks), min(places, self._places)
            self._soon()

    def _give_back(self) -> None:
        """Keeps what it has unless that is two pieces more than it wants; what runs is a fact, also where it was not granted."""
        spare_blocks, spare_places = self._spare()
        want_blocks, want_places = self._asked
        if self._blocks > want_blocks + 2 * spare_blocks:
            self._blocks = want_blocks + spare_blocks
        if self._places > want_places + 2 * spare_places:
            self._places = want_places + spare_places
        self._blocks = min(max(self._blocks, self._held[0]), MOST)
        self._places = min(max(self._places, self._held[1]), MOST)

    def _spare(self) -> Pair:
        """One piece for who comes next; nothing where there is nothing to do."""
        return self._chunk if any(self._asked) else NONE

    def _pause_ns(self) -> int:
        is_hungry = self._want[0] > self._blocks or self._want[1] > self._places
        settings = self._settings
        return (settings.hungry_ms if is_hungry else settings.heartbeat_ms) * 1_000_000

    def _lost(self) -> Pair:
        """What it may use without the store: what runs, and more only where that was chosen."""
        when = self._settings.when_lost
        if when is WhenLost.GRANT:
            return self._blocks, self._places
        if when is WhenLost.SHARE:
            return max(self._held[0], self._fallback[0]), max(self._held[1], self._fallback[1])
        return self._held

    def _soon(self) -> None:
        self._ask_at_ns = self._clock_ns()
        self._wake()


def epoch_word(epoch: str) -> str:
    """An engine's start as the store keeps it: 80 visible ASCII characters at the most."""
    return "".join(letter for letter in epoch if "!" <= letter <= "~")[:80]
