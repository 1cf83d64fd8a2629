"""NVML: real devices where there are some, a clear reason where there are none."""

from __future__ import annotations

import sys

import pytest

from vramledger.errors import SourceError
from vramledger.ledger import ByteRange
from vramledger.measurement import MeasurementSource
from vramledger.telemetry.device_measurement import devices_measurement, exact
from vramledger.telemetry.probes.nvml import DeviceProcess, DeviceReading, Nvml, device_samples


def test_devices_or_the_reason_why_there_are_none() -> None:
    try:
        with Nvml() as nvml:
            devices = nvml.devices()
            samples = nvml.read(3.0)
    except SourceError as problem:
        assert problem.message.startswith("no NVML here: ")
        return
    for device in devices:
        if device.total_bytes is not None:
            assert (device.used_bytes or 0) + (device.free_bytes or 0) <= device.total_bytes
    assert len(samples) >= len([device for device in devices if device.total_bytes is not None])


def test_a_binding_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(SourceError, match=r"vramledger\[nvml\]"):
        Nvml()


DEVICE = DeviceReading(
    index=1,
    name="NVIDIA H200",
    total_bytes=1009,
    used_bytes=700,
    free_bytes=300,
    reserved_bytes=9,
    processes=(DeviceProcess(pid=7, name="a", used_bytes=500), DeviceProcess(pid=8, name="b")),
)
SOURCE = MeasurementSource(name="nvml", kind="nvml")


def test_what_a_device_says_becomes_samples() -> None:
    samples = device_samples(DEVICE, 3.0)
    assert [(sample.name, sample.value) for sample in samples if sample.pid is None] == [
        ("device_total_bytes", 1009),
        ("device_used_bytes", 700),
        ("device_free_bytes", 300),
        ("driver_reserved_bytes", 9),
    ]
    # A process whose bytes the driver does not tell is no sample, and not 0.
    assert [(sample.pid, sample.value, sample.label) for sample in samples if sample.pid] == [(7, 500, "a")]
    assert {sample.source for sample in samples} == {"nvml:1"}


def test_what_processes_hold_is_one_figure() -> None:
    found = devices_measurement([DEVICE], SOURCE, sized=exact, at_s=3.0)
    assert [figure.bytes for figure in found.figures] == [ByteRange.exact(500)]
    assert found.device_total_bytes == ByteRange.exact(1009)
    assert found.device == "NVIDIA H200"


def test_other_peoples_devices_are_left_out_where_the_process_is_known() -> None:
    other = DeviceReading(index=0, name="NVIDIA H200", total_bytes=1009, used_bytes=3, free_bytes=1006)
    found = devices_measurement([other, DEVICE], SOURCE, sized=exact, pids=(7,))
    assert len(found.allocator) == 1
    hidden = devices_measurement([other, DEVICE], SOURCE, sized=exact, pids=(4711,))
    assert len(hidden.allocator) == 2
    assert any("no device lists one of the processes 4711" in note for note in hidden.notes)


def test_a_split_device_is_told_by_its_instances() -> None:
    instance = DeviceReading(index=1, instance=2, total_bytes=101, used_bytes=11, free_bytes=90)
    found = devices_measurement([DEVICE, instance], SOURCE, sized=exact)
    assert found.device_total_bytes == ByteRange.exact(101)
    assert instance.source == "nvml:1/mig:2"
