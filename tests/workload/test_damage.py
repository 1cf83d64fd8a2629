"""Whatever is changed in a trace's bytes, either a sound workload comes or an error of ours."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.workload.columnar.arrivals import first_of
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columnar.writing import write_workload
from vramledger.workload.columns import Workload
from workload.test_reading import AGENTIC, AZURE, MEASURED, MOONCAKE
from workload.test_request_logs import RECORDED

BURSTGPT = b"""Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
19440110.0,aa,43,GPT-4,906,446,1352,Conversation log
19440161.0,bb,2,ChatGPT,36,29,65,Conversation log
19440292.5,aa,3,GPT-4,1500,10,1510,Conversation log
"""
BAILIAN = b"".join(
    b'{"chat_id":%d,"parent_chat_id":%d,"timestamp":%d.5,"input_length":40,"output_length":30,"hash_ids":[%d,2,3]}\n'
    % (number, number - 1 if number % 2 else -1, number, number % 3)
    for number in range(6)
)
GATEWAY = (
    b'{"id":"1","startTime":1700000000.25,"endTime":1700000001.25,"prompt_tokens":10,"completion_tokens":3,"model":"m",'
    b'"metadata":{"user_api_key_team_id":"t"}}\n'
) * 3
TOKENS = (
    b"-1", b"0", b"NaN", b"1e400", b"99999999999999999999999", b'""', b"null", b"[]", b"{}", b"\xff", b"\0", b"true",
    b",", b"\n", b"\r", b'"', b"2023-11-16", b"4611686018427387904", b"9223372036854775807", b"1.5", b"[[1,2],[3,4194305]]",
)  # fmt: skip


def seeds(folder: Path) -> list[bytes]:
    found = [BURSTGPT, BAILIAN, GATEWAY]
    found += [path.read_bytes() for path in sorted(RECORDED.glob("*.log"))]
    for path in (AZURE, MOONCAKE, MEASURED, AGENTIC):
        lines = gzip.decompress(path.read_bytes()).split(b"\n")
        found.append(b"\n".join(lines[:1] if path == AGENTIC else lines[:4]))
    small = first_of(read_workload(MEASURED), requests=4)
    for ending in (".csv", ".jsonl", ".parquet"):
        write_workload(small, folder / f"seed{ending}")
        found.append((folder / f"seed{ending}").read_bytes())
    return found


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return seeds(tmp_path_factory.mktemp("seeds"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), options=st.booleans())
def test_damage_is_told_or_read_past(
    tmp_path: Path, traces: list[bytes], data: st.DataObject, options: bool
) -> None:
    text = bytearray(data.draw(st.sampled_from(traces)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        how = data.draw(st.sampled_from(["insert", "replace", "delete", "cut", "repeat"]))
        if how == "insert":
            text[at:at] = data.draw(st.sampled_from(TOKENS))
        elif how == "replace":
            text[at : at + data.draw(st.integers(1, 12))] = data.draw(st.sampled_from(TOKENS))
        elif how == "delete":
            del text[at : at + data.draw(st.integers(1, 30))]
        elif how == "cut":
            del text[at:]
        else:
            text += text[at : at + 2_000]
    path = tmp_path / "trace"
    path.write_bytes(text)
    try:
        workload = read_workload(path, on_bad_row="skip" if options else "error", link_turns=options)
    except InputError:
        return
    check(workload)


def check(workload: Workload) -> None:
    columns = workload.table()
    assert columns.rows
    assert (columns.arrival_ns >= 0).all()
    assert (np.diff(columns.arrival_ns) >= 0).all()
    assert (columns.prompt_tokens >= 1).all()
    assert (columns.output_tokens >= 1).all()
    assert (columns.parent < np.arange(columns.rows)).all()
    assert (columns.pause_ns >= 0).all()
    assert (columns.block_ids >= 0).all()
    assert columns.block_offsets[0] == 0
    assert columns.block_offsets[-1] == len(columns.block_ids)
    assert (columns.tenant < len(workload.header.tenants)).all()
    assert (columns.boundary < len(workload.header.boundaries)).all()
