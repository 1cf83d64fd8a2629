"""Where requests wait for the policy's word: a bounded queue, and every reservation given back exactly once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from vramledger.gateway.admitter import Admitter, Decision, Ended, Ending, RequestFacts, Verdict
from vramledger.gateway.counters import Counters
from vramledger.gateway.pace import ReleasePace
from vramledger.gateway.record import RequestRecord

NS_PER_MS = 1_000_000
LOG = logging.getLogger(__name__)


class Refused(Exception):
    """The request is not let in; `decision` says why, and is never ADMIT or QUEUE."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.rule)
        self.decision = decision


class Ticket:
    """A request that was admitted. `close` gives its reservation back; only the first call does anything."""

    __slots__ = ("_desk", "decision", "ending", "facts", "position", "record", "wait_ms", "waited_ms")

    def __init__(
        self,
        desk: AdmissionDesk,
        facts: RequestFacts,
        decision: Decision,
        record: RequestRecord | None = None,
    ) -> None:
        self._desk: AdmissionDesk | None = desk
        self.facts = facts
        self.decision = decision
        self.record = record
        """What is noted of it, where somebody observes."""
        self.position: int | None = None
        """How many waited when it came, itself included; None if it did not wait."""
        self.wait_ms: int | None = None
        """What its wait was estimated to be."""
        self.waited_ms = 0
        self.ending = Ending(how=Ended.CLIENT_LEFT)
        """How it ended, as far as is known."""

    @property
    def is_open(self) -> bool:
        return self._desk is not None

    def close(self) -> None:
        desk, self._desk = self._desk, None
        if desk is not None:
            desk._release(self.facts.number, self.ending)
            if self.record is not None:
                self.record.released_ns = desk._clock_ns()


class _Waiter:
    __slots__ = (
        "decision",
        "facts",
        "future",
        "position",
        "record",
        "since_ns",
        "ticket",
        "timer",
        "wait_ms",
    )

    def __init__(
        self, facts: RequestFacts, decision: Decision, since_ns: int, record: RequestRecord | None
    ) -> None:
        self.facts = facts
        self.record = record
        self.decision = decision
        self.since_ns = since_ns
        self.future: asyncio.Future[Ticket | Decision] = asyncio.get_running_loop().create_future()
        self.ticket: Ticket | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.position = 0
        self.wait_ms: int | None = None


class AdmissionDesk:
    """Asks the policy at arrival and whenever a reservation came back. Everything happens in one event loop."""

    def __init__(
        self,
        admitter: Admitter,
        *,
        queued: int,
        queued_ms: int,
        clock_ns: Callable[[], int],
        counters: Counters,
    ) -> None:
        self._admitter = admitter
        self._most = queued
        self._queued_ms = queued_ms
        self._clock_ns = clock_ns
        self._counters = counters
        self._queue: dict[int, _Waiter] = {}
        self._waiting_of: dict[int, int] = {}  # by tenant
        self._admitted: set[int] = set()
        self._pace = ReleasePace(32)
        self._asking = False
        self._draining = False
        self._numbers = 0

    def adopt(self, *, queued: int, queued_ms: int) -> None:
        """Other bounds on the queue, for those that come from now on."""
        self._most, self._queued_ms = queued, queued_ms

    def next_number(self) -> int:
        """A number for a request that arrived: one sequence for all that stand before this desk."""
        self._numbers += 1
        return self._numbers

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def admitted(self) -> int:
        return len(self._admitted)

    @property
    def oldest_since_ns(self) -> int | None:
        """Since when the one that waits longest has waited."""
        return next((waiter.since_ns for waiter in self._queue.values()), None)

    def waiting_facts(self) -> list[tuple[RequestFacts, Decision]]:
        """Those that wait, with the last word about each, in order of arrival."""
        return [(waiter.facts, waiter.decision) for waiter in self._queue.values()]

    async def enter(self, facts: RequestFacts, record: RequestRecord | None = None) -> Ticket:
        """Waits until the request is admitted. Raises Refused; when cancelled, what was held is given back before it returns.

        What it is told is noted in `record`, if there is one.
        """
        if record is None:
            return await self._enter(facts, None)
        try:
            return await self._enter(facts, record)
        except Refused as refused:
            record.decision = refused.decision
            raise

    async def _enter(self, facts: RequestFacts, record: RequestRecord | None) -> Ticket:
        now = self._clock_ns()
        if self._draining:
            raise Refused(self._counted(DRAINING))
        decision = self._ask(facts)
        if record is not None:
            record.asked_ns, record.decided_ns = now, self._clock_ns()
            record.first_decision = record.decision = decision
        if decision.verdict is Verdict.ADMIT:
            return self._ticket(facts, decision, record)
        if decision.verdict is not Verdict.QUEUE:
            raise Refused(self._counted(decision))
        if len(self._queue) >= self._most and not self._make_place(facts.tenant):
            self._forget(facts.number, Ended.QUEUE_FULL)
            raise Refused(self._counted(self._too_many(decision)))
        return await self._wait(_Waiter(facts, decision, now, record))

    async def _wait(self, waiter: _Waiter) -> Ticket:
        number = waiter.facts.number
        self._queue[number] = waiter
        self._keep_pace()
        tenant = waiter.facts.tenant
        self._waiting_of[tenant] = self._waiting_of.get(tenant, 0) + 1
        self._counters.queued += 1
        if waiter.record is not None:
            waiter.record.queued_ns = waiter.since_ns
        waiter.position = len(self._queue)
        waiter.wait_ms = (
            waiter.decision.wait_ms if waiter.decision.wait_ms is not None else self._pace_ms(waiter.position)
        )
        waiter.timer = asyncio.get_running_loop().call_later(self._queued_ms / 1000, self._too_long, waiter)
        try:
            outcome = await waiter.future
        except asyncio.CancelledError:
            if self._take_out(number) is not None:
                self._keep_pace()
                self._forget(number, Ended.CLIENT_LEFT)
                self.ask_again()
            elif waiter.ticket is not None:  # admitted and cancelled in the same turn of the loop
                waiter.ticket.close()
            raise
        finally:
            waiter.timer.cancel()
        if isinstance(outcome, Decision):
            raise Refused(outcome)
        return outcome

    def ask_again(self) -> None:
        """Room may have come free: those that wait are asked, soon and all at once."""
        if self._queue and not self._asking:
            self._asking = True
            asyncio.get_running_loop().call_soon(self._ask_waiting)

    def drain(self) -> None:
        """Lets nobody in any more, and tells those that wait."""
        self._draining = True
        for waiter in list(self._queue.values()):
            self._turn_away(waiter, DRAINING, Ended.DRAINED)

    def _ask_waiting(self) -> None:
        self._asking = False
        for number, decision in self._reconsidered():
            waiter = self._queue.get(number)
            if waiter is None:
                continue
            if decision.verdict is Verdict.ADMIT:
                self._take_out(number)
                ticket = self._ticket(waiter.facts, decision, waiter.record)
                ticket.position, ticket.wait_ms = waiter.position, waiter.wait_ms
                ticket.waited_ms = (self._clock_ns() - waiter.since_ns) // NS_PER_MS
                waiter.ticket = ticket
                if waiter.future.done():  # its client left; it will not come for it
                    ticket.close()
                else:
                    waiter.future.set_result(ticket)
            elif decision.verdict is Verdict.QUEUE:
                waiter.decision = decision
            else:
                self._turn_away(waiter, decision, None)

    def _take_out(self, number: int) -> _Waiter | None:
        """It waits no longer."""
        waiter = self._queue.pop(number, None)
        if waiter is not None:
            tenant = waiter.facts.tenant
            self._waiting_of[tenant] -= 1
            if not self._waiting_of[tenant]:
                del self._waiting_of[tenant]
        return waiter

    def _make_place(self, tenant: int) -> bool:
        """A full queue has place for whoever has fewer in it than another: the last that came of whoever has most goes."""
        largest = max(self._waiting_of, key=self._waiting_of.__getitem__, default=tenant)
        if self._waiting_of.get(largest, 0) <= self._waiting_of.get(tenant, 0) + 1:
            return False
        waiter = next(one for one in reversed(self._queue.values()) if one.facts.tenant == largest)
        self._turn_away(waiter, self._too_many(waiter.decision), Ended.QUEUE_FULL)
        return True

    def _too_long(self, waiter: _Waiter) -> None:
        place = list(self._queue).index(waiter.facts.number) + 1 if waiter.facts.number in self._queue else 1
        decision = Decision(
            verdict=Verdict.REJECT,
            rule="queued-too-long",
            message=f"the request waited {self._queued_ms / 1000:g} s and there was still no room for it",
            retry_after_ms=max(1000, self._pace_ms(place) or self._left_ms(waiter)),
            numbers=waiter.decision.numbers,
        )
        self._turn_away(waiter, decision, Ended.QUEUED_TOO_LONG)

    def _turn_away(self, waiter: _Waiter, decision: Decision, how: Ended | None) -> None:
        """`how` is None where the policy itself changed its word, and holds nothing any more."""
        if self._take_out(waiter.facts.number) is None:
            return
        self._keep_pace()
        if how is not None:
            self._forget(waiter.facts.number, how)
        self._counted(decision)
        if not waiter.future.done():
            waiter.future.set_result(decision)

    def _ask(self, facts: RequestFacts) -> Decision:
        try:
            return self._admitter.decide(facts, self._clock_ns())
        except Exception:
            self._counters.policy_failures += 1
            LOG.exception("the admission policy failed on request %d", facts.number)
            return POLICY_FAILED

    def _reconsidered(self) -> list[tuple[int, Decision]]:
        try:
            return list(self._admitter.reconsider(self._clock_ns()))
        except Exception:
            self._counters.policy_failures += 1
            LOG.exception("the admission policy failed on those that wait")
            return []

    def progress(self, ticket: Ticket, output_tokens: int) -> None:
        """Tells the policy what an admitted request has streamed so far."""
        if ticket.is_open:
            try:
                self._admitter.progress(ticket.facts.number, output_tokens, self._clock_ns())
            except Exception:
                self._counters.policy_failures += 1
                LOG.exception(
                    "the admission policy failed on the progress of request %d", ticket.facts.number
                )

    def _ticket(self, facts: RequestFacts, decision: Decision, record: RequestRecord | None) -> Ticket:
        self._counters.admitted += 1
        self._admitted.add(facts.number)
        self._keep_pace()
        if record is not None:
            record.decision, record.admitted_ns = decision, self._clock_ns()
        return Ticket(self, facts, decision, record)

    def _release(self, number: int, ending: Ending) -> None:
        self._pace.released(1, self._clock_ns())
        self._admitted.discard(number)
        self._keep_pace()
        self._tell_released(number, ending)
        self.ask_again()

    def _forget(self, number: int, how: Ended) -> None:
        self._tell_released(number, Ending(how=how))

    def _tell_released(self, number: int, ending: Ending) -> None:
        self._counters.released += 1
        try:
            self._admitter.release(number, ending, self._clock_ns())
        except Exception:
            self._counters.policy_failures += 1
            LOG.exception("the admission policy failed to release request %d", number)

    def _too_many(self, decision: Decision) -> Decision:
        return Decision(
            verdict=Verdict.REJECT,
            rule="queue-full",
            message=f"{len(self._queue)} requests wait already",
            retry_after_ms=self._retry_ms(decision, len(self._queue) + 1),
            numbers={**decision.numbers, "queued": len(self._queue), "queue_limit": self._most},
        )

    def _retry_ms(self, decision: Decision, place: int) -> int:
        """The policy's word, else the pace of late; never less than a second."""
        told = decision.retry_after_ms if decision.retry_after_ms is not None else decision.wait_ms
        return max(1000, told if told is not None else self._pace_ms(place) or 0)

    def _left_ms(self, waiter: _Waiter) -> int:
        """Of what it was told when it came."""
        return max(0, (waiter.wait_ms or 0) - self._queued_ms)

    def _pace_ms(self, place: int) -> int | None:
        """When the `place`-th release from now is due, at the pace of the last ones; None before there were two."""
        return self._pace.wait_ms(place, self._clock_ns())

    def _keep_pace(self) -> None:
        self._pace.at(self._clock_ns(), is_busy=bool(self._admitted), is_waited=bool(self._queue))

    def _counted(self, decision: Decision) -> Decision:
        if decision.verdict is Verdict.REJECT:
            self._counters.rejected += 1
        elif decision.verdict is Verdict.NEVER_FITS:
            self._counters.never_fit += 1
        else:
            self._counters.unavailable += 1
        return decision


DRAINING = Decision(
    verdict=Verdict.UNAVAILABLE,
    rule="draining",
    message="the gateway is being stopped; another one may serve the request",
    retry_after_ms=1000,
)
POLICY_FAILED = Decision(
    verdict=Verdict.UNAVAILABLE,
    rule="policy-failed",
    message="the gateway could not decide about the request",
)
