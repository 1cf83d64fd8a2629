"""A random run over a cache of blocks: what is asked of it depends on the seed and on its answers. Standard library only."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field
from typing import Protocol

from tools.fidelity.vllm_blocks.cases import MAX_MODEL_LEN, STATE, Case

Line = list[int]
CHUNKS = (16, 40, 64)
MOST_RUNNING = 7


@dataclass
class Asked:
    """A request: its text, what it will generate, and how far it is."""

    number: int
    prompt: list[int]
    outputs: list[int]
    computed: int = 0
    generated: int = 0

    @property
    def known(self) -> int:
        return len(self.prompt) + self.generated


class Cache(Protocol):
    """A cache of blocks with a request's text in it."""

    def start_step(self) -> None: ...
    def look_up(self, request: Asked) -> tuple[int, int]:
        """Tokens of the hit, and of a longer hit of one group alone (0 where there is none)."""
        ...

    def open(self, request: Asked, hit: int, junction: int, tokens: int) -> bool:
        """Room for the hit and the first chunk if the whole prompt has room."""
        ...

    def grow(self, request: Asked, tokens: int) -> bool: ...
    def append(self, request: Asked, token: int) -> None: ...
    def free(self, request: Asked) -> None: ...
    def state(self, running: list[Asked]) -> tuple[list[tuple[tuple[int, ...], ...]], list[int]]:
        """Block tables (0 for a null block) and the free queue."""
        ...


@dataclass
class Run:
    """One case; `lines` are what was asked and answered, each with a checksum of every table and of the queue."""

    case: Case
    cache: Cache
    lines: list[Line] = field(default_factory=list)
    running: list[Asked] = field(default_factory=list)

    def play(self) -> list[Line]:
        rng = random.Random(f"{self.case['name']}")
        trunks = [[rng.randrange(1_000) for _ in range(MAX_MODEL_LEN)] for _ in range(3)]
        number = 0
        for _ in range(self.case["steps"]):
            self.cache.start_step()
            preempts = self._serve(rng)
            for _ in range(rng.randrange(3)):
                if preempts or len(self.running) >= MOST_RUNNING:
                    break
                number += 1
                if not self._admit(rng, number, rng.choice(trunks)):
                    break
            self._end_step(rng)
        return self.lines

    def _serve(self, rng: random.Random) -> bool:
        preempts = False
        place = 0
        while place < len(self.running):
            request = self.running[place]
            tokens = self._chunk(request.computed, rng.choice((1, *CHUNKS)), request.known)
            while not self.cache.grow(request, tokens):
                preempts = True
                victim = self.running.pop()
                self.cache.free(victim)
                self._note(1, victim.number)
                if victim is request:
                    break
            else:
                request.computed += tokens
                self._note(2, request.number, tokens)
                place += 1
        return preempts

    def _admit(self, rng: random.Random, number: int, trunk: list[int]) -> bool:
        prompt = trunk[: rng.randrange(1, 300)] + [
            rng.randrange(1_000, 10**6) for _ in range(rng.randrange(60))
        ]
        request = Asked(number, prompt, [rng.randrange(1_000) for _ in range(rng.randrange(1, 40))])
        hit, junction = self.cache.look_up(request)
        tokens = self._chunk(hit, rng.choice(CHUNKS), len(prompt))
        is_open = self.cache.open(request, hit, junction, tokens)
        if is_open:
            request.computed = hit + tokens
            self.running.append(request)
        self._note(3, number, hit, junction, tokens, int(is_open))
        return is_open

    def _end_step(self, rng: random.Random) -> None:
        for request in list(self.running):
            if request.computed < request.known:
                continue
            if request.generated == len(request.outputs) or rng.random() < 0.02:
                self.running.remove(request)
                self.cache.free(request)
                self._note(4, request.number)
            else:
                self.cache.append(request, request.outputs[request.generated])
                request.generated += 1

    def _chunk(self, start: int, tokens: int, end: int) -> int:
        """At most `tokens`; beside states a chunk ends where a block ends, or the text (as vLLM's scheduler splits)."""
        tokens = min(tokens, end - start)
        sizes = [size for kind, size, _ in self.case["groups"] if kind == STATE]
        if not sizes:
            return tokens
        size = max(sizes)
        stop = start + tokens
        if stop < end:
            stop = max(stop // size * size, min((start // size + 1) * size, end))
        if start % size:
            stop = min(stop, (start // size + 1) * size)
        last = end // size * size
        return (last if start < last < stop else stop) - start

    def _note(self, *line: int) -> None:
        self.lines.append([*line, zlib.crc32(repr(self.cache.state(self.running)).encode())])
