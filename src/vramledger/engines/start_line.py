"""The line with which a person starts an engine under the flags that a plan was made for, and no others."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping

from msgspec import Struct

from vramledger.engines.option import AUTO, Option, OptionKind, read_value
from vramledger.engines.serving import REQUEST_FLAGS, Serving

FILE_NAME = "engine-options.yaml"


class StartLine(Struct, frozen=True, kw_only=True):
    """`command` is what a shell takes, after it wrote a file where the engine wants one; `left_out` are flags given to the plan that the
    command does not carry, each with what stands for it."""

    command: str
    left_out: tuple[str, ...]


def start_line(
    serving: Serving, options: Iterable[Option], *, model: str, values: Mapping[str, object]
) -> StartLine:
    """The command for `values` by flag name as a person gave them, None for one not given. Counts are spelled out, since not every engine
    knows 32K.

    Raises FlagError for a value that the flag does not take.
    """
    known = {option.name: option for option in options}
    given = {
        name: read_value(known[name], value)
        for name, value in values.items()
        if value is not None and name in known and name not in REQUEST_FLAGS
    }
    environment: list[str] = []
    words = [part.format(model=model) for part in serving.program]
    in_file: dict[str, object] = {}
    left_out: list[str] = []
    for name, value in given.items():
        option = known[name]
        place = serving.in_file.get(name)
        if name in serving.environment:
            environment.append(_variable(serving.environment[name], value))
        elif name in serving.plan_only:
            left_out.append(f"{option.flag}: {serving.instead.get(name, 'only a plan reads it')}")
        elif place is not None and (name not in serving.names or _shares(place, given, serving)):
            _put(in_file, place, value)
        elif value is False and not serving.negates:
            left_out.append(f"{option.flag}: the server has no form of it that says no")
        else:
            words += _argument(serving, option, value)
    if in_file:
        words += [serving.file_flag, FILE_NAME]
    line = " ".join((*environment, shlex.join(words)))
    written = f"cat > {FILE_NAME} <<'END'\n{_yaml(in_file)}END\n" if in_file else ""
    return StartLine(command=written + line, left_out=tuple(left_out))


def _shares(place: str, given: Mapping[str, object], serving: Serving) -> bool:
    """Whether the part of the file that `place` is in is written anyway: it then stands for the argument too."""
    part = place.partition(".")[0]
    return any(
        serving.in_file.get(name, "").startswith(f"{part}.") and name not in serving.names for name in given
    )


def _variable(form: str, value: object) -> str:
    name, _, text = form.partition("=")
    switch = {True: "True", False: "False"} if ":" in text else {True: "1", False: "0"}
    spelled = switch[value] if isinstance(value, bool) else _text(value)
    devices = ",".join(map(str, range(value))) if isinstance(value, int) and value < 1024 else ""
    return f"{name}={shlex.quote(text.format(value=spelled, first_devices=devices))}"


def _argument(serving: Serving, option: Option, value: object) -> list[str]:
    flag = serving.names.get(option.name, option.flag)
    if isinstance(value, bool):
        return [flag] if value else [f"--no-{flag[2:]}"]
    if option.kind is OptionKind.TEXTS and isinstance(value, tuple):
        return [flag, *map(str, value)]
    if option.kind is OptionKind.COUNT_OR_AUTO and value == AUTO:
        return [flag, "auto"]
    return [flag, _text(value)]


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return json.dumps(value)
    return str(value)


def _put(into: dict[str, object], place: str, value: object) -> None:
    part, _, name = place.partition(".")
    section = into.get(part)
    if name:
        into[part] = {**(section if isinstance(section, dict) else {}), name: value}
    elif not isinstance(value, bool) or not part.endswith("_config"):
        into[part] = value
    elif section is None:
        # A section that is off is null, one that is on has its defaults.
        into[part] = {} if value else None


def _yaml(settings: Mapping[str, object]) -> str:
    """Two levels of keys; each value is JSON, which YAML reads."""
    lines = []
    for key, value in settings.items():
        if isinstance(value, dict) and value and key != "speculative_config":
            lines.append(f"{key}:")
            lines += [f"  {name}: {json.dumps(each)}" for name, each in value.items()]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return "".join(f"{line}\n" for line in lines)
