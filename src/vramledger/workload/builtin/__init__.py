"""Workloads that come with the package: a published trace and two tables of cohorts, for runs without a file of one's own."""

from __future__ import annotations

from vramledger.workload.builtin.catalogue import (
    PREFIX,
    BuiltinWorkload,
    find,
    is_builtin,
    names,
    path_of,
    workloads,
)

__all__ = ["PREFIX", "BuiltinWorkload", "find", "is_builtin", "names", "path_of", "workloads"]
