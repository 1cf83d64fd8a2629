"""Pages on the commands and on the flags of each engine, from what `--help` is made from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence

import click
from tools.reference.markdown import code, generated, plain, table

from vramledger.cli.app import cli
from vramledger.cli.options import OUTPUT, EngineCommand, GroupedOption, engine_options
from vramledger.engines import engine_names, find_engine
from vramledger.errors import VramledgerError

# Commands whose examples no test can run, and why; those of all others are run (EXAMPLES).
NOT_RUN = {
    "experiment": "needs a live engine",
    "gateway": "needs a live engine",
    "measure": "needs a live engine",
    "release": "needs a live engine",
    "sample": "needs a GPU",
    "ui": "serves until it is stopped",
    "watch": "needs a live engine",
}
EXAMPLES = "tests/tools/test_help_examples.py"


def pages() -> Iterator[tuple[str, str]]:
    """Names under docs/reference and texts."""
    names = cli.list_commands(click.Context(cli))
    yield "commands.md", _text(_overview(names))
    for name in names:
        yield f"commands/{name}.md", _text(_command(name))
    for engine in engine_names():
        yield f"flags/{engine}.md", _text(_flags(engine))
    yield "errors.md", _text(_errors())


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def _found(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def _overview(names: Sequence[str]) -> Iterator[str]:
    yield from generated("Commands")
    yield "A command's page has its options; those of the engine that it plans for stand on the engine's own page:"
    yield " · ".join(f"[{engine}](flags/{engine}.md)" for engine in engine_names())
    yield ""
    yield "Exit codes and errors are on [a page of their own](errors.md), what `--json` writes under [documents](documents.md)."
    yield ""
    yield from table(
        ("command", "what it answers"),
        [(f"[`{name}`](commands/{name}.md)", plain(_found(name).get_short_help_str(500))) for name in names],
    )
    yield ""
    yield from ("```{toctree}", ":hidden:", ":glob:", "", "commands/*", "flags/*", "```")


def _command(name: str) -> Iterator[str]:
    command = _found(name)
    context = click.Context(command, info_name=f"vramledger {name}")
    yield from generated(f"vramledger {name}")
    yield from _prose(name, command.help or "")
    yield "```text"
    yield f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield "```"
    yield ""
    yield from _options(context, command.params)
    if isinstance(command, EngineCommand):
        links = ", ".join(f"[{engine}](../flags/{engine}.md)" for engine in engine_names())
        yield f"And the flags of the engine that `--engine` names: {links}."
        yield ""
    yield from _prose(name, command.epilog or "")


def _options(context: click.Context, params: Iterable[click.Parameter]) -> Iterator[str]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for param in params:
        record = param.get_help_record(context)
        if record is not None and not isinstance(param, click.Argument):
            group = param.group if isinstance(param, GroupedOption) else OUTPUT
            groups.setdefault(group, []).append((code(record[0]), plain(record[1])))
    if OUTPUT in groups:
        groups[OUTPUT] = groups.pop(OUTPUT)
    for group, rows in groups.items():
        yield f"## {group}"
        yield ""
        yield from table(("option", "meaning"), rows)
        yield ""


def _prose(command: str, text: str) -> Iterator[str]:
    """Paragraphs of a help; one that must keep its lines (`\\b`) is examples, or lines."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if not paragraph.startswith("\b"):
            yield plain(paragraph)
            yield ""
            continue
        first, *rest = paragraph.removeprefix("\b").strip("\n").splitlines()
        if first == "Examples:":
            yield "## Examples"
            yield ""
            yield (
                f"<!-- not run: {NOT_RUN[command]} -->"
                if command in NOT_RUN
                else f"<!-- run by {EXAMPLES} -->"
            )
            yield "```sh"
            yield from (line.removeprefix("  ") for line in rest)
            yield "```"
        else:
            yield "```text"
            yield from (first, *rest)
            yield "```"
        yield ""


def _flags(engine: str) -> Iterator[str]:
    rules, _ = find_engine(engine)
    context = click.Context(click.Command("plan"))
    yield from generated(f"Flags of {engine}")
    yield f"Under the engine's own names, for every command that has `--engine {engine}`."
    yield "From Python they are keyword arguments of `vramledger.plan`, with underscores."
    yield ""
    yield from _options(context, engine_options(rules.OPTIONS))


def _errors() -> Iterator[str]:
    yield from generated("Errors and exit codes")
    yield "Every error is one of these classes, with a stable code and the facts behind its sentence; with `--json` it is written to"
    yield "stderr as a document ([error](documents/error.md)). `except VramledgerError` catches all."
    yield ""
    yield from table(("class", "code", "exit code", "meaning"), _classes(VramledgerError))
    yield ""
    yield "## Exit codes"
    yield ""
    yield "```text"
    yield from _exit_codes()
    yield "```"


def _classes(kind: type[VramledgerError]) -> Iterator[tuple[str, ...]]:
    said = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    yield (
        f"`{kind.__name__}`",
        f"`{kind.code}`",
        str(kind.exit_code),
        plain(said or f"A `{kind.__base__.__name__ if kind.__base__ else ''}`."),
    )
    for child in kind.__subclasses__():
        if child.__module__ == kind.__module__:
            yield from _classes(child)


def _exit_codes() -> Iterator[str]:
    text = (cli.epilog or "").partition("Exit codes:\n")[2]
    found = re.split(r"(?:^|\s{2,})(?=\d+ )", text.strip())
    return (item.strip() for item in found if item.strip())
