"""Who goes next: by priority, then by what each tenant has had for its weight, then by arrival and size."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from math import lcm

from vramledger.admission.candidate import Candidate


class FairQueue:
    """Candidates that wait, in one line a priority and tenant.

    Each tenant has a count of the tokens it was let in with, over its weight (default 1); of the tenants that wait in the best priority, the one
    with the smallest count is next, and it is charged when its candidate is taken (a virtual counter as in Sheng et al., "Fairness in
    serving large language models", OSDI 2024). A tenant that comes back after having had nothing to wait is lifted to the least count of
    those that wait, so that idleness saves nothing up. Within a line each token of size counts as though the candidate had come
    `token_wait_ps` later: with 0 it is served in order of arrival, with more small ones go before large ones that came not too long before
    them, and no large one waits for ever. Each `ageing_ps` that a candidate has waited makes it better by one
    priority; without, those of a worse one wait for as long as better ones come.
    """

    def __init__(
        self,
        weights: Mapping[int, int] | None = None,
        *,
        ageing_ps: int | None = None,
        token_wait_ps: int = 0,
    ) -> None:
        self._weights = dict(weights or {})
        # Tokens over weights are kept as whole numbers of such parts.
        self._parts = lcm(*self._weights.values())
        self._ageing_ps = ageing_ps
        self._token_wait_ps = token_wait_ps
        self._lines: dict[tuple[int, int], list[tuple[bool, int, int, Candidate]]] = {}
        self._places: dict[int, tuple[bool, int]] = {}
        self._had: dict[int, int] = {}
        self._charged: dict[int, int] = {}
        self._tokens: dict[int, int] = {}
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, identity: int) -> bool:
        return identity in self._tokens

    def __iter__(self) -> Iterator[Candidate]:
        """All that wait, by priority and tenant, in their order there."""
        for name in sorted(self._lines):
            yield from (entry[3] for entry in self._lines[name])

    def adopt(self, weights: Mapping[int, int], ageing_ps: int | None) -> None:
        """Other weights from now on. What each tenant has had stays as it was, over its weight of then."""
        parts = lcm(*weights.values())
        self._had = {tenant: had * parts // self._parts for tenant, had in self._had.items()}
        self._weights, self._parts, self._ageing_ps = dict(weights), parts, ageing_ps

    def add(self, candidate: Candidate, tokens: int) -> None:
        """It waits; `tokens` is what it will be charged with."""
        self._lift(candidate.tenant)
        self._tokens[candidate.identity] = tokens
        self.tokens += tokens
        self._put(candidate, (False, self.place(candidate)))

    def place(self, candidate: Candidate) -> int:
        """Its place in its line: smaller is earlier."""
        return candidate.sent_ps + self._tokens[candidate.identity] * self._token_wait_ps

    def put_behind(self, candidate: Candidate, work: int) -> None:
        """It goes after all others of its line, and after those behind that have less work."""
        self._take_out(candidate)
        self._put(candidate, (True, work))

    def head(self, now_ps: int) -> Candidate | None:
        """Who goes next."""
        first = min(
            (line[0] for line in self._lines.values()),
            key=lambda entry: (
                self._rank(entry[3], now_ps),
                self._had.get(entry[3].tenant, 0),
                entry[3].tenant,
                entry[:3],
            ),
            default=None,
        )
        return None if first is None else first[3]

    def take(self, candidate: Candidate) -> None:
        """It is let in: its tenant is charged."""
        tokens = self._tokens[candidate.identity]
        self.remove(candidate)
        self._charge(candidate.tenant, tokens)

    def pass_by(self, candidate: Candidate, tokens: int) -> None:
        """It is let in without having waited: its tenant is charged all the same."""
        self._lift(candidate.tenant)
        self._charge(candidate.tenant, tokens)

    def take_charged(self) -> dict[int, int]:
        """Tokens that tenants were let in with since it was last asked."""
        charged, self._charged = self._charged, {}
        return charged

    def served_elsewhere(self, tenant: int, tokens: int) -> None:
        """A tenant was let in with so many by somebody else who shares out the same."""
        self._had[tenant] = self._had.get(tenant, 0) + tokens * (self._parts // self._weights.get(tenant, 1))

    def _put(self, candidate: Candidate, place: tuple[bool, int]) -> None:
        line = self._lines.setdefault((candidate.priority, candidate.tenant), [])
        insort(line, (*place, candidate.identity, candidate))
        self._places[candidate.identity] = place

    def _take_out(self, candidate: Candidate) -> None:
        name = candidate.priority, candidate.tenant
        line = self._lines[name]
        place = (*self._places.pop(candidate.identity), candidate.identity)
        del line[bisect_left(line, place, key=lambda entry: entry[:3])]
        if not line:
            del self._lines[name]

    def _charge(self, tenant: int, tokens: int) -> None:
        self.served_elsewhere(tenant, tokens)
        self._charged[tenant] = self._charged.get(tenant, 0) + tokens

    def remove(self, candidate: Candidate) -> None:
        """It waits no longer, and was not let in."""
        self._take_out(candidate)
        self.tokens -= self._tokens.pop(candidate.identity)

    def older_than(self, age_ps: int, now_ps: int) -> list[Candidate]:
        """Those that have waited longer than that, in the order of `__iter__`."""
        return [candidate for candidate in self if now_ps - candidate.sent_ps > age_ps]

    def _rank(self, candidate: Candidate, now_ps: int) -> int:
        if self._ageing_ps is None:
            return candidate.priority
        return candidate.priority - (now_ps - candidate.sent_ps) // self._ageing_ps

    def _lift(self, tenant: int) -> None:
        if not self._lines:
            return
        waiting = {name for _, name in self._lines}
        if tenant not in waiting:
            least = min(self._had.get(name, 0) for name in waiting)
            self._had[tenant] = max(self._had.get(tenant, 0), least)
