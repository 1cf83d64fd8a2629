"""A grid as rows, in one process, in many, or on Ray: the same rows in the same order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from vramledger.errors import InputError
from vramledger.models.checkpoint import Checkpoint
from vramledger.search.evaluation import Subject, evaluate
from vramledger.search.grid import Grid
from vramledger.search.rows import DEVICES_PER_NODE, Row, row_of

CHUNK = 256
"""Points handed to a worker at a time: long enough that handing over costs nothing, short enough to tell progress."""

Numbers = Sequence[int]


class Work(Struct, frozen=True, kw_only=True):
    """All that a worker has to know; it crosses process and machine borders once."""

    grid: Grid
    checkpoints: tuple[Checkpoint, ...]
    flags: Mapping[str, Mapping[str, object]] = {}
    prices: Mapping[str, float] = {}
    devices_per_node: int = DEVICES_PER_NODE


class Worker:
    """Answers points of one piece of work."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._subject = Subject(work.checkpoints, work.flags)

    def rows(self, numbers: Numbers) -> list[Row]:
        """The rows of these points, in order."""
        work, subject = self._work, self._subject
        return [
            row_of(evaluate(work.grid.question(number), subject), subject, work.prices, work.devices_per_node)
            for number in numbers
        ]

    def packed(self, numbers: Numbers) -> bytes:
        """The same, as bytes that `unpacked` reads."""
        return msgspec.msgpack.encode(self.rows(numbers))


_DECODER = msgspec.msgpack.Decoder(list[Row])


def unpacked(data: bytes) -> list[Row]:
    return _DECODER.decode(data)


Runner = Callable[[Work, Sequence[Numbers]], Iterator[list[Row]]]
"""Rows of each chunk of points, chunks in the order given."""


def chunks(numbers: Numbers, size: int = CHUNK) -> list[Numbers]:
    """`numbers` in runs of at most `size`."""
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def in_process(work: Work, parts: Sequence[Numbers]) -> Iterator[list[Row]]:
    """One after another, here."""
    worker = Worker(work)
    return (worker.rows(part) for part in parts)


def over_processes(jobs: int) -> Runner:
    """A runner over `jobs` processes of this machine; one is this process.

    Each starts a fresh interpreter, so a script that runs one keeps its own work under `if __name__ == "__main__"`. The
    runner raises InputError where a process is ended from outside.
    """
    if jobs <= 1:
        return in_process

    def run(work: Work, parts: Sequence[Numbers]) -> Iterator[list[Row]]:
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context

        # A fresh interpreter for each worker: a copy of this one would have its threads' locks and not its threads.
        with ProcessPoolExecutor(
            jobs, mp_context=get_context("spawn"), initializer=_start, initargs=(work,)
        ) as pool:
            try:
                yield from map(unpacked, _in_order(pool.submit, parts, ahead=4 * jobs))
            except BrokenProcessPool:
                raise InputError(
                    f"one of {jobs} processes was ended from outside, for lack of memory most often; ask for fewer --jobs",
                    argument="jobs",
                    value=jobs,
                ) from None

    return run


def _in_order(submit: Callable[..., object], parts: Iterable[Numbers], ahead: int) -> Iterator[bytes]:
    """Results in the order of the parts, with at most `ahead` of them under way."""
    from collections import deque

    waiting: deque[object] = deque()
    try:
        for part in parts:
            waiting.append(submit(_answer, part))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()  # type: ignore[attr-defined]
        while waiting:
            yield waiting.popleft().result()  # type: ignore[attr-defined]
    finally:
        for item in waiting:
            item.cancel()  # type: ignore[attr-defined]


_worker: list[Worker] = []


def _start(work: Work) -> None:
    """Run once in each worker process."""
    import gc

    belong_to_parent()
    gc.set_threshold(100_000)
    _worker[:] = [Worker(work)]


def belong_to_parent() -> None:
    """A worker process leaves an interrupt to its parent, and ends when that does."""
    import signal
    from threading import Thread

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends its workers
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker waits for work on a pipe that it holds open itself, so nothing else tells it that its parent is gone."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answer(numbers: Numbers) -> bytes:
    return _worker[0].packed(numbers)


def cores() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
