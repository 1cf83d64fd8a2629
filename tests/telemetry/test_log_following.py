"""Followed logs: what a writer and a rotator do to a file, played step by step instead of waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vramledger import engines
from vramledger.errors import SourceError
from vramledger.observation import Observation
from vramledger.telemetry.log_following import Following
from vramledger.telemetry.log_reading import read_log
from vramledger.telemetry.log_tally import LogTally

SIGN = b"(EngineCore pid=2) INFO 11-29 16:12:51 [core.py:133] hello\n"


@pytest.fixture(autouse=True)
def spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_LOGS", {"spoken": "telemetry.spoken_log"})


def size(tokens: int, end: bytes = b"\n") -> bytes:
    return b"GPU KV cache size: %d tokens" % tokens + end


def followed(
    path: Path, steps: list[Callable[[], object]], tally: LogTally | None = None
) -> list[Observation]:
    """What is read while each step is done in one pause of the reader."""
    left = list(steps)

    def wait(_: float) -> None:
        left.pop(0)()

    following = Following(stop=lambda: not left, wait=wait, poll_s=0.5, quiet_s=1.0)
    return list(read_log(path, follow=following, tally=tally, now_s=1_796_000_000.0))


def tokens(found: list[Observation]) -> list[object]:
    return [one.values["kv_tokens"] for one in found]


def append(path: Path, data: bytes) -> Callable[[], object]:
    def act() -> None:
        with path.open("ab") as stream:
            stream.write(data)

    return act


def nothing() -> None:
    pass


def test_a_file_that_is_not_there_yet_and_lines_that_come_in_halves(tmp_path: Path) -> None:
    path = tmp_path / "log"
    steps = [
        nothing,
        append(path, SIGN + b"GPU KV cache si"),
        nothing,
        append(path, b"ze: 12"),
        append(path, b"3 tokens\n"),
    ]
    found = followed(path, steps)
    assert tokens(found) == [123]
    assert found[0].place.line == 2 and found[0].place.offset_bytes == len(SIGN)


def test_the_last_half_line_is_read_when_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(SIGN + size(7, b""))
    tally = LogTally()
    assert tokens(followed(path, [], tally)) == [7]
    assert tally.sources[0].ends_in_line


def test_rotation_by_renaming_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(SIGN + size(1))

    def rotate() -> None:
        append(path, size(2))()
        path.rename(tmp_path / "log.1")
        append(tmp_path / "log.1", size(3))()

    tally = LogTally()
    found = followed(path, [nothing, rotate, append(path, size(4)), nothing, append(path, size(5))], tally)
    assert tokens(found) == [1, 2, 3, 4, 5]
    assert [one.place.line for one in found] == [2, 3, 4, 1, 2]
    assert tally.sources[0].size_bytes == len(SIGN) + 5 * len(size(1))


def test_a_truncated_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(SIGN + size(1) + size(2))

    def truncate() -> None:
        os.truncate(path, 0)

    assert tokens(followed(path, [nothing, truncate, append(path, size(3)), append(path, size(4))])) == [
        1,
        2,
        3,
        4,
    ]


def test_a_quiet_printer_ends_a_message_of_several_lines(tmp_path: Path) -> None:
    from vramledger.engines.log_pattern import line_pattern
    from vramledger.observation import Event

    path = tmp_path / "log"
    path.write_bytes(b"Failed:\n")
    seen: list[str] = []
    steps: list[Callable[[], object]] = [append(path, b" because\n"), nothing, nothing, nothing]
    two = line_pattern(Event.FAILURE, "Failed:", r"Failed:(?:\n(?P<reason>.*))?", source="test", following=2)

    def wait(_: float) -> None:
        steps.pop(0)()

    following = Following(stop=lambda: not steps, wait=wait, poll_s=0.5, quiet_s=1.0)
    for one in read_log(path, follow=following, patterns=[two]):
        seen.append(str(one.values["reason"]))
        assert steps, "told before the reading ended"
    assert seen == ["because"]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="directory"):
        followed(tmp_path, [])
