"""Reading flags by name against an engine's table of options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramledger.engines.option import Option, read_value, unknown_flag
from vramledger.errors import FlagError


def read_flags(
    values: Mapping[str, object], options: Sequence[Option], short: Mapping[str, str], engine: str
) -> dict[str, object]:
    """Values by the options' names, each checked; None is a flag not given. `short` are other names of the same flags.

    Raises FlagError for an unknown name with the closest ones, for a value that its flag does not take, and for two
    names of one flag with different values.
    """
    known = {option.name: option for option in options}
    out: dict[str, object] = {}
    for given, value in values.items():
        if value is None:
            continue
        name = short.get(given, given)
        option = known.get(name)
        if option is None:
            raise unknown_flag(given, [*known, *short], engine)
        read = read_value(option, value)
        if out.setdefault(name, read) != read:
            raise FlagError(
                f"{option.flag} is given as {out[name]} and as {read}", flag=name, value=str(read)
            )
    return out


def refuse_parallel(
    values: Mapping[str, object], absent: Mapping[str, str], engine: str, more: str = ""
) -> None:
    """Raises FlagError where one of the `absent` kinds of parallelism (name to word) is asked of an engine without it."""
    for name, word in absent.items():
        value = values.get(name)
        if value is not None and value is not False and (value != 1 or value is True):
            raise FlagError(
                f"{engine} has no {word} parallelism: --{name} {value}{more}", flag=name, value=str(value)
            )
