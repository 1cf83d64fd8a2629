"""The published model: what `vramledger model --json` writes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import (
    SCHEMA_VERSION,
    ByteCount,
    EvidenceDocument,
    SchemaVersion,
    evidence_document,
)
from vramledger.models.checkpoint import Checkpoint
from vramledger.report.model_facts import LayerKind, ModelFacts, Part, model_facts


class PartDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A token mixer or channel mixer with its dimensions by name; a yes or no is 1 or 0."""

    kind: str
    dimensions: dict[str, int]


class LayerKindDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that are alike."""

    stack: Annotated[str, Meta(description="decoder, encoder or draft.")]
    runs: Annotated[tuple[tuple[int, int], ...], Meta(description="First and last index of each run.")]
    num_layers: int
    token_mixers: tuple[PartDocument, ...]
    channel_mixer: PartDocument | None


class ParametersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Elements, tied tensors once; `draft` (MTP heads) is not in `total`."""

    total: int
    active: Annotated[int, Meta(description="Elements that work on one token.")]
    embedding: int
    draft: int
    by_group: dict[str, int]


class FormatDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of the model stores in one format."""

    group: str
    format: str
    elements: int
    stored_bytes: ByteCount


class KvCostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes one token adds over all decoder layers, before any split over ranks."""

    dtype: str
    bytes_per_token: ByteCount
    windowed_bytes: Annotated[int, Meta(description="Part of it that stops growing at a window or chunk.")]


class RopeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One rotary embedding."""

    rotary_dim: int
    max_positions: int
    scaling: str
    factor: float
    original_positions: int


class TowerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An encoder for another modality; 0 stands for what the config does not say."""

    modality: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_item_tokens: int
    patches_per_token: int


class ModelDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A model and how its checkpoint stores it."""

    schema_version: SchemaVersion
    kind: Literal["model"]
    id: str
    architecture: str
    model_type: str
    dtype: str
    quantization: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    is_pooling: bool
    num_layers: int
    layers: tuple[LayerKindDocument, ...]
    parameters: ParametersDocument
    formats: tuple[FormatDocument, ...]
    disk_bytes: ByteCount
    disk_evidence: EvidenceDocument
    kv_cache: tuple[KvCostDocument, ...]
    state_bytes_per_sequence: Annotated[
        int | None, Meta(description="Constant state of recurrent layers; null where it could not be sized.")
    ]
    declared_kv_dtype: Annotated[str | None, Meta(description="KV cache type the checkpoint asks for.")]
    rope: tuple[RopeDocument, ...]
    towers: tuple[TowerDocument, ...]
    differences: Annotated[tuple[str, ...], Meta(description="Where config and headers disagree.")]
    notes: tuple[str, ...]


def model_document(checkpoint: Checkpoint, facts: ModelFacts | None = None) -> ModelDocument:
    """The model as it is published."""
    facts = facts or model_facts(checkpoint)
    model, counts = checkpoint.model, facts.parameters
    return ModelDocument(
        schema_version=SCHEMA_VERSION,
        kind="model",
        id=model.id,
        architecture=model.architecture,
        model_type=model.model_type,
        dtype=model.dtype.value,
        quantization=checkpoint.quantization,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        max_position_embeddings=model.max_position_embeddings,
        tie_word_embeddings=model.tie_word_embeddings,
        is_pooling=model.is_pooling,
        num_layers=model.num_layers,
        layers=tuple(_layers(kind) for kind in facts.layers),
        parameters=ParametersDocument(
            total=counts.total,
            active=counts.active,
            embedding=counts.embedding,
            draft=counts.draft,
            by_group=dict(counts.by_group),
        ),
        formats=tuple(
            FormatDocument(
                group=share.group,
                format=share.format,
                elements=share.elements,
                stored_bytes=share.stored_bytes,
            )
            for share in facts.formats
        ),
        disk_bytes=checkpoint.disk_bytes,
        disk_evidence=evidence_document(checkpoint.disk_evidence),
        kv_cache=tuple(
            KvCostDocument(
                dtype=cost.dtype, bytes_per_token=cost.bytes_per_token, windowed_bytes=cost.windowed_bytes
            )
            for cost in facts.kv_costs
        ),
        state_bytes_per_sequence=facts.state_bytes_per_sequence,
        declared_kv_dtype=checkpoint.declared_kv_dtype,
        rope=tuple(
            RopeDocument(
                rotary_dim=rope.rotary_dim,
                max_positions=rope.max_positions,
                scaling=rope.scaling,
                factor=rope.factor,
                original_positions=rope.original_positions,
            )
            for rope in model.rope
        ),
        towers=tuple(
            TowerDocument(
                modality=tower.modality,
                hidden_size=tower.hidden_size,
                intermediate_size=tower.intermediate_size,
                num_layers=tower.num_layers,
                num_heads=tower.num_heads,
                max_item_tokens=tower.max_item_tokens,
                patches_per_token=tower.patches_per_token,
            )
            for tower in model.towers
        ),
        differences=checkpoint.differences,
        notes=model.notes,
    )


def _layers(kind: LayerKind) -> LayerKindDocument:
    return LayerKindDocument(
        stack=kind.stack,
        runs=kind.runs,
        num_layers=kind.num_layers,
        token_mixers=tuple(_part(part) for part in kind.token_mixers),
        channel_mixer=_part(kind.channel_mixer) if kind.channel_mixer is not None else None,
    )


def _part(part: Part) -> PartDocument:
    return PartDocument(kind=part.kind, dimensions=dict(part.dimensions))
