"""Rates and lengths of clients by time, read from the two tables that ServeGen's data are kept in (see `client_windows`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vramledger.errors import InputError
from vramledger.models.sources.bounded_file import quote
from vramledger.workload.columnar.client_lengths import Pdf, read_pdf
from vramledger.workload.columnar.source import Source
from vramledger.workload.columnar.tables import parquet_batches, parquet_names

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NS = 10**9
RATES = ("client", "t_s", "rate_per_s", "cv", "pattern", "p1", "p2")
PDFS = ("client", "t_s", "field", "pdf")
PATTERNS = ("", "Gamma", "Weibull")
MOST_WINDOWS = 10_000_000
MOST_PDF_BYTES = 2**30
MOST_RATE = 1e6
LEAST_GAMMA, LEAST_WEIBULL = 0.001, 0.1
"""Shapes; below these nearly all gaps are 0 and the mean lies in what is never drawn."""
WINDOW_NS = 600 * NS


class Windows(NamedTuple):
    """One client's windows in order: when each begins (and the last ends), requests a second, shape of the gaps, kind of pattern."""

    begins_ns: Ints
    rates: Floats
    shapes: Floats
    patterns: Ints


class ClientLengths:
    """Prompts and answers of all clients by time; a text is read when its window is first asked for."""

    def __init__(self, texts: Mapping[int, Mapping[int, Mapping[str, tuple[int, str]]]], name: str) -> None:
        self._texts = texts
        self._begins = {client: sorted(windows) for client, windows in texts.items()}
        self._name = name
        self._read: dict[tuple[int, int], tuple[list[Pdf], Pdf] | None] = {}

    def knows(self, client: int) -> bool:
        """Whether the client has lengths at any time."""
        return bool(self._begins.get(client))

    def draw(self, client: int, time_ns: int, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Prompts and answers at a time, of at least one token each. Windows in which the client has no lengths take the nearest."""
        if not count:
            none = np.empty(0, dtype=np.int64)
            return none, none
        inputs, output = self._at(client, time_ns)
        prompts = np.zeros(count, dtype=np.int64)
        for pdf in inputs:
            prompts = prompts + pdf.draw(count, rng)
        return np.maximum(prompts, 1), np.maximum(output.draw(count, rng), 1)

    def _at(self, client: int, time_ns: int) -> tuple[list[Pdf], Pdf]:
        begins = self._begins[client]
        here = max(int(np.searchsorted(begins, time_ns // NS, side="right")) - 1, 0)
        by_distance = sorted(range(len(begins)), key=lambda place: (abs(place - here), place))
        for place in by_distance:
            found = self._pdfs(client, begins[place])
            if found is not None:
                return found
        raise InputError(f"{self._name}: client {client} has no lengths at any time", file=self._name)

    def _pdfs(self, client: int, begin_s: int) -> tuple[list[Pdf], Pdf] | None:
        key = client, begin_s
        if key not in self._read:
            fields = self._texts[client][begin_s]
            pdfs = {field: self._pdf(row, text) for field, (row, text) in fields.items()}
            inputs = [pdf for field, pdf in pdfs.items() if _is_input(field) and len(pdf.values)]
            output = pdfs.get("output_tokens")
            self._read[key] = (inputs, output) if inputs and output and len(output.values) else None
        return self._read[key]

    def _pdf(self, row: int, text: str) -> Pdf:
        try:
            return read_pdf(text)
        except ValueError as problem:
            raise InputError(
                f"{self._name}: row {row}: pdf {quote(text[:80])}: {problem}",
                file=self._name,
                row=row,
                column="pdf",
                value=quote(text[:80]),
            ) from None


def read_windows(source: Source) -> dict[int, Windows]:
    """Each client's windows. Raises InputError for a row that cannot be."""
    parts: list[dict[str, npt.NDArray[Any]]] = []
    rows = 0
    for cells, numbers in _table(source, RATES):
        part: dict[str, npt.NDArray[Any]] = {
            name: _numbers(source, name, cells[name], numbers) for name in RATES if name != "pattern"
        }
        part["pattern"] = _patterns(source, cells["pattern"], numbers)
        least = np.where(part["pattern"] == PATTERNS.index("Weibull"), LEAST_WEIBULL, LEAST_GAMMA)
        fitted = (part["pattern"] > 0) & (part["rate_per_s"] > 0)
        _refuse(source, numbers, fitted & ~((part["p1"] >= least) & (part["p1"] <= 1e4)), "p1", part["p1"])
        parts.append(part)
        rows += len(numbers)
        if rows > MOST_WINDOWS:
            raise InputError(f"{source.name} has more than {MOST_WINDOWS:,} rows", file=source.name)
    if not rows:
        raise InputError(f"{source.name} has no rows", file=source.name)
    table = {name: np.concatenate([part[name] for part in parts]) for name in RATES}
    order = np.lexsort((table["t_s"], table["client"]))
    table = {name: values[order] for name, values in table.items()}
    clients, starts = np.unique(table["client"], return_index=True)
    found = {}
    for client, here in zip(clients.tolist(), np.split(np.arange(rows), starts[1:]), strict=True):
        begins = np.rint(table["t_s"][here] * NS).astype(np.int64)
        steps = np.diff(begins)
        if (steps <= 0).any():
            raise InputError(
                f"{source.name}: client {int(client)} has two windows at one time",
                file=source.name,
                value=int(client),
            )
        last = begins[-1] + (int(np.median(steps)) if len(steps) else WINDOW_NS)
        found[int(client)] = Windows(
            np.append(begins, last), table["rate_per_s"][here], table["p1"][here], table["pattern"][here]
        )
    return found


def read_lengths(source: Source) -> ClientLengths:
    texts: dict[int, dict[int, dict[str, tuple[int, str]]]] = {}
    size = 0
    for cells, numbers in _table(source, PDFS):
        clients = _numbers(source, "client", cells["client"], numbers).astype(np.int64).tolist()
        times = _numbers(source, "t_s", cells["t_s"], numbers).astype(np.int64).tolist()
        fields, pdfs = cells["field"].to_pylist(), cells["pdf"].to_pylist()
        for row, client, time_s, field, pdf in zip(
            numbers.tolist(), clients, times, fields, pdfs, strict=True
        ):
            if not isinstance(field, str) or not isinstance(pdf, str):
                raise InputError(
                    f"{source.name}: row {row}: field and pdf are texts", file=source.name, row=row
                )
            if _is_input(field) or field == "output_tokens":
                size += len(pdf)
                if size > MOST_PDF_BYTES:
                    raise InputError(
                        f"{source.name} has more than {MOST_PDF_BYTES:,} bytes of pdf", file=source.name
                    )
                texts.setdefault(client, {}).setdefault(time_s, {})[field] = row, pdf
    return ClientLengths(texts, source.name)


def _is_input(field: str) -> bool:
    return field.endswith("_tokens") and field != "output_tokens"


def _table(source: Source, wanted: Sequence[str]) -> Iterator[tuple[dict[str, Any], Ints]]:
    names = parquet_names(source)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InputError(
            f"{source.name} has no column {missing[0]!r}; it has {quote(', '.join(names[:20]))}",
            file=source.name,
            column=missing[0],
        )
    return parquet_batches(source, wanted)


_LIMITS = {"client": 10**6, "t_s": 10**9, "rate_per_s": MOST_RATE, "cv": 1e9, "p1": 1e9, "p2": 1e9}


def _numbers(source: Source, name: str, cells: Any, numbers: Ints) -> Floats:
    try:
        values = np.asarray(cells.cast("double").to_numpy(zero_copy_only=False), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"{source.name}: column {name} is not of numbers", file=source.name, column=name
        ) from None
    _refuse(source, numbers, ~((values >= 0) & (values <= _LIMITS[name])), name, values)
    return values


def _patterns(source: Source, cells: Any, numbers: Ints) -> Ints:
    known = {pattern: place for place, pattern in enumerate(PATTERNS)}
    texts = [text or "" for text in cells.to_pylist()]
    found = np.array([known.get(text, -1) for text in texts], dtype=np.int64)
    _refuse(source, numbers, found < 0, "pattern", np.array(texts, dtype=object))
    return found


def _refuse(source: Source, numbers: Ints, wrong: npt.NDArray[np.bool_], name: str, values: Any) -> None:
    if wrong.any():
        place = int(np.argmax(wrong))
        row, value = int(numbers[place]), quote(getattr(values[place], "item", lambda: values[place])())
        raise InputError(
            f"{source.name}: row {row}: {name} {value} cannot be",
            file=source.name,
            row=row,
            column=name,
            value=value,
        )
