"""The classes that a diagnosis names for every reported failure in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.accuracy.diagnosis import FILES, Judged, judge, read_reports, text

GROUND = Path(__file__).resolve().parents[2] / "data/groundtruth"


@pytest.fixture(scope="module", params=FILES)
def judged(request: pytest.FixtureRequest) -> list[Judged]:
    return judge(read_reports(GROUND, request.param))


def test_sure_answers_are_right(judged: list[Judged]) -> None:
    sure = [item for item in judged if item.confidence == "high"]
    assert len(sure) > 0.4 * len(judged)
    assert sum(item.is_accepted for item in sure) >= 0.95 * len(sure), text(judged, name="", worst=99)


def test_sure_reports_are_answered_rightly(judged: list[Judged]) -> None:
    sure = [item for item in judged if item.sure_row == "high"]
    right = sum(item.is_accepted for item in sure)
    # The second collection has lines that stand alone, without the log around them.
    bound = 0.95 if len(judged) > 60 else 0.9
    assert right >= bound * len(sure), text(judged, name="", worst=99)


def test_an_answer_is_seldom_wrong_where_one_is_given(judged: list[Judged]) -> None:
    told = [item for item in judged if item.answered != "untold"]
    assert sum(item.is_accepted for item in told) >= 0.9 * len(told), text(judged, name="", worst=99)


def test_no_report_tells_its_answer() -> None:
    """What the tool is not given stays out: an answer does not change when the fields are removed."""
    rows = read_reports(GROUND, FILES[0])[::9]
    kept = {"id", "class", "class_also_accepted", "confidence", "messages", "engine", "flags"}
    bare = [{key: value for key, value in row.items() if key in kept} for row in rows]
    assert [item.answered for item in judge(bare)] == [item.answered for item in judge(rows)]
