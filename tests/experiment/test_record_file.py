"""Records come back as they were written; what is no file of records is refused by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import whole_experiment
from vramledger.errors import InputError, OutputError, SourceError
from vramledger.experiment.record_file import read_records, records_of, write_records
from vramledger.experiment.result import LoadFigures
from vramledger.experiment.served import Served
from vramledger.simulation.settings import Slo

WHOLE = st.integers(min_value=-1, max_value=2**62)
MAYBE = st.none() | st.integers(min_value=0, max_value=2**62)
WORDS = st.text(max_size=40).filter(lambda text: text.isprintable())
ROWS = st.builds(
    Served,
    number=st.integers(0, 2**31), kind=WORDS, tenant=st.integers(0, 9), conversation=MAYBE, parent=MAYBE, due_ns=WHOLE, sent_ns=WHOLE,
    first_token_ns=WHOLE, last_token_ns=WHOLE, end_ns=WHOLE, asked_prompt_tokens=WHOLE, asked_output_tokens=WHOLE, prompt_tokens=MAYBE,
    output_tokens=MAYBE, cancel_ns=MAYBE, deadline_ns=MAYBE, status=st.integers(0, 599), whole=st.booleans(), left=st.booleans(),
    error=WORDS, rule=WORDS,
)  # fmt: skip


@given(rows=st.lists(ROWS, max_size=20))
def test_rows_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, rows: list[Served]) -> None:
    path = tmp_path_factory.mktemp("records") / "short-1.parquet"
    write_records(path, rows)
    assert read_records(path) == tuple(rows)


ROW = Served(number=0, due_ns=0, asked_prompt_tokens=8, asked_output_tokens=2)


def damaged(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def other_columns(path: Path) -> None:
    pq.write_table(pa.table({"number": [1], "due_ns": [2]}), path)


def other_types(path: Path) -> None:
    pq.write_table(
        pa.table({"number": ["x"], "due_ns": [0], "asked_prompt_tokens": [1], "asked_output_tokens": [1]}),
        path,
    )


def long_text(path: Path) -> None:
    pq.write_table(
        pa.table({"number": [1], "due_ns": [0], "asked_prompt_tokens": [1], "asked_output_tokens": [1], "error": ["x" * 5000]}), path
    )  # fmt: skip


def no_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1" + b"\xff" * 500 + b"PAR1")


@pytest.mark.parametrize("damage", [damaged, other_columns, other_types, long_text, no_parquet])
def test_a_file_that_holds_no_records_is_refused_by_name(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "short-1.parquet"
    write_records(path, [ROW])
    damage(path)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"short-1\.parquet"):
        read_records(path)


def test_columns_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "short-1.parquet"
    write_records(path, [ROW])
    table = pq.read_table(path)
    pq.write_table(table.append_column("colour", pa.array(["red"])), path)
    assert read_records(path) == (ROW,)


def test_where_nothing_is_or_can_be(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        read_records(tmp_path / "nothing.parquet")
    with pytest.raises(OutputError):
        write_records(tmp_path / "no folder" / "a.parquet", [ROW])


def of_stage(tmp_path: Path, **changes: object) -> tuple[Served, ...]:
    """The records of a stage of two requests, one of them within the aims, as its folder has them."""
    rows = [
        Served(
            number=number, due_ns=0, sent_ns=0, first_token_ns=first_ns, last_token_ns=first_ns, end_ns=first_ns,
            asked_prompt_tokens=8, asked_output_tokens=1, status=200, whole=True,
        )
        for number, first_ns in enumerate((10**6, 10**10))
    ]  # fmt: skip
    (tmp_path / "records").mkdir()
    write_records(tmp_path / "records" / "s.parquet", rows)
    stage = msgspec.structs.replace(
        whole_experiment().stages[0], records="records/s.parquet", measured=LoadFigures(offered=2, good=1)
    )
    return records_of(tmp_path, msgspec.structs.replace(stage, **changes), Slo(ttft_ms=1000.0))


def test_a_stage_has_the_records_that_it_was_summed_up_from(tmp_path: Path) -> None:
    assert [row.number for row in of_stage(tmp_path)] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"measured": LoadFigures(offered=3, good=1)}, "2 requests, 1 within the aims; stage .* had 3, 1"),
        ({"measured": LoadFigures(offered=2, good=2)}, "it is not the file that was written"),
        ({"records": "../records/s.parquet"}, "names no file of records"),
        ({"records": "/dev/zero"}, "names no file of records"),
        ({"records": ""}, "names no file of records"),
    ],
)
def test_records_that_are_not_the_stages_are_refused(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        of_stage(tmp_path, **changes)
