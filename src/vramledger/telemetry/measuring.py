"""One measurement from each kind of thing that people have."""

from __future__ import annotations

import time
from collections.abc import Callable

from vramledger.errors import InputError
from vramledger.evidence import measured
from vramledger.measurement import HostMemory, Measurement, MeasurementSource
from vramledger.models.sources.bounded_file import path_of, shown
from vramledger.telemetry.adapters.amd import amd_devices, is_exact, looks_like_amd
from vramledger.telemetry.adapters.dcgm import dcgm_measurement
from vramledger.telemetry.adapters.smi_reading import LIMIT_BYTES as SMI_LIMIT_BYTES
from vramledger.telemetry.adapters.smi_reading import smi_looks, smi_measurement
from vramledger.telemetry.device_measurement import devices_measurement, exact, whole_mib
from vramledger.telemetry.inputs import file_digest, read_input
from vramledger.telemetry.metrics_reading import metrics_measurement
from vramledger.telemetry.probes.cgroup import group_memory
from vramledger.telemetry.probes.engine import server_info_measurement
from vramledger.telemetry.probes.nvml import Nvml
from vramledger.telemetry.probes.proc import proc_absent, tree_memory
from vramledger.telemetry.series_file import read_series
from vramledger.telemetry.series_measurement import series_measurement
from vramledger.telemetry.web import LIMIT_BYTES, LIMIT_S, fetch_body
from vramledger.units import format_bytes

Clock = Callable[[], float]


def measured_metrics(text: str, *, engine: str | None = None) -> Measurement:
    """A file that holds the answer of `/metrics`. Raises InputError for what is none, SourceError for what cannot be read."""
    read = read_input(text, LIMIT_BYTES)
    source = read.source("metrics")
    return metrics_measurement(read.body, read.name, engine=engine, sha256=source.sha256)


def measured_server_info(text: str, *, engine: str | None = None) -> Measurement:
    """A file that holds the answer of an information endpoint. Raises as `measured_metrics` does."""
    read = read_input(text, LIMIT_BYTES)
    found = server_info_measurement(read.body, read.name, engine=engine)
    from vramledger.telemetry.merging import merged

    return (
        merged((found, Measurement(sources=(read.source(found.sources[0].kind),))))
        if found.sources
        else found
    )


def measured_smi(text: str, *, columns: tuple[str, ...] = (), pids: tuple[int, ...] = ()) -> Measurement:
    """A file that holds what nvidia-smi, rocm-smi or amd-smi printed. Raises as `measured_metrics` does."""
    read = read_input(text, SMI_LIMIT_BYTES)
    if looks_like_amd(read.body):
        sized = exact if is_exact(read.body) else whole_mib
        return devices_measurement(
            amd_devices(read.body, read.name), read.source("amd-smi"), sized=sized, pids=pids
        )
    looks = smi_looks(read.body, read.name, columns=columns)
    times = [look.at_s for look in looks if look.at_s is not None]
    source = read.source("nvidia-smi", from_s=min(times, default=None), until_s=max(times, default=None))
    return smi_measurement(looks, source, pids=pids)


def measured_dcgm(text: str, *, limit_s: float = LIMIT_S, clock: Clock = time.time) -> Measurement:
    """dcgm-exporter's answer: a file, or its address. Raises as `measured_metrics` does."""
    if not text.startswith(("http://", "https://")):
        read = read_input(text, LIMIT_BYTES)
        return dcgm_measurement(read.body, read.source("dcgm"))
    body, now_s = fetch_body(text, limit_s=limit_s), clock()
    source = MeasurementSource(name=text, kind="dcgm", size_bytes=len(body), from_s=now_s, until_s=now_s)
    return dcgm_measurement(body, source, at_s=now_s)


def measured_snapshot(text: str) -> Measurement:
    """An allocator snapshot of torch. Raises InputError for what is none, SourceError for what cannot be read."""
    from vramledger.telemetry.snapshots import allocator_states, read_snapshot

    path = path_of(text)
    snapshot = read_snapshot(path)
    sha256, size_bytes = file_digest(path)
    return Measurement(
        sources=(MeasurementSource(name=shown(path), kind="snapshot", sha256=sha256, size_bytes=size_bytes),),
        allocator=allocator_states(snapshot, where=shown(path)),
    )


def measured_series(text: str) -> Measurement:
    """A time series that `vramledger sample` wrote. Raises as `read_series` does."""
    path = path_of(text)
    sha256, size_bytes = file_digest(path)
    return series_measurement(read_series(path), shown(path), sha256=sha256, size_bytes=size_bytes)


def measured_processes(pid: int, *, clock: Clock = time.time) -> Measurement:
    """Host memory of a process and all that it started, and of their control group. Where there is no /proc, a note says so.

    Raises SourceError where there is no such process.
    """
    name = f"proc:{pid}"
    absent = proc_absent()
    if absent is not None:
        return Measurement(sources=(), notes=(absent,))
    now_s = clock()
    found = tree_memory(pid)
    notes = [
        f"{name}: {process.name} ({process.pid}) shows only its RSS to us; PSS needs the same user, or root"
        for process in found
        if not process.from_rollup
    ]
    group = group_memory(pid)
    if group is not None and group.current_bytes is not None:
        limit = "no limit" if group.limit_bytes is None else f"a limit of {format_bytes(group.limit_bytes)}"
        killed = f", {group.oom_kill_count} processes killed for memory" if group.oom_kill_count else ""
        notes.append(
            f"{name}: its control group holds {format_bytes(group.current_bytes)} under {limit}{killed}"
        )
    return Measurement(
        sources=(MeasurementSource(name=name, kind="proc", from_s=now_s, until_s=now_s),),
        host=tuple(
            HostMemory(
                process=process.name,
                pid=process.pid,
                evidence=measured(
                    f"/proc/{process.pid}/{'smaps_rollup' if process.from_rollup else 'status'}"
                ),
                at_s=now_s,
                rss_bytes=process.rss_bytes,
                pss_bytes=process.pss_bytes,
                shared_bytes=process.shared_bytes,
                private_bytes=process.private_bytes,
            )
            for process in found
        ),
        notes=tuple(notes),
    )


def measured_devices(*, pids: tuple[int, ...] = (), clock: Clock = time.time) -> Measurement:
    """This machine's devices by NVML. Raises SourceError, saying why, where there is no NVML."""
    now_s = clock()
    with Nvml() as nvml:
        readings = nvml.devices()
    if not readings:
        raise InputError("NVML is here, but lists no device")
    source = MeasurementSource(name="nvml", kind="nvml", from_s=now_s, until_s=now_s)
    return devices_measurement(readings, source, sized=exact, at_s=now_s, pids=pids)
