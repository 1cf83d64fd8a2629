"""A series that goes on where it ended, and sources that come and go while it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.errors import OutputError, SourceError
from vramledger.observation import Sample
from vramledger.telemetry.marks import MARK
from vramledger.telemetry.series import Sampler
from vramledger.telemetry.series_appending import SeriesAppender
from vramledger.telemetry.series_file import read_series
from vramledger.telemetry.source_group import SourceGroup
from vramledger.telemetry.spans import spans_of
from vramledger.telemetry.watch import Watch


def row(at_s: float, value: int = 1) -> Sample:
    return Sample(at_s=at_s, source="probe", name="used_bytes", value=value)


class Told:
    """A source that says one number, or why it cannot."""

    def __init__(self, name: str, value: int | None) -> None:
        self.name = name
        self.value = value

    def read(self, at_s: float) -> list[Sample]:
        if self.value is None:
            raise SourceError(f"{self.name} is gone", source=self.name)
        return [Sample(at_s=at_s, source=self.name, name="used_bytes", value=self.value)]


def test_rows_of_two_runs_stand_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    with SeriesAppender(path) as rows:
        rows.write([row(1.0), row(1.0)])
    with SeriesAppender(path) as rows:
        rows.write([row(5.0)])
        assert [found.at_s for found in rows.between(0.0, 9.0)] == [1.0, 1.0, 5.0]
        assert [found.at_s for found in rows.between(2.0, 9.0)] == [5.0]
    assert [found.at_s for found in read_series(path)] == [1.0, 1.0, 5.0]


@given(kept=st.integers(1, 4), cut=st.integers(1, 60))
@settings(deadline=None, max_examples=30)
def test_wherever_a_run_was_killed_whole_rows_stay_and_the_next_run_is_readable(kept: int, cut: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "series.jsonl"
        with SeriesAppender(path) as rows:
            rows.write([row(float(number)) for number in range(kept)])
            whole = path.stat().st_size
            rows.write([row(99.0)])
        data = path.read_bytes()
        path.write_bytes(data[: min(whole + cut, len(data) - 1)])
        with SeriesAppender(path) as rows:
            rows.write([row(200.0)])
        assert [found.at_s for found in read_series(path)] == [*map(float, range(kept)), 200.0]


@given(
    times=st.lists(st.floats(0, 100), min_size=1, max_size=30).map(sorted),
    ends=st.tuples(st.floats(-1, 101), st.floats(-1, 101)),
)
@settings(deadline=None, max_examples=50)
def test_a_stretch_is_what_reading_all_and_choosing_gives(
    times: list[float], ends: tuple[float, float]
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, SeriesAppender(Path(folder) / "s.jsonl") as rows:
        for at_s in times:
            rows.write([row(at_s), row(at_s, 2)])
        expected = [at_s for at_s in times for _ in range(2) if ends[0] <= at_s <= ends[1]]
        assert [found.at_s for found in rows.between(*ends)] == expected


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    path.write_text("a person's notes\nin two lines\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"series\.jsonl is there and is no series"):
        SeriesAppender(path)
    assert path.read_text() == "a person's notes\nin two lines\n"
    with pytest.raises(OutputError):
        SeriesAppender(tmp_path / "nowhere" / "series.jsonl")


def test_a_group_asks_who_is_in_it_now_and_notes_who_no_longer_answers() -> None:
    first, second = Told("first", 1), Told("second", 2)
    group = SourceGroup()
    assert list(group.read(0.0)) == []
    group.add(first)
    group.add(second)
    assert [sample.value for sample in group.read(1.0)] == [1, 2]
    first.value = None
    assert [sample.value for sample in group.read(2.0)] == [2]
    assert group.notes == ("first no longer answers: first is gone",)
    group.remove("second")
    with pytest.raises(SourceError, match="first is gone"):
        group.read(3.0)
    group.remove("first")
    assert list(group.read(4.0)) == []
    assert not group.notes


def test_a_watch_appends_and_begins_at_the_label_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    for label in ("before load", "gone on with"):
        rows = SeriesAppender(path)
        with Watch(rows, [Told("probe", 7)], interval_s=0.01, label=label) as watch:
            watch.mark("steady")
            for _ in range(3000):
                if "steady" in watch.rounds_at:
                    break
                watch._stop.wait(0.01)
        assert list(watch.rounds_at)[:2] == [label, "steady"]
        assert {sample.value for sample in watch.rounds_at["steady"].samples if sample.name != MARK} == {7}
    spans = spans_of(read_series(path))
    assert [span.label for span in spans.spans] == ["before load", "steady", "gone on with", "steady"]
    assert spans.ended


def test_a_series_that_cannot_be_written_any_more_is_noted_and_ends_nothing(tmp_path: Path) -> None:
    rows = SeriesAppender(tmp_path / "series.jsonl")
    rows.write([row(1.0)])

    class Full:
        def write(self, samples: object) -> None:
            raise OutputError("series.jsonl: no space left on device")

        def close(self) -> None:
            rows.close()

    with Watch(Full(), [Told("probe", 7)], interval_s=0.01) as watch:
        pass
    assert watch.notes == (
        "the series ends here: the output cannot be written: series.jsonl: no space left on device",
    )


def test_the_interval_may_change_while_it_is_sampled() -> None:
    now = [0.0]
    rounds = Sampler(
        [Told("probe", 1)],
        interval_s=4.0,
        clock=lambda: now[0],
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
        goes_on=lambda at_s: at_s < 12.0,
    )
    seen = []
    for tick in rounds:
        seen.append(tick.at_s)
        rounds.interval_s = 1.0 if tick.at_s >= 8.0 else 4.0
    assert seen == [0.0, 4.0, 8.0, 9.0, 10.0, 11.0, 12.0]
