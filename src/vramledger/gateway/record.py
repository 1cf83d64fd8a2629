"""What is noted of one priced request, from its arrival until its blocks are back, and who is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from vramledger.gateway.admitter import Decision, Ended, Ending, RequestFacts, Verdict
from vramledger.gateway.tracing.trace_context import RequestTrace

if TYPE_CHECKING:
    from vramledger.gateway.messages import RequestHead

LOG = logging.getLogger(__name__)
LONGEST_WORD = 64
_HOWS = {how: str(how.value) for how in Ended}
_WORDS = {verdict: str(verdict.value) for verdict in Verdict}


class RequestRecord(msgspec.Struct, kw_only=True):
    """One request as it went. Instants are nanoseconds of the gateway's clock and 0 where they did not come.

    Of a decision's numbers those named `uncached_tokens`, `reserved_output_tokens` (of one branch), `need_blocks` and `block_size` are read,
    where the policy gives them. `released_ns` is when the gateway's own reservation ended, `blocks_back_ns` when the engine was seen to
    hold them no more (it stays 0 where nothing tells). Nothing of a prompt, an output or a key is in it.
    """

    facts: RequestFacts
    tenant: str = ""
    """Its name, as configured."""
    first_decision: Decision | None = None
    """The policy's first word, where the request was queued on it."""
    decision: Decision | None = None
    """The last word."""
    asked_ns: int = 0
    decided_ns: int = 0
    """The policy's first answer came; what it took is from `asked_ns`."""
    queued_ns: int = 0
    admitted_ns: int = 0
    sent_ns: int = 0
    first_byte_ns: int = 0
    first_token_ns: int = 0
    """Of a stream: its first event with output."""
    finished_ns: int = 0
    """Its answer was complete, or its client or its engine gone."""
    ended_ns: int = 0
    released_ns: int = 0
    blocks_back_ns: int = 0
    status: int = 0
    """Of the answer; 0 where there was none."""
    answer_bytes: int = 0
    retries: int = 0
    """Times that it was sent again because the engine had closed a pooled connection."""
    engine_error: str = ""
    """The code or type that the engine gave its error."""
    ran_out: bool = False
    """That error says that the engine's memory ran out."""
    ending: Ending | None = None
    tool_pause_ns: int | None = None
    """From the end of the turn that it continues until it came; None where no such turn is known."""
    prefix_kept: str = ""
    """What of that turn's prompt the engine still held when it came: `kept`, `part`, `lost`, or nothing where that is not known."""
    trace: RequestTrace | None = None
    """Its place in a trace, where there are traces."""

    @property
    def instance(self) -> int | None:
        """The engine that it was admitted to; None if it was not."""
        return self.decision.instance if self.decision is not None and self.admitted_ns else None

    @property
    def queue_ns(self) -> int | None:
        """How long it waited for its turn; None if it did not."""
        if not self.queued_ns:
            return None
        return max(0, (self.admitted_ns or self.ended_ns) - self.queued_ns)

    @property
    def outcome(self) -> str:
        """How it ended: a value of `Ended`, or of the verdict that refused it."""
        if self.ending is not None:
            return _HOWS[self.ending.how]
        decision = self.decision
        if decision is None or decision.verdict in (Verdict.ADMIT, Verdict.QUEUE):
            return _HOWS[Ended.CLIENT_LEFT]
        return _WORDS[decision.verdict]

    @property
    def admission(self) -> tuple[str, str]:
        """What the policy's last word was, and its rule; of a client that did not wait for it, "left"."""
        decision = self.decision
        if decision is None:
            return "left", "undecided"
        if decision.verdict is Verdict.QUEUE:
            return "left", decision.rule
        return _WORDS[decision.verdict], decision.rule

    def number_of(self, name: str) -> int | None:
        """A number of the decision by which it was admitted or refused, or of the first one."""
        for decision in (self.decision, self.first_decision):
            if decision is not None and name in decision.numbers:
                return decision.numbers[name]
        return None

    @property
    def reserved_output_tokens(self) -> int | None:
        return self.number_of("reserved_output_tokens")

    @property
    def uncached_tokens(self) -> int | None:
        return self.number_of("uncached_tokens")

    @property
    def blocks(self) -> int | None:
        """Blocks that were reserved for it at its admission."""
        return self.number_of("need_blocks") if self.admitted_ns else None


class Observer(Protocol):
    """Whoever is told of requests. Called in the gateway's event loop; nothing here may wait, and what it raises is logged and counted.

    Of each record `arrived` and `ended` are called exactly once.
    """

    def arrived(self, record: RequestRecord, head: RequestHead) -> None:
        """A priced request is whole and its tenant known. What the engine is told of its trace may be written into `head.headers`."""

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None:
        """An admitted request has streamed so much; told a few times a second. Events are counted as tokens."""

    def ended(self, record: RequestRecord) -> None:
        """It has its answer or needs none, and its reservation is given back."""


class Observers:
    """Several observers as one that never raises."""

    def __init__(self, observers: Sequence[Observer], clock_ns: Callable[[], int]) -> None:
        self._observers = tuple(observers)
        self.now_ns = clock_ns
        self.failures = 0

    def arrived(self, record: RequestRecord, head: RequestHead) -> None:
        for observer in self._observers:
            try:
                observer.arrived(record, head)
            except Exception:
                self._failed(observer)

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None:
        for observer in self._observers:
            try:
                observer.progressed(record, output_tokens, now_ns)
            except Exception:
                self._failed(observer)

    def ended(self, record: RequestRecord) -> None:
        for observer in self._observers:
            try:
                observer.ended(record)
            except Exception:
                self._failed(observer)

    def _failed(self, observer: Observer) -> None:
        self.failures += 1
        if (
            self.failures & (self.failures - 1) == 0
        ):  # the first, second, fourth, ...: a broken one does not fill the log
            LOG.exception("an observer of requests (%s) failed", type(observer).__name__)


def plain_word(text: str, longest: int = LONGEST_WORD) -> str:
    """A name from outside as logs and labels may hold it: printable ASCII, others as a question mark, and bounded."""
    word = text[:longest]
    if not (word.isascii() and word.isprintable()):
        word = "".join(letter if " " <= letter <= "~" else "?" for letter in word)
    return word if len(text) <= longest else word[:-3] + "..."
