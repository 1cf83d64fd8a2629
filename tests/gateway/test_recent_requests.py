"""The newest requests: each with the policy's word from the moment it falls until its end, and nothing that a client wrote."""

from __future__ import annotations

import asyncio

import msgspec

from gateway.client import ask, gateway_to, request, until
from gateway.engine import Call, Engine
from gateway.policies import Places, Says
from vramledger.gateway.admitter import Decision, Ended, Ending, Kind, RequestFacts, Verdict
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.recent_requests import MOST_ENDED, RecentRequests
from vramledger.gateway.record import RequestRecord


def test_a_request_is_told_of_while_it_runs_waits_and_after() -> None:
    recent = RecentRequests()

    async def story() -> None:
        go_on = asyncio.Event()

        async def script(call: Call) -> None:
            await go_on.wait()
            await call.whole()

        async with (
            Engine(script) as engine,
            gateway_to(engine, Places(1), observers=[recent]) as gateway,
            asyncio.TaskGroup() as clients,
        ):
            clients.create_task(ask(gateway.port, request(max_tokens=9)))
            await until(lambda: [one.standing for one in recent.newest()] == ["running"])
            clients.create_task(ask(gateway.port, request(max_tokens=4)))
            await until(lambda: [one.standing for one in recent.newest()] == ["waiting", "running"])
            waiting = recent.newest()[0]
            assert (waiting.verdict, waiting.rule, waiting.numbers) == ("queue", "places", {"held": 1})
            assert waiting.finished_ms is waiting.status is waiting.instance is None
            assert waiting.queue_ms is not None
            go_on.set()
            await until(lambda: [one.standing for one in recent.newest()] == ["completed", "completed"])

    asyncio.run(story())
    last, first = recent.newest()
    assert (first.number, first.max_output_tokens, first.first_verdict) == (1, 9, None)
    assert (last.number, last.verdict, last.first_verdict, last.first_rule) == (2, "admit", "queue", "places")
    assert (last.status, last.output_tokens, last.prompt_tokens, last.instance) == (200, 3, 11, 0)
    assert last.queue_ms is not None and last.finished_ms is not None
    assert first.came_ms <= last.came_ms


def test_a_refusal_is_told_with_its_sentence_and_without_the_prompt() -> None:
    recent = RecentRequests()

    async def story() -> None:
        says = Says(
            Decision(verdict=Verdict.NEVER_FITS, rule="never-fits", message="9 of 8", numbers={"need": 9})
        )
        async with Engine(Call.whole) as engine, gateway_to(engine, says, observers=[recent]) as gateway:
            headers = "Authorization: Bearer secret-key\r\n"
            await ask(gateway.port, request(headers=headers, model="x\x1b[31m"))
            await until(lambda: bool(recent.newest()))

    asyncio.run(story())
    (told,) = recent.newest()
    assert (told.standing, told.verdict, told.message, told.numbers) == (
        "never-fits", "never-fits", "9 of 8", {"need": 9},
    )  # fmt: skip
    text = msgspec.json.encode(told)
    for word in (b"secret", b"hello", b"\x1b", b"u001b"):
        assert word not in text


def test_what_is_kept_is_bounded() -> None:
    recent = RecentRequests(wall_clock_s=lambda: 100.0, clock_ns=lambda: 3_000_000_000)
    for number in range(MOST_ENDED + 50):
        facts = RequestFacts(
            number=number, kind=Kind.CHAT, model="m", prompt_bytes=5, arrival_ns=1_000_000_000
        )
        record = RequestRecord(facts=facts, ending=Ending(how=Ended.COMPLETED), finished_ns=1_500_000_000)
        recent.arrived(record, RequestHead(method=b"POST", target=b"/", headers=[], http_11=True))
        recent.ended(record)
    told = recent.newest()
    assert [one.number for one in told] == list(range(MOST_ENDED + 49, 49, -1))
    assert {(one.came_ms, one.finished_ms) for one in told} == {(98_000, 500)}
