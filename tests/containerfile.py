"""The Containerfile as its stages and instructions."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path

from dockerfile_parse import DockerfileParser
from msgspec import Struct

ROOT = Path(__file__).parents[1]
CONTAINERFILE = ROOT / "deploy" / "container" / "Containerfile"


class Stage(Struct, frozen=True, kw_only=True):
    """`base` is the image or stage it begins with; `instructions` are (name, value) in their order."""

    name: str
    base: str
    instructions: tuple[tuple[str, str], ...]

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.instructions if name == instruction]

    def words(self, instruction: str) -> list[str]:
        """The last of ENTRYPOINT or CMD, whose form is that of a JSON list."""
        found: list[str] = json.loads(self.values(instruction)[-1])
        return found


def default_base() -> str:
    """What PYTHON is without --build-arg."""
    (value,) = [item["value"] for item in _structure() if item["instruction"] == "ARG"]
    return str(value).partition("=")[2]


def stages() -> dict[str, Stage]:
    """By name, in the file's order."""
    found: dict[str, Stage] = {}
    for item in _structure():
        name, value = str(item["instruction"]), str(item["value"])
        if name == "FROM":
            match = re.fullmatch(r"(\S+) AS (\S+)", value)
            assert match is not None, f"a stage without a name: {value}"
            found[match[2]] = Stage(name=match[2], base=match[1], instructions=())
        elif found and name != "COMMENT":
            last = found[next(reversed(found))]
            found[last.name] = Stage(
                name=last.name, base=last.base, instructions=(*last.instructions, (name, value))
            )
    return found


def _structure() -> list[dict[str, object]]:
    structure: list[dict[str, object]] = DockerfileParser(
        fileobj=BytesIO(CONTAINERFILE.read_bytes())
    ).structure
    return structure
