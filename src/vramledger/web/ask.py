"""What the page may ask: a command of this project with options from a list, on files that the page was given."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from vramledger.engines import find_engine
from vramledger.engines.option import OptionKind
from vramledger.errors import InputError, shorter
from vramledger.web.commands import COMMANDS, Command
from vramledger.web.uploads import Upload

Value = str | int | float | bool
_BUILTIN, _UPLOAD = "builtin:", "upload:"
_LONGEST_VALUE = 10_000
_MOST_VALUES = 200


class Ask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question. `sources` are the command's arguments, each "builtin:NAME" or "upload:ID"; `options` its options by the name that
    Python has for them, `files` those that name a file or a model, with a source for each."""

    command: str
    sources: tuple[str, ...] = ()
    options: dict[str, Value | tuple[Value, ...]] = {}
    files: dict[str, str | tuple[str, ...]] = {}


class CommandLine(Struct, frozen=True, kw_only=True):
    """The arguments that are run, and the line that a person would type for the same. `places` are where uploads lie, by what stands for
    them in that line."""

    arguments: tuple[str, ...]
    shown: str
    is_long: bool
    places: tuple[tuple[str, str], ...] = ()

    def as_typed(self, text: str) -> str:
        """What the command printed, as it would have printed it for that line: of a file given alone, its folder is "."."""
        folders = [(str(Path(real).parent), ".") for real, told in self.places if told.startswith("./")]
        for real, told in sorted((*self.places, *folders), key=lambda pair: -len(pair[0])):
            text = text.replace(real, told)
        return text


def command_line(ask: Ask, held: Callable[[str], Upload]) -> CommandLine:
    """The command line of a question. Raises InputError for what is not to be asked."""
    command = COMMANDS.get(ask.command)
    if command is None:
        raise InputError(f"the page does not run {shorter(ask.command)}", command=shorter(ask.command))
    run = [ask.command]
    places: list[tuple[str, str]] = []
    shown = ["vramledger", ask.command]
    for source in ask.sources:
        real, told = _source(source, held)
        run.append(real)
        shown.append(told)
        places += _places(source, real, told, held)
    parts = list(_options(command, ask.options)) if ask.options else []
    run += parts
    shown += parts
    for name, keys in ask.files.items():
        if name not in command.files:
            raise InputError(f"{ask.command} takes no file as {shorter(name)}", option=shorter(name))
        for key in (keys,) if isinstance(keys, str) else keys:
            real, told = _source(key, held)
            run.append(f"{command.files[name]}={real}")
            shown.append(f"{command.files[name]}={told}")
            places += _places(key, real, told, held)
    return CommandLine(
        arguments=(*run, *command.alone, "--json"),
        shown=typed(shown),
        is_long=command.is_long,
        places=tuple(places),
    )


def _source(source: str, held: Callable[[str], Upload]) -> tuple[str, str]:
    if source.startswith(_BUILTIN) and "/" not in source and "\\" not in source:
        return source, source
    if source.startswith(_UPLOAD):
        upload = held(source.removeprefix(_UPLOAD))
        return str(upload.path), upload.shown
    raise InputError(
        f"{shorter(source)} is neither a built-in model nor a file given to the page", source=shorter(source)
    )


def _places(source: str, real: str, told: str, held: Callable[[str], Upload]) -> Iterator[tuple[str, str]]:
    """A file's folder is told too: that of a config.json is what an engine serves."""
    if source.startswith(_UPLOAD):
        yield real, told
        yield str(held(source.removeprefix(_UPLOAD)).folder), "."


def _options(command: Command, options: Mapping[str, Value | tuple[Value, ...]]) -> Iterator[str]:
    """Each as one word, so that a value that begins with a hyphen is no option."""
    known = dict(command.options)
    if command.has_engine_flags:
        rules, _ = find_engine(str(options.get("engine") or "vllm"))
        known |= {option.name: option.flag for option in rules.OPTIONS}
        switches = {option.name for option in rules.OPTIONS if option.kind is OptionKind.SWITCH}
    else:
        switches = set()
    for name, given in options.items():
        flag = known.get(name)
        if flag is None:
            raise InputError(f"no option {shorter(name)} is taken from the page", option=shorter(name))
        values = given if isinstance(given, tuple) else (given,)
        if len(values) > _MOST_VALUES:
            raise InputError(f"{flag}: more than {_MOST_VALUES} values", option=name)
        for value in values:
            yield from _spelled(name, flag, value, may_be_off=name in switches or name in command.switches)


def _spelled(name: str, flag: str, value: Value, *, may_be_off: bool) -> Iterator[str]:
    if isinstance(value, bool):
        if value:
            yield flag
        elif may_be_off:
            yield f"--no-{flag.removeprefix('--')}"
        return
    text = str(value)
    if len(text) > _LONGEST_VALUE or "\0" in text:
        raise InputError(f"{flag}: a value that no option has", option=name)
    yield f"{flag}={text}"


def typed(words: Iterable[str]) -> str:
    """Words of a command line as a person types them."""
    return " ".join(map(_quoted, words))


def _quoted(part: str) -> str:
    """As a shell reads it: `--flag=value` quoted after the sign of equality."""
    flag, sign, value = part.partition("=")
    if sign and flag.startswith("--"):
        return f"{flag} {shlex.quote(value)}" if not value.startswith("-") else f"{flag}={shlex.quote(value)}"
    return shlex.quote(part)
