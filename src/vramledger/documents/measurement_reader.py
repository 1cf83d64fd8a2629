"""A published measurement read back into the values it was made from."""

from __future__ import annotations

from typing import Any

import msgspec

from vramledger.documents.measurement import MeasurementDocument
from vramledger.errors import InputError
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
    try:
        return measurement_of(msgspec.json.decode(text, type=MeasurementDocument))
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise InputError(
            f"{where} is not a measurement of version 1: {problem}; write one with vramledger measure --json",
            file=where,
            reason=str(problem),
        ) from None


def measurement_of(document: MeasurementDocument) -> Measurement:
    """The measurement behind a document: `measurement_document` undone. Raises ValueError for figures that cannot be."""
    return Measurement(
        sources=_value(document.sources, tuple[MeasurementSource, ...]),
        engine=document.engine,
        engine_version=document.engine_version,
        model=document.model,
        model_revision=document.model_revision,
        architecture=document.architecture,
        device=document.device,
        device_total_bytes=_value(document.device_total_bytes, ByteRange | None),
        tp=document.tp,
        pp=document.pp,
        dp=document.dp,
        ep=document.ep,
        settings=tuple(document.settings.items()),
        figures=_value(document.figures, tuple[Figure, ...]),
        pools=tuple(_pool(pool) for pool in _value(document.pools, tuple[MeasuredPool, ...])),
        allocator=_value(document.allocator, tuple[AllocatorState, ...]),
        graphs=_value(document.graphs, tuple[GraphCapture, ...]),
        host=_value(document.host, tuple[HostMemory, ...]),
        notes=document.notes,
    )


def _pool(pool: MeasuredPool) -> MeasuredPool:
    for item in (pool.num_blocks, pool.tokens, pool.max_concurrency):
        _check_order(item)
    return pool


def _check_order(found: IntRange | FloatRange | None) -> None:
    if found is not None and not found.low <= found.expected <= found.high:
        raise ValueError(f"not a range: {found.low} <= {found.expected} <= {found.high}")


def _value(found: object, target: Any) -> Any:
    return msgspec.convert(found, target, from_attributes=True)
