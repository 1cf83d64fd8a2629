"""When an engine was seen to give back the blocks of requests that ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from vramledger.gateway.record import RequestRecord

if TYPE_CHECKING:
    from vramledger.gateway.messages import RequestHead

MOST_WAITING = 4096
GIVEN_UP_NS = 60_000_000_000


class BlocksBack:
    """An observer that is also told what an engine and the books hold, whenever the engine was asked.

    When a request ends the books count its blocks no more, so what the engine holds above the books rises until it lets go of them. They are
    back at the first sample after the end at which that surplus is no larger than it was at the last sample before it. So an instant is as
    fine as engines are asked, and other requests disturb it only as far as the books are wrong about them. `told` gets each record then.
    """

    def __init__(self, told: Callable[[RequestRecord], None]) -> None:
        self._told = told
        self._surplus: dict[int, int] = {}
        self._waiting: dict[int, deque[tuple[RequestRecord, int]]] = {}
        self.unseen = 0
        """Records given up: too many, or not seen in a minute."""

    def arrived(self, record: RequestRecord, head: RequestHead) -> None: ...

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None: ...

    def ended(self, record: RequestRecord) -> None:
        instance = record.instance
        if instance is None or instance not in self._surplus or not record.blocks or not record.finished_ns:
            return
        waiting = self._waiting.setdefault(instance, deque())
        if len(waiting) >= MOST_WAITING:
            self.unseen += 1
            return
        waiting.append((record, self._surplus[instance]))

    def sampled(self, instance: int, at_ns: int, used_blocks: int | None, booked_blocks: int | None) -> None:
        """What the engine held when it was asked at `at_ns`, and the books at the same time. None: it did not say."""
        if used_blocks is None or booked_blocks is None:
            self._surplus.pop(instance, None)
            return
        surplus = self._surplus[instance] = used_blocks - booked_blocks
        waiting = self._waiting.get(instance)
        for _ in range(len(waiting) if waiting else 0):
            assert waiting is not None
            record, before = waiting.popleft()
            if at_ns < record.finished_ns or surplus > before:
                if at_ns - record.finished_ns > GIVEN_UP_NS:
                    self.unseen += 1
                else:
                    waiting.append((record, before))
                continue
            record.blocks_back_ns = at_ns
            self._told(record)
