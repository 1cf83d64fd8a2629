"""torch's allocator: its segments by pool; and where there is none."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from vramledger.errors import InputError, SourceError
from vramledger.ledger import Phase
from vramledger.telemetry.probes.torch_allocator import (
    TorchAllocator,
    TorchProbe,
    allocator_samples,
    pools_of,
)


def segment(pool: tuple[int, int] | None, *blocks: tuple[int, str]) -> dict[str, Any]:
    """A segment of torch.cuda.memory_snapshot() with the fields that torch 2 gives it."""
    total = sum(size for size, _ in blocks)
    allocated = sum(size for size, state in blocks if state == "active_allocated")
    active = sum(size for size, state in blocks if state != "inactive")
    found: dict[str, Any] = {
        "device": 0,
        "address": 1 << 40,
        "total_size": total,
        "allocated_size": allocated,
        "active_size": active,
        "requested_size": allocated,
        "stream": 0,
        "segment_type": "large",
        "blocks": [
            {"size": size, "requested_size": size, "address": 0, "state": state} for size, state in blocks
        ],
    }
    return found if pool is None else found | {"segment_pool_id": pool}


SEGMENTS = [
    segment((0, 0), (101, "active_allocated"), (53, "inactive"), (31, "active_pending_free")),
    segment((0, 1), (17, "active_allocated"), (13, "inactive")),
    segment((0, 0), (211, "inactive")),
    segment((0, 1), (7, "inactive")),
]


def test_segments_add_up_by_pool() -> None:
    general, graphs = pools_of(SEGMENTS)
    assert (general.pool_id, general.is_private, general.segments) == ((0, 0), False, 2)
    assert (general.reserved_bytes, general.allocated_bytes, general.active_bytes) == (396, 101, 132)
    assert general.largest_free_block_bytes == 211
    assert graphs.is_private
    assert (graphs.reserved_bytes, graphs.allocated_bytes, graphs.largest_free_block_bytes) == (37, 17, 13)


def test_an_old_torch_tells_no_pools() -> None:
    (one,) = pools_of([segment(None, (5, "inactive"))])
    assert not one.is_private


@pytest.mark.parametrize(
    "wrong", [{}, {"total_size": "a"}, {"segment_pool_id": 3}, SEGMENTS[0] | {"blocks": [3]}]
)
def test_what_is_no_segment_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no segment"):
        pools_of([wrong])


def test_the_four_values_are_told_apart() -> None:
    found = TorchAllocator(
        device=0,
        allocated_bytes=118,
        reserved_bytes=433,
        active_bytes=149,
        inactive_split_bytes=66,
        peak_allocated_bytes=300,
        peak_reserved_bytes=433,
        device_free_bytes=1009,
        device_total_bytes=2003,
        pools=pools_of(SEGMENTS),
    )
    state = found.state(point="after load", phase=Phase.WARMUP)
    told = (state.allocated_bytes, state.reserved_bytes, state.pool_free_bytes, state.device_free_bytes)
    assert [size.expected for size in told if size is not None] == [118, 433, 433 - 149, 1009]
    assert state.largest_free_run_bytes is not None
    assert state.largest_free_run_bytes.expected == 211
    values = {(sample.name, sample.label): sample.value for sample in allocator_samples(found, 1.0)}
    assert values["torch_inactive_split_bytes", ""] == 66
    assert values["torch_pool_reserved_bytes", "pool 0,1"] == 37


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_the_reason_is_told() -> None:
    with pytest.raises(SourceError, match="no torch in this process"):
        TorchProbe()


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_without_an_accelerator_the_reason_is_told() -> None:
    import torch  # type: ignore[import-not-found]

    if torch.cuda.is_available():
        assert TorchProbe().read(1.0)
    else:
        with pytest.raises(SourceError, match="no accelerator"):
            TorchProbe()
