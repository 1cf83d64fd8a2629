"""Who counts a prompt, when, at what cost; and that nothing of it is left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from gateway.client import ask, request, until
from gateway.engine import ANSWER, Call, Engine, Script
from gateway.policies import Places, Says
from vramledger.gateway.admitter import (
    Decision,
    Ended,
    Ending,
    Kind,
    PromptTokens,
    RequestFacts,
    TokenSource,
    Verdict,
)
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.request_facts import BadBody, facts_of, read_body
from vramledger.gateway.settings import Upstream
from vramledger.gateway.tokens.chat_template import ChatTemplate
from vramledger.gateway.tokens.circuit import Circuit
from vramledger.gateway.tokens.counter import Counting
from vramledger.gateway.tokens.local_tokenizer import LocalTokenizer
from vramledger.gateway.tokens.settings import Ask, CountingSettings
from vramledger.gateway.upstream_asking import UpstreamAsking

CHATML = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}|{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
TEXT = "a prompt of some words "


@asynccontextmanager
async def counting(
    server: Engine | None = None, tokenizer: LocalTokenizer | None = None, **more: object
) -> AsyncIterator[Counting]:
    told = {"engine": "vllm", "within_ms": 30_000, "block_size": 4, **more}
    asking = [UpstreamAsking(Upstream(host="127.0.0.1", port=server.port))] if server else []
    one = Counting(CountingSettings(**told), asking=asking, tokenizer=tokenizer)  # type: ignore[arg-type]
    try:
        yield one
    finally:
        one.close()
        for each in asking:
            each.close()
            await until(lambda: all(each.open_connections == 0 for each in asking))
        assert all(each.pending == 0 for each in one.engines)


def facts(asked: Mapping[str, object], *, number: int = 1, kind: Kind = Kind.COMPLETION) -> RequestFacts:
    return facts_of(kind, read_body(json.dumps(asked).encode()), number=number, arrival_ns=0)


async def counted(
    one: Counting, asked: Mapping[str, object], *, number: int = 1, kind: Kind = Kind.COMPLETION
) -> PromptTokens:
    told = await one.count(asked, facts(asked, number=number, kind=kind))
    assert told is not None
    return told


def answering(*ids: int) -> Script:
    async def script(call: Call) -> None:
        await call.whole(json.dumps({"count": len(ids), "max_model_len": 9, "tokens": list(ids)}).encode())

    return script


def bytes_tokenizer(template: str | None = None) -> LocalTokenizer:
    """One token a byte."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    one = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(letters)}, merges=[]))
    one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return LocalTokenizer(one, ChatTemplate(template) if template else None)


def test_the_engines_count_is_taken_once_for_each_prompt_of_a_tenant() -> None:
    async def run() -> None:
        async with (
            Engine(answering(5, 6, 7, 8, 9)) as engine,
            counting(engine, ask=Ask.ALWAYS, keys=True) as one,
        ):
            asked = {"model": "m", "prompt": TEXT, "max_tokens": 3}
            told = await counted(one, asked)
            assert (told.tokens, told.most_tokens, told.source, len(told.keys)) == (
                5,
                5,
                TokenSource.ENGINE,
                1,
            )
            assert await counted(one, {**asked, "max_tokens": 4, "temperature": 1}, number=2) == told
            assert len(engine.calls) == 1
            assert engine.calls[0].path == "/tokenize"
            assert json.loads(engine.calls[0].body) == {
                "model": "m", "prompt": TEXT, "add_special_tokens": True
            }  # fmt: skip
            other = await one.count(
                asked, RequestFacts(number=3, kind=Kind.COMPLETION, model="m", prompt_bytes=9, tenant=4)
            )
            assert other is not None
            assert set(other.keys).isdisjoint(told.keys)
            assert (
                len(engine.calls) == 2
            )  # what one tenant sent is not told to another, not even by the time it takes

    asyncio.run(run())


def test_only_what_is_uncertain_is_asked() -> None:
    async def run() -> None:
        async with Engine(answering(1)) as engine, counting(engine, unsure_tokens=100) as one:
            # As long as nothing is known, the estimate's error is not either: also a short prompt is asked about.
            short = await counted(one, {"prompt": "a few words"})
            assert (short.source, len(engine.calls)) == (TokenSource.ENGINE, 1)
            long = await counted(one, {"prompt": TEXT * 40}, number=2)
            assert (long.source, len(engine.calls)) == (TokenSource.ENGINE, 2)
            # Once lengths are known well enough, nobody is asked for what they say.
            for number in range(3, 200):
                asked = {"prompt": TEXT * (number % 50 + 1)}
                known = facts(asked, number=number)
                await one.count(asked, known)
                one.learn(known, Ending(how=Ended.COMPLETED, prompt_tokens=6 * (number % 50 + 1)))
            calls = len(engine.calls)
            told = await counted(one, {"prompt": TEXT * 47}, number=200)
            assert (told.source, len(engine.calls)) == (TokenSource.LEARNED, calls)
            assert told.tokens == pytest.approx(282, abs=6)
            assert told.most_tokens - told.tokens < 100
            assert told.observations == 197

    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "asked_times"), [(b"404 Not Found", 1), (b"500 Error", 3), (b"422 Bad", 8)]
)
def test_an_engine_without_the_endpoint_or_that_fails_is_left_alone(status: bytes, asked_times: int) -> None:
    async def run() -> None:
        async with (
            Engine(lambda call: call.whole(b"{}", status=status)) as engine,
            counting(engine, ask=Ask.ALWAYS, pause_ms=600_000) as one,
        ):
            for number in range(12):
                told = await counted(one, {"prompt": TEXT}, number=number)
                assert told.source is TokenSource.LEARNED
            assert len(engine.calls) == asked_times
            assert one.engines[0].tally.not_asked == 12 - asked_times
            # It may have the endpoint for another kind of request.
            await counted(one, {"messages": [{"role": "user", "content": TEXT}]}, number=20, kind=Kind.CHAT)
            assert len(engine.calls) == asked_times + 1

    asyncio.run(run())


def test_after_a_pause_one_question_finds_out() -> None:
    circuit = Circuit(1000)
    for _ in range(2):
        circuit.failed(0.0)
        assert circuit.allows(0.0)
    circuit.failed(0.0)
    assert not circuit.allows(0.9)
    assert circuit.allows(1.0)
    assert not circuit.allows(1.1)  # the one is under way
    circuit.succeeded()
    assert circuit.allows(1.1)
    circuit.failed(1.2)
    assert circuit.allows(1.2)
    circuit.missing(2.0)
    assert not circuit.allows(11.9)
    assert circuit.allows(12.0)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"tokens":5}', b'{"tokens":["a"]}', b"{" * 5000, b'{"tokens":[1,2.5]}', b'{"count":3}'],
)
def test_an_answer_of_another_form_is_no_count(body: bytes) -> None:
    async def run() -> None:
        async with Engine(lambda call: call.whole(body)) as engine, counting(engine, ask=Ask.ALWAYS) as one:
            told = await counted(one, {"prompt": TEXT})
            assert told.source is TokenSource.LEARNED
            assert one.engines[0].tally.failed == 1

    asyncio.run(run())


def test_a_slow_engine_is_not_waited_for_and_a_client_that_goes_takes_its_question_along() -> None:
    async def run() -> None:
        async with Engine(Call.left) as engine, counting(engine, ask=Ask.ALWAYS, within_ms=50) as one:
            told = await counted(one, {"prompt": TEXT})
            assert told.source is TokenSource.LEARNED
            assert one.engines[0].tally.late == 1
            await until(lambda: engine.working == 0)
        async with Engine(Call.left) as engine, counting(engine, ask=Ask.ALWAYS, waiting=2) as one:
            tasks = [
                asyncio.create_task(counted(one, {"prompt": TEXT, "x": at}, number=at)) for at in range(5)
            ]
            await until(lambda: engine.working == 2 and sum(task.done() for task in tasks) == 3)
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert sorted(type(one).__name__ for one in done) == ["CancelledError"] * 2 + ["PromptTokens"] * 3
            await until(lambda: engine.working == 0)
            assert set(one._noted) == {at for at, each in enumerate(done) if isinstance(each, PromptTokens)}

    asyncio.run(run())


def test_a_client_that_leaves_while_its_prompt_is_counted_was_never_there() -> None:
    async def script(call: Call) -> None:
        if call.path == "/tokenize":
            await call.left()
        else:
            await call.whole()

    async def run() -> None:
        policy = Places(1)
        async with Engine(script) as engine, counting(engine, ask=Ask.ALWAYS) as one:
            gateway = Gateway(Upstream(host="127.0.0.1", port=engine.port), policy, counter=one)
            await gateway.start("127.0.0.1", 0)
            for _ in range(5):
                _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
                writer.write(request())
                await until(lambda: engine.working == 1)
                writer.transport.abort()
                await until(lambda: engine.working == 0)
            await until(lambda: not gateway.connections)
            assert not policy.facts
            assert gateway.held.bytes == gateway.desk.admitted == gateway.desk.waiting == 0
            assert not one._noted
            await gateway.close()

    asyncio.run(run())


@pytest.mark.parametrize(("verdict", "status"), [(Verdict.ADMIT, 200), (Verdict.NEVER_FITS, 400)])
def test_an_answer_says_how_its_prompt_was_counted_whether_it_was_let_in_or_not(
    verdict: Verdict, status: int
) -> None:
    async def script(call: Call) -> None:
        await call.whole(b'{"tokens":[1,2,3]}' if call.path == "/tokenize" else ANSWER)

    async def run() -> None:
        async with Engine(script) as engine, counting(engine, ask=Ask.ALWAYS) as one:
            policy = Says(Decision(verdict=verdict, rule="r"))
            gateway = Gateway(Upstream(host="127.0.0.1", port=engine.port), policy, counter=one)
            await gateway.start("127.0.0.1", 0)
            answer = await ask(gateway.port, request())
            assert answer.status == status
            assert answer.headers["x-vramledger-prompt-tokens"] == "3; most=3; by=engine"
            await gateway.close()

    asyncio.run(run())


def test_a_tokenizer_beside_the_gateway_counts_what_it_has_all_of() -> None:
    async def run() -> None:
        async with counting(tokenizer=bytes_tokenizer(CHATML), keys=True, ask=Ask.NEVER) as one:
            text = await counted(one, {"prompt": ["häh", "a"]})
            assert (text.tokens, text.source, text.keys) == (4, TokenSource.TOKENIZER, ())
            messages = [
                {"role": "u", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
            ]
            chat = await counted(one, {"messages": messages}, number=2, kind=Kind.CHAT)
            assert (chat.tokens, chat.most_tokens) == (len("<u>a\nb|<a>"),) * 2
            assert len(chat.keys) == chat.tokens // 4
            other = await counted(
                one, {"messages": messages, "add_generation_prompt": False}, number=3, kind=Kind.CHAT
            )
            assert other.tokens == chat.tokens - 3
            assert other.keys == chat.keys[: len(other.keys)]

    asyncio.run(run())


def test_a_tokenizer_without_a_template_learns_what_the_template_adds() -> None:
    async def run() -> None:
        async with counting(tokenizer=bytes_tokenizer(), ask=Ask.NEVER) as one:
            for number in range(60):
                asked = {"messages": [{"role": "user", "content": "x" * (3 * number)}] * (number % 4 + 1)}
                told = facts(asked, number=number, kind=Kind.CHAT)
                prompt = await one.count(asked, told)
                assert prompt is not None
                actual = (3 * number + 9) * (number % 4 + 1) + 7
                assert actual <= prompt.most_tokens
                one.learn(told, Ending(how=Ended.COMPLETED, prompt_tokens=actual))
            prompt = await counted(
                one, {"messages": [{"role": "user", "content": "x" * 99}] * 3}, number=99, kind=Kind.CHAT
            )
            assert prompt.source is TokenSource.LEARNED  # its text was counted, its template was not
            assert prompt.tokens == pytest.approx(331, abs=2)
            assert prompt.most_tokens < 345

    asyncio.run(run())


def test_a_count_that_the_engine_contradicts_is_trusted_less() -> None:
    async def run() -> None:
        async with counting(tokenizer=bytes_tokenizer(), ask=Ask.NEVER) as one:
            for number in range(60):
                asked = {"prompt": "x" * (100 + number)}
                told = facts(asked, number=number)
                await one.count(asked, told)
                one.learn(told, Ending(how=Ended.COMPLETED, prompt_tokens=110 + number + (number % 3 == 0)))
            prompt = await counted(one, {"prompt": "x" * 200}, number=99)
            assert prompt.tokens == 200
            assert 210 <= prompt.most_tokens <= 240
            assert one.tally.wrong == 60

    asyncio.run(run())


def test_images_are_counted_by_nobody_and_the_bound_says_so() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}
    asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": "what is this"}, image]}]}

    async def run() -> None:
        async with (
            Engine(answering(1)) as engine,
            counting(engine, ask=Ask.ALWAYS, context_tokens=50_000) as one,
        ):
            told = await counted(one, asked, kind=Kind.CHAT)
            assert (told.source, told.most_tokens, engine.calls) == (TokenSource.LEARNED, 50_000, [])
            assert told.tokens > 500
            hidden = await counted(
                one, {"input": "and then?", "previous_response_id": "r"}, number=2, kind=Kind.RESPONSE
            )
            assert hidden.most_tokens == 50_000
        async with counting(context_tokens=None) as one:
            assert (await counted(one, asked, kind=Kind.CHAT)).most_tokens > 32_768

    asyncio.run(run())


def test_tokens_that_the_client_sent_get_keys_and_keep_their_count() -> None:
    async def run() -> None:
        async with counting(keys=True) as one:
            prompt = {"prompt": list(range(10))}
            told = await counted(one, prompt)
            assert (told.tokens, told.source, len(told.keys)) == (10, TokenSource.TOKEN_IDS, 2)
            assert await counted(one, {"prompt": [list(range(10))]}) == told
            assert (await counted(one, {"prompt": [list(range(10)), [1]]})).keys == ()

    asyncio.run(run())


def test_vllm_cuts_prompts_where_it_is_told_to() -> None:
    async def run() -> None:
        async with (
            Engine(answering(*range(40))) as engine,
            counting(engine, ask=Ask.ALWAYS, keys=True) as one,
        ):
            told = await counted(one, {"prompt": TEXT, "truncate_prompt_tokens": 9})
            assert (told.tokens, told.most_tokens, told.keys) == (9, 9, ())
            for kind in (Kind.RESPONSE, Kind.MESSAGE):  # they have no such member
                asked = {"input": TEXT, "messages": [{"role": "user", "content": TEXT}]}
                told = await counted(one, {**asked, "truncate_prompt_tokens": 1}, kind=kind)
                assert told.most_tokens > 1

    asyncio.run(run())


def test_long_texts_are_tokenized_beside_the_loop_and_only_so_many_at_once() -> None:
    async def run() -> None:
        async with counting(tokenizer=bytes_tokenizer(), ask=Ask.NEVER, waiting=3) as one:
            asked = [{"prompt": letter * 60_000} for letter in "abcdefg"]
            told = await asyncio.gather(*(counted(one, each, number=at) for at, each in enumerate(asked)))
            assert {each.tokens for each in told if each.source is TokenSource.TOKENIZER} == {60_000}
            assert sum(each.source is TokenSource.LEARNED for each in told) == 4
            await until(lambda: one._off_loop.pending == 0)

    asyncio.run(run())


values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "text", "type", "tool_calls", "function", "arguments", "image_url", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
bodies = st.dictionaries(
    st.sampled_from(
        ["model", "messages", "prompt", "input", "tools", "system", "chat_template_kwargs", "documents", "cache_salt",
         "truncate_prompt_tokens", "add_special_tokens", "continue_final_message", "lora", "previous_response_id"]
    ),
    values,
    max_size=6,
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(
    asked=bodies,
    kind=st.sampled_from(Kind),
    engine=st.sampled_from(["vllm", "sglang", "llamacpp", "tensorrt-llm", ""]),
)
def test_any_json_is_counted_or_not(asked: dict[str, object], kind: Kind, engine: str) -> None:
    async def run() -> None:
        one = Counting(
            CountingSettings(engine=engine, ask=Ask.ALWAYS, keys=True), tokenizer=bytes_tokenizer(CHATML)
        )
        try:
            told = facts(asked, kind=kind)
        except BadBody:
            return
        prompt = await one.count(asked, told)
        assert one.tally.failures == 0
        assert prompt is None or 0 <= prompt.tokens <= prompt.most_tokens
        one.learn(told, Ending(how=Ended.COMPLETED, prompt_tokens=3))
        one.close()

    asyncio.run(run())


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
@pytest.mark.parametrize(
    "value",
    [
        "deep",
        [["a"] * 1000] * 40,
        [{"role": "user", "content": "half \ud800 of a character"}],
        [{"role": "user", "content": 10**400}],
        ["x" * 1_000_000],
    ],
)
def test_monstrous_prompts_are_no_trouble(engine: str, value: object) -> None:
    if value == "deep":
        value = []
        for _ in range(5000):
            value = [value]

    async def run() -> None:
        async with (
            Engine(answering(1)) as fake,
            counting(fake, bytes_tokenizer(CHATML), engine=engine, ask=Ask.ALWAYS) as one,
        ):
            for at, (kind, name) in enumerate(
                [
                    (Kind.CHAT, "messages"),
                    (Kind.COMPLETION, "prompt"),
                    (Kind.RESPONSE, "input"),
                    (Kind.MESSAGE, "messages"),
                ]
            ):
                told = RequestFacts(number=at, kind=kind, model="m", prompt_bytes=2_000_000)
                prompt = await one.count({name: value}, told)
                assert prompt is not None
                assert one.tally.failures == 0

    asyncio.run(run())
