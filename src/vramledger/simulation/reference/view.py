"""A simulated instance as an admission policy sees it."""

from __future__ import annotations

from typing import Protocol

from vramledger.admission.candidate import Candidate
from vramledger.simulation.schedulers.protocol import Scheduler


class Instance(Protocol):
    """What a view looks at: a replica."""

    scheduler: Scheduler

    @property
    def running_count(self) -> int: ...

    @property
    def waiting_count(self) -> int: ...


class View:
    """See `admission.protocol.AdmissionView`. What an engine holds for nobody and gives up where room is short counts as free."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @property
    def free_blocks(self) -> int:
        scheduler = self._instance.scheduler
        return scheduler.pool.free_blocks + scheduler.idle_blocks

    @property
    def used_blocks(self) -> int:
        scheduler = self._instance.scheduler
        return scheduler.pool.used_blocks - scheduler.idle_blocks

    @property
    def running_count(self) -> int:
        return self._instance.running_count

    @property
    def waiting_count(self) -> int:
        return self._instance.waiting_count

    @property
    def is_reconciled(self) -> bool:
        return False

    def cached_tokens(self, candidate: Candidate) -> int:
        """Tokens of a prompt that the cache holds."""
        return self._instance.scheduler.pool.hit_tokens(
            candidate.keys, boundary=candidate.boundary, limit_tokens=candidate.prompt_tokens - 1
        )
