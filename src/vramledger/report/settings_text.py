"""Settings of an engine as a line of a page: those that plans take first, those that say nothing or too much left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vramledger.engines import engine_names, find_engine

MOST_SETTINGS = 40
LONGEST_SETTING = 40
_SAYS_NOTHING = ("None", "null", "", "False", False, "[]", "{}")


def settings_text(settings: Mapping[str, object], engines: Iterable[str]) -> str:
    """ "tp 2, dtype bfloat16, and 30 more (--json has all)"; "" where no setting says anything."""
    known = {
        option.name
        for engine in engines
        if engine in engine_names()
        for option in find_engine(engine)[0].OPTIONS
    }
    said = {name: value for name, value in settings.items() if value not in _SAYS_NOTHING}
    names = sorted(said, key=lambda name: name not in known)
    short = [name for name in names if len(str(said[name])) <= LONGEST_SETTING]
    shown = [f"{name} {said[name]}" for name in short[:MOST_SETTINGS]]
    more = len(names) - len(shown)
    if more:
        shown.append(f"and {more} more (--json has all)")
    return ", ".join(shown)
