"""Whether the engine outlives what it is asked: looked at in the background, so that a long stage does not go on without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from vramledger.errors import SourceError
from vramledger.experiment.launch import Launched
from vramledger.telemetry.engine_process import ending_of, is_healthy
from vramledger.telemetry.web import fetch

POLL_S = 1.0
LIMIT_S = 5.0
PATIENCE_S = 30.0
"""An engine that computes may be slow to say that it is well; one that says nothing for so long is gone."""


class EngineEnded(Exception):
    """The engine ended, or was not to be reached any more, in a stage."""

    def __init__(self, stage: str, words: str) -> None:
        super().__init__(words)
        self.stage = stage
        self.words = words


class Guard:
    """A context; `stop` is set when the engine is gone, and `words` then say how it ended (else they are empty)."""

    def __init__(
        self,
        url: str,
        launched: Launched | None,
        *,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._launched = launched
        self._patience_s = patience_s
        self._clock = clock
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.stop = threading.Event()
        self.words = ""

    def __enter__(self) -> Guard:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()
        if kind is None and not self.words and not self._is_well():
            self._wait_for_the_end()

    def _watch(self) -> None:
        while not self._left.wait(POLL_S):
            if not self._is_well():
                self._wait_for_the_end(leaves=self._left)
                if self.words:
                    self.stop.set()
                    return

    def _wait_for_the_end(self, leaves: threading.Event | None = None) -> None:
        """A server whose worker died may say no for a while before it ends."""
        began_s = self._clock()
        while not self._is_well():
            if (code := self._exit_code()) is not None:
                self.words = f"the engine ended with {ending_of(code)}"
                return
            if self._clock() - began_s > self._patience_s:
                self.words = f"the engine did not answer for {self._patience_s:g} s"
                return
            if (leaves or self._left).wait(POLL_S / 4) and leaves is not None:
                return
            if leaves is None:
                time.sleep(POLL_S / 4)

    def _is_well(self) -> bool:
        if self._launched is None:
            return _answers(self._url)
        return self._exit_code() is None and is_healthy(self._url, timeout_s=LIMIT_S)

    def _exit_code(self) -> int | None:
        return None if self._launched is None else self._launched.process.exit_code


def _answers(url: str) -> bool:
    """Whether somebody is there and does not say that he is unwell: not every server that was running already has a /health, or shows it
    to everybody."""
    try:
        status = fetch(f"{url}/health", limit_s=LIMIT_S).status
    except SourceError:
        return False
    return status < 500
