"""How memory went over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from vramledger.observation import Sample

# Fewer readings, a shorter time, a rise that is small against the level or a line that does not fit are no trend.
FEWEST, SHORTEST_S = 6, 300.0
LEAST_RISE_RATIO, LEAST_RISE_BYTES = 0.01, 16 * 2**20
LEAST_FIT = 0.7
MOST_LOAD_RATIO = 1.5
_LOADS = ("running_requests", "kv_usage_ratio")


class Trend(Struct, frozen=True, kw_only=True):
    """A straight line through one quantity of one source. `load_is_constant` is None where no sample tells the load."""

    name: str
    source: str
    slope_bytes_per_h: float
    hours: float
    from_bytes: int
    fit: float
    load_is_constant: bool | None

    @property
    def rises(self) -> bool:
        """Whether it surely rises: by more than noise, along a line, and not because the load did."""
        rise = self.slope_bytes_per_h * self.hours
        return (
            rise > max(LEAST_RISE_BYTES, LEAST_RISE_RATIO * self.from_bytes)
            and self.fit >= LEAST_FIT
            and self.load_is_constant is not False
        )


def trends(samples: Iterable[Sample], *, since_s: float | None, until_s: float | None) -> tuple[Trend, ...]:
    """A trend for each series of bytes in use between two times, those that rise fastest first."""
    series: dict[tuple[str, str], list[Sample]] = {}
    loads: dict[str, list[Sample]] = {}
    for item in samples:
        if (since_s is not None and item.at_s < since_s) or (until_s is not None and item.at_s > until_s):
            continue
        if item.name in _LOADS:
            loads.setdefault(item.name, []).append(item)
        elif is_use(item.name):
            series.setdefault((item.source, item.name), []).append(item)
    load = next((loads[name] for name in _LOADS if name in loads), [])
    steady = constant(load)
    found = [_trend(name, source, items, steady) for (source, name), items in series.items()]
    return tuple(
        sorted((item for item in found if item is not None), key=lambda item: -item.slope_bytes_per_h)
    )


def is_use(name: str) -> bool:
    """Whether a quantity is memory in use by a device or a process."""
    return name.endswith("_bytes") and (
        name.startswith(
            ("rss", "pss", "device_used", "process_used", "used", "allocated", "reserved", "cgroup_")
        )
        and "total" not in name
    )


def is_host(name: str) -> bool:
    return name.startswith(("rss", "pss", "cgroup_", "host_"))


def constant(load: Sequence[Sample]) -> bool | None:
    """Whether the second half of a load is about as high as the first."""
    if len(load) < FEWEST:
        return None
    ordered = sorted(load, key=lambda item: item.at_s)
    half = len(ordered) // 2
    first = sum(item.value for item in ordered[:half]) / half
    second = sum(item.value for item in ordered[half:]) / (len(ordered) - half)
    return second <= first * MOST_LOAD_RATIO if first > 0 else second == 0


def _trend(name: str, source: str, items: list[Sample], steady: bool | None) -> Trend | None:
    items = sorted(items, key=lambda item: item.at_s)
    if len(items) < FEWEST or items[-1].at_s - items[0].at_s < SHORTEST_S:
        return None
    count = len(items)
    times = [(item.at_s - items[0].at_s) / 3600 for item in items]
    mean_time, mean = sum(times) / count, sum(item.value for item in items) / count
    across = sum((at - mean_time) * (item.value - mean) for at, item in zip(times, items, strict=True))
    along = sum((at - mean_time) ** 2 for at in times)
    spread = sum((item.value - mean) ** 2 for item in items)
    slope = across / along if along else 0.0
    return Trend(
        name=name,
        source=source,
        slope_bytes_per_h=slope,
        hours=times[-1],
        from_bytes=int(items[0].value),
        fit=across**2 / (along * spread) if along and spread else 0.0,
        load_is_constant=steady,
    )
