"""Errors a caller may catch, each with a stable code and the facts behind its sentence.

VramledgerError
├── InputError              something given to us is wrong                   exit 2
│   ├── ConfigError         a model's config.json or its neighbours
│   ├── HeaderError         a safetensors or GGUF header
│   ├── FlagError           an engine flag or a command line option
│   └── DeviceError         a device name that the catalogue does not have
├── UnknownArchitecture     a model this project has no description of       exit 3
├── UnknownFormat           a quantisation this project cannot size          exit 3
├── SourceError             a file or hub that could not be read             exit 4
└── OutputError             an answer or a file that could not be written    exit 74
"""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import Repr


class VramledgerError(Exception):
    """Root of the tree. `code` and `exit_code` are stable; `facts` holds the values by name."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts


# A list of lists that are one and the same is written out as often as it is met: only so many items, so many levels deep.
_SHORT = Repr()
_SHORT.maxlevel = 3
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = _SHORT.maxfrozenset = 20
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shorter(value: object) -> str:
    """A value of any kind as a message shows it, at most 80 characters."""
    try:
        text = _SHORT.repr(value) if isinstance(value, list | tuple | dict | set | frozenset) else repr(value)
    except (
        ValueError,
        RecursionError,
    ):  # a whole number of more digits than Python writes, a list too deep for it
        text = object.__repr__(value)
    return text if len(text) <= 80 else text[:77] + "..."


def either(names: Sequence[str]) -> str:
    """Names to choose from as a message says them: "a", "a or b", "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


class InputError(VramledgerError):
    code = "input"
    exit_code = 2


class ConfigError(InputError):
    code = "config"


class HeaderError(InputError):
    code = "header"


class FlagError(InputError):
    code = "flag"


class DeviceError(InputError):
    code = "device"


class UnknownArchitecture(VramledgerError):
    code = "unknown-architecture"
    exit_code = 3


class UnknownFormat(VramledgerError):
    code = "unknown-format"
    exit_code = 3


class SourceError(VramledgerError):
    code = "source"
    exit_code = 4


class OutputError(VramledgerError):
    """What was answered could not be written; the exit code is EX_IOERR of sysexits.h."""

    code = "output"
    exit_code = 74

    def __init__(self, reason: str) -> None:
        super().__init__(f"the output cannot be written: {reason}", reason=reason)
