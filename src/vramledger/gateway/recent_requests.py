"""The newest priced requests with the policy's words, for who looks on. Nothing of a prompt, an output or a key is in them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from vramledger.gateway.admitter import Verdict
from vramledger.gateway.record import RequestRecord, plain_word

if TYPE_CHECKING:
    from vramledger.gateway.messages import RequestHead

MOST_ENDED = 256
MOST_TOLD = 256
NS_PER_MS = 1_000_000
_RUNNING, _WAITING, _UNDECIDED = "running", "waiting", "undecided"


class RecentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `came_ms` is Unix time of its arrival, other times count from it; what is not known yet is None.

    `standing` is `undecided`, `waiting`, `running`, or how it ended (a value of `Ended`, or of the verdict that refused it). `verdict`,
    `rule`, `message` and `numbers` are the policy's last word; `first_verdict` and `first_rule` its first one.
    """

    number: int
    came_ms: int
    kind: str
    standing: str
    tenant: str = ""
    model: str = ""
    instance: int | None = None
    verdict: str | None = None
    rule: str = ""
    message: str = ""
    numbers: Mapping[str, int] = {}
    first_verdict: str | None = None
    first_rule: str = ""
    queue_ms: int | None = None
    first_token_ms: int | None = None
    finished_ms: int | None = None
    prompt_tokens: int | None = None
    """As the engine reported them, else as they were counted."""
    max_output_tokens: int | None = None
    output_tokens: int | None = None
    status: int | None = None
    ran_out: bool = False


class RecentRequests:
    """An observer that keeps those which are not done, and the last 256 that are, as little as is told of them."""

    def __init__(
        self,
        *,
        wall_clock_s: Callable[[], float] = time.time,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_clock_s = wall_clock_s
        self._clock_ns = clock_ns
        self._open: dict[int, RequestRecord] = {}
        self._ended: deque[RecentRequest] = deque(maxlen=MOST_ENDED)

    def arrived(self, record: RequestRecord, head: RequestHead) -> None:
        self._open[record.facts.number] = record

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None: ...

    def ended(self, record: RequestRecord) -> None:
        self._open.pop(record.facts.number, None)
        self._ended.append(self._told(record, record.outcome))

    def newest(self) -> list[RecentRequest]:
        """At most 256 that are not done and 256 that are, each kind newest first."""
        running = islice(reversed(self._open.values()), MOST_TOLD)
        return [*(self._told(record, _standing(record)) for record in running), *reversed(self._ended)]

    def _told(self, record: RequestRecord, standing: str) -> RecentRequest:
        facts, ending, last, first = record.facts, record.ending, record.decision, record.first_decision
        arrival_ns = facts.arrival_ns
        age_ms = (self._clock_ns() - arrival_ns) // NS_PER_MS
        counted = facts.prompt.tokens if facts.prompt is not None else None
        told = ending.prompt_tokens if ending is not None else None
        changed = first is not None and last is not None and first is not last
        return RecentRequest(
            number=facts.number,
            came_ms=int(self._wall_clock_s() * 1000) - age_ms,
            kind=str(facts.kind.value),
            standing=standing,
            tenant=plain_word(record.tenant),
            model=plain_word(facts.model),
            instance=record.instance,
            verdict=str(last.verdict.value) if last is not None else None,
            rule=last.rule if last is not None else "",
            message=last.message if last is not None else "",
            numbers=last.numbers if last is not None else {},
            first_verdict=str(first.verdict.value) if changed and first is not None else None,
            first_rule=first.rule if changed and first is not None else "",
            queue_ms=self._queue_ms(record),
            first_token_ms=_since(arrival_ns, record.first_token_ns),
            finished_ms=_since(arrival_ns, record.finished_ns or record.ended_ns),
            prompt_tokens=counted if told is None else told,
            max_output_tokens=facts.max_output_tokens,
            output_tokens=ending.output_tokens if ending is not None else None,
            status=record.status or None,
            ran_out=record.ran_out,
        )

    def _queue_ms(self, record: RequestRecord) -> int | None:
        """How long it waited for its turn, so far where it still does."""
        if not record.queued_ns:
            return None
        until_ns = record.admitted_ns or record.ended_ns or self._clock_ns()
        return max(0, until_ns - record.queued_ns) // NS_PER_MS


def _standing(record: RequestRecord) -> str:
    if record.admitted_ns:
        return _RUNNING
    if record.decision is not None and record.decision.verdict is Verdict.QUEUE:
        return _WAITING
    return _UNDECIDED


def _since(start_ns: int, end_ns: int) -> int | None:
    return (end_ns - start_ns) // NS_PER_MS if end_ns else None
