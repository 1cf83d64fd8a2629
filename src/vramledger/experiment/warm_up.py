"""Every shape that the load will have, asked once and once more: what is captured, compiled or allocated on first use is there afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from vramledger.experiment.answer import Answer, Question
from vramledger.experiment.distinct_prompts import DistinctPrompts
from vramledger.experiment.open_loop import ENDLESS, SILENT, OpenLoop
from vramledger.experiment.told_counts import SPARE_PIECES
from vramledger.gateway.settings import Upstream

SHORT_PROMPT_TOKENS = 16
SHORT_OUTPUT_TOKENS = 16
LONG_OUTPUT_TOKENS = 8
AGAIN_PROMPT_TOKENS = 512
MOST_AT_ONCE = 256
POOL_SHARE = 0.9
"""Of the pool, what a shape may take: an engine that fails when its pool is full is not to fail here."""
SILENCE_S = 300.0
AGAIN_WITHIN_NS = 5_000_000_000
"""A shape that took longer is asked once: there is nothing more to learn from it that is worth as long again."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """So many requests together, each of so many tokens. `repeats_prompt`: all have one prompt, sent one after the other."""

    name: str
    prompt_tokens: int
    output_tokens: int
    at_once: int = 1
    repeats_prompt: bool = False


class ShapeSeen(msgspec.Struct, frozen=True, kw_only=True):
    """How long a shape took, the first time and the second (None: it was not asked again, for it is long); requests of it that were not answered, and why the first of these was not."""

    shape: Shape
    first_ns: int
    again_ns: int | None
    failed: int = 0
    problem: str = ""

    @property
    def took_ns(self) -> int:
        """The last time."""
        return self.first_ns if self.again_ns is None else self.again_ns


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """All shapes. `short_per_s` is at what rate short requests were answered when as many as may run were sent together; 0 where none was."""

    shapes: tuple[ShapeSeen, ...] = ()
    short_per_s: float = 0.0

    @property
    def failed(self) -> int:
        return sum(one.failed for one in self.shapes)


def shapes_of(
    context_len: int,
    at_once: int,
    pool_tokens: int | None = None,
    *,
    longest_prompt_tokens: int | None = None,
) -> tuple[Shape, ...]:
    """One short request, the longest prompt, a prompt that comes again, short requests together in numbers that double up to `at_once` (the
    sizes that graphs are captured for), and short ones beside the longest. All of a shape fits into the pool; of a pool that is not known
    no more than one longest request is taken for granted. `longest_prompt_tokens` is the longest that the load will have, where that is less."""
    room = max(2, int((pool_tokens or context_len) * POOL_SHARE))
    length = max(2, min(context_len - 1, room))
    longest = max(1, min(length - LONG_OUTPUT_TOKENS, longest_prompt_tokens or length))
    short = Shape(
        name="one short request",
        prompt_tokens=max(1, min(SHORT_PROMPT_TOKENS, length // 2)),
        output_tokens=max(1, min(SHORT_OUTPUT_TOKENS, length // 2)),
    )
    shapes = [
        short,
        Shape(
            name="the longest prompt",
            prompt_tokens=longest,
            output_tokens=min(LONG_OUTPUT_TOKENS, length - longest) or 1,
        ),
        Shape(
            name="a prompt that comes again",
            prompt_tokens=max(1, min(longest // 2, AGAIN_PROMPT_TOKENS)),
            output_tokens=1,
            at_once=2,
            repeats_prompt=True,
        ),
    ]
    fits = max(1, room // (short.prompt_tokens + short.output_tokens))
    for count in _doubling(min(at_once, fits, MOST_AT_ONCE)):
        shapes.append(msgspec.structs.replace(short, name=f"{count} short requests together", at_once=count))
    return tuple(shapes)


def _doubling(most: int) -> list[int]:
    """2, 4, 8 ... and `most` itself."""
    counts = []
    count = 2
    while count < most:
        counts.append(count)
        count *= 2
    return [*counts, most] if most > 1 else counts


def warm_up(
    target: Upstream,
    model: str,
    shapes: tuple[Shape, ...],
    *,
    vocab_size: int | None = None,
    seed: int = 0,
    told: Callable[[str], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
) -> WarmUp:
    """Asks each shape twice, a long one once, with prompts that share no beginning. `check` is called after each and may raise where the engine is gone.

    What an engine answers with an error is counted, and raises nothing. After one that it does not answer at all, or answers without an end,
    no other shape is asked.
    """
    prompts = DistinctPrompts(vocab_size, seed)
    seen: list[ShapeSeen] = []
    for shape in shapes:
        told(f"warming up: {shape.name}")
        first = asyncio.run(_asked(target, model, shape, prompts))
        check()
        again: list[Answer] = []
        is_lost = any(answer.error in (SILENT, ENDLESS) for answer in first)
        if not is_lost and _length_ns(first) <= AGAIN_WITHIN_NS:
            again = asyncio.run(_asked(target, model, shape, prompts))
            check()
        seen.append(_seen(shape, first, again))
        if is_lost:
            break
    return WarmUp(shapes=tuple(seen), short_per_s=_short_per_s(seen))


def _seen(shape: Shape, first: Sequence[Answer], again: Sequence[Answer]) -> ShapeSeen:
    bad = [answer for answer in (*first, *again) if not answer.whole]
    return ShapeSeen(
        shape=shape,
        first_ns=_length_ns(first),
        again_ns=_length_ns(again) if again else None,
        failed=len(bad),
        problem=_problem(bad[0]) if bad else "",
    )


def _short_per_s(seen: list[ShapeSeen]) -> float:
    whole = [
        one.shape.at_once * 1e9 / one.took_ns
        for one in seen
        if not one.failed and one.took_ns > 0 and not one.shape.repeats_prompt
        and one.shape.prompt_tokens <= SHORT_PROMPT_TOKENS
    ]  # fmt: skip
    return max(whole, default=0.0)


async def _asked(target: Upstream, model: str, shape: Shape, prompts: DistinctPrompts) -> list[Answer]:
    answers: list[Answer] = []
    same = prompts.new(shape.prompt_tokens)
    questions = [
        Question(
            number=number,
            at_ns=0,
            path="/v1/completions",
            most_events=2 * shape.output_tokens + SPARE_PIECES,
            body=_body(
                model, same if shape.repeats_prompt else prompts.new(shape.prompt_tokens), shape.output_tokens
            ),
        )
        for number in range(shape.at_once)
    ]
    rounds = [[question] for question in questions] if shape.repeats_prompt else [questions]
    for together in rounds:
        loop = OpenLoop(target, told=answers.append, silence_s=SILENCE_S)
        await loop.run(together)
    return answers


def _body(model: str, prompt: list[int], output_tokens: int) -> bytes:
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


def _length_ns(answers: Sequence[Answer]) -> int:
    """Of requests sent together from the first to the last; of those one after the other their sum is of no use, and the longest is taken."""
    return max((answer.end_ns for answer in answers), default=0)


def _problem(answer: Answer) -> str:
    return (answer.error or f"it answered {answer.status}")[:300]
