"""HTML made from parts: what is not markup is escaped, and so is every attribute."""

from __future__ import annotations

from html import escape

from vramledger.report.text import safe

_ALONE = frozenset({"meta", "br"})


class Markup(str):
    """Text that is HTML already; any other text is escaped where it is put in."""

    __slots__ = ()


def tag(name: str, /, *inside: str, **attributes: str) -> Markup:
    """An element. A trailing underscore in an attribute's name is left out, other ones are hyphens: `class_`, `aria_label`."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(safe(value))}"' for key, value in attributes.items()
    )
    if name in _ALONE:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{joined(*inside)}</{name}>")


def joined(*parts: str) -> Markup:
    """Parts one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else escape(safe(part)) for part in parts))
