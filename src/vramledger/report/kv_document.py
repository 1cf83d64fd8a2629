"""The published comparison of KV formats: what `vramledger kv --json` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from vramledger.documents.plan import (
    SCHEMA_VERSION,
    ByteInterval,
    SchemaVersion,
    byte_interval,
)
from vramledger.formats.kv_shapes import Side
from vramledger.kvcache.format_costs import FormatCost, LengthCost
from vramledger.models.model import Model

FULL_BITS = 16


class KvSideDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of all keys, or of all values, by what they are."""

    packed_bytes: int
    scale_bytes: Annotated[int, Meta(description="Scales and zero points.")]
    window_bytes: Annotated[int, Meta(description="Tokens that are kept in full precision.")]
    outlier_bytes: int
    tables_bytes: Annotated[int, Meta(description="Held once, whatever the length.")]
    padding_bytes: int


class KvLengthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One format at one length, all layers of one rank and all sequences."""

    context_len: int
    bytes: int
    bytes_per_token: Annotated[float, Meta(description="bytes over the tokens of all sequences.")]
    effective_bits: Annotated[
        float, Meta(description="Bits stored for each element that a 16-bit cache would keep.")
    ]
    ratio_to_bf16: float
    key: KvSideDocument
    value: KvSideDocument
    index_bytes: Annotated[int, Meta(description="Index keys of sparse attention, which no format changes.")]
    workspace_bytes: Annotated[
        ByteInterval | None,
        Meta(description="What reading the largest layer back takes, one layer at a time; null: not known."),
    ]


class KvFormatDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One format; `refusal` says why it is not for this model, and then `lengths` is empty."""

    name: str
    shipped_by: str
    source: str
    raw_bits: float
    refusal: str | None
    notes: tuple[str, ...]
    lengths: tuple[KvLengthDocument, ...]


class KvDocument(msgspec.Struct, frozen=True, kw_only=True):
    """KV formats side by side on one model."""

    schema_version: SchemaVersion
    kind: Literal["kv"]
    model: str
    architecture: str
    tp: int
    sequences: int
    state_bytes_per_sequence: Annotated[
        int | None,
        Meta(
            description="Constant state of recurrent layers on one rank, whatever the format; null: not known."
        ),
    ]
    formats: tuple[KvFormatDocument, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Formats on one model, and the 16-bit cache that they are measured against."""

    model: Model
    tp: int
    sequences: int
    state_bytes_per_sequence: int | None
    costs: tuple[FormatCost, ...]
    full: FormatCost


def kv_document(comparison: Comparison) -> KvDocument:
    """The comparison as it is published."""
    full = {length.context_len: length for length in comparison.full.lengths}
    return KvDocument(
        schema_version=SCHEMA_VERSION,
        kind="kv",
        model=comparison.model.id,
        architecture=comparison.model.architecture,
        tp=comparison.tp,
        sequences=comparison.sequences,
        state_bytes_per_sequence=comparison.state_bytes_per_sequence,
        formats=tuple(_format(cost, full, comparison.sequences) for cost in comparison.costs),
    )


def _format(cost: FormatCost, full: dict[int, LengthCost], sequences: int) -> KvFormatDocument:
    return KvFormatDocument(
        name=cost.store.name,
        shipped_by=cost.store.shipped_by,
        source=cost.store.source,
        raw_bits=cost.raw_bits,
        refusal=cost.refusal or None,
        notes=cost.notes,
        lengths=tuple(_length(length, full[length.context_len], sequences) for length in cost.lengths),
    )


def _length(length: LengthCost, full: LengthCost, sequences: int) -> KvLengthDocument:
    return KvLengthDocument(
        context_len=length.context_len,
        bytes=length.bytes,
        bytes_per_token=length.bytes / (length.context_len * sequences),
        effective_bits=effective_bits(length, full),
        ratio_to_bf16=length.bytes / full.bytes if full.bytes else 1.0,
        key=_side(length.key),
        value=_side(length.value),
        index_bytes=length.index_bytes,
        workspace_bytes=None if length.workspace is None else byte_interval(length.workspace),
    )


def _side(side: Side) -> KvSideDocument:
    return KvSideDocument(**asdict(side))


def effective_bits(length: LengthCost, full: LengthCost) -> float:
    """Bits stored for each element that the 16-bit cache keeps."""
    kept = full.key.bytes + full.value.bytes
    return FULL_BITS * (length.key.bytes + length.value.bytes) / kept if kept else float(FULL_BITS)


def compare_formats(
    model: Model, names: Sequence[str], contexts: Sequence[int], *, sequences: int, tp: int
) -> Comparison:
    """The formats of these names (all where there are none) on `model`.

    Raises FlagError for an unknown format and for heads that do not divide by `tp`.
    """
    from vramledger.formats.kv_stores import KV_STORES, find_store
    from vramledger.kvcache.format_costs import format_costs
    from vramledger.report.model_facts import state_bytes

    stores = tuple(find_store(name) for name in names) or KV_STORES
    full, *costs = format_costs(model, (find_store("bf16"), *stores), contexts, sequences=sequences, tp=tp)
    return Comparison(
        model=model,
        tp=tp,
        sequences=sequences,
        state_bytes_per_sequence=state_bytes(model, tp),
        costs=tuple(costs),
        full=full,
    )
