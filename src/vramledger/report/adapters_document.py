"""The published set of adapters: what `vramledger adapters --json` writes, and how it is put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import (
    SCHEMA_VERSION,
    ByteCount,
    EvidenceDocument,
    SchemaVersion,
    evidence_document,
)
from vramledger.engines.adapter_service import AdapterRules, AdapterService, Place, ServedAdapter
from vramledger.engines.adapter_slots import MergedCopy, merged_copy
from vramledger.ledger import Owner
from vramledger.models.adapters.names import PartKind
from vramledger.models.adapters.placing import PlacedAdapter, place

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.hardware.catalogue import Device
    from vramledger.models.adapters.adapter import Adapter
    from vramledger.models.checkpoint import Checkpoint

_NO_POOL = (Owner.KV_CACHE, Owner.HEADROOM)
_BESIDE = {
    PartKind.MAGNITUDE: "magnitude vectors (DoRA)",
    PartKind.FULL: "whole modules",
    PartKind.BIAS: "biases",
    PartKind.B_BIAS: "biases of B",
    PartKind.TOKENS: "trained token rows",
    PartKind.BASE_COPY: "copies of base weights",
    PartKind.OTHER: "other tensors",
}


class MergedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of the base matrices that the adapter touches, with the adapter added in."""

    bytes: Annotated[int, Meta(description="Over all ranks, in the base's own formats.")]
    touched_elements: int
    requantised: Annotated[
        tuple[str, ...],
        Meta(description="Quantised formats that a merge has to be requantised to, which loses precision."),
    ]


class ServedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter under the engine; bytes are those of one rank, host_bytes one process's."""

    place: Place
    own_bytes: Annotated[
        int, Meta(description="At the adapter's own ranks: what a swap into the slot copies.")
    ]
    slot_bytes: int
    padding_bytes: Annotated[int, Meta(description="Held by the slot beyond the adapter.")]
    host_bytes: int
    refusals: tuple[str, ...]
    remarks: tuple[str, ...]


class AdapterDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter as its files have it, on its base model."""

    id: str
    rank: Annotated[int, Meta(description="The largest of its modules.")]
    alpha: float
    modules: tuple[str, ...]
    parameters: int
    disk_bytes: ByteCount
    disk_evidence: EvidenceDocument
    beside: Annotated[dict[str, int], Meta(description="Bytes of tensors that are no A or B.")]
    mismatches: Annotated[tuple[str, ...], Meta(description="What does not belong to the base model.")]
    merged: MergedDocument
    served: ServedDocument | None
    notes: tuple[str, ...]


class AdapterCostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The whole set on all ranks of one instance, expected values, against the same instance without adapters."""

    slots_bytes: int
    fixed_bytes: Annotated[
        int,
        Meta(description="Graphs, activations and buffers that come with adapters, whatever their number."),
    ]
    host_bytes: int
    disk_bytes: int
    merged_bytes: Annotated[int, Meta(description="Merged copies of the adapters that are served, together.")]
    tokens_with: int | None
    tokens_without: int | None
    holds: Annotated[bool | None, Meta(description="The verdict of the plan with the adapters.")]
    verdict: Annotated[str, Meta(description="That verdict in a sentence.")]
    break_even: Annotated[
        int | None,
        Meta(description="From how many adapters on merged copies take more than slots; null: never."),
    ]


class AdaptersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Adapters on one base model, and under one engine where a device was named."""

    schema_version: SchemaVersion
    kind: Literal["adapters"]
    model: str
    architecture: str
    quantization: str
    engine: str | None
    engine_version: str | None
    device: str | None
    slots: int | None
    slot_rank: int | None
    adapters: tuple[AdapterDocument, ...]
    cost: AdapterCostDocument | None
    sharing: Annotated[tuple[str, ...], Meta(description="What can share a batch and a graph.")]


def adapters_document(
    checkpoint: Checkpoint,
    adapters: Sequence[Adapter],
    *,
    device: Device | None = None,
    rules: AdapterRules | None = None,
    version: str | None = None,
    values: Mapping[str, object] | None = None,
    hot: int | None = None,
    planned: Planner | None = None,
) -> AdaptersDocument:
    """The adapters on the model; with a device and an engine's rules also what serving them takes.

    `planned` makes the engine's plan from its flags. Raises what placing, the rules and the plan raise.
    """
    service: AdapterService | None = None
    cost: AdapterCostDocument | None = None
    if device is not None and rules is not None:
        service = rules.adapter_service(
            checkpoint, device, version=version, values=values or {}, adapters=adapters, hot=hot
        )
    placed = (
        [use.placed for use in service.served]
        if service is not None
        else [place(adapter, checkpoint) for adapter in adapters]
    )
    merged = [merged_copy(item, checkpoint) for item in placed]
    served: Sequence[ServedAdapter | None] = service.served if service is not None else [None] * len(placed)
    if service is not None and rules is not None and planned is not None:
        with_flags, without_flags = rules.with_adapters(values or {}, service)
        cost = _cost(service, merged, planned(with_flags), planned(without_flags))
    return AdaptersDocument(
        schema_version=SCHEMA_VERSION,
        kind="adapters",
        model=checkpoint.model.id,
        architecture=checkpoint.model.architecture,
        quantization=checkpoint.quantization,
        engine=service.engine if service else None,
        engine_version=service.version if service else None,
        device=device.name if device is not None else None,
        slots=service.slots if service else None,
        slot_rank=service.rank if service else None,
        adapters=tuple(
            _adapter(item, copy, use) for item, copy, use in zip(placed, merged, served, strict=True)
        ),
        cost=cost,
        sharing=service.sharing if service else (),
    )


class Planner(msgspec.Struct, frozen=True):
    """An engine's plan of one model on one device, from its flags by name."""

    checkpoint: Checkpoint
    device: Device
    engine: str

    def __call__(self, values: Mapping[str, object]) -> Plan:
        from vramledger.planning import plan

        return plan(self.checkpoint, self.device, engine=self.engine, **values)  # type: ignore[arg-type]


def _adapter(placed: PlacedAdapter, merged: MergedCopy, use: ServedAdapter | None) -> AdapterDocument:
    adapter = placed.adapter
    beside: dict[str, int] = {}
    for item in adapter.extras:
        name = _BESIDE[item.kind]
        beside[name] = beside.get(name, 0) + item.stored_bytes
    return AdapterDocument(
        id=adapter.id,
        rank=placed.largest_rank,
        alpha=adapter.config.alpha,
        modules=placed.modules,
        parameters=adapter.parameters or placed.elements,
        disk_bytes=adapter.disk_bytes,
        disk_evidence=evidence_document(adapter.disk_evidence),
        beside=beside,
        mismatches=tuple(item.text for item in placed.mismatches),
        merged=MergedDocument(
            bytes=merged.stored_bytes,
            touched_elements=merged.touched_elements,
            requantised=merged.quantised,
        ),
        served=None
        if use is None
        else ServedDocument(
            place=use.place,
            own_bytes=use.own_bytes,
            slot_bytes=use.slot_bytes,
            padding_bytes=use.padding_bytes,
            host_bytes=use.host_bytes,
            refusals=use.refusals,
            remarks=use.remarks,
        ),
        notes=adapter.notes,
    )


def _cost(
    service: AdapterService, merged: Sequence[MergedCopy], with_them: Plan, without: Plan
) -> AdapterCostDocument:
    pairs = list(zip(service.served, merged, strict=True))
    loaded = [(use, copy) for use, copy in pairs if use.place is not Place.REFUSED]
    slots = _held(with_them, (Owner.ADAPTERS,))
    others = tuple(owner for owner in Owner if owner is not Owner.ADAPTERS and owner not in _NO_POOL)
    fixed = max(_held(with_them, others) - _held(without, others), 0)
    copies = sum(copy.stored_bytes for _, copy in loaded)
    return AdapterCostDocument(
        slots_bytes=slots,
        fixed_bytes=fixed,
        host_bytes=sum(entry.bytes.expected for entry in with_them.host if entry.owner is Owner.ADAPTERS),
        disk_bytes=sum(use.placed.adapter.disk_bytes for use, _ in loaded),
        merged_bytes=copies,
        tokens_with=with_them.kv_pool.tokens.expected if with_them.kv_pool else None,
        tokens_without=without.kv_pool.tokens.expected if without.kv_pool else None,
        holds=with_them.verdict.holds,
        verdict=with_them.verdict.summary,
        break_even=break_even(fixed, slots // service.slots, copies // len(loaded)) if loaded else None,
    )


def break_even(fixed_bytes: int, slot_bytes: int, copy_bytes: int) -> int | None:
    """The smallest number of adapters whose merged copies take more than their slots and what comes with them;
    None where a slot is not smaller than a copy."""
    if copy_bytes <= slot_bytes:
        return None
    return fixed_bytes // (copy_bytes - slot_bytes) + 1


def _held(plan: Plan, owners: tuple[Owner, ...]) -> int:
    """Expected bytes of owners over all ranks."""
    return sum(len(rank.ranks) * rank.owned(owner).expected for rank in plan.ranks for owner in owners)
