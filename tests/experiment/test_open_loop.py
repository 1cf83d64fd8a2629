"""Requests go out when they are due, and what comes back is told as it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.client import until
from gateway.engine import DONE, EVENT_STREAM, USAGE, WORD, Call, Engine, Script, event
from vramledger.experiment.answer import Answer, Question
from vramledger.experiment.open_loop import ENDLESS, NO_OUTPUT, SILENT, OpenLoop
from vramledger.experiment.retry_after import LONGEST_RETRY_S, retry_after_s
from vramledger.gateway.settings import Upstream

BODY = json.dumps({"model": "m", "messages": [], "stream": True}).encode()


def asked(number: int, at_ms: int = 0, **more: object) -> Question:
    return Question(number=number, at_ns=at_ms * 1_000_000, body=BODY, **more)  # type: ignore[arg-type]


def answers(script: Script, questions: Iterable[Question]) -> list[Answer]:
    """All answers in the order of their ends."""
    told: list[Answer] = []

    async def story() -> None:
        async with Engine(script) as engine:
            target = Upstream(host="127.0.0.1", port=engine.port)
            await OpenLoop(target, told=told.append).run(questions)
            await until(lambda: engine.working == 0)

    asyncio.run(story())
    return told


async def streamed(call: Call) -> None:
    await call.stream(WORD, WORD, WORD, event({"choices": [], "usage": USAGE}), DONE)


def test_what_a_stream_brought() -> None:
    (answer,) = answers(streamed, [asked(7)])
    assert (answer.number, answer.status, answer.whole, answer.error) == (7, 200, True, "")
    assert (answer.prompt_tokens, answer.cached_prompt_tokens, answer.output_tokens) == (11, 7, 3)
    assert answer.events == 3
    assert 0 <= answer.sent_ns <= answer.first_token_ns <= answer.last_token_ns <= answer.end_ns
    assert answer.first_token_after_ns == answer.first_token_ns
    assert answer.token_gap_ns is not None


def test_a_late_answer_delays_no_other_request() -> None:
    async def story() -> None:
        all_came = asyncio.Event()
        told: list[Answer] = []

        async def script(call: Call) -> None:
            if len(engine.calls) == 6:
                all_came.set()
            await all_came.wait()
            await streamed(call)

        async with Engine(script) as engine, asyncio.timeout(60):
            target = Upstream(host="127.0.0.1", port=engine.port)
            # None is answered before the last has been sent.
            await OpenLoop(target, told=told.append).run(asked(number, 5 * number) for number in range(6))
        assert sorted(answer.number for answer in told) == list(range(6))
        last_sent_ns = max(answer.sent_ns for answer in told)
        assert all(answer.first_token_ns >= last_sent_ns for answer in told)
        assert all(answer.sent_ns >= answer.at_ns for answer in told)

    asyncio.run(story())


def test_a_refusal_is_heeded_as_often_as_allowed() -> None:
    async def script(call: Call) -> None:
        calls.append(call)
        if len(calls) == 1:
            await call.whole(
                b'{"error":{"code":"future-peak"}}',
                b"429 Too Many",
                b"Retry-After: 0\r\nX-Vramledger-Rule: future-peak\r\n",
            )
        else:
            await streamed(call)

    calls: list[Call] = []
    (answer,) = answers(script, [asked(1, retries=1)])
    assert (answer.attempts, answer.whole) == (2, True)
    calls.clear()
    (answer,) = answers(script, [asked(1)])
    assert (answer.attempts, answer.whole, answer.status) == (1, False, 429)
    assert (answer.error, answer.rule) == ("future-peak", "future-peak")


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ((WORD, event({"error": {"code": 500, "type": "server_error", "message": "the context is full"}})), "500"),
        ((WORD,), "the stream ended without saying so"),
    ],
)  # fmt: skip
def test_a_stream_that_began_well_may_end_badly(events: tuple[bytes, ...], error: str) -> None:
    (answer,) = answers(lambda call: call.stream(*events), [asked(1)])
    assert (answer.status, answer.whole, answer.error) == (200, False, error)


@pytest.mark.parametrize(
    "script",
    [
        lambda call: call.whole(b"<html><h1>It works!</h1></html>"),
        lambda call: call.whole(b'{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 64}}'),
        lambda call: call.stream(DONE),
        lambda call: call.stream(event({"choices": [], "usage": USAGE}), DONE),
    ],
)
def test_what_ends_well_and_says_nothing_is_no_answer(script: Script) -> None:
    (answer,) = answers(script, [asked(1)])
    assert (answer.status, answer.whole, answer.error) == (200, False, NO_OUTPUT)
    assert answer.first_token_ns == -1


def test_a_model_that_ends_at_once_has_answered() -> None:
    ended = event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    count = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}})
    (answer,) = answers(lambda call: call.stream(ended, count, DONE), [asked(1)])
    assert (answer.whole, answer.output_tokens, answer.first_token_ns) == (True, 1, -1)


async def without_end(call: Call) -> None:
    await call.write(EVENT_STREAM)
    while True:
        await call.chunk(WORD)
        await asyncio.sleep(0.001)


async def only_kept_open(call: Call) -> None:
    await call.write(EVENT_STREAM)
    while True:
        await call.chunk(b": still there\n\n")
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("script", "bound", "limits", "error"),
    [
        (without_end, {"most_events": 20}, {}, ENDLESS),
        (without_end, {}, {"longest_s": 0.3}, ENDLESS),
        (without_end, {"first_token_within_ns": 60 * 10**9}, {"longest_s": 0.3}, ENDLESS),
        (only_kept_open, {}, {"silence_s": 0.3}, SILENT),
    ],
)
def test_an_answer_without_an_end_is_waited_for_only_so_long(
    script: Script, bound: dict[str, int], limits: dict[str, float], error: str
) -> None:
    told: list[Answer] = []

    async def story() -> None:
        async with Engine(script) as engine, asyncio.timeout(60):
            target = Upstream(host="127.0.0.1", port=engine.port)
            await OpenLoop(target, told=told.append, **limits).run([asked(1, **bound)])  # type: ignore[arg-type]

    asyncio.run(story())
    assert [(answer.whole, answer.left, answer.error) for answer in told] == [(False, False, error)]


def test_an_engine_that_goes_away_is_told() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.chunk(WORD)
        call.writer.transport.abort()

    (answer,) = answers(script, [asked(1)])
    assert (answer.status, answer.whole, answer.events) == (200, False, 1)
    assert answer.error


def test_nobody_listens() -> None:
    told: list[Answer] = []
    asyncio.run(OpenLoop(Upstream(host="127.0.0.1", port=1), told=told.append).run([asked(1)]))
    assert told[0].error.startswith("client: ")
    assert told[0].status == 0


@pytest.mark.parametrize("how", [{"leaves_after_events": 2}, {"leaves_after_ns": 200_000_000}])
def test_a_client_leaves_in_the_middle(how: dict[str, int]) -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        for _ in range(3):
            await call.chunk(WORD)
        await call.left()

    (answer,) = answers(script, [asked(1, **how)])
    assert answer.left
    assert not answer.whole


def test_many_streams_at_once() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.chunk(WORD)
        if len(engine_calls) == 0:
            engine_calls.append(asyncio.Event())
        open_streams.append(call)
        if len(open_streams) == 500:
            engine_calls[0].set()
        await engine_calls[0].wait()
        await call.chunk(WORD)
        await call.chunk(DONE)
        await call.write(b"0\r\n\r\n")

    engine_calls: list[asyncio.Event] = []
    open_streams: list[Call] = []
    told = answers(script, (asked(number) for number in range(500)))
    assert len(told) == 500
    assert all(answer.whole and answer.events == 2 for answer in told)


def test_what_follows_is_asked_while_others_are_under_way() -> None:
    async def story() -> None:
        told: list[Answer] = []

        def heard(answer: Answer) -> None:
            told.append(answer)
            if answer.number < 3:
                loop.ask(asked(answer.number + 1, answer.end_ns // 1_000_000 + 5))

        async with Engine(streamed) as engine, asyncio.timeout(60):
            loop = OpenLoop(Upstream(host="127.0.0.1", port=engine.port), told=heard)
            await loop.run([asked(0), asked(9, 100)])
        assert sorted(answer.number for answer in told) == [0, 1, 2, 3, 9]
        by_number = {answer.number: answer for answer in told}
        for number in range(3):
            assert by_number[number + 1].sent_ns >= by_number[number].end_ns

    asyncio.run(story())


def test_bodies_are_made_once_and_in_time() -> None:
    made: list[int] = []

    def body_of(number: int) -> Callable[[], bytes]:
        def make() -> bytes:
            made.append(number)
            return BODY

        return make

    questions = [
        Question(number=number, at_ns=20_000_000 * number, body=body_of(number)) for number in range(8)
    ]
    told = answers(streamed, questions)
    assert all(answer.whole for answer in told)
    assert sorted(made) == list(range(8))


def test_a_server_that_goes_away_in_the_middle_ends_no_other_request() -> None:
    async def script(call: Call) -> None:
        if len(engine_calls) < 2:
            engine_calls.append(call)
            call.writer.transport.abort()
        else:
            await streamed(call)

    engine_calls: list[Call] = []
    told = answers(script, [asked(number, 50 * number) for number in range(4)])
    assert sorted(answer.number for answer in told) == list(range(4))
    assert sum(answer.whole for answer in told) >= 2


@pytest.mark.parametrize(
    ("retry_after", "date", "seconds"),
    [
        (b"0", b"", 0.0),
        (b"12", b"", 12.0),
        (b"600", b"", LONGEST_RETRY_S),
        (b"99999999999999999999", b"", None),  # nobody waits for that: it is a refusal
        (b"Mon, 30 Nov 2026 11:00:30 GMT", b"Mon, 30 Nov 2026 11:00:00 GMT", 30.0),
        (b"Mon, 30 Nov 2026 10:00:00 GMT", b"Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        (b"Mon, 30 Nov 2099 10:00:00 GMT", b"Mon, 30 Nov 2026 11:00:00 -0000", None),
        (b"Mon, 30 Nov 2026 11:00:30 GMT", b"", None),
        (b"soon", b"Mon, 30 Nov 2026 11:00:00 GMT", None),
        (b"-3", b"", None),
        (b"\xff\x00", b"\xff", None),
        (b"", b"", None),
    ],
)
def test_when_to_ask_again(retry_after: bytes, date: bytes, seconds: float | None) -> None:
    assert retry_after_s(retry_after, date) == seconds


@given(retry_after=st.binary(max_size=80), date=st.binary(max_size=80))
def test_whatever_a_server_writes_is_no_error(retry_after: bytes, date: bytes) -> None:
    found = retry_after_s(retry_after, date)
    assert found is None or 0 <= found <= LONGEST_RETRY_S
