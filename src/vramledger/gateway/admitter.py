"""What the gateway asks of an admission policy, and what it tells it. No clock, socket or text of a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Protocol, runtime_checkable

import msgspec


class Kind(Enum):
    """What a request asks of the engine, by its path."""

    CHAT = "chat"
    COMPLETION = "completion"
    RESPONSE = "response"
    MESSAGE = "message"
    EMBEDDING = "embedding"


class TokenSource(StrEnum):
    """Who counted a prompt's tokens."""

    TOKEN_IDS = "token-ids"  # noqa: S105
    """The client, which sent the tokens themselves."""
    ENGINE = "engine"
    TOKENIZER = "tokenizer"
    """A tokenizer file beside the gateway."""
    LEARNED = "bytes-per-token"
    """Nobody: its bytes over what earlier prompts' tokens had."""


class PromptTokens(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt's length; of several prompts the longest one's.

    `tokens` is expected and `most_tokens` at the most, by a count that rests on `observations` earlier prompts (0: it was counted).
    `keys` are the identities of the prompt's leading full blocks of `key_tokens` tokens, chained, as far as its tokens themselves are known;
    nothing of another tenant's or model's has them.
    """

    tokens: int
    most_tokens: int
    source: TokenSource
    observations: int = 0
    keys: tuple[int, ...] = ()
    key_tokens: int = 0


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request before the engine has it.

    `number` counts requests of this gateway in order of arrival. `prompt_bytes` is UTF-8 text of prompt or messages, all
    branches shared; `prompt` is None unless somebody counted its tokens. `max_output_tokens` is the user's bound, for one branch.
    `branches` is prompts times `n` or `best_of`. `tenant` numbers whose request it is, `priority` is smaller for what goes first, and what
    it has to be done `within_ms` counts from its arrival. `after_tool`: its last message is a tool's result.
    """

    number: int
    kind: Kind
    model: str
    prompt_bytes: int
    prompt: PromptTokens | None = None
    max_output_tokens: int | None = None
    branches: int = 1
    stream: bool = False
    arrival_ns: int = 0
    tenant: int = 0
    priority: int = 0
    first_token_within_ms: int | None = None
    within_ms: int | None = None
    after_tool: bool = False


class Verdict(Enum):
    ADMIT = "admit"
    """A reservation is held under the request's number until it is released."""
    QUEUE = "queue"
    """Its turn is kept until it is admitted, refused or released."""
    REJECT = "reject"
    """Not now and not in the queue: 429."""
    UNAVAILABLE = "unavailable"
    """The policy cannot tell, or the engine is not there: 503."""
    NEVER_FITS = "never-fits"
    """However long it waits: 400."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with its reasons. `rule` is a stable name, `message` a sentence for the user, `numbers` what was compared."""

    verdict: Verdict
    rule: str
    message: str = ""
    retry_after_ms: int | None = None
    wait_ms: int | None = None
    """Of a queued request: how long until it is admitted, as far as the policy can tell."""
    numbers: Mapping[str, int] = {}
    instance: int = 0
    """The engine that it is admitted to, by its place in the gateway's list."""


class Ended(Enum):
    """How a request that was admitted or queued came to its end."""

    COMPLETED = "completed"
    ENGINE_ERROR = "engine-error"
    """The engine answered with an error, as a status or inside a stream that began well."""
    UPSTREAM_FAILED = "upstream-failed"
    TIMED_OUT = "timed-out"
    CLIENT_LEFT = "client-left"
    QUEUE_FULL = "queue-full"
    QUEUED_TOO_LONG = "queued-too-long"
    DRAINED = "drained"


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A request's end. Tokens are None where nothing told them; `counted` says that output tokens are events of the stream."""

    how: Ended
    prompt_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    output_tokens: int | None = None
    counted: bool = False
    output_events: int = 0
    """Events of the stream that carried output, whether or not the engine told the tokens as well."""
    first_output_ns: int | None = None
    """When the first of these came; None for an answer that was no stream."""


class Admitter(Protocol):
    """An admission policy over one engine or several. All calls come from one thread, in order of time, and none may wait.

    It keeps the order of those that it queues; the gateway only holds their connections.
    """

    def decide(self, facts: RequestFacts, now_ns: int) -> Decision:
        """A request arrived."""

    def reconsider(self, now_ns: int) -> Iterable[tuple[int, Decision]]:
        """What became of queued requests, by number, in the order of their turns. Those not named, or named with QUEUE, wait on.

        Asked after each release, and a few times a second while any wait.
        """

    def progress(self, number: int, output_tokens: int, now_ns: int) -> None:
        """An admitted request has streamed so much so far; told a few times a second. Events are counted as tokens."""

    def release(self, number: int, ending: Ending, now_ns: int) -> None:
        """Called exactly once for each request whose last decision was ADMIT or QUEUE."""


@runtime_checkable
class KnowsInstances(Protocol):
    """An admitter that looks after several engines."""

    def healthy_instance(self) -> int:
        """The place of the engine that what passes unpriced goes to."""
