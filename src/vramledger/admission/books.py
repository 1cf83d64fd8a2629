"""What was admitted, how far it has come, and what it will hold."""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from vramledger.admission.candidate import Candidate
from vramledger.admission.future_peak import FuturePeak
from vramledger.admission.holding import NEVER, Holding
from vramledger.admission.need import Need


class Pace(Struct, frozen=True, kw_only=True):
    """What may keep a sequence from growing by one token in every step, so that it ends later than it could.

    An engine that computes what runs first, and prompts in their order with the rest of a step's `step_tokens`, makes a new request
    wait for the prompts before it and its own: with at most `max_running` others decoding that is a bounded number of steps. None:
    nothing bounds it, and no end is relied on (each request counts with its most for as long as it runs). `lag_steps` is how many
    steps later the engine knows that a request ended (1 where steps are planned ahead). A sequence that falls behind by up to
    `drift_steps` is not looked at anew.
    """

    step_tokens: int | None = None
    max_running: int = 1
    lag_steps: int = 0
    drift_steps: int = 0

    def wait_steps(self, prefill_tokens: int) -> int | None:
        """Steps until so many tokens of prompts are computed, at most."""
        step_tokens = self.step_tokens
        if step_tokens is None or step_tokens < self.max_running:
            return None
        return -(-prefill_tokens // (step_tokens - self.max_running + 1))


class _Admitted:
    __slots__ = (
        "candidate",
        "credited",
        "generated_tokens",
        "keys",
        "late_steps",
        "reserved_tokens",
        "uncached_tokens",
        "unsure_blocks",
    )

    def __init__(
        self, candidate: Candidate, reserved_tokens: int, uncached_tokens: int, credited: tuple[Hashable, ...]
    ) -> None:
        self.candidate = candidate
        self.reserved_tokens = reserved_tokens
        self.uncached_tokens = uncached_tokens
        self.unsure_blocks = 0
        self.credited = credited
        self.keys: tuple[Hashable, ...] = credited
        self.generated_tokens = 0
        self.late_steps = 0


class Books:
    """Admitted requests and the blocks they hold now and later.

    Steps are told by progress: the furthest that any sequence has come says how many there were. A request's tokens are counted as
    though it grew from the moment it was admitted, until its first token shows where it is; then its prompt's full blocks are ones that
    others can be credited with. `safety_tokens` are added to what each sequence may have.
    """

    def __init__(self, need: Need, pace: Pace, *, safety_tokens: int = 0) -> None:
        self.need = need
        self._pace = pace
        self._safety_tokens = safety_tokens
        self._peak = FuturePeak(need)
        self._admitted: dict[int, _Admitted] = {}
        self._doubled: dict[Hashable, int] = {}
        self._doubles: dict[int, tuple[Hashable, ...]] = {}
        self._step = 0
        self._prefill_tokens = 0
        self._unsure_blocks = 0

    def __len__(self) -> int:
        return len(self._admitted)

    def __contains__(self, identity: int) -> bool:
        return identity in self._admitted

    @property
    def step(self) -> int:
        """Steps so far, as told by the furthest progress."""
        return self._step

    @property
    def prefill_tokens(self) -> int:
        """Tokens of admitted prompts that are still to be computed, at most."""
        return self._prefill_tokens

    @property
    def unsure_blocks(self) -> int:
        """Of `blocks_now`, those for prompts of requests that have shown no token yet: the engine may not have given them out."""
        return self._unsure_blocks

    def candidate(self, identity: int) -> Candidate:
        """An admitted request."""
        return self._admitted[identity].candidate

    def generated_tokens(self, identity: int) -> int:
        """Output tokens that it was last said to have."""
        return self._admitted[identity].generated_tokens

    def reserved_tokens(self, identity: int) -> int:
        """Output tokens reserved for each of its branches."""
        return self._admitted[identity].reserved_tokens

    def blocks_now(self) -> int:
        """Blocks in use now by what is admitted, prompts counted whole."""
        return self._peak.blocks_now

    def peak_blocks(self, holding: Holding | None = None) -> int:
        """The most in use at once from now on, or with one holding more."""
        return self._peak.peak(holding)

    def credited_keys(self, candidate: Candidate) -> tuple[Hashable, ...]:
        """Keys of its leading blocks that running requests hold, as often as one: those it will share.

        Blocks that are only cached give none: to take them uses up free blocks.
        """
        if not candidate.keys or not self.need.is_plain:
            return ()
        keys = shared_keys(candidate, self.need.block_tokens)
        if not keys or not self._is_sure(keys[0]):
            return ()
        low, high = 1, len(keys)
        while low < high:  # Who holds a block holds all before it.
            middle = (low + high + 1) // 2
            if self._is_sure(keys[middle - 1]):
                low = middle
            else:
                high = middle - 1
        return keys[:low]

    def holding(
        self, candidate: Candidate, reserved_tokens: int, uncached_tokens: int, credited: tuple[Hashable, ...]
    ) -> Holding:
        """What a candidate would hold, were it admitted now with so many output tokens reserved."""
        wait = self._pace.wait_steps(self._prefill_tokens + uncached_tokens)
        return self._line(candidate, 0, reserved_tokens, credited, wait)

    def admit(
        self, candidate: Candidate, reserved_tokens: int, uncached_tokens: int, holding: Holding
    ) -> None:
        """It is admitted, to hold what `holding` said last."""
        row = _Admitted(candidate, reserved_tokens, uncached_tokens, holding.keys)
        self._admitted[candidate.identity] = row
        self._peak.add(candidate.identity, holding)
        self._prefill_tokens += uncached_tokens
        row.unsure_blocks = holding.blocks_at(self._step, self.need) - len(holding.keys)
        self._unsure_blocks += row.unsure_blocks

    def progress(self, identity: int, generated_tokens: int, reserved_tokens: int | None = None) -> None:
        """It has so many output tokens; `reserved_tokens` where another number is reserved from now on."""
        row = self._admitted[identity]
        is_first = not row.generated_tokens and generated_tokens > 0
        row.generated_tokens = generated_tokens
        expected = self._peak[identity].offset_tokens + self._step
        ahead = row.candidate.prompt_tokens + generated_tokens + self._safety_tokens - expected
        if ahead > 0:
            self._step += ahead
            self._peak.advance(self._step)
        if reserved_tokens is not None:
            row.reserved_tokens = reserved_tokens
        if is_first:
            self._prefill_tokens -= row.uncached_tokens
            self._unsure_blocks -= row.unsure_blocks
            self._register(identity, row)
        if is_first or reserved_tokens is not None or -ahead > self._pace.drift_steps:
            row.late_steps = 0
            self._replace(identity, row)
        if ahead > 0:
            self._settle_overdue()

    def end(self, identity: int) -> Candidate:
        """It ended, or left otherwise: what it held is free."""
        row = self._admitted.pop(identity)
        self._peak.remove(identity)
        if not row.generated_tokens:
            self._prefill_tokens -= row.uncached_tokens
            self._unsure_blocks -= row.unsure_blocks
        for key in self._doubles.pop(identity, ()):
            self._doubled[key] -= 1
            if not self._doubled[key]:
                del self._doubled[key]
        return row.candidate

    def steps_until_room(self, blocks: int, limit_blocks: int) -> int | None:
        """Steps until enough has ended that `blocks` more fit at all times after; None where that cannot be told, or where they fit."""
        end = self._peak.first_room(blocks, limit_blocks)
        return None if end is None or end >= NEVER else max(end - self._step, 0)

    def _line(
        self,
        candidate: Candidate,
        generated_tokens: int,
        reserved_tokens: int,
        keys: tuple[Hashable, ...],
        wait_steps: int | None,
    ) -> Holding:
        pace, branches, step = self._pace, candidate.branches, self._step
        tokens = candidate.prompt_tokens + generated_tokens + self._safety_tokens
        left = reserved_tokens - generated_tokens
        # The last token's KV is never computed; an engine that plans ahead holds room for a token more.
        growth_end = step + (left if left > 1 else 1) - 1 + pace.lag_steps
        hold_end = NEVER if wait_steps is None else growth_end + 1 + wait_steps + pace.drift_steps
        common_blocks = 0
        if branches > 1 and candidate.branches_share_prompt:
            common_blocks = self.need.common_blocks(candidate.prompt_tokens)
        return Holding(tokens - step, growth_end, hold_end, branches, common_blocks, keys)

    def _replace(self, identity: int, row: _Admitted) -> None:
        self._peak.remove(identity)
        wait = self._pace.wait_steps(0 if row.generated_tokens else self._prefill_tokens)
        if wait is not None:
            # One more, for who is told of before another may be a step behind when all have been told of.
            wait += 1 + row.late_steps
        self._peak.add(
            identity, self._line(row.candidate, row.generated_tokens, row.reserved_tokens, row.keys, wait)
        )

    def _settle_overdue(self) -> None:
        """What should have ended and has not is held on: as long again as it is late."""
        while (first := self._peak.first_end) is not None and first[0] < self._step:
            row = self._admitted[first[1]]
            row.late_steps = 2 * row.late_steps + 1
            self._replace(first[1], row)

    def _register(self, identity: int, row: _Admitted) -> None:
        """Its prompt is computed: its full blocks are others' to share, but for those that someone computed besides it."""
        if not self.need.is_plain or row.candidate.branches > 1:
            return
        keys = shared_keys(row.candidate, self.need.block_tokens)
        own = len(row.credited)
        doubles = tuple(key for key in keys[own:] if self._peak.is_held(key))
        for key in doubles:
            self._doubled[key] = self._doubled.get(key, 0) + 1
        if doubles:
            self._doubles[identity] = doubles
        row.keys = row.credited + tuple(key for key in keys[own:] if not self._peak.is_held(key))

    def _is_sure(self, key: Hashable) -> bool:
        return self._peak.is_held(key) and key not in self._doubled


def shared_keys(candidate: Candidate, block_tokens: int) -> tuple[Hashable, ...]:
    """Keys of the full blocks that others may share, apart from those of other boundaries.

    The block that ends with the prompt's last token is none: that token is always computed, into a block of its own.
    """
    keys = candidate.keys[: (candidate.prompt_tokens - 1) // block_tokens]
    return tuple((candidate.boundary, key) for key in keys) if candidate.boundary else keys
