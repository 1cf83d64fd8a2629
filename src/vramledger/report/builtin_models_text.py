"""The built-in models as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.report.builtin_models_document import BuiltinModelsDocument
from vramledger.report.text import Line, billions, columns, gib, line, wrapped


def builtin_models_lines(document: BuiltinModelsDocument, *, width: int = 80) -> Iterator[Line]:
    """A row for each model, then where each config is from."""
    rows = [("MODEL", "parameters", "active", "GiB", "mixers")]
    for item in document.models:
        rows.append(
            (
                item.model,
                billions(item.parameters),
                "" if item.active_parameters == item.parameters else billions(item.active_parameters),
                gib(item.disk_bytes),
                ", ".join(kind for kind in item.mixers if kind != "dense_mlp"),
            )
        )
    yield from columns(rows, right=(1, 2, 3), styles=("head",), width=width, wrap_column=4)
    yield line()
    yield line("config.json of each", "head")
    for item in document.models:
        yield from wrapped(f"{item.id}: {item.source}", width, first="  ", rest="    ")
    yield line()
    yield from wrapped(
        "A built-in model is a published config.json, without headers of files: formats and sizes follow from it. "
        "GiB is the checkpoint on disk.",
        width,
        style="dim",
    )
