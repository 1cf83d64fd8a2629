"""Replicas in one time: events in the order (time, kind, number), so that a run is the same twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import IntEnum
from heapq import heappop, heappush

from vramledger.admission.protocol import AdmissionPolicy
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.simulation.outcome import RequestOutcome, Run, Status
from vramledger.simulation.reference.fits import can_ever_fit
from vramledger.simulation.reference.front import Front
from vramledger.simulation.reference.kept_contexts import KeptContexts, held
from vramledger.simulation.reference.link import Link
from vramledger.simulation.reference.replica import Replica
from vramledger.simulation.reference.router import Routing
from vramledger.simulation.reference.served import Served
from vramledger.simulation.schedulers.choice import scheduler_for
from vramledger.simulation.schedulers.sequence import Sequence, block_keys, lengths_of
from vramledger.simulation.settings import SimulationSettings, ToolWait
from vramledger.simulation.step_model import PS_PER_NS
from vramledger.workload.request import Request


class Kind(IntEnum):
    """Kinds of events at one instant, in their order. Replicas begin their steps after all of them."""

    STEP_END = 0
    LEFT = 1
    HAND_OVER = 2
    SEND = 3
    CANCEL = 4
    FIRST_TOKEN_DUE = 5
    DUE = 6


class Driver:
    """Runs requests over the replicas of one instance.

    At every instant: steps end, by replica; requests are sent, by number; cancellations and deadlines are told, by number;
    then every replica that is not in a step begins one, by replica.
    """

    def __init__(
        self,
        settings: SimulationSettings,
        *,
        block_tokens: int | None,
        samples: int = 512,
        policies: Callable[[int], AdmissionPolicy] | None = None,
        ended: Callable[[RequestOutcome], None],
    ) -> None:
        self._settings = settings
        self._requests: list[Request] = []
        self._block_tokens = block_tokens
        self._report = ended
        self.replicas = tuple(
            Replica(
                number,
                scheduler_for(settings.scheduler, BlockPool(settings.layout)),
                settings.step,
                ended=self._sequence_ended,
                front=self._front(policies(number), number) if policies is not None else None,
                samples=samples,
            )
            for number in range(settings.fleet.replicas)
        )
        fleet = settings.fleet
        split = fleet.prefill_replicas
        bound = fleet.prefix_load_percent
        self._first = Routing(fleet.router, self.replicas[:split] if split else self.replicas, bound)
        self._second = Routing(fleet.router, self.replicas[split:], bound)
        self._links = [
            Link(fleet.kv_bytes_per_token, fleet.link_bytes_per_s) for _ in range(fleet.prefill_replicas)
        ]
        self._on_the_link: dict[int, Sequence] = {}
        self._lent: dict[int, Replica] = {}
        self._kept = KeptContexts(settings)
        self._home: dict[int, Replica] = {}
        self._withdrawn: dict[int, Status] = {}
        self._events: list[tuple[int, int, int]] = []
        # Blocks that are kept for later turns or lent to a link change hands while nobody is served.
        self._may_rest = settings.tool_wait is ToolWait.RELEASE and not split
        self._busy = [False] * len(self.replicas)
        self._waiting_for: dict[int, list[int]] = defaultdict(list)
        self._served: dict[int, Served] = {}
        self._next_identity = 0
        self._next_private = 0
        self._end_ps = 0

    def _front(self, policy: AdmissionPolicy, replica: int) -> Front:
        return Front(
            policy,
            self._requests,
            max_model_len=self._settings.scheduler.max_model_len,
            only_prefills=replica < self._settings.fleet.prefill_replicas,
        )

    def run(self, requests: Iterable[Request]) -> Run:
        """Runs all of them to their end, or to the time limit."""
        self._requests.extend(requests)
        for number, request in enumerate(self._requests):
            if request.parent is not None and self._settings.follow_parents:
                self._waiting_for[request.parent].append(number)
            else:
                self._at(request.arrival_ns * PS_PER_NS, Kind.SEND, number)
        limit_ps = self._settings.time_limit_ps
        while True:
            self._forget_ended()
            if not self._events:
                if not self._give_up_where_stuck():
                    break
            elif limit_ps is not None and self._events[0][0] > limit_ps:
                self._end_ps = limit_ps
                break
            else:
                self._instant(self._events[0][0])
        self._report_unfinished()
        samples = [sample for replica in self.replicas for sample in replica.samples(self._end_ps)]
        return Run(
            counters=tuple(
                self._kept.counted(replica.counters(), replica.number) for replica in self.replicas
            ),
            samples=tuple(sorted(samples, key=lambda sample: (sample.at_ps, sample.replica))),
            end_ps=self._end_ps,
        )

    def _at(self, time_ps: int, kind: Kind, number: int) -> None:
        heappush(self._events, (time_ps, kind, number))

    def _forget_ended(self) -> None:
        """Deadlines that were met, and those of requests that have ended, are no events."""
        while self._events and self._is_past(*self._events[0]):
            heappop(self._events)

    def _is_past(self, _: int, kind: int, number: int) -> bool:
        if kind == Kind.HAND_OVER:
            return number not in self._on_the_link and number not in self._lent
        if kind < Kind.CANCEL:
            return False
        served = self._served.get(number)
        return served is None or (
            kind == Kind.FIRST_TOKEN_DUE and all(s.first_token_ps >= 0 for s in served.sequences)
        )

    def _instant(self, now_ps: int) -> None:
        self._end_ps = now_ps
        while self._events and self._events[0][0] == now_ps:
            _, kind, number = heappop(self._events)
            if kind == Kind.STEP_END:
                self._busy[number] = False
                self.replicas[number].finish(now_ps)
            elif kind == Kind.LEFT:
                self._kept.left(number, now_ps)
            elif kind == Kind.SEND:
                self._send(number, now_ps)
            elif kind == Kind.HAND_OVER:
                self._hand_over(number)
            elif number in self._served:
                self._withdraw(self._served[number], Kind(kind))
        for replica in self.replicas:
            if not self._busy[replica.number] and not (self._may_rest and replica.is_at_rest):
                duration_ps = self._begin(replica, now_ps)
                if duration_ps is not None:
                    self._busy[replica.number] = True
                    self._at(now_ps + duration_ps, Kind.STEP_END, replica.number)
        for left_ps, identity in self._kept.settle(now_ps):
            self._at(left_ps, Kind.LEFT, identity)

    def _begin(self, replica: Replica, now_ps: int) -> int | None:
        """A step, for which contexts kept for later turns give way if nothing runs without."""
        duration_ps = replica.begin(now_ps)
        while (
            duration_ps is None
            and replica.waiting_count
            and not replica.running_count
            and self._kept.give_way(replica, now_ps)
        ):
            duration_ps = replica.begin(now_ps)
        return duration_ps

    def _send(self, number: int, now_ps: int) -> None:
        request = self._requests[number]
        served = Served(number, request, now_ps)
        self._served[number] = served
        if not can_ever_fit(self._settings, request):
            self._end(served, Status.NEVER_FITS, now_ps)
            return
        for branch in range(request.branches):
            served.sequences.append(self._sequence(request, number, branch, now_ps))
        served.open_branches = request.branches
        kept = self._kept.resume(number, served.sequences[0], now_ps)
        served.replica = kept.replica or self._first.choose(served.sequences[0])
        for sequence in served.sequences:
            self._home[sequence.identity] = served.replica
            if kept.ready_ps > now_ps:
                self._on_the_link[sequence.identity] = sequence
                self._at(kept.ready_ps, Kind.HAND_OVER, sequence.identity)
            else:
                served.replica.send(sequence)
        for after_ns, kind in (
            (request.cancel_ns, Kind.CANCEL),
            (request.first_token_deadline_ns, Kind.FIRST_TOKEN_DUE),
            (request.deadline_ns, Kind.DUE),
        ):
            if after_ns is not None:
                self._at(now_ps + after_ns * PS_PER_NS, kind, number)

    def _sequence(self, request: Request, number: int, branch: int, now_ps: int) -> Sequence:
        scheduler = self._settings.scheduler
        output_tokens, max_output_tokens = lengths_of(request, scheduler.max_model_len)
        key_tokens = self._settings.layout.key_tokens
        tokens = request.prompt_tokens + output_tokens - 1
        keys = block_keys(
            request,
            block_tokens=self._block_tokens,
            key_tokens=key_tokens,
            tokens=tokens,
            branch=branch,
            private=self._next_private,
        )
        self._next_private += tokens // key_tokens
        self._next_identity += 1
        is_split = bool(self._settings.fleet.prefill_replicas)
        return Sequence(
            identity=self._next_identity - 1,
            number=number,
            branch=branch,
            prompt_tokens=request.prompt_tokens,
            output_tokens=1 if is_split else output_tokens,
            max_output_tokens=1 if is_split else max_output_tokens,
            keys=keys,
            boundary=request.boundary,
            priority=request.priority,
            sent_ps=now_ps,
        )

    def _withdraw(self, served: Served, kind: Kind) -> None:
        """A cancellation or a deadline comes; it takes effect where a replica begins its next step."""
        status = Status.CANCELLED if kind == Kind.CANCEL else Status.EXPIRED
        for sequence in served.sequences:
            if kind == Kind.FIRST_TOKEN_DUE and sequence.first_token_ps >= 0:
                continue
            self._withdrawn[sequence.identity] = status
            if self._on_the_link.pop(sequence.identity, None) is not None:
                self._sequence_ended(self._home[sequence.identity], sequence, status, self._end_ps)
            elif not sequence.is_done:
                self._home[sequence.identity].cancel(sequence, status)

    def _sequence_ended(self, replica: Replica, sequence: Sequence, status: Status, now_ps: int) -> None:
        served = self._served[sequence.number]
        if status is Status.FINISHED and replica.number < self._settings.fleet.prefill_replicas:
            output_tokens, max_output_tokens = lengths_of(
                served.request, self._settings.scheduler.max_model_len
            )
            if output_tokens > 1 and sequence.identity not in self._withdrawn:
                self._put_on_the_link(sequence, output_tokens, max_output_tokens, replica, now_ps)
                return
            if output_tokens > 1:
                status = self._withdrawn[sequence.identity]
        self._withdrawn.pop(sequence.identity, None)
        del self._home[sequence.identity]
        served.open_branches -= 1
        if status is not Status.FINISHED:
            served.status = status
        if not served.open_branches:
            self._end(served, served.status if served.status is not Status.UNFINISHED else status, now_ps)

    def _put_on_the_link(
        self, sequence: Sequence, output_tokens: int, max_output_tokens: int, replica: Replica, now_ps: int
    ) -> None:
        sequence.continue_with(output_tokens, max_output_tokens)
        self._on_the_link[sequence.identity] = sequence
        pool, name = replica.scheduler.pool, ("lent", sequence.identity)
        if held(pool, name, sequence, sequence.prompt_tokens):
            self._lent[sequence.identity] = replica
        arrival_ps = self._links[replica.number].arrival_ps(sequence.prompt_tokens, now_ps)
        self._at(arrival_ps, Kind.HAND_OVER, sequence.identity)

    def _hand_over(self, identity: int) -> None:
        """A sequence's KV has come over a link; what the sender held of it is free."""
        lender = self._lent.pop(identity, None)
        if lender is not None:
            lender.scheduler.pool.free(("lent", identity))
        sequence = self._on_the_link.pop(identity, None)
        if sequence is None:
            return
        served = self._served[sequence.number]
        if served.replica is None or self._settings.fleet.prefill_replicas:
            served.replica = self._second.choose(sequence)
        self._home[sequence.identity] = served.replica
        served.replica.send(sequence)

    def _end(self, served: Served, status: Status, now_ps: int) -> None:
        del self._served[served.number]
        served.status = status
        self._report(served.outcome(now_ps))
        children = self._waiting_for.pop(served.number, ())
        if status is Status.FINISHED and served.replica is not None:
            first = served.sequences[0]
            left_ps = self._kept.keep(served.replica, first, children, now_ps)
            if left_ps is not None:
                self._at(left_ps, Kind.LEFT, first.identity)
        for child in children:
            self._at(now_ps + self._requests[child].pause_ns * PS_PER_NS, Kind.SEND, child)

    def _give_up_where_stuck(self) -> bool:
        """With nothing more to come, whatever still waits will wait for ever; whether there was any."""
        stuck = [replica for replica in self.replicas if any(True for _ in replica.unfinished())]
        for replica in stuck:
            replica.give_up(self._end_ps)
        return bool(stuck)

    def _report_unfinished(self) -> None:
        for number in sorted(self._served):
            self._report(self._served[number].outcome(-1))
        self._served.clear()
        never_sent = {number for _, kind, number in self._events if kind == Kind.SEND}
        never_sent.update(child for children in self._waiting_for.values() for child in children)
        for number in sorted(never_sent):
            request = self._requests[number]
            sent_ps = (
                -1
                if request.parent is not None and self._settings.follow_parents
                else request.arrival_ns * PS_PER_NS
            )
            self._report(Served(number, request, sent_ps).outcome(-1))
