"""What a client sees of the policy's word: let in, queued, told to come back, or told that it never will be."""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

import pytest

from gateway.client import ask, gateway_to, request, until
from gateway.engine import EVENT_STREAM, WORD, Call, Engine
from gateway.policies import Places, Says
from vramledger.gateway.admitter import Decision, Ended, Kind, RequestFacts, Verdict
from vramledger.gateway.counters import Counters
from vramledger.gateway.desk import AdmissionDesk, Refused, Ticket
from vramledger.gateway.settings import Limits, Timeouts


@pytest.mark.parametrize(
    ("verdict", "status", "kind"),
    [
        (Verdict.REJECT, 429, "rate_limit_error"),
        (Verdict.UNAVAILABLE, 503, "overloaded_error"),
        (Verdict.NEVER_FITS, 400, "invalid_request_error"),
    ],
)
def test_a_refusal_has_its_rule_its_sentence_and_when_to_come_back(
    verdict: Verdict, status: int, kind: str
) -> None:
    async def story() -> None:
        says = Says(
            Decision(verdict=verdict, rule="future-peak", message="no room: é\r\n", retry_after_ms=2_001)
        )
        async with Engine(Call.whole) as engine, gateway_to(engine, says) as gateway:
            answer = await ask(gateway.port, request())
            assert answer.status == status
            assert answer.headers["retry-after"] == "3"
            assert answer.headers["x-vramledger-rule"] == "future-peak"
            assert answer.error == {
                "message": "no room: é\r\n",
                "type": kind,
                "param": None,
                "code": "future-peak",
            }
            assert not engine.calls

    asyncio.run(story())


def test_a_policy_that_fails_lets_nobody_in() -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine, gateway_to(engine, Says(ValueError("broken"))) as gateway:
            answer = await ask(gateway.port, request())
            assert (answer.status, answer.error["code"]) == (503, "policy-failed")
            assert gateway.counters.policy_failures == 1

    asyncio.run(story())


def test_queued_requests_are_served_in_turn_and_say_how_they_waited() -> None:
    async def story() -> None:
        let_go = asyncio.Event()

        async def script(call: Call) -> None:
            await let_go.wait()
            await call.whole()

        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            asks = []
            for number in range(4):
                asks.append(asyncio.create_task(ask(gateway.port, request(user=str(number)))))
                await until(partial(policy.knows, number + 1))
            assert gateway.desk.waiting == 3
            let_go.set()
            answers = await asyncio.gather(*asks)
            assert [answer.status for answer in answers] == [200] * 4
            assert [answer.headers.get("x-vramledger-queue-position") for answer in answers] == [
                None,
                "1",
                "2",
                "3",
            ]
            assert all(int(answer.headers["x-vramledger-queued-ms"]) >= 0 for answer in answers[1:])
            assert [f'"user": "{n}"'.encode() in call.body for n, call in enumerate(engine.calls)] == [
                True
            ] * 4
        assert policy.most_held == 1

    asyncio.run(story())


def test_the_queue_is_bounded_in_number_and_in_time() -> None:
    async def script(call: Call) -> None:
        await call.left()

    async def story() -> None:
        policy = Places(1)
        limits, timeouts = Limits(queued=1), Timeouts()
        async with (
            Engine(script) as engine,
            gateway_to(engine, policy, limits=limits, timeouts=timeouts) as gateway,
        ):
            first = asyncio.create_task(ask(gateway.port, request()))
            await until(lambda: engine.working == 1)
            second = asyncio.create_task(ask(gateway.port, request()))
            await until(lambda: gateway.desk.waiting == 1)
            full = await ask(gateway.port, request())
            assert (full.status, full.error["code"]) == (429, "queue-full")
            assert int(full.headers["retry-after"]) >= 1
            gateway.adopt(Limits(queued=2), Timeouts(queued_ms=50))
            late = await ask(gateway.port, request())
            assert (late.status, late.error["code"]) == (429, "queued-too-long")
            assert int(late.headers["retry-after"]) >= 1
            assert policy.line == [2]
            second.cancel()
            await until(lambda: policy.line == [])
            first.cancel()
            await until(lambda: len(policy.endings) == 4)
        assert {number: ending.how for number, ending in policy.endings.items()} == {
            1: Ended.CLIENT_LEFT,
            2: Ended.CLIENT_LEFT,
            3: Ended.QUEUE_FULL,
            4: Ended.QUEUED_TOO_LONG,
        }

    asyncio.run(story())


def test_a_tenant_that_fills_the_queue_makes_place_for_another() -> None:
    async def story() -> None:
        policy = Places(0)
        clock = itertools.count()
        desk = AdmissionDesk(
            policy, queued=4, queued_ms=60_000, clock_ns=lambda: next(clock), counters=Counters()
        )

        def enters(tenant: int) -> asyncio.Task[Ticket]:
            facts = RequestFacts(
                number=desk.next_number(),
                kind=Kind.CHAT,
                model="m",
                prompt_bytes=1,
                prompt=None,
                max_output_tokens=1,
                branches=1,
                stream=False,
                arrival_ns=0,
                tenant=tenant,
            )
            return asyncio.create_task(desk.enter(facts))

        many = [enters(1) for _ in range(6)]
        await asyncio.sleep(0)
        assert desk.waiting == 4
        others = [enters(2), enters(3), enters(2)]
        await asyncio.sleep(0.01)
        waiting = [facts.tenant for facts, _ in desk.waiting_facts()]
        assert sorted(waiting) == [1, 1, 2, 3]
        assert [task.done() for task in many] == [False, False, True, True, True, True]
        for task in many[2:]:
            refused = task.exception()
            assert isinstance(refused, Refused)
            assert refused.decision.rule == "queue-full"
        assert others[2].done()  # it has as many as anybody, but for one
        for task in (*many, *others):
            task.cancel()
        await asyncio.gather(*many, *others, return_exceptions=True)
        assert (desk.waiting, desk.admitted, policy.line) == (0, 0, [])
        assert set(policy.endings) == set(policy.facts)

    asyncio.run(story())


def test_a_policy_may_change_its_word_about_those_that_wait() -> None:
    class Tires(Places):
        def reconsider(self, now_ns: int) -> list[tuple[int, Decision]]:  # type: ignore[override]
            gone, self.line = self.line, []
            return [
                (number, Decision(verdict=Verdict.NEVER_FITS, rule="shrunk")) for number in (*gone, 999_999)
            ]

    async def story() -> None:
        async with Engine(Call.whole) as engine, gateway_to(engine, Tires(0)) as gateway:
            answer = await ask(gateway.port, request())
            assert (answer.status, answer.error["code"]) == (400, "shrunk")
            assert gateway.counters.released == 0  # it holds nothing any more

    asyncio.run(story())


def test_the_policy_is_told_how_far_a_stream_is() -> None:
    async def story() -> None:
        end = asyncio.Event()

        async def script(call: Call) -> None:
            await call.write(EVENT_STREAM)
            for _ in range(5):
                await call.chunk(WORD)
            await end.wait()
            await call.write(b"0\r\n\r\n")

        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            asked = asyncio.create_task(ask(gateway.port, request(stream=True)))
            await until(lambda: policy.streamed == {1: 5})
            end.set()
            await asked

    asyncio.run(story())


def test_a_drain_turns_the_queue_away_and_lets_the_rest_finish() -> None:
    async def story() -> None:
        let_go = asyncio.Event()

        async def script(call: Call) -> None:
            await let_go.wait()
            await call.whole()

        policy = Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy) as gateway:
            _, idle = await asyncio.open_connection("127.0.0.1", gateway.port)
            first = asyncio.create_task(ask(gateway.port, request()))
            await until(lambda: engine.working == 1)
            second = asyncio.create_task(ask(gateway.port, request()))
            await until(lambda: gateway.desk.waiting == 1)
            assert not await gateway.drain(0.05)
            turned_away = await second
            assert (turned_away.status, turned_away.error["code"]) == (503, "draining")
            assert turned_away.headers["connection"] == "close"
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", gateway.port)
            let_go.set()
            assert await gateway.drain(10)
            answer = await first
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            idle.close()
        assert policy.endings[2].how is Ended.DRAINED

    asyncio.run(story())
