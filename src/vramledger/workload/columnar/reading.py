"""A trace's file as a workload.

A trace is gone through once before it is given: so what is wrong with it is told at once, and its tenants and notes are
complete. A short one is then held; a longer one is read again by every pass over its batches, in the room of a few of
them. Traces whose requests name parents, or whose turns share blocks, are held whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from vramledger.errors import InputError
from vramledger.units import counted
from vramledger.workload.columnar.chains import chained, is_chained
from vramledger.workload.columnar.detection import Trace, find_trace
from vramledger.workload.columnar.findings import Findings, too_long
from vramledger.workload.columnar.linking import continued, later_children, later_in_groups
from vramledger.workload.columnar.ordering import Disorder, in_order, in_windows
from vramledger.workload.columnar.piece import Piece, merged, part
from vramledger.workload.columnar.source import Source
from vramledger.workload.columnar.times import check_gaps, jump_doubt, unit_doubt
from vramledger.workload.columnar.turns import ConversationTurns, parents_by_name
from vramledger.workload.columns import BATCH, Ints, RequestColumns, Workload
from vramledger.workload.reading_options import FORMATS, OnBadRow, ReadingOptions, Starts, TimeUnit
from vramledger.workload.request import WorkloadHeader

HELD_BYTES = 2**26
"""Of columns; a longer trace is streamed."""
MOST_HELD_BYTES = 2**32


def read_workload(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Mapping[str, str] | None = None,
    time_unit: TimeUnit | None = None,
    on_bad_row: OnBadRow = "error",
    link_turns: bool = True,
    follow_parents: bool = True,
    starts: Starts | None = None,
    max_model_len: int | None = None,
) -> Workload:
    """The workload that a trace's file holds; what the options mean stands at `ReadingOptions`.

    The file may be gzip. Raises SourceError for a file that cannot be read, InputError for one that is no trace, is
    cut, or has rows that are wrong.
    """
    return read_with(
        path,
        ReadingOptions(
            format=format,
            columns=tuple(sorted((columns or {}).items())),
            time_unit=time_unit,
            on_bad_row=on_bad_row,
            link_turns=link_turns,
            follow_parents=follow_parents,
            starts=starts or Starts(),
            max_model_len=max_model_len,
        ),
    )


def read_with(path: str | Path, options: ReadingOptions) -> Workload:
    """The same with the options in one value."""
    source = Source(path)
    if options.format is not None and options.format not in FORMATS:
        raise InputError(f"no trace format is called {options.format!r}; there are {', '.join(FORMATS)}")
    trace = find_trace(source, options)
    if trace.whole is not None:
        return trace.whole(source, Findings(source.name, trace.unit_of_rows, options))
    return _Reading(source, trace, options).workload()


class _Reading:
    def __init__(self, source: Source, trace: Trace, options: ReadingOptions) -> None:
        self._source = source
        self._trace = trace
        self._options = options
        self._start_ns = 0
        self._sorts = False
        self._has_ends = False

    def workload(self) -> Workload:
        found = self._findings()
        found.note(f"read as {self._trace.name}: {FORMATS[self._trace.name]}")
        disorder = Disorder()
        held: list[Piece] | None = []
        count = 0
        jump: str | None = None
        for piece in self._pieces(found):
            disorder.see(piece)
            if not disorder.count:
                check_gaps(piece.columns.arrival_ns, piece.rows, found)
                if jump is None and not self._is_absolute:
                    jump = jump_doubt(piece.columns.arrival_ns, piece.rows, self._trace.unit_of_rows)
            self._count_long(piece, found)
            self._has_ends = self._has_ends or piece.ends_ns is not None
            count += piece.columns.rows
            if held is not None:
                held.append(piece)
                held = self._bounded(held)
        if not count:
            raise InputError(f"{self._source.name} holds no request", file=self._source.name)
        if self._trace.starts_at_first or self._is_absolute:
            self._start_ns = disorder.first_ns or 0
            found.note("times count from the first request")
        if disorder.count:
            found.note(
                f"{counted(disorder.count, 'request')} came after later ones, by up to {disorder.worst_ns / 1e9:,.6g} s: "
                "sorted by time"
            )
            if count > 1 and disorder.worst_ns > (disorder.last_ns - (disorder.first_ns or 0)) // 2:
                found.note(
                    "that is most of the trace's time: is it several traces in one file, or of two units?"
                )
        if jump is not None:
            found.note(jump)
        doubt = unit_doubt(count, disorder.last_ns - (disorder.first_ns or 0))
        if doubt is not None:
            found.note(doubt)
        if held is not None:
            columns = self._whole(merged(held), found)
            return Workload(self._header(found), lambda: _in_batches(columns))
        self._sorts = disorder.count > 0
        if self._sorts or self._has_ends:
            turns = ConversationTurns()
            for _ in self._stream(self._findings(), turns):
                pass
            self._note_turns(turns, found)
        return Workload(self._header(found), lambda: self._stream(self._findings(), ConversationTurns()))

    def _findings(self) -> Findings:
        return Findings(self._source.name, self._trace.unit_of_rows, self._options)

    def _pieces(self, found: Findings) -> Iterator[Piece]:
        assert self._trace.pieces is not None
        self._is_absolute = False
        for piece in self._trace.pieces(self._source, found):
            self._is_absolute = self._is_absolute or found.is_absolute
            if piece.columns.rows:
                yield piece

    def _count_long(self, piece: Piece, found: Findings) -> None:
        most = self._options.max_model_len
        if most is not None:
            longer = piece.rows[piece.columns.prompt_tokens > most].tolist()
            found.count(too_long(most), longer)

    def _bounded(self, held: list[Piece]) -> list[Piece] | None:
        """`held`, or None where it is too much and can be streamed."""
        size = sum(array.nbytes for piece in held for array in piece.columns)
        if size <= HELD_BYTES:
            return held
        newest = held[-1]
        if newest.ids is None and not self._links_blocks(newest.columns):
            return None
        if size > MOST_HELD_BYTES:
            raise InputError(
                f"{self._source.name} links turns over more than {MOST_HELD_BYTES:,} bytes of requests, which must be held; "
                "read it without link_turns and follow_parents",
                file=self._source.name,
            )
        return held

    def _links_blocks(self, columns: RequestColumns) -> bool:
        return (
            self._options.link_turns
            and len(columns.block_ids) > 0
            and bool((columns.conversation >= 0).any())
        )

    def _whole(self, piece: Piece, found: Findings) -> RequestColumns:
        """All requests, in order, linked."""
        piece = in_order(piece)
        check_gaps(piece.columns.arrival_ns, piece.rows, found)
        columns = piece.columns._replace(arrival_ns=piece.columns.arrival_ns - self._start_ns)
        if (
            len(columns.block_ids)
            and self._trace.names_blocks_alone
            and not is_chained(columns.block_offsets, columns.block_ids)
        ):
            columns = columns._replace(block_ids=chained(columns.block_offsets, columns.block_ids))
            found.note(
                "block ids named blocks alone: they became identities of all that a prompt begins with"
            )
        later = None
        if piece.ids is not None and piece.parent_ids is not None:
            parents = parents_by_name(piece.ids, piece.parent_ids, piece.rows, found)
            later = later_children(parents)
            columns = self._with_parents(columns, parents, piece, found)
        elif piece.ends_ns is not None and self._options.follow_parents:
            turns = ConversationTurns()
            columns = turns.follow(columns, _shifted(piece.ends_ns, self._start_ns))
            self._note_turns(turns, found)
        if later is None and self._links_blocks(columns):
            later = later_in_groups(columns.conversation)
        if later is not None and self._options.link_turns and found.block_tokens and len(columns.block_ids):
            columns, carried = continued(columns, found.block_tokens, later)
            if carried:
                found.note(
                    f"{counted(carried, 'turn')} named on with the blocks of the turn that continues it (link_turns)"
                )
        return columns

    def _with_parents(
        self,
        columns: RequestColumns,
        parents: Ints,
        piece: Piece,
        found: Findings,
    ) -> RequestColumns:
        conversation = columns.conversation
        if (conversation < 0).all():
            conversation = _roots(parents)
        columns = columns._replace(conversation=conversation)
        if not self._options.follow_parents or not (parents >= 0).any():
            return columns
        has_parent = parents >= 0
        if found.has_pauses:
            return columns._replace(parent=parents)
        if piece.ends_ns is None:
            found.note(
                "the trace has no ends of requests, so pauses are not known: turns are sent at their own times"
            )
            return columns
        ends = _shifted(piece.ends_ns, self._start_ns)[np.where(has_parent, parents, 0)]
        ended = has_parent & (ends >= 0) & (ends <= columns.arrival_ns)
        found.note(follow_note(int(np.count_nonzero(ended))))
        return columns._replace(
            parent=np.where(ended, parents, -1),
            pause_ns=np.where(ended, columns.arrival_ns - ends, columns.pause_ns),
        )

    def _note_turns(self, turns: ConversationTurns, found: Findings) -> None:
        if turns.linked:
            found.note(follow_note(turns.linked))

    def _stream(self, found: Findings, turns: ConversationTurns) -> Iterator[RequestColumns]:
        pieces: Iterable[Piece] = self._pieces(found)
        if self._sorts:
            pieces = in_windows(pieces, found)
        for piece in pieces:
            if self._sorts:
                check_gaps(piece.columns.arrival_ns, piece.rows, found)
            columns = piece.columns._replace(arrival_ns=piece.columns.arrival_ns - self._start_ns)
            if piece.ends_ns is not None and self._options.follow_parents:
                columns = turns.follow(columns, _shifted(piece.ends_ns, self._start_ns))
            yield from _in_batches(columns)

    def _header(self, found: Findings) -> WorkloadHeader:
        return WorkloadHeader(
            name=self._source.path.name,
            source=self._source.name,
            block_tokens=found.block_tokens,
            tenants=tuple(found.tenants),
            boundaries=found.boundaries(),
            notes=found.notes(),
        )


def follow_note(count: int) -> str:
    """What is said of requests with parents."""
    return f"{counted(count, 'request')} sent after the recorded pause from the end of the turn before (follow_parents)"


def _shifted(ends_ns: Ints, start_ns: int) -> Ints:
    return np.where(ends_ns < 0, -1, ends_ns - start_ns)


def _roots(parents: Ints) -> Ints:
    """A conversation for each tree of requests; parents come first."""
    number: list[int] = []
    count = 0
    for parent in parents.tolist():
        if parent < 0:
            number.append(count)
            count += 1
        else:
            number.append(number[parent])
    return np.array(number, dtype=np.int64)


def _in_batches(columns: RequestColumns) -> Iterator[RequestColumns]:
    if columns.rows <= BATCH:
        yield columns
        return
    for start in range(0, columns.rows, BATCH):
        yield part(columns, start, min(start + BATCH, columns.rows))
