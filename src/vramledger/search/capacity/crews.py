"""Who does a study's runs: this process, several of this machine, or Ray. All give the same measures in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vramledger.errors import InputError
from vramledger.search.capacity.evaluator import Evaluator, unpacked
from vramledger.search.capacity.study import Measure, Study, Task
from vramledger.search.sweep import belong_to_parent

Crew = Callable[[Sequence[Task]], list[Measure]]
Told = Callable[[int], None]


@contextmanager
def crew(
    study: Study, *, jobs: int = 1, ray: str | None = None, told: Told = lambda runs: None
) -> Iterator[Crew]:
    """A crew that stays ready between calls; `told` hears of every run that is done.

    Raises InputError where a process is ended from outside, and where Ray is asked for and not there.
    """
    if ray is not None:
        from vramledger.search.on_ray import connected

        with connected(ray, jobs) as library:
            yield _over_ray(library, study, told)
    elif jobs <= 1:
        yield _here(study, told)
    else:
        with _processes(jobs, study) as pool, _ended_with_us():
            yield _over(pool, jobs, told)


@contextmanager
def _ended_with_us() -> Iterator[None]:
    """Worker processes started within are ended when an exception leaves: nobody waits for runs that nobody wants any more."""
    from multiprocessing import active_children

    others = {process.pid for process in active_children()}
    try:
        yield
    except BaseException:
        for process in active_children():
            if process.pid not in others:
                process.terminate()
        raise


def _here(study: Study, told: Told) -> Crew:
    evaluator = Evaluator(study)

    def work(tasks: Sequence[Task]) -> list[Measure]:
        found = []
        for task in tasks:
            found.append(evaluator.measure(task))
            told(1)
        return found

    return work


def _processes(jobs: int, study: Study) -> Any:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Fresh interpreters: a copy of this one would have its threads' locks and not its threads.
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start, initargs=(study,))


def _over(pool: Any, jobs: int, told: Told) -> Crew:
    from concurrent.futures.process import BrokenProcessPool

    def work(tasks: Sequence[Task]) -> list[Measure]:
        found: list[Measure] = []
        waiting = deque(pool.submit(_answer, task) for task in tasks)
        try:
            while waiting:
                found.append(unpacked(waiting[0].result()))
                waiting.popleft()
                told(1)
        except BrokenProcessPool:
            raise InputError(
                f"one of {jobs} processes was ended from outside, for lack of memory most often; ask for fewer --jobs",
                argument="jobs",
                value=jobs,
            ) from None
        finally:
            for item in waiting:
                item.cancel()
        return found

    return work


def _over_ray(ray: Any, study: Study, told: Told) -> Crew:
    count = max(int(ray.cluster_resources().get("CPU", 1)), 1)
    shared = ray.put(study)
    actor = ray.remote(num_cpus=1)(Evaluator)
    workers = [actor.remote(shared) for _ in range(count)]

    def work(tasks: Sequence[Task]) -> list[Measure]:
        waiting = [workers[number % count].packed.remote(task) for number, task in enumerate(tasks)]
        found = []
        for item in waiting:
            found.append(unpacked(ray.get(item)))
            told(1)
        return found

    return work


_evaluator: list[Evaluator] = []


def _start(study: Study) -> None:
    """Run once in each worker process."""
    belong_to_parent()
    _evaluator[:] = [Evaluator(study)]


def _answer(task: Task) -> bytes:
    return _evaluator[0].packed(task)
