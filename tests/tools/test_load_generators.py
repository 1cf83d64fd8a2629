"""The server of known instants notes what was, and what is told is held against that."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tools.load_generators.__main__ import figures, generators, served
from tools.load_generators.cases import Case
from tools.load_generators.figures import Told, arrivals, streams
from tools.load_generators.ours import requests_of
from tools.load_generators.server import Note, Script
from tools.load_generators.theirs import write_trace

MS = 1_000_000


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(os.sched_getaffinity(0)) as found:
        yield found


def row_of(port: int, folder: Path, case: Case) -> dict[str, Any]:
    command, told = generators(argparse.Namespace(aiperf=None, guidellm=None))["vramledger"]
    return figures(case, "vramledger", command, told, port, folder, os.sched_getaffinity(0))


def test_a_schedule_is_kept_and_told(port: int, tmp_path: Path) -> None:
    quick = Script(first_ms=20, gap_ms=5, events=5)
    row = row_of(
        port,
        tmp_path,
        Case(name="streams", per_s=40, seconds=1, is_fixed=True, output_tokens=5, script=quick),
    )
    case = Case(name="streams", per_s=40, seconds=1)
    assert row["requests"] == row["told of"] == len(requests_of(case))
    # Nobody hears a word before it is said, and what is told counts from when it was due.
    assert all(
        told >= true for told, true in zip(row["first token, told"], row["first token, true"], strict=True)
    )
    assert row["first token, true"][0] >= 20
    assert row["late at the server"] is not None


def test_refused_requests_come_again_until_they_are_answered(port: int, tmp_path: Path) -> None:
    script = Script(first_ms=1, gap_ms=1, events=3, refuse_every=4, retry_after_s=0)
    case = Case(name="refused", per_s=30, seconds=1, output_tokens=3, script=script)
    row = row_of(port, tmp_path, case)
    assert row["refused"] > 0
    assert row["answered"] + row["told as failed"] == len(requests_of(case))


def test_later_turns_carry_what_was_answered(port: int, tmp_path: Path) -> None:
    case = Case(
        name="turns", per_s=4, seconds=1, turns=3, pause_ms=50, output_tokens=20,
        script=Script(first_ms=1, gap_ms=1, events=20),
    )  # fmt: skip
    row = row_of(port, tmp_path, case)
    sessions = len(requests_of(case)) // 3
    assert row["requests"] == 3 * sessions
    assert row["with an earlier answer in them"] == 2 * sessions
    assert row["sent after its parent's end, ms"][0] >= 50


def test_what_a_generator_adds_is_the_difference_to_what_was() -> None:
    notes = [
        Note(number=number, read_ns=number * 10 * MS + (5 * MS if number == 2 else 0), first_ns=number * 10 * MS + 105 * MS,
             last_ns=number * 10 * MS + 145 * MS, sent_events=5)
        for number in range(4)
    ]  # fmt: skip
    told = Told(first_token_ns=[110 * MS] * 4, token_gap_ns=[10 * MS] * 4)
    row = streams(notes, told, [0, 10 * MS, 20 * MS, 30 * MS])
    assert row["first token, true"] == (105.0, 105.0)
    assert row["first token, told"] == (110.0, 110.0)
    assert row["token gap, true"] == (10.0, 10.0)
    assert row["late at the server"] == (0.0, 5.0)
    assert row["streams at most"] == 4
    assert row["late, told"] is None


def test_arrivals_that_repeat_each_other_are_seen() -> None:
    random = Random(3)
    drawn = [round(random.expovariate(1 / 5) * MS) + 1 for _ in range(2000)]
    alone = arrivals(at_gaps(drawn))
    assert alone["arrivals a second"] == pytest.approx(200, rel=0.1)
    assert alone["variation of gaps"] == pytest.approx(1, abs=0.1)
    assert abs(alone["correlation with the next gap"]) < 0.1
    # Two processes that draw the same numbers: each gap comes twice.
    twice = arrivals(at_gaps([gap for gap in drawn for _ in range(2)]))
    assert twice["variation of gaps"] == pytest.approx(1, abs=0.1)
    assert twice["correlation with the next gap"] > 0.4


def at_gaps(gaps_ns: list[int]) -> list[Note]:
    return [Note(number=number, read_ns=at_ns) for number, at_ns in enumerate(accumulate([0, *gaps_ns]))]


def test_a_schedule_is_the_same_for_all(tmp_path: Path) -> None:
    case = Case(name="turns", per_s=5, seconds=4, turns=2, pause_ms=300)
    write_trace(case, tmp_path / "trace.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    ours = requests_of(case)
    assert len(lines) == len(ours)
    for line, request in zip(lines, ours, strict=True):
        if request.parent is None:
            assert line["timestamp"] == pytest.approx(request.arrival_ns / MS, abs=0.001)
        else:
            assert line["delay"] * MS == request.pause_ns
    assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case
