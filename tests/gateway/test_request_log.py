"""The log of requests: a line each, with the decision's numbers and without anything that a client wrote but plain names."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.client import ask, gateway_to, request, until, wait_until
from gateway.engine import USAGE, Call, Engine
from gateway.policies import Says
from gateway.test_records import NUMBERS
from vramledger.errors import OutputError
from vramledger.gateway import request_log
from vramledger.gateway.admitter import Decision, Kind, RequestFacts, Verdict
from vramledger.gateway.record import RequestRecord
from vramledger.gateway.request_log import RequestLog

FACTS = RequestFacts(number=3, kind=Kind.CHAT, model="m", prompt_bytes=5, arrival_ns=1_000_000)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_request_is_one_line_without_its_prompt(tmp_path: Path) -> None:
    path = tmp_path / "requests.log"
    log = RequestLog(path, wall_clock_s=lambda: 1_700_000_000.25)

    async def story() -> None:
        says = Says(Decision(verdict=Verdict.ADMIT, rule="fits", message="sentence", numbers=NUMBERS))
        async with Engine(Call.whole) as engine, gateway_to(engine, says, observers=[log]) as gateway:
            headers = "Authorization: Bearer secret-key\r\n"
            await ask(gateway.port, request(headers=headers, model="x\n\x1b[31m" + "y" * 100, max_tokens=9))
            await until(lambda: not gateway.connections)

    asyncio.run(story())
    log.close()
    (line,) = lines(path)
    text = path.read_text()
    for word in ("secret", "hello", "sentence", "\x1b"):
        assert word not in text
    assert line["model"] == "x??[31m" + "y" * 54 + "..."
    for name in ("decision_us", "finished_ms", "released_us"):
        assert line.pop(name) >= 0
    del line["model"], line["answer_bytes"]
    assert line == {
        "at_ms": 1_700_000_000_250,
        "number": 1,
        "kind": "chat",
        "outcome": "completed",
        "instance": 0,
        "status": 200,
        "decision": {"verdict": "admit", "rule": "fits", "numbers": NUMBERS},
        "prompt_tokens": USAGE["prompt_tokens"],
        "cached_prompt_tokens": 7,
        "max_output_tokens": 9,
        "output_tokens": 3,
    }


def test_a_refusal_has_both_words_of_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "requests.log"
    log = RequestLog(path)
    first = Decision(verdict=Verdict.QUEUE, rule="future-peak", wait_ms=70)
    last = Decision(verdict=Verdict.REJECT, rule="queue-age", retry_after_ms=2000)
    log.ended(
        RequestRecord(
            facts=FACTS, first_decision=first, decision=last, queued_ns=2_000_000, ended_ns=9_000_000
        )
    )
    log.close()
    (line,) = lines(path)
    assert line["first"] == {"verdict": "queue", "rule": "future-peak", "wait_ms": 70}
    assert line["decision"] == {"verdict": "reject", "rule": "queue-age", "retry_after_ms": 2000}
    assert (line["queue_ms"], line["finished_ms"]) == (7, 8)


def test_a_rotated_file_is_left_when_told(tmp_path: Path) -> None:
    path, old = tmp_path / "requests.log", tmp_path / "requests.log.1"
    log = RequestLog(path)
    log.ended(RequestRecord(facts=FACTS))
    wait_until(lambda: path.exists() and b"\n" in path.read_bytes())
    path.rename(old)
    log.reopen()
    log.ended(RequestRecord(facts=FACTS))
    log.close()
    assert len(lines(old)) + len(lines(path)) == 2
    assert path.exists()
    assert log.written == 2


def test_what_cannot_be_written_is_lost_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "MOST_LINES", 0)
    log = RequestLog(tmp_path / "requests.log")
    log.ended(RequestRecord(facts=FACTS))
    log.close()
    assert (log.written, log.lost) == (0, 1)


def test_a_full_disk_stops_nobody() -> None:
    log = RequestLog(Path("/dev/full"))
    log.ended(RequestRecord(facts=FACTS))
    log.close()
    assert (log.written, log.lost) == (0, 1)


def test_a_log_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="request log"):
        RequestLog(tmp_path / "no folder" / "requests.log")
