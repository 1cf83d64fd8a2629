"""When an engine was seen to give back the blocks of requests that ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from vramledger.gateway.record import RequestRecord
from vramledger.units import ceil_div

if TYPE_CHECKING:
    from vramledger.gateway.messages import RequestHead

MOST_WAITING = 4096
GIVEN_UP_NS = 60_000_000_000


class BlocksBack:
    """An observer that is also told what an engine and the books hold, whenever the engine was asked.

    When a request ends the books count its blocks no more, so what the engine holds above the books rises until it lets go of them. They are
    back at the first sample after the end at which that surplus is no larger than it was at the last sample before it. What the books had
    wrong about a request (its prompt is counted before the engine says how long it was) leaves them with it, and is set off. So an instant is as
    fine as engines are asked, and requests that begin in between disturb it as far as the books are wrong about those. `told` gets each record.
    """

    def __init__(self, told: Callable[[RequestRecord], None]) -> None:
        self._told = told
        self._engines: dict[int, _Engine] = {}
        self.unseen = 0
        """Records given up: too many, not seen in a minute, or of an engine that says nothing any more."""

    def arrived(self, record: RequestRecord, head: RequestHead) -> None: ...

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None: ...

    def ended(self, record: RequestRecord) -> None:
        engine = self._engines.get(-1 if record.instance is None else record.instance)
        if engine is None or not record.blocks or not record.finished_ns:
            return
        if len(engine.waiting) >= MOST_WAITING:
            self.unseen += 1
            return
        engine.waiting.append((record, engine.surplus))
        engine.leaving.append((record.released_ns or record.finished_ns, _booked_above(record)))

    def sampled(self, instance: int, at_ns: int, used_blocks: int | None, booked_blocks: int | None) -> None:
        """What the engine held when it was asked at `at_ns`, and the books at the same time. None: it did not say."""
        if used_blocks is None or booked_blocks is None:
            gone = self._engines.pop(instance, None)
            self.unseen += len(gone.waiting) if gone is not None else 0
            return
        engine = self._engines.setdefault(instance, _Engine())
        while engine.leaving and engine.leaving[0][0] <= at_ns:
            engine.set_off += engine.leaving.popleft()[1]
        engine.surplus = used_blocks - booked_blocks - engine.set_off
        for _ in range(len(engine.waiting)):
            record, before = engine.waiting.popleft()
            if at_ns >= record.finished_ns and engine.surplus <= before:
                record.blocks_back_ns = at_ns
                self._told(record)
            elif at_ns - record.finished_ns > GIVEN_UP_NS:
                self.unseen += 1
            else:
                engine.waiting.append((record, before))


class _Engine:
    """`surplus` is what it held above the books when it was last asked, less what left the books without ever having been in the engine."""

    __slots__ = ("leaving", "set_off", "surplus", "waiting")

    def __init__(self) -> None:
        self.surplus = 0
        self.set_off = 0
        self.waiting: deque[tuple[RequestRecord, int]] = deque()
        self.leaving: deque[tuple[int, int]] = deque()
        """(when the books counted it no more, blocks that they had for it above what the engine had)."""


def _booked_above(record: RequestRecord) -> int:
    """Blocks of one sequence by the prompt that the books went by, above those by the prompt that it had; 0 where either is not known."""
    size, booked = record.number_of("block_size"), record.number_of("prompt_tokens")
    told = record.ending.prompt_tokens if record.ending is not None else None
    if told is None and record.facts.prompt is not None:
        told = record.facts.prompt.tokens
    if not size or booked is None or told is None:
        return 0
    output = (record.ending.output_tokens if record.ending is not None else None) or 0
    return ceil_div(booked + output, size) - ceil_div(told + output, size)
