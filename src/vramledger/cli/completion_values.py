"""What may stand where a value is asked for: devices, engines, built-in models, choices, files.

The kind of a value is what its help calls it (its metavar); what is called otherwise has no completion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import click
from click.shell_completion import CompletionItem

from vramledger.units import format_gib

_PATHS = re.compile(r"\b(FILE|FOLDER|DIR|PLAN|MEASUREMENT|ADAPTER|NEW)\b|^[AB]$")
_MODEL = re.compile(r"\bMODEL\b|^OLD$|^\[NEW\]$")
_CHOICES = re.compile(r"[a-z0-9_.+-]+(\|[a-z0-9_.+-]+)+")
_DEVICE_NAMES = ("device", "devices")


def values(param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Items for a parameter of type text. The last of a list with commas is completed, the others stand before it."""
    metavar = str(param.metavar or "")
    listed = ",..." in metavar
    before, comma, word = incomplete.rpartition(",") if listed else ("", "", incomplete)
    return [
        CompletionItem(f"{before}{comma}{item.value}", type=item.type, help=item.help)
        for item in _items(param, metavar, word)
    ]


def _items(param: click.Parameter, metavar: str, word: str) -> Iterable[CompletionItem[str]]:
    choices: tuple[str, ...] = getattr(param, "choices", ())
    if not choices and _CHOICES.fullmatch(metavar):
        choices = tuple(metavar.split("|"))
    if choices:
        return _starting(word, ((name, "") for name in choices))
    if param.name in _DEVICE_NAMES and metavar.startswith("NAME"):
        return _starting(word, _devices())
    if param.name == "engine" and metavar.startswith("NAME"):
        from vramledger.engines import engine_names

        return _starting(word, ((name, "") for name in engine_names()))
    if _MODEL.search(metavar):
        return _builtin(word, _models())
    if param.name == "workload":
        return _builtin(word, _workloads())
    if _PATHS.search(metavar):
        return [CompletionItem(word, type="dir" if metavar in ("DIR", "FOLDER") else "file")]
    return []


def _starting(word: str, named: Iterable[tuple[str, str]]) -> list[CompletionItem[str]]:
    key = word.casefold()
    return [
        CompletionItem(name, help=text or None) for name, text in named if name.casefold().startswith(key)
    ]


def _devices() -> Iterator[tuple[str, str]]:
    """Names with a hyphen for a blank, which `find_device` reads alike and a shell leaves whole."""
    from vramledger.hardware.catalogue import devices

    for device in devices():
        yield device.name.replace(" ", "-"), format_gib(device.total_bytes)


def _builtin(word: str, named: Iterable[tuple[str, str]]) -> list[CompletionItem[str]]:
    """What comes with the package once `builtin:` is begun, else files."""
    from vramledger.models.builtin import PREFIX

    if not word or not (PREFIX.startswith(word) or word.startswith(PREFIX)):
        return [CompletionItem(word, type="file")]
    return _starting(word, named)


def _models() -> Iterator[tuple[str, str]]:
    from vramledger.models.builtin import PREFIX, models
    from vramledger.report.text import billions

    for model in models():
        size = model.published_parameters
        yield f"{PREFIX}{model.name}", f"{billions(size)} parameters" if size else ""


def _workloads() -> Iterator[tuple[str, str]]:
    from vramledger.workload.builtin import workloads

    for workload in workloads():
        yield workload.shown, workload.about
