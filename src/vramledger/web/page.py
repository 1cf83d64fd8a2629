"""The page's HTML: almost nothing, the rest is modules."""

from __future__ import annotations

from html import escape

from vramledger.web import assets

_SHELL = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{head}<title>{title}</title>
<link rel="icon" href="data:,">
{style}
<script type="importmap">{imports}</script>
</head>
<body>
<noscript>{without}</noscript>
<div id="root"></div>
{body}
</body>
</html>
"""


def page(token: str) -> tuple[str, str]:
    """What `/` answers, and the policy of what it may load: only what this server sends."""
    imports = assets.import_map()
    policy = (
        f"default-src 'none'; script-src 'self' {assets.script_hash(imports)}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    made = _SHELL.format(
        head=f'<meta name="vramledger-token" content="{escape(token)}">\n',
        title="vramledger",
        style='<link rel="stylesheet" href="/static/app.css">',
        imports=imports,
        without="This page needs JavaScript. Every command it runs is in the terminal too: vramledger --help.",
        body='<script type="module" src="/static/lib/main.js"></script>',
    )
    return made, policy


def shell(*, title: str, head: str, style: str, imports: str, without: str, body: str) -> str:
    """A page of its own: parts are HTML already, `title` is text."""
    return _SHELL.format(
        head=head,
        title=escape(title),
        style=f"<style>{style}</style>",
        imports=imports,
        without=without,
        body=body,
    )
