"""Paths and bodies as a policy sees them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.gateway.admitter import Kind, RequestFacts
from vramledger.gateway.request_facts import BadBody, facts_of, kind_of, read_body
from vramledger.gateway.settings import Upstream, upstream_from_url


def facts(kind: Kind, asked: dict[str, object]) -> RequestFacts:
    return facts_of(kind, read_body(json.dumps(asked).encode()), number=7, arrival_ns=3)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (b"/v1/chat/completions", Kind.CHAT),
        (b"/v1/completions?x=/v1/models", Kind.COMPLETION),
        (b"/completions", Kind.COMPLETION),
        (b"/completion", Kind.COMPLETION),
        (b"/v1/responses", Kind.RESPONSE),
        (b"/v1/messages", Kind.MESSAGE),
        (b"/v1/embeddings", Kind.EMBEDDING),
        (b"/generate", Kind.COMPLETION),
        # However it is written, an engine that decodes and folds would serve it.
        (b"//v1/chat%2Fcompletions/", Kind.CHAT),
        (b"/v1/%63hat/completions", Kind.CHAT),
        (b"/v1/models", None),
        (b"/v1/chat/completions/1", None),
        (b"/", None),
        (b"*", None),
    ],
)
def test_what_is_priced(target: bytes, kind: Kind | None) -> None:
    assert kind_of(b"POST", target) is kind
    assert kind_of(b"GET", target) is None


@pytest.mark.parametrize(
    ("kind", "asked", "prompt_bytes", "prompt_tokens", "branches"),
    [
        (Kind.COMPLETION, {"prompt": "häh"}, 4, None, 1),
        (Kind.COMPLETION, {"prompt": ["ab", "cde"], "n": 3}, 5, None, 6),
        (Kind.COMPLETION, {"prompt": [5, 6, 7]}, 0, 3, 1),
        (Kind.COMPLETION, {"prompt": [[5, 6, 7], [8, 9]], "n": 2, "best_of": 5}, 0, 3, 10),
        (Kind.COMPLETION, {"prompt": [12, "ab", 13]}, 2, None, 1),
        (Kind.COMPLETION, {"text": "abc", "sampling_params": {"n": 2}}, 3, None, 2),
        (Kind.COMPLETION, {"input_ids": [[1, 2]]}, 0, 2, 1),
        (Kind.EMBEDDING, {"input": ["a", "b"]}, 2, None, 2),
        (Kind.RESPONSE, {"input": "abc", "instructions": "de"}, 5, None, 1),
        (
            Kind.CHAT,
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "abc"}]},
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:" + "A" * 999}}]},
                ]
            },
            len("usertextabcuserimage_url"),
            None,
            1,
        ),
        (Kind.COMPLETION, {}, 0, None, 1),
        (Kind.CHAT, {"messages": "no list"}, 7, None, 1),
    ],
)  # fmt: skip
def test_prompts_are_sized_by_what_they_hold(
    kind: Kind, asked: dict[str, object], prompt_bytes: int, prompt_tokens: int | None, branches: int
) -> None:
    told = facts(kind, asked)
    counted = None if told.prompt is None else told.prompt.tokens
    assert (told.prompt_bytes, counted, told.branches) == (prompt_bytes, prompt_tokens, branches)
    assert (told.number, told.arrival_ns, told.kind) == (7, 3, kind)


CHAT, COMPLETION, RESPONSE, MESSAGE = Kind.CHAT, Kind.COMPLETION, Kind.RESPONSE, Kind.MESSAGE


@pytest.mark.parametrize(
    ("engine", "kind", "asked", "bound"),
    [
        # Of an engine that is not known, the largest bound that any would read.
        ("", COMPLETION, {"max_tokens": 5}, 5),
        ("", COMPLETION, {"max_tokens": 5, "max_completion_tokens": 9, "n_predict": 7}, 9),
        ("", COMPLETION, {"sampling_params": {"max_new_tokens": 6}, "max_tokens": 4}, 6),
        ("", COMPLETION, {"n_predict": -1}, None),
        ("", COMPLETION, {}, None),
        # What vLLM 0.32.0 generated when it was asked for the same, told to ignore ends.
        ("vllm", COMPLETION, {"prompt": "a"}, 16),
        ("vllm", COMPLETION, {"prompt": "a", "max_completion_tokens": 5}, 16),
        ("vllm", COMPLETION, {"prompt": "a", "max_tokens": 3, "max_completion_tokens": 5}, 3),
        ("vllm", CHAT, {"max_tokens": 7, "max_completion_tokens": 5}, 5),
        ("vllm", CHAT, {"max_output_tokens": 5, "max_tokens": 4}, 4),
        ("vllm", CHAT, {"sampling_params": {"max_new_tokens": 1}, "max_tokens": 4}, 4),
        ("vllm", CHAT, {}, None),
        ("vllm", RESPONSE, {"max_tokens": 4, "max_output_tokens": 3}, 3),
        ("vllm", RESPONSE, {"max_tokens": 4}, None),
        ("vllm", MESSAGE, {"max_tokens": 4}, 4),
        # Null is its default since 0.24 and was no bound before.
        ("vllm", COMPLETION, {"prompt": "a", "max_tokens": None}, None),
        # What llama.cpp build 11549 generated.
        ("llamacpp", COMPLETION, {"prompt": "a"}, None),
        ("llamacpp", COMPLETION, {"prompt": "a", "max_tokens": 3, "n_predict": 5}, 5),
        ("llamacpp", COMPLETION, {"prompt": "a", "max_tokens": 3, "max_completion_tokens": 5}, 5),
        ("llamacpp", COMPLETION, {"prompt": "a", "n_predict": 3, "max_tokens": 5}, 3),
        ("llamacpp", CHAT, {"n_predict": 3, "max_tokens": 5}, 3),
        ("llamacpp", CHAT, {"max_tokens": -1}, None),
        ("llamacpp", COMPLETION, {"n_predict": -1, "max_tokens": 5}, None),
        ("llamacpp", RESPONSE, {"max_output_tokens": 3, "max_tokens": 5}, 3),
        ("llamacpp", RESPONSE, {"max_tokens": 5}, 5),
        # By SGLang's sources.
        ("sglang", COMPLETION, {"prompt": "a"}, 16),
        ("sglang", COMPLETION, {"text": "a"}, 128),
        ("sglang", COMPLETION, {"text": "a", "max_tokens": 3}, 128),
        ("sglang", COMPLETION, {"text": "a", "sampling_params": {"max_new_tokens": 6}}, 6),
        ("sglang", COMPLETION, {"text": "a", "sampling_params": {"max_new_tokens": None}}, None),
        ("sglang", COMPLETION, {"text": ["a", "b"], "sampling_params": [{"max_new_tokens": 6}, {}]}, 128),
        ("sglang", COMPLETION, {"prompt": "a", "text": "b", "sampling_params": {"max_new_tokens": 600}}, 600),
        ("sglang", CHAT, {"max_tokens": 7, "max_completion_tokens": 5}, 5),
        ("tensorrt-llm", COMPLETION, {"prompt": "a"}, None),
        ("tensorrt-llm", COMPLETION, {"prompt": "a", "max_tokens": 4}, 4),
    ],
)
def test_the_bound_of_output_is_the_one_that_the_engine_reads(
    engine: str, kind: Kind, asked: dict[str, object], bound: int | None
) -> None:
    assert facts_of(kind, asked, number=1, arrival_ns=0, engine=engine).max_output_tokens == bound


@pytest.mark.parametrize(
    ("engine", "asked", "branches"),
    [
        ("vllm", {"n": 2, "best_of": 5}, 5),
        ("vllm", {"n": 2, "use_beam_search": True}, 2),
        ("sglang", {"n": 2, "best_of": 5}, 2),
        ("sglang", {"sampling_params": [{"n": 3}, {}]}, 3),
        ("llamacpp", {"n": 2, "best_of": 5}, 2),
        ("llamacpp", {"n_cmpl": 2}, 2),
        ("tensorrt-llm", {"use_beam_search": True, "best_of": 4}, 4),
        ("", {"n": None}, 1),
    ],
)
def test_sequences_of_one_prompt(engine: str, asked: dict[str, object], branches: int) -> None:
    assert facts_of(COMPLETION, asked, number=1, arrival_ns=0, engine=engine).branches == branches


def test_of_prompts_by_several_names_the_longest_is_priced() -> None:
    assert facts(COMPLETION, {"prompt": "a", "text": "bcd"}).prompt_bytes == 3
    assert facts(COMPLETION, {"text": "abc", "input_ids": [1, 2, 3, 4]}).prompt is not None


def test_embeddings_produce_no_output() -> None:
    assert facts(Kind.EMBEDDING, {"input": "a", "max_tokens": 9}).max_output_tokens == 0


@pytest.mark.parametrize(
    "asked", [{"max_tokens": -2}, {"max_tokens": 1.5}, {"n": True}, {"n": 2**80}, {"best_of": "1"}]
)
def test_counts_that_are_none_are_refused_by_name(asked: dict[str, object]) -> None:
    with pytest.raises(BadBody, match=next(iter(asked))):
        facts(Kind.COMPLETION, asked)


@given(st.binary(max_size=60) | st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["prompt", "messages", "input", "text", "n", "n_predict", "max_tokens", "model", "sampling_params", "x"]), inner, max_size=4), max_leaves=8).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_body_is_either_priced_or_refused(body: bytes) -> None:
    for kind in Kind:
        for engine in ("", "vllm", "sglang", "llamacpp", "tensorrt-llm"):
            try:
                told = facts_of(kind, read_body(body), number=1, arrival_ns=0, engine=engine)
            except BadBody:
                continue
            assert told.prompt_bytes >= 0
            assert told.branches >= 1
            assert told.max_output_tokens is None or told.max_output_tokens >= 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"prompt":[' + b"1," * 2_000_001 + b"1]}", "values"),
        (b'{"prompt":[' + b'"a",' * 200_000 + b'"a"]}', "prompts"),
        (b'{"prompt":[[' + b'"a",' * 200_000 + b'"a"]]}', "pieces"),
        (b'{"messages":[' + b"{}," * 200_000 + b"{}]}", "pieces"),
        (b'{"prompt":"a","x":[' + b"[]," * 250_000 + b"1]}", "lists and objects"),
        (b'{"prompt":"a","x":[' + b'"",' * 500_000 + b"1]}", "quotation marks"),
        (b'{"prompt":"a","x":[' + b"1e308," * 100_000 + b"1.5]}", "not whole"),
        (b'{"prompt":"a","sampling_params":[' + b"{}," * 4_096 + b"{}]}", "settings"),
    ],
    ids=("tokens", "prompts", "text", "messages", "containers", "names", "fractions", "settings"),
)
def test_a_body_in_too_many_pieces_is_refused(body: bytes, said: str) -> None:
    kind = Kind.CHAT if b"messages" in body[:20] else Kind.COMPLETION
    with pytest.raises(BadBody, match=said):
        facts_of(kind, read_body(body), number=1, arrival_ns=0)


def test_a_long_prompt_of_tokens_passes() -> None:
    told = facts_of(
        Kind.COMPLETION, read_body(b'{"prompt":[' + b"1," * 1_000_000 + b"1]}"), number=1, arrival_ns=0
    )
    assert told.prompt is not None
    assert told.prompt.tokens == 1_000_001


@pytest.mark.parametrize(
    ("url", "upstream", "authority"),
    [
        ("http://127.0.0.1:8000", Upstream(host="127.0.0.1", port=8000), b"127.0.0.1:8000"),
        ("http://engine/", Upstream(host="engine", port=80), b"engine"),
        ("https://engine", Upstream(host="engine", port=443, tls=True), b"engine"),
        ("http://[::1]:80", Upstream(host="::1", port=80), b"[::1]"),
    ],
)
def test_an_upstream_is_a_place_alone(url: str, upstream: Upstream, authority: bytes) -> None:
    assert upstream_from_url(url) == upstream
    assert upstream.authority == authority


@pytest.mark.parametrize(
    "url",
    ["engine:80", "ftp://engine", "http://", "http://u:p@engine", "http://engine/v1", "http://engine?a", "http://engine#a",
     "http://engine:99999", "http://engïne", "http://[::1"],
)  # fmt: skip
def test_an_upstream_with_more_or_less_is_refused(url: str) -> None:
    with pytest.raises(InputError):
        upstream_from_url(url)
