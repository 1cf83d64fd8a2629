from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from gguf_builder import GgufWriter, llama
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramledger.errors import HeaderError, SourceError, UnknownFormat, VramledgerError
from vramledger.models.sources.gguf import GgufInfo, GgufTensor, read_gguf
from vramledger.models.sources.gguf_reader import Array, Text

SHARED = Path(os.environ.get("VRAMLEDGER_SHARED", Path(__file__).resolve().parents[3] / "shared"))
PUBLISHED = sorted((SHARED / "models" / "gguf").glob("*.json"))


def refusal(path: Path) -> HeaderError:
    with pytest.raises(HeaderError) as caught:
        read_gguf(path)
    assert caught.value.message.startswith(str(path))
    return caught.value


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type_in_both_byte_orders(tmp_path: Path, order: str, version: int) -> None:
    keys: list[tuple[str, str, Any]] = [
        ("general.architecture", "str", "llama"),
        ("a", "u8", 251), ("b", "i8", -3), ("c", "u16", 65521), ("d", "i16", -30011), ("e", "u32", 4294967291),
        ("f", "i32", -2147483647), ("g", "f32", 0.5), ("h", "bool", 1), ("i", "u64", 2**63), ("j", "i64", -(2**62)),
        ("k", "f64", 0.1), ("l", "arr", ("u32", [3, 5, 7])), ("m", "arr", ("str", ["x", "yz"])),
        ("n", "arr", ("arr", [("i8", [1, -1]), ("str", ["q"])])), ("o", "arr", ("bool", [1, 0])),
    ]  # fmt: skip
    writer = GgufWriter(keys=keys, order=order, version=version, tensors=[("t.weight", [64, 3], "Q8_0")])
    info = read_gguf(writer.write(tmp_path / "a.gguf"))
    assert (info.version, info.big_endian, info.architecture) == (version, order == ">", "llama")
    assert dict(info.metadata) == {
        "general.architecture": "llama",
        "a": 251, "b": -3, "c": 65521, "d": -30011, "e": 4294967291, "f": -2147483647, "g": 0.5, "h": True,
        "i": 2**63, "j": -(2**62), "k": 0.1, "l": (3, 5, 7), "m": ("x", "yz"), "n": ((1, -1), ("q",)),
        "o": (True, False),
    }  # fmt: skip
    assert info.tensors == (
        GgufTensor(name="t.weight", dims=(64, 3), type="Q8_0", tensor_bytes=204, offset=0),
    )


def test_long_arrays_and_texts_are_counted_and_not_kept(tmp_path: Path) -> None:
    keys: list[tuple[str, str, Any]] = [
        ("tokens", "arr", ("str", [f"token-{n}" * (n % 5) for n in range(100_003)])),
        ("scores", "arr", ("f32", [0.25] * 5003)),
        ("template", "str", "x" * 70_001),
        ("long tokens", "arr", ("str", ["y" * 400_000] * 67)),
        ("nested", "arr", ("arr", [("u8", [1])] * 71)),
        ("last", "u32", 7),
    ]
    info = read_gguf(GgufWriter(keys=keys).write(tmp_path / "a.gguf"))
    assert dict(info.metadata) == {
        "tokens": Array(item_type="string", length=100_003),
        "scores": Array(item_type="float32", length=5003),
        "template": Text(length_bytes=70_001),
        "long tokens": Array(item_type="string", length=67),
        "nested": Array(item_type="array", length=71),
        "last": 7,
    }


def test_sums_and_table(tmp_path: Path) -> None:
    writer = llama(layers=3)
    path = writer.write(tmp_path / "a.gguf")
    info = read_gguf(path)
    assert info.total_bytes == sum(writer.sizes()) == sum(info.bytes_by_type().values())
    assert info.total_elements == 2 * 64 * 160 + 64 + 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64)
    assert info.file_bytes == path.stat().st_size
    table = info.table()
    assert (table.total_bytes, table.total_elements) == (info.total_bytes, info.total_elements)
    row = next(row for row in table.rows if row.template == "blk.{}.ffn_down.weight")
    assert (row.dtype, row.shape, row.count, row.layers) == ("Q4_0", (64, 96), 3, (range(3),))
    assert table.files[0].header_bytes == len(writer.header())


def test_alignment_is_the_files_own(tmp_path: Path) -> None:
    writer = llama(alignment=256)
    writer.keys.append(("general.alignment", "u32", 256))
    assert read_gguf(writer.write(tmp_path / "a.gguf")).alignment == 256
    for bad in (0, 3, 12, 2**31):
        writer.keys[-1] = ("general.alignment", "u32", bad)
        assert refusal(writer.write(tmp_path / "b.gguf")).facts["key"] == "general.alignment"
    writer.keys[-1] = ("general.alignment", "str", "32")
    refusal(writer.write(tmp_path / "b.gguf"))


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    writer = llama(layers=1)
    raw = writer.write(tmp_path / "a.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for size in (*range(0, len(writer.header()), 7), len(raw) - 1):
        path.write_bytes(raw[:size])
        assert (
            "cut short" in refusal(path).message
            or "more than it can hold" in refusal(path).message
            or size < 4
        )


@pytest.mark.parametrize("count", [2**64 - 1, 2**32, 200_001, 10_000])
def test_lying_counts_are_refused(tmp_path: Path, count: int) -> None:
    assert refusal(GgufWriter(tensor_count=count).write(tmp_path / "t.gguf")).facts["value"] == count
    assert refusal(GgufWriter(key_count=count).write(tmp_path / "k.gguf")).facts["value"] == count


def test_lying_lengths_are_refused(tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    key = struct.pack("<Q", 1) + b"a"
    for tail in (
        struct.pack("<Q", 2**63),
        struct.pack("<Q", 65_536) + bytes(65_536),
        key + struct.pack("<IQ", 8, 2**40),
        key + struct.pack("<IIQ", 9, 8, 2**62),
        key + struct.pack("<IIQ", 9, 0, 2**62),
        key + struct.pack("<IIQ", 9, 12, 2**61),
        key + struct.pack("<IIQ", 9, 99, 1) + bytes(64),
        key + struct.pack("<I", 13) + bytes(64),
        key + struct.pack("<IB", 7, 2),
        key + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 6 + bytes(99),
        struct.pack("<Q", 1) + b"\xff" + bytes(64),
    ):
        path = tmp_path / "a.gguf"
        path.write_bytes(head + tail + bytes(32))
        refusal(path)


def test_a_header_of_empty_texts_takes_bounded_steps(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a")
        file.write(struct.pack("<IIQ", 9, 8, 100_000_000))
        file.truncate(900_000_000)
    assert "100000000 items" in refusal(path).message


@pytest.mark.parametrize("version", [0, 1, 4, 65537])
def test_other_versions_are_named(tmp_path: Path, version: int) -> None:
    assert f"version {version}" in refusal(GgufWriter(version=version).write(tmp_path / "a.gguf")).message


def test_what_is_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGML" + bytes(64))
    assert "does not start with GGUF" in refusal(path).message
    with pytest.raises(SourceError):
        read_gguf(tmp_path / "absent.gguf")


def test_duplicates_are_refused(tmp_path: Path) -> None:
    writer = GgufWriter(keys=[("a", "u8", 1), ("a", "u8", 1)])
    assert refusal(writer.write(tmp_path / "a.gguf")).facts["key"] == "a"
    writer = GgufWriter(tensors=[("w", [4], "F32"), ("w", [4], "F32")])
    assert refusal(writer.write(tmp_path / "a.gguf")).facts["key"] == "w"


def patched(tmp_path: Path, old: bytes, new: bytes) -> Path:
    path = GgufWriter(tensors=[("first", [64], "Q8_0"), ("second", [64], "Q8_0")]).write(tmp_path / "a.gguf")
    raw = path.read_bytes()
    assert raw.count(old) == 1
    path.write_bytes(raw.replace(old, new))
    return path


def test_tensors_that_cannot_be_are_named(tmp_path: Path) -> None:
    second = b"second" + struct.pack("<IQIQ", 1, 64, 8, 96)
    for new, said in (
        (struct.pack("<IQIQ", 1, 64, 8, 64), "inside 'first'"),
        (struct.pack("<IQIQ", 1, 64, 8, 97), "not aligned"),
        (struct.pack("<IQIQ", 5, 64, 8, 96), "5 dimensions"),
        (struct.pack("<IQIQ", 1, 2**63, 8, 96), "larger than any file"),
    ):
        assert said in refusal(patched(tmp_path, second, b"second" + new)).message
    assert (
        "cut short"
        in refusal(patched(tmp_path, second, b"second" + struct.pack("<IQIQ", 1, 64, 8, 2**40))).message
    )
    for new in (struct.pack("<IQIQ", 1, 64, 99, 96), struct.pack("<IQIQ", 1, 33, 8, 96)):
        with pytest.raises(UnknownFormat, match="second"):
            read_gguf(patched(tmp_path, second, b"second" + new))


def split(tmp_path: Path, *, count: int = 2, stated: int | None = None) -> list[Path]:
    whole = llama(layers=3)
    half = len(whole.tensors) // 2
    out = []
    for number, tensors in enumerate((whole.tensors[:half], whole.tensors[half:]), start=1):
        keys = [("split.no", "u16", number - 1), ("split.count", "u16", count)]
        keys.append(("split.tensors.count", "i32", len(whole.tensors) if stated is None else stated))
        writer = GgufWriter(keys=(whole.keys if number == 1 else []) + keys, tensors=tensors)
        out.append(writer.write(tmp_path / f"m-{number:05d}-of-00002.gguf"))
    return out


def test_a_split_model_is_read_as_one(tmp_path: Path) -> None:
    first, second = split(tmp_path)
    info = read_gguf(second)
    assert info == read_gguf(first)
    assert info.architecture == "llama"
    assert info.total_bytes == sum(llama(layers=3).sizes())
    assert [file.name for file in info.files] == [first.name, second.name]
    assert info.file_bytes == first.stat().st_size + second.stat().st_size


def test_a_split_model_with_a_part_missing_or_lying(tmp_path: Path) -> None:
    for bad in ({"count": 3}, {"stated": 11}):
        with pytest.raises(HeaderError, match="split"):
            read_gguf(split(tmp_path, **bad)[0])
    first, second = split(tmp_path)
    second.unlink()
    with pytest.raises(SourceError, match="00002-of-00002"):
        read_gguf(first)
    alone = first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(HeaderError, match=r"split\.count"):
        read_gguf(alone)
    for name in ("m-00003-of-00002.gguf", "m-00000-of-00002.gguf", "m-00001-of-99999.gguf"):
        with pytest.raises(HeaderError, match="cannot be"):
            read_gguf(tmp_path / name)


RAW = llama(layers=1).header()


@given(at=st.integers(0, len(RAW) - 1), value=st.binary(min_size=1, max_size=8))
@settings(deadline=2000, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_header_is_read_or_refused(tmp_path: Path, at: int, value: bytes) -> None:
    path = tmp_path / "a.gguf"
    with path.open("wb") as file:
        file.write(RAW[:at] + value + RAW[at + len(value) :])
        file.truncate(10**6)
    try:
        info = read_gguf(path)
    except VramledgerError as error:
        error.message.encode()
        return
    assert info.total_bytes <= 10**6


@given(data=st.binary(max_size=200))
@settings(deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_after_the_magic_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + data)
    try:
        assert isinstance(read_gguf(path), GgufInfo)
    except VramledgerError as error:
        error.message.encode()


TYPES = {int: "u64", str: "str", bool: "bool", float: "f32"}


def rebuilt(facts: dict[str, Any], path: Path) -> Path:
    """The published file again: its facts, tokenizers of the right length, the data a hole."""
    keys: list[tuple[str, str, Any]] = []
    for name, value in facts["metadata"].items():
        if isinstance(value, dict):
            keys.append((name, "arr", ("str", ["t"] * value["array_length"])))
        elif not name.startswith("GGUF."):
            keys.append((name, TYPES[type(value)], value))
    tensors = sorted(facts["tensors"], key=lambda row: row[4])
    return GgufWriter(keys=keys, tensors=[(name, shape, kind) for name, shape, kind, *_ in tensors]).write(
        path
    )


@pytest.mark.skipif(not PUBLISHED, reason="the published headers' facts are not here")
@pytest.mark.parametrize("facts_path", PUBLISHED, ids=lambda path: path.stem)
def test_published_files(tmp_path: Path, facts_path: Path) -> None:
    facts = json.loads(facts_path.read_text())
    info = read_gguf(rebuilt(facts, tmp_path / "a.gguf"))
    assert info.total_bytes == facts["tensor_bytes"]
    assert info.total_elements == facts["params"]
    by_name = {tensor.name: tensor for tensor in info.tensors}
    for name, shape, kind, size, offset in facts["tensors"]:
        tensor = by_name[name]
        assert (list(tensor.dims), tensor.type, tensor.tensor_bytes) == (shape, kind, size)
        assert tensor.offset == offset - facts["data_offset"]
