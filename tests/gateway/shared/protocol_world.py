"""Gateways, a store and a network between them in which anything may be late, lost, stopped or killed, and one time that rules them."""

from __future__ import annotations

import dataclasses

from gateway.shared.ledgers import AnyLedger
from vramledger.gateway.shared.grant import Grant
from vramledger.gateway.shared.settings import SharingSettings
from vramledger.gateway.shared.terms import Answer, Ask

BLOCKS, PLACES = 100, 7
SETTINGS = SharingSettings(lease_ms=1000, heartbeat_ms=100, hungry_ms=10, timeout_ms=100, chunks=4)
COVERED_MS = SETTINGS.lease_ms * 3 // 4
EPOCH_MS = 100_000_000
"""The time at which a test begins."""


@dataclasses.dataclass(eq=False)
class Request:
    blocks: int
    ends_ms: int
    is_done: bool = False
    """In the engine; its gateway may not know."""
    is_orphan: bool = False
    """It ran when what was granted for it was no longer counted."""


@dataclasses.dataclass(eq=False)
class Message:
    sender: Member
    ask: Ask
    began_ns: int
    began_ms: int
    answer: Answer | None = None


class Member:
    """A gateway: its grant, what it let in, and the one call that it waits for."""

    def __init__(self, world: World, name: str, rate_percent: int) -> None:
        self.name = name
        self.world = world
        self.rate_percent = rate_percent
        self.is_stopped = False
        self.is_cut = False
        self.size_blocks, self.lasts_ms, self.at_once = 0, 0, 0
        self.requests: list[Request] = []
        self.waiting: list[int] = []
        self.current: Message | None = None
        self.answered_ms: int | None = None
        self.grant = Grant(SETTINGS, clock_ns=self.clock_ns)
        self.grant.offer(BLOCKS, PLACES)

    def clock_ns(self) -> int:
        """Its own clock, which may go a little faster or slower than others'."""
        return 7 * 10**12 + self.world.now_ms * (100 + self.rate_percent) * 10_000

    @property
    def held(self) -> tuple[int, int]:
        """As it knows it."""
        return sum(request.blocks for request in self.requests), len(self.requests)

    def tell(self) -> None:
        blocks, places = self.held
        first = self.waiting[0] if self.waiting else 0
        self.grant.want(
            blocks + sum(self.waiting),
            places + len(self.waiting),
            held_blocks=blocks,
            held_places=places,
            next_blocks=first,
            next_places=min(1, len(self.waiting)),
        )

    def load(self, size_blocks: int, lasts_ms: int, at_once: int) -> None:
        """From now on so many requests of this size wait for it at any time, and each runs so long."""
        self.size_blocks, self.lasts_ms, self.at_once = size_blocks, lasts_ms, at_once

    def serve(self) -> None:
        """Lets in who waits, in order, as far as there is room."""
        self.requests = [request for request in self.requests if not request.is_done]
        self.waiting += [self.size_blocks] * (self.at_once - len(self.waiting))
        self.tell()
        while self.waiting:
            blocks, places = self.held
            if blocks + self.waiting[0] > self.grant.blocks or places + 1 > self.grant.places:
                return
            self.requests.append(Request(self.waiting.pop(0), self.world.now_ms + self.lasts_ms))
            self.tell()


class World:
    """The instance of all tests has `BLOCKS` and `PLACES`."""

    def __init__(self, ledger: AnyLedger) -> None:
        self.ledger = ledger
        self.now_ms = EPOCH_MS
        self.jump_ms = 0
        self.jumped_at_ms = -(10**9)
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.messages: list[Message] = []
        self.ledger.set_time(self.now_ms)

    def join(self, rate_percent: int = 0) -> Member:
        member = Member(self, f"gateway{len(self.members) + len(self.gone)}", rate_percent)
        self.members.append(member)
        return member

    def pass_time(self, ms: int) -> None:
        """Requests whose grant is not surely counted any more are orphans from here on."""
        self.now_ms += ms
        self.ledger.set_time(self.now_ms + self.jump_ms)
        for member in self.members:
            if member.answered_ms is not None and self.now_ms >= member.answered_ms + COVERED_MS:
                for request in member.requests:
                    request.is_orphan = True

    def set_server_time(self, jump_ms: int) -> None:
        """Anybody may set it back, and forward once within the time that a lease lasts."""
        if jump_ms > self.jump_ms:
            if self.now_ms - self.jumped_at_ms <= SETTINGS.lease_ms:
                return
            self.jumped_at_ms = self.now_ms
        self.jump_ms = jump_ms
        self.ledger.set_time(self.now_ms + self.jump_ms)

    def serve(self, member: Member) -> None:
        if not member.is_stopped:
            member.serve()

    def send(self, member: Member, *, is_leaving: bool = False) -> Message:
        """A new call; the one before is not waited for, and may be carried out all the same."""
        began_ns = member.clock_ns()
        message = Message(member, member.grant.ask(is_leaving=is_leaving), began_ns, self.now_ms)
        member.current = message
        self.messages.append(message)
        return message

    def carry_out(self, message: Message) -> None:
        self.messages.remove(message)
        message.answer = self.ledger.call(message.sender.name, message.ask, SETTINGS.lease_ms)

    def deliver(self, member: Member) -> None:
        message = member.current
        if message is not None and message.answer is not None and not member.is_stopped:
            member.current = None
            member.grant.answered(message.answer, message.began_ns)
            member.answered_ms = message.began_ms
            member.serve()

    def live(self, steps: int, step_ms: int = 50) -> None:
        """Time passes, and whoever can calls and is answered; a call of one that is cut off stays under way."""
        for _ in range(steps):
            self.pass_time(step_ms)
            self.check()
            for member in self.members:
                for request in member.requests:
                    request.is_done |= self.now_ms >= request.ends_ms
                if not member.is_stopped:
                    member.serve()
                    message = self.send(member)
                    if not member.is_cut:
                        self.carry_out(message)
                        self.deliver(member)
                    self.check()
            del self.messages[:-12]

    def check(self) -> None:
        """No block and no place is spent twice, or may be in this instant."""
        for figures in (self.used(), self.usable()):
            assert figures[0] <= BLOCKS, figures
            assert figures[1] <= PLACES, figures

    def kill(self, member: Member) -> None:
        """Its connections close, so the engine ends what it ran for it. What it had sent is under way still."""
        self.members.remove(member)
        self.gone.append(member)
        member.requests.clear()

    def go_on(self, member: Member) -> None:
        """It was stopped, and learns now what became of its requests."""
        member.is_stopped = False
        member.serve()

    def used(self) -> tuple[int, int]:
        """What the engine holds for requests that are no orphans."""
        rows = [request for member in self.members for request in member.requests]
        rows = [request for request in rows if not request.is_orphan and not request.is_done]
        return sum(request.blocks for request in rows), len(rows)

    def usable(self) -> tuple[int, int]:
        """What all gateways together hold or may let in at this moment, orphans aside."""
        blocks = places = 0
        for member in self.members:
            orphans = [request for request in member.requests if request.is_orphan]
            blocks += max(0, max(member.grant.blocks, member.held[0]) - sum(one.blocks for one in orphans))
            places += max(0, max(member.grant.places, member.held[1]) - len(orphans))
        return blocks, places
