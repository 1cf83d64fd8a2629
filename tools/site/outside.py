"""Links of a page to what is in the repository and is no page: a file goes with the site, a folder is named."""

from __future__ import annotations

import os
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def replace(app: Sphinx, doctree: nodes.document) -> None:
    """Put a download in the place of a reference to Markdown outside of docs/, and plain text in that of a folder.

    What is not there is left, and Sphinx complains of it.
    """
    here = app.env.doc2path(app.env.current_document.docname).parent
    for node in list(doctree.findall(addnodes.pending_xref)):
        name = str(node["reftarget"])
        if node.get("refdomain") == "doc" and name.startswith("/"):
            page = Path(f"{name}.md")
            if page.is_file() and not page.is_relative_to(app.srcdir):
                link = addnodes.download_reference(
                    reftarget=os.path.relpath(page, here),
                    refdoc=node["refdoc"],
                    reftype="myst",
                    refexplicit=True,
                )
                link += [child.deepcopy() for child in node.children]
                node.replace_self(link)
        elif node.get("refdomain") is None and (here / name).is_dir():
            node.replace_self([child.deepcopy() for child in node.children])


def setup(app: Sphinx) -> dict[str, bool]:
    """Before Sphinx gathers what is to be copied (priority 500)."""
    app.connect("doctree-read", replace, priority=400)
    return {"parallel_read_safe": True}
