"""An experiment's folder: `experiment.json` is whole at any moment, and what is not in it was not done.

A stage's records are written before the journal names them, so that a process that is killed leaves at most files that are written again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from vramledger.errors import InputError, shorter
from vramledger.experiment.folder import ENGINE_LOG, JOURNAL, RECORDS, SERIES
from vramledger.experiment.plan_file import differences
from vramledger.experiment.result import SCHEMA_VERSION, Experiment, Stage, Target
from vramledger.models.sources.bounded_file import read_whole, shown
from vramledger.whole_file import unwritten, write_whole

LOCK = ".lock"
LIMIT_BYTES = 64 * 2**20
MOST_KEPT = 1000
MOST_PER_S, MOST_S = 1e7, 1e9
MOST_REQUESTS, MOST_TOKENS = 10**9, 10**18


class Journal:
    """The folder of one experiment, held by this process while `open_journal` is open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def path(self) -> Path:
        return self.folder / JOURNAL

    def load(self) -> Experiment | None:
        """What was found until now, None in a new folder. Raises InputError for a file that is no experiment, or of another version."""
        return read_experiment(self.path) if self.path.exists() else None

    def save(self, experiment: Experiment) -> None:
        """In the place of what was there: after a power failure it is the one or the other. Raises OutputError."""
        write_whole(self.path, experiment_bytes(experiment))

    def records_of(self, stage: str) -> tuple[Path, str]:
        """The file for the requests of a stage, and its name within the folder."""
        name = f"{RECORDS}/{stage}.parquet"
        try:
            (self.folder / RECORDS).mkdir(exist_ok=True)
        except OSError as problem:
            raise unwritten(self.folder / RECORDS, problem) from None
        return self.folder / name, name


@contextmanager
def open_journal(folder: Path, *, fresh: bool = False) -> Iterator[Journal]:
    """The folder, made where it is not there. With `fresh` an experiment in it is kept as FOLDER.1, FOLDER.2 and so on.

    Raises InputError where another process holds it or it has files but no experiment; OutputError where it cannot be used.
    """
    if fresh and (folder / JOURNAL).exists():
        with _held(folder):
            kept = kept_folder(folder)
            try:
                folder.rename(kept)
            except OSError as problem:
                raise unwritten(kept, problem) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise unwritten(folder, problem) from None
    with _held(folder):
        _refuse_other(folder)
        _clear(folder)
        yield Journal(folder)


def kept_folder(folder: Path) -> Path:
    """The first of FOLDER.1, FOLDER.2, ... that is not there."""
    for number in range(1, MOST_KEPT):
        kept = folder.with_name(f"{folder.name}.{number}")
        if not kept.exists():
            return kept
    raise InputError(
        f"{shown(folder)} has {MOST_KEPT - 1} old folders beside it; move some away", file=shown(folder)
    )


def read_experiment(path: Path) -> Experiment:
    """The experiment in a file. Raises SourceError for what cannot be read, InputError for what is none."""
    data = read_whole(path, LIMIT_BYTES, InputError)
    where = shown(path)
    try:
        found = msgspec.json.decode(data, type=_Version)
        if found.kind != "experiment":
            raise InputError(f"{where} is no experiment: its kind is {found.kind!r:.60}", file=where)
        if found.schema_version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
            raise InputError(
                f"{where} is of version {found.schema_version[:20]!r}, this program reads {SCHEMA_VERSION}; begin anew with --fresh",
                file=where,
                key="schema_version",
            )
        experiment = msgspec.json.decode(data, type=Experiment)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InputError(f"{where} is no experiment: {problem}", file=where, reason=str(problem)) from None
    for stage in experiment.stages:
        if reason := _impossible(stage):
            raise InputError(
                f"{where} is no experiment: of stage {shorter(stage.name)} {reason}",
                file=where,
                reason=reason,
            )
    return experiment


def experiment_bytes(experiment: Experiment) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(experiment), indent=1) + b"\n"


def target_differences(before: Target, now: Target) -> list[str]:
    """What differs of who is asked; the address of an engine that was started here is its own affair. What either does not know is no
    difference."""
    names = ["gateway_url", "engine", "engine_version", "model", "context_len", "launched"]
    if not now.launched:
        names += ["url", "engine_url"]
    found = []
    for name in names:
        was, is_now = getattr(before, name), getattr(now, name)
        both = was not in (None, "") and is_now not in (None, "")
        if was != is_now and (both or name in ("gateway_url", "launched")):
            found.append(f"{name} {_words(was)} is now {_words(is_now)}")
    return found


def refuse_changed(before: Experiment, now: Experiment, folder: Path) -> None:
    """Raises InputError where the plan, the target or the manifest is not the one that the folder was begun with."""
    found = differences(before.plan, now.plan) + target_differences(before.target, now.target)
    if before.manifest_digest != now.manifest_digest:
        found.append("the manifest is another one")
    if found:
        raise InputError(
            f"{shown(folder)} has an experiment that was begun otherwise: {'; '.join(found)}. Give what it was begun with, another folder (-o), "
            "or --fresh, which keeps the old one beside it",
            folder=shown(folder),
            differences=tuple(found),
        )


def is_blank(found: Experiment) -> bool:
    """Whether nobody was asked yet: an address or a command that was mistyped binds nobody."""
    begun = any(one.state != "skipped" for one in found.steps)
    return not (begun or found.stages or found.snapshots or found.failure)


def _impossible(stage: Stage) -> str:
    """What no stage can have, as a file that was edited may."""
    if not (0 < stage.per_s <= MOST_PER_S and 0 < stage.seconds <= MOST_S):
        return f"the load is {stage.per_s:g} requests a second for {stage.seconds:g} s"
    for figures in (stage.measured, stage.forecast):
        if figures is None:
            continue
        parts = (figures.finished, figures.refused, figures.failed, figures.left)
        tokens = (figures.prompt_tokens, figures.output_tokens)
        if min(*parts, *tokens, figures.good) < 0 or figures.good > figures.offered:
            return "the counts are of no requests"
        if max(figures.offered, sum(parts)) > MOST_REQUESTS or max(tokens) > MOST_TOKENS:
            return "the counts are larger than any stage's"
    return ""


class _Version(msgspec.Struct):
    kind: str
    schema_version: str


def _words(value: Any) -> str:
    return " ".join(value)[:200] if isinstance(value, tuple) else shown(str(value))


def _refuse_other(folder: Path) -> None:
    """A folder of something else is not written into."""
    if (folder / JOURNAL).exists():
        return
    others = [one.name for one in folder.iterdir() if not one.name.startswith(".")]
    leftover = {RECORDS, ENGINE_LOG, SERIES}
    if set(others) - leftover:
        raise InputError(
            f"{shown(folder)} has files but no experiment in it ({shown(sorted(set(others) - leftover)[0])}); give another folder",
            folder=shown(folder),
        )


def _clear(folder: Path) -> None:
    """Halves of files that a killed process left."""
    for half in (*folder.glob(f".{JOURNAL}.*.part"), *folder.glob(f"{RECORDS}/.*.part")):
        with suppress(OSError):
            half.unlink()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise unwritten(path, problem) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"another experiment is at work in {shown(folder)}; wait for it, or give another folder",
                folder=shown(folder),
            ) from None
        yield
    finally:
        os.close(descriptor)
