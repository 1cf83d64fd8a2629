"""Lists of tokens at the command line."""

from __future__ import annotations

from vramledger.cli.options import GENERAL
from vramledger.engines.option import Option, OptionKind, bad_value, parse_count

MOST_TOKENS = 2**31


def token_counts(name: str, text: str) -> tuple[int, ...]:
    """ "1K,8K" of the flag `name` in tokens, as they stand. Raises FlagError for anything else."""
    option = Option(name=name, kind=OptionKind.COUNTS, group=GENERAL, help="")
    counts = []
    for part in text.split(","):
        try:
            counts.append(parse_count(part))
        except ValueError as problem:
            raise bad_value(option, part, str(problem)) from None
        if not 1 <= counts[-1] <= MOST_TOKENS:
            raise bad_value(option, part, f"is not from 1 to {MOST_TOKENS}")
    return tuple(counts)
