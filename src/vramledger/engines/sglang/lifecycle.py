"""What `/release_memory_occupation` gives back, by version.

Source: sglang managers/scheduler_components/weight_updater.py (before 0.5.20: managers/scheduler.py),
constants.py, model_executor/model_runner_components/load_model_utils.py, model_executor/runner_backend/.
"""

from __future__ import annotations

from vramledger.answer import Plan
from vramledger.engines.lifecycle import Held, SleepLevel
from vramledger.engines.sglang.version import parse_version
from vramledger.ledger import Owner

RELEASES_SINCE = (4, 3)
BACKUP_SINCE = (5, 3)
GRAPHS_SINCE = (5, 6)

_WEIGHTS = (Held(Owner.WEIGHTS), Held(Owner.ALLOCATOR, "rests of the weights' segments"))
# What modules registered as buffers is cloned on the device while the weights' memory is away.
_CLONED = (Held(Owner.WEIGHTS, "rope tables"),)


def sleep_levels(version: str) -> tuple[SleepLevel, ...]:
    """Releasing everything that has a tag: weights, KV pools, and graphs since 0.5.6.

    Weights come back empty, to be loaded anew, unless the server keeps a copy on the host.
    """
    release = parse_version(version)
    if not release.since(*RELEASES_SINCE):
        return ()
    source = f"sglang {version} managers/scheduler_components/weight_updater.py"
    gone = (Held(Owner.KV_CACHE),) + ((Held(Owner.GRAPH_POOL),) if release.since(*GRAPHS_SINCE) else ())
    emptied = SleepLevel(
        name="release",
        needs="--enable-memory-saver",
        offloaded=(),
        discarded=gone + _WEIGHTS,
        kept=_CLONED,
        source=source,
    )
    if not release.since(*BACKUP_SINCE):
        return (emptied,)
    backed_up = SleepLevel(
        name="release, weights on the host",
        needs="--enable-memory-saver --enable-weights-cpu-backup",
        offloaded=_WEIGHTS,
        discarded=gone,
        kept=_CLONED,
        source=source,
    )
    return (backed_up, emptied)


def free_bytes_required(plan: Plan) -> int:
    """Nothing: the pool is made of what is free when the server starts, so beside another instance it is smaller
    than planned alone."""
    return 0
