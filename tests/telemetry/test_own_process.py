"""A process that samples itself: what it holds at each mark is read there, however long the interval."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramledger.errors import SourceError
from vramledger.ledger import Phase
from vramledger.observation import Sample
from vramledger.telemetry.marks import MARK
from vramledger.telemetry.own_process import sampling
from vramledger.telemetry.probes.proc import proc_absent
from vramledger.telemetry.series_file import read_series
from vramledger.telemetry.series_measurement import series_measurement


class Device:
    """A device whose memory in use the test sets."""

    name = "torch:0"

    def __init__(self) -> None:
        self.pools = {"0,0": 1000}

    def read(self, at_s: float) -> list[Sample]:
        total = sum(self.pools.values())
        rows = [Sample(at_s=at_s, source=self.name, name="torch_reserved_bytes", value=total)]
        return rows + [
            Sample(
                at_s=at_s,
                source=self.name,
                name="torch_pool_reserved_bytes",
                value=size,
                label=f"pool {pool}",
            )
            for pool, size in self.pools.items()
        ]


def test_each_captured_size_is_exact_without_a_sample_in_between(tmp_path: Path) -> None:
    path, device = tmp_path / "a.jsonl", Device()
    with sampling(path, interval_s=3600, sources=[device]) as series:
        series.mark("after load", Phase.WARMUP)
        for size, taken in (("8", 210), ("4", 35)):
            device.pools["1,0"] = device.pools.get("1,0", 0) + taken
            series.mark(f"after graph {size}", Phase.WARMUP)
        series.mark("steady")
    found = series_measurement(read_series(path), "a")
    assert [(graph.shape, graph.increment_bytes.expected) for graph in found.graphs] == [
        ("8", 210),
        ("4", 35),
    ]
    assert all(graph.increment_bytes.is_exact and graph.shared_pool for graph in found.graphs)
    assert not any("cut" in note for note in found.notes)


def test_an_error_within_ends_the_file_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(MemoryError), sampling(path, interval_s=0.001, sources=[Device()]) as series:
        series.mark("load", Phase.LOAD)
        raise MemoryError
    assert [row.label for row in read_series(path) if row.name == MARK] == ["before load", "load", "end"]


@pytest.mark.skipif(proc_absent() is not None, reason="no /proc here")
def test_this_process_is_sampled_as_far_as_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with sampling(path, interval_s=3600) as series:
        held = b"x" * (16 << 20)
        series.mark("after load", Phase.WARMUP)
    grown = [row.value for row in read_series(path) if row.name == "private_bytes"]
    assert len(held) <= max(grown)
    assert all("torch" in note for note in series.notes)


def test_nothing_to_sample_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nothing to sample"), sampling(tmp_path / "a.jsonl", sources=[]):
        raise AssertionError
