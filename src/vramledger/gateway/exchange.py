"""One request from its arrival to its end: priced, admitted, forwarded, answered; and its reservation given back, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from vramledger.gateway.admitter import Ended, Ending, Kind
from vramledger.gateway.client_connection import ClientConnection
from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk, Refused, Ticket
from vramledger.gateway.endings import ending_of, note_errors
from vramledger.gateway.messages import IDEMPOTENT, RequestHead, request_bytes
from vramledger.gateway.record import Observers, RequestRecord
from vramledger.gateway.relay import Outcome, Relay
from vramledger.gateway.replies import Reply, error_reply, refusal, ticket_headers
from vramledger.gateway.request_facts import ANYBODY, BadBody, facts_of, kind_of, read_body
from vramledger.gateway.request_reading import IncomingRequest
from vramledger.gateway.settings import Timeouts, Upstream
from vramledger.gateway.stages import Asked, Doorkeeper, PromptCounter, Visitor
from vramledger.gateway.upstream_pool import UpstreamPool, UpstreamUnreachable


class Route(NamedTuple):
    """The way to one engine."""

    upstream: Upstream
    pool: UpstreamPool


class Exchanges:
    """Serves requests one by one; `open` are those that engines are working on. `unpriced` names the engine for what nobody decides about."""

    def __init__(
        self,
        *,
        routes: Sequence[Route],
        unpriced: Callable[[], int],
        desk: AdmissionDesk,
        timeouts: Timeouts,
        counters: Counters,
        clock_ns: Callable[[], int],
        doorkeeper: Doorkeeper | None,
        counter: PromptCounter | None,
        observers: Observers | None = None,
    ) -> None:
        self._doorkeeper = doorkeeper
        self._counter = counter
        self._routes = routes
        self._unpriced = unpriced
        self._desk = desk
        self._timeouts = timeouts
        self._counters = counters
        self._clock_ns = clock_ns
        self._observers = observers
        self.open: set[Relay] = set()
        self.engine = ""
        """Whose reading of a body goes; "" for the largest that any would read."""
        self.closing = False
        """Whether it is the gateway that ends what it serves."""

    def adopt(self, timeouts: Timeouts) -> None:
        """Other timeouts, for what is forwarded from now on."""
        self._timeouts = timeouts

    def sweep(self, now: float) -> None:
        """Ends what is silent for too long, and tells the policy how far the others are."""
        for relay in list(self.open):
            relay.check(now)
            events = relay.reading.output_events if relay.reading is not None else 0
            if relay.ticket is not None and events > relay.told_events:
                relay.told_events = events
                self._desk.progress(relay.ticket, events)
                if self._observers is not None and relay.ticket.record is not None:
                    self._observers.progressed(relay.ticket.record, events, self._clock_ns())
        self._desk.ask_again()

    def refuses(self, head: RequestHead) -> Reply | None:
        """The answer to whoever is turned away for the head alone."""
        if self._doorkeeper is None:
            return None
        visitor = self._doorkeeper.visitor(head, kind_of(head.method, head.target))
        return visitor if isinstance(visitor, Reply) else None

    async def serve(self, client: ClientConnection, request: IncomingRequest) -> None:
        """Answers one request. Cancelled when its client goes."""
        kind = kind_of(request.head.method, request.head.target)
        visitor = ANYBODY if self._doorkeeper is None else self._doorkeeper.visitor(request.head, kind)
        if isinstance(visitor, Reply):
            self._counters.turned_away += 1
            client.reply(request, visitor)
            return
        try:
            if kind is not None:
                await self._admitted(client, request, kind, visitor)
            elif self._rewrite(client, request, visitor, None, None):
                await self._forward(client, request, None)
        except asyncio.CancelledError:
            self._counters.clients_left += 1
            raise

    async def _admitted(
        self, client: ClientConnection, request: IncomingRequest, kind: Kind, visitor: Visitor
    ) -> None:
        try:
            asked = read_body(request.body)
            facts = facts_of(
                kind,
                asked,
                visitor,
                number=self._desk.next_number(),
                arrival_ns=self._clock_ns(),
                engine=self.engine,
            )
        except BadBody as bad:
            self._counters.bad_requests += 1
            client.reply(request, error_reply(400, "bad-body", str(bad)))
            return
        if not self._rewrite(client, request, visitor, kind, asked):
            return
        record = None
        if self._observers is not None:
            record = RequestRecord(facts=facts, tenant=visitor.name)
            self._observers.arrived(record, request.head)
        try:
            if self._counter is not None:
                facts = replace(facts, prompt=await self._counter.count(asked, facts))
                if record is not None:
                    record.facts = facts
            del asked  # what waits in the queue holds its body once
            try:
                ticket = await self._desk.enter(facts, record)
            except Refused as refused:
                client.reply(request, refusal(refused.decision, facts.prompt))
                return
            try:
                ticket.ending = await self._forward(client, request, ticket)
            finally:
                ticket.close()
                if record is not None:
                    record.ending = ticket.ending
                if self._counter is not None:
                    self._counter.learn(facts, ticket.ending)
        finally:
            if record is not None and self._observers is not None:
                record.status, record.ended_ns = request.status, self._clock_ns()
                self._observers.ended(record)

    def _rewrite(
        self,
        client: ClientConnection,
        request: IncomingRequest,
        visitor: Visitor,
        kind: Kind | None,
        asked: Asked | None,
    ) -> bool:
        """Whether it may go on; if not, its client has its answer."""
        if self._doorkeeper is None:
            return True
        sent = self._doorkeeper.outgoing(visitor, request.head, kind, request.body, asked)
        if isinstance(sent, Reply):
            self._counters.turned_away += 1
            client.reply(request, sent)
            return False
        client.rewrite(request, *sent)
        return True

    async def _forward(
        self, client: ClientConnection, request: IncomingRequest, ticket: Ticket | None
    ) -> Ending:
        """Sends the request to the engine and its answer to the client. What the engine does wrong is answered here too."""
        # Generating has no effect besides its answer, so a request that a closing connection may have swallowed can be sent again.
        may_repeat = ticket is not None or request.head.method in IDEMPOTENT
        place = ticket.decision.instance if ticket is not None else self._unpriced()
        route = self._routes[place]
        fresh = False
        while True:
            try:
                upstream = await route.pool.take(fresh=fresh)
            except UpstreamUnreachable as error:
                self._counters.upstream_failures += 1
                client.reply(request, unreachable(str(error)))
                return Ending(how=Ended.UPSTREAM_FAILED)
            reused = upstream.served > 0
            relay = Relay(
                client,
                request,
                ticket=ticket,
                headers=ticket_headers(ticket),
                read=ticket is not None,
                silence_s=self._timeouts.silence_ms / 1000,
                first_byte_s=self._timeouts.first_byte_ms / 1000,
                now=asyncio.get_running_loop().time(),
                clock_ns=self._clock_ns,
            )
            self.open.add(relay)
            try:
                outcome = await relay.run(
                    upstream,
                    request_bytes(
                        request.head,
                        route.upstream.authority,
                        request.body,
                        route.upstream.authorization,
                    ),
                )
            except asyncio.CancelledError:
                self._note(relay)
                if ticket is not None:
                    left = Ended.DRAINED if self.closing else Ended.CLIENT_LEFT
                    ticket.ending = _ending(
                        relay, Ended.COMPLETED if relay.outcome is Outcome.COMPLETE else left
                    )
                raise
            finally:
                self.open.discard(relay)
            if outcome is Outcome.SILENT and reused and may_repeat and not fresh:
                self._counters.upstream_retries += 1
                if ticket is not None and ticket.record is not None:
                    ticket.record.retries += 1
                fresh = True
                continue
            return self._ended(client, request, relay, outcome)

    def _ended(
        self, client: ClientConnection, request: IncomingRequest, relay: Relay, outcome: Outcome
    ) -> Ending:
        self._note(relay)
        if outcome is Outcome.COMPLETE:
            return _ending(relay)
        if relay.head is not None:
            self._counters.truncated_answers += 1
        if outcome is Outcome.TIMED_OUT:
            self._counters.upstream_timeouts += 1
            if relay.head is None:
                client.reply(
                    request,
                    error_reply(504, "upstream-timeout", f"the engine did not answer: {relay.reason}"),
                )
            return _ending(relay, Ended.TIMED_OUT)
        self._counters.upstream_failures += 1
        if relay.head is None:
            client.reply(request, error_reply(502, "upstream-failed", f"the engine failed: {relay.reason}"))
        return _ending(relay, Ended.UPSTREAM_FAILED)

    def _note(self, relay: Relay) -> None:
        """Counts the errors that the engine told, once for each request."""
        record = relay.ticket.record if relay.ticket is not None else None
        note_errors(self._counters, relay.reading, relay.status, record)


def _ending(relay: Relay, how: Ended = Ended.COMPLETED) -> Ending:
    return ending_of(relay.reading, relay.status, how, first_output_ns=relay.first_output_ns)


def unreachable(reason: str) -> Reply:
    return error_reply(503, "upstream-unreachable", f"the engine cannot be reached: {reason}")
