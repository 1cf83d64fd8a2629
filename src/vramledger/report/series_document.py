"""The published account of a series that was sampled: what `vramledger sample --json` prints. The rows are in the file."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramledger.documents.plan import SchemaVersion
from vramledger.ledger import Phase

SCHEMA_VERSION = "1.0"


class MarkDocument(msgspec.Struct, frozen=True, kw_only=True):
    """From `at_s` on the instance was at `label`."""

    at_s: Annotated[float, Meta(description="Unix time.")]
    label: str
    phase: Annotated[Phase | None, Meta(description="Phase of the ledger, null outside of them.")]


class SeriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One run of `vramledger sample`; of --mark, the mark that was left, and no rows."""

    schema_version: SchemaVersion
    kind: Literal["series"]
    file: str
    rows: Annotated[int, Meta(description="Rows written, marks among them.")]
    from_s: Annotated[float, Meta(description="Unix time at which it began.")]
    until_s: Annotated[float, Meta(description="Unix time of the last reading.")]
    sources: Annotated[tuple[str, ...], Meta(description="What was asked.")]
    marks: tuple[MarkDocument, ...]
    notes: Annotated[tuple[str, ...], Meta(description="What could not be asked, and why.")]


def series_document(
    *,
    file: str,
    rows: int = 0,
    from_s: float,
    until_s: float,
    sources: tuple[str, ...] = (),
    marks: tuple[tuple[float, str, Phase | None], ...] = (),
    notes: tuple[str, ...] = (),
) -> SeriesDocument:
    """The account as it is published; a mark is (time, label, phase)."""
    return SeriesDocument(
        schema_version=SCHEMA_VERSION,
        kind="series",
        file=file,
        rows=rows,
        from_s=from_s,
        until_s=until_s,
        sources=sources,
        marks=tuple(MarkDocument(at_s=at_s, label=label, phase=phase) for at_s, label, phase in marks),
        notes=notes,
    )
