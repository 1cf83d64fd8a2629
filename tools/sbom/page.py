"""docs/licences.md: what comes with the package and its extras, under which licences."""

from __future__ import annotations

from tools.sbom import locks
from tools.sbom.bill import needed_by, vendored_licences
from tools.sbom.licences import licence_of

_HEAD = """# Licences

vramledger is under Apache-2.0 (`LICENSE`). What it brings with it, as each distribution's own metadata states it, on Linux (x86_64) with Python {python}; `make sbom`
writes the same with versions and hashes as CycloneDX 1.6, for the package and for each container image. This page is made by `make docs`.

## In the package itself

Libraries of the page that `vramledger ui` serves. Their licence texts lie beside them.

| library | licence |
| --- | --- |
{vendored}

## Installed with it

| distribution | licence | brought by |
| --- | --- | --- |
{rows}

"BSD License" is what a classifier says without saying which of them; "not told" stands where the tests install no such distribution.
"""


def licences_page() -> str:
    """The page; versions are left to the bills, so that it changes only with what is brought."""
    rows = [
        f"| {name} | {licence_of(name)} | {', '.join(f'`{extra}`' for extra in by) or 'every install'} |"
        for name, by in sorted(needed_by().items(), key=lambda item: (bool(item[1]), item[0]))
    ]
    vendored = [f"| {name} | {licence} |" for name, licence in vendored_licences()]
    return _HEAD.format(
        python=locks.environment()["python_version"], vendored="\n".join(vendored), rows="\n".join(rows)
    )
