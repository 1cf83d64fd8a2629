"""Asks one engine for the tokens of prompts, as long as it answers in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from vramledger.gateway.admitter import Kind
from vramledger.gateway.tokens.circuit import Circuit
from vramledger.gateway.tokens.engine_forms import Counted, Dialogue, Question, Unreadable, dialogue
from vramledger.gateway.tokens.off_loop import Busy, OffLoop
from vramledger.gateway.upstream_asking import AskingFailed, UpstreamAsking

MISSING = frozenset((401, 403, 404, 405, 501))
"""There is no such endpoint, or not for us."""
ANSWER_BYTES = 64 << 20
LARGE_BYTES = 1 << 17
"""Bodies above this are written and read away from the event loop."""


class EngineTally(msgspec.Struct, kw_only=True):
    """What became of questions; numbers only grow."""

    asked: int = 0
    answered: int = 0
    refused: int = 0
    """Answered with a 4xx: it would not have served the prompt either, or does not understand this form."""
    failed: int = 0
    late: int = 0
    not_asked: int = 0
    """Left alone because it failed of late, or because too many were being asked."""


class EngineCounting:
    """Counts by an engine's own endpoints, apart for each kind of request: an engine may have one and lack another."""

    def __init__(
        self,
        engine: str,
        asking: UpstreamAsking,
        *,
        within_ms: int,
        waiting: int,
        pause_ms: int,
        off_loop: OffLoop,
    ) -> None:
        self._engine = engine
        self._asking = asking
        self._within_s = within_ms / 1000
        self._waiting = waiting
        self._circuits = {kind: Circuit(pause_ms) for kind in Kind}
        self._refusals = dict.fromkeys(Kind, 0)
        self._off_loop = off_loop
        self.pending = 0
        self.tally = EngineTally()

    def may_be_asked(self, kind: Kind) -> bool:
        now = asyncio.get_running_loop().time()
        return self.pending < self._waiting and self._circuits[kind].would_allow(now)

    async def count(self, kind: Kind, asked: Mapping[str, object], prompt_bytes: int) -> Counted | None:
        """None where this engine cannot be asked, did not answer in time, or refused. When cancelled, its connection is closed."""
        talk = dialogue(self._engine, kind, asked)
        if talk is None:
            return None
        clock = asyncio.get_running_loop().time
        circuit = self._circuits[kind]
        if self.pending >= self._waiting or not circuit.allows(clock()):
            self.tally.not_asked += 1
            return None
        self.pending += 1
        self.tally.asked += 1
        is_large = prompt_bytes > LARGE_BYTES
        try:
            async with asyncio.timeout(self._within_s):
                question = await self._apart(lambda: next(talk), is_large)
                while True:
                    status, body = await self._asking.ask(
                        b"POST", *question, within_ms=round(self._within_s * 2000), most_bytes=ANSWER_BYTES
                    )
                    if status != 200:
                        self._turned_down(kind, status, clock())
                        return None
                    outcome = await self._apart(_answered(talk, body), is_large or len(body) > LARGE_BYTES)
                    if isinstance(outcome, Counted):
                        circuit.succeeded()
                        self._refusals[kind] = 0
                        self.tally.answered += 1
                        return outcome
                    question = outcome
        except TimeoutError:
            self.tally.late += 1
            circuit.failed(clock())
        except (AskingFailed, Unreadable):
            self.tally.failed += 1
            circuit.failed(clock())
        except Busy:
            self.tally.not_asked += 1
        except (
            ValueError,
            TypeError,
            RecursionError,
        ):  # the prompt cannot be written: not the engine's fault
            self.tally.refused += 1
        finally:
            self.pending -= 1
        return None

    async def _apart(self, work: Callable[[], Question | Counted], is_large: bool) -> Question | Counted:
        return await self._off_loop.run(work) if is_large else work()

    def _turned_down(self, kind: Kind, status: int, now: float) -> None:
        circuit = self._circuits[kind]
        if status in MISSING:
            self.tally.failed += 1
            circuit.missing(now)
        elif status >= 500 or status in (408, 429):
            self.tally.failed += 1
            circuit.failed(now)
        else:
            self.tally.refused += 1
            self._refusals[kind] += 1
            if self._refusals[kind] >= 8:  # prompts that it would take are refused in this form
                circuit.missing(now)


def _answered(talk: Dialogue, body: bytes) -> Callable[[], Question | Counted]:
    def send() -> Question | Counted:
        try:
            return talk.send(body)
        except StopIteration as end:
            counted: Counted = end.value
            return counted

    return send
