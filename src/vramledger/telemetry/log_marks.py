"""Marks from an engine's log that is followed while the engine is sampled."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from vramledger.errors import VramledgerError
from vramledger.models.sources.bounded_file import shown
from vramledger.telemetry.log_following import Following
from vramledger.telemetry.log_reading import HEAD_BYTES, detect_engine, read_log
from vramledger.telemetry.marks import Mark, Marker

POLL_S = 0.05
QUIET_S = 0.2
END_S = 2.0


class LogMarks:
    """New marks of a log, each once, timed when it was read.

    What the log held already when following began comes first, at that time. The log may appear later. It is read in a thread
    that ends when the context does. `problem` is why nothing was read, or can no longer be, None while it is.
    """

    def __init__(
        self, path: Path, *, engine: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._engine = engine
        self._clock = clock
        self._queue: queue.SimpleQueue[Mark] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="log marks", daemon=True)
        self.problem: str | None = f"{shown(path)} is not there, or is no log of an engine known here"

    def __enter__(self) -> LogMarks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(END_S)

    def __call__(self) -> list[Mark]:
        found: list[Mark] = []
        while True:
            try:
                found.append(self._queue.get_nowait())
            except queue.Empty:
                return found

    def _follow(self) -> None:
        following = Following(stop=self._ended.is_set, poll_s=POLL_S, quiet_s=QUIET_S)
        marker = Marker()
        try:
            engine = self._engine or self._spoken()
            if engine is None:
                return
            self.problem = None
            for observation in read_log(self._path, engine=engine, follow=following):
                mark = marker(observation, self._clock())
                if mark is not None:
                    self._queue.put(mark)
        except VramledgerError as problem:
            self.problem = problem.message

    def _spoken(self) -> str | None:
        """The engine whose log this is, as soon as the log shows it; None where it has not when the context ends.

        A reader that is not told waits for a pause to decide, and a server that is asked all the time may log without one.
        """
        while not self._ended.is_set():
            try:
                with self._path.open("rb") as file:
                    found = detect_engine(file.read(HEAD_BYTES))
            except FileNotFoundError:
                found = None
            except OSError as problem:
                self.problem = f"{shown(self._path)} cannot be read: {problem.strerror}"
                return None
            if found is not None:
                return found
            self._ended.wait(POLL_S)
        return None
