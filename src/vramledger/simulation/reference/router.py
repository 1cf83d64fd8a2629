"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence as Items

from vramledger.simulation.reference.replica import Replica
from vramledger.simulation.schedulers.sequence import Sequence
from vramledger.simulation.settings import Router
from vramledger.units import ceil_div


class Routing:
    """Chooses among equal replicas. Ties go to the smallest number.

    By prefix the one that has most of the prompt cached is chosen, unless its load is above `load_percent` of the mean: a prefix that all
    share would send everyone to one replica (as routers with a bounded load do).
    """

    def __init__(self, router: Router, replicas: Items[Replica], load_percent: int = 150) -> None:
        self._router = router
        self._load_percent = load_percent
        self._replicas = replicas
        self._sent = 0

    def choose(self, sequence: Sequence) -> Replica:
        """The replica for a sequence that is sent now."""
        self._sent += 1
        if self._router is Router.ROUND_ROBIN or len(self._replicas) == 1:
            return self._replicas[(self._sent - 1) % len(self._replicas)]
        if self._router is Router.LEAST_KV:
            return min(self._replicas, key=lambda replica: (_load_blocks(replica), replica.number))
        loads = [_load_blocks(replica) for replica in self._replicas]
        most = max(min(loads) * len(loads) * 100, sum(loads) * self._load_percent)
        _, _, place = min(
            (-replica.hit_tokens(sequence), load, place)
            for place, (replica, load) in enumerate(zip(self._replicas, loads, strict=True))
            if load * len(loads) * 100 <= most
        )
        return self._replicas[place]


def _load_blocks(replica: Replica) -> int:
    """Blocks that are held, and those that the prompts in the queue will want."""
    size = replica.scheduler.pool.layout.key_tokens
    return replica.used_blocks + sum(ceil_div(sequence.known_tokens, size) for sequence in replica.queued())
