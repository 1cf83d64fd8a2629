"""What a policy answers, with the numbers that it answered by."""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from msgspec import Struct

from vramledger.units import counted


class Admission(Enum):
    """An admission policy's answer about one request."""

    ACCEPT = auto()
    QUEUE = auto()
    """Not now: the policy keeps it and says when its time has come."""
    REJECT = auto()


class Rule(StrEnum):
    """What decided."""

    FITS = "fits"
    NEVER_FITS = "never-fits"
    """No empty pool of this size, or not this model's length, would take it."""
    FREE_BLOCKS = "free-blocks"
    """What it needs at once is not free now."""
    FUTURE_PEAK = "future-peak"
    """What it may grow to beside what runs would not fit at some later step."""
    RISK = "risk"
    """The pool would be exceeded with a larger probability than is allowed."""
    WATERMARK = "watermark"
    RISKY_POOL = "risky-pool"
    """The share of the pool for requests whose length is in doubt is taken."""
    MAX_RUNNING = "max-running"
    TURN = "turn"
    """Others go first."""
    FIRST_TOKEN_DEADLINE = "first-token-deadline"  # noqa: S105
    DEADLINE = "deadline"
    QUEUE_REQUESTS = "queue-requests"
    QUEUE_TOKENS = "queue-tokens"
    QUEUE_AGE = "queue-age"


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """An answer about the request `identity`, taken at `at_ps`.

    `uncached_tokens` of its prompt are to be computed; `reserved_output_tokens` is what was reserved for each branch, which rests on
    `observations` requests that ended (0: on the client's bound alone). `need_blocks` is what it holds at its most beyond blocks that
    others hold anyway. `free_blocks` are those that nothing admitted was given, `peak_blocks` the most that all would hold at
    once with it, of `limit_blocks` that may be. `exceeded_probability` is how probably the pool would be exceeded, erring to the careful side (`risk`).
    `retry_at_ps` is when asking again may help: an estimate, and None where nothing lets one. `possible_first_token_ps` and
    `possible_end_ps` are the earliest instants that a request with a deadline could have had, `possible_output_tokens` the output that
    could have been done by its deadline. Of a request that never fits the count that is too large is beside its limit: `prompt_tokens` beside
    `limit_tokens`, the model's length, or `sequences` beside `limit_sequences`; where both are None it is `need_blocks`.
    """

    identity: int
    answer: Admission
    rule: Rule
    at_ps: int
    uncached_tokens: int = 0
    reserved_output_tokens: int = 0
    observations: int = 0
    need_blocks: int = 0
    free_blocks: int = 0
    peak_blocks: int = 0
    limit_blocks: int = 0
    exceeded_probability: float | None = None
    queued_requests: int = 0
    queued_tokens: int = 0
    retry_at_ps: int | None = None
    possible_first_token_ps: int | None = None
    possible_end_ps: int | None = None
    possible_output_tokens: int | None = None
    prompt_tokens: int | None = None
    limit_tokens: int | None = None
    sequences: int | None = None
    limit_sequences: int | None = None

    def why(self) -> str:
        """The rule and its numbers in a sentence."""
        need, free = counted(self.need_blocks, "block"), counted(self.free_blocks, "block")
        peak = f"{counted(self.peak_blocks, 'block')} at the most of {self.limit_blocks:,}"
        match self.rule:
            case Rule.FITS:
                return f"needs {need}, {free} free; all that runs holds {peak}"
            case Rule.NEVER_FITS:
                return self._too_large(need)
            case Rule.FREE_BLOCKS:
                return f"its prompt has no room now: {free} free"
            case Rule.FUTURE_PEAK:
                return f"would make all that runs hold {peak}"
            case Rule.RISK:
                return f"the pool would be exceeded with a probability of up to {self.exceeded_probability or 0.0:.2g}"
            case Rule.WATERMARK:
                return f"{free} free, which with its prompt falls below what is to stay free"
            case Rule.RISKY_POOL:
                return f"its length is in doubt, and requests like it would hold {peak}"
            case Rule.MAX_RUNNING:
                return "the engine runs as many requests as it may"
            case Rule.TURN:
                return f"{counted(self.queued_requests, 'request')} of {self.queued_tokens:,} tokens wait, and others go first"
            case Rule.FIRST_TOKEN_DEADLINE | Rule.DEADLINE:
                return f"its deadline cannot be met{self._possible()}"
            case Rule.QUEUE_REQUESTS | Rule.QUEUE_TOKENS:
                return f"{counted(self.queued_requests, 'request')} of {self.queued_tokens:,} tokens wait already"
            case Rule.QUEUE_AGE:
                return "it has waited as long as a request may"

    def _too_large(self, need: str) -> str:
        if self.limit_tokens is not None:
            return (
                f"its prompt has {counted(self.prompt_tokens or 0, 'token')}, and the model takes {self.limit_tokens:,}, "
                "of which the answer needs one at least"
            )
        if self.limit_sequences is not None:
            return f"asks for {counted(self.sequences or 0, 'sequence')} at once, and the engine runs {self.limit_sequences:,} at the most"
        return f"needs {need}, and there are {self.limit_blocks:,} in all"

    def _possible(self) -> str:
        """What was foretold; nothing of what would be at once, for that is what is said while times are not known."""
        told = []
        if self.possible_first_token_ps is not None and self.possible_first_token_ps > self.at_ps:
            told.append(f"first token {(self.possible_first_token_ps - self.at_ps) / 1e12:.3g} s from now")
        if self.possible_end_ps is not None and self.possible_end_ps > (self.possible_first_token_ps or 0):
            told.append(f"end {(self.possible_end_ps - self.at_ps) / 1e12:.3g} s from now")
        if self.possible_output_tokens is not None:
            told.append(f"{self.possible_output_tokens:,} output tokens by then")
        return f"; possible, were it let in now: {', '.join(told)}" if told else " any more"
