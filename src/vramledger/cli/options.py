"""Options of commands, those of an engine made from its table."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import TYPE_CHECKING, Any

import click
from click.types import StringParamType

from vramledger.engines import engine_name, engine_names, find_engine
from vramledger.engines.option import Option, OptionKind, closest
from vramledger.errors import FlagError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GENERAL = "Question"
OUTPUT = "Output"
_WIDEST_METAVAR = 40
_METAVARS = {
    OptionKind.COUNT: "N",
    OptionKind.COUNT_OR_AUTO: "N|auto",
    OptionKind.SIGNED: "N",
    OptionKind.NUMBER: "X",
    OptionKind.COUNTS: "N,N,...",
    OptionKind.JSON: "JSON",
    OptionKind.TEXT: "NAME",
    OptionKind.TEXTS: "NAME",
}


class FiniteRange(click.FloatRange):
    """A range of numbers; NaN, which no comparison keeps out, and infinity are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not isfinite(found):
            self.fail(f"{value} is no finite number.", param, ctx)
        return found


class _Words(StringParamType):
    """Text that a shell may complete: by what the help calls it."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        from vramledger.cli.completion_values import values

        return values(param, incomplete)


class GroupedOption(click.Option):
    """An option that belongs under a heading of the help. `choices` are values that it is known to take."""

    def __init__(
        self, *args: Any, group: str = GENERAL, choices: tuple[str, ...] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.choices = choices
        _complete(self)


class GroupedCommand(click.Command):
    """Help with a section for each group, and near names for unknown options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            _complete(param)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {GENERAL: []}
        ends: dict[str, list[tuple[str, str]]] = {OUTPUT: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                group = param.group if isinstance(param, GroupedOption) else OUTPUT
                (ends if group == OUTPUT else sections).setdefault(group, []).append(record)
        for group, rows in (sections | ends).items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            names = [
                name
                for param in self.get_params(ctx)
                for name in (*param.opts, *param.secondary_opts)
                if name[:2] == "--"
            ]
            known = {name[2:].replace("-", "_"): name for name in names}
            near = [known[name] for name in closest(problem.option_name, known)]
            raise click.NoSuchOption(problem.option_name, possibilities=near, ctx=ctx) from None


def _complete(param: click.Parameter) -> None:
    if param.type is click.STRING:
        param.type = _WORDS


_WORDS = _Words()
_ENGINE_OF = "vramledger.engine"
DEFAULT_ENGINE = "vllm"


class EngineCommand(GroupedCommand):
    """A command that takes the flags of the engine that its `--engine` names."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        rules, _ = find_engine(ctx.meta.get(_ENGINE_OF, DEFAULT_ENGINE))
        own = super().get_params(ctx)
        return [*own[:-1], *engine_options(rules.OPTIONS), own[-1]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ENGINE_OF] = engine = _named_engine(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            others = _engines_with(problem.option_name)
            if others:
                raise click.UsageError(
                    f"{engine_name(engine)} has no {problem.option_name}, a flag of {', '.join(others)}; "
                    f"--help --engine {engine_name(engine)} lists its own.",
                    ctx=problem.ctx,
                ) from None
            raise


def _engines_with(flag: str) -> list[str]:
    """Engines that have a flag spelled so."""
    found = []
    for name in engine_names():
        options = find_engine(name)[0].OPTIONS
        if any(flag.replace("--no-", "--", 1) in (option.flag, *option.aliases) for option in options):
            found.append(name)
    return found


def _named_engine(args: list[str]) -> str:
    """The last `--engine` of a command line whose flags are not known yet. A name without rules here is left to the
    command, which refuses it."""
    found = DEFAULT_ENGINE
    for index, text in enumerate(args):
        if text == "--":
            break
        if text == "--engine" and index + 1 < len(args):
            found = args[index + 1]
        elif text.startswith("--engine="):
            found = text.partition("=")[2]
    try:
        find_engine(found)
    except FlagError:
        return DEFAULT_ENGINE
    return found


def engine_option(help_text: str = "Engine; its newest version unless one is named.") -> GroupedOption:
    """`--engine`, for a command of class EngineCommand."""
    return GroupedOption(
        ["engine", "--engine"],
        default=DEFAULT_ENGINE,
        metavar="NAME[==VERSION]",
        help=f"{help_text} Known: {', '.join(engine_names())}. Its flags are those below.",
        group=GENERAL,
    )


def engine_options(table: Iterable[Option]) -> list[GroupedOption]:
    """Click options for an engine's flags; values stay text, which the engine's own reader checks."""
    return [_click_option(option) for option in table]


def _click_option(option: Option) -> GroupedOption:
    if option.kind is OptionKind.SWITCH:
        decls = [option.name, f"{option.flag}/--no-{option.flag[2:]}", *option.aliases]
        return GroupedOption(decls, default=None, help=option.help, group=option.group)
    metavar, text = "|".join(option.choices) or _METAVARS[option.kind], option.help
    if len(metavar) > _WIDEST_METAVAR:
        metavar, text = "NAME", f"{text} One of {', '.join(option.choices)}."
    return GroupedOption(
        [option.name, option.flag, *option.aliases],
        default=None,
        multiple=option.kind is OptionKind.TEXTS,
        callback=_none_for_nothing if option.kind is OptionKind.TEXTS else None,
        metavar=metavar,
        help=text,
        group=option.group,
        choices=option.choices,
    )


def _none_for_nothing(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """An option that may be repeated and is not there is a flag that was not given."""
    return value or None


def device_option(*, required: bool = True) -> GroupedOption:
    """`--device`, one device."""
    return GroupedOption(
        ["device", "--device", "-d"],
        required=required,
        metavar="NAME|custom:SIZE",
        help="Device of the catalogue, or a size such as custom:79.19GiB.",
        group=GENERAL,
    )


def concurrency_option() -> GroupedOption:
    """`--concurrency`, of a plan."""
    return GroupedOption(
        ["concurrency", "--concurrency"],
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Requests of the full context that must be held at once, for the verdict.",
        group=GENERAL,
    )


def exit_zero_option(text: str = "Exit with 0 whether anything holds or not.") -> GroupedOption:
    """`--exit-zero`."""
    return GroupedOption(["exit_zero", "--exit-zero"], is_flag=True, help=text, group=OUTPUT)


def json_option() -> GroupedOption:
    """`--json`."""
    return GroupedOption(
        ["as_json", "--json"],
        is_flag=True,
        help="Print the published document instead of a page.",
        group=OUTPUT,
    )


def headers_option() -> GroupedOption:
    """`--no-headers`."""
    return GroupedOption(
        ["headers", "--headers/--no-headers"],
        default=True,
        help="Read the checkpoint's headers, not only config.json.",
        group=GENERAL,
    )
