"""What the page is made of: the modules, styles and libraries that the package ships."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

STATIC = Path(__file__).with_name("static")
# Modules name each other by these, never by a place: so the same file works from a server and within a page of its own.
_VENDORED = {
    "preact": "vendor/preact.js",
    "preact/hooks": "vendor/preact-hooks.js",
    "htm": "vendor/htm.js",
    "echarts": "vendor/echarts.js",
}
_OWN = ("lib", "views", "tabs", "words")
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_IMPORTED = re.compile(r"""(?:\bfrom\s*|\bimport\s*)["']([^"'\n]+)["']""")


@cache
def modules() -> dict[str, str]:
    """Every module's name to its file beneath `static`."""
    own = {
        f"vl/{path.relative_to(STATIC).with_suffix('').as_posix()}": path.relative_to(STATIC).as_posix()
        for folder in _OWN
        for path in sorted((STATIC / folder).glob("*.js"))
    }
    return _VENDORED | own


@cache
def files() -> dict[str, str]:
    """Every file that is served, beneath `static`, to its content type."""
    return {
        path.relative_to(STATIC).as_posix(): _TYPES[path.suffix]
        for path in sorted(STATIC.rglob("*"))
        if path.is_file() and path.suffix in _TYPES
    }


def text(name: str) -> str:
    """A file beneath `static`."""
    return (STATIC / name).read_text(encoding="utf-8")


def import_map() -> str:
    """Where a page that this server sends finds each module."""
    return json.dumps({"imports": {name: f"/static/{file}" for name, file in modules().items()}})


def inlined_import_map(*roots: str) -> str:
    """The modules that `roots` need, themselves included, within the map."""
    found = {name: _data_url(modules()[name]) for name in sorted(_needed(roots))}
    return json.dumps({"imports": found})


def script_hash(source: str) -> str:
    """A script within a page, as its policy names it."""
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


def _data_url(file: str) -> str:
    return f"data:text/javascript;base64,{b64encode((STATIC / file).read_bytes()).decode()}"


def _needed(roots: tuple[str, ...]) -> set[str]:
    needed: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += imports_of(name)
    return needed


def imports_of(name: str) -> Iterator[str]:
    """The modules that a module names."""
    known = modules()
    # What is within a library's one file is no name of ours.
    yield from (found for found in _IMPORTED.findall(text(known[name])) if found in known)
