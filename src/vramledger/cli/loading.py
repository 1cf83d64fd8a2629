"""A model for a command, with what headers still say where it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramledger.errors import UnknownArchitecture, UnknownFormat, VramledgerError
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.models.sources.load import Source, load_source

if TYPE_CHECKING:
    from vramledger.models.headers import HeaderSummary
    from vramledger.models.sources.header_table import HeaderTable


def load(text: str, *, headers: bool) -> Checkpoint:
    """The model at a folder, file, hub id or `builtin:NAME`.

    UnknownArchitecture and UnknownFormat carry a HeaderSummary as the fact `headers` where headers or an index were
    read.
    """
    source: Source | None = None
    try:
        source = load_source(text, headers=headers)
        return checkpoint_from_source(source)
    except (UnknownArchitecture, UnknownFormat) as problem:
        summary = _summary(text, source) if headers else None
        if summary is not None:
            problem.facts["headers"] = summary
        raise


def _summary(text: str, source: Source | None) -> HeaderSummary | None:
    from vramledger.models.headers import describe_headers, summarise

    if source is not None:
        return describe_headers(source)
    table = _gguf_table(text) if text.endswith(".gguf") else None
    return None if table is None else summarise(table)


def _gguf_table(text: str) -> HeaderTable | None:
    from vramledger.models.sources.bounded_file import path_of
    from vramledger.models.sources.gguf import read_gguf

    try:
        return read_gguf(path_of(text)).table()
    except VramledgerError:
        return None
