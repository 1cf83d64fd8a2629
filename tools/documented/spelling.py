"""Commands that are not run are read all the same: the command, its options and their values, targets, modules and extras must exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator

import click
from tools.documented.blocks import ROOT

from vramledger.cli.app import cli

_OPERATORS = set("();<>|&")
_EXTRAS = re.compile(r"vramledger\[([^\]]*)\]")


def commands(script: str) -> Iterator[list[str]]:
    """The words of each simple command, up to what a shell makes of it; comments and continued lines are as in a shell.

    Raises ValueError for a quotation that does not end.
    """
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= _OPERATORS:
                if words and "|" not in word and "&" not in word:
                    break
                yield words
                words = []
            else:
                words.append(word)
        if words:
            yield words


def wrong(script: str) -> Iterator[str]:
    """What is wrong with the commands of ours in a script, a sentence each."""
    for words in commands(script):
        problem = _problem(words)
        if problem:
            yield f"{' '.join(words)}: {problem}"


def _problem(words: list[str]) -> str:
    match words:
        case ["vramledger", *arguments]:
            return _of_ours(arguments)
        case ["make", *targets]:
            known = set(
                re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            )
            unknown = [word for word in targets if "=" not in word and word not in known]
            return f"the Makefile has no {unknown[0]}" if unknown else ""
        case ["python" | "python3", "-m", module, *_] if module.split(".")[0] in {"tools", "vramledger"}:
            return "" if importlib.util.find_spec(module) else f"there is no {module}"
        case ["pip", "install", *wanted]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            named = {name for text in wanted for found in _EXTRAS.findall(text) for name in found.split(",")}
            unknown = sorted(named - set(project["optional-dependencies"]))
            return f"there is no extra {unknown[0]}" if unknown else ""
        case _:
            return ""


def _of_ours(arguments: list[str]) -> str:
    """What the command's own parser says of the arguments; files need not be there."""
    try:
        context = click.Context(cli, info_name="vramledger")
        name, command, rest = cli.resolve_command(context, list(arguments))
        (command or cli).make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        return ""
    except click.BadParameter as problem:
        said = problem.format_message()
        return "" if "does not exist" in said else said
    except click.ClickException as problem:
        return problem.format_message()
    return ""
