"""A model for a command, with what headers still say where it is refused."""

from __future__ import annotations

from vramledger.errors import UnknownArchitecture, UnknownFormat, VramledgerError
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.models.sources.header_table import HeaderTable
from vramledger.models.sources.load import load_source


def load(text: str, *, headers: bool) -> Checkpoint:
    """The model at a folder, file or hub id.

    UnknownArchitecture and UnknownFormat carry a HeaderFacts as the fact `headers` where there are any.
    """
    table: HeaderTable | None = None
    try:
        source = load_source(text, headers=headers)
        table = source.table
        return checkpoint_from_source(source)
    except (UnknownArchitecture, UnknownFormat) as problem:
        if table is None and headers and text.endswith(".gguf"):
            table = _gguf_table(text)
        if table is not None:
            from vramledger.report.headers_report import header_facts

            problem.facts["headers"] = header_facts(table)
        raise


def _gguf_table(text: str) -> HeaderTable | None:
    from pathlib import Path

    from vramledger.models.sources.gguf import read_gguf

    try:
        return read_gguf(Path(text).expanduser()).table()
    except VramledgerError:
        return None
