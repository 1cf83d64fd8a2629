"""Work of the processor that would hold up the event loop goes to a few threads, and only so much of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class Busy(Exception):
    """As much is being done, or waits for it, as may."""


class OffLoop:
    """`most` pieces of work, running and waiting together, on `threads` threads that start when they are needed."""

    def __init__(self, *, threads: int = 2, most: int = 16) -> None:
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="vramledger-tokens")
        self._most = most
        self._closed = False
        self.pending = 0

    async def run(self, work: Callable[[], Result]) -> Result:
        """Raises Busy, and whatever the work raises. When cancelled, what has not begun never does; what runs ends unheard."""
        if self._closed or self.pending >= self._most:
            raise Busy
        loop = asyncio.get_running_loop()
        future: Future[Result] = self._threads.submit(work)
        self.pending += 1
        future.add_done_callback(lambda _: self._done(loop))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Nothing begins any more; what runs ends unheard."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _done(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon_threadsafe(self._one_less)
        except RuntimeError:  # the loop is closed, and nobody asks any more
            self._one_less()

    def _one_less(self) -> None:
        self.pending -= 1
