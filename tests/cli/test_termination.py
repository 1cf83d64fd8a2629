"""An interruption that a callback swallows is known all the same."""

from __future__ import annotations

import os
import signal

import pytest

from vramledger.cli.termination import interruption


class Swallows:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interruption_lost_in_a_destructor_is_known() -> None:
    with interruption() as was_interrupted:
        assert not was_interrupted()
        held = Swallows()
        del held
        assert was_interrupted()


def test_an_interruption_raises_as_ever() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruption() as was_interrupted:
        os.kill(os.getpid(), signal.SIGINT)
    assert was_interrupted()
    assert signal.getsignal(signal.SIGINT) is before
