"""A stage sent to a live engine: turns follow real ends and carry real answers, shared texts are found, others are not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from gateway.engine import DONE, EVENT_STREAM, Call, Engine, Script, event
from llamacpp_server import llamacpp_server, needs_llamacpp
from vramledger.errors import InputError
from vramledger.experiment.load import Server, run_load
from vramledger.experiment.plan import ExperimentPlan, Kind
from vramledger.experiment.shapes import stage_requests
from vramledger.gateway.settings import Upstream
from vramledger.workload.request import Request, WorkloadHeader

MS = 1_000_000
HEADER = WorkloadHeader(name="test", source="test", block_tokens=16)


@contextmanager
def engine(script: Script) -> Iterator[Engine]:
    """The tests' engine, on a thread of its own."""
    up, done = threading.Event(), threading.Event()
    made: list[Engine] = []

    async def story() -> None:
        async with Engine(script) as here:
            made.append(here)
            up.set()
            while not done.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(story()))
    thread.start()
    try:
        assert up.wait(30)
        yield made[0]
    finally:
        done.set()
        thread.join(30)


def server(port: int, name: str = "vllm") -> Server:
    return Server(upstream=Upstream(host="127.0.0.1", port=port), model="m", engine=name, vocab_size=4096)


def asked(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call.body)
    return found


async def answers_with_ids(call: Call) -> None:
    """As many tokens as asked for, numbered from 10,000 on, an event each."""
    body = asked(call)
    words = [
        event({"choices": [{"index": 0, "text": f" {number}", "token_ids": [10_000 + number]}]})
        for number in range(body["max_tokens"])
    ]
    usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
    await call.stream(*words, event({"choices": [], "usage": usage}), DONE)


def turns(*tokens: tuple[int, int], pause_ns: int = 0) -> list[Request]:
    """A conversation of (prompt, output) that is never rewritten."""
    made: list[Request] = []
    for number, (prompt, output) in enumerate(tokens):
        following = tokens[number + 1][0] if number + 1 < len(tokens) else prompt
        known = max(min(prompt + output, following), prompt)
        made.append(
            Request(
                arrival_ns=number,
                prompt_tokens=prompt,
                output_tokens=output,
                blocks=tuple(range(known // 16)),
                conversation=1,
                parent=number - 1 if number else None,
                pause_ns=pause_ns if number else 0,
            )
        )
    return made


def test_a_turn_is_the_parents_prompt_its_real_answer_and_more() -> None:
    with engine(answers_with_ids) as here:
        requests = turns((40, 7), (60, 5), (100, 3))
        run = run_load(server(here.port), HEADER, requests, seed=3, retries=0)
        prompts = [asked(call)["prompt"] for call in here.calls]
    assert [len(prompt) for prompt in prompts] == [40, 60, 100]
    assert prompts[1][:47] == prompts[0] + [10_000 + number for number in range(7)]
    assert prompts[2][:65] == prompts[1] + [10_000 + number for number in range(5)]
    assert all(one.whole for one in run.served)
    assert [one.asked_prompt_tokens for one in run.served] == [one.prompt_tokens for one in run.served]
    assert not any("did not tell" in note for note in run.notes)


def test_an_answer_that_is_not_told_is_noted() -> None:
    async def script(call: Call) -> None:
        await call.stream(event({"choices": [{"index": 0, "text": " a"}]}), DONE)

    with engine(script) as here:
        run = run_load(server(here.port), HEADER, turns((40, 1), (60, 1)), seed=3, retries=0)
        lengths = [len(asked(call)["prompt"]) for call in here.calls]
    assert lengths == [40, 60]
    assert "did not tell what they said" in run.notes[0]


def test_a_turn_waits_for_its_parents_real_end_and_then_for_its_pause() -> None:
    async def script(call: Call) -> None:
        while len(here.calls) < 2:  # the first answer ends after another request came
            await asyncio.sleep(0.01)
        await answers_with_ids(call)

    requests = [
        *turns((40, 7), (60, 5), pause_ns=30 * MS),
        Request(arrival_ns=MS, prompt_tokens=8, output_tokens=1),
    ]
    with engine(script) as here:
        run = run_load(server(here.port), HEADER, requests, seed=3, retries=0)
    first, second, other = run.served
    assert second.due_ns == first.end_ns + 30 * MS
    assert second.sent_ns >= second.due_ns
    assert other.due_ns == MS
    assert other.sent_ns < first.end_ns


def test_texts_are_equal_as_far_as_identities_are_and_no_further() -> None:
    requests = [
        Request(arrival_ns=0, prompt_tokens=64, output_tokens=1, blocks=(5, 6, 7)),
        Request(arrival_ns=1, prompt_tokens=64, output_tokens=1, blocks=(5, 6, 8)),
        Request(arrival_ns=2, prompt_tokens=64, output_tokens=1, blocks=(5, 6, 7), boundary=1),
    ]
    with engine(answers_with_ids) as here:
        run_load(server(here.port), HEADER, requests, seed=3, retries=0, salt=7)
        run_load(server(here.port), HEADER, requests[:1], seed=3, retries=0, salt=7)
        run_load(server(here.port), HEADER, requests[:1], seed=4, retries=0, salt=7)
        run_load(server(here.port), HEADER, requests[:1], seed=3, retries=0)
        one, same, bounded, again, seeded, salted = (asked(call)["prompt"] for call in here.calls)
    assert one[:32] == same[:32]
    assert one[32:48] != same[32:48]
    assert one[48:] != same[48:]
    assert one[:16] != bounded[:16]
    assert one == again
    assert one[:16] != seeded[:16]
    assert one[:16] != salted[:16]
    assert all(1000 <= token < 4096 for token in (*one, *same, *bounded))


@pytest.mark.parametrize(
    ("leaves", "events"),
    [
        ({"cancel_ns": 300 * MS}, 1),
        ({"deadline_ns": 300 * MS}, 1),
        ({"first_token_deadline_ns": 300 * MS}, 0),
    ],
)
def test_a_client_leaves_when_its_time_is_over(leaves: dict[str, Any], events: int) -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        if events:
            await call.chunk(event({"choices": [{"index": 0, "text": "a"}]}))
        await call.left()

    with engine(script) as here:
        request = Request(arrival_ns=0, prompt_tokens=8, output_tokens=9, **leaves)
        (row,) = run_load(server(here.port), HEADER, [request], seed=1, retries=0).served
    assert row.left
    assert not row.whole
    # On a machine that is slow to begin the client has left before the first piece, rightly.
    assert row.events in (0, events)
    assert row.end_ns - row.due_ns >= 300 * MS


def test_a_first_token_in_time_keeps_its_client() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.chunk(event({"choices": [{"index": 0, "text": "a"}]}))
        await asyncio.sleep(1.5)
        await call.chunk(DONE)
        await call.write(b"0\r\n\r\n")

    with engine(script) as here:
        request = Request(
            arrival_ns=0, prompt_tokens=8, output_tokens=1, first_token_deadline_ns=1_000 * MS, deadline_ns=60_000 * MS
        )  # fmt: skip
        (row,) = run_load(server(here.port), HEADER, [request], seed=1, retries=0).served
    # On a machine that is slow to begin the client has left, rightly.
    assert row.whole or row.ttft_ns is None or row.ttft_ns > 1_000 * MS


def test_who_is_refused_and_has_no_more_time_was_refused() -> None:
    async def script(call: Call) -> None:
        await call.whole(b"{}", b"429 Too Many", b"Retry-After: 30\r\n")

    with engine(script) as here:
        request = Request(arrival_ns=0, prompt_tokens=8, output_tokens=9, deadline_ns=500 * MS)
        (row,) = run_load(server(here.port), HEADER, [request], seed=1, retries=3).served
    assert (row.status, row.left, row.whole, row.attempts) == (429, False, False, 1)


def test_what_is_stopped_leaves_at_once_and_says_so() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.left()

    with engine(script) as here:
        requests = [
            Request(arrival_ns=0, prompt_tokens=8, output_tokens=9),
            Request(arrival_ns=3_600_000 * MS, prompt_tokens=8, output_tokens=9),
        ]
        told: list[int] = []
        run = run_load(
            server(here.port), HEADER, requests, seed=1, retries=0, told=lambda row: told.append(row.number), stop=lambda: bool(here.calls)
        )  # fmt: skip
    assert not run.is_whole
    assert [(row.number, row.left, row.error) for row in run.served] == [(0, True, "stopped")]
    assert told == [0]


def test_what_is_under_way_is_waited_for_when_no_more_is_sent() -> None:
    is_enough = threading.Event()

    async def script(call: Call) -> None:
        is_enough.set()
        await asyncio.sleep(1.0)
        await answers_with_ids(call)

    with engine(script) as here:
        first = Request(arrival_ns=0, prompt_tokens=8, output_tokens=9)
        follows = Request(arrival_ns=0, prompt_tokens=32, output_tokens=9, parent=0, pause_ns=0)
        later = Request(arrival_ns=3_600_000 * MS, prompt_tokens=8, output_tokens=9)
        run = run_load(
            server(here.port), HEADER, [first, follows, later], seed=1, retries=0, stop_sending=is_enough.is_set
        )  # fmt: skip
    assert not run.is_whole
    assert [(row.number, row.whole, row.left) for row in run.served] == [(0, True, False)]


def test_a_parent_that_comes_later_is_refused() -> None:
    requests = [Request(arrival_ns=0, prompt_tokens=8, output_tokens=9, parent=0)]
    with pytest.raises(InputError, match="follows request 0"):
        run_load(server(1), HEADER, requests, seed=1, retries=0)


@pytest.fixture(scope="module")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """llama.cpp's server with two sequences of one pool of 4,096 cells."""
    with llamacpp_server(tmp_path_factory.mktemp("server"), "-c", "4096", "-np", "2", "--kv-unified") as port:
        yield port


@needs_llamacpp
def test_llamacpp_finds_what_is_shared_and_what_grew(llamacpp: int) -> None:
    real = Server(
        upstream=Upstream(host="127.0.0.1", port=llamacpp), model="m", engine="llamacpp", vocab_size=49152
    )

    def sent(requests: list[Request]) -> tuple[Any, ...]:
        run = run_load(real, HEADER, requests, seed=9, retries=0, salt=1)
        assert all(row.whole for row in run.served), run.served
        assert all(row.prompt_tokens == row.asked_prompt_tokens for row in run.served)
        assert all(row.output_tokens == row.asked_output_tokens for row in run.served)
        return run.served

    # A turn finds all of the turn before but the last token, whose logits begin the answer and are not kept.
    first, second, third = sent(turns((90, 20), (150, 10), (200, 4)))
    assert (first.cached_prompt_tokens, second.cached_prompt_tokens) == (0, 109)
    assert third.cached_prompt_tokens == 159

    def one_by_one(blocks: Callable[[int], tuple[int, ...]]) -> list[int | None]:
        requests = [
            Request(arrival_ns=0, prompt_tokens=100, output_tokens=2, blocks=blocks(number))
            for number in range(3)
        ]
        return [sent([request])[0].cached_prompt_tokens for request in requests]

    assert one_by_one(lambda number: (1000, 1001, 1002, 1003))[1:] == [99, 99]
    missed = [
        row.cached_prompt_tokens
        for row in sent([Request(arrival_ns=0, prompt_tokens=100, output_tokens=2) for _ in range(3)])
    ]
    assert missed == [0, 0, 0]


@needs_llamacpp
def test_an_engine_that_nobody_knows_is_sent_text_and_finds_what_grew(llamacpp: int) -> None:
    unknown = Server(upstream=Upstream(host="127.0.0.1", port=llamacpp), model="m")
    requests = turns((60, 12), (90, 8), (120, 4))
    run = run_load(unknown, HEADER, requests, seed=2, retries=0)
    assert all(row.whole for row in run.served)
    for before, row in pairwise(run.served):
        assert abs((row.prompt_tokens or 0) - row.asked_prompt_tokens) <= 2
        assert before.prompt_tokens is not None
        # The answer's text may be cut into other tokens than it was made of, so that much more is found is not sure.
        assert (row.cached_prompt_tokens or 0) >= before.prompt_tokens - 1
    assert "270 tokens were wanted" in run.notes[0]


@needs_llamacpp
def test_llamacpp_serves_a_stage_of_each_kind(llamacpp: int) -> None:
    plan = ExperimentPlan()
    real = Server(
        upstream=Upstream(host="127.0.0.1", port=llamacpp), model="m", engine="llamacpp", vocab_size=49152
    )
    for kind in (Kind.SHORT, Kind.TOOLS):
        header, requests = stage_requests(
            plan, kind, per_s=4.0, seconds=1.0, seed=2, context_len=256, pool_tokens=2048, source=None
        )
        run = run_load(real, header, requests, seed=2, retries=0, kind=kind.value)
        assert len(run.served) == len(requests) > 0
        assert all(row.whole and row.kind == kind.value for row in run.served), run.served
        assert run.loop_late_ns.count > 0
