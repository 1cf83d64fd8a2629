"""Clients that leave at any moment, and parts that are killed: nothing stays held, and nobody waits for an answer that does not come."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from tools.gateway_shown.engines import engine, gateway
from tools.gateway_shown.load import asked, figures, question

from vramledger.experiment.answer import Answer
from vramledger.experiment.open_loop import NS_PER_S

SHORT_TOKENS = 24
"""Most output of a request: what is looked at here is how requests end, not how long they are."""
ROOM = "[limits]\nqueued = 2000\n[timeouts]\nqueued_ms = 600_000"


def cancelled(name: str, folder: Path, venv: Path | None, count: int, seed: int = 1) -> dict[str, Any]:
    """`count` clients before one engine; all but every hundredth leave: most at a random moment, while they wait or in their prefill, every
    hundredth after some pieces of its stream."""
    random, questions = Random(seed), []
    for number in range(count):
        leaves: dict[str, int] = {}
        if number % 100 == 50:
            leaves["leaves_after_events"] = random.randint(1, SHORT_TOKENS // 2)
        elif number % 100 != 99:
            leaves["leaves_after_ns"] = int(random.expovariate(1 / 0.8) * NS_PER_S)
        questions.append(
            question(name, number, number * 10_000_000, random, most_tokens=SHORT_TOKENS, **leaves)
        )
    with engine(name, folder, venv) as (port, _), gateway(name, port, folder, settings=ROOM) as before:
        answers = asked(before.port, questions)
        empty_s = before.empty_after_s()
        return {
            **figures(answers, 60.0),
            "without an answer": unanswered(answers),
            "left in the queue or prefill": sum(one.left and one.first_token_ns < 0 for one in answers),
            "left in their stream": sum(one.left and one.first_token_ns >= 0 for one in answers),
            "nothing held after s": empty_s,
            "held": before.books(),
            "gateway's counters": {
                key: value for key, value in before.state()["counters"].items() if value
            },
        }  # fmt: skip


def unanswered(answers: list[Answer]) -> int:
    """Clients that stayed and were told nothing: neither an answer nor that the connection is gone."""
    return sum(not one.left and one.status == 0 and not one.error for one in answers)


def killed(what: str, name: str, folder: Path, venv: Path | None, *, seconds: float = 40.0) -> dict[str, Any]:
    """Requests twice a second; in the middle the engine or the gateway is killed and started again on its port."""
    random = Random(2)
    questions = [
        question(name, number, int(number / 2 * NS_PER_S), random, most_tokens=SHORT_TOKENS)
        for number in range(int(2 * seconds))
    ]
    with ExitStack() as stack:
        port, process = stack.enter_context(engine(name, folder, venv))
        front = stack.enter_context(gateway(name, port, folder, settings=ROOM))
        told: list[Answer] = []
        clients = threading.Thread(target=lambda: told.extend(asked(front.port, questions)))
        clients.start()
        time.sleep(seconds / 3)
        if what == "engine":
            os.killpg(process.pid, signal.SIGKILL)
            time.sleep(3)
            again: Callable[[], Any] = lambda: engine(name, folder, venv, port=port)  # noqa: E731
        else:
            front.process.kill()
            front.process.wait(30)
            again = lambda: gateway(name, port, folder, settings=ROOM, port=front.port)  # noqa: E731
        killed_ns = int(seconds / 3 * NS_PER_S)
        found = stack.enter_context(again())
        back_s = time.monotonic()
        clients.join(600)
        after = front if what == "engine" else found
        empty_s = after.empty_after_s()
        later = [one for one in told if one.at_ns > killed_ns and one.whole]
        return {
            **figures(told, 60.0),
            "without an answer": unanswered(told) + (len(questions) - len(told)),
            "whole and sent after the kill": len(later),
            "clients ended s after it was back": round(time.monotonic() - back_s, 1),
            "nothing held after s": empty_s,
            "held": after.books(),
        }
