"""An engine's metrics as samples and as a measurement, by the engine's own table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from vramledger.engines import find_metrics, metrics_engines
from vramledger.engines.metrics_table import MetricName, names_by_metric, sample_of
from vramledger.errors import InputError
from vramledger.evidence import measured
from vramledger.ledger import ByteRange, Owner
from vramledger.measurement import (
    AllocatorState,
    Figure,
    HostMemory,
    MeasuredPool,
    Measurement,
    MeasurementSource,
)
from vramledger.observation import Sample
from vramledger.pool import IntRange
from vramledger.telemetry.exposition import Exposition, parse_exposition
from vramledger.telemetry.merging import merged

MOST_VALUE = 2**60  # larger is no count and no size, and no whole number of JSON readers
_ANYONES = ("process_", "python_", "go_")
_FIGURES = {
    "weights_bytes": ((Owner.WEIGHTS,), "weights"),
    "kv_cache_bytes": ((Owner.KV_CACHE,), "KV cache"),
    "graph_bytes": ((Owner.GRAPH_POOL,), "captured graphs"),
}


@cache
def _tables() -> dict[str, dict[str, MetricName]]:
    found = {}
    for engine in metrics_engines():
        module = find_metrics(engine)
        if module is not None:
            found[engine] = names_by_metric(module.METRICS)
    return found


def engine_of(exposition: Exposition) -> str | None:
    """The engine most of whose own metrics are there; names that several engines or any client library have do not count."""
    tables = _tables()
    owners = Counter(name for table in tables.values() for name in table)
    names = {reading.name for reading in exposition.readings if not reading.name.startswith(_ANYONES)}
    found = {
        engine: sum(1 for name in names if name in table and owners[name] == 1)
        for engine, table in tables.items()
    }
    best = max(found, key=lambda engine: found[engine], default=None)
    return best if best is not None and found[best] else None


def metrics_samples(exposition: Exposition, engine: str, *, at_s: float, source: str) -> Iterator[Sample]:
    """What the engine's table knows of what was read, all at `at_s`: a timestamp of the line itself comes before it."""
    names = _tables().get(engine, {})
    for reading in exposition.readings:
        found = sample_of(
            names,
            reading.name,
            reading.labels,
            reading.value,
            at_s=at_s if reading.at_s is None else reading.at_s,
            source=source,
        )
        if found is not None and abs(found.value) < MOST_VALUE:
            yield found


def read_metrics(body: bytes, source: str, *, engine: str | None = None) -> tuple[Exposition, str]:
    """The readings of a metrics endpoint's answer and the engine that they are of.

    Raises InputError where the text holds no metric at all, and where no engine known here has metrics of these names.
    """
    exposition = parse_exposition(body)
    if not exposition.readings:
        raise InputError(f"{source} holds no metric in Prometheus' or OpenMetrics' text format", file=source)
    known = engine or engine_of(exposition)
    if known is None:
        raise InputError(
            f"{source} holds {len(exposition.readings):,} metrics, none of an engine known here "
            f"({', '.join(metrics_engines())}); the first is {exposition.readings[0].name[:80]!r}",
            file=source,
        )
    return exposition, known


def metrics_measurement(
    body: bytes,
    source: str,
    *,
    engine: str | None = None,
    at_s: float | None = None,
    sha256: str | None = None,
) -> Measurement:
    """What an engine's metrics tell of its memory and settings. Raises InputError as `read_metrics` does.

    Lines that are no metric are counted in a note.
    """
    exposition, known = read_metrics(body, source, engine=engine)
    samples = tuple(metrics_samples(exposition, known, at_s=at_s or 0.0, source=source))
    notes = []
    if exposition.unread_count:
        lines = ", ".join(str(number) for number in exposition.unread[:5])
        notes.append(f"{source}: {exposition.unread_count:,} lines are no metric (line {lines})")
    own = Measurement(
        sources=(
            MeasurementSource(
                name=source, kind="metrics", sha256=sha256, size_bytes=len(body), from_s=at_s, until_s=at_s
            ),
        ),
        engine=known,
        settings=_served_as(exposition),
        figures=tuple(engine_figures(samples, source)),
        pools=tuple(engine_pools(samples, source)),
        allocator=tuple(_device_free(samples, source)),
        host=tuple(_host(samples, source, at_s)),
        notes=tuple(notes),
    )
    return merged((own, *_info(exposition, known, source)))


def _served_as(exposition: Exposition) -> tuple[tuple[str, str], ...]:
    """The name that requests ask for, which may be another than the model's."""
    names = {
        reading.labels["model_name"] for reading in exposition.readings if "model_name" in reading.labels
    }
    return (("served_model_name", names.pop()[:200]),) if len(names) == 1 else ()


def _info(exposition: Exposition, engine: str, source: str) -> Iterator[Measurement]:
    module = find_metrics(engine)
    readers = {} if module is None else {item.name: item.read for item in module.INFO_METRICS}
    for reading in exposition.readings:
        if reading.name in readers:
            yield readers[reading.name](reading.labels, source)


def engine_figures(samples: Iterable[Sample], source: str) -> Iterator[Figure]:
    """Sizes by rank; several labels of one size on one rank (graphs of several phases) are added up. Graphs that take
    nothing are none."""
    sums: dict[tuple[str, int | None], int] = {}
    for sample in samples:
        if sample.name in _FIGURES:
            key = (sample.name, sample.rank)
            sums[key] = sums.get(key, 0) + round(sample.value)
    for (name, rank), size in sums.items():
        if size <= 0:
            continue
        owners, title = _FIGURES[name]
        yield Figure(
            owners=owners,
            name=title,
            bytes=ByteRange.exact(size),
            evidence=measured(f"{source} {name}"),
            ranks=() if rank is None else (rank,),
        )


def engine_pools(samples: Iterable[Sample], source: str) -> Iterator[MeasuredPool]:
    """The smallest of several ranks' pools."""
    smallest: dict[str, int] = {}
    for sample in samples:
        if sample.name in ("kv_pool_tokens", "kv_pool_blocks") and sample.value > 0:
            smallest[sample.name] = min(smallest.get(sample.name, 2**63), round(sample.value))
    if smallest:
        yield MeasuredPool(
            evidence=measured(f"{source} {', '.join(smallest)}"),
            tokens=_count(smallest.get("kv_pool_tokens")),
            num_blocks=_count(smallest.get("kv_pool_blocks")),
        )


def _count(value: int | None) -> IntRange | None:
    return None if value is None else IntRange(value, value, value)


def _device_free(samples: Iterable[Sample], source: str) -> Iterator[AllocatorState]:
    for sample in samples:
        if sample.name == "device_free_bytes":
            yield AllocatorState(
                evidence=measured(f"{source} {sample.name}"),
                ranks=() if sample.rank is None else (sample.rank,),
                device_free_bytes=ByteRange.exact(round(sample.value)),
            )


def _host(samples: Iterable[Sample], source: str, at_s: float | None) -> Iterator[HostMemory]:
    for sample in samples:
        if sample.name.endswith("rss_bytes"):
            yield HostMemory(
                process=sample.label or sample.name.removesuffix("rss_bytes").rstrip("_") or "server",
                evidence=measured(f"{source} {sample.name}"),
                at_s=at_s,
                rss_bytes=round(sample.value),
            )
