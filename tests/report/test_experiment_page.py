"""The page on an experiment: what is on it, that nothing from outside becomes markup, and that any part of an experiment makes a page."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from experiments import METRICS, failed_experiment, rows_of, samples, whole_experiment
from vramledger.errors import OutputError
from vramledger.experiment.plan import ExperimentPlan
from vramledger.experiment.result import Experiment, LoadFigures, PoolConfirmed, Target
from vramledger.observation import Sample
from vramledger.report.experiment_evidence import Evidence, evidence_of
from vramledger.report.experiment_load_picture import wilson
from vramledger.report.experiment_memory_picture import places
from vramledger.report.experiment_page import experiment_page, write_experiment_page
from vramledger.report.experiment_picture import Clock, pieces
from vramledger.report.experiment_pool_picture import pool_use
from vramledger.report.experiment_text import experiment_lines
from vramledger.report.experiment_words import launch_text, standing
from vramledger.report.quantity_words import time_text, trimmed
from vramledger.report.text import render
from vramledger.simulation.summary import Quantiles

RECORDED = Path(__file__).parent / "recorded" / "experiment-llamacpp"
WHOLE = whole_experiment()
BARE = Experiment(
    began_s=0.0, plan=ExperimentPlan(), target=Target(url="http://[::1]:1", engine_url="http://[::1]:1")
)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;</style></svg>\x00\x1b[2J\u202e"
VOID = {"meta", "br"}


class Elements(HTMLParser):
    """Elements and attributes as a browser's tokenizer sees them; tells of what is not closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.count: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.values: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self.values += [value or "" for _, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)


def elements(page: str) -> Elements:
    found = Elements()
    found.feed(page)
    found.close()
    assert not found.open
    return found


def whole_evidence(found: Experiment = WHOLE) -> Evidence:
    return Evidence(found=found, samples=samples(), rows={found.stages[-1].name: rows_of(1.35, 600, seed=3)})


def test_the_verdict_stands_first_and_all_that_was_found_follows() -> None:
    words = " ".join(elements(experiment_page(whole_evidence())).words)
    assert words.index("1.69 requests/s (1.52 to 1.83") < words.index("Conditions")
    for stage in WHOLE.stages:
        assert stage.name in words
        assert f"{stage.measured.offered:,}" in words
    for step in WHOLE.steps:
        assert step.step.value in words
    for text in (*WHOLE.conditions, *WHOLE.notes, *(trend.words for trend in WHOLE.trends),
                 *(check.words for check in WHOLE.checks)):  # fmt: skip
        assert text in words
    for heading in (
        "What load it holds",
        "Foretold and measured",
        "Where memory went",
        "The KV pool",
        "What grew",
    ):
        assert heading in words


def test_a_real_run_is_shown_whole() -> None:
    """llama.cpp, started, loaded, restarted and replaced: memory and the pool over all of it, cut where nobody was there to be asked."""
    found = msgspec.json.decode((RECORDED / "experiment.json").read_bytes(), type=Experiment)
    evidence = evidence_of(RECORDED, found)
    assert evidence.missing == ()
    page = experiment_page(evidence)
    words = " ".join(elements(page).words)
    for text in (
        "1.667 requests/s",
        "time to first token binds",
        "rolling update",
        "2,048 tokens",
        "not trusted",
    ):
        assert text in words
    (place,) = places(evidence)
    assert place.held[-1][0] - place.held[0][0] > 160
    assert len(pieces(place.held)) == 2
    used, is_share = pool_use(evidence)
    assert is_share and max(share for _, share in used) == pytest.approx(0.897, abs=0.001)
    assert used[-1][0] > max(step.began_s or 0.0 for step in found.steps[:-1])
    terminal = render(experiment_lines(found, width=100), colour=False)
    assert "holds, with reservations" in terminal


def test_the_pool_is_shown_by_whoever_tells_of_it() -> None:
    def told(name: str, *values: float, source: str = METRICS) -> list[Sample]:
        return [
            Sample(at_s=float(place), source=source, name=name, value=value)
            for place, value in enumerate(values)
        ]

    found = replace(BARE, pool=PoolConfirmed(engine_tokens=1000))
    for samples_, expected in (
        (told("kv_usage_ratio", 0.25), ((0.0, 0.25),)),
        (told("kv_used_tokens", 250), ((0.0, 0.25),)),
        ([*told("kv_used_blocks", 3, source="a"), *told("kv_pool_blocks", 12, source="a")], ((0.0, 0.25),)),
        (
            [*told("kv_used_tokens", 100, 250), *told("kv_used_tokens", 250, source="b")],
            ((0.0, 0.25), (1.0, 0.25)),
        ),
    ):
        assert pool_use(Evidence(found=found, samples=tuple(samples_))) == (expected, True)
    unknown = Evidence(found=BARE, samples=tuple(told("kv_used_tokens", 250)))
    assert pool_use(unknown) == (((0.0, 250.0),), False)
    assert "nothing tells how many there are" in experiment_page(unknown)


def test_a_failure_is_told_with_its_evidence_and_remedies() -> None:
    found = failed_experiment()
    words = " ".join(elements(experiment_page(Evidence(found=found))).words)
    assert found.failure is not None
    assert standing(found) == ("failed", "bad")
    for text in (found.failure.words, *found.failure.evidence, *found.failure.remedies):
        assert text in words or text.capitalize() in words


def test_pictures_are_sound_and_drawn_within_their_frames() -> None:
    page = experiment_page(whole_evidence())
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) > 20
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for item in root.iter():
            for key, most in (("x", width), ("cx", width), ("x1", width), ("x2", width), ("y", height),
                              ("cy", height), ("y1", height), ("y2", height)):  # fmt: skip
                if key in item.attrib:
                    assert -0.5 <= float(item.attrib[key]) <= most + 0.5, (item.tag, item.attrib)
            for place in item.attrib.get("points", "").split():
                x, y = map(float, place.split(","))
                assert -0.5 <= x <= width + 0.5 and -0.5 <= y <= height + 0.5


def hostile(value: Any) -> Any:
    """The same value with every text of its own replaced."""
    if isinstance(value, str) and not hasattr(value, "name"):
        return HOSTILE
    if isinstance(value, tuple):
        return tuple(map(hostile, value))
    if isinstance(value, msgspec.Struct):
        fixed = (
            {"kind", "state", "verdict", "arrivals", "schema_version"}
            if not isinstance(value, Experiment)
            else {"kind"}
        )
        names = [name for name in value.__struct_fields__ if name not in fixed]
        return replace(value, **{name: hostile(getattr(value, name)) for name in names})
    return value


@pytest.mark.parametrize("found", [WHOLE, failed_experiment()], ids=["whole", "failed"])
def test_texts_from_outside_never_become_markup(found: Experiment) -> None:
    plain, turned = (
        elements(experiment_page(Evidence(found=found))),
        elements(experiment_page(Evidence(found=hostile(found)))),
    )
    assert set(turned.count) <= set(plain.count)
    assert turned.attributes <= plain.attributes
    assert turned.count["script"] == turned.count["img"] == 0
    assert not any(name.startswith("on") for name in turned.attributes)
    assert not {"href", "src", "xlink:href", "action"} & turned.attributes
    for char in ("\x00", "\x1b", "\u202e"):
        assert char not in experiment_page(Evidence(found=hostile(found)))
    assert "url(" not in experiment_page(whole_evidence())


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_name_is_shown_as_text(name: str) -> None:
    page = experiment_page(
        Evidence(found=replace(BARE, target=replace(BARE.target, model=name), verdict=name))
    )
    assert elements(page).count == elements(experiment_page(Evidence(found=replace(BARE, target=replace(BARE.target, model="a"))))).count  # fmt: skip


FIELDS = ("steps", "snapshots", "pool", "trends", "checks", "latency_model", "forecast_errors", "point", "failure",
          "verdict", "conditions", "notes")  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from(FIELDS)), st.integers(0, len(WHOLE.stages)), st.booleans())
def test_any_part_of_an_experiment_makes_a_page(left_out: set[str], stages: int, with_samples: bool) -> None:
    found = replace(WHOLE, stages=WHOLE.stages[:stages], **{name: getattr(BARE, name) for name in left_out})
    evidence = Evidence(found=found, samples=samples()[:400] if with_samples else ())
    assert elements(experiment_page(evidence)).count["h1"] == 1
    for width in (60, 120):
        assert render(experiment_lines(found, width=width), colour=True)


TIMES = st.builds(
    lambda count, values: Quantiles(count=count, mean=0.0, p50=values[0], p90=values[0], p95=values[0], p99=values[1], max=values[1]),
    st.integers(0, 3), st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)).map(sorted),
)  # fmt: skip
FIGURES = st.builds(
    lambda good, missed, ttft, tpot: LoadFigures(offered=good + missed, good=good, ttft_ns=ttft, tpot_ns=tpot),
    st.integers(0, 5), st.integers(0, 5), TIMES, TIMES,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(FIGURES, FIGURES, st.floats(1e-9, 1e9)), min_size=1, max_size=4))
def test_figures_of_any_size_are_drawn(found: list[tuple[LoadFigures, LoadFigures, float]]) -> None:
    stages = tuple(
        replace(WHOLE.stages[0], measured=measured, forecast=forecast, per_s=per_s)
        for measured, forecast, per_s in found
    )
    page = experiment_page(Evidence(found=replace(WHOLE, stages=stages)))
    assert not re.search(r'"(nan|inf|-inf)[ ,"]|[ ,"](nan|inf|-inf)"', page)


def test_files_that_cannot_be_read_are_told_and_leave_a_page(tmp_path: Path) -> None:
    for name in ("series.jsonl", "measurement.json", "reconciliation.json", "manifest.json"):
        (tmp_path / name).write_bytes(b"\x00{" * 50)
    (tmp_path / "records").mkdir()
    (tmp_path / "secret.parquet").write_bytes(b"PAR1")
    found = replace(WHOLE, stages=tuple(replace(item, records="../secret.parquet") for item in WHOLE.stages))
    evidence = evidence_of(tmp_path, found)
    assert len(evidence.missing) == 4
    assert not evidence.rows and evidence.plan is None
    assert "series.jsonl" in experiment_page(evidence)


def test_the_page_is_written_into_the_folder(tmp_path: Path) -> None:
    path = write_experiment_page(tmp_path, replace(WHOLE, verdict="lone \udc80 surrogate"))
    assert path == tmp_path / "report.html"
    assert "lone" in path.read_text(encoding="utf-8")
    with pytest.raises(OutputError):
        write_experiment_page(tmp_path / "nowhere", WHOLE)


def test_an_empty_folder_makes_a_page(tmp_path: Path) -> None:
    assert evidence_of(tmp_path, WHOLE) == Evidence(found=WHOLE)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("found", [WHOLE, failed_experiment(), BARE], ids=["whole", "failed", "bare"])
def test_the_terminal_page_keeps_to_its_width(found: Experiment, width: int) -> None:
    page = render(experiment_lines(found, width=width, out=Path("out")), colour=False)
    for text in page.splitlines():
        assert len(text) <= width or len(text.split()) <= 2
    for stage in found.stages:
        assert stage.name in page


def test_wilson_is_the_textbook_interval() -> None:
    """Agresti and Coull 1998: 0 of 20 gives 0 to 0.161; halves are symmetric."""
    low, high = wilson(0, 20)
    assert (low, round(high, 3)) == (0.0, 0.161)
    low, high = wilson(10, 20)
    assert low + high == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (42_000, "42 µs"),
        (850e6, "850 ms"),
        (2.31e9, "2.31 s"),
        (540e9, "540 s"),
        (1800e9, "30 min"),
    ],
)
def test_times_are_in_the_unit_that_is_read(time_ns: float, text: str) -> None:
    assert trimmed(time_text(time_ns)) == text


def test_what_a_command_names_as_secret_is_left_out() -> None:
    words = (
        "env",
        "HF_TOKEN=hf_1",
        "vllm",
        "serve",
        "m",
        "--api-key",
        "sk-2",
        "--port",
        "80",
        "--admin-key=sk-3",
        "--key-count",
        "4",
    )
    assert (
        launch_text(words) == "env HF_TOKEN=… vllm serve m --api-key … --port 80 --admin-key=… --key-count 4"
    )
    shown = replace(WHOLE, target=replace(WHOLE.target, launched=words))
    for page in (experiment_page(Evidence(found=shown)), render(experiment_lines(shown), colour=False)):
        assert not any(secret in page for secret in ("hf_1", "sk-2", "sk-3"))


def test_an_axis_leaves_out_the_rest_between_two_runs() -> None:
    """Ten seconds, a day, ten seconds."""
    times = [*range(11), *range(86_400, 86_411)]
    clock = Clock.of(map(float, times))
    assert (clock.length_s, clock.end, clock.cuts) == (20.0, 20.0, (10.0,))
    assert [clock.at(place) for place in (-5.0, 4.0, 10.0, 40_000.0, 86_400.0, 86_404.0, 1e9)] == [
        0,
        4,
        10,
        10,
        10,
        14,
        20,
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=60))
def test_time_never_runs_back_on_an_axis(times: list[float]) -> None:
    clock = Clock.of(times)
    places = [clock.at(at_s) for at_s in sorted(times)]
    assert places == sorted(places)
    assert places[0] >= 0 and places[-1] <= clock.end * (1 + 1e-9)


def test_a_line_is_cut_where_readings_are_missing() -> None:
    points = [(float(x), 1.0) for x in (0, 1, 2, 3, 9, 10, 11)]
    assert [len(piece) for piece in pieces(points)] == [4, 3]
    assert [point for piece in pieces(points) for point in piece] == points
