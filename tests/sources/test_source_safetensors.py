from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors_builder import data_bytes, header_object, write, write_raw

from vramledger.errors import HeaderError, VramledgerError
from vramledger.models.sources import safetensors
from vramledger.models.sources.header_table import HeaderRow, HeaderTable
from vramledger.models.sources.safetensors import (
    HeaderTableBuilder,
    checkpoint_files,
    iter_entries,
    read_table,
)


def table_of(header: dict[str, Any] | bytes, *, file_bytes: int | None = None) -> HeaderTable:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    builder = HeaderTableBuilder()
    builder.add("a.safetensors", "a.safetensors", text, file_bytes)
    return builder.build()


def refusal(header: dict[str, Any] | bytes, **sizes: int) -> HeaderError:
    with pytest.raises(HeaderError) as caught:
        table_of(header, **sizes)
    assert caught.value.facts["file"] == "a.safetensors"
    return caught.value


def entry(dtype: Any = "F32", shape: Any = (3,), offsets: Any = (0, 12)) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "shape": list(shape) if isinstance(shape, tuple) else shape,
        "data_offsets": list(offsets),
    }


def test_two_shards_become_rows_with_exact_sums(tmp_path: Path) -> None:
    first = write(
        tmp_path / "1.safetensors",
        {
            "model.embed.weight": ("BF16", [101, 7]),
            "model.layers.0.mlp.experts.0.w.weight": ("F8_E4M3", [13, 7]),
            "model.layers.0.mlp.experts.1.w.weight": ("F8_E4M3", [13, 7]),
            "model.layers.1.mlp.experts.0.w.weight": ("F8_E4M3", [13, 7]),
        },
        {"format": "pt"},
    )
    second = write(
        tmp_path / "2.safetensors",
        {
            "model.layers.5.mlp.experts.0.w.weight": ("F8_E4M3", [13, 7]),
            "model.layers.5.mlp.experts.0.w.scale": ("F32", [1, 7]),
        },
    )
    table = read_table([first, second])
    assert table.rows == (
        HeaderRow(template="model.embed.weight", dtype="BF16", shape=(101, 7), count=1, layers=(), tensor_bytes=1414),
        HeaderRow(
            template="model.layers.{}.mlp.experts.{}.w.scale",
            dtype="F32", shape=(1, 7), count=1, layers=(range(5, 6),), tensor_bytes=28,
        ),
        HeaderRow(
            template="model.layers.{}.mlp.experts.{}.w.weight",
            dtype="F8_E4M3", shape=(13, 7), count=4, layers=(range(2), range(5, 6)), tensor_bytes=91,
        ),
    )  # fmt: skip
    assert table.tensor_count == 6
    assert table.total_elements == 707 + 7 + 4 * 91
    assert table.total_bytes == table.data_bytes == 1414 + 28 + 364
    assert table.bytes_by_dtype() == {"BF16": 1414, "F8_E4M3": 364, "F32": 28}
    assert table.elements_by_dtype() == {"BF16": 707, "F8_E4M3": 364, "F32": 7}
    assert table.file_bytes == first.stat().st_size + second.stat().st_size
    assert table.files[0].metadata == (("format", "pt"),)
    assert table.notes == ()
    assert table.has("model.embed.weight") and not table.has("lm_head.weight")


def test_entries_of_one_file_keep_their_names_and_places(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"x.0": ("F32", [2, 3]), "scalar": ("BF16", [])})
    assert [(e.name, e.dtype, e.shape, e.begin, e.end) for e in iter_entries(path)] == [
        ("x.0", "F32", (2, 3), 0, 24),
        ("scalar", "BF16", (), 24, 26),
    ]


@pytest.mark.parametrize(
    ("dtype", "elements", "size"), [("F4", 34, 17), ("F6_E2M3", 44, 33), ("F8_E8M0", 31, 31)]
)
def test_types_below_a_byte_are_packed(dtype: str, elements: int, size: int) -> None:
    assert table_of({"a": entry(dtype, (elements,), (0, size))}).total_bytes == size


def test_half_a_byte_is_refused() -> None:
    assert "whole bytes" in refusal({"a": entry("F4", (3,), (0, 1))}).message


@pytest.mark.parametrize("length", [2**63, 100 * 10**9, 100_000_001])
def test_an_absurd_header_length_is_refused_without_reading(length: int) -> None:
    asked: list[tuple[int, int]] = []

    def read_at(offset: int, size: int) -> bytes:
        asked.append((offset, size))
        return struct.pack("<Q", length)

    with pytest.raises(HeaderError, match=str(length)):
        safetensors.read_header(read_at, None, "a.safetensors")
    assert asked == [(0, 8)]


def test_truncated_files(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.safetensors", {"a": ("F32", [3])}).read_bytes()
    for size in (0, 7, 8, 20, len(whole) - 1):
        path = tmp_path / "cut.safetensors"
        path.write_bytes(whole[:size])
        with pytest.raises(HeaderError, match=r"cut short|too few"):
            read_table([path])


def test_a_git_lfs_pointer_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n")
    with pytest.raises(HeaderError, match="Git LFS pointer"):
        read_table([path])


@pytest.mark.parametrize(("tensor", "said"), [
    (entry("F128"), "'F128'"), (entry(7), "dtype 7"), (entry(shape=(-3,), offsets=(0, -12)), "shape [-3]"),
    (entry(shape=(2**62, 2**62)), "shape"), (entry(shape=(2**40, 2**40)), "larger than any file"),
    (entry(shape=(10**40,)), "shape"), (entry(shape="3"), "shape '3'"), (entry(shape=(True,)), "shape"),
    (entry(shape=(1,) * 65), "65 dimensions"), (entry(offsets=(0, 13)), "has 12 bytes"),
    (entry(offsets=(12, 0)), "has 12 bytes"), (entry(offsets=(-12, 0)), "begins at byte -12"),
    (entry(offsets=(0, 1, 2)), "data_offsets"), (entry(offsets=(0.5, 12.5)), "data_offsets"),
    ({"dtype": "F32", "shape": [3]}, "data_offsets None"), ("F32", "must be an object"), (None, "must be an object"),
])  # fmt: skip
def test_an_entry_that_cannot_be_names_its_tensor(tensor: Any, said: str) -> None:
    error = refusal({"model.a": tensor})
    assert error.facts["key"] == "model.a"
    assert said in error.message
    assert len(error.message) < 400


def test_offsets_past_the_end_are_refused() -> None:
    header = {"a": entry()}
    size = 8 + len(json.dumps(header))
    assert "cut short" in refusal(header, file_bytes=size + 11).message
    assert table_of(header, file_bytes=size + 12).notes == ()
    assert "5 bytes after" in table_of(header, file_bytes=size + 17).notes[0]


def test_overlap_is_refused_and_a_gap_noted() -> None:
    assert "inside 'a'" in refusal({"a": entry(), "b": entry(offsets=(8, 20))}).message
    assert refusal({"b": entry(offsets=(8, 20)), "a": entry()}).facts["key"] == "b"
    table = table_of({"b": entry(offsets=(20, 32)), "a": entry(), "none": entry(shape=(0,), offsets=(4, 4))})
    assert table.notes == ("a.safetensors has 8 bytes between tensors that belong to none",)
    assert (table.total_bytes, table.data_bytes) == (24, 32)


ONE = '"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}'


@pytest.mark.parametrize(("text", "key"), [
    (f"{{{ONE}, {ONE}}}", "a"),
    ("{{{}, {}}}".format(ONE, ONE.replace('"a"', '"\\u0061"')), "a"),
    ('{"a": {"dtype": "F32", "dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}', "dtype"),
    ('{"a": {"dtype": "F32", "shape": [9], "shape": [3], "data_offsets": [0, 12]}}', "shape"),
    (f'{{"__metadata__": {{}}, "__metadata__": {{}}, {ONE}}}', "__metadata__"),
    (f'{{"a": {{}}, {ONE}}}', "a"),
    (f'{{"a": {{"note": 1}}, {ONE}}}', "a"),
    (f'{{"__metadata__": {{}}, "a": {{}}, {ONE}}}', "a"),
])  # fmt: skip
def test_a_key_that_is_there_twice_is_named(text: str, key: str) -> None:
    assert refusal(text.encode()).facts["key"] == key


def test_duplicate_metadata_keys_are_refused() -> None:
    with pytest.raises(HeaderError, match="twice"):
        table_of(b'{"__metadata__": {"x": "1", "x": "2"}, %s}' % ONE.encode())


@pytest.mark.parametrize("metadata", [
    {"dtype": "x"}, {"shape": "x", "data_offsets": "y"}, {"text": 'a "quoted" part'}, {},
])  # fmt: skip
def test_metadata_may_hold_any_text(metadata: dict[str, str]) -> None:
    header = header_object({"dtype": ("F32", [2]), "shape": ("F32", [3])}, metadata)
    table = table_of(header)
    assert (table.tensor_count, table.total_bytes) == (2, 20)
    assert dict(table.files[0].metadata) == metadata


def test_metadata_of_another_kind_is_refused() -> None:
    wrong: tuple[Any, ...] = ({"a": 1}, [], "x")
    for metadata in wrong:
        assert "__metadata__" in refusal({"__metadata__": metadata, "a": entry()}).message


@pytest.mark.parametrize("text", [
    b"", b"[]", b"null", b"{", b'{"a": ' + b"[" * 100_000, b'{"a": ' + b'{"b":' * 5000,
    b'{"a\xff": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}', b"{}\xff", b'{"\\ud800": 1}',
])  # fmt: skip
def test_text_that_is_no_header(text: bytes) -> None:
    assert isinstance(refusal(text), HeaderError)


def test_unknown_fields_are_ignored_as_the_crate_does() -> None:
    assert table_of({"a": entry() | {"note": [[[]]]}}).total_bytes == 12


def test_an_empty_header_is_an_empty_table() -> None:
    assert table_of({}).rows == ()


def test_many_tensors_become_few_rows_and_take_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 M names a second only holds while no header of the usual kind is read twice or kept."""

    def slow(*_: object) -> None:
        raise AssertionError("an ordinary header took the exact way")

    monkeypatch.setattr(safetensors, "_decode_exactly", slow)
    builder = HeaderTableBuilder()
    for layer in range(20):
        names = {
            f"model.layers.{layer}.mlp.experts.{e}.{p}.weight": ("BF16", [5, 3])
            for e in range(256)
            for p in "gud"
        }
        builder.add(f"{layer}", f"{layer}", json.dumps(header_object(names, {"format": "pt"})).encode(), None)
    table = builder.build()
    assert [(row.count, row.layers) for row in table.rows] == [(20 * 256, (range(20),))] * 3
    assert table.tensor_count == 20 * 256 * 3


def test_a_name_in_two_files_is_noted(tmp_path: Path) -> None:
    first = write(
        tmp_path / "1.safetensors", {"head": ("F32", [2]), "l.0.w": ("F32", [2]), "l.1.w": ("F32", [3])}
    )
    second = write(
        tmp_path / "2.safetensors", {"head": ("BF16", [2]), "l.1.w": ("F32", [3]), "other": ("F32", [1])}
    )
    assert read_table([first, second]).notes == (
        "head is stored more than once (2 tensors for 1 name(s))",
        "l.{}.w is stored more than once (3 tensors for 2 name(s))",
    )


def test_the_files_of_a_checkpoint_without_an_index() -> None:
    names = [
        "model-2.safetensors",
        "model-1.safetensors",
        "consolidated.00.safetensors",
        "adapter_model.safetensors",
    ]
    assert checkpoint_files([*names, "x.bin"]) == ["model-1.safetensors", "model-2.safetensors"]
    assert checkpoint_files(["consolidated.safetensors"]) == ["consolidated.safetensors"]


VALID = json.dumps(
    header_object({"m.0.a": ("BF16", [3, 5]), "m.1.a": ("BF16", [3, 5])}, {"format": "pt"})
).encode()


@given(st.integers(0, len(VALID) - 1), st.binary(max_size=6), st.integers(0, 12))
@settings(deadline=2000, max_examples=300)
def test_a_mutated_header_is_read_or_refused(at: int, inserted: bytes, removed: int) -> None:
    try:
        table = table_of(VALID[:at] + inserted + VALID[at + removed :], file_bytes=10**6)
    except VramledgerError:
        return
    assert table.total_bytes == sum(row.count * row.tensor_bytes for row in table.rows) <= 10**6


VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["F32", "BF16"]) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=4) | st.just("__metadata__"), VALUES, max_size=4))
@settings(deadline=2000)
def test_any_json_is_read_or_refused(header: dict[str, Any]) -> None:
    try:
        table_of(header)
    except VramledgerError as error:
        error.message.encode()


@given(data=st.binary(max_size=64))
@settings(deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "r.safetensors"
    path.write_bytes(data)
    try:
        read_table([path])
    except VramledgerError:
        return
    assert data[8:9] == b"{"


def test_the_safetensors_library_agrees(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    shapes = {"a.0.w": ("BF16", [3, 5]), "a.1.w": ("F32", [2]), "b": ("F8_E4M3", [11])}
    blob = b"".join(
        [
            struct.pack("<Q", len(json.dumps(header_object(shapes)))),
            json.dumps(header_object(shapes)).encode(),
        ]
    )
    blob += bytes(data_bytes(header_object(shapes)))
    theirs = dict(library.deserialize(blob))
    path = tmp_path / "a.safetensors"
    path.write_bytes(blob)
    ours = {e.name: (list(e.shape), e.end - e.begin) for e in iter_entries(path)}
    assert ours == {name: (info["shape"], len(info["data"])) for name, info in theirs.items()}


def test_a_header_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.safetensors", b'{"a": 1}', 100, length=50)
    with pytest.raises(HeaderError):
        read_table([path])
