"""A grid on Ray, on this machine or on a cluster that is there: the rows are those of one process.

Needs `vramledger[distributed]`; Ray is imported when a runner is made. On a cluster the package travels with the work, so
every worker plans by these rules; msgspec and click have to be installed there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vramledger.errors import InputError
from vramledger.search.rows import Row
from vramledger.search.sweep import Numbers, Runner, Work, Worker, unpacked

LOCAL = "local"


def over_ray(address: str = LOCAL, *, jobs: int | None = None) -> Runner:
    """A runner on the cluster at `address`: "local" starts one on this machine with `jobs` processors, "auto" takes
    the one that runs here, "ray://host:10001" or "host:6379" one elsewhere.

    Raises InputError where Ray is not installed or cannot be reached.
    """
    _ray()

    def run(work: Work, parts: Sequence[Numbers]) -> Iterator[list[Row]]:
        with connected(address, jobs) as ray:
            yield from _spread(ray, work, parts)

    return run


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError(
            "--ray needs Ray, which is not installed: pip install 'vramledger[distributed]'", library="ray"
        ) from None
    return ray


@contextmanager
def connected(address: str, jobs: int | None) -> Iterator[Any]:
    """Ray, with a connection that ends with the block if it was made here. Raises InputError where there is none."""
    ray = _ray()
    started = _connect(ray, address, jobs)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


def _connect(ray: Any, address: str, jobs: int | None) -> bool:
    """Whether a connection was made here; one that is already there is used as it is."""
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == LOCAL:
        options |= {"address": LOCAL, "num_cpus": jobs, "include_dashboard": False}
    else:
        options |= {
            "address": address,
            "runtime_env": {"py_modules": [str(Path(__file__).parents[1])]},
        }
    try:
        ray.init(**options)
    except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError) as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise InputError(
            f"--ray {address}: no cluster there: {reason}; one that asks for a token needs RAY_AUTH_MODE=token here",
            address=address,
        ) from None
    return True


def _spread(ray: Any, work: Work, parts: Iterable[Numbers]) -> Iterator[list[Row]]:
    """One actor for each processor keeps what is derived from the models; chunks go to them in turn."""
    count = max(int(ray.cluster_resources().get("CPU", 1)), 1)
    shared = ray.put(work)
    actor = ray.remote(num_cpus=1)(Worker)
    workers = [actor.remote(shared) for _ in range(count)]
    waiting: deque[Any] = deque()
    try:
        for number, part in enumerate(parts):
            waiting.append(workers[number % count].packed.remote(part))
            if len(waiting) >= 4 * count:
                yield unpacked(ray.get(waiting.popleft()))
        while waiting:
            yield unpacked(ray.get(waiting.popleft()))
    finally:
        for worker in workers:
            ray.kill(worker)
