"""How Sphinx makes the site of docs/: Markdown that a code host shows as well, and nothing loaded from elsewhere."""

from __future__ import annotations

import logging

import vramledger

project = "vramledger"
version = release = vramledger.__version__
html_title = f"vramledger {release}"
project_copyright = "the authors of vramledger, Apache-2.0"

extensions = ["myst_parser", "tools.site.outside", "tools.site.reachable"]
source_suffix = {".md": "markdown"}
root_doc = "index"
language = "en"
# `page.md#a-heading` is looked up and must be there.
myst_heading_anchors = 4

html_theme = "furo"
# A page that is read as a file may fetch no other; what is found is told by its title alone.
html_show_search_summary = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": True,
    # The system's fonts: a page of the built site asks nobody for anything.
    "light_css_variables": {
        "font-stack": "system-ui, sans-serif",
        "font-stack--monospace": "ui-monospace, monospace",
    },
}

# Folders of pages may be empty.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(
    lambda record: getattr(record, "subtype", "") != "empty_glob"
)
