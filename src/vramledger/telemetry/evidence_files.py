"""Files that people have after a failure, recognised by what is in them: logs, allocator snapshots, time series, notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from vramledger.diagnosis.frames import FRAMES
from vramledger.diagnosis.gathering import FreePieces
from vramledger.diagnosis.incident import standing_of
from vramledger.diagnosis.messages import FAILURES
from vramledger.diagnosis.messages.kind import Standing
from vramledger.diagnosis.messages.torch_allocator import TORCH_OOM
from vramledger.diagnosis.remarks import LONGEST_TEXT_BYTES
from vramledger.diagnosis.thinning import thinned
from vramledger.errors import SourceError
from vramledger.observation import Event, Observation, Place, Sample
from vramledger.telemetry.log_lines import read_lines
from vramledger.telemetry.log_reading import read_log
from vramledger.telemetry.log_tally import LogTally

if TYPE_CHECKING:
    from vramledger.telemetry.snapshots.snapshot import Snapshot

_PICKLE = b"\x80"
_ZIP = b"PK\x03\x04"
_HEAD_BYTES = 4096
PATTERNS = (*FAILURES, *FRAMES)
# Lines of saved metrics that explain them.
_EXPOSITION = (b"# HELP ", b"# TYPE ")


class Collected(Struct, frozen=True, kw_only=True):
    """What all files said. `kinds` names what each was taken for, `notes` what could not be read of one."""

    observations: tuple[Observation, ...]
    samples: tuple[Sample, ...]
    snapshots: tuple[FreePieces, ...]
    kinds: tuple[tuple[str, str], ...]
    engines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def collect(paths: Iterable[str], *, engine: str | None = None) -> Collected:
    """Every file read by what it is; "-" is a log on standard input.

    Raises SourceError for a file that cannot be read, InputError for a snapshot or a series that is none.
    """
    observations: list[Observation] = []
    samples: list[Sample] = []
    pieces: list[FreePieces] = []
    kinds: list[tuple[str, str]] = []
    engines: list[str] = []
    notes: list[str] = []
    recorded: list[Observation] = []
    for path in paths:
        kind = kind_of_file(path)
        kinds.append((path, kind))
        if kind == "snapshot":
            from vramledger.telemetry.snapshots import read_snapshot

            snapshot = read_snapshot(path)
            pieces += free_pieces(path, snapshot)
            recorded += _failed_requests(path, snapshot)
        elif kind == "series":
            from vramledger.telemetry.series_file import read_series

            samples += read_series(Path(path))
        else:
            tally = LogTally()
            found = list(thinned(read_log(path, engine=engine, patterns=PATTERNS, tally=tally)))
            late = next(iter(tally.engines), None)
            if (
                not _is_stream(path)
                and engine is None
                and late
                and all(item.engine != late for item in found[:-1])
            ):
                # The engine's sign came with the failure only: what stands before is read again as its log.
                tally = LogTally()
                found = list(thinned(read_log(path, engine=late, patterns=PATTERNS, tally=tally)))
            observations += found
            notes += tally.notes()
            engines += [name for name in tally.engines if name not in engines]
            if not _is_stream(path):
                observations += _remarks(path, found)
    if not any(standing_of(item) is Standing.CAUSE for item in observations):
        observations += recorded  # a log's message says more of the same failure
    return Collected(
        observations=tuple(observations),
        samples=tuple(samples),
        snapshots=tuple(pieces),
        kinds=tuple(kinds),
        engines=tuple(engines),
        notes=tuple(notes),
    )


def _is_stream(path: str) -> bool:
    """Whether it can be read only once: standard input, a pipe such as the shell's <(command)."""
    try:
        return path == "-" or Path(path).is_fifo()
    except OSError:
        return False  # whoever opens it says why it cannot be read


def kind_of_file(path: str) -> str:
    """ "snapshot", "series" or "log", by the first bytes; what can be read only once is a log."""
    if _is_stream(path):
        return "log"
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as problem:
        raise SourceError(f"{path}: {problem.strerror or problem}", path=path) from None
    if head.startswith((_PICKLE, _ZIP)):
        return "snapshot"
    from vramledger.telemetry.series_file import looks_like_series

    return "series" if looks_like_series(head) else "log"


def _failed_requests(path: str, snapshot: Snapshot) -> list[Observation]:
    """What a snapshot's history recorded of requests that failed, as the allocator's message would say it."""
    return [
        Observation(
            event=Event.FAILURE,
            values={
                "message": TORCH_OOM.name,
                "device_id": item.device,
                "requested_bytes": item.size_bytes,
                **({} if item.device_free_bytes is None else {"free_bytes": item.device_free_bytes}),
            },
            place=Place(source=path),
            text=f"oom: a request of {item.size_bytes:,} bytes on device {item.device}"
            + (f", in {item.frame}" if item.frame else ""),
            at_s=None if item.at_us is None else item.at_us / 1e6,
        )
        for item in snapshot.failures
    ]


def free_pieces(path: str, snapshot: Snapshot) -> list[FreePieces]:
    """The pools of each device of a snapshot; the device of a failure in its history first."""
    from vramledger.telemetry.snapshots import device_states

    failed = [item.device for item in snapshot.failures]
    found = [
        FreePieces(
            source=path,
            device=state.device,
            largest_free_run_bytes=max(
                (pool.largest_free_run_bytes for pool in state.pools if pool.pool == (0, 0)), default=0
            ),
            free_bytes=sum(pool.free_bytes for pool in state.pools if pool.pool == (0, 0)),
            reserved_bytes=sum(pool.reserved_bytes for pool in state.pools),
            allocated_bytes=sum(pool.allocated_bytes for pool in state.pools),
        )
        for state in device_states(snapshot)
    ]
    return sorted(found, key=lambda item: item.device not in failed)


_PROGRAMS_OWN = frozenset({Event.VERSION, Event.SETTINGS, Event.LOAD_BEGIN, Event.KV_POOL, Event.READY})


def is_log(found: Iterable[Observation]) -> bool:
    """Whether a text is an engine's own log, in which no person wrote."""
    return any(item.event in _PROGRAMS_OWN and item.engine is not None for item in found)


def _remarks(path: str, found: Sequence[Observation]) -> Iterator[Observation]:
    """Lines of a short text that is nobody's log, that no program prefixed and no pattern reads: what somebody wrote."""
    if is_log(found):
        return
    try:
        if Path(path).stat().st_size > LONGEST_TEXT_BYTES:
            return
        raw = Path(path).read_bytes()[:LONGEST_TEXT_BYTES]
    except OSError as problem:
        raise SourceError(f"{path}: {problem.strerror or problem}", path=path) from None
    yield from remarks_of(raw, path, taken_lines(found))


def taken_lines(found: Iterable[Observation]) -> set[int]:
    """Lines that say something as a program's. A function's name alone makes no line a program's."""
    return {item.place.line for item in found if item.event is not Event.FRAME}


def remarks_of(raw: bytes, source: str, taken: set[int]) -> Iterator[Observation]:
    """The lines of a text that are nobody's log, as observations; `taken` are lines that were read already."""
    for number, line in enumerate(raw.split(b"\n"), 1):
        if number in taken or not line.strip() or line.startswith(_EXPOSITION):
            continue
        place = Place(source=source, line=number)
        told = read_lines(line, place=place, reference_s=0.0)
        if len(told) == 1 and not told[0].own and told[0].at_s is None:
            yield Observation(event=Event.REMARK, values={}, place=place, text=told[0].text[:4000], at_s=None)
