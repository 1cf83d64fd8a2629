"""What is written reads back equal, in every form."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramledger.errors import FlagError, InputError
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columnar.writing import ENDINGS, write_workload
from vramledger.workload.columns import Workload, columns_of
from vramledger.workload.request import Boundary, Request, WorkloadHeader

LARGE = st.integers(0, 2**61)
SOME = st.none() | LARGE


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    count = draw(st.integers(1, 8))
    arrivals = sorted(draw(st.lists(LARGE, min_size=count, max_size=count)))
    requests = [
        Request(
            arrival_ns=arrival,
            prompt_tokens=draw(st.integers(1, 2**31)),
            output_tokens=draw(st.integers(1, 2**31)),
            max_output_tokens=draw(SOME),
            blocks=tuple(draw(st.lists(LARGE, max_size=4))),
            boundary=draw(st.integers(0, 1)),
            tenant=draw(st.integers(0, 2)),
            conversation=draw(SOME),
            parent=draw(st.none() | st.integers(0, place - 1)) if place else None,
            pause_ns=draw(LARGE),
            branches=draw(st.integers(1, 5)),
            cancel_ns=draw(SOME),
            first_token_deadline_ns=draw(SOME),
            deadline_ns=draw(SOME),
            priority=draw(st.integers(-5, 5)),
        )
        for place, arrival in enumerate(arrivals)
    ]
    text = st.text(max_size=12)
    header = WorkloadHeader(
        name=draw(text),
        source=draw(text),
        block_tokens=draw(st.none() | st.integers(1, 512)),
        tenants=tuple(draw(st.lists(text, min_size=3, max_size=3))),
        boundaries=(Boundary(), Boundary(tenant=draw(text), adapter=draw(text))),
        notes=tuple(draw(st.lists(text, max_size=2))),
    )
    return Workload.of(header, columns_of(requests))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(workload=workloads())
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_written_reads_back_equal(tmp_path: Path, ending: str, workload: Workload) -> None:
    path = tmp_path / f"workload{ending}"
    write_workload(workload, path)
    back = read_workload(path)
    assert back.header == workload.header
    assert list(back.requests()) == list(workload.requests())


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_workload_is_the_same_bytes(tmp_path: Path, ending: str) -> None:
    workload = small()
    paths = [tmp_path / f"{name}{ending}" for name in "ab"]
    for path in paths:
        write_workload(workload, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def small(**changed: object) -> Workload:
    first = Request(arrival_ns=0, prompt_tokens=10, output_tokens=5, blocks=(1, 2))
    second = Request(arrival_ns=5, prompt_tokens=10, output_tokens=5, parent=0)
    second = msgspec.structs.replace(second, **changed)
    header = WorkloadHeader(name="small", source="here", block_tokens=8)
    return Workload.of(header, columns_of([first, second]))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"parent": 1}, "row 2: parent is not a request above it"),
        ({"tenant": 3}, "row 2: tenant is out of range"),
        ({"boundary": 1}, "row 2: boundary is out of range"),
        ({"branches": 0}, "row 2: branches is out of range"),
    ],
)
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_what_nobody_would_write_is_refused(
    tmp_path: Path, changed: dict[str, object], why: str, ending: str
) -> None:
    path = tmp_path / f"workload{ending}"
    write_workload(small(**changed), path)
    with pytest.raises(InputError, match=why):
        read_workload(path)


def test_an_unordered_one_is_refused(tmp_path: Path) -> None:
    columns = small().table()
    path = tmp_path / "workload.csv"
    write_workload(Workload.of(small().header, columns._replace(arrival_ns=np.array([5, 0]))), path)
    with pytest.raises(InputError, match="comes before the request above it"):
        read_workload(path)


def test_another_version_and_another_ending_are_told(tmp_path: Path) -> None:
    path = tmp_path / "workload.jsonl"
    write_workload(small(), path)
    path.write_bytes(path.read_bytes().replace(b'"vramledger_workload":1', b'"vramledger_workload":2'))
    with pytest.raises(InputError, match="version 2"):
        read_workload(path)
    with pytest.raises(FlagError, match="ends in none of"):
        write_workload(small(), tmp_path / "workload.txt")
