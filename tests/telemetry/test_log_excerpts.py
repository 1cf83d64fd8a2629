"""Lines of logs with those around them: the numbers are those of the reading, whatever the file is packed in."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import SourceError
from vramledger.telemetry.log_excerpts import LONGEST, MOST_LINES, Excerpt, excerpts


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(b"line %d\r\n" % number for number in range(1, 101)))
    return path


def test_lines_that_meet_are_one_excerpt_and_ends_are_kept(log: Path) -> None:
    name = str(log)
    found = excerpts([(name, 1), (name, 5), (name, 50), (name, 100)], around=2)
    assert [(each.first_line, len(each.lines)) for each in found] == [(1, 7), (48, 5), (98, 3)]
    assert found[1] == Excerpt(
        file=name, first_line=48, lines=tuple(f"line {number}" for number in range(48, 53))
    )


@pytest.mark.parametrize("packed", [gzip.compress, lambda raw: raw.decode().encode("utf-16")])
def test_what_the_commands_unpack_is_unpacked(log: Path, packed: Callable[[bytes], bytes]) -> None:
    log.write_bytes(packed(log.read_bytes()))
    (found,) = excerpts([(str(log), 77)], around=0)
    assert (found.first_line, found.lines) == (77, ("line 77",))


def test_what_is_read_only_once_is_passed_over(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert excerpts([("-", 3), (str(pipe), 3)]) == []


def test_a_long_line_and_many_lines_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(b"\x1b[31m" + b"x" * 3_000_000 + b"\n" + b"short\n" * (2 * MOST_LINES))
    found = excerpts([(str(path), number) for number in range(1, 2 * MOST_LINES)], around=0)
    assert sum(len(each.lines) for each in found) == MOST_LINES
    assert found[0].lines[0] == "x" * LONGEST
    assert found[0].lines[1] == "short"


def test_a_file_that_cannot_be_read_is_named(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SourceError, match=r"a\.log: Permission denied"):
        excerpts([(str(log), 1)])


@given(
    lines=st.lists(
        st.text(st.characters(codec="ascii", exclude_characters="\r\n\x1b#"), max_size=9),
        min_size=1,
        max_size=40,
    ),
    numbers=st.lists(st.integers(-1, 45), max_size=6),
    around=st.integers(0, 4),
)
def test_every_wanted_line_is_there_once_as_it_stands(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], numbers: list[int], around: int
) -> None:
    path = tmp_path_factory.mktemp("excerpts") / "a.log"
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    found = [
        (each.first_line + place, text)
        for each in excerpts([(str(path), number) for number in numbers], around=around)
        for place, text in enumerate(each.lines)
    ]
    wanted = {
        near for number in numbers if number > 0 for near in range(number - around, number + around + 1)
    }
    assert found == [(number, lines[number - 1]) for number in sorted(wanted) if 1 <= number <= len(lines)]
