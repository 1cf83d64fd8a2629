"""What counts as the device of a machine without accelerators."""

from __future__ import annotations

import os
from pathlib import Path

from vramledger.release.machine import node_total_bytes


def test_the_node_of_the_first_processor_that_may_be_used(tmp_path: Path) -> None:
    for node, cpus, total in ((0, (0, 1), 100), (1, (2, 3), 200)):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        for cpu in cpus:
            (folder / f"cpu{cpu}").mkdir()
        (folder / "meminfo").write_text(f"Node {node} MemTotal: {total} kB\nNode {node} MemFree: 1 kB\n")
    allowed = min(os.sched_getaffinity(0))
    expected = {0: 100, 1: 100, 2: 200, 3: 200}.get(allowed)
    assert node_total_bytes(tmp_path) == (None if expected is None else expected * 1024)


def test_a_kernel_that_tells_of_no_nodes(tmp_path: Path) -> None:
    assert node_total_bytes(tmp_path) is None
