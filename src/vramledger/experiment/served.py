"""One request of an experiment: what was asked, and what came of it."""

from __future__ import annotations

import msgspec

from vramledger.simulation.settings import Slo

NS_PER_MS = 1_000_000


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the records. `number` counts the requests of a stage from 0; instants are nanoseconds since the stage began, -1 where there
    was none.

    `due_ns` is when it was to be sent (of a later turn: its parent's end and the pause), `sent_ns` when it was. `asked_` is what the
    workload wanted, the other tokens are the engine's count, None where it told none. `cancel_ns` and the deadlines count from `due_ns`, None
    where the client has none. `whole` is an answer that ended as it should, `left` one that its client did not wait for.
    """

    number: int
    kind: str = ""
    tenant: int = 0
    conversation: int | None = None
    parent: int | None = None
    due_ns: int
    sent_ns: int = -1
    first_token_ns: int = -1
    last_token_ns: int = -1
    end_ns: int = -1
    longest_gap_ns: int = 0
    asked_prompt_tokens: int
    asked_output_tokens: int
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    output_tokens: int | None = None
    events: int = 0
    cancel_ns: int | None = None
    first_token_deadline_ns: int | None = None
    deadline_ns: int | None = None
    status: int = 0
    whole: bool = False
    left: bool = False
    attempts: int = 0
    waited_to_retry_ns: int = 0
    error: str = ""
    rule: str = ""

    @property
    def ttft_ns(self) -> int | None:
        """From when it was due to its first token."""
        return None if self.first_token_ns < 0 else self.first_token_ns - self.due_ns

    @property
    def tpot_ns(self) -> int | None:
        """Average time from a token to the next, where there were two."""
        tokens = self.output_tokens if self.output_tokens is not None else self.events
        if tokens < 2 or self.first_token_ns < 0:
            return None
        return (self.last_token_ns - self.first_token_ns) // (tokens - 1)

    @property
    def latency_ns(self) -> int | None:
        """From when it was due to the end of a whole answer."""
        return self.end_ns - self.due_ns if self.whole else None

    def is_good(self, slo: Slo) -> bool:
        """Whether it met every aim and its own deadlines. One that its client left as planned is good if no aim was missed by then, as
        in the simulator."""
        waited_ns = self.end_ns - self.due_ns
        if self.left:
            if self.cancel_ns is None or (self.deadline_ns is not None and waited_ns >= self.deadline_ns):
                return False
        elif not self.whole:
            return False
        first_ns = self.ttft_ns if self.ttft_ns is not None else waited_ns
        return (
            _within(first_ns, slo.ttft_ms)
            and _within(self.tpot_ns, slo.tpot_ms)
            and _within(waited_ns, slo.latency_ms)
            and (self.first_token_deadline_ns is None or first_ns <= self.first_token_deadline_ns)
            and (self.deadline_ns is None or waited_ns <= self.deadline_ns)
        )


def _within(value_ns: int | None, limit_ms: float | None) -> bool:
    return value_ns is None or limit_ms is None or value_ns <= limit_ms * NS_PER_MS
