"""The books of one instance beside what its engine says: what others hold, how far the two are apart, and how old the word is. Pure."""

from __future__ import annotations

from collections import deque

from vramledger.admission.foreign import ForeignBlocks
from vramledger.gateway.live.engine_state import EngineState

NS_PER_S = 1_000_000_000
SETTLING_NS = NS_PER_S // 4
"""How long after a request left the engine may still hold its blocks: a step or two."""
FRESH_NS = 3 * NS_PER_S
"""Up to this age a word is as good as new."""
CAREFUL_NS = 10 * NS_PER_S
"""From this age on nothing is admitted on what an engine would have to say."""
DOUBT_PERCENT_PER_S = 1
MOST_DOUBT_PERCENT = 10


class Reconciled:
    """Blocks that the engine says are held beyond what the books explain are somebody else's, and stay so until it says otherwise.

    What the books explain is the most that they had from a moment before the engine was asked until it answered. Of requests that do not stream
    nobody knows how far they are, so while there are any, all that is reserved explains what is held. Where a full pool costs time and no
    request (`is_patient`), only what two answers in a row say is taken for somebody else's: engines' metrics lag behind by a few steps.
    """

    def __init__(self, *, is_patient: bool = False) -> None:
        self._is_patient = is_patient
        self._unexplained_before = 0
        self._foreign = ForeignBlocks()
        self._lately: deque[tuple[int, int]] = deque()
        self.state: EngineState | None = None
        self.foreign_blocks = 0
        self.disagreement_blocks = 0
        """Held by the engine's word less held by the books when it was asked; of either sign."""
        self.held_then_blocks = 0
        """By the books, when the engine was asked."""

    def books_had(self, explained_blocks: int, now_ns: int) -> None:
        """To be told before blocks go back, so that what the engine has not freed yet is explained."""
        lately = self._lately
        lately.append((now_ns, explained_blocks))
        while len(lately) > 1 and lately[0][0] < now_ns - 8 * NS_PER_S:
            lately.popleft()

    def told(
        self, state: EngineState, *, held_blocks: int, explained_blocks: int, unsure_blocks: int = 0
    ) -> None:
        """The engine answered; the counts are the books' when it was asked. Of what is held, `unsure_blocks` may not have been given out yet."""
        self.state = state
        if state.used_blocks is None:
            return
        since_ns = state.asked_ns - SETTLING_NS
        while self._lately and self._lately[0][0] < since_ns:
            self._lately.popleft()
        explained = max((explained_blocks, *(blocks for _, blocks in self._lately)))
        unexplained = self._foreign.told(state.used_blocks, explained, unsure_blocks)
        self.foreign_blocks = min(unexplained, self._unexplained_before) if self._is_patient else unexplained
        self._unexplained_before = unexplained
        self.disagreement_blocks = state.used_blocks - held_blocks
        self.held_then_blocks = held_blocks

    def forget(self) -> None:
        """The engine is another one now."""
        self._lately.clear()
        self.state = None
        self.foreign_blocks = self.disagreement_blocks = self.held_then_blocks = 0
        self._unexplained_before = 0
        self._foreign = ForeignBlocks()

    def age_ns(self, now_ns: int) -> int | None:
        """Since the engine was last asked with success; None before."""
        return None if self.state is None else max(0, now_ns - self.state.asked_ns)

    def is_careful(self, now_ns: int) -> bool:
        """Whether only what is promised in full may be let in: the engine's word is missing, says nothing of the pool, or is old."""
        state = self.state
        return state is None or state.used_blocks is None or now_ns - state.asked_ns > CAREFUL_NS

    def doubt_blocks(self, usable_blocks: int, now_ns: int) -> int:
        """Kept out of the pool while an engine that used to speak is silent: more with each second, up to a tenth. None where it never spoke."""
        state = self.state
        if state is None or state.used_blocks is None:
            return 0
        late_ns = now_ns - state.asked_ns - FRESH_NS
        if late_ns <= 0:
            return 0
        percent = min(MOST_DOUBT_PERCENT, DOUBT_PERCENT_PER_S * (1 + late_ns // NS_PER_S))
        return usable_blocks * percent // 100
