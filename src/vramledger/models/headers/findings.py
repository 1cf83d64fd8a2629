"""Short sentences about where headers and description differ, the largest first."""

from __future__ import annotations

from msgspec import Struct, field

from vramledger.units import format_bytes

MOST_SENTENCES = 20
_LONGEST_NAME = 120


class _Group(Struct):
    tensors: int = 0
    size_bytes: int = 0
    names: dict[str, None] = field(default_factory=dict)


class Findings(Struct):
    """Differences while they are collected. Those of one kind and one cause are told in one sentence."""

    _single: list[tuple[int, str]] = field(default_factory=list)
    _grouped: dict[tuple[str, bool], _Group] = field(default_factory=dict)

    def add(self, text: str, size_bytes: int = 0) -> None:
        """One sentence; `size_bytes` ranks it."""
        self._single.append((abs(size_bytes), text))

    def group(
        self, what: str, name: str, tensors: int, size_bytes: int = 0, *, is_change: bool = False
    ) -> None:
        """One more name under the sentence "`what`: N tensors, BYTES (NAMES)".

        `is_change` marks bytes as more or fewer than the config implies.
        """
        found = self._grouped.setdefault((what, is_change), _Group())
        found.tensors += tensors
        found.size_bytes += size_bytes
        found.names[name] = None

    def sentences(self) -> tuple[str, ...]:
        """At most 20, the largest first, and a count of the rest."""
        told = list(self._single)
        for (what, is_change), group in self._grouped.items():
            told.append((abs(group.size_bytes), _grouped_sentence(what, group, is_change=is_change)))
        told.sort(key=lambda item: (-item[0], item[1]))
        texts = [text for _, text in told[:MOST_SENTENCES]]
        rest = told[MOST_SENTENCES:]
        if rest:
            texts.append(f"and {len(rest)} more differences of {format_bytes(rest[0][0])} or less each")
        return tuple(texts)


def _grouped_sentence(what: str, group: _Group, *, is_change: bool) -> str:
    names = list(group.names)
    shown = ", ".join(short(name) for name in names[:2])
    if len(names) > 2:
        shown += f" and {len(names) - 2} more"
    sign = ("-" if group.size_bytes < 0 else "+") if is_change else ""
    size = f", {sign}{format_bytes(abs(group.size_bytes))}" if group.size_bytes else ""
    return f"{what}: {tensors(group.tensors)}{size} ({shown})"


def short(name: str) -> str:
    """A name from a file, printable and not endless."""
    plain = "".join(character if character.isprintable() else "?" for character in name)
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 3] + "..."


def tensors(count: int) -> str:
    return f"{count} tensor" if count == 1 else f"{count} tensors"
