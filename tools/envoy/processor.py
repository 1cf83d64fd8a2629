"""A processor as a program of its own, behind a policy of so many at once.

    python -m tools.envoy.processor PORT MOST WATCH

where WATCH is "watch" or "pass", writes a line of what it holds for each line that it reads, and ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator

from vramledger.gateway.admitter import Decision, Ending, RequestFacts, Verdict
from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk
from vramledger.gateway.envoy.ext_proc import serve_ext_proc

ADMIT = Decision(verdict=Verdict.ADMIT, rule="fits")
QUEUE = Decision(verdict=Verdict.QUEUE, rule="places")


class Places:
    """Lets `most` in at once, the others in turn; `endings` counts how they ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: set[int] = set()
        self._line: dict[int, None] = {}
        self.endings: dict[str, int] = {}
        self.output_tokens = 0

    def decide(self, facts: RequestFacts, now_ns: int) -> Decision:
        if len(self._held) < self._most and not self._line:
            self._held.add(facts.number)
            return ADMIT
        self._line[facts.number] = None
        return QUEUE

    def reconsider(self, now_ns: int) -> Iterator[tuple[int, Decision]]:
        while self._line and len(self._held) < self._most:
            number = next(iter(self._line))
            del self._line[number]
            self._held.add(number)
            yield number, ADMIT

    def progress(self, number: int, output_tokens: int, now_ns: int) -> None: ...

    def release(self, number: int, ending: Ending, now_ns: int) -> None:
        self._held.discard(number)
        self._line.pop(number, None)
        how = str(ending.how.value)
        self.endings[how] = self.endings.get(how, 0) + 1
        self.output_tokens += ending.output_tokens or 0


async def main(port: int, most: int, *, watch: bool) -> None:
    policy, counters = Places(most), Counters()
    desk = AdmissionDesk(
        policy, queued=10_000, queued_ms=600_000, clock_ns=time.monotonic_ns, counters=counters
    )
    processor = await serve_ext_proc(desk, f"127.0.0.1:{port}", counters=counters, watch_streams=watch)
    print(json.dumps({"port": processor.port}), flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        told = {
            "admitted": desk.admitted,
            "waiting": desk.waiting,
            "streams": processor.open_streams,
            "endings": policy.endings,
            "output_tokens": policy.output_tokens,
        }
        print(json.dumps(told), flush=True)
    await processor.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), watch=sys.argv[3] == "watch"))
