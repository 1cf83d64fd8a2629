"""Links of a built site: each leads to a file of the site and to a place that is there, and no page loads anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Where a browser fetches by itself; a link (`a`) to another host is followed by a reader alone.
_LOADED = {"audio", "embed", "iframe", "img", "input", "link", "object", "script", "source", "track", "video"}


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[tuple[str, str, int]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self.ids.update(filter(None, (said.get("id"), said.get("name") if tag == "a" else None)))
        for key in ("href", "src", "data", "poster"):
            target = said.get(key)
            if target and (key in {"href", "src"} or tag in _LOADED):
                self.links.append((tag, target, self.getpos()[0]))


def broken(site: Path) -> Iterator[str]:
    """What is wrong with the links of every HTML file under `site`, a sentence each that names the file and its line."""
    root = site.resolve()
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.html"))}
    for path, page in pages.items():
        for tag, target, line in page.links:
            where = f"{path.relative_to(root)}:{line}"
            parts = urlsplit(target)
            if parts.scheme == "data" and tag in _LOADED:
                continue
            if parts.scheme or parts.netloc:
                if tag in _LOADED or parts.scheme not in {"http", "https", "mailto"}:
                    yield f"{where}: {tag} asks for {target}, which is not in the site"
                continue
            found = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not found.is_relative_to(root) or not found.is_file():
                yield f"{where}: {target} leads to no file of the site"
            elif parts.fragment and found in pages and unquote(parts.fragment) not in pages[found].ids:
                yield f"{where}: {target} leads to no place of that page"
