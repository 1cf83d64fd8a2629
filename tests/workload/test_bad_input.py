"""Rows and files that are wrong: told by row, column and value, or left out and counted where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from vramledger.errors import InputError
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columns import Workload

HEAD = "arrival_s,prompt,output\n"


def read(folder: Path, text: str | bytes, **options: Any) -> Workload:
    path = folder / "trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_workload(path, **options)


@pytest.mark.parametrize(
    ("rows", "why", "left"),
    [
        ("0,1,1\n1,2\n5,1,1\n", "row 2: has 2 cells instead of 3", 2),
        ("0,1,1\n4,5,6,7\n5,1,x\n", "row 2: has 4 cells instead of 3", 1),
        ("-1,1,1\n5,2,1\n", r"row 1: arrival_s is negative \('-1 s'\)", 1),
        ("1,0,1\n5,2,1\n", "row 1: prompt is 0: a prompt has a token at least", 1),
        ("1,NaN,1\n5,2,1\n", "row 1: prompt is NaN", 1),
        ("1,1.5,1\n5,2.0,1e2\n6,abc,\n", r"row 1: prompt is no whole number \('1.5'\)", 1),
        ("1,1,1\n5,2,\n", "row 2: output is empty", 1),
        ("1,1,1\n5,two,1\n", r"row 2: prompt is no number \('two'\)", 1),
        ("1,99999999999999999999,1\n5,2,1\n", "row 1: prompt is too large", 1),
        ("1,5000000000,1\n5,2,1\n", "row 1: prompt is too large", 1),
        ("1,1,-3\n5,2,1\n", r"row 1: output is negative \(-3\)", 1),
        ("1700000000,1,1\n1700000001000,2,2\n", r"row 2: arrival_s is too far away.*units mixed", 1),
    ],
)
def test_a_wrong_row_is_told_or_left_out(tmp_path: Path, rows: str, why: str, left: int) -> None:
    with pytest.raises(InputError, match=why) as caught:
        read(tmp_path, HEAD + rows)
    assert {"file", "row"} <= caught.value.facts.keys()
    workload = read(tmp_path, HEAD + rows, on_bad_row="skip")
    assert workload.table().rows == left
    assert any("left out" in note for note in workload.header.notes)


def test_unsorted_rows_are_sorted_and_told(tmp_path: Path) -> None:
    workload = read(tmp_path, HEAD + "0,1,1\n5,2,1\n2,3,3\n")
    assert workload.table().prompt_tokens.tolist() == [1, 3, 2]
    assert "1 request came after later ones, by up to 3 s: sorted by time" in workload.header.notes


def test_what_a_trace_lacks_is_named_with_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="no column that is known as prompt_tokens; its columns are 'foo', 'bar'"
    ):
        read(tmp_path, "foo,bar\n1,2\n")
    with pytest.raises(InputError, match="has no column 'ctx' for prompt_tokens"):
        read(tmp_path, HEAD + "1,1,1\n", columns={"prompt_tokens": "ctx"})
    with pytest.raises(InputError, match="no field of a request is called 'prompts'"):
        read(tmp_path, HEAD + "1,1,1\n", columns={"prompts": "prompt"})


@pytest.mark.parametrize("text", [HEAD, "", "  \n"])
def test_nothing_is_no_workload(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"holds no request|is empty"):
        read(tmp_path, text)


def test_a_unit_that_nobody_states_is_told_and_doubted(tmp_path: Path) -> None:
    slow = "timestamp,prompt,output\n" + "".join(f"{3000 * i},1,1\n" for i in range(100))
    workload = read(tmp_path, slow)
    assert workload.table().arrival_ns[1] == 3000 * 10**9
    assert any("are taken as seconds" in note for note in workload.header.notes)
    assert any("with times of a thousandth" in note for note in workload.header.notes)
    told = read(tmp_path, slow, time_unit="ms")
    assert told.table().arrival_ns[1] == 3 * 10**9
    assert not any("time_unit" in note for note in told.header.notes)


def test_seconds_read_as_milliseconds_are_doubted_too(tmp_path: Path) -> None:
    rows = "".join(
        f'{{"timestamp":{i},"input_length":9,"output_length":1,"hash_ids":[{i}]}}\n' for i in range(100)
    )
    assert not any("time_unit" in note for note in read(tmp_path, rows).header.notes)
    fast = read(tmp_path, rows, time_unit="us")
    assert any("times thousand times as long" in note for note in fast.header.notes)


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_dates_tell_their_unit(tmp_path: Path, unit: str, factor: int) -> None:
    start = 1_700_000_000
    text = f"timestamp,prompt,output\n{start * factor},1,1\n{(start + 2) * factor},1,1\n"
    workload = read(tmp_path, text)
    assert workload.table().arrival_ns.tolist() == [0, 2 * 10**9]
    assert any(f"dates in {unit}:" in note for note in workload.header.notes)


def test_years_between_neighbours_are_two_units(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="54 years lie between row 2 and 3; are times of two units mixed"):
        read(tmp_path, HEAD + "0,1,1\n1,1,1\n1700000000,1,1\n", time_unit="s")


@pytest.mark.parametrize(("first", "then"), [(1, 1000), (1000, 1)])
def test_units_that_change_within_a_file_are_doubted(tmp_path: Path, first: int, then: int) -> None:
    times = [at * first for at in range(1, 60)] + [at * then for at in range(60, 120)]
    workload = read(tmp_path, HEAD + "".join(f"{at},1,1\n" for at in times))
    assert any("two units" in note for note in workload.header.notes)
    steady = read(tmp_path, HEAD + "".join(f"{at},1,1\n" for at in [*range(1, 120), 50_000, 9_300_000]))
    assert not any("two units" in note for note in steady.header.notes)


def test_prompts_longer_than_the_model_are_counted(tmp_path: Path) -> None:
    workload = read(tmp_path, HEAD + "0,100,1\n1,101,1\n2,5000,1\n", max_model_len=100)
    assert workload.table().rows == 3
    assert any(
        "2 rows with a prompt longer than the model's 100 tokens" in note for note in workload.header.notes
    )


@pytest.mark.parametrize("at", ["4611686018427387904", "5e18"])
def test_a_time_that_no_clock_shows_is_told(tmp_path: Path, at: str) -> None:
    row = f'{{"timestamp":{at},"input_length":9,"output_length":1,"hash_ids":[1]}}\n'
    with pytest.raises(InputError, match=r"line 1: .*(too far away|timestamp)"):
        read(tmp_path, row)


def test_what_is_no_utf_8_is_shown_with_marks(tmp_path: Path) -> None:
    workload = read(
        tmp_path,
        b"arrival_s,prompt,output,user\n0,1,1,caf\xe9\n1,1,1,caf\xc3\xa9\n1,1\xff\n",
        on_bad_row="skip",
    )
    assert workload.header.tenants == ("", "caf\ufffd", "caf\xe9")
    assert workload.table().rows == 2


def line(chat: int, parent: int, at: float, ids: list[int], tokens: int = 40) -> str:
    return (
        f'{{"chat_id":{chat},"parent_chat_id":{parent},"timestamp":{at},"input_length":{tokens},"output_length":30,'
        f'"type":"text","turn":1,"hash_ids":{ids}}}\n'
    )


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (line(1, -1, 0.5, [1]) + line(1, -1, 3.25, [1]), "line 2: has an id that line 1 has too"),
        (line(1, 7, 0.5, [1]) + line(2, -1, 3.25, [1]), "line 1: follows a parent that does not exist"),
        (line(1, 2, 0.5, [1]) + line(2, -1, 3.25, [1]), "line 1: follows a parent that comes later"),
        (line(1, 2, 0.5, [1]) + line(2, 1, 3.25, [1]), "line 1: follows itself, over its parents"),
        (line(1, 1, 0.5, [1]) + line(2, 1, 3.25, [1]), "line 1: follows itself, over its parents"),
        (line(1, -1, 0.5, [1, 2, 3, 4]), "line 1: names more blocks of 16 tokens than its prompt has"),
        (
            line(1, -1, 0.5, [1])[:60],
            "line 1: is no whole JSON object|the first line is no whole JSON object",
        ),
        (line(1, -1, 0.5, [1]) + line(2, 1, 1.0, [1])[:60], "line 2: is no whole JSON object"),
        (line(1, -1, -0.5, [1]), r"line 1: Expected .float. >= 0.*timestamp"),
    ],
)
def test_links_that_lead_nowhere_are_told(tmp_path: Path, lines: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read(tmp_path, lines)


@pytest.mark.parametrize("change", [lambda raw: raw[:-30], lambda raw: raw[:40] + bytes(40) + raw[80:]])
def test_cut_or_damaged_parquet_is_told(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "whole.parquet"
    table = pa.table({"arrival_ms": [0.5, 1.5], "prompt": [1, 2], "output": [1, 3]})
    pa.parquet.write_table(table, path)
    assert read_workload(path).table().arrival_ns.tolist() == [500_000, 1_500_000]
    with pytest.raises(InputError, match="cut or damaged Parquet"):
        read(tmp_path, change(path.read_bytes()))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\0\1\2", "neither text nor Parquet"),
        (b'[{"prompt": 1}]', "one JSON array"),
        (b'{"a":' + b"[" * 100_000, "no whole JSON object"),
        (b"prompt,prompt,output\n1,1,1\n", "two columns named 'prompt'"),
    ],
)
def test_files_of_other_kinds_are_told(tmp_path: Path, text: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read(tmp_path, text)


def test_a_file_that_changes_under_a_workload_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramledger.workload.columnar.reading.HELD_BYTES", 0)
    workload = read(tmp_path, HEAD + "0,1,1\n")
    assert workload.table().rows == 1
    (tmp_path / "trace").write_text(HEAD + "0,1,1\n1,1,1\n")
    with pytest.raises(InputError, match="changed while it was read"):
        workload.table()
