"""Logs of engines as observations: files of any size in bounded memory, archives, streams, several engines in one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import cast

from vramledger.engines import engine_name, find_log, log_engines
from vramledger.engines.log_pattern import LinePattern
from vramledger.errors import FlagError
from vramledger.observation import Observation
from vramledger.telemetry.log_files import LogSource, chunks_of, reference_s, source_name
from vramledger.telemetry.log_following import Following, followed
from vramledger.telemetry.log_matching import Signs
from vramledger.telemetry.log_scanning import Scanner
from vramledger.telemetry.log_tally import LogTally, SourceTally

HEAD_BYTES = 256 * 1024


def read_log(
    source: LogSource | Sequence[LogSource],
    *,
    engine: str | None = None,
    patterns: Iterable[LinePattern] | None = None,
    follow: bool | Following = False,
    tally: LogTally | None = None,
    now_s: float | None = None,
    digest: bool = False,
    read: Callable[[int], None] | None = None,
) -> Iterator[Observation]:
    """What a log says, in its order, while it is read.

    `source` is a path, "-" for standard input, a binary stream, or several in the order in which they were written
    (rotated files: log.2.gz, log.1, log); gzip is unpacked. Without `engine` those are read whose signs the log holds:
    from its beginning those found in its first 256 KiB, another one from the line on that shows it. `patterns` are
    looked for beside the engines' own, and found also where no engine is told. At most one observation comes of each
    line for each engine, and one for `patterns`, whose `engine` is None.

    Of a source's first 8 MiB every line is read. Past them lines that tell of steps and requests alone are sampled, which
    `tally` says; all others are read whatever the size, and the lines before them.

    With `follow` the last source is read on as it is written, through rotation and truncation. `now_s` is the reference
    for times without a year, by default when the file was last written. A printer's time since its start is the value
    `elapsed_s`. A line without a prefix inherits printer and time from the 16 KiB before it. `tally` is told what was
    read and what could not be, with `digest` also the SHA-256 of each file; `read` is called with numbers of bytes
    taken from it.

    Raises FlagError for an engine whose log is not known, SourceError for a source that cannot be read; text of any
    kind raises nothing.
    """
    sources = tuple(source) if isinstance(source, list | tuple) else (cast(LogSource, source),)
    given = None
    if engine is not None:
        given = engine_name(engine)
        if find_log(given) is None:
            raise FlagError(
                f"how {given} words its log is not known here; known: {', '.join(log_engines()) or 'none'}",
                flag="engine",
                value=engine,
            )
    following = Following() if follow is True else follow or None

    def chunks(number: int, told: SourceTally) -> Iterator[bytes | None]:
        if following is not None and number == len(sources) - 1:
            return followed(sources[number], told, following)
        return chunks_of(sources[number], told, digest=digest, read=read)

    return _read(
        sources,
        given,
        tuple(patterns or ()),
        tally if tally is not None else LogTally(),
        now_s,
        chunks,
        whole=following is not None,
    )


def detect_engine(head: bytes) -> str | None:
    """The engine whose signs are most in the first part of a log; None where there are none."""
    found = Signs(known_signs()).take(head)
    return found[0] if found else None


def known_signs() -> Mapping[str, tuple[str, ...]]:
    """By engine, the texts that only its logs contain."""
    return {name: log.SIGNS for name in log_engines() if (log := find_log(name)) is not None}


def _read(
    sources: tuple[LogSource, ...],
    given: str | None,
    patterns: tuple[LinePattern, ...],
    tally: LogTally,
    now_s: float | None,
    chunks: Callable[[int, SourceTally], Iterator[bytes | None]],
    *,
    whole: bool,
) -> Iterator[Observation]:
    scanner = Scanner(patterns, Signs({} if given else known_signs()), tally.engines, whole=whole)
    if given:
        scanner.add_engines([given])
    head_done = given is not None
    for number, source in enumerate(sources):
        told = SourceTally(name=source_name(source))
        tally.sources.append(told)
        scanner.begin(told, reference_s(source) if now_s is None else now_s)
        data = chunks(number, told)
        if not head_done:
            head, data = _with_head(data)
            scanner.add_engines(scanner.signs.take(head))
            head_done = True
        for chunk in data:
            if chunk is not None:
                yield from scanner.feed(chunk)
                continue
            yield from scanner.end()
            scanner.begin(told, reference_s(source) if now_s is None else now_s)
        yield from scanner.end()


def _with_head(chunks: Iterator[bytes | None]) -> tuple[bytes, Iterator[bytes | None]]:
    """The first 256 KiB, or what there is before the first pause or the end, and all chunks."""
    taken: list[bytes | None] = []
    size = 0
    for chunk in chunks:
        taken.append(chunk)
        size += len(chunk or b"")
        if not chunk or size >= HEAD_BYTES:
            break
    return b"".join(chunk or b"" for chunk in taken)[:HEAD_BYTES], chain(taken, chunks)
