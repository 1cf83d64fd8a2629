from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramledger.errors import ConfigError, VramledgerError
from vramledger.models.sources import index_file
from vramledger.models.sources.index_file import IndexInfo, IndexRow, parse_index, read_index


def index(value: Any) -> IndexInfo:
    return parse_index(json.dumps(value).encode(), "i.json")


def refusal(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_index(text if isinstance(text, bytes) else text.encode(), "i.json")
    return caught.value


MAP = {"embed.weight": "b.safetensors", "layers.0.w": "a.safetensors", "layers.2.w": "a.safetensors"}


def test_names_become_rows_and_shards_a_set(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1234567}, "weight_map": MAP}))
    info = read_index(path)
    assert info == IndexInfo(
        file=str(path),
        shards=("a.safetensors", "b.safetensors"),
        tensor_count=3,
        rows=(
            IndexRow(template="embed.weight", count=1, layers=()),
            IndexRow(template="layers.{}.w", count=2, layers=(range(1), range(2, 3))),
        ),
        total_size_bytes=1234567,
    )
    assert info.has("embed.weight") and not info.has("lm_head.weight")


def test_a_usual_index_takes_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "parse_json_object", lambda data, where: json.loads(data))
    text = json.dumps({"metadata": {"total_size": 5}, "weight_map": MAP}).encode()
    assert parse_index(text, "i.json").tensor_count == 3


@pytest.mark.parametrize("total", [None, "5", -1, 0, 1.5, 2**60, True, [5]])
def test_a_total_size_that_is_none_is_noted_and_not_used(total: Any) -> None:
    info = index({"metadata": {"total_size": total}, "weight_map": MAP})
    assert info.total_size_bytes is None
    assert "total_size" in info.notes[0]


def test_total_size_may_be_a_float_of_a_whole_number_or_missing() -> None:
    assert index({"metadata": {"total_size": 6e9}, "weight_map": MAP}).total_size_bytes == 6_000_000_000
    nothing: tuple[Any, ...] = ({}, None)
    for metadata in nothing:
        assert index({"metadata": metadata, "weight_map": MAP}).total_size_bytes is None
    assert index({"weight_map": MAP}).total_size_bytes is None


@pytest.mark.parametrize("shard", [
    "../a.safetensors", "/etc/passwd", "a/b.safetensors", "a\\b.safetensors", "..", ".", ".hidden", "", "a\x00",
    "a\n", "x" * 300, "\x1b[31m",
])  # fmt: skip
def test_a_shard_outside_the_folder_is_refused(shard: str) -> None:
    error = refusal(json.dumps({"weight_map": {"a": shard}}))
    assert error.facts["value"] == shard
    assert error.message.isprintable()


@pytest.mark.parametrize("text", [
    "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": null}',
    '{"weight_map": {"a": "x"}, "metadata": 5}', '{"weight_map": {"a": "x"}, "metadata": [1]}',
    '{"weight_map": {"a": "x", "a": "x"}}', '{"weight_map": {"a": "x", "\\u0061": "x"}}',
    '{"weight_map": {"a": "x"}, "weight_map": {"a": "x"}}', '{"weight_map": {}, "weight_map": {"metadata": "x"}}',
    '{"weight_map": {"a": "x"}, "metadata": {"b": 1, "b": 1}}',
    '{"weight_map": {"a": "x"}, "extra": ' + "[" * 100_000 + "}",
])  # fmt: skip
def test_what_is_no_index_is_refused(text: str) -> None:
    assert refusal(text).facts["file"] == "i.json"


VALID = json.dumps({"metadata": {"total_size": 5}, "weight_map": MAP}).encode()


@given(st.integers(0, len(VALID) - 1), st.binary(max_size=6), st.integers(0, 12))
@settings(deadline=2000, max_examples=300)
def test_a_mutated_index_is_read_or_refused(at: int, inserted: bytes, removed: int) -> None:
    try:
        info = parse_index(VALID[:at] + inserted + VALID[at + removed :], "i.json")
    except VramledgerError:
        return
    assert sum(row.count for row in info.rows) == info.tensor_count
