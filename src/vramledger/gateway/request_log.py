"""A line of JSON for each priced request: what was decided, by which numbers, and what came of it. No prompts, no outputs, no keys."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from vramledger.errors import OutputError
from vramledger.gateway.admitter import Decision, Verdict
from vramledger.gateway.record import RequestRecord, plain_word

if TYPE_CHECKING:
    from vramledger.gateway.messages import RequestHead

LOG = logging.getLogger(__name__)
MOST_LINES = 65_536
WRITE_S = 0.2
NS_PER_US = 1000
NS_PER_MS = 1_000_000


class LoggedDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    verdict: str
    rule: str
    numbers: Mapping[str, int] = {}
    retry_after_ms: int | None = None
    wait_ms: int | None = None


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. What is not known is left out; `at_ms` is Unix time of its end, the other times count from its arrival."""

    at_ms: int
    number: int
    kind: str
    outcome: str
    tenant: str = ""
    model: str = ""
    stream: bool = False
    branches: int = 1
    instance: int | None = None
    status: int = 0
    first: LoggedDecision | None = None
    """The policy's first word, where another one followed."""
    decision: LoggedDecision | None = None
    decision_us: int | None = None
    queue_ms: int | None = None
    first_token_ms: int | None = None
    finished_ms: int | None = None
    released_us: int | None = None
    """From its end until its reservation was free."""
    prompt_tokens: int | None = None
    """As the engine reported them."""
    counted_prompt_tokens: int | None = None
    """As they were counted before it was asked, by `counted_by`."""
    counted_by: str = ""
    cached_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    output_tokens: int | None = None
    output_counted: bool = False
    """Output tokens are events of the stream."""
    answer_bytes: int = 0
    retries: int = 0
    engine_error: str = ""
    ran_out: bool = False
    tool_pause_ms: int | None = None
    prefix_kept: str = ""
    trace: str = ""
    """The identity of its trace, where that was recorded."""


def log_line(record: RequestRecord, at_ms: int) -> LogLine:
    facts, ending = record.facts, record.ending
    arrival_ns = facts.arrival_ns
    changed = record.first_decision is not record.decision
    return LogLine(
        at_ms=at_ms,
        number=facts.number,
        kind=str(facts.kind.value),
        outcome=record.outcome,
        tenant=plain_word(record.tenant),
        model=plain_word(facts.model),
        stream=facts.stream,
        branches=facts.branches,
        instance=record.instance,
        status=record.status,
        first=_logged(record.first_decision) if changed else None,
        decision=_logged(record.decision),
        decision_us=(record.decided_ns - record.asked_ns) // NS_PER_US if record.asked_ns else None,
        queue_ms=None if record.queue_ns is None else record.queue_ns // NS_PER_MS,
        first_token_ms=_since(arrival_ns, record.first_token_ns),
        finished_ms=_since(arrival_ns, record.finished_ns or record.ended_ns),
        released_us=(record.released_ns - record.finished_ns) // NS_PER_US
        if record.released_ns and record.finished_ns
        else None,
        prompt_tokens=ending.prompt_tokens if ending is not None else None,
        counted_prompt_tokens=facts.prompt.tokens if facts.prompt is not None else None,
        counted_by=str(facts.prompt.source.value) if facts.prompt is not None else "",
        cached_prompt_tokens=ending.cached_prompt_tokens if ending is not None else None,
        max_output_tokens=facts.max_output_tokens,
        output_tokens=ending.output_tokens if ending is not None else None,
        output_counted=ending.counted if ending is not None else False,
        answer_bytes=record.answer_bytes,
        retries=record.retries,
        engine_error=plain_word(record.engine_error),
        ran_out=record.ran_out,
        tool_pause_ms=None if record.tool_pause_ns is None else record.tool_pause_ns // NS_PER_MS,
        prefix_kept=record.prefix_kept,
        trace=record.trace.name if record.trace is not None and record.trace.is_sampled else "",
    )


def _since(start_ns: int, end_ns: int) -> int | None:
    return (end_ns - start_ns) // NS_PER_MS if end_ns else None


def _logged(decision: Decision | None) -> LoggedDecision | None:
    """Its sentence is left out: it is made of the numbers."""
    if decision is None:
        return None
    return LoggedDecision(
        verdict=str(decision.verdict.value),
        rule=decision.rule,
        numbers=decision.numbers,
        retry_after_ms=decision.retry_after_ms,
        wait_ms=decision.wait_ms if decision.verdict is Verdict.QUEUE else None,
    )


class RequestLog:
    """An observer that appends lines to a file. A thread writes them, so that a slow disk holds up nobody; what would make more than
    `MOST_LINES` wait is lost and counted. Rotation is the system's: `reopen` begins with the file that then has the name.

    Raises OutputError where the file cannot be opened.
    """

    def __init__(self, path: Path, *, wall_clock_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall_clock_s = wall_clock_s
        self._lines: deque[bytes] = deque()
        self._wake = threading.Event()
        self._closing = self._reopening = False
        self.written = 0
        self.lost = 0
        self._file = self._opened()
        self._thread = threading.Thread(target=self._write, name="request-log", daemon=True)
        self._thread.start()

    def arrived(self, record: RequestRecord, head: RequestHead) -> None: ...

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None: ...

    def ended(self, record: RequestRecord) -> None:
        if len(self._lines) >= MOST_LINES or self._closing:
            self.lost += 1
            return
        line = log_line(record, int(self._wall_clock_s() * 1000))
        self._lines.append(msgspec.json.encode(line) + b"\n")

    def reopen(self) -> None:
        """Goes on in the file that has the name now."""
        self._reopening = True
        self._wake.set()

    def close(self, within_s: float = 5.0) -> None:
        """Writes what is left, as far as that is possible in time."""
        self._closing = True
        self._wake.set()
        self._thread.join(within_s)

    def _opened(self) -> BinaryIO:
        try:
            return self._path.open("ab", buffering=0)
        except OSError as error:
            raise OutputError(f"the request log {self._path}: {error.strerror or error}") from error

    def _write(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(WRITE_S)
            self._wake.clear()
            is_last = self._closing  # what was asked before that is still done
            if self._reopening:
                self._reopening = False
                self._begin_anew()
            self._write_waiting()
        self._file.close()

    def _begin_anew(self) -> None:
        self._write_waiting()
        try:
            file = self._opened()
        except OutputError as error:
            LOG.error("%s; the old file is written on", error)
            return
        self._file.close()
        self._file = file

    def _write_waiting(self) -> None:
        while self._lines:
            lines = [self._lines.popleft() for _ in range(min(len(self._lines), 1024))]
            try:
                rest = memoryview(b"".join(lines))
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                if not self.lost:
                    LOG.error("the request log cannot be written: %s", error.strerror or error)
                self.lost += len(lines)
            else:
                self.written += len(lines)
