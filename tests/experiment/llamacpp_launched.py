"""llama.cpp's server as a command that an experiment starts, and a plain load on it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import msgspec

from vramledger.experiment.answer import Answer, Question
from vramledger.experiment.open_loop import OpenLoop
from vramledger.experiment.served import Served
from vramledger.gateway.settings import upstream_from_url

CELLS = 512
SLOTS = 4
COMMAND = (
    f"{sys.executable} -m vramledger.release.xllamacpp_server -m {{model}} --host {{host}} --port {{port}} -c {CELLS} "
    f"-np {SLOTS} -kvu -t 1 -cram 0 -lv 4 --metrics --slots --props"
)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a load."""

    began_s: float
    served: tuple[Served, ...]


def one_after_the_other(url: str, stop: threading.Event) -> Sent:
    """Short requests, the next once one has ended, until the event is set."""
    began_s, began_ns = time.time(), time.monotonic_ns()
    rows: list[Served] = []
    while not stop.is_set():
        due_ns = time.monotonic_ns() - began_ns
        answer = asked(url, [1000 + len(rows)] * 8, output_tokens=4)
        rows.append(
            Served(
                number=len(rows),
                due_ns=due_ns,
                sent_ns=-1 if answer.sent_ns < 0 else due_ns + answer.sent_ns,
                end_ns=due_ns + answer.end_ns,
                asked_prompt_tokens=8,
                asked_output_tokens=4,
                status=answer.status,
                whole=answer.whole,
                error=answer.error,
            )
        )
        stop.wait(0.02)
    return Sent(began_s=began_s, served=tuple(rows))


def asked(url: str, prompt: list[int], *, output_tokens: int) -> Answer:
    """One completion."""
    answers: list[Answer] = []
    body = {
        "model": "m",
        "prompt": prompt,
        "max_tokens": output_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    question = Question(number=0, at_ns=0, path="/v1/completions", body=msgspec.json.encode(body))
    asyncio.run(OpenLoop(upstream_from_url(url), told=answers.append).run([question]))
    return answers[0]
