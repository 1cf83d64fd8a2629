"""Formats that no trace of the project has: small files in the layouts that their publishers document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.workload.columnar import ordering, reading
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columns import Workload
from vramledger.workload.request import Boundary
from workload.test_reading import AGENTIC, AZURE, MEASURED, MOONCAKE, same

BURST = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def read(folder: Path, text: str, **options: Any) -> Workload:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return read_workload(path, **options)


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_burstgpt_counts_from_its_first_request_and_waits_as_its_users_did(tmp_path: Path) -> None:
    workload = read(
        tmp_path,
        BURST
        + "19440110.0,aa,43,GPT-4,906,446,1352,Conversation log\n"
        + "19440161.0,bb,2,ChatGPT,36,29,65,Conversation log\n"
        + "19440170.0,,2,ChatGPT,36,0,36,API log\n"
        + "19440292.5,aa,3,GPT-4,1500,10,1510,Conversation log\n",
    )
    first, other, last = workload.requests()
    assert [first.arrival_ns, other.arrival_ns, last.arrival_ns] == [0, 51 * 10**9, 182_500_000_000]
    # The answer to the first was there 43 s after it was sent.
    assert (last.parent, last.pause_ns) == (0, 139_500_000_000)
    assert first.boundary == last.boundary != other.boundary
    assert any("1 row left out: no output" in note for note in workload.header.notes)
    open_loop = read_workload(tmp_path / "trace", follow_parents=False)
    assert all(request.parent is None for request in open_loop.requests())


def test_burstgpt_of_six_columns_has_no_sessions(tmp_path: Path) -> None:
    text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
    (request,) = read(tmp_path, text).requests()
    assert (request.prompt_tokens, request.output_tokens, request.conversation) == (472, 18, None)


def test_azures_second_year_has_zones_and_fractions_that_come_and_go(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n"
    )
    workload = read(tmp_path, text)
    assert "azure" in workload.header.notes[0]
    assert workload.table().arrival_ns.tolist() == [0, 990_070_000]


def test_bailian_blocks_are_chained_and_follow_their_parents(tmp_path: Path) -> None:
    row = {"output_length": 30, "type": "text", "turn": 1}
    workload = read(
        tmp_path,
        lines(
            row
            | {
                "chat_id": 1,
                "parent_chat_id": -1,
                "timestamp": 0.5,
                "input_length": 40,
                "hash_ids": [1, 2, 3],
            },
            row
            | {
                "chat_id": 3,
                "parent_chat_id": -1,
                "timestamp": 1.0,
                "input_length": 40,
                "hash_ids": [7, 2, 3],
            },
            row
            | {
                "chat_id": 2,
                "parent_chat_id": 1,
                "timestamp": 3.25,
                "input_length": 80,
                "hash_ids": [1, 2, 9, 10, 11],
            },
        ),
    )
    first, stranger, second = (request.blocks for request in workload.requests())
    assert second[:2] == first[:2]
    assert not set(stranger) & set(second), "the same block after another beginning is another prefix"
    assert first == second, "40 + 30 tokens reach into the fifth block, as the next turn names it"
    assert workload.table().conversation.tolist() == [0, 1, 0]
    assert workload.table().arrival_ns.tolist() == [500_000_000, 10**9, 3_250_000_000]


OPENAI = {"id": "a", "created": 1_700_000_000, "model": "m"}


@pytest.mark.parametrize(
    "row",
    [
        OPENAI | {"usage": {"prompt_tokens": 10, "completion_tokens": 3}},
        OPENAI | {"usage": {"input_tokens": 10, "output_tokens": 3}},
        {
            "request": {"max_tokens": 9},
            "response": OPENAI | {"usage": {"prompt_tokens": 10, "completion_tokens": 3}},
        },
        {"id": "b", "response": {"body": OPENAI | {"usage": {"prompt_tokens": 10, "completion_tokens": 3}}}},
        {
            "startTime": 1_700_000_000.0,
            "endTime": 1_700_000_001.0,
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "model": "m",
        },
        {
            "startTime": "2023-11-14T22:13:20.000000",
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "team_id": "t",
        },
        {"created_at": "2023-11-14T22:13:20Z", "tokens_prompt": 10, "tokens_completion": 3},
        {"timestamp": "2023-11-14 22:13:20", "usage": {"input": 10, "output": 3}},
    ],
)
def test_access_logs_of_gateways(tmp_path: Path, row: dict[str, Any]) -> None:
    (request,) = read(tmp_path, lines(row)).requests()
    assert (request.arrival_ns, request.prompt_tokens, request.output_tokens) == (0, 10, 3)


def test_an_access_log_has_tenants_models_and_bounds(tmp_path: Path) -> None:
    def row(at: float, team: str, model: str, most: int | None) -> dict[str, Any]:
        usage = {"prompt_tokens": 10, "completion_tokens": 3}
        return {
            "created": at,
            "model": model,
            "usage": usage,
            "max_tokens": most,
            "metadata": {"user_api_key_team_id": team},
        }

    workload = read(tmp_path, lines(row(1.7e9, "a", "m", None), row(1.7e9 + 2.5, "b", "n", 50)))
    first, second = workload.requests()
    assert [workload.header.tenants[one.tenant] for one in (first, second)] == ["a", "b"]
    assert workload.header.boundaries[second.boundary] == Boundary(model_revision="n")
    assert (first.max_output_tokens, second.max_output_tokens, second.arrival_ns) == (None, 50, 2_500_000_000)


def test_agent_runs_have_their_sets_as_tenants(tmp_path: Path) -> None:
    row = {
        "set": "x",
        "session_id": "s",
        "seq": 0,
        "input_length": 100,
        "output_length": 0,
        "hash_ids": [5, 6],
    }
    workload = read(
        tmp_path,
        lines(row | {"timestamp_us": 1_760_000_001_000_000}, row | {"timestamp_us": 1_760_000_000_000_000}),
    )
    assert workload.table().arrival_ns.tolist() == [0, 10**9]
    assert workload.header.tenants == ("", "x")
    assert workload.header.block_tokens == 64


def test_a_subagent_starts_its_duration_before_its_recorded_time(tmp_path: Path) -> None:
    def call(at: float, first: int, **more: Any) -> dict[str, Any]:
        return {
            "t": at,
            "type": "s",
            "in": 640,
            "out": 5,
            "hash_ids": list(range(first, first + 10)),
            "api_time": 2.0,
        } | more

    inner = [call(0.0, 50), call(6.0, 50, think_time=3.5)]
    subagent = {"t": 20.0, "type": "subagent", "duration_ms": 15_000, "requests": inner}
    text = lines(
        {
            "id": "x",
            "block_size": 64,
            "hash_id_scope": "local",
            "requests": [call(0.0, 0), subagent, call(25.0, 0)],
        }
    )
    first, begun, second, last = read(tmp_path, text).requests()
    assert [begun.arrival_ns, second.arrival_ns, last.arrival_ns] == [5 * 10**9, 11 * 10**9, 25 * 10**9]
    assert (begun.parent, begun.pause_ns) == (0, 3 * 10**9)
    assert (second.parent, second.pause_ns) == (1, 3_500_000_000)
    # What comes after a subagent waits for its end.
    assert (last.parent, last.pause_ns) == (2, 5 * 10**9)
    assert first.blocks[:10] == last.blocks[:10]
    assert first.conversation == begun.conversation == last.conversation


@pytest.mark.parametrize(
    "columns",
    [
        {"client": ["c"], "t_s": [0], "rate_per_s": [1.0], "cv": [1.0], "pattern": ["Gamma"]},
        {"client": ["c"], "t_s": [0], "field": ["input_tokens"], "pdf": ["{1: 1.0}"]},
    ],
)
def test_rates_of_clients_are_no_requests(tmp_path: Path, columns: dict[str, Any]) -> None:
    path = tmp_path / "rates.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    with pytest.raises(InputError, match=r"ServeGen.*sample requests"):
        read_workload(path)


def test_a_format_can_be_asked_for_and_must_fit(tmp_path: Path) -> None:
    text = lines({"timestamp": 1, "input_length": 10, "output_length": 3})
    assert read(tmp_path, text, time_unit="s").header.block_tokens is None
    asked = read(tmp_path, text, format="mooncake")
    assert (asked.header.block_tokens, asked.table().arrival_ns.tolist()) == (512, [10**6])
    with pytest.raises(InputError, match="looks like azure"):
        read_workload(AZURE, format="bailian")
    with pytest.raises(InputError, match="no trace format is called 'csv'"):
        read_workload(AZURE, format="csv")


@pytest.mark.parametrize("path", [AZURE, MOONCAKE, MEASURED])
def test_a_streamed_trace_is_the_held_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = read_workload(path)
    monkeypatch.setattr(reading, "HELD_BYTES", 0)
    streamed = read_workload(path)
    assert streamed.header == held.header
    assert same(streamed.table(), held.table())
    assert same(streamed.table(), held.table())


def test_turns_of_a_streamed_trace_follow_as_those_of_a_held_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        f"{7 * number + (number * 13) % 40},{'abcd'[number % 4]},{number % 60},m,10,5,15,API log"
        for number in range(300)
    ]
    held = read(tmp_path, BURST + "\n".join(rows) + "\n")
    assert any("came after later ones" in note for note in held.header.notes)
    monkeypatch.setattr(reading, "HELD_BYTES", 0)
    monkeypatch.setattr("vramledger.workload.columnar.tables.BATCH", 37)
    streamed = read_workload(tmp_path / "trace")
    assert streamed.header == held.header
    assert (held.table().parent >= 0).any()
    assert same(streamed.table(), held.table())


def test_an_agents_batch_holds_so_many_block_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_workload(AGENTIC)
    monkeypatch.setattr("vramledger.workload.columnar.runs.MOST_BLOCK_IDS", 20_000)
    batches = list(read_workload(AGENTIC).batches())
    assert len(batches) > 10
    assert all(len(batch.block_ids) <= 20_000 or batch.rows == 1 for batch in batches)
    assert same(read_workload(AGENTIC).table(), whole.table())


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(st.integers(0, 60), min_size=1, max_size=40), window=st.integers(1, 40))
def test_a_window_sorts_as_far_as_it_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: list[int], window: int
) -> None:
    monkeypatch.setattr(reading, "HELD_BYTES", 0)
    monkeypatch.setattr(ordering, "WINDOW", window)
    monkeypatch.setattr("vramledger.workload.columnar.tables.BATCH", 3)
    text = "arrival_s,prompt,output\n" + "".join(f"{at},{number + 1},1\n" for number, at in enumerate(times))
    order = np.argsort(np.array(times), kind="stable")
    moved = int(np.max(np.arange(len(times)) - np.argsort(order, kind="stable"), initial=0))
    try:
        workload = read(tmp_path, text)
    except InputError as problem:
        assert "sort the file" in problem.message
        assert moved > window - 3
        return
    assert workload.table().arrival_ns.tolist() == [at * 10**9 for at in sorted(times)]
    assert workload.table().prompt_tokens.tolist() == (order + 1).tolist()
