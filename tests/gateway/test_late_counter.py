"""Counting that begins when an engine is known, and what is learned later of how long prompts can be."""

from __future__ import annotations

import asyncio

from gateway.engine import Call, Engine
from vramledger.gateway.admitter import PromptTokens
from vramledger.gateway.config_sections import TokensSection
from vramledger.gateway.late_counter import LateCounter
from vramledger.gateway.request_facts import facts_of, kind_of
from vramledger.gateway.settings import upstream_from_url
from vramledger.gateway.snapshot import InstanceState
from vramledger.gateway.tokens.settings import Ask

LETTERS = 20_000
UPSTREAMS = [upstream_from_url(url) for url in ("http://a:1", "http://b:1")]


async def counted(counter: LateCounter, letters: int = LETTERS) -> PromptTokens | None:
    kind = kind_of(b"POST", b"/v1/completions")
    assert kind is not None
    asked = {"prompt": "a" * letters}
    return await counter.count(asked, facts_of(kind, asked, number=1, arrival_ns=0))


def most(counter: LateCounter) -> int:
    told = asyncio.run(counted(counter))
    assert told is not None
    return told.most_tokens


def test_a_prompt_is_no_longer_than_the_engines_take_as_soon_as_all_have_told() -> None:
    counter = LateCounter(TokensSection(ask=Ask.NEVER), UPSTREAMS)
    nobody, vllm = InstanceState(name="x"), InstanceState(name="x", engine="vllm", block_size=16)
    counter.engines_known([nobody, nobody], [None, None])
    assert asyncio.run(counted(counter)) is None
    counter.engines_known([nobody, vllm], [None, 6000])
    assert most(counter) >= LETTERS
    counter.engines_known([vllm, vllm], [8192, 6000])
    assert most(counter) == 8192
    asyncio.run(counter.close())


def test_engines_of_another_kind_say_nothing_of_its_prompts() -> None:
    counter = LateCounter(TokensSection(ask=Ask.NEVER), UPSTREAMS)
    one, other = InstanceState(name="a", engine="vllm"), InstanceState(name="b", engine="llamacpp")
    counter.engines_known([one, other], [6000, None])
    assert most(counter) == 6000
    asyncio.run(counter.close())


def test_what_became_of_the_questions_to_engines_is_told() -> None:
    async def story() -> None:
        async def script(call: Call) -> None:
            await call.whole(b'{"tokens": [1, 2, 3]}')

        async with Engine(script) as engine:
            upstream = upstream_from_url(f"http://127.0.0.1:{engine.port}")
            counter = LateCounter(TokensSection(ask=Ask.ALWAYS, within_ms=30_000), [upstream])
            assert counter.state() == {}
            counter.engines_known([InstanceState(name="a", engine="vllm", block_size=16)], [6000])
            told = await counted(counter, 100)
            assert told is not None and told.tokens == 3
            state = counter.state()
            assert state["engine"] == 1
            [asked] = state["engines"]
            assert (asked["asked"], asked["answered"], asked["failed"]) == (1, 1, 0)
            await counter.close()

    asyncio.run(story())
