"""Prompt blocks that an instance surely still has, by what was let in there. A bound, not a replay of its cache.

Engines give out free blocks in the order in which they were last used. So a block that came back while `free` blocks were free is still there as
long as fewer than `free` were taken since, whoever took them: new ones and hits alike. Everything that is taken counts at the most it may be.
Source: vLLM v1/core/block_pool.py (free queue), SGLang srt/mem_cache/radix_cache.py (leaves by last access).
"""

from __future__ import annotations

from collections import OrderedDict

from vramledger.admission.candidate import Candidate
from vramledger.units import ceil_div

TRUST_STEP = 0.25
"""How far one answer that names fewer cached tokens than were credited moves the trust in what is credited."""
LEAST_TRUST = 0.05
REMEMBERED_TOKENS = 1 << 22


class CachedPrefixes:
    """Blocks by the keys of `Candidate`. At most as many are remembered as the pool has."""

    def __init__(self, usable_blocks: int, block_tokens: int) -> None:
        self._usable_blocks = usable_blocks
        self._block_tokens = block_tokens
        self._taken = 0
        self._open: dict[int, tuple[tuple[int, ...], bool]] = {}
        self._held: dict[int, int] = {}
        self._back: OrderedDict[int, int] = OrderedDict()
        """By key: `taken` at which it may be gone."""
        self._confirmed = 1.0
        self._credited_tokens = 0
        self._hit_tokens = 0
        self._told_hits: int | None = None

    @property
    def trust(self) -> float:
        """Share of what is credited that the engine confirms: request by request where it tells, and in sum."""
        if self._told_hits is None or self._credited_tokens <= self._hit_tokens:
            return self._confirmed
        return min(self._confirmed, max(LEAST_TRUST, self._hit_tokens / self._credited_tokens))

    def let_in(self, identity: int, candidate: Candidate) -> None:
        """It will take all of its prompt's blocks: new ones, or by hits."""
        keys = candidate.keys[: (candidate.prompt_tokens - 1) // self._block_tokens]
        self._open[identity] = keys, False
        self._taken += candidate.branches * ceil_div(candidate.prompt_tokens, self._block_tokens)

    def computed(self, identity: int) -> None:
        """Its prompt was: there is a first token."""
        keys, is_computed = self._open.get(identity, ((), True))
        if is_computed:
            return
        self._open[identity] = keys, True
        held = self._held
        for key in keys:
            held[key] = held.get(key, 0) + 1

    def left(self, identity: int, candidate: Candidate, generated_tokens: int, *, held_blocks: int) -> None:
        """It is gone, and had so much output; `held_blocks` are those of all that is left there, at the most."""
        keys, is_computed = self._open.pop(identity, ((), False))
        grown = candidate.branches * (ceil_div(generated_tokens, self._block_tokens) + 1)
        self._taken += grown
        if not is_computed:
            return
        gone_at = self._taken + max(0, self._usable_blocks - held_blocks)
        back, held = self._back, self._held
        for place, key in enumerate(keys):
            count = held[key] - 1
            if count:
                held[key] = count
            else:
                del held[key]
            back[key] = gone_at - place  # a request's last blocks come back first
            back.move_to_end(key)
        while len(back) > self._usable_blocks:
            back.popitem(last=False)

    def forget(self) -> None:
        """The engine is another one, or gave its cache up; those that are still open hold nothing there."""
        self._open.clear()
        self._held.clear()
        self._back.clear()
        self._credited_tokens = self._hit_tokens = 0
        self._told_hits = None

    def surely_cached_tokens(self, candidate: Candidate, not_told_blocks: int) -> int:
        """Of its prompt, were all true that is credited. `not_told_blocks` may have been taken by what runs since it was last told of."""
        keys = candidate.keys[: (candidate.prompt_tokens - 1) // self._block_tokens]
        taken = self._taken + not_told_blocks
        low, high = 0, len(keys)
        while low < high:  # whoever used a block used all before it, so those last longer
            middle = (low + high + 1) // 2
            key = keys[middle - 1]
            if key in self._held or self._back.get(key, -1) > taken:
                low = middle
            else:
                high = middle - 1
        return low * self._block_tokens

    def cached_tokens(self, candidate: Candidate, not_told_blocks: int) -> int:
        """What is credited: whole blocks, as far as the engine was right to be trusted of late."""
        if not candidate.keys:
            return 0
        sure = self.surely_cached_tokens(candidate, not_told_blocks)
        return int(sure * self.trust) // self._block_tokens * self._block_tokens

    def confirmed(self, credited_tokens: int, cached_tokens: int | None) -> None:
        """One was completed that had been credited with so much; `cached_tokens` where the engine said how much it found."""
        self._credited_tokens += credited_tokens
        if credited_tokens > 0 and cached_tokens is not None:
            share = min(1.0, cached_tokens / credited_tokens)
            change = share - 1.0 if share < 1.0 else 1.0 - self._confirmed
            self._confirmed = max(LEAST_TRUST, self._confirmed + TRUST_STEP * change)

    def hits_told(self, total_tokens: int) -> None:
        """The engine's count of all that it ever found. A request is found before it is completed, so the sum of hits leads."""
        before, self._told_hits = self._told_hits, total_tokens
        if before is not None:
            self._hit_tokens += max(0, total_tokens - before)
        if self._hit_tokens > REMEMBERED_TOKENS:
            self._hit_tokens //= 2
            self._credited_tokens //= 2
