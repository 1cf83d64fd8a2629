"""What is particular about starting and sleeping: the check at start-up, and what `/sleep?level=N` gives back.

Source: vllm v1/worker/gpu_worker.py (`sleep`, `_maybe_get_memory_pool_context`),
device_allocator/sleep_mode_backend.py and cumem.py, config/model.py, v1/worker/utils.py (`request_memory`).
"""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.engines.lifecycle import Held, SleepLevel
from vramledger.engines.vllm.version import parse_version
from vramledger.ledger import Owner

SLEEPS_SINCE = (7, 0)
CHECKS_FREE_SINCE = (9, 2)
BUFFERS_KEPT_SINCE = 9
RUNTIME_POOL_SINCE = 32
WORKSPACE_POOL_SINCE = 33

# Whole segments are copied, with what is stranded or free in them.
_WEIGHTS = (
    Held(Owner.WEIGHTS),
    Held(Owner.ALLOCATOR, "stranded beside weights"),
    Held(Owner.ALLOCATOR, "idle between weights"),
)
_BUFFERS = (Held(Owner.WEIGHTS, "rope tables"),)


def sleep_levels(version: str) -> tuple[SleepLevel, ...]:
    """The levels of a version's sleep mode, none before there was one.

    Only the pools tagged "weights" and "kv_cache" are released; adapters lie in the first until 0.32, and since then
    in one that every level copies. Level 2 copies only what modules registered as buffers. Graphs, communicators, the context and what the runner allocated stay.
    """
    release = parse_version(version)
    if not release.since(*SLEEPS_SINCE):
        return ()
    apart = release.since(RUNTIME_POOL_SINCE)
    adapters = (Held(Owner.ADAPTERS),)
    gone: tuple[Held, ...] = (Held(Owner.KV_CACHE),)
    if release.since(WORKSPACE_POOL_SINCE):
        gone += (Held(Owner.WORKSPACE, "experts' kernels"),)
    source = f"vllm {version} v1/worker/gpu_worker.py, device_allocator/cumem.py"
    return (
        SleepLevel(
            name="1",
            needs="--enable-sleep-mode",
            offloaded=_WEIGHTS + adapters,
            discarded=gone,
            source=source,
        ),
        SleepLevel(
            name="2",
            needs="--enable-sleep-mode",
            offloaded=(_BUFFERS if release.since(BUFFERS_KEPT_SINCE) else ()) + (adapters if apart else ()),
            discarded=gone + _WEIGHTS + (() if apart else adapters),
            source=source,
        ),
    )


def free_bytes_required(plan: Plan) -> int:
    """What must be free on each device for the engine to start: its whole budget, since 0.9.2."""
    release = parse_version(plan.inputs.engine_version)
    return plan.budget_bytes if release.since(*CHECKS_FREE_SINCE) else 0
