"""Options of how a capacity is searched, and what is told beside it."""

from __future__ import annotations

import click

from vramledger.cli.load_options import AIMS, RUN
from vramledger.cli.options import FiniteRange, GroupedOption


def search_options() -> list[click.Option]:
    """How sure, how finely, over how many samples, and what else."""
    return [
        GroupedOption(
            ["confidence", "--confidence"],
            type=FiniteRange(0.5, 0.999),
            default=0.95,
            show_default=True,
            metavar="SHARE",
            help="Confidence level of the interval around the answer.",
            group=AIMS,
        ),
        GroupedOption(
            ["resolution", "--resolution"],
            type=FiniteRange(0.001, 0.5),
            default=0.02,
            show_default=True,
            metavar="SHARE",
            help="Relative precision that the load is searched to.",
            group=RUN,
        ),
        GroupedOption(
            ["replications", "--replications"],
            type=click.IntRange(1, 64),
            default=3,
            show_default=True,
            metavar="N",
            help="Independent samples of the cohorts that each load is run with; a trace is run once.",
            group=RUN,
        ),
        GroupedOption(
            ["operating", "--operating-share"],
            type=FiniteRange(0, 1, min_open=True),
            default=0.8,
            show_default=True,
            metavar="SHARE",
            help="Share of the capacity at which headroom for bursts and restarts is found.",
            group=RUN,
        ),
        GroupedOption(
            ["with_headroom", "--headroom/--no-headroom"],
            default=True,
            help="Find the headroom for bursts and restarts.",
            group=RUN,
        ),
        GroupedOption(
            ["with_changes", "--sensitivity/--no-sensitivity"],
            default=None,
            help="Search the capacity again with one thing changed at a time. On unless the readable simulator has to run.",
            group=RUN,
        ),
    ]
