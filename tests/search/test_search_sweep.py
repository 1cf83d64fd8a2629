"""A grid's rows: those of single plans, in whatever process they are made."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import GEMMA_3_27B, LLAMA_3_1_8B, QWEN3_30B_A3B, checkpoint
from vramledger import plan
from vramledger.engines.recent import Recent
from vramledger.errors import FlagError, InputError
from vramledger.ledger import Owner
from vramledger.report.schema import schema_of
from vramledger.report.table_file import (
    TableFormat,
    check_format,
    column_facts,
    format_of,
    table_text,
    write_table,
)
from vramledger.search.evaluation import Status
from vramledger.search.grid import Grid
from vramledger.search.rows import COLUMNS, Row
from vramledger.search.sweep import Work, chunks, in_process, over_processes
from vramledger.search.terms import asked_engines, flags_of
from vramledger.search.weights import restored

MODELS = (checkpoint(LLAMA_3_1_8B), checkpoint(QWEN3_30B_A3B))
GRID = Grid(
    models=2,
    weights=("stored", "awq-int4"),
    devices=("H100 SXM 80GB", "L4", "custom:20GiB"),
    engines=("vllm", "vllm==0.11.0"),
    tp=(1, 2, 3),
    ep=(False, True),
    kv=("auto", "fp8"),
    contexts=(4096,),
    concurrency=(1, 200),
)
WORK = Work(grid=GRID, checkpoints=MODELS, prices={"L4": 0.5})


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row for part in in_process(WORK, chunks(range(len(GRID)))) for row in part]


def test_every_point_has_its_own_number() -> None:
    questions = list(GRID.questions())
    assert len(questions) == len(GRID) == 2 * 2 * 3 * 2 * 3 * 2 * 2 * 2
    assert len(set(questions)) == len(GRID)
    assert questions[0].concurrency == 1
    assert questions[1].concurrency == 200
    with pytest.raises(IndexError):
        GRID.question(len(GRID))


def test_rows_are_those_of_single_plans(rows: list[Row]) -> None:
    planned = [number for number, row in enumerate(rows) if row.status is not Status.REFUSED]
    for number in planned[::7]:
        question, row = GRID.question(number), rows[number]
        alone = plan(
            restored(MODELS[question.model], question.weights),
            question.device,
            engine=question.engine,
            concurrency=question.concurrency,
            **flags_of(question),  # type: ignore[arg-type]
        )
        assert alone.kv_pool is not None
        unknown = alone.verdict.missing if row.status is Status.UNTOLD else ()
        assert row.reason == alone.verdict.summary + ": " * bool(unknown) + "; ".join(unknown)
        assert row.shortfall_bytes == alone.verdict.shortfall_bytes
        assert row.pool_tokens == alone.kv_pool.tokens.expected
        assert (row.pool_bytes_low, row.pool_bytes_high) == (
            alone.kv_pool.bytes.low,
            alone.kv_pool.bytes.high,
        )
        assert row.budget_bytes == alone.budget_bytes
        assert row.weights_bytes in [rank.owned(Owner.WEIGHTS).expected for rank in alone.ranks]


def test_owners_and_what_is_unused_are_the_device(rows: list[Row]) -> None:
    for row in rows:
        if row.device_total_bytes is not None and row.unused_bytes is not None:
            held = sum(getattr(row, f"{owner.value}_bytes") for owner in Owner)
            assert held + row.unused_bytes == row.device_total_bytes


def test_the_grid_has_every_kind_of_answer(rows: list[Row]) -> None:
    assert {row.status for row in rows} >= {Status.HOLDS, Status.FAILS, Status.REFUSED}
    reasons = {row.reason for row in rows if row.status is Status.REFUSED}
    assert "expert parallel over one rank is no expert parallel" in reasons
    assert "the model has no experts to spread" in reasons
    assert any("3" in reason and "heads" in reason for reason in reasons)
    assert {row.price for row in rows if row.device == "L4"} == {0.5, 1.0, 1.5}
    assert {row.price for row in rows if row.device != "L4"} == {None}


def made_anew(
    self: Recent[Any], about: object, key: Hashable, make: Callable[[], Any], *, also: object = None
) -> Any:
    """`Recent.get` of a process that keeps nothing."""
    return make()


@settings(max_examples=20)
@given(st.lists(st.integers(0, len(GRID) - 1), min_size=2, max_size=12))
def test_what_is_kept_between_plans_changes_none(rows: list[Row], numbers: list[int]) -> None:
    """Whatever was asked before, an answer is that of a process that was asked nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recent, "get", made_anew)
        again = [row for part in in_process(WORK, [numbers]) for row in part]
    assert again == [rows[number] for number in numbers]


@pytest.mark.parametrize("engine", asked_engines())
def test_no_engine_mixes_up_what_it_keeps(engine: str) -> None:
    grid = Grid(
        models=2,
        devices=("L40S", "custom:20GiB"),
        engines=(engine,),
        pp=(1, 2),
        contexts=(2048, 16384),
        concurrency=(1, 5),
    )
    work = Work(grid=grid, checkpoints=MODELS)
    order = sorted(range(len(grid)), key=lambda number: (number * 7) % len(grid))
    kept = [row for part in in_process(work, [order]) for row in part]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recent, "get", made_anew)
        anew = [row for part in in_process(work, [order]) for row in part]
    assert kept == anew


def test_processes_give_the_same_rows_in_the_same_order(rows: list[Row]) -> None:
    found = list(over_processes(2)(WORK, chunks(range(len(GRID)), 37)))
    assert msgspec.json.encode([row for part in found for row in part]) == msgspec.json.encode(rows)
    assert [len(part) for part in found] == [37] * (len(GRID) // 37) + [len(GRID) % 37]


def end_this_process(_numbers: object) -> bytes:
    import os

    os._exit(1)


def test_a_process_that_is_killed_is_told_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramledger.search.sweep._answer", end_this_process)
    with pytest.raises(InputError, match="fewer --jobs"):
        list(over_processes(2)(WORK, chunks(range(60), 20)))


def test_ray_gives_the_same_rows_to_the_byte(rows: list[Row]) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray runs this with it")
    from vramledger.search.on_ray import over_ray

    found = over_ray("local", jobs=2)(WORK, chunks(range(len(GRID)), 37))
    assert msgspec.json.encode([row for part in found for row in part]) == msgspec.json.encode(rows)


def test_a_file_holds_the_rows_in_each_text_format(rows: list[Row], tmp_path: Path) -> None:
    parts = [rows[:100], rows[100:]]
    for kind in (TableFormat.CSV, TableFormat.JSON, TableFormat.JSONL):
        write_table(tmp_path / f"t.{kind}", parts)
        assert (tmp_path / f"t.{kind}").read_bytes() == "".join(table_text(kind, parts)).encode()
    document = json.loads((tmp_path / "t.json").read_text())
    jsonschema.Draft202012Validator(schema_of("sweep")).validate(document | {"rows": document["rows"][::40]})
    plain = json.loads(msgspec.json.encode(rows))
    assert document["rows"] == plain
    assert [json.loads(text) for text in (tmp_path / "t.jsonl").read_text().splitlines()] == plain
    with (tmp_path / "t.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows)
    for text, row in zip(table, plain, strict=True):
        assert list(text) == list(COLUMNS)
        for name, value in row.items():
            as_text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            assert text[name] == as_text, name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.json", "t.jsonl"]


def test_parquet_holds_the_same_values(rows: list[Row], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    write_table(tmp_path / "t.parquet", [rows[:10], rows[10:]])
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == json.loads(msgspec.json.encode(rows))
    schema = parquet.read_schema(tmp_path / "t.parquet")
    assert str(schema.field("pool_bytes").type) == "int64"
    assert str(schema.field("ep").type) == "bool"


def test_a_sweep_that_breaks_off_leaves_the_old_file(rows: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text("before")

    def parts() -> object:
        yield rows[:10]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_table(path, parts())  # type: ignore[arg-type]
    assert path.read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == ["plans.csv"]


def test_each_column_is_described() -> None:
    facts = list(column_facts())
    assert [name for name, _, _ in facts] == list(COLUMNS)
    assert {kind for _, kind, _ in facts} == {"string", "integer", "number", "boolean"}
    undescribed = {name for name, _, text in facts if not text}
    assert all(name.endswith(("_bytes", "_low", "_high")) for name in undescribed)


def test_wrong_grids_and_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (
        {"tp": ()},
        {"tp": (0,)},
        {"weights": ("int3",)},
        {"kv": ("int3",)},
        {"engines": ("tgi",)},
        {"tp": tuple(range(1, 9000)), "pp": tuple(range(1, 9000))},
    ):
        with pytest.raises(FlagError):
            Grid(**{"devices": ("L4",), **wrong})  # type: ignore[arg-type]
    with pytest.raises(FlagError, match=r"\.csv"):
        format_of(Path("plans.xlsx"))
    from vramledger.search.on_ray import over_ray

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"vramledger\[distributed\]"):
        over_ray("local")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"vramledger\[parquet\]"):
        check_format(TableFormat.PARQUET)


def test_windows_slide_in_a_sweep_as_in_a_plan() -> None:
    """A model whose pool groups differ, so that a row's tokens are not its bytes over one layer's."""
    model = checkpoint(GEMMA_3_27B)
    grid = Grid(devices=("H100 SXM 80GB",), tp=(2,), contexts=(8192, 65536))
    found = [row for part in in_process(Work(grid=grid, checkpoints=(model,)), [range(2)]) for row in part]
    assert [row.pool_tokens for row in found] == [
        pool.tokens.expected
        for length in (8192, 65536)
        for pool in (plan(model, "H100 SXM 80GB", tp=2, max_model_len=length).kv_pool,)
        if pool is not None
    ]
