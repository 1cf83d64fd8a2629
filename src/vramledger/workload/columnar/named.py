"""Rows with named columns as requests: what CSV, Parquet and JSON lines have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from vramledger.errors import InputError
from vramledger.models.sources.bounded_file import quote
from vramledger.workload.columnar.findings import Findings
from vramledger.workload.columnar.numbers import Cut, Mask, scaled_numbers, texts, whole_numbers
from vramledger.workload.columnar.piece import LATEST_NS, MOST_TOKENS, Piece, kept
from vramledger.workload.columnar.times import ArrivalTimes
from vramledger.workload.columns import Ints, columns_with
from vramledger.workload.field_names import FIELD_NAMES, find_columns, unit_in
from vramledger.workload.reading_options import UNIT_NS

_TIME_WHY = {"is too large": "is too far away for its unit (are units mixed?)"}
NEEDED = ("prompt_tokens", "output_tokens")


class NamedColumns:
    """Which column is which field of ours, and batches of them made into pieces.

    `units` are those that a format states for its time columns. `zero_output_fails` tells that an output of no
    tokens is a request that failed. Raises InputError where prompt or output tokens have no column, or a given name
    is not there.
    """

    def __init__(
        self,
        there: Sequence[str],
        found: Findings,
        *,
        units: Mapping[str, str] | None = None,
        zero_output_fails: bool = False,
    ) -> None:
        given = dict(found.options.columns)
        unknown = sorted(given.keys() - FIELD_NAMES.keys())
        if unknown:
            raise InputError(
                f"no field of a request is called {unknown[0]!r}; fields are {', '.join(FIELD_NAMES)}"
            )
        self.of = find_columns(there, given=given)
        self._check(there, found)
        self._found = found
        self._units = dict(units or {})
        self._fails = zero_output_fails
        arrival = self.of.get("arrival")
        self.arrivals = (
            None if arrival is None else ArrivalTimes(arrival, found, stated=self._units.get("arrival"))
        )
        if arrival is None:
            found.note(
                "the trace has no arrival times: all its requests arrive at once; --rate draws arrivals for it"
            )

    def _check(self, there: Sequence[str], found: Findings) -> None:
        listed = ", ".join(quote(name, 40) for name in there[:40]) or "none"
        for field, column in self.of.items():
            if column not in there:
                raise InputError(
                    f"{found.source_name} has no column {quote(column)} for {field}; its columns are {listed}",
                    file=found.source_name,
                    column=column,
                )
        for field in NEEDED:
            if field not in self.of:
                raise InputError(
                    f"{found.source_name} has no column that is known as {field}; its columns are {listed}. Name it: "
                    f"columns={{'{field}': ...}} (--column {field}=NAME)",
                    file=found.source_name,
                    column=field,
                )

    def piece(self, cells: Mapping[str, Any], rows: Ints) -> Piece:
        """Requests of a batch. `cells` has an Arrow array for each column that `of` names."""
        by_field = {field: cells[column] for field, column in self.of.items()}
        good = np.ones(len(rows), dtype=np.bool_)
        columns: dict[str, Ints] = {"arrival_ns": self._arrival(by_field, rows, good)}
        columns["prompt_tokens"] = self._tokens(by_field, "prompt_tokens", rows, good, least=1)
        outputs = self._tokens(by_field, "output_tokens", rows, good, least=0)
        columns["output_tokens"] = self._outputs(outputs, rows, good)
        for field in ("max_output_tokens", "branches"):
            if field in by_field:
                columns[field] = self._optional(whole_numbers(by_field[field]), field, rows, good)
        if "branches" in columns:
            columns["branches"] = np.maximum(columns["branches"], 1)
        if "priority" in by_field:
            cut = whole_numbers(by_field["priority"])
            columns["priority"] = np.where(cut.known, cut.values, 0)
        for field in ("cancel", "first_token_deadline", "deadline", "pause"):
            if field in by_field:
                columns[f"{field}_ns"] = self._optional(self._span(by_field[field], field), field, rows, good)
        if "pause_ns" in columns:
            columns["pause_ns"] = np.maximum(columns["pause_ns"], 0)
        columns |= self._names(by_field)
        offsets, ids = self._blocks(by_field, rows)
        piece = Piece(
            columns=columns_with(block_offsets=offsets, block_ids=ids, **columns),
            rows=rows,
            ends_ns=self._ends(by_field, columns["arrival_ns"], rows, good),
            **self._links(by_field),
        )
        return kept(piece, good)

    def _arrival(self, by_field: Mapping[str, Any], rows: Ints, good: Mask) -> Ints:
        if self.arrivals is None:
            return np.zeros(len(rows), dtype=np.int64)
        cut = self.arrivals.cut(by_field["arrival"])
        cut = cut._replace(bad=[(place, _TIME_WHY.get(why, why), value) for place, why, value in cut.bad])
        values = self._needed(cut, self.arrivals.column, rows, good)
        late = _TIME_WHY["is too large"]
        self._bad(values > LATEST_NS, self.arrivals.column, late, values, rows, good, is_time=True)
        self._bad(values < 0, self.arrivals.column, "is negative", values, rows, good, is_time=True)
        return values

    def _tokens(self, by_field: Mapping[str, Any], field: str, rows: Ints, good: Mask, *, least: int) -> Ints:
        column = self.of[field]
        values = self._needed(whole_numbers(by_field[field]), column, rows, good)
        self._bad(values < 0, column, "is negative", values, rows, good)
        if least:
            self._bad(values == 0, column, "is 0: a prompt has a token at least", None, rows, good)
        self._bad(values > MOST_TOKENS, column, "is too large", values, rows, good)
        return values

    def _outputs(self, values: Ints, rows: Ints, good: Mask) -> Ints:
        nothing = (values == 0) & good
        if nothing.any():
            where = rows[nothing].tolist()
            if self._fails:
                self._found.count("left out: no output, so it failed", where)
                good &= ~nothing
            else:
                self._found.count("with an output of no tokens, counted as 1: engines make one", where)
        return np.maximum(values, 1)

    def _needed(self, cut: Cut, column: str, rows: Ints, good: Mask) -> Ints:
        for place, why, value in cut.bad:
            if good[place]:
                good[place] = False
                self._found.bad(int(rows[place]), why, column=column, value=value)
        empty = ~cut.known & good
        for place in np.flatnonzero(empty).tolist():
            self._found.bad(int(rows[place]), "is empty", column=column)
        good &= ~empty
        return cut.values

    def _bad(
        self,
        mask: Mask,
        column: str,
        why: str,
        values: Ints | None,
        rows: Ints,
        good: Mask,
        *,
        is_time: bool = False,
    ) -> None:
        """Rows that the mask names are bad. Times, which are held in nanoseconds, are told in seconds."""
        places = np.flatnonzero(mask & good)
        for place in places.tolist():
            value: object = None if values is None else int(values[place])
            if is_time and values is not None:
                value = f"{int(values[place]) / 1e9:.12g} s"
            self._found.bad(int(rows[place]), why, column=column, value=value)
        good[places] = False

    def _optional(self, cut: Cut, field: str, rows: Ints, good: Mask) -> Ints:
        column = self.of[field]
        for place, why, value in cut.bad:
            if good[place] and why != "is NaN":
                good[place] = False
                self._found.bad(int(rows[place]), why, column=column, value=value)
        negative = (cut.values < 0) & cut.known
        self._bad(negative, column, "is negative", cut.values, rows, good, is_time=True)
        self._bad(cut.values > LATEST_NS, column, "is too large", cut.values, rows, good, is_time=True)
        return np.where(cut.known, cut.values, -1)

    def _span(self, cells: Any, field: str) -> Cut:
        unit = self._units.get(field) or unit_in(self.of[field])
        if unit is None:
            unit = "s"
            self._found.note(f"{self.of[field]} is taken as seconds; its name does not say it")
        return scaled_numbers(cells, UNIT_NS[unit])

    def _names(self, by_field: Mapping[str, Any]) -> dict[str, Ints]:
        out = {}
        for field, number in (("tenant", self._found.tenant), ("conversation", self._found.conversation)):
            if field in by_field:
                distinct, which = texts(by_field[field])
                numbers = [
                    -1 if not name and field == "conversation" else number(name[:200]) for name in distinct
                ]
                out[field] = np.array([*numbers, 0], dtype=np.int64)[which]
        if "model" in by_field or "adapter" in by_field:
            out["boundary"] = self._boundary(by_field)
        return out

    def _boundary(self, by_field: Mapping[str, Any]) -> Ints:
        some = next(iter(by_field.values()))
        nothing = pa.nulls(len(some), pa.string())
        models, model = texts(by_field.get("model", nothing))
        adapters, adapter = texts(by_field.get("adapter", nothing))
        pairs, which = np.unique(model * len(adapters) + adapter, return_inverse=True)
        split = [divmod(pair, len(adapters)) for pair in pairs.tolist()]
        numbers = [self._found.boundary(models[one][:200], adapters[other][:200]) for one, other in split]
        return np.array(numbers, dtype=np.int64)[which]

    def _links(self, by_field: Mapping[str, Any]) -> dict[str, Any]:
        if "parent_id" not in by_field or "request_id" not in by_field:
            return {}
        ids = [_name(value) for value in by_field["request_id"].to_pylist()]
        return {"ids": ids, "parent_ids": [_name(value) for value in by_field["parent_id"].to_pylist()]}

    def _ends(self, by_field: Mapping[str, Any], arrival: Ints, rows: Ints, good: Mask) -> Ints | None:
        if "latency" in by_field:
            spans = self._optional(self._span(by_field["latency"], "latency"), "latency", rows, good)
            return np.where(spans < 0, -1, arrival + np.maximum(spans, 0))
        if "end" in by_field and self.arrivals is not None:
            cut = self.arrivals.cut(by_field["end"])
            return np.where(cut.known & (cut.values >= arrival), cut.values, -1)
        return None

    def _blocks(self, by_field: Mapping[str, Any], rows: Ints) -> tuple[Ints | None, Ints | None]:
        if "blocks" not in by_field or self._found.block_tokens is None:
            return None, None
        return block_lists(by_field["blocks"], rows, self.of["blocks"], self._found)


def block_lists(cells: Any, rows: Ints, column: str, found: Findings) -> tuple[Ints, Ints]:
    """(offsets, identities) of a column of lists, or of text with identities between blanks."""
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if pa.types.is_string(cells.type) or pa.types.is_null(cells.type):
        lists = [(text or "").strip("[]").replace(",", " ").split() for text in cells.to_pylist()]
        counts = [len(item) for item in lists]
        flat = pa.array([text for item in lists for text in item], type=pa.string())
    else:
        counts = [count or 0 for count in pa.compute.list_value_length(cells).to_pylist()]
        flat = cells.flatten()
    cut = whole_numbers(flat)
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(np.asarray(counts, dtype=np.int64), out=offsets[1:])
    wrong = np.flatnonzero(~cut.known | (cut.values < 0))
    if len(wrong):
        place = int(wrong[0])
        row = int(rows[int(np.searchsorted(offsets, place, side="right")) - 1])
        found.refuse(row, "holds what is no block id", column=column, value=flat[place].as_py())
    return offsets, cut.values


def _name(value: object) -> object:
    """An id of a request; None for none (-1 and empty text stand for it in traces)."""
    if value is None or value in (-1, "", "-1"):
        return None
    return value if isinstance(value, int | str) else str(value)
