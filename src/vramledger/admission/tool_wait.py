"""What to do with a conversation's KV while a tool runs: hold it, move it to the host, or drop it, by how long such waits last.

Waste is memory held for nobody times how long, in token picoseconds, as InferCept counts it (Abhyankar et al., ICML 2024; simulation.tool_waits
bills whole runs by it). How long a wait lasts is not known when it begins, but how long waits of its kind last is: hold for a while, then give
up, with the while that wastes least on average.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from vramledger.admission.survival import Survival, least_observations

PS_PER_MS = 1_000_000_000


class WaitAction(StrEnum):
    PRESERVE = "preserve"
    OFFLOAD = "offload"
    DISCARD = "discard"


class WaitCosts(Struct, frozen=True, kw_only=True, gc=False):
    """What giving up a context costs. `recompute_ps` is the time to compute it anew, during which `other_tokens` of others wait with it;
    `move_ps` the time to the host, one way (None: it cannot go there).
    """

    context_tokens: int
    recompute_ps: int
    other_tokens: int
    move_ps: int | None = None


class WaitPlan(Struct, frozen=True, kw_only=True, gc=False):
    """Hold for `patience_ms`, then do `then` (patience 0: at once; None: hold to the end).

    `waste_token_ps` is what that wastes on average, at the price of held tokens, `found_share` how many of such waits end within the patience,
    and `observations` the waits this rests on. Without observations enough it is dropped at once: what engines do.
    """

    patience_ms: int | None
    then: WaitAction
    waste_token_ps: float
    found_share: float
    observations: int


class WaitBook:
    """Waits by kind (a tool's name), learned as they end."""

    def __init__(self, *, window: int = 1024, quantile: float = 0.9, confidence: float = 0.9) -> None:
        self._window = window
        self._least = least_observations(quantile, confidence)
        self._kinds: dict[str, Survival] = {}

    def ended(self, kind: str, wait_ms: int) -> None:
        """The next turn came after so long."""
        survival = self._of(kind)
        survival.reach(wait_ms)
        survival.end(wait_ms)

    def given_up(self, kind: str, wait_ms: int) -> None:
        """No turn had come after so long, and none is waited for any longer."""
        self._of(kind).reach(wait_ms)

    def plan(self, kind: str, costs: WaitCosts, *, price: float = 1.0, waited_ms: int = 0) -> WaitPlan:
        """The plan for a wait that has lasted `waited_ms`. `price` is what a held token is worth to others, 0 to 1 (`price_of_held`)."""
        give_up, waste = _cheapest(costs)
        survival = self._of(kind)
        observations = survival.observations(waited_ms)
        if observations < self._least:
            return WaitPlan(
                patience_ms=0, then=give_up, waste_token_ps=waste, found_share=0.0, observations=0
            )
        best = WaitPlan(
            patience_ms=0, then=give_up, waste_token_ps=waste, found_share=0.0, observations=observations
        )
        held_ms, before_ms, share = 0.0, waited_ms, 1.0
        for end_ms, beyond in survival.tail(waited_ms):
            # A wait that ends in a bin is billed the whole bin.
            held_ms += share * (end_ms - before_ms)
            before_ms, share = end_ms, beyond
            wasted = price * costs.context_tokens * held_ms * PS_PER_MS + share * waste
            if wasted < best.waste_token_ps:
                is_whole = share <= 0.0
                best = WaitPlan(
                    patience_ms=None if is_whole else end_ms - waited_ms,
                    then=WaitAction.PRESERVE if is_whole else give_up,
                    waste_token_ps=wasted,
                    found_share=1.0 - share,
                    observations=observations,
                )
        return best

    def _of(self, kind: str) -> Survival:
        if kind not in self._kinds:
            self._kinds[kind] = Survival(self._window)
        return self._kinds[kind]


def price_of_held(*, waiting_blocks: int, free_blocks: int, held_blocks: int) -> float:
    """What share of held blocks somebody waits for: nothing while there is room for all, 1 where each would be taken."""
    if held_blocks <= 0:
        return 0.0
    return min(1.0, max(0.0, (waiting_blocks - free_blocks) / held_blocks))


def _cheapest(costs: WaitCosts) -> tuple[WaitAction, float]:
    """The cheaper way to give a context up, and its waste: computed anew, half of it is there on average; moved, all of it."""
    discard = costs.recompute_ps * (costs.context_tokens / 2 + costs.other_tokens)
    if costs.move_ps is not None:
        offload = 2.0 * costs.move_ps * costs.context_tokens
        if offload < discard:
            return WaitAction.OFFLOAD, offload
    return WaitAction.DISCARD, discard
