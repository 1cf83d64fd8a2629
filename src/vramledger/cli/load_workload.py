"""Who sends what: a trace as it is, or cohorts sampled, for commands that simulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import Struct

from vramledger.cli.options import FiniteRange, GroupedOption
from vramledger.cli.workload_options import WORKLOAD, read_chosen
from vramledger.errors import FlagError, InputError
from vramledger.workload import builtin
from vramledger.workload.client_files import is_client_rates
from vramledger.workload.cohort import Cohort, with_rate
from vramledger.workload.cohort_file import is_cohort_file, read_cohorts

if TYPE_CHECKING:
    from vramledger.workload.columns import Workload
    from vramledger.workload.request import WorkloadHeader

AGENT_TIMES = 2
"""Of agents so many times as many requests are sampled, since a session is a dozen of them."""
TRACE_ONLY = ("trace_format", "trace_columns", "time_unit")


class Sent(Struct, frozen=True, kw_only=True):
    """Replications of a workload, one of a trace; `cohorts` are those they were sampled from, and `arrival_scale` is how many
    times as fast as its own times a trace is sent."""

    workloads: tuple[Any, ...]
    arrival: Literal["poisson", "trace", "steady", "burst"]
    cohorts: tuple[Cohort, ...] = ()
    arrival_scale: float = 1.0


def sampling_options(requests: int) -> list[GroupedOption]:
    """Options of cohorts; `requests` is how many are sampled unless it is said."""
    return [
        _option(
            "workload",
            "--workload",
            "A trace, or something to sample requests from: cohorts (.toml, .json) or clients (NAME.rates.parquet); "
            f"or builtin:NAME, one of {', '.join(builtin.names())}.",
            required=True,
            metavar="FILE",
        ),
        _option(
            "requests",
            "--requests",
            f"How many requests to sample, {requests:,} unless given; of a trace the first N are taken.",
            type=click.IntRange(1, 10**9),
            metavar="N",
        ),
        _option(
            "rate",
            "--rate",
            "Arrivals a second of all cohorts or clients together, instead of their own rates (agents: sessions a second); or the rate at which to send a trace that has no times.",
            type=FiniteRange(0, 1e7, min_open=True),
            metavar="X",
        ),
        _option(
            "seed",
            "--seed",
            "Seed of the sampling.",
            type=click.IntRange(0, 2**63 - 1),
            default=0,
            show_default=True,
            metavar="N",
        ),
    ]


def sent_by(
    file: str,
    options: Mapping[str, Any],
    *,
    requests: int | None,
    otherwise: int,
    rate: float | None,
    seed: int,
    replications: int = 1,
    is_open: bool = False,
    max_model_len: int | None = None,
) -> Sent:
    """The workload of a file. Cohorts are sampled once a replication, each with a seed of its own; with `is_open` they come at a
    rate whatever the file says, 1 a second unless one is given.

    Raises FlagError for options that the file has no use for, and what readers raise.
    """
    if builtin.is_builtin(file):
        known = builtin.find(file)
        sent = sent_by(
            str(builtin.path_of(file)),
            options,
            requests=requests,
            otherwise=otherwise,
            rate=rate,
            seed=seed,
            replications=replications,
            is_open=is_open,
            max_model_len=max_model_len,
        )
        for workload in sent.workloads:
            workload.header = _of_builtin(workload.header, known)
        return sent
    path = Path(file)
    is_clients = is_client_rates(path)
    if not is_clients and not is_cohort_file(path):
        if requests is not None:
            options = {**options, "limit": min(requests, options.get("limit") or requests)}
        trace = read_chosen(file, options, max_model_len=max_model_len)
        if rate is None:
            scale = 1 / (options.get("scale_time") or 1)
            return Sent(workloads=(trace,), arrival="trace", arrival_scale=scale)
        seeds = range(seed, seed + replications)
        return Sent(workloads=tuple(_timed(trace, rate, one) for one in seeds), arrival="poisson")
    for name in TRACE_ONLY:
        if options.get(name):
            raise FlagError(
                f"--{name.removeprefix('trace_').replace('_', '-')} is for traces; {path.name} is sampled",
                flag=name,
            )
    for name in ("scale_time", "arrivals_at"):
        if options.get(name) is not None:
            raise FlagError(
                f"--{name.replace('_', '-')} is for traces; what is sampled has --rate", flag=name
            )
    count = requests or options.get("limit")
    if is_clients:
        count = count or otherwise
        seeds = range(seed, seed + replications)
        return Sent(workloads=tuple(_of_clients(path, count, rate, one) for one in seeds), arrival="burst")
    cohorts = read_cohorts(path)
    asked = rate if rate is not None else _own_rate(cohorts) if is_open else None
    if asked is not None:
        cohorts = with_rate(cohorts, asked)
    agents = any(cohort.agent is not None for cohort in cohorts)
    count = count or otherwise * (AGENT_TIMES if agents else 1)
    smooth = {cohort.burstiness for cohort in cohorts}
    return Sent(
        workloads=tuple(_sampled(cohorts, count, seed + number, path) for number in range(replications)),
        arrival="poisson" if smooth == {1.0} else "steady" if smooth == {0.0} else "burst",
        cohorts=cohorts,
    )


def _of_builtin(header: WorkloadHeader, known: builtin.BuiltinWorkload) -> WorkloadHeader:
    """What comes with the package is told by its name there and where it was published, not by a path."""
    from msgspec.structs import replace

    return replace(
        header, name=known.shown, source=known.shown, notes=(*header.notes, f"{known.shown}: {known.source}")
    )


def _timed(trace: Workload, rate: float, seed: int) -> Workload:
    """A trace that has no times, its requests sent at a rate."""
    from vramledger.workload.columnar.arrivals import with_arrivals

    if any(batch.arrival_ns.any() for batch in trace.batches()):
        raise FlagError(
            "--rate is for cohorts and traces without times; this trace has its own, which --scale-time changes",
            flag="rate",
        )
    return with_arrivals(trace, rate_per_s=rate, seed=seed)


def _own_rate(cohorts: Sequence[Cohort]) -> float:
    rates = [cohort.rate_per_s for cohort in cohorts if cohort.rate_per_s is not None]
    return sum(rates) if len(rates) == len(cohorts) else 1.0


def _sampled(cohorts: Sequence[Cohort], requests: int, seed: int, path: Path) -> Workload:
    try:
        from vramledger.workload.columnar.sampling import sample_workload
    except ImportError as problem:
        raise _not_installed(problem) from None
    from msgspec.structs import replace

    made = sample_workload(cohorts, requests=requests, seed=seed)
    made.header = replace(made.header, name=path.name)
    return made


def _of_clients(path: Path, requests: int, rate: float | None, seed: int) -> Workload:
    try:
        from vramledger.workload.columnar.client_windows import sample_clients
    except ImportError as problem:
        raise _not_installed(problem) from None
    return sample_clients(path, requests=requests, rate_per_s=rate, seed=seed)


def _not_installed(problem: ImportError) -> InputError:
    return InputError(
        f"cohorts and clients need {problem.name}, which is not installed: pip install 'vramledger[simulation]'",
        library=problem.name,
    )


def resampled(cohorts: Sequence[Cohort], requests: int, seed: int, replications: int) -> tuple[Workload, ...]:
    """The same sampling of changed cohorts."""
    return tuple(
        _sampled(cohorts, requests, seed + number, Path("changed")) for number in range(replications)
    )


def _option(name: str, flag: str, text: str, **more: Any) -> GroupedOption:
    return GroupedOption([name, flag], help=text, group=WORKLOAD, **more)
