"""Prometheus' text format and OpenMetrics."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.telemetry.exposition import LONGEST_LINE, Reading, parse_exposition, parse_reading


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        ("up 1", Reading("up", {}, 1.0)),
        ("sglang:token_usage{tp_rank=\"0\"} 0.25", Reading("sglang:token_usage", {"tp_rank": "0"}, 0.25)),
        ("a{} 3", Reading("a", {}, 3.0)),
        ('a{b="c",} 3', Reading("a", {"b": "c"}, 3.0)),
        ('a { b = "c" , d = "}" } 3 1500', Reading("a", {"b": "c", "d": "}"}, 3.0, 1.5)),
        ('a{b="x\\"y\\\\z\\n"} -1.5e-3', Reading("a", {"b": 'x"y\\z\n'}, -0.0015)),
        ('{"a.b c","d.e"="f"} 7', Reading("a.b c", {"d.e": "f"}, 7.0)),
        ("a +Inf", Reading("a", {}, math.inf)),
        ('a_bucket{le="0.5"} 8 # {trace_id="x"} 0.4 1.5', Reading("a_bucket", {"le": "0.5"}, 8.0)),
    ],
)  # fmt: skip
def test_lines_are_read(line: str, reading: Reading) -> None:
    assert parse_reading(line) == reading


@pytest.mark.parametrize(
    "line",
    ["a", "a b", "1a 3", 'a{b="c" 3', "a{b=c} 3", 'a{b="c} 3', 'a{b="c",b="d"} 3', "a 1 2 3", "a 1_0", "a 0x1", "{} 3", "a 1e"],
)  # fmt: skip
def test_what_is_no_metric_is_not_read(line: str) -> None:
    assert parse_reading(line) is None


def test_a_line_that_is_no_metric_is_counted_and_the_rest_is_read() -> None:
    found = parse_exposition(b"# TYPE a gauge\na 1\n<html>\nb 2\r\n\nc{ 3\n")
    assert [(reading.name, reading.value) for reading in found.readings] == [("a", 1), ("b", 2)]
    assert found.unread == (3, 6)
    assert found.complete is None


def test_open_metrics_ends_with_a_word_and_times_in_seconds() -> None:
    found = parse_exposition(b"a_total 1 1796000000.5\n# EOF\n")
    assert found.complete is True
    assert found.readings[0].at_s == 1796000000.5


def test_a_long_line_is_left_out() -> None:
    assert parse_exposition(b'a{b="' + b"x" * LONGEST_LINE + b'"} 1\nc 2').unread == (1,)


NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=10),
    max_size=4,
)


@given(st.lists(st.tuples(NAMES, LABELS, st.floats(allow_nan=False)), max_size=8))
def test_nothing_is_lost(rows: list[tuple[str, dict[str, str], float]]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    lines = []
    for name, labels, value in rows:
        inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{inside}}} {repr(value).replace('inf', 'Inf')}")
    found = parse_exposition("\n".join(lines).encode())
    assert found.unread_count == 0
    assert [(reading.name, reading.labels, reading.value) for reading in found.readings] == rows


@given(st.binary(max_size=300) | st.text(alphabet='a{}=",\\ #1e.:\n', max_size=200).map(str.encode))
def test_any_bytes_are_read_or_counted(body: bytes) -> None:
    found = parse_exposition(body)
    lines = [line.strip() for line in body.decode("utf-8", "replace").split("\n")]
    told = [line for line in lines if line and line[0] != "#"]
    assert len(found.readings) + found.unread_count == len(told)
