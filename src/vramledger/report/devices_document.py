"""The published catalogue: what `vramledger devices --json` writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import (
    SCHEMA_VERSION,
    ByteInterval,
    EvidenceDocument,
    SchemaVersion,
    byte_interval,
    evidence_document,
)
from vramledger.hardware.catalogue import Device


class DeviceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator; what is not known is null."""

    name: str
    driver_name: str
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    compute_capability: str | None
    marketing_gb: Annotated[int | None, Meta(description="Size on the box, never used as bytes.")]
    total_bytes: Annotated[ByteInterval, Meta(description="Memory as torch reports it.")]
    smi_total_bytes: int | None
    sm_count: int | None
    memory_bandwidth_bytes_per_s: int | None
    half_flops_per_s: int | None
    fp8_flops_per_s: int | None
    link_bandwidth_bytes_per_s: int | None
    pcie_bandwidth_bytes_per_s: int | None
    unified_memory: bool
    evidence: Annotated[EvidenceDocument, Meta(description="Speaks of total_bytes.")]


class DevicesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The catalogue of devices."""

    schema_version: SchemaVersion
    kind: Literal["devices"]
    devices: tuple[DeviceDocument, ...]


def devices_document(catalogue: Iterable[Device]) -> DevicesDocument:
    """The catalogue as it is published."""
    return DevicesDocument(
        schema_version=SCHEMA_VERSION, kind="devices", devices=tuple(_device(item) for item in catalogue)
    )


def _device(device: Device) -> DeviceDocument:
    return DeviceDocument(
        name=device.name,
        driver_name=device.driver_name,
        aliases=device.aliases,
        vendor=device.vendor,
        architecture=device.architecture,
        compute_capability=device.compute_capability,
        marketing_gb=device.marketing_gb,
        total_bytes=byte_interval(device.total),
        smi_total_bytes=device.smi_total_bytes,
        sm_count=device.sm_count,
        memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s,
        half_flops_per_s=device.half_flops_per_s,
        fp8_flops_per_s=device.fp8_flops_per_s,
        link_bandwidth_bytes_per_s=device.link_bandwidth_bytes_per_s,
        pcie_bandwidth_bytes_per_s=device.pcie_bandwidth_bytes_per_s,
        unified_memory=device.unified_memory,
        evidence=evidence_document(device.evidence),
    )
