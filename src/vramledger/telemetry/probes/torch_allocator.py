"""torch's caching allocator, asked from inside the process that uses it.

    from vramledger.telemetry.probes.torch_allocator import torch_allocator
    print(torch_allocator().reserved_bytes)

Sources: torch.cuda.memory_stats, memory_snapshot, mem_get_info (torch/cuda/memory.py; c10/cuda/CUDACachingAllocator.cpp).
ROCm's torch answers under the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from vramledger.errors import InputError, SourceError
from vramledger.evidence import measured
from vramledger.ledger import ByteRange, Phase
from vramledger.measurement import AllocatorState
from vramledger.observation import Sample

DEFAULT_POOL = (0, 0)


class TorchPool(Struct, frozen=True, kw_only=True):
    """One pool of the allocator. `pool_id` is (0, 0) for the general one; others belong to captured graphs or to who asked
    for one of his own."""

    pool_id: tuple[int, int]
    segments: int
    reserved_bytes: int
    allocated_bytes: int
    active_bytes: int
    largest_free_block_bytes: int

    @property
    def is_private(self) -> bool:
        return self.pool_id != DEFAULT_POOL


class TorchAllocator(Struct, frozen=True, kw_only=True):
    """The allocator of one device at one moment. `active_bytes` are held by tensors or by work on a stream that is not done;
    `inactive_split_bytes` are free parts of segments that are in part in use, and so cannot go back to the driver."""

    device: int
    allocated_bytes: int
    reserved_bytes: int
    active_bytes: int
    inactive_split_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    device_free_bytes: int | None
    device_total_bytes: int | None
    pools: tuple[TorchPool, ...]

    @property
    def source(self) -> str:
        return f"torch:{self.device}"

    def state(
        self, *, point: str = "", phase: Phase | None = None, at_s: float | None = None
    ) -> AllocatorState:
        """The four values in the ledger's words."""
        free = ByteRange.exact(self.reserved_bytes - self.active_bytes)
        return AllocatorState(
            evidence=measured(f"{self.source} memory_stats, mem_get_info"),
            point=point,
            phase=phase,
            at_s=at_s,
            allocated_bytes=ByteRange.exact(self.allocated_bytes),
            reserved_bytes=ByteRange.exact(self.reserved_bytes),
            pool_free_bytes=free,
            device_free_bytes=_exact(self.device_free_bytes),
            device_total_bytes=_exact(self.device_total_bytes),
            largest_free_run_bytes=ByteRange.exact(
                max((pool.largest_free_block_bytes for pool in self.pools), default=0)
            ),
        )


def torch_allocator(device: int | None = None) -> TorchAllocator:
    """The allocator of a device of this process (the current one by default).

    Raises SourceError where torch is not installed, and where it sees no accelerator whose allocator it could ask.
    """
    torch = _torch()
    number = torch.cuda.current_device() if device is None else device
    stats: Mapping[str, int] = torch.cuda.memory_stats(number)
    try:
        free, total = torch.cuda.mem_get_info(number)
    except RuntimeError:
        free, total = None, None
    segments = [segment for segment in torch.cuda.memory_snapshot() if segment.get("device") == number]
    return TorchAllocator(
        device=number,
        allocated_bytes=stats.get("allocated_bytes.all.current", 0),
        reserved_bytes=stats.get("reserved_bytes.all.current", 0),
        active_bytes=stats.get("active_bytes.all.current", 0),
        inactive_split_bytes=stats.get("inactive_split_bytes.all.current", 0),
        peak_allocated_bytes=stats.get("allocated_bytes.all.peak", 0),
        peak_reserved_bytes=stats.get("reserved_bytes.all.peak", 0),
        device_free_bytes=free,
        device_total_bytes=total,
        pools=pools_of(segments),
    )


def pools_of(segments: Iterable[Mapping[str, Any]]) -> tuple[TorchPool, ...]:
    """Segments of torch.cuda.memory_snapshot() added up by pool, the general one first.

    `segment_pool_id` is there from torch 1.13 on; without it all are of the general pool. Raises InputError for segments
    that are not of that shape.
    """
    found: dict[tuple[int, int], TorchPool] = {}
    for segment in segments:
        try:
            first, second = segment.get("segment_pool_id", DEFAULT_POOL)
            sizes = [int(segment[name]) for name in ("total_size", "allocated_size", "active_size")]
            free = [
                int(block["size"]) for block in segment.get("blocks", ()) if block.get("state") == "inactive"
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise InputError(
                f"no segment of torch.cuda.memory_snapshot(): {type(problem).__name__} {problem}"
            ) from None
        identity = (int(first), int(second))
        before = found.get(identity)
        found[identity] = TorchPool(
            pool_id=identity,
            segments=1 + (before.segments if before else 0),
            reserved_bytes=sizes[0] + (before.reserved_bytes if before else 0),
            allocated_bytes=sizes[1] + (before.allocated_bytes if before else 0),
            active_bytes=sizes[2] + (before.active_bytes if before else 0),
            largest_free_block_bytes=max([*free, before.largest_free_block_bytes if before else 0]),
        )
    return tuple(found[identity] for identity in sorted(found))


class TorchProbe:
    """This process's allocator as a source of samples. Raises SourceError as `torch_allocator` does."""

    def __init__(self, device: int | None = None) -> None:
        self._device = device
        self.name = torch_allocator(device).source

    def read(self, at_s: float) -> list[Sample]:
        return allocator_samples(torch_allocator(self._device), at_s)


def allocator_samples(found: TorchAllocator, at_s: float) -> list[Sample]:
    """The allocator as samples: torch_allocated_bytes, torch_reserved_bytes, torch_active_bytes, torch_inactive_split_bytes,
    device_free_bytes, device_total_bytes; and of each pool torch_pool_reserved_bytes and torch_pool_allocated_bytes."""
    sizes = {
        "torch_allocated_bytes": found.allocated_bytes,
        "torch_reserved_bytes": found.reserved_bytes,
        "torch_active_bytes": found.active_bytes,
        "torch_inactive_split_bytes": found.inactive_split_bytes,
        "device_free_bytes": found.device_free_bytes,
        "device_total_bytes": found.device_total_bytes,
    }
    samples = [
        Sample(at_s=at_s, source=found.source, name=name, value=size)
        for name, size in sizes.items()
        if size is not None
    ]
    for pool in found.pools:
        label = f"pool {pool.pool_id[0]},{pool.pool_id[1]}"
        for name, size in (
            ("torch_pool_reserved_bytes", pool.reserved_bytes),
            ("torch_pool_allocated_bytes", pool.allocated_bytes),
        ):
            samples.append(Sample(at_s=at_s, source=found.source, name=name, value=size, label=label))
    return samples


def _torch() -> Any:
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError:
        raise SourceError("no torch in this process, so no allocator of it", source="torch") from None
    if not torch.cuda.is_available():
        raise SourceError(
            f"torch {torch.__version__} sees no accelerator here, so its allocator holds no device memory",
            source="torch",
        )
    return torch


def _exact(size: int | None) -> ByteRange | None:
    return None if size is None else ByteRange.exact(size)
