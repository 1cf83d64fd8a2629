"""What became of each request, and the pool over time, as Parquet: `requests.parquet` and `pool.parquet` in a folder.

Written as a run goes, in the room of a batch; each file appears whole or not at all.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vramledger.errors import FlagError, InputError
from vramledger.simulation.outcome import PoolSample, Run
from vramledger.whole_file import unwritten, whole_file

if TYPE_CHECKING:
    from vramledger.simulation.outcome_columns import OutcomeColumns

REQUESTS, POOL = "requests.parquet", "pool.parquet"


class OutcomeFiles:
    """A folder that takes batches of outcomes, then the run. It is made where it is not there.

    Raises InputError without pyarrow, FlagError where a file has the folder's name, OutputError where it cannot be written.
    """

    def __init__(self, folder: str) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise InputError(
                "--output needs pyarrow, which is not installed: pip install 'vramledger[simulation]'",
                library="pyarrow",
            ) from None
        self._arrow: Any = pyarrow
        self._folder = Path(folder)
        self._stack = ExitStack()
        self._writer: Any = None
        if self._folder.exists() and not self._folder.is_dir():
            raise FlagError(f"--output {folder!r} is a file; name a folder", flag="output", value=folder)

    def __enter__(self) -> Self:
        self._stack.__enter__()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = self._stack.enter_context(whole_file(self._folder / REQUESTS))
        except (OSError, ValueError) as problem:
            raise unwritten(self._folder, problem) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stack.__exit__(kind, error, trace)
        except OSError as problem:
            raise unwritten(self._folder, problem) from None

    def add(self, outcomes: OutcomeColumns) -> None:
        """More requests."""
        table = self._arrow.table(outcomes._asdict())
        try:
            if self._writer is None:
                writer = self._arrow.parquet.ParquetWriter(self._file, table.schema)
                self._writer = self._stack.enter_context(writer)
            self._writer.write_table(table)
        except OSError as problem:
            raise unwritten(self._folder / REQUESTS, problem) from None

    def end(self, run: Run) -> None:
        """The run's samples of the pool."""
        names = PoolSample.__struct_fields__
        table = self._arrow.table(
            {
                name: self._arrow.array([getattr(item, name) for item in run.samples], self._arrow.int64())
                for name in names
            }
        )
        try:
            with whole_file(self._folder / POOL) as file:
                self._arrow.parquet.write_table(table, file)
        except OSError as problem:
            raise unwritten(self._folder / POOL, problem) from None
