"""Which version of this project runs, for whoever tells it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """ "unknown" where it runs without being installed."""
    try:
        return version("vramledger")
    except PackageNotFoundError:
        return "unknown"
