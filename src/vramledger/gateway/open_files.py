"""As many clients as the process may have open files for: each needs two, its own connection and the engine's."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.gateway.settings import Limits

OTHERS = 128
"""Listeners, the admin port, questions to engines, logs."""
FEWEST = 16


def within_open_files(limits: Limits) -> Limits:
    """The limits with as many connections as open files allow. The process's own bound (`ulimit -n`, often 1,024) is raised as far as it may be and
    is needed: where it is reached, nobody is served and the admin port is shut too."""
    kept = OTHERS + limits.idle_upstream
    allowed = allow_open_files(kept + 2 * limits.connections)
    if allowed is None or allowed >= kept + 2 * limits.connections:
        return limits
    return replace(limits, connections=max(FEWEST, (allowed - kept) // 2))


def allow_open_files(wanted: int) -> int | None:
    """Raises the process's bound to `wanted` as far as it may be; the bound then, None where nobody counts or it was enough."""
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):
        return soft
    return raised
