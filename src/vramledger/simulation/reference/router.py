"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence as Items

from vramledger.simulation.reference.replica import Replica
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.settings import Router
from vramledger.units import ceil_div


class Routing:
    """Chooses among equal replicas. Ties go to the smallest number."""

    def __init__(self, router: Router, replicas: Items[Replica]) -> None:
        self._router = router
        self._replicas = replicas
        self._sent = 0

    def choose(self, sequence: Sequence) -> Replica:
        """The replica for a sequence that is sent now."""
        self._sent += 1
        if self._router is Router.ROUND_ROBIN or len(self._replicas) == 1:
            return self._replicas[(self._sent - 1) % len(self._replicas)]
        if self._router is Router.LEAST_KV:
            return min(self._replicas, key=lambda replica: (_load_blocks(replica), replica.number))
        return min(
            self._replicas,
            key=lambda replica: (-replica.hit_tokens(sequence), _load_blocks(replica), replica.number),
        )


def _load_blocks(replica: Replica) -> int:
    """Blocks that are held, and those that the prompts in the queue will want."""
    size = replica.scheduler.pool.layout.key_tokens
    return replica.used_blocks + sum(ceil_div(sequence.known_tokens, size) for sequence in replica.queued())
