"""What a marked series tells of an instance: allocator and host at each mark, what loading and each captured size took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramledger.evidence import measured
from vramledger.ledger import ByteRange, Owner, Phase, total
from vramledger.measurement import (
    AllocatorState,
    Figure,
    GraphCapture,
    HostMemory,
    Measurement,
    MeasurementSource,
)
from vramledger.observation import Sample
from vramledger.telemetry.marks import AFTER, BEFORE_LOAD, GRAPH, LOADED, SERVING
from vramledger.telemetry.metrics_reading import engine_figures, engine_pools
from vramledger.telemetry.spans import Extent, Key, Span, Spans, spans_of
from vramledger.units import format_bytes

_ALL_HELD = tuple(owner for owner in Owner if owner is not Owner.HEADROOM)
_BEFORE_WARMUP = (Owner.WEIGHTS, Owner.RUNTIME_CONTEXT, Owner.COLLECTIVES)


def series_measurement(
    samples: Iterable[Sample], source: str, *, sha256: str | None = None, size_bytes: int | None = None
) -> Measurement:
    """The series as a measurement; what was not sampled is not there.

    Sizes between two marks are as wide as what moved between the samples next to the marks. Raises InputError where
    the series is too long to be kept by its marks, and what reading it raises.
    """
    series = spans_of(samples)
    graphs, unresolved = _graphs(series, source)
    notes = list(_notes(series, source, graphs))
    if unresolved:
        shapes = ", ".join(unresolved[:8]) + (", ..." if len(unresolved) > 8 else "")
        notes.append(
            f"{source}: no sample fell between the marks of {len(unresolved)} captured sizes ({shapes}), so that what "
            "each took is not known; a shorter --interval tells them apart"
        )
    last = tuple(_latest(series))
    return Measurement(
        sources=(
            MeasurementSource(
                name=source,
                kind="series",
                sha256=sha256,
                size_bytes=size_bytes,
                from_s=series.from_s,
                until_s=series.until_s,
            ),
        ),
        device_total_bytes=_device_total(last),
        figures=(
            *_loaded(series, source),
            *_graph_sum(graphs, source),
            *_most(series, source),
            *engine_figures(last, source),
        ),
        pools=tuple(engine_pools(last, source)),
        allocator=tuple(_states(series, source)),
        graphs=graphs,
        host=tuple(_host(series, source)),
        notes=tuple(notes),
    )


def _used(span: Span) -> dict[str, Extent]:
    """Bytes in use by device: what NVML says, or what a process's own torch reserved where it was asked alone."""
    found: dict[str, Extent] = {}
    for name in ("torch_reserved_bytes", "device_used_bytes"):
        found |= {key.source: extent for key, extent in span.extents.items() if key.name == name}
    return found


def _between(spans: tuple[Span, ...], start: int, end: int, device: str) -> ByteRange | None:
    """What `device` had more in use when span `end` began than when span `start` began, as wide as the samples on either
    side of both marks differ. None where no sample fell on a side of a mark."""
    began = _around(spans, start, device)
    done = _around(spans, end, device)
    if not began or not done:
        return None
    ends = sorted((min(done) - max(began), max(done) - min(began)))
    expected = done[-1] - began[-1]
    return ByteRange(min(ends[0], expected), expected, max(ends[1], expected))


def _around(spans: tuple[Span, ...], index: int, device: str) -> list[int]:
    """In use at the last sample before a span and at the first within it."""
    found = []
    if index > 0:
        before = _used(spans[index - 1]).get(device)
        if before is not None:
            found.append(round(before.last))
    within = _used(spans[index]).get(device)
    if within is not None:
        found.append(round(within.first))
    return found


def _devices(series: Spans) -> list[str]:
    return sorted({device for span in series.spans for device in _used(span)})


def _loaded(series: Spans, source: str) -> Iterator[Figure]:
    """In use after load, less what was in use before it."""
    labels = [span.label for span in series.spans]
    if LOADED not in labels or BEFORE_LOAD not in labels:
        return
    done, before = labels.index(LOADED), labels.index(BEFORE_LOAD)
    if before >= done:
        return
    for device in _devices(series):
        began = _used(series.spans[before]).get(device)
        after = _around(series.spans, done, device)
        if began is None or not after:
            continue
        low, high = min(after) - round(began.last), max(after) - round(began.last)
        if low <= 0:
            continue
        yield Figure(
            owners=_BEFORE_WARMUP,
            name="load: weights, context and communicators",
            bytes=ByteRange(low, after[-1] - round(began.last), high),
            evidence=measured(f"{source} {device}", "in use after load - in use before load"),
        )


def _graphs(series: Spans, source: str) -> tuple[tuple[GraphCapture, ...], list[str]]:
    """Each captured size's increment on each device, and the shapes between whose marks no sample fell."""
    captures: list[GraphCapture] = []
    unresolved = []
    shared = _pools_are_shared(series)
    for index, span in enumerate(series.spans):
        if index == 0 or not span.label.startswith(AFTER + GRAPH):
            continue
        shape = span.label.removeprefix(AFTER + GRAPH)
        devices = _used(series.spans[index - 1])
        resolved = False
        for device in devices:
            increment = _between(series.spans, index - 1, index, device)
            if increment is not None and device in _used(span):
                resolved = True
                captures.append(
                    GraphCapture(
                        shape=shape,
                        increment_bytes=increment,
                        evidence=measured(f"{source} {device}", "in use after its capture - before it"),
                        shared_pool=shared,
                    )
                )
        if not resolved and _devices(series):
            unresolved.append(shape)
    return tuple(captures), unresolved


def _pools_are_shared(series: Spans) -> bool | None:
    """Whether captured sizes draw from one private pool of torch's allocator; None where its pools were not sampled or only one
    size was captured."""
    captured = [span for span in series.spans if span.label.startswith(AFTER + GRAPH)]
    private = {
        key.label
        for span in captured
        for key in span.extents
        if key.name == "torch_pool_reserved_bytes" and key.label != "pool 0,0"
    }
    if not private or len(captured) < 2:
        return None
    return len(private) < len(captured)


def _graph_sum(graphs: tuple[GraphCapture, ...], source: str) -> Iterator[Figure]:
    by_device: dict[str, list[ByteRange]] = {}
    for graph in graphs:
        by_device.setdefault(graph.evidence.source, []).append(graph.increment_bytes)
    for device, sizes in by_device.items():
        yield Figure(
            owners=(Owner.GRAPH_POOL,),
            name="captured graphs",
            bytes=total(sizes),
            evidence=measured(device, f"the increments of {len(sizes)} captured sizes"),
        )


def _most(series: Spans, source: str) -> Iterator[Figure]:
    """The most in use in each phase of serving that was marked, and while serving at all (no phase): a caching allocator
    keeps what its largest step reserved, so that the latter is the peak of the larger of prefill and decode."""
    most: dict[tuple[str, Phase | None], int] = {}
    for span in series.spans:
        phase = span.phase
        if phase not in (Phase.PREFILL, Phase.DECODE) and span.label != SERVING:
            continue
        for device, extent in _used(span).items():
            if device.startswith("nvml:"):
                most[(device, phase)] = max(most.get((device, phase), 0), round(extent.most))
    for (device, phase), size in most.items():
        yield Figure(
            owners=_ALL_HELD,
            name="most in use on the device",
            bytes=ByteRange.exact(size),
            evidence=measured(f"{source} {device} device_used_bytes"),
            phase=phase,
        )


def _states(series: Spans, source: str) -> Iterator[AllocatorState]:
    """What each device said last in each span, and when the least was free while serving."""
    for span in series.spans:
        by_source: dict[tuple[str, int | None], dict[str, Extent]] = {}
        for key, extent in span.extents.items():
            if key.name.startswith(("device_", "torch_")) and not key.name.startswith("torch_pool_"):
                by_source.setdefault((key.source, key.rank), {})[key.name] = extent
        for (device, rank), found in by_source.items():
            state = _state(found, f"{source} {device}", span, rank)
            if state is None:
                continue
            yield state
            free = found.get("device_free_bytes")
            if span.label == SERVING and free is not None and free.least < free.last:
                yield AllocatorState(
                    evidence=state.evidence,
                    point="steady, least free",
                    ranks=state.ranks,
                    device_free_bytes=ByteRange.exact(round(free.least)),
                    device_total_bytes=state.device_total_bytes,
                )


def _state(found: dict[str, Extent], source: str, span: Span, rank: int | None) -> AllocatorState | None:
    values = {name: round(extent.last) for name, extent in found.items()}
    known = {"device_free_bytes", "torch_allocated_bytes", "torch_reserved_bytes"} & values.keys()
    if not known:
        return None
    reserved, active = values.get("torch_reserved_bytes"), values.get("torch_active_bytes")
    return AllocatorState(
        evidence=measured(source),
        phase=span.phase,
        point=span.label,
        ranks=() if rank is None else (rank,),
        at_s=max(extent.last_s for extent in found.values()),
        allocated_bytes=_exact(values.get("torch_allocated_bytes")),
        reserved_bytes=_exact(reserved),
        pool_free_bytes=None if reserved is None or active is None else _exact(max(reserved - active, 0)),
        device_free_bytes=_exact(values.get("device_free_bytes")),
        device_total_bytes=_exact(values.get("device_total_bytes")),
    )


def _exact(value: int | None) -> ByteRange | None:
    return None if value is None else ByteRange.exact(value)


def _host(series: Spans, source: str) -> Iterator[HostMemory]:
    """Each process that was there at the end, at the end of each span after load began; of spans that follow one another in one
    phase the last. A process that became another (exec) counts as what it became."""
    by_span = [(span, _processes(span)) for span in series.spans]
    seen = [processes.keys() for _, processes in by_span if processes]
    at_the_end = seen[-1] if seen else ()
    kept: dict[tuple[int, str, Phase | None, bool], tuple[str, dict[str, Extent]]] = {}
    for span, processes in by_span:
        if span.label == BEFORE_LOAD and len(series.spans) > 1:
            continue
        for (pid, label), entry in processes.items():
            if (pid, label) in at_the_end:
                kept[(pid, label, span.phase, span.label == SERVING)] = entry
    for (pid, label, phase, _), (probe, found) in kept.items():
        values = {name: round(extent.last) for name, extent in found.items()}
        yield HostMemory(
            process=label or str(pid),
            pid=pid,
            evidence=measured(f"{source} {probe}"),
            phase=phase,
            at_s=max(extent.last_s for extent in found.values()),
            rss_bytes=values.get("rss_bytes"),
            pss_bytes=values.get("pss_bytes"),
            shared_bytes=values.get("shared_bytes"),
            private_bytes=values.get("private_bytes"),
        )


def _processes(span: Span) -> dict[tuple[int, str], tuple[str, dict[str, Extent]]]:
    """By pid and name the probe and its quantities, of those that the last round of the span still saw."""
    found: dict[tuple[int, str], tuple[str, dict[str, Extent]]] = {}
    last_s = 0.0
    for key, extent in span.extents.items():
        if key.pid is not None and key.source.startswith("proc:"):
            found.setdefault((key.pid, key.label), (key.source, {}))[1][key.name] = extent
            last_s = max(last_s, extent.last_s)
    return {
        process: entry
        for process, entry in found.items()
        if max(extent.last_s for extent in entry[1].values()) == last_s
    }


def _latest(series: Spans) -> Iterator[Sample]:
    """What each quantity was last."""
    kept: dict[Key, Extent] = {}
    for span in series.spans:
        kept |= span.extents
    for key, extent in kept.items():
        yield Sample(
            at_s=extent.last_s,
            source=key.source,
            name=key.name,
            value=extent.last,
            rank=key.rank,
            pid=key.pid,
            label=key.label,
        )


def _device_total(samples: Iterable[Sample]) -> ByteRange | None:
    """Of several devices the smallest."""
    sizes = [
        round(sample.value) for sample in samples if sample.name == "device_total_bytes" and sample.value > 0
    ]
    return ByteRange.exact(min(sizes)) if sizes else None


def _notes(series: Spans, source: str, graphs: tuple[GraphCapture, ...]) -> Iterator[str]:
    if not series.ended:
        yield f"{source} has no last row: it was cut, and is read as far as it goes"
    by_device: dict[str, list[int]] = {}
    for graph in graphs:
        by_device.setdefault(graph.evidence.source, []).append(graph.increment_bytes.expected)
    for device, sizes in by_device.items():
        largest = max(*sizes, 0)
        yield (
            f"{device}: {len(sizes)} captured sizes hold {format_bytes(sum(sizes))}; eager mode would hold none of it, "
            f"and need at most what the largest took ({format_bytes(largest)}) while a step runs"
        )
    most: dict[str, float] = {}
    for span in series.spans:
        for key, extent in span.extents.items():
            if key.name == "kv_usage_ratio":
                most[key.source] = max(most.get(key.source, 0.0), extent.most)
    for probe, ratio in most.items():
        yield f"{probe}: at most {ratio:.1%} of the KV pool was in use"
