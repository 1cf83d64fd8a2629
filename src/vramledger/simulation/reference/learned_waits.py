"""Whether a context is held on for its next turn, by how long such waits last and who waits for the room."""

from __future__ import annotations

from vramledger.admission.tool_wait import PS_PER_MS, WaitAction, WaitBook, WaitCosts, price_of_held
from vramledger.simulation.reference.replica import Replica
from vramledger.simulation.settings import SimulationSettings
from vramledger.simulation.step_model import PS_PER_S
from vramledger.units import ceil_div

CHECKED_EVERY_PS = PS_PER_S
"""A held context is judged anew no more often than this."""
_KIND = "turn"
"""Traces do not name the tools that they wait for."""


class LearnedWaits:
    """Waits as they end, and the judgement on one that has lasted for a while."""

    def __init__(self, settings: SimulationSettings, token_bytes: int) -> None:
        self._settings = settings
        self._token_bytes = token_bytes
        self._book = WaitBook()

    def ended(self, wait_ps: int) -> None:
        """The next turn came after so long."""
        self._book.ended(_KIND, wait_ps // PS_PER_MS)

    def judged(
        self, replica: Replica, context_tokens: int, held_blocks: int, waited_ps: int, *, has_host_room: bool
    ) -> WaitAction:
        """What to do now with a context: preserve it until it is judged again, or give it up and how. `held_blocks` are those of all contexts
        that the replica holds."""
        size = replica.scheduler.pool.layout.key_tokens
        waiting_blocks = sum(ceil_div(sequence.known_tokens, size) for sequence in replica.queued())
        price = price_of_held(
            waiting_blocks=waiting_blocks, free_blocks=replica.free_blocks, held_blocks=held_blocks
        )
        if price <= 0.0:
            return WaitAction.PRESERVE
        move_ps = None
        if has_host_room and self._settings.host_link_bytes_per_s and self._token_bytes:
            moved_bytes = context_tokens * self._token_bytes
            move_ps = ceil_div(moved_bytes * PS_PER_S, self._settings.host_link_bytes_per_s)
        costs = WaitCosts(
            context_tokens=context_tokens,
            recompute_ps=self._recompute_ps(context_tokens),
            other_tokens=max(0, replica.used_blocks * size - context_tokens),
            move_ps=move_ps,
        )
        plan = self._book.plan(_KIND, costs, price=price, waited_ms=waited_ps // PS_PER_MS)
        return plan.then if plan.patience_ms == 0 else WaitAction.PRESERVE

    def _recompute_ps(self, tokens: int) -> int:
        """Time to compute a context anew, whole chunks at the time of a middle one."""
        settings = self._settings
        size = settings.scheduler.max_num_batched_tokens
        chunks = ceil_div(tokens, size)
        middle = tokens // 2
        return chunks * settings.step.step_ps(
            tokens=min(tokens, size), decode_seqs=0, kv_tokens=middle, pairs=min(tokens, size) * middle
        )
