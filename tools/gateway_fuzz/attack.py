"""A few clients at a time that write conversations to a gateway, and what was wrong about what came back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from tools.gateway_fuzz.answers import Got, Unreadable, answers_in, problems_of
from tools.gateway_fuzz.engines import SERIAL, Seen
from tools.gateway_fuzz.messages import conversation

WAIT_S = 60


class Problem(NamedTuple):
    """`case` is the number of the conversation, which its seed makes anew."""

    case: int
    what: str
    written: bytes


class Attack:
    """`told` counts answers by status; `delivered` are the requests of which a client read the answer."""

    def __init__(self, port: int, seen: list[Seen], *, seed: int, keys: Sequence[str] = ()) -> None:
        self._port = port
        self._seen = seen
        self._seed = seed
        self._keys = keys
        self._case = 0
        self.problems: list[Problem] = []
        self.told: Counter[int] = Counter()
        self.delivered: Counter[int] = Counter()
        self.bytes_written = 0
        self.resets = 0
        """Connections that ended so that what was still on its way may be lost."""

    @property
    def conversations(self) -> int:
        return self._case

    async def run(self, *, clients: int, go_on: Callable[[int], bool]) -> None:
        """Each client begins its next conversation while `go_on(its number)`."""

        async def client() -> None:
            while go_on(self._case):
                case, self._case = self._case, self._case + 1
                await self._converse(case)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def _converse(self, case: int) -> None:
        written = conversation(Random(f"{self._seed}/{case}"), self._keys)
        try:
            async with asyncio.timeout(WAIT_S):
                data = await self._exchange(written)
            answers = answers_in(data, self._seen)
        except TimeoutError:
            self._found(case, "the gateway left a connection open", written)
        except Unreadable as problem:
            self._found(case, str(problem), written)
        else:
            for what in problems_of(answers, self._seen):
                self._found(case, what, written)
            self._count(answers)

    async def _exchange(self, written: list[bytes]) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            for piece in written:
                if writer.transport.is_closing():
                    break
                self.bytes_written += len(piece)
                writer.write(piece)
                if len(written) > 1:
                    await asyncio.sleep(0)
            received = []
            try:
                while piece := await reader.read(65_536):
                    received.append(piece)
            except ConnectionError:
                self.resets += 1
            return b"".join(received)
        finally:
            writer.transport.abort()

    def _count(self, answers: list[Got]) -> None:
        for got in answers:
            self.told[got.status] += 1
            if SERIAL in got.headers:
                self.delivered[int(got.headers[SERIAL])] += 1

    def _found(self, case: int, what: str, written: list[bytes]) -> None:
        self.problems.append(Problem(case, what, b"".join(written)))
