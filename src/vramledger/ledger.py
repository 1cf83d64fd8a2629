"""The ledger: who holds which bytes of one device, for how long, in which phases.

Pure values. Where the numbers come from is the business of the engines.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from vramledger.evidence import Evidence


class Owner(StrEnum):
    WEIGHTS = "weights"
    ADAPTERS = "adapters"
    KV_CACHE = "kv_cache"
    ACTIVATION = "activation"
    WORKSPACE = "workspace"
    COLLECTIVES = "collectives"
    GRAPH_POOL = "graph_pool"
    RUNTIME_CONTEXT = "runtime_context"
    ALLOCATOR = "allocator"
    HEADROOM = "headroom"


class Lifetime(StrEnum):
    WORKER = "worker"
    REQUEST = "request"
    ITERATION = "iteration"


class Phase(StrEnum):
    LOAD = "load"
    WARMUP = "warmup"
    PREFILL = "prefill"
    DECODE = "decode"
    RECOVERY = "recovery"


ALL_PHASES = frozenset(Phase)
SERVING = frozenset({Phase.PREFILL, Phase.DECODE})
AFTER_LOAD = ALL_PHASES - {Phase.LOAD}


class ByteRange(Struct, frozen=True):
    """Whole bytes: what they may be at least, what they should be, what they may be at most.

    An exact figure has all three equal. Raises ValueError when low <= expected <= high does not hold.
    """

    low: int
    expected: int
    high: int

    def __post_init__(self) -> None:
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"not a range: {self.low} <= {self.expected} <= {self.high}")

    @classmethod
    def exact(cls, size_bytes: int) -> ByteRange:
        return cls(size_bytes, size_bytes, size_bytes)

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    def __add__(self, other: ByteRange) -> ByteRange:
        return ByteRange(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def __sub__(self, other: ByteRange) -> ByteRange:
        """Worst-case difference: the low end takes away the other's high end."""
        return ByteRange(self.low - other.high, self.expected - other.expected, self.high - other.low)

    def upper(self, other: ByteRange) -> ByteRange:
        """The larger of two, end by end: the peak of two things that are never alive together."""
        return ByteRange(
            max(self.low, other.low), max(self.expected, other.expected), max(self.high, other.high)
        )


ZERO = ByteRange(0, 0, 0)


def total(ranges: Iterable[ByteRange]) -> ByteRange:
    low = expected = high = 0
    for item in ranges:
        low, expected, high = low + item.low, expected + item.expected, high + item.high
    return ByteRange(low, expected, high)


class Entry(Struct, frozen=True, kw_only=True):
    """One line of the ledger on one rank.

    `name` tells entries of one owner apart ("sampler", "rope tables"). `inside_budget` is whether the
    engine charges the bytes against the fraction of the device it was given; what is outside lowers only
    what is physically left. `is_remainder` marks the entry that takes what the other charged ones leave.
    Raises ValueError for negative bytes.
    """

    owner: Owner
    name: str
    lifetime: Lifetime
    phases: frozenset[Phase]
    bytes: ByteRange
    evidence: Evidence
    inside_budget: bool = True
    is_remainder: bool = False

    def __post_init__(self) -> None:
        if self.bytes.low < 0:
            raise ValueError(f"{self.owner.value} {self.name} would hold {self.bytes.low} bytes")


class Peak(Struct, frozen=True, kw_only=True):
    """What is alive together in one phase: the sum of the entries end by end, and what that occupies, given
    that a remainder is large only when the other charged entries are small."""

    phase: Phase
    bytes: ByteRange
    occupied: ByteRange


class WeightFigures(Struct, frozen=True, kw_only=True):
    """Three figures that are never one: on disk for the whole model, host peak while a rank loads,
    steady on the device."""

    disk_bytes: int
    disk_evidence: Evidence
    host_peak_bytes: ByteRange
    host_evidence: Evidence
    device_bytes: ByteRange


class RankLedger(Struct, frozen=True, kw_only=True):
    """The ledger of one kind of rank. `ranks` are the world ranks that are alike, in order."""

    ranks: tuple[int, ...]
    entries: tuple[Entry, ...]
    weights: WeightFigures
    device_total_bytes: int

    def peak(self, phase: Phase) -> ByteRange:
        """Sum of the entries alive in `phase`, end by end."""
        return total(entry.bytes for entry in self.entries if phase in entry.phases)

    def occupied(self, phase: Phase) -> ByteRange:
        """What the entries alive in `phase` take together.

        Where a remainder is alive the charged part counts with its expected sum, and only what is outside the
        budget spreads; elsewhere this is the peak.
        """
        live = [entry for entry in self.entries if phase in entry.phases]
        if not any(entry.is_remainder for entry in live):
            return total(entry.bytes for entry in live)
        charged = sum(entry.bytes.expected for entry in live if entry.inside_budget)
        return ByteRange.exact(charged) + total(entry.bytes for entry in live if not entry.inside_budget)

    @property
    def peaks(self) -> tuple[Peak, ...]:
        return tuple(
            Peak(phase=phase, bytes=self.peak(phase), occupied=self.occupied(phase)) for phase in Phase
        )

    @property
    def binding_phase(self) -> Phase:
        """The phase whose expected peak is largest; the earlier one of equals."""
        return max(Phase, key=lambda phase: self.peak(phase).expected)

    def owned(self, owner: Owner) -> ByteRange:
        return total(entry.bytes for entry in self.entries if entry.owner is owner)
