"""Published models that come with the package: their config.json, for plans without a file or a network."""

from __future__ import annotations

from vramledger.models.builtin.catalogue import PREFIX, BuiltinModel, find, models, names, read

__all__ = ["PREFIX", "BuiltinModel", "find", "models", "names", "read"]
