"""What is found out while a trace is read: notes, names, rows that were left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, TypeVar

from vramledger.errors import InputError
from vramledger.models.sources.bounded_file import quote
from vramledger.units import counted
from vramledger.workload.reading_options import ReadingOptions
from vramledger.workload.request import Boundary

T = TypeVar("T")
MOST_NAMES = 2**20
MOST_CONVERSATIONS = 2**24


def too_long(max_model_len: int) -> str:
    """What is said of requests that the model has no room for."""
    return f"with a prompt longer than the model's {max_model_len:,} tokens: such never fit"


class Findings:
    """Notes and numbers of names of one pass over a trace; the same file gives the same ones.

    `block_tokens` is the tokens of a block id, None where the trace names none; `is_absolute` tells that its times are a
    calendar's, `has_pauses` that it says how long after its parent a request is sent.
    """

    def __init__(self, source_name: str, unit_of_rows: str, options: ReadingOptions) -> None:
        self.source_name = source_name
        self.unit_of_rows = unit_of_rows
        self.options = options
        self.block_tokens: int | None = None
        self.is_absolute = False
        self.has_pauses = False
        self.tenants: dict[str, int] = {"": 0}
        self.models: dict[tuple[str, str], int] = {("", ""): 0}
        self.conversations: dict[object, int] = {}
        self._notes: dict[str, None] = {}
        self._counts: dict[str, int] = {}
        self._firsts: dict[str, int] = {}

    def note(self, text: str) -> None:
        """A note, told once."""
        self._notes[text] = None

    def count(self, what: str, rows: Iterable[int]) -> None:
        """Rows (their numbers in the file) that are `what`, told as one note."""
        for row in rows:
            self._counts[what] = self._counts.get(what, 0) + 1
            self._firsts.setdefault(what, row)

    def notes(self) -> tuple[str, ...]:
        """All of them, in the order in which they came up."""
        told = [
            f"{counted(count, self.unit_of_rows)} {what} (first: {self.unit_of_rows} {self._firsts[what]:,})"
            for what, count in self._counts.items()
        ]
        return (*self._notes, *told)

    def bad(
        self, row: int, why: str, *, column: str | None = None, value: object = None, then: str = "left out"
    ) -> None:
        """A row that cannot be used as it is: counted where it may be skipped, with what becomes of it `then`.

        Raises InputError where it may not.
        """
        if self.options.on_bad_row == "skip":
            self.count(f"{then}: {why if column is None else f'{column} {why}'}", (row,))
            return
        self.refuse(row, why, column=column, value=value)

    def refuse(self, row: int, why: str, *, column: str | None = None, value: object = None) -> NoReturn:
        """Raises InputError that names the row, the column and the value."""
        where = f"{self.source_name}: {self.unit_of_rows} {row:,}"
        shown = "" if value is None else f" ({quote(value)})"
        what = why if column is None else f"{column} {why}"
        raise InputError(
            f"{where}: {what}{shown}; on_bad_row 'skip' (--on-bad-row skip) goes on without such {self.unit_of_rows}s",
            file=self.source_name,
            row=row,
            column=column,
            value=None if value is None else quote(value),
        )

    def tenant(self, name: str) -> int:
        """The number of a tenant."""
        return self._number(self.tenants, name, "tenants")

    def boundary(self, model: str, adapter: str = "") -> int:
        """The number of the boundary around requests of one model and adapter."""
        return self._number(self.models, (model, adapter), "models")

    def conversation(self, name: object) -> int:
        """The number of a conversation, in order of appearance."""
        number = self.conversations.setdefault(name, len(self.conversations))
        if number >= MOST_CONVERSATIONS:
            raise InputError(
                f"{self.source_name} has more than {MOST_CONVERSATIONS:,} conversations",
                file=self.source_name,
            )
        return number

    def boundaries(self) -> tuple[Boundary, ...]:
        """One for each model and adapter that were named; requests of several models or adapters share nothing."""
        return tuple(Boundary(model_revision=model, adapter=adapter) for model, adapter in self.models)

    def _number(self, names: dict[T, int], name: T, what: str) -> int:
        number = names.setdefault(name, len(names))
        if number >= MOST_NAMES:
            raise InputError(
                f"{self.source_name} has more than {MOST_NAMES:,} {what}; is the column the right one?",
                file=self.source_name,
            )
        return number
