"""Allocator snapshots: what they add up to, what would be served, and what is refused."""

from __future__ import annotations

import io
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.caching_allocator import CachingAllocator
from vramledger.engines.allocator import segment_bytes
from vramledger.errors import InputError, SourceError
from vramledger.telemetry.snapshots import (
    BlockState,
    allocator_states,
    device_states,
    read_snapshot,
    snapshot_of,
    would_serve,
)
from vramledger.telemetry.snapshots.plain_pickle import NotPlain, load_plain
from vramledger.units import MIB

SIZES = st.integers(1, 64 * MIB)


def states_of(allocator: CachingAllocator) -> Any:
    return device_states(snapshot_of(allocator.snapshot(), where="s.pickle"))


@given(st.lists(st.tuples(SIZES, st.booleans(), st.booleans()), max_size=40))
def test_no_byte_is_lost_or_counted_twice(requests: list[tuple[int, bool, bool]]) -> None:
    allocator = CachingAllocator()
    held: list[tuple[int, int]] = []
    for size, drop, private in requests:
        held.append((allocator.malloc(size, pool=(0, 3) if private else (0, 0)), size))
        if drop:
            allocator.free(held.pop(len(held) // 2)[0])
    for device in states_of(allocator):
        for pool in device.pools:
            assert pool.reserved_bytes == pool.allocated_bytes + pool.pending_bytes + pool.free_bytes
            assert pool.free_bytes == pool.releasable_bytes + pool.pinned_bytes
            assert 0 <= pool.largest_free_run_bytes <= pool.free_bytes
            assert 0.0 <= pool.fragmentation < 1.0
        assert device.total("reserved_bytes") == sum(item["total_size"] for item in allocator.segments)
        asked = sum(size for _, size in held)
        assert device.total("allocated_bytes") - device.total("rounding_bytes") == asked


@given(st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=30), SIZES, st.integers(0, 200 * MIB))
def test_a_forecast_is_what_the_allocator_then_does(
    requests: list[tuple[int, bool]], request_bytes: int, device_free: int
) -> None:
    allocator = CachingAllocator()
    for size, drop in requests:
        address = allocator.malloc(size)
        if drop:
            allocator.free(address)
    snapshot = snapshot_of(allocator.snapshot(), where="s.pickle")
    said = would_serve(snapshot, 0, request_bytes, device_free_bytes=device_free)
    reserved = sum(item["total_size"] for item in allocator.segments)
    allocator.malloc(request_bytes)
    grown = sum(item["total_size"] for item in allocator.segments) - reserved
    assert (said.how == "free block") == (grown == 0)
    if grown:
        assert (said.how == "new segment") == (grown <= device_free)


def test_free_memory_in_pieces_is_called_fragmentation() -> None:
    allocator = CachingAllocator()
    addresses = [allocator.malloc(30 * MIB) for _ in range(8)]
    for address in addresses:
        allocator.free(address)
    # A small piece is left in each of the eight segments.
    for _ in addresses:
        allocator.malloc(2 * MIB, frame="cache.py")
    snapshot = snapshot_of(allocator.snapshot(), where="s.pickle")
    (device,) = device_states(snapshot)
    (pool,) = device.pools
    assert pool.free_bytes >= 200 * MIB
    fit = would_serve(snapshot, 0, 100 * MIB, device_free_bytes=10 * MIB)
    assert fit.how == "after emptying the cache"
    for segment in allocator.segments:
        if all(block["state"] == "inactive" for block in segment["blocks"]):
            segment["blocks"] = [
                {"address": segment["address"], "size": 2 * MIB, "requested_size": 2 * MIB, "state": "active_allocated",
                 "frames": [{"filename": "/srv/app/cache.py", "line": 3, "name": "keep"}]},
                {"address": segment["address"] + 2 * MIB, "size": segment["total_size"] - 2 * MIB,
                 "requested_size": 0, "state": "inactive"},
            ]  # fmt: skip
    snapshot = snapshot_of(allocator.snapshot(), where="s.pickle")
    fit = would_serve(snapshot, 0, 100 * MIB, device_free_bytes=10 * MIB)
    assert fit.how == "only with expandable segments"
    (device,) = device_states(snapshot)
    assert device.pools[0].releasable_bytes == 0
    assert device.pins[0].frame.endswith("keep")
    assert would_serve(snapshot, 0, 1024 * MIB, device_free_bytes=0).how == "not at all"
    assert would_serve(snapshot, 0, 100 * MIB, device_free_bytes=None).how is None


def test_what_graphs_hold_serves_nobody_else() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(50 * MIB, pool=(0, 1)))
    snapshot = snapshot_of(allocator.snapshot(), where="s.pickle")
    (device,) = device_states(snapshot)
    assert device.private_bytes == 50 * MIB
    assert would_serve(snapshot, 0, 40 * MIB, device_free_bytes=0).how == "not at all"


def test_a_failed_request_gives_the_drivers_free_memory_and_the_four_values_stay_apart() -> None:
    allocator = CachingAllocator()
    allocator.malloc(5 * MIB)
    allocator.fail(512 * MIB, device_free=7 * MIB)
    snapshot = snapshot_of(allocator.snapshot(), where="s.pickle")
    (state,) = allocator_states(snapshot, where="s.pickle")
    assert state.allocated_bytes is not None and state.allocated_bytes.expected == 5 * MIB
    assert state.reserved_bytes is not None and state.reserved_bytes.expected == segment_bytes(5 * MIB)
    assert state.pool_free_bytes is not None and state.pool_free_bytes.expected == 15 * MIB
    assert state.device_free_bytes is not None and state.device_free_bytes.expected == 7 * MIB
    assert state.at_s == 5.0
    assert snapshot.failures[0].size_bytes == 512 * MIB


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_files_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(3 * MIB))
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot(), protocol=protocol))
    assert read_snapshot(path) == snapshot_of(allocator.snapshot(), where="")


def test_files_of_2022_are_read() -> None:
    old = [
        {
            "device": 1, "address": 4096, "total_size": 2 * MIB, "stream": 0, "segment_type": "small",
            "blocks": [
                {"size": MIB, "state": "active_allocated", "history": [{"addr": 4096, "real_size": 1000, "frames": []}]},
                {"size": MIB, "state": "active_awaiting_free"},
            ],
        }
    ]  # fmt: skip
    (segment,) = snapshot_of(old, where="old.pickle").segments
    assert [block.address for block in segment.blocks] == [4096, 4096 + MIB]
    assert [block.state for block in segment.blocks] == [BlockState.ALLOCATED, BlockState.PENDING]
    assert segment.blocks[0].requested_bytes == 1000


class Opener:
    def __reduce__(self) -> Any:
        return (os.system, ("touch ran",))


def nested(depth: int) -> bytes:
    return b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"segments": [Opener()]}, protocol=2),
        pickle.dumps({"segments": [Opener()]}, protocol=0),
        pickle.dumps(Opener(), protocol=5),
        pickle.dumps({"segments": {1, 2}}),
        pickle.dumps(io.BytesIO(b"x")),
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"\x80\x04(\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.",
        b"\x80\x02P1\n.",
        b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x82\x01.",
    ],
)
def test_a_file_that_would_build_anything_else_is_refused(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.pickle").write_bytes(data)
    with pytest.raises(NotPlain, match="is refused"):
        read_snapshot("evil.pickle")
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"", b".", b"junk", b"\x80\x04", b"\x80\x63}.", b"\x80\x02]r\xff\xff\xff\xff", b"\x8e" + b"\xff" * 8,
        b"\x80\x04h\x05.", b"\x80\x04t.", b"\x80\x04\x8a\xff", b"\x80\x04K.", nested(100_000), b"I" + b"9" * 9999 + b"\n.",
    ],
)  # fmt: skip
def test_what_is_no_snapshot_is_an_input_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"s\.pickle"):
        read_snapshot(path)


@given(st.binary(max_size=200))
def test_random_bytes_never_do_anything_else(data: bytes) -> None:
    try:
        value = load_plain(io.BytesIO(data), where="x", size_bytes=len(data))
    except InputError:
        return
    with suppress(InputError):
        snapshot_of(value, where="x")


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_changed_byte_is_an_input_error_or_still_adds_up(position: int, value: int) -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(3 * MIB))
    allocator.malloc(MIB)
    data = bytearray(pickle.dumps(allocator.snapshot()))
    data[position % len(data)] = value
    try:
        snapshot = snapshot_of(load_plain(io.BytesIO(data), where="x", size_bytes=len(data)), where="x")
    except InputError:
        return
    for device in device_states(snapshot):
        for pool in device.pools:
            assert pool.reserved_bytes == pool.allocated_bytes + pool.pending_bytes + pool.free_bytes


def test_a_block_table_that_repeats_itself_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramledger.telemetry.snapshots.reading.MOST_BLOCKS", 1000)
    block = {"size": 0, "state": "inactive"}
    segment = {"total_size": 0, "blocks": [block] * 100}
    with pytest.raises(InputError, match="more than"):
        snapshot_of([segment] * 100, where="x")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"total_size": -1}, "total_size"),
        ({"total_size": "2"}, "total_size"),
        ({"total_size": True}, "total_size"),
        ({"blocks": 5}, "blocks"),
        ({"blocks": [{"size": 1, "state": None}], "total_size": 1}, "state"),
        ({"segment_pool_id": (1,)}, "segment_pool_id"),
        ({"blocks": []}, "take 0 bytes"),
    ],
)
def test_the_place_of_a_wrong_value_is_told(change: dict[str, Any], place: str) -> None:
    segment = {"total_size": 4, "blocks": [{"size": 4, "state": "inactive"}], **change}
    with pytest.raises(InputError, match=place):
        snapshot_of([segment], where="x")


def test_a_missing_file_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read_snapshot(tmp_path / "none")
    with pytest.raises((SourceError, InputError)):
        read_snapshot(tmp_path)
