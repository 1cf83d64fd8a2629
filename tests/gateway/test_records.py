"""What is noted of requests: each once, its instants in order, its numbers those of the policy and the engine."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from gateway.client import ask, gateway_to, request, until
from gateway.engine import ANSWER, DONE, EVENT_STREAM, USAGE, WORD, Call, Engine, event
from gateway.policies import Places, Says
from vramledger.gateway.admitter import Decision, Ended, RequestFacts, Verdict
from vramledger.gateway.answer_reading import StreamReading
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.record import RequestRecord, plain_word
from vramledger.gateway.request_facts import facts_of, kind_of
from vramledger.gateway.settings import Limits
from vramledger.gateway.snapshot import gateway_state

NUMBERS = {"uncached_tokens": 4, "reserved_output_tokens": 16, "need_blocks": 2, "block_size": 16}


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.arrived_numbers: list[int] = []
        self.progress: list[tuple[int, int]] = []
        self.records: list[RequestRecord] = []

    def arrived(self, record: RequestRecord, head: RequestHead) -> None:
        self.arrived_numbers.append(record.facts.number)

    def progressed(self, record: RequestRecord, output_tokens: int, now_ns: int) -> None:
        self.progress.append((record.facts.number, output_tokens))

    def ended(self, record: RequestRecord) -> None:
        self.records.append(record)


class Broken(Notes):
    def arrived(self, record: RequestRecord, head: RequestHead) -> None:
        raise ValueError("broken")

    def ended(self, record: RequestRecord) -> None:
        raise ValueError("broken")


def test_a_stream_is_noted_from_its_arrival_to_its_release() -> None:
    async def story() -> None:
        go_on = asyncio.Event()

        async def script(call: Call) -> None:
            await call.write(EVENT_STREAM)
            await call.chunk(event({"choices": [{"delta": {"role": "assistant"}}]}))
            await call.chunk(WORD)
            await go_on.wait()
            await call.chunk(WORD)
            await call.chunk(event({"choices": [], "usage": USAGE}))
            await call.chunk(DONE)
            await call.write(b"0\r\n\r\n")

        notes = Notes()
        says = Says(Decision(verdict=Verdict.ADMIT, rule="fits", numbers=NUMBERS))
        async with Engine(script) as engine, gateway_to(engine, says, observers=[notes]) as gateway:
            asked = asyncio.create_task(ask(gateway.port, request(stream=True, max_tokens=16)))
            await until(lambda: notes.progress == [(1, 1)])
            assert not notes.records
            go_on.set()
            answer = await asked
            await until(lambda: len(notes.records) == 1)
        (record,) = notes.records
        instants = [
            record.facts.arrival_ns, record.asked_ns, record.decided_ns, record.admitted_ns, record.sent_ns,
            record.first_byte_ns, record.first_token_ns, record.finished_ns, record.released_ns, record.ended_ns,
        ]  # fmt: skip
        assert instants == sorted(instants)
        assert instants[0] > 0
        assert record.first_token_ns < record.finished_ns
        assert (record.queued_ns, record.queue_ns, record.instance, record.retries) == (0, None, 0, 0)
        assert (record.status, record.answer_bytes) == (200, len(answer.body))
        assert (record.outcome, record.admission) == ("completed", ("admit", "fits"))
        assert (record.uncached_tokens, record.reserved_output_tokens, record.blocks) == (4, 16, 2)
        assert record.ending is not None
        assert (record.ending.prompt_tokens, record.ending.cached_prompt_tokens) == (11, 7)
        assert record.ending.output_tokens == 3

    asyncio.run(story())


def test_a_wait_and_its_end_are_noted() -> None:
    async def story() -> None:
        let_go = asyncio.Event()

        async def script(call: Call) -> None:
            await let_go.wait()
            await call.whole()

        notes, policy = Notes(), Places(1)
        async with (
            Engine(script) as engine,
            gateway_to(engine, policy, limits=Limits(queued=2), observers=[notes]) as gateway,
        ):
            asks = []
            for number in range(3):
                asks.append(asyncio.create_task(ask(gateway.port, request(max_tokens=10, n=2))))
                await until(partial(policy.knows, number + 1))
            state = gateway_state(gateway)
            assert (state.queue.requests, state.queue.tokens) == (2, 40)  # nobody counted their prompts
            assert 0 < state.queue.oldest_age_ns < 10**12
            assert (state.admitted, state.in_flight, state.client_connections) == (1, 1, 3)
            full = await ask(gateway.port, request())
            assert full.status == 429
            asks[2].cancel()
            await until(lambda: gateway.desk.waiting == 1)
            let_go.set()
            await asyncio.gather(*asks[:2])
            await until(lambda: len(notes.records) == 4)
            assert gateway_state(gateway).queue.requests == 0
        told = {record.facts.number: record for record in notes.records}
        assert {number: record.outcome for number, record in told.items()} == {
            1: "completed", 2: "completed", 3: "client-left", 4: "reject",
        }  # fmt: skip
        assert told[4].admission == ("reject", "queue-full")
        assert told[4].status == 429
        assert told[3].admission == ("left", "places")
        assert told[3].queue_ns is not None
        assert told[3].released_ns == 0  # it never held anything
        waited = told[2]
        assert waited.first_decision is not None
        assert waited.first_decision.verdict is Verdict.QUEUE
        assert waited.admission == ("admit", "fits")
        assert waited.queue_ns == waited.admitted_ns - waited.queued_ns
        assert sorted(notes.arrived_numbers) == [1, 2, 3, 4]

    asyncio.run(story())


def test_a_cancellation_is_noted_with_when_its_reservation_was_free() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        while True:
            await call.chunk(WORD)
            await asyncio.sleep(0.005)

    async def story() -> None:
        notes, policy = Notes(), Places(1)
        async with Engine(script) as engine, gateway_to(engine, policy, observers=[notes]) as gateway:
            asked = asyncio.create_task(ask(gateway.port, request(stream=True)))
            await until(lambda: bool(notes.progress))
            asked.cancel()
            await until(lambda: len(notes.records) == 1)
        (record,) = notes.records
        assert (record.outcome, record.admission) == ("client-left", ("admit", "fits"))
        assert 0 < record.first_token_ns <= record.finished_ns <= record.released_ns <= record.ended_ns
        assert record.ending is not None
        assert record.ending.counted

    asyncio.run(story())


@pytest.mark.parametrize(
    ("said", "ran_out"),
    [
        ("Context size has been exceeded.", True),
        ("CUDA out of memory. Tried to allocate", True),
        ("no", False),
    ],
)
def test_an_error_of_the_engine_is_noted_without_its_sentence(said: str, ran_out: bool) -> None:
    async def script(call: Call) -> None:
        error = {"error": {"message": f"{said} secret prompt", "type": "server_error", "code": 500}}
        await call.stream(WORD, event(error))

    async def story() -> None:
        notes = Notes()
        async with Engine(script) as engine, gateway_to(engine, Places(1), observers=[notes]) as gateway:
            await ask(gateway.port, request(stream=True))
            await until(lambda: len(notes.records) == 1)
            assert gateway.counters.engine_ran_out == ran_out
        (record,) = notes.records
        assert (record.outcome, record.engine_error, record.ran_out) == ("engine-error", "500", ran_out)
        assert "secret" not in repr(record)

    asyncio.run(story())


def test_a_retry_and_an_unreachable_engine_are_noted() -> None:
    async def script(call: Call) -> None:
        await call.whole()
        if len(engine.calls) == 1:
            call.writer.transport.abort()

    engine = Engine(script)

    async def story() -> None:
        notes = Notes()
        async with engine, gateway_to(engine, Places(1), observers=[notes]) as gateway:
            await ask(gateway.port, request())
            await ask(gateway.port, request())
            engine.stop_listening()
            engine.drop_connections()
            await until(lambda: gateway.pool.open_connections == 0)
            unreachable = await ask(gateway.port, request())
            await until(lambda: len(notes.records) == 3)
        assert unreachable.status == 503
        assert [record.status for record in notes.records] == [200, 200, 503]
        assert [record.outcome for record in notes.records] == ["completed", "completed", "upstream-failed"]
        assert [record.answer_bytes for record in notes.records] == [len(ANSWER), len(ANSWER), 0]

    asyncio.run(story())


def test_an_observer_that_fails_disturbs_nobody() -> None:
    async def story() -> None:
        notes = Notes()
        async with (
            Engine(Call.whole) as engine,
            gateway_to(engine, Places(1), observers=[Broken(), notes]) as gateway,
        ):
            assert (await ask(gateway.port, request())).status == 200
            await until(lambda: len(notes.records) == 1)
            assert gateway.observers is not None
            assert gateway.observers.failures == 2

    asyncio.run(story())


def test_nothing_is_noted_where_nobody_observes() -> None:
    async def story() -> None:
        async with Engine(Call.whole) as engine, gateway_to(engine, Places(1)) as gateway:
            assert gateway.observers is None
            ticket = await gateway.desk.enter(_facts({"messages": []}))
            assert ticket.record is None
            ticket.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("asked", "after_tool"),
    [
        ({"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]}, True),
        ({"messages": [{"role": "tool", "content": "b"}, {"role": "user", "content": "a"}]}, False),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "b"}]}]}, True),
        ({"messages": [7]}, False),
        ({"messages": "x"}, False),
        ({"messages": []}, False),
    ],
)
def test_a_tools_result_is_seen(asked: dict[str, object], after_tool: bool) -> None:
    assert _facts(asked).after_tool is after_tool


def test_a_tools_result_among_responses_is_seen() -> None:
    kind = kind_of(b"POST", b"/v1/responses")
    assert kind is not None
    items = [{"type": "function_call_output", "output": "b"}]
    assert facts_of(kind, {"input": items}, number=1, arrival_ns=0).after_tool


@pytest.mark.parametrize("word", ["", "llama", "m" * 64])
def test_plain_words_stay(word: str) -> None:
    assert plain_word(word) == word


def test_other_words_become_plain_and_bounded() -> None:
    assert plain_word("a\nb\x00é\u2028") == "a?b???"
    assert plain_word("x" * 100_000) == "x" * 61 + "..."


def test_the_outcome_of_one_who_left_is_that_he_left() -> None:
    assert RequestRecord(facts=_facts({"messages": []})).outcome == Ended.CLIENT_LEFT.value


def test_the_sentence_of_an_error_is_read_and_not_kept() -> None:
    reading = StreamReading()
    reading.feed(
        b"error: " + json.dumps({"code": 500, "message": "failed to find a memory slot"}).encode() + b"\n\n"
    )
    assert reading.error is not None
    assert reading.error.ran_out


def _facts(asked: dict[str, object]) -> RequestFacts:
    kind = kind_of(b"POST", b"/v1/chat/completions")
    assert kind is not None
    return facts_of(kind, asked, number=1, arrival_ns=1)
