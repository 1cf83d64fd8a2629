"""What a release asks of a live engine before its numbers are believed: a warm-up, one long prefill, as many decodes at once as
are planned for, a repeated prefix, and requests that are hung up on.

It is no capacity experiment: it shows that the phases of the ledger were lived through and that memory comes back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from vramledger.experiment.distinct_prompts import DistinctPrompts
from vramledger.release.completions import Completion, complete

WARM_PROMPT_TOKENS = 16
DECODE_PROMPT_TOKENS = 64
DECODE_OUTPUT_TOKENS = 48
PREFIX_REPEATS = 2
DROPPED = 3
PATIENCE_S = 120.0
POLL_S = 0.1


class Limits(Struct, frozen=True, kw_only=True):
    """What the engine admits: the longest sequence, sequences at once, and the vocabulary that token ids come from."""

    context_len: int
    concurrency: int
    vocab_size: int


class Step(Struct, frozen=True, kw_only=True):
    """One step: its name is the mark that samples taken meanwhile carry."""

    name: str
    from_s: float
    until_s: float
    answers: tuple[Completion, ...]

    @property
    def failed(self) -> tuple[Completion, ...]:
        return tuple(item for item in self.answers if item.error)


class Return(Struct, frozen=True, kw_only=True):
    """Whether KV came back after streams were dropped: usage before, at most while they ran, and after, None where the engine shows
    none; `seconds` until nothing ran, None where that did not happen within two minutes."""

    dropped: int
    usage_before: float | None
    usage_while: float | None
    usage_after: float | None
    seconds: float | None

    @property
    def holds(self) -> bool | None:
        """True where usage came back to what it was; None where the engine shows no usage."""
        if self.seconds is None:
            return False
        if self.usage_before is None or self.usage_while is None or self.usage_after is None:
            return None
        return self.usage_after <= self.usage_before + 1e-9


class Exercise(Struct, frozen=True, kw_only=True):
    """All steps, in order, and what hanging up gave back."""

    steps: tuple[Step, ...]
    returned: Return


Usage = Callable[[], tuple[float | None, int | None]]
"""Share of the KV pool in use and requests running, as the engine's metrics say now; each None where it does not."""


def exercise(
    url: str,
    model: str,
    limits: Limits,
    usage: Usage,
    *,
    mark: Callable[[str], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
) -> Exercise:
    """Run the steps against `url`; `mark` hears each step's name when it begins, `check` is called after each and may raise
    where the engine is gone."""
    prompts = DistinctPrompts(limits.vocab_size)
    longest = max(limits.context_len - 16, 1)
    at_once = max(min(limits.concurrency, 8), 1)
    steps = []

    def step(name: str, *asks: tuple[list[int], int], together: int = 1) -> Step:
        mark(name)
        start = time.time()
        with ThreadPoolExecutor(together) as pool:
            answers = tuple(pool.map(lambda ask: complete(url, model, ask[0], ask[1]), asks))
        done = Step(name=name, from_s=start, until_s=time.time(), answers=answers)
        steps.append(done)
        check()
        return done

    short = min(WARM_PROMPT_TOKENS, longest)
    step("warm-up", (prompts.new(short), 8))
    step("prefill", (prompts.new(min(longest, 4096)), 8))
    room = max(min(DECODE_PROMPT_TOKENS, longest - DECODE_OUTPUT_TOKENS), 1)
    step(
        "decode",
        *[(prompts.new(room), DECODE_OUTPUT_TOKENS) for _ in range(at_once)],
        together=at_once,
    )
    repeated = prompts.new(min(longest, 512))
    step("prefix", *[(repeated, 4)] * (1 + PREFIX_REPEATS))
    mark("cancel")
    returned, dropped = _hang_up(url, model, prompts, min(at_once, DROPPED), longest, usage)
    steps.append(dropped)
    check()
    mark("idle")
    return Exercise(steps=tuple(steps), returned=returned)


def _hang_up(
    url: str, model: str, prompts: DistinctPrompts, count: int, longest: int, usage: Usage
) -> tuple[Return, Step]:
    before, _ = usage()
    seen = threading.Barrier(count + 1, timeout=PATIENCE_S)
    peak: list[float] = []
    start = time.time()

    def watched(pieces: int) -> bool:
        if pieces < 3:
            return False
        try:
            seen.wait()
            seen.wait()
        except threading.BrokenBarrierError:
            return True
        return True

    def ask(prompt: list[int]) -> Completion:
        answer = complete(url, model, prompt, max(longest // 2 - 16, 8), drop=watched)
        if not answer.dropped:
            seen.abort()  # it failed or ended before the others came to be dropped: nobody waits for it
        return answer

    with ThreadPoolExecutor(count) as pool:
        pending = [pool.submit(ask, prompts.new(min(256, max(longest // 2, 1)))) for _ in range(count)]
        try:
            seen.wait()
            used, _running = usage()
            if used is not None:
                peak.append(used)
            seen.wait()
        except threading.BrokenBarrierError:
            seen.abort()
        answers = tuple(item.result() for item in pending)
    hung_up = time.monotonic()
    after, seconds = before, None
    while time.monotonic() - hung_up < PATIENCE_S:
        after, running = usage()
        if not running and (before is None or after is None or after <= before + 1e-9):
            seconds = time.monotonic() - hung_up
            break
        time.sleep(POLL_S)
    return (
        Return(
            dropped=sum(item.dropped for item in answers),
            usage_before=before,
            usage_while=max(peak, default=None),
            usage_after=after,
            seconds=seconds,
        ),
        Step(name="cancel", from_s=start, until_s=time.time(), answers=answers),
    )
