"""What nvidia-smi, dcgm-exporter and AMD's tools print, in each of their formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.ledger import ByteRange
from vramledger.measurement import MeasurementSource
from vramledger.telemetry.adapters.amd import amd_devices
from vramledger.telemetry.adapters.dcgm import read_dcgm
from vramledger.telemetry.adapters.smi_reading import SmiLook, smi_looks, smi_measurement
from vramledger.telemetry.probes.nvml import DeviceReading
from vramledger.units import MIB

RECORDED = Path(__file__).parent / "recorded"
H100 = "NVIDIA H100 80GB HBM3"


def looks(name: str) -> tuple[SmiLook, ...]:
    return smi_looks((RECORDED / name).read_bytes(), name)


def mib(device: DeviceReading) -> tuple[int | None, ...]:
    sizes = (device.total_bytes, device.used_bytes, device.free_bytes, device.reserved_bytes)
    return tuple(None if size is None else size // MIB for size in sizes)


def test_the_table_in_a_loop() -> None:
    first, second = looks("nvidia-smi-550.txt")
    assert first.driver == "550.54.15"
    assert second.at_s is not None
    assert first.at_s is not None
    assert second.at_s - first.at_s == 5
    assert [device.name for device in first.devices] == [H100, H100]
    assert [mib(device) for device in second.devices] == [
        (81559, 74321, None, None),
        (81559, 74327, None, None),
    ]
    assert [(p.pid, p.name, p.used_bytes) for p in second.devices[1].processes] == [
        (4712, "VLLM::Worker_TP1", 74318 * MIB)
    ]
    assert [device.used_bytes for look in (first, second) for device in look.devices] == [
        15467 * MIB,
        15471 * MIB,
        74321 * MIB,
        74327 * MIB,
    ]


def test_the_table_with_instances() -> None:
    (look,) = looks("nvidia-smi-535-mig.txt")
    assert [(device.instance, *mib(device)[:2]) for device in look.devices] == [
        (None, 24576, 50),
        (0, 11968, 25),
        (1, 5952, 12),
    ]
    found = smi_measurement((look,), MeasurementSource(name="smi", kind="nvidia-smi"))
    assert found.device_total_bytes is not None
    assert found.device_total_bytes.expected == 5952 * MIB
    assert len(found.figures) == 2


def test_the_long_text() -> None:
    (look,) = looks("nvidia-smi-q-550.txt")
    assert [mib(device) for device in look.devices] == [(81559, 74321, 6687, 551), (81559, 3, 81005, 551)]
    assert [process.pid for process in look.devices[0].processes] == [4711]
    assert look.devices[1].processes == ()


def test_the_xml_with_instances() -> None:
    (look,) = looks("nvidia-smi-q-535-mig.xml")
    assert [(device.instance, *mib(device)) for device in look.devices] == [
        (None, 24576, 9263, 14976, 337),
        (0, 11968, 9251, 2717, 0),
        (1, 5952, 12, 5940, 0),
    ]
    assert look.devices[0].processes[0].name == 'python3 -m "server" <1>'
    assert look.devices[0].processes[0].used_bytes == 9226 * MIB


def test_xml_of_a_loop_is_several_documents() -> None:
    body = (RECORDED / "nvidia-smi-q-535-mig.xml").read_bytes()
    assert len(smi_looks(body * 3, "loop")) == 3


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            b'<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><nvidia_smi_log>&b;</nvidia_smi_log>',
            "declares entities",
        ),
        (b'<?xml version="1.0"?><nvidia_smi_log>' + b"<gpu>" * 100, "deeper"),
        (b'<?xml version="1.0"?><html><gpu/></html>', "root"),
        (b'<?xml version="1.0"?><nvidia_smi_log><gpu>', "line 1"),
        (b'<?xml version="1.0"?><nvidia_smi_log></nvidia_smi_log>', "no device"),
    ],
)
def test_hostile_xml_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        smi_looks(body, "x.xml")


GPU_ROWS = "0, GPU-a, 81559{u}, 74321{u}, 6687{u}\n1, GPU-b, 81559{u}, [N/A], 81005{u}\n"


@pytest.mark.parametrize("unit", [" MiB", ""])
def test_csv_of_devices_with_and_without_units(unit: str) -> None:
    mark = " [MiB]"
    text = f"index, uuid, memory.total{mark}, memory.used{mark}, memory.free{mark}\n" + GPU_ROWS.format(
        u=unit
    )
    (look,) = smi_looks(text.encode(), "gpus.csv")
    assert [mib(device) for device in look.devices] == [
        (81559, 74321, 6687, None),
        (81559, None, 81005, None),
    ]


def test_a_size_that_no_device_has_is_none() -> None:
    (look,) = smi_looks(b"index, memory.total [MiB], memory.used [MiB]\n0, 999999999999 GiB, 1 MiB\n", "x")
    assert mib(look.devices[0])[:2] == (None, 1)


def test_csv_without_a_header_needs_its_columns() -> None:
    body = GPU_ROWS.format(u="").encode()
    with pytest.raises(InputError, match="--smi-columns"):
        smi_looks(body, "gpus.csv")
    columns = ("index", "uuid", "memory.total", "memory.used", "memory.free")
    (look,) = smi_looks(body, "gpus.csv", columns=columns)
    assert mib(look.devices[0]) == (81559, 74321, 6687, None)


def test_csv_of_a_loop_is_cut_at_its_times() -> None:
    rows = ["timestamp, index, memory.used [MiB]"]
    rows += [
        f"2026/11/30 00:52:0{second}.250, {index}, {100 * second + index} MiB"
        for second in range(3)
        for index in range(2)
    ]
    found = smi_looks("\n".join(rows).encode(), "loop.csv")
    assert [[device.used_bytes for device in look.devices] for look in found] == [
        [0, MIB],
        [100 * MIB, 101 * MIB],
        [200 * MIB, 201 * MIB],
    ]


def test_csv_of_processes() -> None:
    body = (
        b"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        b"GPU-a, 4711, python3 a, b.py, 74312 MiB\nGPU-b, 4712, worker, [Insufficient Permissions]\n"
        b"GPU-a, 4713, other, 17 MiB\n"
    )
    (look,) = smi_looks(body, "apps.csv")
    assert [(device.uuid, len(device.processes)) for device in look.devices] == [("GPU-a", 2), ("GPU-b", 1)]
    assert look.devices[0].processes[0].name == "python3 a, b.py"
    assert look.devices[1].processes[0].used_bytes is None
    found = smi_measurement((look,), MeasurementSource(name="apps", kind="nvidia-smi"))
    assert [figure.bytes.expected for figure in found.figures] == [(74312 + 17) * MIB]


def test_processes_of_a_loop_without_times_are_cut_where_one_comes_again() -> None:
    body = b"pid, used_gpu_memory [MiB]\n" + b"7, 10 MiB\n8, 20 MiB\n7, 11 MiB\n8, 21 MiB\n"
    found = smi_looks(body, "apps.csv")
    assert [[process.used_bytes for process in look.devices[0].processes] for look in found] == [
        [10 * MIB, 20 * MIB],
        [11 * MIB, 21 * MIB],
    ]


def test_more_rows_than_any_machine_has_are_refused() -> None:
    rows = "\n".join(f"{at}, 1 MiB" for at in range(30_000))
    with pytest.raises(InputError, match="than any machine has"):
        smi_looks(f"index, memory.used [MiB]\n{rows}".encode(), "x")


def test_a_size_in_mib_is_as_wide_as_its_rounding() -> None:
    (look,) = looks("nvidia-smi-q-550.txt")
    found = smi_measurement((look,), MeasurementSource(name="smi", kind="nvidia-smi"), pids=(4711,))
    (figure,) = found.figures
    assert figure.bytes == ByteRange(74312 * MIB - MIB // 2, 74312 * MIB, 74313 * MIB - 1)
    (state,) = found.allocator
    assert state.device_free_bytes is not None
    assert state.device_free_bytes.expected == 6687 * MIB
    assert (state.allocated_bytes, state.reserved_bytes, state.pool_free_bytes) == (None, None, None)


def test_dcgm_exporter() -> None:
    devices = read_dcgm((RECORDED / "dcgm-exporter.txt").read_bytes(), "dcgm")
    assert [mib(device) for device in devices] == [(81559, 74321, 6687, 551), (81559, 3, 81005, 551)]
    assert devices[0].name == H100
    with pytest.raises(InputError, match="no DCGM_FI_DEV_FB"):
        read_dcgm(b"DCGM_FI_DEV_GPU_TEMP 31\n", "dcgm")


def test_tools_of_amd() -> None:
    (card,) = amd_devices(
        b'{"card0": {"VRAM Total Memory (B)": "21458059264", "VRAM Total Used Memory (B)": "27856896", '
        b'"Card Series": "Radeon RX 7900 XT"}, "system": {"Driver version": "6.7"}}',
        "rocm-smi",
    )
    assert (card.total_bytes, card.used_bytes, card.free_bytes) == (21458059264, 27856896, 21430202368)
    one = b'{"gpu": 3, "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 285, "unit": "MB"}, "free_vram": {"value": 196307, "unit": "MB"}}}'
    for body in (b"[" + one + b"]", b'{"gpu_data": [' + one + b"]}"):
        (device,) = amd_devices(body, "amd-smi")
        assert (device.index, *mib(device)[:3]) == (3, 196592, 285, 196307)
    with pytest.raises(InputError, match="neither"):
        amd_devices(b'{"card0": 1}', "x")


PARTS = st.sampled_from(
    [b"<?xml", b"<nvidia_smi_log>", b"<gpu>", b"</gpu>", b"NVSMI LOG", b"| NVIDIA-SMI ", b"\n", b", ", b"memory.used [MiB]",
     b"index", b"12 MiB", b"| 0 NVIDIA A30 Off |", b"|  50MiB / 24576MiB |", b"    FB Memory Usage\n", b" : ",
     b"Process ID", b"Index", b"timestamp", b"pid", b'{"card0":', b'{"mem_usage":', b"\x00", b"\xff", b"&lt;", b"]]>"]
)  # fmt: skip


@given(st.lists(PARTS | st.binary(max_size=12), max_size=30).map(b"".join))
def test_no_text_raises_anything_but_an_input_error(body: bytes) -> None:
    for read in (smi_looks, read_dcgm, amd_devices):
        try:
            read(body, "x")
        except InputError as problem:
            assert "x" in problem.message


@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)),
        min_size=1,
        max_size=8,
    )
)
def test_every_device_of_a_csv_is_kept(sizes: list[tuple[int, int, int]]) -> None:
    rows = [f"{at}, {t}, {u}, {f}" for at, (t, u, f) in enumerate(sizes)]
    body = "\n".join(["index, memory.total [MiB], memory.used [MiB], memory.free [MiB]", *rows]).encode()
    (look,) = smi_looks(body, "x")
    assert [mib(device)[:3] for device in look.devices] == sizes
