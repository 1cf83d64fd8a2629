"""Traces that come with the project, read: their counts are those that their publishers or READMEs state."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from vramledger.errors import InputError
from vramledger.workload.columnar.reading import read_workload
from vramledger.workload.columns import RequestColumns, Workload

TRACES = Path(__file__).parents[2] / "data" / "traces"
AZURE = TRACES / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv.gz"
MOONCAKE = TRACES / "mooncake-fast25" / "conversation_trace.first-300000ms.jsonl.gz"
AGENTIC = TRACES / "agentic-coding-claude-code" / "sessions.first-30-small.jsonl.gz"
MEASURED = TRACES / "vllm-measured-runs" / "RTX4090_Llama-3.1-8B" / "workload.jsonl.gz"


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def same(one: RequestColumns, other: RequestColumns) -> bool:
    return all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


def test_azure_has_the_totals_of_its_readme() -> None:
    workload = read_workload(AZURE)
    columns = workload.table()
    assert columns.rows == 19_366
    assert (int(columns.prompt_tokens.sum()), int(columns.output_tokens.sum())) == (22_361_870, 4_088_665)
    # 18:15:46.6805900 to 19:14:08.4025270, in ticks of 100 ns.
    assert columns.arrival_ns[0] == 0
    assert columns.arrival_ns[-1] == 3_501_721_937_000
    assert "azure" in workload.header.notes[0]


def test_mooncake_names_a_block_for_every_512_tokens_begun() -> None:
    workload = read_workload(MOONCAKE)
    columns = workload.table()
    assert workload.header.block_tokens == 512
    assert np.array_equal(np.diff(columns.block_offsets), -(-columns.prompt_tokens // 512))
    assert columns.arrival_ns.max() < 300 * 10**9


def test_a_measured_run_names_full_blocks_alone() -> None:
    columns = read_workload(MEASURED).table()
    assert columns.rows == 300
    assert (int(columns.prompt_tokens.sum()), int(columns.output_tokens.sum())) == (257_239, 195_753)
    assert len(columns.block_ids) == 15_942
    assert np.array_equal(np.diff(columns.block_offsets), columns.prompt_tokens // 16)
    assert columns.arrival_ns[0] == 46_926_808, "times since the start of the run stay"


def test_agents_conversations_share_no_blocks_and_follow_their_own_turns() -> None:
    workload = read_workload(AGENTIC, link_turns=False)
    columns = workload.table()
    offsets = columns.block_offsets.tolist()
    owners: dict[int, int] = {}
    for place, conversation in enumerate(columns.conversation.tolist()):
        for block in columns.block_ids[offsets[place] : offsets[place + 1]].tolist():
            assert owners.setdefault(block, conversation) == conversation
    followed = np.flatnonzero(columns.parent >= 0)
    assert len(followed) > columns.rows / 2
    assert (columns.parent[followed] < followed).all()
    assert np.array_equal(columns.conversation[columns.parent[followed]], columns.conversation[followed])
    assert (np.diff(columns.arrival_ns) >= 0).all()


def test_starts_of_conversations_are_the_seeds() -> None:
    assert same(read_workload(AGENTIC).table(), read_workload(AGENTIC).table())


@pytest.mark.parametrize("path", [AZURE, MOONCAKE, MEASURED, AGENTIC])
def test_a_workload_can_be_gone_through_again(path: Path) -> None:
    workload: Workload = read_workload(path)
    assert same(workload.table(), workload.table())


def test_columns_are_known_by_common_names_or_by_those_given(tmp_path: Path) -> None:
    plain = written(tmp_path, "arrival_ms,Input Tokens,completion-tokens,user\n0,10,5,a\n1500,20,6,b\n")
    columns = read_workload(plain).table()
    assert columns.arrival_ns.tolist() == [0, 1_500_000_000]
    assert columns.prompt_tokens.tolist() == [10, 20]
    assert columns.output_tokens.tolist() == [5, 6]
    assert read_workload(plain).header.tenants == ("", "a", "b")
    other = written(tmp_path, "when;ctx;gen\n0;10;5\n", "other.csv")
    named = read_workload(
        other, columns={"arrival": "when", "prompt_tokens": "ctx", "output_tokens": "gen"}, time_unit="s"
    )
    assert next(named.requests()).prompt_tokens == 10
    with pytest.raises(InputError, match=r"no column that is known as prompt_tokens.*'when', 'ctx', 'gen'"):
        read_workload(other)


def test_gzip_is_seen_by_content(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(gzip.compress(b"arrival_s,prompt,output\n0,1,1\n"))
    assert read_workload(path).table().rows == 1
    path.write_bytes(gzip.compress(b"arrival_s,prompt,output\n" + b"0,1,1\n" * 1000)[:-20])
    with pytest.raises(InputError, match="is cut"):
        read_workload(path)
