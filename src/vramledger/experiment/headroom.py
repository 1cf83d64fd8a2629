"""The least that was free during a stretch: on devices, of the machine's memory, and under a control group's limit."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vramledger.observation import Sample
from vramledger.units import format_bytes


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """The least that was free of one memory, and when. `kind` is "device", "host" or "control group"."""

    kind: str
    source: str
    bytes: int
    at_s: float

    @property
    def words(self) -> str:
        return f"{format_bytes(self.bytes)} free at least ({self.kind}, {self.source})"


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What a stretch of samples tells of room: the least of each memory, and processes that were killed for memory meanwhile (None where no
    control group tells)."""

    least: tuple[Headroom, ...] = ()
    oom_kills: int | None = None

    @property
    def smallest(self) -> Headroom | None:
        """On a device where there is one, else of the host and its control groups."""
        devices = [one for one in self.least if one.kind == "device"]
        return min(devices or self.least, key=lambda one: one.bytes, default=None)


def room_of(samples: Iterable[Sample]) -> Watched:
    """A control group's room is its limit less what it holds, in which caches of files count that the kernel would give up."""
    least: dict[tuple[str, str], Headroom] = {}
    held: dict[str, int] = {}
    kills: dict[str, tuple[int, int]] = {}

    def seen(kind: str, sample: Sample, size: int) -> None:
        known = least.get((kind, sample.source))
        if known is None or size < known.bytes:
            least[(kind, sample.source)] = Headroom(
                kind=kind, source=sample.source, bytes=size, at_s=sample.at_s
            )

    for sample in samples:
        value = round(sample.value)
        match sample.name:
            case "device_free_bytes" if sample.source.startswith("nvml:"):
                seen("device", sample, value)
            case "host_available_bytes":
                seen("host", sample, value)
            case "cgroup_current_bytes":
                held[sample.source] = value
            case "cgroup_limit_bytes" if sample.source in held:  # asked together, what is held first
                seen("control group", sample, value - held[sample.source])
            case "cgroup_oom_kill_count":
                first, _ = kills.get(sample.source, (value, value))
                kills[sample.source] = (first, value)
    grown = [max(0, last - first) for first, last in kills.values()]
    return Watched(least=tuple(least.values()), oom_kills=sum(grown) if grown else None)
