"""Questions as each engine's sources read them, and answers of their forms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vramledger.gateway.admitter import Kind
from vramledger.gateway.tokens.engine_forms import Counted, Unreadable, dialogue

CHAT = [{"role": "user", "content": "hi"}]


def asked_of(
    engine: str, kind: Kind, asked: dict[str, object], *answers: object
) -> tuple[list[tuple[str, Any]], Counted]:
    """Targets and bodies of all questions, and what came of the answers."""
    talk = dialogue(engine, kind, asked)
    assert talk is not None
    question, questions = next(talk), []
    for answer in answers:
        questions.append((question.target.decode(), json.loads(question.body)))
        try:
            question = talk.send(json.dumps(answer).encode())
        except StopIteration as end:
            return questions, end.value
    raise AssertionError("it has not ended")


def test_vllm_renders_a_chat_as_it_would_for_an_answer() -> None:
    asked = {
        "model": "m", "messages": CHAT, "tools": [{"type": "function"}], "reasoning_effort": "none", "documents": [{"text": "d"}],
        "chat_template_kwargs": {"x": 1}, "max_tokens": 5, "stream": True, "temperature": 0.5,
    }  # fmt: skip
    questions, counted = asked_of(
        "vllm", Kind.CHAT, asked, {"count": 2, "tokens": [7, 8], "max_model_len": 9}
    )
    assert questions == [
        ("/tokenize", {"model": "m", "messages": CHAT, "tools": [{"type": "function"}],
                       "chat_template_kwargs": {"x": 1, "documents": [{"text": "d"}], "reasoning_effort": "none", "enable_thinking": False}})
    ]  # fmt: skip
    assert counted == (2, [7, 8])


def test_vllm_is_asked_for_each_text() -> None:
    asked = {"model": "m", "prompt": ["a", "b"], "add_special_tokens": False}
    questions, counted = asked_of("vllm", Kind.COMPLETION, asked, {"tokens": [1]}, {"tokens": [2, 3]})
    assert questions == [
        ("/tokenize", {"model": "m", "prompt": text, "add_special_tokens": False}) for text in "ab"
    ]
    assert counted == (2, None)


def test_llamacpp_applies_its_template_and_then_tokenizes_with_special_tokens() -> None:
    questions, counted = asked_of(
        "llamacpp", Kind.CHAT, {"messages": CHAT, "stream": True}, {"prompt": "<hi>"}, {"tokens": [4]}
    )
    assert questions == [
        ("/apply-template", {"messages": CHAT, "stream": False}),
        ("/tokenize", {"content": "<hi>", "add_special": True, "parse_special": True}),
    ]
    assert counted == (1, [4])
    questions, _ = asked_of("llamacpp", Kind.COMPLETION, {"prompt": [5, "a"]}, {"tokens": [5, 6]})
    assert questions[0][1]["content"] == [5, "a"]


def test_sglang_gets_the_chat_as_it_is() -> None:
    asked = {
        "messages": CHAT,
        "tool_choice": "none",
        "stream": True,
        "add_special_tokens": True,
        "max_tokens": 3,
    }
    questions, counted = asked_of("sglang", Kind.CHAT, asked, {"tokens": [4], "count": 1})
    assert questions == [("/tokenize", {"messages": CHAT, "tool_choice": "none", "max_tokens": 3})]
    assert counted == (1, [4])
    questions, _ = asked_of("sglang", Kind.COMPLETION, {"text": "a"}, {"tokens": [4]})
    assert questions == [("/tokenize", {"prompt": "a"})]


@pytest.mark.parametrize(
    ("engine", "kind", "target", "answer", "counted"),
    [
        ("llamacpp", Kind.RESPONSE, "/v1/responses/input_tokens", {"input_tokens": 3}, (3, None)),
        ("llamacpp", Kind.MESSAGE, "/v1/messages/count_tokens", {"input_tokens": 3}, (3, None)),
        ("vllm", Kind.MESSAGE, "/v1/messages/count_tokens", {"input_tokens": 3}, (3, None)),
        ("vllm", Kind.RESPONSE, "/v1/responses/render", {"token_ids": [1, 2]}, (2, [1, 2])),
        ("sglang", Kind.MESSAGE, "/v1/messages/count_tokens", {"input_tokens": 3}, (3, None)),
    ],
)
def test_whole_requests_are_counted_where_an_engine_does_it(
    engine: str, kind: Kind, target: str, answer: object, counted: tuple[int, list[int] | None]
) -> None:
    asked = {"model": "m", "input": "a", "messages": CHAT, "stream": True}
    assert asked_of(engine, kind, asked, answer) == ([(target, {**asked, "stream": False})], counted)


def test_tensorrt_llm_tokenizes_texts_alone() -> None:
    questions, _ = asked_of("tensorrt-llm", Kind.COMPLETION, {"prompt": "a"}, {"count": 1, "tokens": [5]})
    assert questions == [("/_internal/tokenize", {"prompt": "a"})]
    assert dialogue("tensorrt-llm", Kind.CHAT, {"messages": CHAT}) is None


@pytest.mark.parametrize("prompt", [None, 5, [], [1, 2], ["a", 5], ["a"] * 9, {"prompt_string": "x"}])
def test_what_is_no_text_is_not_asked(prompt: object) -> None:
    assert dialogue("vllm", Kind.COMPLETION, {"prompt": prompt}) is None
    assert dialogue("nobody", Kind.CHAT, {"messages": CHAT}) is None


@pytest.mark.parametrize(
    "answer",
    [5, [], {"input_tokens": True}, {"input_tokens": -1}, {"input_tokens": "3"}, {"token_ids": ["a"]}],
)
def test_other_answers_are_not_read(answer: object) -> None:
    for kind in (Kind.MESSAGE, Kind.RESPONSE):
        with pytest.raises(Unreadable):
            asked_of("vllm", kind, {"messages": CHAT}, answer)
