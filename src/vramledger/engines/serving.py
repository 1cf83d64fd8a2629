"""How an engine's server is started with the flags that a plan was made for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from vramledger.engines.option import Option, OptionKind, spelled
from vramledger.errors import FlagError

REQUEST_FLAGS = frozenset(
    {
        "prompt_logprobs",
        "logprobs",
        "penalties",
        "grammars",
        "beams",
        "prompt_embeds",
        "held_contexts",
        "held_tokens",
    }
)
"""Flags of a plan that speak of what requests ask for, in every engine."""


class Serving(Struct, frozen=True, kw_only=True):
    """One engine's server command.

    `program` and `listen` may hold {model}, {host} and {port}; `always` stands after them (metrics, log lines that are read
    later). `plan_only` are flags that only a plan understands, beside REQUEST_FLAGS; `names` the server's spelling of a flag where
    it is not the option's. `negates` tells whether a switch has a --no- form.
    `environment` are flags that the server takes from its environment, as VARIABLE={value} ({first_devices} is 0,1,... as many as the value); `in_file` those
    that stand in a file which `file_flag` names, by their place in it; `instead` says of flags that have no place at all what
    to do. `rank_processes` are beginnings of the names of the processes that hold ranks, the first of which any process bears being the one
    that counts; empty where one process is the whole server.
    """

    program: tuple[str, ...]
    listen: tuple[str, ...]
    always: tuple[str, ...] = ()
    plan_only: frozenset[str] = frozenset()
    names: Mapping[str, str] = {}
    negates: bool = True
    environment: Mapping[str, str] = {}
    in_file: Mapping[str, str] = {}
    file_flag: str = ""
    instead: Mapping[str, str] = {}
    rank_processes: tuple[str, ...] = ()


def serve_command(
    serving: Serving,
    options: Iterable[Option],
    *,
    model: str,
    host: str,
    port: int,
    values: Mapping[str, object],
) -> tuple[str, ...]:
    """The command, an argument an item; `values` by flag name as a person gave them, None for one not given.

    Raises FlagError for a flag that the engine does not have, and for a switch set to no where the server has no such form.
    """
    known = {option.name: option for option in options}
    fill = {"model": model, "host": host, "port": str(port)}
    out = [part.format(**fill) for part in (*serving.program, *serving.listen)]
    out += serving.always
    for name, value in values.items():
        option = known.get(name)
        if value is None or name in serving.plan_only or name in REQUEST_FLAGS:
            continue
        if option is None:
            raise FlagError(f"{spelled(name)} is no flag of this engine", flag=name)
        out += _argument(serving, option, value)
    return tuple(out)


def _argument(serving: Serving, option: Option, value: object) -> list[str]:
    flag = serving.names.get(option.name, option.flag)
    if option.kind is OptionKind.SWITCH:
        if value in (True, "true", "True", "1", "yes", "on"):
            return [flag]
        if not serving.negates:
            raise FlagError(f"the server has no form of {flag} that says no", flag=option.name)
        return [f"--no-{flag[2:]}"]
    if isinstance(value, tuple | list):
        return [part for item in value for part in (flag, str(item))]
    return [flag, str(value)]
