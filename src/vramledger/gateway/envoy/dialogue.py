"""One HTTP request as Envoy tells it: admitted, waited with or refused, then watched until its stream ends, which gives everything back.

One stream is one request of a client, however often Envoy's router tries it; so all attempts, which follow each other, have
one reservation. Its end is the end of the stream, whoever ended it: client, engine, Envoy or its host.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from vramledger.gateway.admitter import Decision, Kind, PromptTokens, RequestFacts
from vramledger.gateway.desk import Refused, Ticket
from vramledger.gateway.envoy import wire
from vramledger.gateway.envoy.answer import FROM_ENGINE, WatchedAnswer
from vramledger.gateway.envoy.house import Channel, House
from vramledger.gateway.envoy.messages import (
    NO_CHANGE,
    BodyMode,
    HeaderChange,
    Modes,
    Part,
    Said,
    Unsuited,
    change_between,
    request_head,
)
from vramledger.gateway.envoy.picking import pick, with_pick
from vramledger.gateway.envoy.request_body import BodyReader, pieces
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.record import RequestRecord
from vramledger.gateway.replies import Reply, error_reply, refusal, ticket_headers
from vramledger.gateway.request_facts import ANYBODY, BadBody, facts_of, kind_of, read_body
from vramledger.gateway.stages import Asked, Visitor

MOMENT_S = 0.05
"""A decision that takes longer waits for its turn, or for a count of tokens: Envoy is asked for more time."""
MARGIN_MS = 5_000
UNTOLD = Modes(request_body=BodyMode.BUFFERED, response_body=BodyMode.STREAMED)
"""What a filter that does not tell (Envoy before 1.34) is taken to do."""
PRICED_BY = (BodyMode.BUFFERED, BodyMode.FULL_DUPLEX_STREAMED)
WATCHED_BY = (BodyMode.STREAMED, BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED)


class Dialogue:
    """`run` goes through one stream; `close` gives back what the request held, at any time and once."""

    def __init__(self, house: House, channel: Channel) -> None:
        self._house = house
        self._channel = channel
        self._modes = UNTOLD
        self._body = BodyReader(house, duplex=False)
        self._reading: asyncio.Task[Said | None] | None = None
        self._entering: asyncio.Task[None] | None = None
        self._record: RequestRecord | None = None
        self._ticket: Ticket | None = None
        self._status = 0
        self._prompt: PromptTokens | None = None
        self.answer: WatchedAnswer | None = None
        self.is_let_in = False
        """Whether Envoy was told to go on with it: from then it may go on without us."""

    async def run(self) -> None:
        """Returns when the stream is over, or nothing more is to be said in it. Raises Unsuited."""
        said = await self._read()
        if said is None:
            return
        if said.part is Part.RESPONSE_HEADERS and said.details not in ("", FROM_ENGINE):
            return  # a request that Envoy refused before anybody saw it
        if said.part is not Part.REQUEST_HEADERS:
            raise Unsuited("a stream begins with the request's headers: set request_header_mode to SEND")
        if said.observing:
            raise Unsuited("in observability_mode nothing can be admitted or refused: turn it off")
        self._modes = said.modes or UNTOLD
        self._body = BodyReader(self._house, duplex=self._is_duplex)
        self._house.counters.requests += 1
        head = request_head(said.headers)
        kind = kind_of(head.method, head.target)
        doorkeeper = self._house.doorkeeper
        visitor = ANYBODY if doorkeeper is None else doorkeeper.visitor(head, kind)
        if isinstance(visitor, Reply):
            self._house.counters.turned_away += 1
            await self._refuse(visitor)
        elif kind is None:
            await self._pass(head, visitor)
        else:
            await self._priced(said, head, kind, visitor)

    async def close(self) -> None:
        """The stream is over: a place in the queue or a reservation is given back, once."""
        entering, self._entering = self._entering, None
        if self._reading is not None:
            self._reading.cancel()
        try:
            if entering is not None:
                self._house.counters.clients_left += 1
                entering.cancel()
                await asyncio.wait((entering,))
        finally:
            self._give_back()

    def _give_back(self) -> None:
        self._body.release()
        if self.answer is not None:
            self.answer.close()
        elif self._ticket is not None:
            self._ticket.close()
        record, self._record = self._record, None
        if record is not None and self._house.observers is not None:
            record.status = self.answer.status if self.answer is not None else self._status
            record.ended_ns = self._house.clock_ns()
            self._house.observers.ended(record)

    @property
    def _is_duplex(self) -> bool:
        return self._modes.request_body == BodyMode.FULL_DUPLEX_STREAMED

    async def _pass(self, head: RequestHead, visitor: Visitor) -> None:
        """What has no price goes through unseen, as far as the mode lets it."""
        sent = self._outgoing(head, None, b"", None, visitor)
        if isinstance(sent, Reply):
            await self._refuse(sent)
            return
        change = with_pick(change_between(head, sent[0]), None, head)
        self.is_let_in = True
        await self._channel.write(
            wire.go_on(Part.REQUEST_HEADERS, change, reroute=sent[0].target != head.target)
        )
        duplex = BodyMode.FULL_DUPLEX_STREAMED
        if duplex not in (self._modes.request_body, self._modes.response_body):
            return  # a stream that the processor ends well is asked no more
        while (said := await self._read()) is not None:
            await self._channel.write(self._echo(said))

    async def _priced(self, said: Said, head: RequestHead, kind: Kind, visitor: Visitor) -> None:
        if self._modes.request_body not in PRICED_BY:
            raise Unsuited("request_body_mode has to be BUFFERED or FULL_DUPLEX_STREAMED")
        if self._modes.response_body not in WATCHED_BY:
            raise Unsuited("response_body_mode has to be STREAMED or FULL_DUPLEX_STREAMED")
        if not said.ends:
            whole = await self._read_body(head)
            if isinstance(whole, Reply):
                self._house.counters.bad_requests += whole.status < 500
                await self._refuse(whole)
                return
            if not whole:
                self._house.counters.clients_left += 1
                return
        try:
            asked = read_body(self._body.data)
            facts = facts_of(
                kind,
                asked,
                visitor,
                number=self._house.desk.next_number(),
                arrival_ns=self._house.clock_ns(),
                engine=self._house.engine,
            )
        except BadBody as bad:
            self._house.counters.bad_requests += 1
            await self._refuse(error_reply(400, "bad-body", str(bad)))
            return
        sent = self._outgoing(head, kind, self._body.data, asked, visitor)
        if isinstance(sent, Reply):
            await self._refuse(sent)
            return
        sent_head, sent_body = sent
        if self._house.observers is not None:
            self._record = RequestRecord(facts=facts, tenant=visitor.name)
            self._house.observers.arrived(self._record, sent_head)
        change = change_between(head, sent_head)
        reroute = sent_head.target != head.target
        other = None if sent_body == self._body.data else sent_body
        if other is None and not self._is_duplex:
            self._body.release()  # Envoy has it
        del sent, sent_head, sent_body
        refused = await self._enter(facts, asked if self._house.counter is not None else {})
        if refused is not None:
            await self._refuse(refusal(refused, self._prompt))
        elif self._ticket is not None:
            picked = pick(self._house.endpoints, self._ticket.decision, said.subset)
            if isinstance(picked, Decision):
                self._house.counters.unavailable += 1
                await self._refuse(refusal(picked, self._prompt))
                return
            change = with_pick(change, picked, head)
            self.answer = WatchedAnswer(self._house, self._ticket, picked)
            self.is_let_in = True
            await self._let_in(said, change, other, picked, reroute=reroute or picked is not None)
            self._body.release()
            other = None
            await self._watch(self.answer)

    async def _read_body(self, head: RequestHead) -> Reply | bool:
        if not self._is_duplex:
            await self._channel.write(wire.go_on(Part.REQUEST_HEADERS))
        return await self._body.read(head, self._read)

    def _outgoing(
        self, head: RequestHead, kind: Kind | None, body: bytes, asked: Asked | None, visitor: Visitor
    ) -> tuple[RequestHead, bytes] | Reply:
        """What the engine is sent, as a head of its own that may be written into."""
        before = replace(head, headers=list(head.headers))
        if self._house.doorkeeper is None:
            return before, body
        sent = self._house.doorkeeper.outgoing(visitor, before, kind, body, asked)
        if isinstance(sent, Reply):
            self._house.counters.turned_away += 1
        return sent

    async def _enter(self, facts: RequestFacts, asked: Asked) -> Decision | None:
        """Waits for the policy's word, and listens meanwhile whether the stream goes on; None where it was let in or its client left."""
        entering = asyncio.create_task(self._ask(facts, asked))
        reading = asyncio.create_task(self._channel.read())
        self._entering, self._reading = entering, reading
        both = (entering, reading)
        done, _ = await asyncio.wait(both, timeout=MOMENT_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            if not self._is_duplex:  # there Envoy sets no timer
                await self._channel.write(wire.more_time(self._house.timeouts.queued_ms + MARGIN_MS))
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if entering not in done:
            await self.close()
            return None
        self._entering = None
        try:
            entering.result()
        except Refused as refused:
            return refused.decision
        return None

    async def _ask(self, facts: RequestFacts, asked: Asked) -> None:
        counter = self._house.counter
        if counter is not None:
            facts = replace(facts, prompt=await counter.count(asked, facts))
            if self._record is not None:
                self._record.facts = facts
        self._prompt = facts.prompt
        del asked
        self._ticket = await self._house.desk.enter(facts, self._record)

    async def _let_in(
        self, said: Said, change: HeaderChange, other: bytes | None, picked: str | None, *, reroute: bool
    ) -> None:
        """`other` is what is sent in the place of the body that came."""
        write = self._channel.write
        if not self._is_duplex:
            part = Part.REQUEST_HEADERS if said.ends else Part.REQUEST_BODY
            if other is not None:
                length = (b"content-length", b"%d" % len(other))
                change = HeaderChange(put=[*change.put, length], remove=change.remove)
            await write(wire.go_on(part, change, body=other, reroute=reroute, picked=picked))
            return
        await write(wire.go_on(Part.REQUEST_HEADERS, change, reroute=reroute, picked=picked))
        if said.ends:
            return
        for piece in pieces(self._body.data if other is None else other, ends=not self._body.has_trailers):
            await write(piece)
        if self._body.has_trailers:
            await write(wire.trailers_pass(Part.REQUEST_TRAILERS))

    async def _watch(self, answer: WatchedAnswer) -> None:
        """Sees the answer pass, until nothing more comes."""
        while (said := await self._read()) is not None:
            # Envoy resets the stream once it has the word on the last part: what is to be noted is noted before.
            answer.see(said)
            if said.part is not Part.RESPONSE_HEADERS:
                await self._channel.write(self._echo(said))
                continue
            told = self._echo(said, HeaderChange(put=ticket_headers(answer.ticket)))
            if answer.may_go_unwatched and self._modes.response_body == BodyMode.STREAMED:
                told = wire.unwatched(told)
            await self._channel.write(told)

    def _echo(self, said: Said, change: HeaderChange = NO_CHANGE) -> bytes:
        """What lets a part pass."""
        if said.part is Part.UNKNOWN:
            raise Unsuited("a message that is none of this protocol")
        if said.part in (Part.REQUEST_TRAILERS, Part.RESPONSE_TRAILERS):
            return wire.trailers_pass(said.part)
        modes = {
            Part.REQUEST_BODY: self._modes.request_body,
            Part.RESPONSE_BODY: self._modes.response_body,
        }
        if modes.get(said.part) == BodyMode.FULL_DUPLEX_STREAMED:
            return wire.give_back(said.part, said.body, ends=said.ends)
        return wire.SEEN if said.part is Part.RESPONSE_BODY else wire.go_on(said.part, change)

    async def _read(self) -> Said | None:
        if self._reading is not None:
            task, self._reading = self._reading, None
            return await task
        return await self._channel.read()

    async def _refuse(self, reply: Reply) -> None:
        self._status = reply.status
        await self._channel.write(wire.refuse(reply, "vramledger"))
