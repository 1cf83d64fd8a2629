"""Being told to end: by Ctrl-C, a scheduler, a container or `timeout`."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

_AGAIN_S = 0.01
_IMPORTING = "<frozen importlib"


@contextmanager
def ends_when_told() -> Iterator[None]:
    """While it is open SIGTERM raises SystemExit with the code that a shell gives it, so that half a file and worker
    processes are cleared away as after Ctrl-C; a second one does not disturb that. So does SIGHUP, of a terminal that is closed,
    where nobody said to ignore it. Ctrl-C raises KeyboardInterrupt as ever.

    Neither is raised where it would do harm or be lost, but a moment later: inside the import system, whose lock an exception
    between taking and guarding it leaves held for ever, and in callbacks that let nothing out (a destructor, a weak reference's),
    or while one of these is found out.
    Does nothing outside the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: list[BaseException] = []

    def end(number: int, frame: FrameType | None) -> None:
        if _is_importing(frame) or _is_within(frame, lost.__code__):
            _again(number)
            return
        raised.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number))
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)
        raise raised[-1]

    def lost(unraisable: sys.UnraisableHookArgs) -> None:
        if not any(unraisable.exc_value is each for each in raised):
            hook_before(unraisable)
            return
        ended = unraisable.exc_value
        number = int(ended.code or 0) - 128 if isinstance(ended, SystemExit) else signal.SIGINT
        signal.signal(number, end)
        _again(number)

    hook_before, sys.unraisablehook = sys.unraisablehook, lost
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, end)}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        sys.unraisablehook = hook_before


def _is_importing(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_IMPORTING)


def _is_within(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _again(number: int) -> None:
    """The same signal a moment later, when the code it met has gone on. Not by threading, whose locks that code may hold."""
    _thread.start_new_thread(_send, (os.getpid(), number))


def _send(process: int, number: int) -> None:
    time.sleep(_AGAIN_S)
    os.kill(process, number)
