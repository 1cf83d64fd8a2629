"""Counts beside what llama.cpp's own server reports of the same prompts: by its endpoints, and by its model's tokenizer beside the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.client import ask
from gateway.policies import Places
from llamacpp_server import llamacpp_server, needs_llamacpp
from small_models import served_model_file
from vramledger.gateway.admitter import Kind, PromptTokens, TokenSource
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.request_facts import facts_of
from vramledger.gateway.settings import Upstream
from vramledger.gateway.tokens.chat_template import ChatTemplate
from vramledger.gateway.tokens.counter import Counting
from vramledger.gateway.tokens.local_tokenizer import LocalTokenizer, local_tokenizer
from vramledger.gateway.tokens.settings import Ask, CountingSettings
from vramledger.gateway.upstream_asking import UpstreamAsking

pytestmark = needs_llamacpp

HAIKU = "An old silent pond; a frog jumps into the pond, splash! Silence again. 12345 × 0.5 = 6172.5 — 古池や蛙飛び込む水の音 "
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "You are terse."}, {"role": "user", "content": HAIKU}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}, {"role": "user", "content": "d"}],
    [{"role": "user", "content": "signs <|im_end|>\n<|im_start|>assistant\n inside"}],
    [{"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "parts"}]}],
    [{"role": "user", "content": "  spaces\n\n\n\tand tabs  "}, {"role": "assistant", "content": "ok 😀"}, {"role": "user", "content": "🙂" * 5}],
]  # fmt: skip
TEXTS = [
    "a",
    HAIKU,
    "def f(x):\n    return x ** 2\n" * 12,
    "<|im_start|>user\nHi<|im_end|>",
    "naïve café ½ ١٢٣",
    "\x00\x01",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with llamacpp_server(tmp_path_factory.mktemp("live"), "-c", "2048", "-np", "1") as port:
        yield port


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> LocalTokenizer:
    """As a folder of the hub has it: tokenizer.json and a configuration with the template."""
    from gateway.tokens.gguf_tokenizer import tokenizer_of

    model = served_model_file()
    assert model is not None
    folder = tmp_path_factory.mktemp("model")
    read, template = tokenizer_of(model)
    read.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "eos_token": "<|im_end|>"})
    )
    return local_tokenizer(folder)


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    *(("/v1/chat/completions", {"messages": chat}) for chat in CHATS),
    ("/v1/chat/completions", {"messages": CHATS[2], "add_generation_prompt": False}),
    *(("/v1/completions", {"prompt": text}) for text in TEXTS),
    ("/v1/completions", {"prompt": [12, "ab", 13]}),
    ("/completion", {"prompt": TEXTS[1], "n_predict": 1}),
    ("/v1/responses", {"input": HAIKU, "max_output_tokens": 1}),
    ("/v1/messages", {"messages": [{"role": "user", "content": HAIKU}], "system": "You are terse."}),
]


@pytest.fixture(scope="module")
def served(server: int) -> tuple[Places, Counting]:
    """All requests through a gateway that counts them by the engine's endpoints."""

    async def run() -> tuple[Places, Counting]:
        asking = UpstreamAsking(Upstream(host="127.0.0.1", port=server))
        told = CountingSettings(engine="llamacpp", ask=Ask.ALWAYS, keys=True, within_ms=60_000)
        counter, policy = Counting(told, asking=[asking]), Places(1)
        gateway = Gateway(Upstream(host="127.0.0.1", port=server), policy, counter=counter)
        gateway.reads_as("llamacpp")
        await gateway.start("127.0.0.1", 0)
        try:
            for path, asked in REQUESTS:
                body = json.dumps({"max_tokens": 1, **asked}).encode()
                head = f"POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: {len(body)}\r\n\r\n"
                answer = await ask(gateway.port, head.encode() + body)
                assert answer.status == 200, answer.body
                prompt = policy.facts[len(policy.facts)].prompt
                assert prompt is not None
                said = f"{prompt.tokens}; most={prompt.most_tokens}; by=engine"
                assert answer.headers["x-vramledger-prompt-tokens"] == said
        finally:
            await gateway.close()
            asking.close()
        counter.close()
        return policy, counter

    return asyncio.run(run())


def test_by_its_endpoints_each_prompt_is_counted_as_the_engine_counts_it(
    served: tuple[Places, Counting],
) -> None:
    policy, counter = served
    for number, (path, asked) in enumerate(REQUESTS, 1):
        facts, ending = policy.facts[number], policy.endings[number]
        prompt = facts.prompt
        assert prompt is not None
        reported = ending.prompt_tokens
        assert (prompt.source, prompt.tokens, prompt.most_tokens) == (
            TokenSource.ENGINE,
            reported,
            reported,
        ), asked
        has_ids = path not in ("/v1/responses", "/v1/messages")
        assert len(prompt.keys) == (prompt.tokens // 16 if has_ids else 0)
        assert (facts.max_output_tokens, ending.output_tokens) == (1, 1)
    assert counter.tally.wrong == counter.tally.above == counter.tally.failures == 0
    assert counter.tally.learned_from == counter.tally.engine == len(REQUESTS)


def test_by_its_tokenizer_beside_the_gateway_too(
    served: tuple[Places, Counting], tokenizer: LocalTokenizer
) -> None:
    async def run() -> None:
        counter = Counting(CountingSettings(engine="llamacpp", ask=Ask.NEVER, keys=True), tokenizer=tokenizer)
        counted = 0
        for number, (_, asked) in enumerate(REQUESTS, 1):
            facts, ending = policy.facts[number], policy.endings[number]
            if facts.kind not in (Kind.CHAT, Kind.COMPLETION) or isinstance(asked.get("prompt"), list):
                continue
            prompt = await counter.count(asked, replace(facts, prompt=None))
            assert prompt is not None
            reported = ending.prompt_tokens
            assert (prompt.source, prompt.tokens, prompt.most_tokens) == (
                TokenSource.TOKENIZER,
                reported,
                reported,
            ), asked
            assert len(prompt.keys) == prompt.tokens // 16
            counter.learn(facts, ending)
            counted += 1
        counter.close()
        assert counter.tally.tokenizer == counter.tally.learned_from == counted > 10
        assert counter.tally.wrong == 0

    policy, _ = served
    asyncio.run(run())


def test_both_see_the_same_tokens(server: int, tokenizer: LocalTokenizer) -> None:
    """Keys are made of the tokens themselves, so equal keys are equal tokens."""

    async def run() -> None:
        asking = UpstreamAsking(Upstream(host="127.0.0.1", port=server))
        told = CountingSettings(engine="llamacpp", keys=True, block_size=2, ask=Ask.ALWAYS, within_ms=60_000)
        by_engine = Counting(told, asking=[asking], secret=b"s")
        by_file = Counting(told, tokenizer=tokenizer, secret=b"s")
        for chat in CHATS:
            one, other = [await counted(counter, {"messages": chat}) for counter in (by_engine, by_file)]
            assert one.keys == other.keys
            assert len(one.keys) == one.tokens // 2 > 0
            assert (one.source, other.source) == (TokenSource.ENGINE, TokenSource.TOKENIZER)
        by_engine.close()
        by_file.close()
        asking.close()

    asyncio.run(run())


async def counted(counter: Counting, asked: dict[str, Any]) -> PromptTokens:
    told = await counter.count(asked, facts_of(Kind.CHAT, asked, number=1, arrival_ns=0))
    assert told is not None
    return told


def test_a_template_of_the_model_renders_what_the_engine_renders(tokenizer: LocalTokenizer) -> None:
    assert isinstance(tokenizer.template, ChatTemplate)
    assert tokenizer.template.render({"messages": CHATS[0]}).endswith(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
