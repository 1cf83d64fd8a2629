"""Host memory: this process's own, and /proc and control groups as other machines have them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vramledger.errors import SourceError
from vramledger.telemetry.measuring import measured_processes
from vramledger.telemetry.probes.cgroup import group_memory
from vramledger.telemetry.probes.host import HostProbe
from vramledger.telemetry.probes.proc import (
    host_memory_bytes,
    is_alive,
    proc_absent,
    process_memory,
    process_tree,
    tree_memory,
)

linux = pytest.mark.skipif(proc_absent() is not None, reason="no /proc here")


@pytest.fixture
def child() -> Iterator[int]:
    command = [sys.executable, "-c", "held = b'x' * (32 << 20); print('up', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        process.communicate(b"\n")


@linux
def test_a_process_that_holds_memory_shows_it(child: int) -> None:
    found = process_memory(child)
    assert found.rss_bytes is not None
    assert found.pss_bytes is not None
    assert found.private_bytes is not None
    assert found.shared_bytes is not None
    assert 32 << 20 <= found.private_bytes <= found.rss_bytes
    assert found.private_bytes <= found.pss_bytes <= found.rss_bytes
    assert found.rss_bytes == found.private_bytes + found.shared_bytes


@linux
def test_a_tree_has_what_was_started(child: int) -> None:
    assert child in process_tree(os.getpid())
    assert os.getpid() not in process_tree(child)
    assert {process.pid for process in tree_memory(child)} == {child}
    assert is_alive(child)
    measurement = measured_processes(child, clock=lambda: 5.0)
    (host,) = measurement.host
    assert (host.pid, host.at_s) == (child, 5.0)


@linux
def test_the_machine_has_more_than_is_available() -> None:
    found = host_memory_bytes()
    assert 0 < found["host_available_bytes"] <= found["host_total_bytes"]


@linux
def test_a_process_that_ended_is_told() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not is_alive(process.pid)
    with pytest.raises(SourceError, match=f"no process {process.pid}"):
        process_memory(process.pid)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


STATUS = "Name:\tpython3\nVmHWM:\t  9000 kB\nVmRSS:\t  7000 kB\nVmSwap:\t     3 kB\n"
ROLLUP = (
    "5000-6000 ---p 00000000 00:00 0                          [rollup]\nRss:  6000 kB\nPss:  4000 kB\n"
    "Shared_Clean:  2000 kB\nShared_Dirty:  500 kB\nPrivate_Clean:  1500 kB\nPrivate_Dirty:  2000 kB\nSwap:  0 kB\n"
)


def test_another_users_process_shows_its_rss_alone(tmp_path: Path) -> None:
    proc = write(tmp_path, {"7/status": STATUS, "7/comm": "python3\n", "7/cmdline": "VLLM::Worker_TP0\0"})
    found = process_memory(7, proc)
    assert (found.name, found.rss_bytes, found.peak_rss_bytes) == (
        "VLLM::Worker_TP0",
        7000 * 1024,
        9000 * 1024,
    )
    assert (found.pss_bytes, found.shared_bytes, found.private_bytes) == (None, None, None)
    write(tmp_path, {"7/smaps_rollup": ROLLUP})
    found = process_memory(7, proc)
    assert (found.rss_bytes, found.pss_bytes) == (6000 * 1024, 4000 * 1024)
    assert (found.shared_bytes, found.private_bytes) == (2500 * 1024, 3500 * 1024)


def test_a_command_may_be_called_anything(tmp_path: Path) -> None:
    stats = {
        "5": "(a) S 1 (b)) S 1 5",
        "6": "(x) S 5 6",
        "8": "(y) S 6 6",
        "9": "(z) S 1 9",
        "11": "(w) Z 5 5",
    }
    proc = write(
        tmp_path,
        {f"{pid}/stat": f"{pid} {stat}" for pid, stat in stats.items()}
        | {"self/stat": "5 (a) S 1", "meminfo": ""},
    )
    assert process_tree(5, proc) == {5, 6, 8, 11}
    assert not is_alive(11, proc)


def test_a_system_without_proc_says_so(tmp_path: Path) -> None:
    assert "not available here" in (proc_absent(tmp_path) or "")
    with pytest.raises(SourceError, match="not available here"):
        HostProbe(1, proc=tmp_path)


def test_groups_of_version_2(tmp_path: Path) -> None:
    proc = write(tmp_path / "proc", {"7/cgroup": "0::/kubepods/pod1/c1\n"})
    inside = {
        "memory.current": "5000\n",
        "memory.max": "9000\n",
        "memory.peak": "8000\n",
        "memory.events": "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\n",
    }
    host = write(tmp_path / "host", {f"kubepods/pod1/c1/{name}": text for name, text in inside.items()})
    found = group_memory(7, proc=proc, cgroups=host)
    assert found is not None
    assert (found.version, found.current_bytes, found.limit_bytes, found.peak_bytes) == (2, 5000, 9000, 8000)
    assert (found.oom_kill_count, found.limit_hit_count) == (1, 12)
    # A container sees its own group at the top.
    own = write(tmp_path / "own", inside | {"memory.max": "max\n"})
    found = group_memory(7, proc=proc, cgroups=own)
    assert found is not None
    assert (found.path, found.limit_bytes) == (str(own), None)


def test_groups_of_version_1(tmp_path: Path) -> None:
    proc = write(tmp_path / "proc", {"7/cgroup": "3:cpu,cpuacct:/a\n2:memory:/docker/c1\n0::/\n"})
    group = {
        "memory/docker/c1/memory.usage_in_bytes": "5000",
        "memory/docker/c1/memory.limit_in_bytes": "9223372036854771712",
        "memory/docker/c1/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    }
    found = group_memory(7, proc=proc, cgroups=write(tmp_path / "groups", group))
    assert found is not None
    assert (found.version, found.current_bytes, found.limit_bytes, found.oom_kill_count) == (1, 5000, None, 3)


def test_no_memory_controller_is_none(tmp_path: Path) -> None:
    proc = write(tmp_path, {"7/cgroup": "0::/../../x\nrubbish\n"})
    assert group_memory(7, proc=proc, cgroups=tmp_path / "absent") is None


def test_samples_of_a_tree(tmp_path: Path) -> None:
    proc = write(
        tmp_path,
        {"7/status": STATUS, "7/smaps_rollup": ROLLUP, "7/stat": "7 (p) S 1", "8/status": STATUS, "8/stat": "8 (q) S 7",
         "7/cgroup": "", "meminfo": "MemTotal: 100 kB\nMemAvailable: 40 kB\n"},
    )  # fmt: skip
    samples = HostProbe(7, proc=proc, cgroups=tmp_path).read(3.0)
    named = {(sample.source, sample.name): sample.value for sample in samples}
    assert named["proc:7", "pss_bytes"] == 4000 * 1024
    assert ("proc:8", "pss_bytes") not in named
    assert named["proc:8", "rss_bytes"] == 7000 * 1024
    assert named["meminfo", "host_total_bytes"] == 100 * 1024
    assert {sample.at_s for sample in samples} == {3.0}
