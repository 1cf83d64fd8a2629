"""Records come back as they were written; what is no file of records is refused by name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError, OutputError, SourceError
from vramledger.experiment.record_file import read_records, write_records
from vramledger.experiment.served import Served

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
