"""Options that choose and read a workload, for every command that takes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from vramledger.cli.options import FiniteRange, GroupedOption
from vramledger.errors import FlagError, InputError
from vramledger.workload.reading_options import FORMATS, UNIT_NS

if TYPE_CHECKING:
    from vramledger.workload.columns import Workload
    from vramledger.workload.reading_options import ReadingOptions

WORKLOAD = "Workload"


def workload_options() -> list[GroupedOption]:
    """The options; a command's callback takes them as `**workload` and gives them to `read_chosen`."""
    return [
        _option(
            "trace_format",
            "--format",
            type=click.Choice(list(FORMATS)),
            metavar="FORMAT",
            help=f"Format of the trace; found from its content unless given. One of {', '.join(FORMATS)}.",
        ),
        _option(
            "trace_columns",
            "--column",
            multiple=True,
            metavar="FIELD=NAME",
            help="Which column of the trace holds a field, as in prompt_tokens=ctx; may be repeated.",
        ),
        _option(
            "time_unit",
            "--time-unit",
            type=click.Choice(list(UNIT_NS)),
            help="Unit of the trace's times, where the trace does not state it or states it wrongly.",
        ),
        _option(
            "on_bad_row",
            "--on-bad-row",
            type=click.Choice(["error", "skip"]),
            default="error",
            help="What to do with rows that cannot be read: refuse the trace, or skip them and count them.",
        ),
        _option(
            "link_turns",
            "--link-turns/--no-link-turns",
            default=True,
            help="Let the next turn of a conversation hit the blocks that this turn's output filled, where the trace shows that it repeats them.",
        ),
        _option(
            "follow_parents",
            "--follow-parents/--no-follow-parents",
            default=True,
            help="Send a turn after the simulated end of the turn before it plus the recorded pause, instead of at its recorded time.",
        ),
        _option(
            "conversation_starts",
            "--conversation-starts",
            type=click.Choice(["poisson", "even", "together"]),
            default="poisson",
            help="When conversations start, in traces that record times only within a conversation.",
        ),
        _option(
            "conversation_gap_s",
            "--conversation-gap",
            type=FiniteRange(min=0, max=10**7),
            default=60.0,
            metavar="SECONDS",
            help="Mean time between these starts.",
        ),
        _option(
            "workload_seed",
            "--workload-seed",
            type=click.IntRange(min=0, max=2**63 - 1),
            default=0,
            metavar="N",
            help="Seed of these starts and of --arrivals-at.",
        ),
        _option(
            "limit",
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help="Read the first N requests only.",
        ),
        _option(
            "scale_time",
            "--scale-time",
            type=FiniteRange(min=1e-6, max=1e6),
            metavar="X",
            help="Multiply all arrival times by X: 0.5 doubles the rate.",
        ),
        _option(
            "arrivals_at",
            "--arrivals-at",
            type=FiniteRange(min=0, max=1e7, min_open=True),
            metavar="RATE",
            help="Replace the arrival times by a Poisson process of RATE requests a second.",
        ),
    ]


def _option(name: str, flag: str, **more: Any) -> GroupedOption:
    return GroupedOption([name, flag], group=WORKLOAD, **more)


def take_reading(options: dict[str, Any]) -> dict[str, Any]:
    """The options above, taken out of all of a command's."""
    return {option.name: options.pop(option.name) for option in workload_options() if option.name is not None}


def read_chosen(file: str, workload: Mapping[str, Any], *, max_model_len: int | None = None) -> Workload:
    """The workload that a file and the options above choose.

    Raises InputError where the extra for traces is not installed, and what `read_workload` and `time_scaled` raise.
    """
    options = reading_options(workload, max_model_len=max_model_len)
    factor = workload.get("scale_time")
    try:
        from vramledger.workload.columnar.arrivals import first_of, time_scaled, with_arrivals
        from vramledger.workload.columnar.reading import read_with
    except ImportError as problem:
        raise InputError(
            f"traces need {problem.name}, which is not installed: pip install 'vramledger[simulation]'",
            library=problem.name,
        ) from None
    chosen = read_with(file, options)
    if workload.get("limit") is not None:
        chosen = first_of(chosen, requests=workload["limit"])
    if workload.get("arrivals_at") is not None:
        if factor is not None:
            raise FlagError(
                "--scale-time scales a trace's times, --arrivals-at draws others", flag="arrivals-at"
            )
        return with_arrivals(chosen, rate_per_s=workload["arrivals_at"], seed=options.starts.seed)
    return chosen if factor is None else time_scaled(chosen, factor)


def reading_options(workload: Mapping[str, Any], *, max_model_len: int | None = None) -> ReadingOptions:
    """The options as one value. Raises FlagError for a --column that is none."""
    from vramledger.workload.reading_options import ReadingOptions, Starts

    pairs: dict[str, str] = {}
    for text in workload.get("trace_columns") or ():
        field, mark, name = text.partition("=")
        if not mark or not field or not name:
            raise FlagError(
                f"--column takes FIELD=NAME such as prompt_tokens=ctx, not {text!r}",
                flag="column",
                value=text,
            )
        pairs[field.strip().replace("-", "_")] = name
    return ReadingOptions(
        format=workload.get("trace_format"),
        columns=tuple(sorted(pairs.items())),
        time_unit=workload.get("time_unit"),
        on_bad_row=workload.get("on_bad_row") or "error",
        link_turns=workload.get("link_turns", True),
        follow_parents=workload.get("follow_parents", True),
        starts=Starts(
            kind=workload.get("conversation_starts") or "poisson",
            gap_ns=round(workload.get("conversation_gap_s", 60.0) * 10**9),
            seed=workload.get("workload_seed") or 0,
        ),
        max_model_len=max_model_len,
    )
