"""The answer to one admitted request as it passes Envoy: what it says of itself, and the reservation that goes back with its end."""

from __future__ import annotations

from vramledger.gateway.admitter import Ended
from vramledger.gateway.answer_reading import StreamReading, WholeReading
from vramledger.gateway.desk import Ticket
from vramledger.gateway.endings import ending_of, note_errors
from vramledger.gateway.envoy.house import House
from vramledger.gateway.envoy.messages import Part, Said, response_head

FROM_ENGINE = "via_upstream"
"""`response.code_details` of an answer that is not Envoy's own."""


class WatchedAnswer:
    """Is told each part in turn. `close` may be called at any time, and the first time gives the reservation back."""

    def __init__(self, house: House, ticket: Ticket, picked: str | None) -> None:
        self._house = house
        self._picked = picked
        self._reading: StreamReading | WholeReading | None = None
        self._complete = False
        self._proxys_own = ""
        """Envoy's words for an answer that is its own and not the engine's."""
        self._is_stream = False
        self._pieces = 0
        self._first_output_ns: int | None = None
        self.ticket = ticket
        self.status = 0
        self.told_events = 0
        """Events of the stream that the policy was told of."""
        if ticket.record is not None:
            ticket.record.sent_ns = house.clock_ns()

    @property
    def may_go_unwatched(self) -> bool:
        """It is a stream of the engine's, and nobody wants to see its pieces."""
        return self._is_stream and not self._house.watch_streams

    @property
    def output_events(self) -> int:
        return self._reading.output_events if self._reading is not None else 0

    def see(self, said: Said) -> None:
        if said.part is Part.RESPONSE_HEADERS:
            self._began(said)
        elif said.part is Part.RESPONSE_BODY:
            self._feed(said.body)
        if said.ends or said.part is Part.RESPONSE_TRAILERS:
            self._complete = True
            self.close()

    def close(self) -> None:
        ticket = self.ticket
        if not ticket.is_open:
            return
        if ticket.record is not None:
            ticket.record.finished_ns = self._house.clock_ns()
        if isinstance(self._reading, WholeReading):
            self._reading.end()
        ticket.ending = ending_of(
            self._reading, self.status, self._how(), first_output_ns=self._first_output_ns
        )
        self._count(ticket)
        ticket.close()
        if ticket.record is not None:
            ticket.record.ending = ticket.ending
        if self._house.counter is not None:
            self._house.counter.learn(ticket.facts, ticket.ending)

    def _began(self, said: Said) -> None:
        head = response_head(said.headers)
        self.status = head.status
        if self.ticket.record is not None:
            self.ticket.record.first_byte_ns = self._house.clock_ns()
        if said.details and said.details != FROM_ENGINE:
            self._proxys_own = said.details
            return
        if self._picked is not None and said.served_by and said.served_by != self._picked:
            self._house.counters.served_elsewhere += 1
        self._is_stream = head.is_event_stream
        if not head.header(b"content-encoding"):
            self._reading = StreamReading() if head.is_event_stream else WholeReading()

    def _feed(self, data: bytes) -> None:
        self._pieces += 1
        record = self.ticket.record
        if record is not None:
            record.answer_bytes += len(data)
        if self._reading is None:
            return
        self._reading.feed(data)
        if self._first_output_ns is None and self._reading.output_events:
            self._first_output_ns = self._house.clock_ns()
            if record is not None:
                record.first_token_ns = self._first_output_ns

    def _how(self) -> Ended:
        """Who broke off an answer Envoy does not tell. It is taken for a client that left, so that its length is not learned from."""
        if self._proxys_own:
            return Ended.TIMED_OUT if "timeout" in self._proxys_own else Ended.UPSTREAM_FAILED
        if self.may_go_unwatched and not self._pieces:
            return Ended.COMPLETED  # or left, which nobody saw; its length stays unknown either way
        if self._complete or (self._reading is not None and self._reading.finished):
            return Ended.COMPLETED
        return Ended.DRAINED if self._house.closing else Ended.CLIENT_LEFT

    def _count(self, ticket: Ticket) -> None:
        counters = self._house.counters
        note_errors(counters, self._reading, self.status, ticket.record)
        if ticket.ending.how is Ended.CLIENT_LEFT:
            counters.clients_left += 1
            counters.truncated_answers += self.status > 0
        elif ticket.ending.how is Ended.TIMED_OUT:
            counters.upstream_timeouts += 1
        elif ticket.ending.how is Ended.UPSTREAM_FAILED:
            counters.upstream_failures += 1
