"""Time series: sampled at even times, marked, written, cut, read back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.errors import FlagError, InputError, OutputError, SourceError
from vramledger.ledger import Phase
from vramledger.observation import Event, Observation, Place, Sample
from vramledger.telemetry.marks import MARK, Mark, Marker, MarksReader, marking, marks_file, write_mark
from vramledger.telemetry.series import Sampler
from vramledger.telemetry.series_file import SeriesWriter, looks_like_series, read_series


class Clock:
    """Time that passes when one sleeps, and by `cost_s` when one asks."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


class Probe:
    """Counts its readings; each takes `costs_s` of the clock; those in `silent` are refused."""

    name = "probe"

    def __init__(self, clock: Clock, costs_s: Sequence[float] = (), silent: Sequence[int] = ()) -> None:
        self.clock = clock
        self.costs_s = list(costs_s)
        self.silent = silent
        self.count = 0

    def read(self, at_s: float) -> list[Sample]:
        self.count += 1
        if self.costs_s:
            self.clock.now_s += self.costs_s.pop(0)
        if self.count in self.silent:
            raise SourceError("nobody there")
        return [Sample(at_s=at_s, source="probe", name="used_bytes", value=self.count)]


def sampler(clock: Clock, probe: Probe, rounds: int, marks: Sequence[list[Mark]] = ()) -> Sampler:
    waiting = list(marks)
    return Sampler(
        [probe],
        interval_s=2.0,
        clock=clock,
        sleep=clock.sleep,
        goes_on=lambda _: probe.count < rounds,
        marks=[lambda: waiting.pop(0) if waiting else []],
    )


def test_rounds_are_even_and_a_late_one_is_not_made_up_for() -> None:
    clock = Clock()
    ticks = list(sampler(clock, Probe(clock, costs_s=[0.5, 5.0, 0.0, 0.0]), 5))
    assert [tick.at_s - 1000 for tick in ticks] == [0.0, 2.0, 7.0, 9.0, 11.0]
    assert clock.slept == [1.5, 2.0, 2.0]


def test_samples_are_of_the_phase_that_was_marked_last() -> None:
    clock = Clock()
    load = Mark(at_s=1001.0, label="load", phase=Phase.LOAD)
    ready = Mark(at_s=1003.0, label="steady")
    ticks = list(sampler(clock, Probe(clock), 4, [[], [load, load], [ready], []]))
    rows = [(s.name, s.label, s.phase) for tick in ticks for s in tick.samples]
    assert rows == [
        (MARK, "before load", None),
        ("used_bytes", "", None),
        (MARK, "load", Phase.LOAD),
        ("used_bytes", "", Phase.LOAD),
        (MARK, "steady", None),
        ("used_bytes", "", None),
        ("used_bytes", "", None),
    ]
    assert [tick.label for tick in ticks] == ["before load", "load", "steady", "steady"]


def test_a_source_that_is_silent_is_told_and_passed_over() -> None:
    clock = Clock()
    early = sampler(clock, Probe(clock, silent=(1,)), 2)
    assert [len(tick.samples) for tick in early] == [1, 1]
    assert early.answered
    assert early.notes == ()
    late = sampler(clock, Probe(clock, silent=(2,)), 2)
    list(late)
    assert late.notes == ("probe no longer answers: nobody there",)
    never = sampler(clock, Probe(clock, silent=(1, 2)), 2)
    list(never)
    assert not never.answered
    assert never.notes == ("probe never answered: nobody there",)


SAMPLES = st.builds(
    Sample,
    at_s=st.floats(0, 2e9),
    source=st.text(st.characters(codec="utf-8"), max_size=8),
    name=st.sampled_from(["rss_bytes", "kv_usage_ratio"]),
    value=st.integers(0, 2**53),
    rank=st.none() | st.integers(0, 1000),
    pid=st.none() | st.integers(1, 2**22),
    phase=st.none() | st.sampled_from(Phase),
    label=st.text(st.characters(codec="utf-8"), max_size=8),
)


@pytest.fixture(params=["jsonl", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return str(request.param)


def write_series(path: Path, samples: list[Sample]) -> None:
    with SeriesWriter(path) as writer:
        writer.write(samples)


def some(count: int) -> list[Sample]:
    return [
        Sample(at_s=float(at), source="p", name="rss_bytes", value=at * 4096, pid=7, phase=Phase.LOAD)
        for at in range(count)
    ]


def test_a_series_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    write_series(path, some(3000))
    assert list(read_series(path)) == some(3000)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@settings(max_examples=25)
@given(samples=st.lists(SAMPLES, max_size=5))
def test_any_rows_come_back(samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("s")
    for end in ("jsonl", "parquet"):
        if end == "parquet":
            pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        path = folder / f"a.{end}"
        write_series(path, samples)
        assert list(read_series(path)) == samples


def test_what_was_sampled_before_an_error_is_kept(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    with pytest.raises(KeyboardInterrupt), SeriesWriter(path) as writer:
        writer.write(some(4))
        assert not path.exists()
        raise KeyboardInterrupt
    assert list(read_series(path)) == some(4)


def test_a_killed_series_is_read_as_far_as_it_goes(kind: str, tmp_path: Path) -> None:
    with SeriesWriter(tmp_path / f"a.{kind}") as writer:
        writer.write(some(4))
        (left,) = tmp_path.iterdir()
        whole = left.read_bytes()
    cut = tmp_path / "cut"
    for size in range(len(whole) - 60, len(whole)):
        cut.write_bytes(whole[:size])
        # Only the newline may go without taking the last row along.
        assert list(read_series(cut)) == some(3 if size < len(whole) - 1 else 4)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x00\xff\n", "a.jsonl:1 is no row"),
        (b'{"at_s":1,"source":"a","name":"b","value":2}\nrubbish\n', "a.jsonl:2 is no row"),
        (b'{"at_s":1,"source":"a","name":"b","value":"2"}\n', r"value"),
        (b"PAR1 and nothing of the kind", "cannot be read as Parquet"),
        (b"x" * 20_000, "longer than"),
    ],
)
def test_what_is_no_series_is_refused(body: bytes, reason: str, tmp_path: Path) -> None:
    if body[:4] == b"PAR1":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / "a.jsonl"
    path.write_bytes(body)
    with pytest.raises(InputError, match=reason):
        list(read_series(path))


@pytest.mark.parametrize(("at_s", "value"), [(1.0, 1e308), (1.0, -1e308), (1e300, 1), (-1.0, 1)])
def test_what_cannot_be_reckoned_with_is_refused(
    at_s: float, value: float, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / f"s.{kind}"
    write_series(path, [Sample(source="a", name="x_bytes", value=value, at_s=at_s)])
    with pytest.raises(InputError, match=f"{value:g} at".replace("+", r"\+")):
        list(read_series(path))


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"at_s": [1.0], "name": ["x"]}), path)
    with pytest.raises(InputError, match="no column source"):
        list(read_series(path))


def test_a_table_of_what_is_no_number_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "a.parquet"
    for value in (float("nan"), float("inf")):
        parquet.write_table(
            arrow.table({"at_s": [1.0], "name": ["x"], "source": ["y"], "value": [value]}), path
        )
        with pytest.raises(InputError, match="no number"):
            list(read_series(path))


def test_names_and_places_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FlagError, match="neither"):
        SeriesWriter(tmp_path / "a.csv")
    with pytest.raises(OutputError, match="cannot be written"):
        SeriesWriter(tmp_path / "absent" / "a.jsonl")
    with pytest.raises(SourceError, match="cannot be read"):
        list(read_series(tmp_path / "a.jsonl"))


def test_a_series_is_known_by_its_beginning() -> None:
    assert looks_like_series(b'{"at_s":1,"source":"a","name":"b","value":2}\n{"at')
    assert looks_like_series(b"PAR1\x15")
    assert not looks_like_series(b'{"model_type": "llama"}')


def test_marks_are_left_for_who_samples(tmp_path: Path) -> None:
    series = tmp_path / "a.parquet"
    read = MarksReader(marks_file(series), since_s=10.0)
    assert read() == []
    write_mark(series, "of an earlier run", at_s=9.0)
    with marking(series, "graph 8", Phase.WARMUP):
        assert [(mark.label, mark.phase) for mark in read()] == [("graph 8", Phase.WARMUP)]
    with marks_file(series).open("ab") as file:
        file.write(b'rubbish\n{"at_s": 11, "lab')
    assert [mark.label for mark in read()] == ["after graph 8"]
    assert read() == []


def said(event: Event, rank: int | None = None, **values: str | int) -> Observation:
    return Observation(event=event, values=values, place=Place(source="a.log", line=1), rank=rank)


def test_a_log_marks_how_far_an_instance_is() -> None:
    marker = Marker()
    spoken = [
        said(Event.VERSION),
        said(Event.MODEL, architecture="llama"),
        said(Event.LOAD_BEGIN, rank=0),
        said(Event.LOAD_BEGIN, rank=1),
        said(Event.WEIGHTS, weights_bytes=3),
        said(Event.WARMUP, step="decode", shape="8"),
        said(Event.WEIGHTS, weights_bytes=3),
        said(Event.KV_POOL),
        said(Event.SETTINGS),
        said(Event.GRAPH_SHAPE, shape="256"),
        said(Event.GRAPH_SHAPE, rank=1, shape="256"),
        said(Event.READY),
        said(Event.STEP, running_requests=1),
        said(Event.KV_POOL),
        said(Event.VERSION),
        said(Event.LOAD_BEGIN),
    ]
    marks = [mark for at, one in enumerate(spoken) if (mark := marker(one, float(at))) is not None]
    assert [(mark.at_s, mark.label, mark.phase) for mark in marks] == [
        (2.0, "load", Phase.LOAD),
        (4.0, "after load", Phase.WARMUP),
        (5.0, "after warm-up decode 8", Phase.WARMUP),
        (7.0, "after KV pool", Phase.WARMUP),
        (9.0, "after graph 256", Phase.WARMUP),
        (11.0, "steady", None),
        (14.0, "before load", None),
        (15.0, "load", Phase.LOAD),
    ]


def test_llamacpp_marks_loading_by_its_files_tensors_and_buffers() -> None:
    marker = Marker()
    spoken = [
        said(Event.MODEL, tensors_count=272),
        said(Event.BUFFER, buffer="model"),
        said(Event.BUFFER, buffer="KV"),
    ]
    marks = [marker(one, 1.0) for one in spoken]
    assert [mark.label if mark else None for mark in marks] == ["load", "after load", None]
