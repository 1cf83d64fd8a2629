"""A view with its document as one file: the picture that the page shows, from a disk, without any server or network."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from vramledger.report.html import Markup, joined, tag
from vramledger.report.text import Line, render
from vramledger.web import assets
from vramledger.web.page import shell

_START = "vl/lib/alone"
# Nothing of a document may end its element: "<" is an escape in JSON's strings, the only place where one can be.
_CLOSERS = re.compile(r"[<>&\u2028\u2029]")


def view_page(
    view: str,
    document: msgspec.Struct,
    *,
    command: str,
    text: Sequence[Line] = (),
    title: str = "",
    beside: object = None,
) -> str:
    """The file. `view` is a module of static/views, `document` what the command writes with --json, `command` the line that gives it, `text`
    what the terminal shows, for who has no script. `beside` is what the view shows that is no part of the document, as JSON can say it."""
    told = {"view": view, "command": command, "document": document, "beside": beside}
    data = _CLOSERS.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.encode(told).decode())
    imports = assets.inlined_import_map(_START, f"vl/views/{view}")
    start = f'import {{ start }} from "{_START}"; import {{ View }} from "vl/views/{view}"; start(View);'
    policy = (
        f"default-src 'none'; script-src data: {assets.script_hash(imports)} {assets.script_hash(start)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return shell(
        title=title or f"vramledger {view}",
        head=tag("meta", http_equiv="Content-Security-Policy", content=policy) + "\n",
        style=assets.text("app.css"),
        imports=imports,
        without=tag("pre", _lines(render(text, colour=False))) if text else "",
        body=f'<script type="application/json" id="document">{Markup(data)}</script>\n<script type="module">{start}</script>',
    )


def _lines(text: str) -> Markup:
    """Each line as text of its own: an end of a line within a text is shown as what it could pretend to be."""
    return Markup("\n".join(map(joined, text.splitlines())))
