"""How long a request takes once it is admitted: from a model of the engine's steps, or from rates that were measured."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from vramledger.units import ceil_div

PS_PER_S = 1_000_000_000_000


class Load(Struct, frozen=True, kw_only=True, gc=False):
    """What else the engine has to do: sequences that decode, their tokens, and prompt tokens to be computed before this request's."""

    decode_seqs: int = 0
    kv_tokens: int = 0
    prefill_tokens: int = 0


class ServiceTime(Protocol):
    """An estimate, given in; a deadline is judged by it and not by a guess of the policy's own."""

    def first_token_ps(self, uncached_tokens: int, prompt_tokens: int, load: Load) -> int:
        """From admission to the first token."""

    def token_ps(self, load: Load) -> int:
        """From one token to the next."""


class Steps(Protocol):
    """The time of one step in picoseconds, by its work (simulation.StepModel is one)."""

    def step_ps(self, *, tokens: int, decode_seqs: int, kv_tokens: int, pairs: int) -> int: ...


class StepTimes:
    """Service times from a step model: prompts are computed in their order, in steps of at most `step_tokens` that decode what runs as well."""

    def __init__(self, steps: Steps, *, step_tokens: int) -> None:
        self._steps = steps
        self._step_tokens = step_tokens

    def first_token_ps(self, uncached_tokens: int, prompt_tokens: int, load: Load) -> int:
        room = max(1, self._step_tokens - load.decode_seqs)
        ahead_ps = self._prefill_ps(load.prefill_tokens, 0, room, load)
        return ahead_ps + self._prefill_ps(uncached_tokens, prompt_tokens - uncached_tokens, room, load)

    def token_ps(self, load: Load) -> int:
        seqs = load.decode_seqs + 1
        return self._steps.step_ps(tokens=seqs, decode_seqs=seqs, kv_tokens=load.kv_tokens, pairs=0)

    def _prefill_ps(self, tokens: int, cached_tokens: int, room: int, load: Load) -> int:
        """Whole chunks have the time of a middle one; the model is linear but for the floor, so their sum is that of each."""
        chunks, rest = divmod(tokens, room)
        total = 0
        if chunks:
            before = cached_tokens + (chunks - 1) * room // 2
            total += chunks * self._chunk_ps(room, before, load)
        if rest:
            total += self._chunk_ps(rest, cached_tokens + chunks * room, load)
        return total

    def _chunk_ps(self, tokens: int, before_tokens: int, load: Load) -> int:
        return self._steps.step_ps(
            tokens=tokens + load.decode_seqs,
            decode_seqs=load.decode_seqs,
            kv_tokens=load.kv_tokens + before_tokens,
            pairs=tokens * (before_tokens + tokens // 2),
        )


class MeasuredTimes(Struct, frozen=True, kw_only=True):
    """Service times from what an engine was seen to do: prompt tokens a second, time between two tokens, time before anything begins."""

    prefill_tokens_per_s: int
    decode_token_ps: int
    overhead_ps: int = 0

    def first_token_ps(self, uncached_tokens: int, prompt_tokens: int, load: Load) -> int:
        del prompt_tokens
        work = load.prefill_tokens + uncached_tokens
        return self.overhead_ps + ceil_div(work * PS_PER_S, max(1, self.prefill_tokens_per_s))

    def token_ps(self, load: Load) -> int:
        del load
        return self.decode_token_ps
