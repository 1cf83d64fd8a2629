"""One request to a live engine and what came back, by the clock of whoever asked."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

CLIENT_FAILED = "client"
"""The error of a request that failed on the side of whoever asked, before the engine was asked."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A POST to be sent `at_ns` after the run began, whatever became of those before it.

    `body` is JSON, or what makes it shortly before it is sent; `headers` are added to the usual ones. Its client leaves after `leaves_after_ns`, without
    a piece of output after `first_token_within_ns`, or once `leaves_after_events` pieces have come (None: it stays). An answer of
    more than `most_events` pieces is taken to have no end, and fails. `retries` is how often it
    asks again after a 429 or 503 that names a Retry-After, waiting as long as that says. `keeps_output` puts what was answered into the answer.
    """

    number: int
    at_ns: int
    body: bytes | Callable[[], bytes]
    path: str = "/v1/chat/completions"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    leaves_after_ns: int | None = None
    first_token_within_ns: int | None = None
    leaves_after_events: int | None = None
    most_events: int | None = None
    retries: int = 0
    keeps_output: bool = False


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered: token ids where the engine tells them, and the text. It is in no message and no record."""

    ids: tuple[int, ...] = ()
    text: str = ""

    def __repr__(self) -> str:
        return f"Output({len(self.ids)} ids, {len(self.text)} characters)"


class Answer(msgspec.Struct, kw_only=True):
    """What became of a question. Instants are nanoseconds since the run began, -1 where there was none; `sent_ns` - `at_ns` of the
    question is by how much the client itself was late. `status` 0: no answer. `error` is the code or type of an error that the engine told, also
    inside a stream that began with 200, or why the connection failed. A client that leaves while it heeds a Retry-After was refused, not `left`. `whole` is an answer that ended as it should. Tokens are the engine's count, None
    where it told none; `events` are pieces of output that came.
    """

    number: int
    at_ns: int
    sent_ns: int = -1
    first_token_ns: int = -1
    last_token_ns: int = -1
    end_ns: int = -1
    longest_gap_ns: int = 0
    status: int = 0
    whole: bool = False
    left: bool = False
    attempts: int = 0
    waited_to_retry_ns: int = 0
    waits_to_retry: bool = False
    """It heeded a Retry-After when it ended."""
    error: str = ""
    rule: str = ""
    """Of an admission policy in front of the engine: what decided."""
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    output_tokens: int | None = None
    events: int = 0
    output: Output | None = None

    @property
    def first_token_after_ns(self) -> int | None:
        """From when it should have been sent to its first piece of output."""
        return None if self.first_token_ns < 0 else self.first_token_ns - self.at_ns

    @property
    def token_gap_ns(self) -> int | None:
        """Average time from a token to the next, where there were two."""
        tokens = self.output_tokens if self.output_tokens is not None else self.events
        if tokens < 2 or self.first_token_ns < 0:
            return None
        return (self.last_token_ns - self.first_token_ns) // (tokens - 1)
