from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import DeviceError
from vramledger.evidence import EvidenceKind
from vramledger.hardware import Device, catalogue, devices, find_device
from vramledger.units import GIB, MIB

ROWS = json.loads(Path(catalogue.__file__).with_name("devices.json").read_text(encoding="utf-8"))

# Device names as public start-up logs and failure reports give them, and the device each one means.
NAMES_IN_LOGS = {
    "A10": "A10",
    "A100-40GB": "A100 SXM 40GB",
    "A100-PCIE-40GB": "A100 PCIe 40GB",
    "A100-SXM4-40GB": "A100 SXM 40GB",
    "A100-SXM4-80GB": "A100 SXM 80GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "A10G": "A10G",
    "A10G 24GB": "A10G",
    "A800-SXM4-80GB": "A800 SXM 80GB",
    "A800 80GB": "A800 SXM 80GB",
    "NVIDIA A800 80GB PCIe": "A800 PCIe 80GB",
    "AMD Instinct MI100": "MI100",
    "AMD Radeon Instinct MI25": "MI25",
    "AMD Radeon RX 6600M": "Radeon RX 6600M",
    "AMD Radeon RX 7900 XTX": "Radeon RX 7900 XTX",
    "Radeon RX 7900 XTX": "Radeon RX 7900 XTX",
    "Radeon 890M": "Radeon 890M",
    "Ascend910B2": "Ascend 910B 64GB",
    "Ascend910B4": "Ascend 910B4 32GB",
    "Ascend 910": "Ascend 910B 64GB",
    "B300": "B300",
    "GB10": "GB10",
    "DGX Spark": "GB10",
    "H100-80GB": "H100 SXM 80GB",
    "H100 80GB": "H100 SXM 80GB",
    "NVIDIA H100 80GB HBM3": "H100 SXM 80GB",
    "H20": "H20 96GB",
    "H20 96GB": "H20 96GB",
    "H200": "H200 141GB",
    "H200 141GB": "H200 141GB",
    "Intel Arc Pro B70 32GB": "Arc Pro B70",
    "Jetson AGX Thor": "Jetson AGX Thor",
    "L20 48GB": "L20",
    "L4": "L4",
    "L4 24GB": "L4",
    "L40S 48GB": "L40S",
    "MI300X": "MI300X",
    "MI300X 192GB": "MI300X",
    "MI355X": "MI355X",
    "NVIDIA GeForce GTX 1660 Ti": "GTX 1660 Ti",
    "NVIDIA GeForce RTX 2070 SUPER": "RTX 2070 SUPER",
    "NVIDIA GeForce RTX 3060": "RTX 3060",
    "NVIDIA GeForce RTX 3060 Ti": "RTX 3060 Ti",
    "NVIDIA GeForce RTX 3080": "RTX 3080",
    "NVIDIA GeForce RTX 3090": "RTX 3090",
    "RTX 3090 24GB": "RTX 3090",
    "NVIDIA GeForce RTX 4070 Laptop GPU": "RTX 4070 Laptop",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "RTX 4070 Ti SUPER",
    "RTX 4080": "RTX 4080",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "RTX 4090 24GB": "RTX 4090",
    "RTX 5060 Ti 16GB": "RTX 5060 Ti 16GB",
    "RTX 5070 Ti 16GB": "RTX 5070 Ti",
    "RTX 5090 D 32GB": "RTX 5090 D",
    "RTX 5090": "RTX 5090",
    "RTX 5090 Laptop 24GB": "RTX 5090 Laptop",
    "RTX A5000": "RTX A5000",
    "NVIDIA RTX A6000": "RTX A6000",
    "RTX PRO 4500": "RTX PRO 4500 Blackwell",
    "RTX PRO 5000 72GB Blackwell": "RTX PRO 5000 Blackwell 72GB",
    "NVIDIA TITAN RTX": "TITAN RTX",
    "Quadro RTX 6000 24GB": "Quadro RTX 6000",
    "Strix Halo": "Radeon 8060S",
    "Tesla M60": "Tesla M60",
    "Tesla P40": "Tesla P40",
    "T4": "T4",
    "Tesla T4": "T4",
    "V100-32GB": "V100 SXM 32GB",
}

# Totals that engines printed on a named device, in GiB of two decimals (one for the GB10 and the B70).
TOTALS_IN_LOGS = [
    ("A100-SXM4-40GB", 39.38),
    ("A100-SXM4-40GB", 39.39),
    ("A100-SXM4-80GB", 79.25),
    ("A800-SXM4-80GB", 79.33),
    ("A10G", 21.99),
    ("GB10", 119.70),
    ("H100-80GB", 79.10),
    ("H100-80GB", 79.18),
    ("H100-80GB", 79.19),
    ("H100-80GB", 79.22),
    ("H200", 139.72),
    ("L4", 22.05),
    ("L40S", 44.53),
    ("L40S", 44.55),
    ("MI300X", 191.45),
    ("RTX 3090", 23.58),
    ("RTX 4080", 15.99),
    ("RTX 4090", 23.55),
    ("RTX 5060 Ti 16GB", 15.93),
    ("RTX 5090 Laptop", 22.36),
]


@pytest.mark.parametrize("text", NAMES_IN_LOGS)
def test_a_name_from_a_log_is_found(text: str) -> None:
    assert find_device(text).name == NAMES_IN_LOGS[text]


@pytest.mark.parametrize(("name", "printed_gib"), TOTALS_IN_LOGS)
def test_a_printed_total_lies_within_the_devices_range(name: str, printed_gib: float) -> None:
    device = find_device(name)
    half_a_digit = 0.005 * GIB
    assert device.total_low_bytes <= printed_gib * GIB + half_a_digit
    assert printed_gib * GIB - half_a_digit <= device.total_high_bytes


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_every_name_and_alias_leads_back_to_its_device(device: Device) -> None:
    assert find_device(device.name) is device
    for alias in (device.driver_name, *device.aliases):
        try:
            assert find_device(alias) is device
        except DeviceError as error:
            # One word for several sizes: never one of them in silence.
            assert device.name in str(error.facts["closest"])


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_a_devices_figures_hold_together(device: Device) -> None:
    assert device.total.low <= device.total.expected <= device.total.high
    if device.marketing_gb is not None:
        # "80GB" on the box stands between 0.9 and 1.05 of the GiB found: boxes count GB or GiB.
        assert 0.9 < device.total_bytes / (device.marketing_gb * GIB) < 1.05
    if device.smi_total_bytes is not None:
        assert device.total_bytes < device.smi_total_bytes
        assert device.total_high_bytes <= device.smi_total_bytes + 8 * MIB  # two printed decimals of a GiB
    if device.half_flops_per_s is not None:
        assert 1e13 < device.half_flops_per_s < 1e16
    if device.half_flops_per_s and device.fp8_flops_per_s:
        assert 1 <= device.fp8_flops_per_s / device.half_flops_per_s <= 2.1
    assert device.memory_bandwidth_bytes_per_s is None or 1e11 <= device.memory_bandwidth_bytes_per_s < 1e13
    assert device.evidence.source


def test_an_architecture_is_one_instruction_set() -> None:
    majors: dict[str, set[str]] = {}
    for device in devices():
        if device.vendor == "nvidia":
            assert device.compute_capability is not None
            majors.setdefault(device.architecture, set()).add(device.compute_capability.partition(".")[0])
    assert majors["blackwell"] == {"10"}
    assert majors["blackwell-sm120"] == {"12"}
    assert all(len(found) == 1 for found in majors.values())


def test_names_are_unique() -> None:
    names = [row["name"] for row in ROWS["devices"]]
    assert len(names) == len(set(names)) == len(devices())


def test_a_total_nobody_printed_is_assumed_and_says_by_which_rule() -> None:
    for row in ROWS["devices"]:
        device = find_device(row["name"])
        printed = "total_mib" in row and "rule" not in row
        assert device.evidence.kind is (EvidenceKind.REPORTED if printed else EvidenceKind.ASSUMED)
        assert printed or device.evidence.formula


def test_a_rule_counts_from_the_base_it_names() -> None:
    total = find_device("RTX A4000").total
    assert (total.low, total.expected, total.high) == (
        (16376 - 1110) * MIB,
        (16376 - 470) * MIB,
        (16376 - 270) * MIB,
    )
    total = find_device("MI210").total
    assert (total.low, total.expected, total.high) == (65339 * MIB - 16 * MIB, 65520 * MIB, 65520 * MIB)
    assert find_device("H800").total == find_device("H100").total


def test_the_h100_is_neither_80_gib_nor_80_gb() -> None:
    device = find_device("H100")
    assert device.total_bytes == 81089 * MIB
    assert 80 * 10**9 < device.total_low_bytes <= device.total_bytes < device.total_high_bytes < 80 * GIB


@pytest.mark.parametrize("text", ["h100", "H-100", " nvidia  H100 ", "h100_sxm", "NVIDIA H100 (80GB) HBM3"])
def test_case_and_punctuation_do_not_matter(text: str) -> None:
    assert find_device(text).name == "H100 SXM 80GB"


@pytest.mark.parametrize(
    "text", ["A100", "V100", "GH200", "MI300", "RTX 4060 Ti", "NVIDIA GeForce RTX 5060 Ti", "Orin"]
)
def test_a_name_of_several_sizes_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(DeviceError, match="can be") as caught:
        find_device(text)
    choices = caught.value.facts["closest"]
    assert isinstance(choices, tuple)
    assert len({find_device(choice).total_bytes for choice in choices}) > 1


@pytest.mark.parametrize(
    ("text", "total_bytes"),
    [
        ("80GiB", 80 * GIB),
        ("80 gib", 80 * GIB),
        ("80GB", 80 * 10**9),
        ("custom:79.19GiB", int(79.19 * GIB)),
        ("CUSTOM: 81089MiB", 81089 * MIB),
        ("custom:17179869184", 16 * GIB),
    ],
)
def test_a_size_is_a_device_of_exactly_that_size(text: str, total_bytes: int) -> None:
    device = find_device(text)
    assert device.total_low_bytes == device.total_bytes == device.total_high_bytes == total_bytes
    assert device.evidence.kind is EvidenceKind.ASSUMED
    assert (device.architecture, device.compute_capability, device.sm_count) == ("unknown", None, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cpu",
        "gpu",
        "H100 80GiB",
        "80",
        "80G",
        "custom:",
        "custom:H100",
        "custom:1B",
        "custom:5TiB",
        "-80GiB",
        "x" * 10**6,
    ],
)
def test_anything_else_is_a_device_error(text: str) -> None:
    with pytest.raises(DeviceError):
        find_device(text)


def test_a_small_bare_number_lacks_its_unit() -> None:
    with pytest.raises(DeviceError, match=r"80 bytes\? Write the unit: custom:80GiB"):
        find_device("custom:80")


def test_an_unknown_name_lists_the_closest_ones() -> None:
    with pytest.raises(DeviceError) as caught:
        find_device("H100 SMX")
    assert "H100 SXM 80GB" in str(caught.value.facts["closest"])
    assert "H100 SXM 80GB" in caught.value.message
    assert caught.value.exit_code == 2


@given(st.text(max_size=120))
def test_no_text_does_worse_than_a_device_error(text: str) -> None:
    try:
        device = find_device(text)
    except DeviceError:
        return
    assert device.total_bytes > 0
