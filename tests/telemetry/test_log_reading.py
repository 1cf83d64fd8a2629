"""Reading logs: the same observations however the bytes come, whatever stands around them."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vramledger import engines
from vramledger.diagnosis.messages import FAILURES
from vramledger.engines.log_pattern import line_pattern
from vramledger.errors import FlagError, SourceError
from vramledger.ledger import ByteRange
from vramledger.observation import Event, Observation
from vramledger.telemetry import log_files, log_scanning
from vramledger.telemetry.log_anchors import anchor_finder
from vramledger.telemetry.log_following import Following
from vramledger.telemetry.log_reading import detect_engine, read_log
from vramledger.telemetry.log_tally import LogTally
from vramledger.units import GIB

NOW_S = 1_796_000_000.0  # 2026-11-30
OOM = line_pattern(
    Event.FAILURE,
    "out of memory. Tried",
    r"out of memory\. Tried to allocate (?P<wanted_gib>NUM) GiB",
    source="test",
    message="torch-oom",
)
TWO_LINES = line_pattern(
    Event.FAILURE,
    "Capture failed:",
    r"Capture failed: .*\n(?P<reason>[^\n]+)",
    source="test",
    following=1,
    message="capture",
)

START = b"""\
(APIServer pid=1) INFO 11-29 16:12:50 [api.py:347] version 0.32.0
(EngineCore pid=2) INFO 11-29 16:12:51 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: x
(Worker_TP1 pid=4) INFO 11-29 16:12:55 [runner.py:9] Model loading took 14.99 GiB memory and 3 seconds
(EngineCore pid=2) INFO 11-29 16:12:59 [kv.py:1] GPU KV cache size: 8,192 tokens
(APIServer pid=1) INFO:     Application startup complete.
INFO:     127.0.0.1:59512 - "POST /v1/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO 11-29 16:13:09 [stats.py:2] Engine 000: Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.5%
(Worker_TP0 pid=3) ERROR 11-29 16:13:10 [x.py:1] Capture failed: size 512
(Worker_TP1 pid=4) ERROR 11-29 16:13:10 [x.py:1] Traceback (most recent call last):
(Worker_TP0 pid=3) ERROR 11-29 16:13:10 [x.py:1] because of B
(Worker_TP1 pid=4) ERROR 11-29 16:13:10 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0
"""


@pytest.fixture(autouse=True)
def spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_LOGS", {"spoken": "telemetry.spoken_log"})


class Parts(io.RawIOBase):
    """A stream that gives what it has in parts of given sizes."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = data
        self._sizes = sizes

    def read(self, size: int = -1) -> bytes:
        take = self._sizes.pop(0) if self._sizes else len(self._data)
        part, self._data = self._data[:take], self._data[take:]
        return part if part or not self._data else self.read(size)


def read(data: bytes, sizes: list[int] | None = None, tally: LogTally | None = None) -> list[Observation]:
    stream = io.BytesIO(data) if sizes is None else Parts(data, list(sizes))
    return list(read_log(stream, patterns=(OOM, TWO_LINES), now_s=NOW_S, tally=tally))  # type: ignore[arg-type]


def test_what_a_log_says_in_its_order() -> None:
    found = read(START)
    assert [one.event for one in found] == [
        Event.VERSION, Event.WEIGHTS, Event.KV_POOL, Event.READY, Event.STEP, Event.FAILURE, Event.FAILURE,
    ]  # fmt: skip
    weights = found[1]
    assert weights.rank == 1 and weights.process == "Worker_TP1 pid=4" and weights.engine == "spoken"
    assert weights.values["weights_bytes"] == ByteRange(
        1499 * GIB // 100 - GIB // 200, 1499 * GIB // 100, 1499 * GIB // 100 + GIB // 200
    )
    assert weights.place.line == 3 and START[weights.place.offset_bytes :].startswith(b"(Worker_TP1")
    assert found[4].values == {"running_requests": 3, "kv_usage_ratio": 0.015}
    # Uvicorn prints no time: the line before has one.
    assert found[3].at_s == found[2].at_s == 1_795_968_779.0


def test_a_message_of_several_lines_is_joined_from_one_printers() -> None:
    capture, oom = read(START)[-2:]
    assert capture.values["reason"] == "because of B" and capture.rank == 0
    assert oom.values["message"] == "torch-oom" and oom.engine is None and oom.rank == 1


@given(st.lists(st.integers(1, 400), max_size=40))
def test_chunks_change_nothing(sizes: list[int]) -> None:
    assert read(START, sizes) == read(START)


def test_engine_by_signs() -> None:
    assert detect_engine(START) == "spoken"
    assert detect_engine(b'{"log": "served by \\"spoken\\""}') == "spoken"
    assert detect_engine(b"nothing") is None


def test_an_engine_that_shows_later_is_read_from_there_on() -> None:
    filler = b"filler\n" * 60_000
    late = b"GPU KV cache size: 1 tokens\n" + filler + START
    assert [one.event for one in read(late)] == [one.event for one in read(START)]


def test_unknown_engine_is_refused_at_once() -> None:
    with pytest.raises(FlagError, match="spoken"):
        read_log(io.BytesIO(b""), engine="other")


def test_rotated_and_packed(tmp_path: Path) -> None:
    lines = START.splitlines(keepends=True)
    (tmp_path / "log.2.gz").write_bytes(gzip.compress(b"".join(lines[:3])) + gzip.compress(lines[3]))
    (tmp_path / "log.1").write_bytes(b"".join(lines[4:6]))
    (tmp_path / "log").write_bytes(b"".join(lines[6:]))
    tally = LogTally()
    paths = [tmp_path / "log.2.gz", tmp_path / "log.1", tmp_path / "log"]
    found = list(read_log(paths, patterns=(OOM, TWO_LINES), now_s=NOW_S, tally=tally, digest=True))
    assert [one.event for one in found] == [one.event for one in read(START)]
    assert [one.lines for one in tally.sources] == [4, 2, 5]
    assert all(one.sha256 for one in tally.sources) and not tally.notes()


def test_a_missing_file_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        list(read_log(tmp_path / "none.log"))
    with pytest.raises(SourceError, match="directory"):
        list(read_log(tmp_path))


def test_a_bomb_is_refused_and_a_cut_archive_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "FREE_EXPANSION_BYTES", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"\0" * (4 << 20)))
    with pytest.raises(SourceError, match="unpacks to more"):
        list(read_log(tmp_path / "bomb.gz"))
    packed = gzip.compress(START)
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) - 30])
    tally = LogTally()
    assert list(read_log(tmp_path / "cut.gz", tally=tally, now_s=NOW_S))
    assert "stops short" in tally.notes()[0]


def test_what_is_not_read_is_counted() -> None:
    tally = LogTally()
    data = (
        b"half a line\n"
        + b"x" * 300_000
        + b" KV cache size: 1 tokens\n"
        + b"\0" * 5_000
        + START
        + b"\xff\xfe\xfa junk\n"
        + b"bar 10%\rbar 20%\rGPU KV cache size: 77 tokens\n(APIServer pid=1) unfinis"
    )
    found = read(data, tally=tally)
    assert [one.event for one in found] == [*(one.event for one in read(START)), Event.KV_POOL]
    source = tally.sources[0]
    assert source.long_lines == 1 and source.dropped_bytes == 300_024 - 128 * 1024
    assert source.nul_bytes == 5_000 and source.undecodable_lines == 1 and source.ends_in_line
    assert len(tally.notes()) == 4
    place = found[-1].place
    assert data[place.offset_bytes :].startswith(b"GPU KV cache size: 77") and place.line == 15


def pieces(line: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(line), size):
        tag = b"F" if start + size >= len(line) else b"P"
        yield b"2026-11-29T16:12:50.123456789Z stdout " + tag + b" " + line[start : start + size] + b"\n"


@pytest.mark.parametrize("size", [20, 64, 100])
def test_lines_cut_by_a_collector_are_whole_again(size: int) -> None:
    line = (
        b"(EngineCore pid=2) INFO 11-29 16:12:59 [kv.py:1] "
        + b"long " * 30
        + b"GPU KV cache size: 8,192 tokens"
    )
    (found,) = read(b"".join(pieces(line, size)))
    assert found.values["kv_tokens"] == 8_192 and found.process == "EngineCore pid=2"
    assert found.place.line == 1


@pytest.mark.parametrize("library", [False, True])
@given(
    st.lists(
        st.sampled_from(
            [*START.splitlines(), b"", b"INFO: x", b"\r", b"7 out of memory. Tried 1", b"KV cach"]
        ),
        max_size=60,
    )
)
def test_finders_pass_over_no_line_with_an_anchor(library: bool, lines: list[bytes]) -> None:
    if library:
        pytest.importorskip("ahocorasick_rs")
    anchors = ["out of memory. Tried", "KV cache size:", "Capture failed:", 'an "escaped" one']
    finder = anchor_finder(anchors, library=library)
    for chunk in (b"\n".join(lines), b"\n".join(reversed(lines))):
        found = finder.spans(chunk)
        assert found == sorted(set(found))
        taken = [chunk[begin:end] for begin, end in found]
        assert all(b"\n" not in line for line in taken)
        wanted = [line for line in chunk.split(b"\n") if any(one.encode() in line for one in anchors)]
        assert [line for line in taken if any(one.encode() in line for one in anchors)] == wanted


RECORDED = sorted((Path(__file__).parents[1] / "engines" / "recorded" / "logs").glob("*.log"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_logs_read_the_same_without_the_library_and_by_looking_at_every_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ahocorasick_rs")
    monkeypatch.undo()
    found = list(read_log(path, patterns=FAILURES, now_s=NOW_S))
    assert found
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "ahocorasick_rs", None)
        assert list(read_log(path, patterns=FAILURES, now_s=NOW_S)) == found
    every = line_pattern(
        Event.REMARK, "\u2603", "\u2603", source="an anchor that is looked for in every line"
    )
    assert list(read_log(path, patterns=(*FAILURES, every), now_s=NOW_S)) == found


@given(st.binary(max_size=3_000), st.lists(st.integers(1, 100), max_size=20))
def test_no_bytes_raise(data: bytes, sizes: list[int]) -> None:
    assume(data[:4] != b"\x28\xb5\x2f\xfd")  # zstd is refused by name
    assert read(data, sizes) == read(data)


def test_a_line_without_prefix_inherits_from_its_own_container_within_reach() -> None:
    said = b"a-1  | (EngineCore pid=2) ERROR 11-29 16:12:51 [x.py:1] Traceback\n"
    other = b"b-1  | (EngineCore pid=9) INFO 11-29 16:12:59 [x.py:1] hello\n"
    oom = b"a-1  | torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB\n"
    (near,) = read(said + other + oom)
    assert near.process == "EngineCore pid=2" and near.container == "a-1" and near.at_s == 1_795_968_771.0
    (far,) = read(said + other * 300 + oom)
    assert far.process is None and far.at_s is None


def in_service(failures: set[int], count: int) -> bytes:
    """Stats lines, with an allocation that fails after those of these numbers."""
    out = [START]
    for number in range(count):
        out.append(
            b"(APIServer pid=1) INFO 11-29 16:20:%02d [stats.py:2] Engine 000: Running: %d reqs, Waiting: 0 reqs, "
            b"GPU KV cache usage: %d.5%%\n" % (number % 60, number, number % 100)
        )
        if number in failures:
            out.append(
                b"(Worker_TP1 pid=4) ERROR 11-29 16:20:%02d [x.py:1] CUDA out of memory. Tried to allocate %d.16 GiB. \n"
                % (number % 60, number)
            )
    return b"".join(out)


@given(st.sets(st.integers(0, 399), max_size=6), st.integers(0, 3000))
def test_a_long_log_in_service_is_sampled_and_nothing_else_of_it_is_lost(
    failures: set[int], whole_bytes: int
) -> None:
    data = in_service(failures, 400)
    whole = read(data)
    tally = LogTally()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_scanning, "WHOLE_BYTES", whole_bytes)
        patch.setattr(log_scanning, "WINDOW_EVERY_BYTES", 8192)
        patch.setattr(log_scanning, "WINDOW_BYTES", 512)
        sampled = read(data, [10_000] * 10, tally)
    rest = [item for item in whole if item.event is not Event.STEP]
    assert [item for item in sampled if item.event is not Event.STEP] == rest
    kept = {item.place.line for item in sampled if item.event is Event.STEP}
    assert kept <= {item.place.line for item in whole if item.event is Event.STEP}
    assert len(kept) < 200
    # What an engine said of its steps just before a failure is what tells why; a chunk's own beginning may hide it.
    told = [item.place.line - 1 in kept for item in rest if item.place.line > 20]
    assert sum(told) >= len(told) - 10
    assert any("windows" in note for note in tally.notes())


def test_what_is_followed_is_read_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(log_scanning, "WHOLE_BYTES", 0)
    path = tmp_path / "log"
    path.write_bytes(in_service(set(), 300))
    following = Following(stop=lambda: True)
    found = list(read_log(path, engine="spoken", follow=following, now_s=NOW_S))
    assert sum(item.event is Event.STEP for item in found) == 301
