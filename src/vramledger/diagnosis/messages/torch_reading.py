"""The arithmetic of PyTorch's out-of-memory message."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from vramledger.diagnosis.messages import cuda, torch_allocator
from vramledger.diagnosis.messages.readings import size_of, whole_of
from vramledger.engines.log_pattern import sized_bytes
from vramledger.ledger import ByteRange
from vramledger.observation import Observation

UNKNOWN_BYTES = 2**63
_NAMED = re.compile(r"Process (\S{1,16}) has ([0-9.]{1,40} ?[A-Za-z]{1,5}) memory in use")
_KINDS = frozenset(
    kind.name
    for kind in (
        torch_allocator.TORCH_OOM,
        torch_allocator.TORCH_OOM_RETRY,
        torch_allocator.TORCH_ASYNC_OOM,
        torch_allocator.TORCH_MPS_OOM,
        cuda.PIECE_TOO_LARGE,
    )
)


class NamedProcess(Struct, frozen=True, kw_only=True):
    """A process on the device; the driver counts everything it holds. None where the number was not told."""

    pid: int | None
    used: ByteRange | None


class TorchOom(Struct, frozen=True, kw_only=True):
    """What one message of PyTorch's allocator states; None for what it does not.

    `allocated` includes private pools where they are told apart, `reserved_unallocated` excludes them. `allowed` is the
    process's own limit, where one was set; then it is what counts, not `total`. A printed size is as wide as its rounding.
    Source of the arithmetic: pytorch c10/cuda/CUDACachingAllocator.cpp.
    """

    backend: str | None
    device_index: int | None
    requested: ByteRange | None
    total: ByteRange | None
    free: ByteRange | None
    this_process: ByteRange | None
    processes: tuple[NamedProcess, ...]
    allocated: ByteRange | None
    private_pools: ByteRange | None
    reserved_unallocated: ByteRange | None
    allowed: ByteRange | None

    @property
    def own_process(self) -> ByteRange | None:
        """What the failing process holds of the device: its own part, or the one process named that can be it (in
        a container the allocator does not know itself by its number). None where several could be, or none."""
        if self.this_process is not None:
            return self.this_process
        framework = _plus(self.allocated, self.reserved_unallocated)
        known = [item.used for item in self.processes if item.used is not None]
        able = [used for used in known if framework is None or used.high >= framework.low]
        return able[0] if len(able) == 1 else None

    @property
    def outside_framework(self) -> ByteRange | None:
        """What this process holds outside the allocator: context, libraries, other pools."""
        return _minus(_minus(self.own_process, self.allocated), self.reserved_unallocated)

    @property
    def other_tenants(self) -> ByteRange | None:
        """What neither is free nor belongs to this process: other processes, and what the driver keeps."""
        return _minus(_minus(self.total, self.free), self.own_process)

    @property
    def headroom_if_contiguous(self) -> ByteRange | None:
        """What the request could have had if every free byte lay in one piece, within the process's own limit."""
        room = _plus(self.free, self.reserved_unallocated)
        if self.allowed is None or self.allocated is None:
            return room
        limit = self.allowed - self.allocated
        return (
            limit
            if room is None
            else ByteRange(
                min(room.low, limit.low), min(room.expected, limit.expected), min(room.high, limit.high)
            )
        )

    @property
    def missing(self) -> ByteRange | None:
        """What the request lacked beyond what the device had free, 0 where it should have fitted."""
        short = _minus(self.requested, self.free)
        return None if short is None else short.upper(ByteRange(0, 0, 0))


def torch_oom(observation: Observation) -> TorchOom | None:
    """The message's figures; None for an observation of another kind.

    2^64 bytes, which the allocator prints where the driver did not tell, is unknown.
    """
    values = observation.values
    if values.get("message") not in _KINDS:
        return None
    size: Callable[[str], ByteRange | None] = lambda name: _known(size_of(values, name))  # noqa: E731
    allocated = size("allocated_bytes")
    reserved = size("reserved_bytes")
    backend = values.get("backend")
    return TorchOom(
        backend=backend if isinstance(backend, str) else None,
        device_index=whole_of(values, "device_id"),
        requested=size("requested_bytes"),
        total=size("total_bytes"),
        free=size("free_bytes"),
        this_process=size("this_process_bytes"),
        processes=_named(values.get("processes")),
        allocated=allocated,
        private_pools=size("private_pools_bytes"),
        reserved_unallocated=size("reserved_unallocated_bytes") or _minus(reserved, allocated),
        allowed=size("allowed_bytes"),
    )


def _named(text: object) -> tuple[NamedProcess, ...]:
    if not isinstance(text, str):
        return ()
    return tuple(
        NamedProcess(
            pid=int(match[1]) if match[1].isdecimal() else None, used=_known(sized_bytes(match[2].strip()))
        )
        for match in _NAMED.finditer(text)
    )


def _known(size: ByteRange | None) -> ByteRange | None:
    return None if size is None or size.expected >= UNKNOWN_BYTES else size


def _plus(first: ByteRange | None, second: ByteRange | None) -> ByteRange | None:
    return None if first is None or second is None else first + second


def _minus(first: ByteRange | None, second: ByteRange | None) -> ByteRange | None:
    return None if first is None or second is None else first - second
