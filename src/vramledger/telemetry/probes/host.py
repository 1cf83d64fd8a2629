"""Host memory of a tree of processes, its control group and the machine as samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vramledger.errors import SourceError
from vramledger.observation import Sample
from vramledger.telemetry.probes.cgroup import CGROUPS, group_memory
from vramledger.telemetry.probes.proc import (
    PROC,
    ProcessMemory,
    host_memory_bytes,
    proc_absent,
    tree_memory,
)

_PROCESS = ("rss_bytes", "pss_bytes", "shared_bytes", "private_bytes", "swap_bytes", "peak_rss_bytes")
_GROUP = {
    "cgroup_current_bytes": "current_bytes",
    "cgroup_limit_bytes": "limit_bytes",
    "cgroup_peak_bytes": "peak_bytes",
    "cgroup_oom_kill_count": "oom_kill_count",
    "cgroup_limit_hit_count": "limit_hit_count",
}


class HostProbe:
    """A process and all that it started, asked anew at each reading. Raises SourceError where there is no /proc."""

    def __init__(self, pid: int, *, proc: Path = PROC, cgroups: Path = CGROUPS) -> None:
        absent = proc_absent(proc)
        if absent is not None:
            raise SourceError(absent)
        self._pid = pid
        self._proc = proc
        self._cgroups = cgroups
        self.name = f"proc:{pid}"

    def read(self, at_s: float) -> list[Sample]:
        """Raises SourceError once the process has ended."""
        found = tree_memory(self._pid, self._proc)
        samples = [sample for process in found for sample in process_samples(process, at_s)]
        return samples + list(self._surroundings(at_s))

    def _surroundings(self, at_s: float) -> Iterator[Sample]:
        group = group_memory(self._pid, proc=self._proc, cgroups=self._cgroups)
        if group is not None:
            for name, field in _GROUP.items():
                value = getattr(group, field)
                if value is not None:
                    yield Sample(at_s=at_s, source=f"cgroup:{group.path}", name=name, value=value)
        for name, value in host_memory_bytes(self._proc).items():
            yield Sample(at_s=at_s, source="meminfo", name=name, value=value)


def process_samples(process: ProcessMemory, at_s: float) -> Iterator[Sample]:
    """One process as samples, named as in `ProcessMemory`."""
    for name in _PROCESS:
        value = getattr(process, name)
        if value is not None:
            yield Sample(
                at_s=at_s,
                source=f"proc:{process.pid}",
                name=name,
                value=value,
                pid=process.pid,
                label=process.name,
            )
