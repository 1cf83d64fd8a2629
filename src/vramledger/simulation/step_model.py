"""How long one step of an engine takes.

Whole picoseconds, so that a thousand steps at once and a thousand steps one by one end at the same instant.
"""

from __future__ import annotations

from msgspec import Struct

from vramledger.evidence import Evidence

PS_PER_NS = 1_000
PS_PER_S = 1_000_000_000_000


class StepModel(Struct, frozen=True, kw_only=True):
    """The time of a step, linear in its work over a floor.

        overhead_ps + max(floor_ps, tokens * token_ps) + decode_seqs * decode_seq_ps + kv_tokens * kv_token_ps
            + pairs * pair_ps_per_1024 // 1024

    `tokens` are all tokens computed in the step (a chunk's and one a decoding sequence), `kv_tokens` those read
    from the cache (a sequence's computed tokens before the step, over all scheduled sequences), and `pairs` a prefill
    chunk's (query, key) pairs: tokens x (computed before + half of tokens, rounded down), summed over chunks. The floor is the
    weights' read, which small batches wait for. `evidence` says whether this is assumed from a device's data
    sheet or measured on a run, and `relative_error` how far a fitted model was off there.
    """

    overhead_ps: int
    floor_ps: int
    token_ps: int
    decode_seq_ps: int
    kv_token_ps: int
    pair_ps_per_1024: int = 0
    evidence: Evidence
    relative_error: float | None = None

    def step_ps(self, *, tokens: int, decode_seqs: int, kv_tokens: int, pairs: int) -> int:
        """One step's time."""
        return (
            self.overhead_ps
            + max(self.floor_ps, tokens * self.token_ps)
            + decode_seqs * self.decode_seq_ps
            + kv_tokens * self.kv_token_ps
            + pairs * self.pair_ps_per_1024 // 1024
        )

    def decode_steps_ps(self, steps: int, *, decode_seqs: int, kv_tokens: int) -> int:
        """Time of `steps` steps in a row that only decode: each reads `decode_seqs` more tokens than the one before."""
        first = self.step_ps(tokens=decode_seqs, decode_seqs=decode_seqs, kv_tokens=kv_tokens, pairs=0)
        return steps * first + steps * (steps - 1) // 2 * decode_seqs * self.kv_token_ps
