"""What a marked series says that loading, each captured size and serving took."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.observation import Sample
from vramledger.telemetry.marks import MARK
from vramledger.telemetry.series_measurement import series_measurement
from vramledger.units import MIB

TOTAL = 80_000 * MIB
# (mark, phase, MiB in use at each sample of the span)
START = (
    ("before load", None, [11, 11]),
    ("load", Phase.LOAD, [13, 4001]),
    ("after load", Phase.WARMUP, [5003, 5003]),
    ("after KV pool", Phase.WARMUP, [60_013, 60_013]),
    ("after graph 8", Phase.WARMUP, [60_113, 60_113]),
    ("after graph 4", Phase.WARMUP, [60_130, 60_130]),
    ("steady", None, [60_130, 60_541, 60_541]),
)


def series(
    spans: tuple[tuple[str, Phase | None, list[int]], ...] = START, *, ended: bool = True
) -> Iterator[Sample]:
    at = 100.0
    for label, phase, sizes in spans:
        yield Sample(at_s=at, source="series", name=MARK, value=1, phase=phase, label=label)
        for size in sizes:
            at += 1
            values = {
                "device_total_bytes": TOTAL,
                "device_used_bytes": size * MIB,
                "device_free_bytes": TOTAL - size * MIB,
            }
            for name, value in values.items():
                yield Sample(at_s=at, source="nvml:0", name=name, value=value, phase=phase, label="H100")
            yield Sample(
                at_s=at, source="proc:7", name="rss_bytes", value=at, pid=7, phase=phase, label="python"
            )
            yield Sample(
                at_s=at, source="proc:7", name="pss_bytes", value=at - 3, pid=7, phase=phase, label="python"
            )
    if ended:
        yield Sample(at_s=at, source="series", name=MARK, value=1, label="end")


def test_loading_is_what_is_in_use_after_it_less_what_was_before() -> None:
    found = series_measurement(series(), "s")
    (load,) = [
        figure for figure in found.figures if Owner.WEIGHTS in figure.owners and len(figure.owners) == 3
    ]
    # Between the last sample before the mark and the first after it the load may have gone on.
    assert load.bytes == ByteRange((4001 - 11) * MIB, (5003 - 11) * MIB, (5003 - 11) * MIB)
    assert load.phase is None


def test_each_captured_size_has_its_increment() -> None:
    found = series_measurement(series(), "s")
    assert [(graph.shape, graph.increment_bytes.expected // MIB) for graph in found.graphs] == [
        ("8", 100),
        ("4", 17),
    ]
    assert found.graphs[1].increment_bytes == ByteRange(0, 17 * MIB, 117 * MIB)
    assert [graph.shared_pool for graph in found.graphs] == [None, None]
    (graphs,) = [figure for figure in found.figures if figure.owners == (Owner.GRAPH_POOL,)]
    assert graphs.bytes.expected == 117 * MIB
    assert any("eager mode would hold none of it" in note and "100.0 MiB" in note for note in found.notes)


def test_the_four_values_stay_apart() -> None:
    found = series_measurement(series(), "s")
    points = [state.point for state in found.allocator]
    assert points == [label for label, _, _ in START]
    last = found.allocator[-1]
    assert last.device_free_bytes == ByteRange.exact(TOTAL - 60_541 * MIB)
    assert (last.allocated_bytes, last.reserved_bytes, last.pool_free_bytes) == (None, None, None)
    assert found.device_total_bytes == ByteRange.exact(TOTAL)


def test_the_most_in_use_while_serving_is_a_figure() -> None:
    most = [
        figure
        for figure in series_measurement(series(), "s").figures
        if figure.name == "most in use on the device"
    ]
    assert [(figure.phase, figure.bytes.expected // MIB) for figure in most] == [(None, 60_541)]


def test_free_memory_that_came_back_is_not_forgotten() -> None:
    spans = (*START[:-1], ("steady", None, [60_130, 79_990, 60_130]))
    states = series_measurement(series(spans), "s").allocator
    assert states[-1].point == "steady, least free"
    assert states[-1].device_free_bytes == ByteRange.exact(10 * MIB)


def test_sizes_that_no_sample_tells_apart_are_named() -> None:
    unseen: list[int] = []
    spans = (*START[:4], ("after graph 8", Phase.WARMUP, unseen), ("after graph 4", Phase.WARMUP, [60_130]))
    found = series_measurement(series(spans), "s")
    assert found.graphs == ()
    assert any("2 captured sizes (8, 4)" in note for note in found.notes)


def test_host_memory_at_the_end_of_each_phase() -> None:
    found = series_measurement(series(), "s")
    by_phase = [(host.phase, host.rss_bytes, host.pss_bytes) for host in found.host]
    assert by_phase == [(Phase.LOAD, 104, 101), (Phase.WARMUP, 112, 109), (None, 115, 112)]


def test_a_process_that_ended_is_not_counted() -> None:
    def of(pid: int, at: float) -> Sample:
        return Sample(at_s=at, source=f"proc:{pid}", name="rss_bytes", value=pid, pid=pid, label="python")

    rows = [of(7, 1.0), of(8, 1.0), of(7, 2.0), of(9, 2.0)]
    assert [host.pid for host in series_measurement(rows, "s").host] == [7, 9]


def test_a_cut_series_says_so() -> None:
    whole, cut = (series_measurement(series(ended=ended), "s") for ended in (True, False))
    assert not any("it was cut" in note for note in whole.notes)
    assert any("it was cut" in note for note in cut.notes)
    assert cut.figures == whole.figures


def torch_rows(pools: list[dict[str, int]]) -> Iterator[Sample]:
    for at, sizes in enumerate(pools):
        label = "before load" if at == 0 else f"after graph {at}"
        yield Sample(at_s=float(at), source="series", name=MARK, value=1, phase=Phase.WARMUP, label=label)
        values = {
            "torch_reserved_bytes": sum(sizes.values()),
            "torch_active_bytes": 3,
            "torch_allocated_bytes": 2,
        }
        for name, value in values.items():
            yield Sample(at_s=float(at), source="torch:0", name=name, value=value)
        for pool, size in sizes.items():
            yield Sample(
                at_s=float(at),
                source="torch:0",
                name="torch_pool_reserved_bytes",
                value=size,
                label=f"pool {pool}",
            )


def test_sizes_that_share_a_pool_are_told_from_those_that_do_not() -> None:
    one = [{"0,0": 100}, {"0,0": 100, "1,0": 20}, {"0,0": 100, "1,0": 23}]
    own = [{"0,0": 100}, {"0,0": 100, "1,0": 20}, {"0,0": 100, "1,0": 20, "2,0": 5}]
    for pools, shared in ((one, True), (own, False)):
        found = series_measurement(torch_rows(pools), "s")
        assert [graph.shared_pool for graph in found.graphs] == [shared, shared]
    state = found.allocator[0]
    assert state.allocated_bytes == ByteRange.exact(2)
    assert state.reserved_bytes == ByteRange.exact(100)
    assert state.pool_free_bytes == ByteRange.exact(97)
    assert state.device_free_bytes is None
