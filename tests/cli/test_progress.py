"""How far long work is: shown on a terminal, and gone when the work is done."""

from __future__ import annotations

import io
import sys

import pytest

from vramledger.cli import progress
from vramledger.cli.progress import COMPILING, Progress, Requests, Watch
from vramledger.search.rows import Row


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(text: str) -> str:
    """The last line as a terminal shows it after carriage returns."""
    shown = ""
    for part in text.split("\r"):
        shown = part + shown[len(part) :]
    return shown.rstrip()


@pytest.mark.parametrize("stops", [False, True])
def test_the_line_grows_and_goes(monkeypatch: pytest.MonkeyPatch, stops: bool) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    parts: list[list[Row]] = [[], []]
    try:
        with Progress(1000) as shown:
            assert list(shown.through(parts)) == parts
            middle = screen(terminal.getvalue())
            if stops:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert stops
    assert "of 1,000 plans" in middle
    assert screen(terminal.getvalue()) == ""


def test_the_first_line_is_there_at_once_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Requests() as shown:
        shown.begin(COMPILING)
        assert screen(terminal.getvalue()) == COMPILING
    assert screen(terminal.getvalue()) == ""


def test_nothing_is_written_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = io.StringIO()
    monkeypatch.setattr(sys, "stderr", nobody)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    with Progress(10) as shown:
        assert list(shown.through([[]])) == [[]]
    assert nobody.getvalue() == ""


def test_lines_that_stay_are_told_a_file_too_and_stand_above_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stream, shown in ((io.StringIO(), ""), (Terminal(), "now")):
        monkeypatch.setattr(sys, "stderr", stream)
        with Watch() as watch:
            watch.begin("a long text that goes")
            watch.keep("kept\x1b[2J")
            watch.begin("now")
            above, _, below = stream.getvalue().rpartition("\n")
        assert screen(above).startswith("kept")
        assert "\x1b" not in above
        assert screen(below) == shown
