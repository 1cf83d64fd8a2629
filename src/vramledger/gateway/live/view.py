"""What the policy sees of a live instance: its books, and beyond them what the engine says."""

from __future__ import annotations

from vramledger.admission.candidate import Candidate
from vramledger.admission.policy import Policy
from vramledger.admission.settings import PolicySettings, Reservation
from vramledger.gateway.live.cached_prefixes import CachedPrefixes
from vramledger.gateway.live.reconciling import Reconciled
from vramledger.gateway.shared.budget import Budget


class LiveView:
    """An `AdmissionView` at `now_ns`, which its owner sets before the policy is asked.

    Held is what the books say, what is foreign to them, and what is kept back while the engine's word is old. Under `OPTIMISTIC`, where outputs
    are not reserved, no more is free than the engine itself says less what was let in since.
    """

    def __init__(
        self,
        settings: PolicySettings,
        policy: Policy,
        reconciled: Reconciled,
        prefixes: CachedPrefixes,
    ) -> None:
        self._usable_blocks = settings.layout.usable_blocks
        self._safety_blocks = settings.safety_blocks
        self._is_optimistic = settings.reservation is Reservation.OPTIMISTIC
        self._policy = policy
        self._reconciled = reconciled
        self._prefixes = prefixes
        self.now_ns = 0
        self.budget: Budget | None = None
        """What of the instance is this gateway's, where others stand before it as well."""
        self.has_silent = False
        """Whether some of what was let in says nothing until its end."""

    @property
    def _own_blocks(self) -> int:
        """All that may be used here."""
        budget = self.budget
        if budget is None:
            return self._usable_blocks
        # What is kept free for safety is shared out to nobody, and the policy takes it off again.
        return 0 if budget.is_careful else min(self._usable_blocks, budget.blocks + self._safety_blocks)

    @property
    def beyond_blocks(self) -> int:
        """Blocks that may be held by what no gateway let in."""
        reconciled = self._reconciled
        foreign_blocks = reconciled.foreign_blocks
        if self.budget is not None:
            foreign_blocks = max(0, foreign_blocks - self.budget.other_blocks)
        return foreign_blocks + reconciled.doubt_blocks(self._usable_blocks, self.now_ns)

    @property
    def used_blocks(self) -> int:
        return min(self._usable_blocks, self._policy.held_blocks + self.beyond_blocks)

    @property
    def is_reconciled(self) -> bool:
        return True

    @property
    def free_blocks(self) -> int:
        reconciled, state = self._reconciled, self._reconciled.state
        free = self._own_blocks - self.used_blocks
        if self._is_optimistic:
            # Room takes what is promised to prompts that are not computed yet off again.
            free += self._policy.promised_blocks
            if state is not None and state.used_blocks is not None:
                # What went in and what went out since it was asked, of which its word knows nothing.
                since = self._policy.held_blocks - reconciled.held_then_blocks
                free = min(
                    free, self._usable_blocks - state.used_blocks - since + self._policy.promised_blocks
                )
        return max(0, free)

    @property
    def running_count(self) -> int:
        state = self._reconciled.state
        told = state.running_count if state is not None else None
        return self._policy.admitted_count if told is None else told

    @property
    def waiting_count(self) -> int:
        """In the engine's own queue."""
        state = self._reconciled.state
        return (state.waiting_count or 0) if state is not None else 0

    def cached_tokens(self, candidate: Candidate) -> int:
        """Nothing is credited where somebody else takes blocks that nobody here is told of."""
        if not candidate.keys or self._reconciled.foreign_blocks or self.budget is not None:
            return 0
        # Of what streams a block each may not have been told yet, of what does not all that it may grow to.
        policy = self._policy
        not_told = policy.most_blocks - policy.held_blocks if self.has_silent else policy.load.decode_seqs
        return self._prefixes.cached_tokens(candidate, not_told)
