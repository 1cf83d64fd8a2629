"""The built-in workloads, found by name. Their files are written by `python -m tools.builtin_workloads`."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from vramledger.errors import SourceError

PREFIX = "builtin:"
_FOLDER = Path(__file__).parent
_LONGEST_NAME = 200


class BuiltinWorkload(Struct, frozen=True, kw_only=True):
    """One workload. `name` is what follows `builtin:`, `source` where it was published, and its licence where that is not ours."""

    name: str
    file: str
    is_trace: bool
    about: str
    source: str

    @property
    def shown(self) -> str:
        """What stands for its file in an answer."""
        return f"{PREFIX}{self.name}"


_WORKLOADS = (
    BuiltinWorkload(
        name="azure-chat",
        file="azure-chat.csv.gz",
        is_trace=True,
        about="a chat service's first ten minutes: 3,000 arrivals and lengths",
        source="AzureLLMInferenceTrace_conv.csv of Azure/AzurePublicDataset (Splitwise, ISCA 2024), CC-BY 4.0; its first 3,000 requests",
    ),
    BuiltinWorkload(
        name="short-qa",
        file="short-qa.toml",
        is_trace=False,
        about="short questions and answers of 128 users, half of each prompt shared",
        source="examples/workloads/short-qa.toml of this project",
    ),
    BuiltinWorkload(
        name="ten-second-tools",
        file="ten-second-tools.toml",
        is_trace=False,
        about="64 agents whose tool calls take ten seconds in the middle",
        source="examples/workloads/ten-second-tools.toml of this project",
    ),
)


def names() -> tuple[str, ...]:
    """What may follow `builtin:`."""
    return tuple(each.name for each in _WORKLOADS)


def workloads() -> tuple[BuiltinWorkload, ...]:
    """All of them, in the order of `names`."""
    return _WORKLOADS


def is_builtin(text: str | Path) -> bool:
    """Whether a workload is named that comes with the package, rather than a file."""
    return str(text).startswith(PREFIX)


def find(text: str) -> BuiltinWorkload:
    """The workload of a name, with or without `builtin:`. Raises SourceError with the closest name for one that is not here."""
    wanted = text.strip().removeprefix(PREFIX)
    for each in _WORKLOADS:
        if each.name == wanted.casefold():
            return each
    from difflib import get_close_matches

    from vramledger.models.sources.bounded_file import quote

    closest = tuple(get_close_matches(wanted[:_LONGEST_NAME].casefold(), names(), n=1, cutoff=0.5))
    hint = f"did you mean {closest[0]}?" if closest else f"there are {', '.join(names())}"
    raise SourceError(
        f"no built-in workload is called {quote(wanted, 120)}; {hint}",
        text=wanted[:_LONGEST_NAME],
        closest=closest,
    )


def path_of(text: str | Path) -> Path:
    """The file of a workload: a built-in one's within the package, else the path itself. Raises what `find` raises."""
    return _FOLDER / find(str(text)).file if is_builtin(text) else Path(text)
