"""Adapters on a base model as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramledger.engines.adapter_service import Place
from vramledger.report.adapters_document import AdapterCostDocument, AdapterDocument, AdaptersDocument
from vramledger.report.text import Line, billions, columns, line, wrapped
from vramledger.units import format_bytes

_PLACES = {Place.DEVICE: "device", Place.HOST: "host", Place.DISK: "disk", Place.REFUSED: "refused"}
_LONGEST_NAME = 28


def adapters_lines(document: AdaptersDocument, *, width: int = 80) -> Iterator[Line]:
    """Adapters as their files have them and as merged copies; then what an engine makes of each; then the whole set."""
    yield from wrapped(_title(document), width, rest="  ", style="head")
    yield line()
    yield from _files(document.adapters, width)
    if document.engine is not None:
        yield line()
        yield from _served(document, width)
    if document.cost is not None:
        yield line()
        yield from _set(document.cost, width)
    yield from _remarks(document, width)


def _title(document: AdaptersDocument) -> str:
    parts = [document.model, document.architecture, document.quantization]
    if document.engine is not None:
        parts += [f"{document.engine} {document.engine_version}", document.device or ""]
    count = len(document.adapters)
    return " · ".join([*parts, f"{count} adapter" + ("" if count == 1 else "s")])


def _files(adapters: Sequence[AdapterDocument], width: int) -> Iterator[Line]:
    rows = [("adapter", "rank", "alpha", "params", "on disk", "merged", "modules")]
    rows += [
        (
            _name(item),
            str(item.rank),
            f"{item.alpha:g}",
            billions(item.parameters),
            format_bytes(item.disk_bytes),
            format_bytes(item.merged.bytes),
            ", ".join(item.modules),
        )
        for item in adapters
    ]
    yield from columns(rows, right=(1, 2, 3, 4, 5), styles=("head",), width=width, wrap_column=6)
    yield from wrapped(
        "merged: a copy of the matrices it touches in the base's formats, with the adapter added in",
        width,
        style="dim",
    )
    formats = sorted({name for item in adapters for name in item.merged.requantised})
    if formats:
        yield from wrapped(
            f"A merge into {', '.join(formats)} has to be requantised: the result is not the base with the adapter.",
            width,
            style="unsure",
        )


def _served(document: AdaptersDocument, width: int) -> Iterator[Line]:
    yield from wrapped(
        f"{document.slots} slot{'' if document.slots == 1 else 's'} of rank {document.slot_rank}; bytes of one rank, host bytes of one process",
        width,
        style="dim",
    )
    rows = [("adapter", "lies on", "swap in", "slot", "unused", "in host memory")]
    for item in document.adapters:
        served = item.served
        if served is not None:
            rows.append(
                (
                    _name(item),
                    _PLACES[served.place],
                    format_bytes(served.own_bytes),
                    format_bytes(served.slot_bytes),
                    format_bytes(served.padding_bytes),
                    format_bytes(served.host_bytes),
                )
                if served.place is not Place.REFUSED
                else (_name(item), "refused", "", "", "", "")
            )
    yield from columns(rows, right=(2, 3, 4, 5), styles=("head",), width=width)


def _set(cost: AdapterCostDocument, width: int) -> Iterator[Line]:
    rows = [
        ("all ranks", "bytes"),
        ("slots", format_bytes(cost.slots_bytes)),
        ("graphs, activations and buffers for them", format_bytes(cost.fixed_bytes)),
        ("host memory", format_bytes(cost.host_bytes)),
        ("on disk", format_bytes(cost.disk_bytes)),
        ("merged copies instead", format_bytes(cost.merged_bytes)),
    ]
    yield from columns(rows, right=(1,), styles=("head",), width=width)
    if cost.break_even is None:
        text = "a slot takes as much as a merged copy: slots save nothing"
    elif cost.break_even == 1:
        text = "slots take less than merged copies from the first adapter on"
    else:
        text = f"slots take less than merged copies from {cost.break_even} adapters on"
    yield from wrapped(text, width)
    if cost.tokens_with is not None and cost.tokens_without is not None:
        lost = cost.tokens_without - cost.tokens_with
        yield from wrapped(
            f"KV tokens {cost.tokens_with:,} of {cost.tokens_without:,} without adapters ({lost:,} fewer)",
            width,
        )
    style = {True: "good", False: "bad", None: "unsure"}[cost.holds]
    yield from wrapped(cost.verdict, width, first="with adapters: ", rest="  ", style=style)


def _remarks(document: AdaptersDocument, width: int) -> Iterator[Line]:
    for text in document.sharing:
        yield from wrapped(text, width, first="shares: ", rest="  ")
    for item in document.adapters:
        served = item.served
        for text in served.refusals if served is not None else item.mismatches:
            yield from wrapped(
                f"{_name(item)} {text}" if served is not None else f"{_name(item)}: {text}",
                width,
                first="refused: " if served is not None else "misfit: ",
                rest="  ",
                style="bad",
            )
        for text in served.remarks if served is not None else ():
            yield from wrapped(f"{_name(item)} {text}", width, first="note: ", rest="  ", style="unsure")
        for name, size in item.beside.items():
            yield from wrapped(
                f"{_name(item)} holds {format_bytes(size)} of {name}",
                width,
                first="note: ",
                rest="  ",
                style="dim",
            )
        for text in item.notes:
            yield from wrapped(f"{_name(item)}: {text}", width, first="note: ", rest="  ", style="dim")
    if any(item.served is not None and item.served.refusals for item in document.adapters):
        yield from wrapped("What is refused needs a merged copy in an engine of its own.", width, style="dim")


def _name(item: AdapterDocument) -> str:
    return item.id if len(item.id) <= _LONGEST_NAME else "..." + item.id[3 - _LONGEST_NAME :]
