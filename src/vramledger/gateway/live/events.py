"""How many tokens an event of a stream carries: engines put several in one where they speculate or fall behind."""

from __future__ import annotations

from vramledger.gateway.admitter import Ending
from vramledger.units import ceil_div

REMEMBERED_EVENTS = 10_000


class TokensPerEvent:
    """Learned from streams whose engine told the tokens as well; one for one until then, and never fewer."""

    def __init__(self) -> None:
        self._tokens = 0
        self._events = 0

    def learn(self, ending: Ending) -> None:
        if ending.counted or not ending.output_events or ending.output_tokens is None:
            return
        self._tokens += ending.output_tokens
        self._events += ending.output_events
        if self._events > REMEMBERED_EVENTS:
            self._tokens //= 2
            self._events //= 2

    def tokens(self, events: int) -> int:
        return max(events, ceil_div(events * self._tokens, self._events)) if self._events else events
