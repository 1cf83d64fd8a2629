"""Being told to end by a scheduler, a container or `timeout`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 128 + signal.SIGTERM


@contextmanager
def ends_when_told() -> Iterator[None]:
    """While it is open SIGTERM raises SystemExit with the code that a shell gives it, so that half a file and worker
    processes are cleared away as after Ctrl-C; a second one does not disturb that. Does nothing outside the main thread, which alone
    gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed while it is open. It still raises KeyboardInterrupt, but that is lost where it meets a callback
    that lets nothing out (a destructor, a weak reference's): long loops ask here too. Outside the main thread it never was."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def press(number: int, frame: FrameType | None) -> None:
        pressed.set()
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _end(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(TERMINATED)
