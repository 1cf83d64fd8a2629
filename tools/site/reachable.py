"""What the generator and its theme leave out for who reads with a keyboard or a screen reader."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def complete(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: nodes.document | None
) -> None:
    """Captions of the navigation are headings of a level; what scrolls sideways is reached by the keyboard."""
    tree = str(context.get("furo_navigation_tree", ""))
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    if "body" in context:
        body = str(context["body"]).replace("<pre>", '<pre tabindex="0">')
        context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


def folded(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: nodes.document | None
) -> None:
    """Of the navigation, what lies beneath other pages stays folded: their overviews have it, and nobody passes a hundred links on each page."""
    toctree = context["toctree"]
    context["toctree"] = lambda **options: toctree(**{**options, "collapse": True})


def setup(app: Sphinx) -> dict[str, bool]:
    """Around the theme, which makes its navigation at priority 500."""
    app.connect("html-page-context", folded, priority=100)
    app.connect("html-page-context", complete, priority=900)
    return {"parallel_read_safe": True}
