"""Engines' schedulers over a block pool: one module an engine, one protocol for all (see `protocol`)."""
