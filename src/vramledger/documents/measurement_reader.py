"""A published measurement read back into the values it was made from."""

from __future__ import annotations

from vramledger.documents.decoding import by_name, read_document
from vramledger.documents.measurement import MeasurementDocument
from vramledger.ledger import ByteRange
from vramledger.measurement import (
    AllocatorState,
    Figure,
    GraphCapture,
    HostMemory,
    MeasuredPool,
    Measurement,
    MeasurementSource,
)
from vramledger.pool import FloatRange, IntRange


def read_measurement(text: bytes, *, where: str) -> Measurement:
    """The measurement that `vramledger measure --json` wrote; `where` names it in errors.

    Raises InputError for what is not JSON, is another document, is of a newer major version or holds figures that
    cannot be (a range upside down).
    """
    return read_document(
        text,
        MeasurementDocument,
        measurement_of,
        where=where,
        name="measurement",
        command="vramledger measure --json",
    )


def measurement_of(document: MeasurementDocument) -> Measurement:
    """The measurement behind a document: `measurement_document` undone. Raises ValueError for figures that cannot be."""
    return Measurement(
        sources=by_name(document.sources, tuple[MeasurementSource, ...]),
        engine=document.engine,
        engine_version=document.engine_version,
        model=document.model,
        model_revision=document.model_revision,
        architecture=document.architecture,
        device=document.device,
        device_total_bytes=None
        if document.device_total_bytes is None
        else by_name(document.device_total_bytes, ByteRange),
        tp=document.tp,
        pp=document.pp,
        dp=document.dp,
        ep=document.ep,
        settings=tuple(document.settings.items()),
        figures=by_name(document.figures, tuple[Figure, ...]),
        pools=tuple(_pool(pool) for pool in by_name(document.pools, tuple[MeasuredPool, ...])),
        allocator=by_name(document.allocator, tuple[AllocatorState, ...]),
        graphs=by_name(document.graphs, tuple[GraphCapture, ...]),
        host=by_name(document.host, tuple[HostMemory, ...]),
        notes=document.notes,
    )


def _pool(pool: MeasuredPool) -> MeasuredPool:
    for item in (pool.num_blocks, pool.tokens, pool.max_concurrency):
        _check_order(item)
    return pool


def _check_order(found: IntRange | FloatRange | None) -> None:
    if found is not None and not found.low <= found.expected <= found.high:
        raise ValueError(f"not a range: {found.low} <= {found.expected} <= {found.high}")
