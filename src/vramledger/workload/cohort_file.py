"""Cohorts in a file: TOML with a `[[cohort]]` table each, or JSON of the same layout."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from vramledger.errors import FlagError, InputError
from vramledger.models.sources.bounded_file import read_whole, shown
from vramledger.whole_file import write_whole
from vramledger.workload.cohort import MOST_COHORTS, Cohort

LARGEST_BYTES = 2**24
# A reader of TOML keeps every beginning of a key: "a.a.a" with a thousand parts takes a million steps.
_DEEPEST_KEY = 16
_PART = re.compile(r"""(?:(?<![\w-])[\w-]++|"[^"\\\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+""")


class CohortFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file of cohorts says."""

    cohort: tuple[Cohort, ...]


def is_cohort_file(path: Path) -> bool:
    """Whether a path is one of a file of cohorts by its name: TOML, or JSON (traces are JSON lines)."""
    return path.suffix.lower() in (".toml", ".json")


def check_cohort_file_name(path: Path) -> None:
    """Raises FlagError for a name that no file of cohorts has."""
    if not is_cohort_file(path):
        raise FlagError(f"{shown(path)} ends in neither .toml nor .json", flag="fit", value=shown(path))


def read_cohorts(path: Path) -> tuple[Cohort, ...]:
    """The cohorts of a file.

    Raises SourceError where it cannot be read and InputError, with the file, the key and the value, where it says something
    that cannot be.
    """
    data = read_whole(path, LARGEST_BYTES, InputError)
    where = shown(path)
    try:
        found = msgspec.json.decode(data) if path.suffix.lower() == ".json" else _toml(data)
        cohorts = msgspec.convert(found, CohortFile).cohort
    except (ValueError, RecursionError) as problem:
        hint = "" if path.suffix.lower() != ".json" else "; a trace has an object a line, and ends in .jsonl"
        raise InputError(
            f"{where} is no file of cohorts: {shown(str(problem))}{hint}", file=where, reason=str(problem)
        ) from None
    if not 1 <= len(cohorts) <= MOST_COHORTS:
        raise InputError(
            f"{where} has {len(cohorts)} cohorts, not from 1 to {MOST_COHORTS:,}",
            file=where,
            value=len(cohorts),
        )
    return cohorts


def write_cohorts(cohorts: Sequence[Cohort], path: Path, *, heading: Sequence[str] = ()) -> None:
    """Cohorts in a file, JSON or TOML by its name; `heading` stands over TOML as comments.

    Raises OutputError where it cannot be written.
    """
    document = CohortFile(cohort=tuple(cohorts))
    if path.suffix.lower() == ".json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    else:
        text = toml_of(cohorts, heading=heading)
    write_whole(path, text.encode())


def toml_of(cohorts: Sequence[Cohort], *, heading: Sequence[str] = ()) -> str:
    """Cohorts as TOML, read back as the same values."""
    lines = [f"# {shown(line)}".rstrip() for line in heading]
    for cohort in cohorts:
        lines += ["", "[[cohort]]", *_table(msgspec.to_builtins(cohort), "cohort")]
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml(data: bytes) -> dict[str, object]:
    import tomllib

    text = data.decode("utf-8-sig")
    length = end = 0
    for part in _PART.finditer(text):
        length = length + 1 if part.start() == end else 1
        end = part.end()
        if length > _DEEPEST_KEY:
            raise ValueError(f"a key of more than {_DEEPEST_KEY} parts")
    return tomllib.loads(text)


def _table(values: Mapping[str, object], name: str) -> Iterator[str]:
    tables = {}
    for key, value in values.items():
        if isinstance(value, dict) and key in ("agent", "boundary", "retrieval"):
            tables[key] = value
        elif value is not None:
            yield f"{key} = {_value(value)}"
    for key, table in tables.items():
        yield ""
        yield f"[{name}.{key}]"
        yield from _table(table, f"{name}.{key}")


def _value(value: object) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{key} = {_value(one)}" for key, one in value.items() if one is not None)
        return f"{{ {inside} }}"
    if isinstance(value, str):
        # JSON and TOML escape alike but for DEL, which TOML does not take as it stands.
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    return msgspec.json.encode(value).decode()
