"""Being told to end reaches the command, whatever code the signal meets."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial

import pytest

from vramledger.cli import termination
from vramledger.cli.termination import ends_when_told

IMPORTING = """
kill()
for _ in range(1000):
    pass
went_on.append(True)
"""
BOTH = pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit), (signal.SIGINT, KeyboardInterrupt)],
)


class Swallows:
    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)
        for _ in range(1000):
            pass


def sleep_till_told() -> None:
    for _ in range(1000):
        time.sleep(0.01)


@BOTH
def test_what_a_destructor_swallows_is_raised_after_it(number: int, raised: type[BaseException]) -> None:
    with pytest.raises(raised), ends_when_told():
        held = Swallows(number)
        del held
        sleep_till_told()


@BOTH
def test_what_comes_while_a_swallowed_one_is_sent_again_is_not_lost(
    number: int, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = termination._again
    sent: list[int] = []

    def again(number: int) -> None:
        # The first comes before the hook that sends it has ended, as on a machine that has no time for it.
        sent.append(number)
        (later if len(sent) > 1 else partial(os.kill, os.getpid()))(number)

    monkeypatch.setattr(termination, "_again", again)
    with pytest.raises(raised), ends_when_told():
        held = Swallows(number)
        del held
        sleep_till_told()
    assert sent == [number, number]


@BOTH
def test_a_signal_raises_at_once_and_what_was_is_put_back(number: int, raised: type[BaseException]) -> None:
    before = signal.getsignal(number)
    hook = sys.unraisablehook
    with pytest.raises(raised) as found, ends_when_told():
        os.kill(os.getpid(), number)
        sleep_till_told()
    assert getattr(found.value, "code", 128 + number) == 128 + number
    assert signal.getsignal(number) is before
    assert sys.unraisablehook is hook


def test_a_terminal_that_is_closed_ends_nothing_that_was_to_outlive_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with ends_when_told():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_sigterm_leaves_the_clearing_away_alone() -> None:
    cleared = False
    with pytest.raises(SystemExit), ends_when_told():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            sleep_till_told()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleared = True
    assert cleared


@BOTH
def test_what_meets_the_import_system_is_raised_after_it(number: int, raised: type[BaseException]) -> None:
    """It takes its lock before it guards it: what is raised just there leaves the lock held, and the next import in any other
    thread waits for ever."""
    went_on: list[bool] = []
    code = compile(IMPORTING, "<frozen importlib._bootstrap>", "exec")
    with pytest.raises(raised), ends_when_told():
        exec(code, {"kill": partial(os.kill, os.getpid(), number), "went_on": went_on})
        sleep_till_told()
    assert went_on == [True]
