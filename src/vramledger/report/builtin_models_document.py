"""The built-in models as they are published: what `vramledger model --list --json` writes."""

from __future__ import annotations

from collections.abc import Iterable
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
from vramledger.models.builtin import PREFIX, BuiltinModel, read
from vramledger.models.loading import checkpoint_from_source
from vramledger.report.model_facts import model_facts


class BuiltinModelDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One model that comes with the package."""

    model: Annotated[str, Meta(description="What a command takes as MODEL.")]
    id: Annotated[str, Meta(description="The hub's own id.")]
    source: Annotated[str, Meta(description="Where its config.json is from.")]
    reconstructed: Annotated[
        bool, Meta(description="Written from published dimensions, because no original was found.")
    ]
    architecture: str
    quantization: str
    mixers: Annotated[
        tuple[str, ...], Meta(description="Kinds of token and channel mixers, most layers first.")
    ]
    has_towers: Annotated[bool, Meta(description="Takes more than text.")]
    is_pooling: bool
    parameters: Annotated[int, Meta(description="Elements, tied tensors once, without draft heads.")]
    active_parameters: Annotated[int, Meta(description="Elements that work on one token.")]
    published_parameters: Annotated[int | None, Meta(description="Elements of the published files.")]
    published_note: Annotated[str, Meta(description="How published_parameters relates to parameters.")]
    disk_bytes: ByteCount
    disk_evidence: EvidenceDocument
    max_position_embeddings: int


class BuiltinModelsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Models that need neither a file nor a network."""

    schema_version: SchemaVersion
    kind: Literal["builtin_models"]
    models: tuple[BuiltinModelDocument, ...]


def builtin_models_document(models: Iterable[BuiltinModel]) -> BuiltinModelsDocument:
    """The models as they are published, each described anew."""
    return BuiltinModelsDocument(
        schema_version=SCHEMA_VERSION, kind="builtin_models", models=tuple(_model(item) for item in models)
    )


def _model(item: BuiltinModel) -> BuiltinModelDocument:
    checkpoint = checkpoint_from_source(read(item.name))
    model, facts = checkpoint.model, model_facts(checkpoint)
    mixers: dict[str, int] = {}
    for layer in facts.layers:
        if layer.stack == "draft":
            continue
        for part in (*layer.token_mixers, *((layer.channel_mixer,) if layer.channel_mixer else ())):
            mixers[part.kind] = mixers.get(part.kind, 0) + layer.num_layers
    return BuiltinModelDocument(
        model=f"{PREFIX}{item.name}",
        id=item.id,
        source=item.source,
        reconstructed=item.reconstructed,
        architecture=model.architecture,
        quantization=checkpoint.quantization,
        mixers=tuple(sorted(mixers, key=lambda kind: -mixers[kind])),
        has_towers=bool(model.towers),
        is_pooling=model.is_pooling,
        parameters=facts.parameters.total,
        active_parameters=facts.parameters.active,
        published_parameters=item.published_parameters,
        published_note=item.published_note,
        disk_bytes=checkpoint.disk_bytes,
        disk_evidence=evidence_document(checkpoint.disk_evidence),
        max_position_embeddings=model.max_position_embeddings,
    )
