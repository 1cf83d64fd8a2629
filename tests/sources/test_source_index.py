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


LONG_MAP = {f"layers.{i}.{part}": f"{i % 3}.safetensors" for i in range(40) for part in ("w", "scale, \\n")}


@pytest.mark.parametrize("piece_bytes", [100, 151, 1000, 4000])
@pytest.mark.parametrize("metadata_first", [True, False])
def test_pieces_and_the_whole_say_the_same(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, metadata_first: bool
) -> None:
    names = {name.replace("\\n", "n"): shard for name, shard in LONG_MAP.items()}
    pairs = [("metadata", {"total_size": 7}), ("weight_map", names)]
    content = dict(pairs if metadata_first else pairs[::-1])
    for text in (
        json.dumps(content),
        json.dumps(content, indent=2),
        json.dumps(content, separators=(",", ":")),
    ):
        whole = parse_index(text.encode(), "i.json")
        with monkeypatch.context() as patch:
            patch.setattr(index_file, "PIECE_BYTES", piece_bytes)
            patch.setattr(index_file, "_read_exactly", lambda *_, **__: pytest.fail("took the exact way"))
            assert parse_index(text.encode(), "i.json") == whole
    assert (whole.tensor_count, whole.total_size_bytes, len(whole.shards)) == (80, 7, 3)


@pytest.mark.parametrize("piece_bytes", [100, 150, 4000])
def test_a_name_in_two_pieces_is_refused(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(index_file, "PIECE_BYTES", piece_bytes)
    text = json.dumps({"weight_map": LONG_MAP})
    again = text.replace('"layers.39.w"', '"layers.0.w"')
    assert refusal(again).facts["key"] == "layers.0.w"
    assert parse_index(text.encode(), "i.json").tensor_count == 80


def test_names_are_left_out_where_nobody_asks(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": MAP}))
    info = read_index(path, names=False)
    assert (info.tensor_count, info.rows, info.shards) == (3, (), ("a.safetensors", "b.safetensors"))
    path.write_text(json.dumps({"weight_map": MAP}).replace("embed", "emb\\u0065d"))
    assert read_index(path, names=False) == info


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
def test_a_mutated_index_is_read_or_refused_as_its_whole_is(at: int, inserted: bytes, removed: int) -> None:
    data = VALID[:at] + inserted + VALID[at + removed :]
    outcomes: list[IndexInfo | str] = []
    for piece_bytes in (50, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index_file, "PIECE_BYTES", piece_bytes)
            try:
                outcomes.append(parse_index(data, "i.json"))
            except VramledgerError as error:
                outcomes.append(error.message)
    assert outcomes[0] == outcomes[1]
    if isinstance(outcomes[0], IndexInfo):
        assert sum(row.count for row in outcomes[0].rows) == outcomes[0].tensor_count
