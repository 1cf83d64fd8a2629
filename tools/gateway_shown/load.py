"""What clients ask: a burst to find what an engine can do, and arrivals at a multiple of it that heed no answer."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from tools.ranks import nearest_rank

from vramledger.experiment.answer import Answer, Question
from vramledger.experiment.open_loop import NS_PER_S, OpenLoop
from vramledger.gateway.settings import Upstream

WORDS = [
    "sun",
    "moon",
    "river",
    "stone",
    "red",
    "blue",
    "green",
    "old",
    "new",
    "small",
    "tall",
    "quick",
    "slow",
    "house",
    "tree",
    "boat",
    "road",
    "bird",
    "fish",
    "salt",
]
BOUND_TOKENS = 400


def question(
    engine: str, number: int, at_ns: int, random: Random, *, most_tokens: int = BOUND_TOKENS, **more: Any
) -> Question:
    """One request of at most so many tokens of output. llama.cpp's small model is asked for a story, which ends when it ends; vLLM's has random weights, so that its
    clients name the length they get, drawn from a long-tailed distribution, and the prompt in token ids."""
    asked: dict[str, Any] = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    if engine == "llamacpp":
        words = " ".join(random.choice(WORDS) for _ in range(random.randint(10, 120)))
        asked |= {
            "messages": [{"role": "user", "content": f"Tell a story of: {words}"}],
            "max_tokens": most_tokens,
        }
        path = "/v1/chat/completions"
    else:
        length = min(3 * most_tokens, max(16, round(math.exp(random.gauss(5.0, 0.8)))))
        prompt = [random.randint(10, 400) for _ in range(random.randint(64, 512))]
        asked |= {"prompt": prompt, "max_tokens": length, "ignore_eos": True, "temperature": 0}
        path = "/v1/completions"
    return Question(number=number, at_ns=at_ns, body=json.dumps(asked).encode(), path=path, **more)


def poisson(engine: str, *, per_s: float, seconds: float, seed: int, **more: Any) -> list[Question]:
    """Arrivals of a Poisson process."""
    random, at_s = Random(seed), 0.0
    questions: list[Question] = []
    while (at_s := at_s + random.expovariate(per_s)) < seconds:
        questions.append(question(engine, len(questions), int(at_s * NS_PER_S), random, **more))
    return questions


def asked(port: int, questions: Iterable[Question]) -> list[Answer]:
    """All answers, by number."""
    told: list[Answer] = []
    asyncio.run(OpenLoop(Upstream(host="127.0.0.1", port=port), told=told.append).run(questions))
    return sorted(told, key=lambda answer: answer.number)


def figures(answers: list[Answer], first_token_s: float) -> dict[str, Any]:
    """What became of them. Good are those that came whole and began in time."""
    first_ns = [after for one in answers if one.whole and (after := one.first_token_after_ns) is not None]
    whole = [one for one in answers if one.whole]
    in_time = [one for one in whole if (one.first_token_after_ns or 0) <= first_token_s * NS_PER_S]
    return {
        "offered": len(answers),
        "good": len(in_time),
        "whole": len(whole),
        "failed in a stream": sum(one.status == 200 and not one.whole and not one.left for one in answers),
        "left": sum(one.left for one in answers),
        "refused": sum(one.status in (400, 429, 503) for one in answers),
        "failed otherwise": sum(
            one.status not in (200, 400, 429, 503) and not one.left for one in answers
        ),
        "first_token_p50_s": _percentile_s(first_ns, 50),
        "first_token_p99_s": _percentile_s(first_ns, 99),
        "output_tokens": sum(one.output_tokens or 0 for one in whole),
        "lasted_s": max(one.end_ns for one in answers) / NS_PER_S,
        "errors": dict(Counter(one.error for one in answers if one.error).most_common(4)),
    }  # fmt: skip


def _percentile_s(values_ns: list[int], percent: int) -> float | None:
    return nearest_rank(values_ns, percent) / NS_PER_S if values_ns else None
