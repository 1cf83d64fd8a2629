"""Chats rendered by a model's template: as transformers would, and no more of it than is taken in."""

from __future__ import annotations

import json

import pytest

from vramledger.errors import InputError
from vramledger.gateway.tokens.chat_template import ChatTemplate, Unrenderable

USER = {"role": "user", "content": "hi"}


def render(source: str, **asked: object) -> str:
    return ChatTemplate(source, tokens={"bos_token": "<s>"}).render({"messages": [USER], **asked})


def test_blocks_are_trimmed_and_a_generation_prompt_is_asked_for() -> None:
    source = "{{ bos_token }}\n{% for m in messages %}\n    {%- if m.role == 'user' %}\n[{{ m.content }}]\n    {% endif %}\n{% endfor %}\n{% if add_generation_prompt %}!{% endif %}"
    assert render(source) == "<s>\n[hi]\n!"
    assert render(source, add_generation_prompt=False) == "<s>\n[hi]\n"


def test_tools_are_written_as_json_with_their_own_letters() -> None:
    tools = [{"name": "f", "parameters": {"é": 1}}]
    assert render("{{ tools | tojson }}", tools=tools) == json.dumps(tools, ensure_ascii=False)
    assert render("{{ tools | tojson(indent=4) }}", tools=tools) == json.dumps(
        tools, ensure_ascii=False, indent=4
    )
    assert render("{% if tools %}a{% else %}b{% endif %}", tools=[]) == "b"


def test_arguments_of_calls_are_objects() -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": [1]}'}}]}
    source = "{{ messages[0].tool_calls[0].function.arguments.a[0] }}"
    assert ChatTemplate(source).render({"messages": [call]}) == "1"
    broken = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
    with pytest.raises(Unrenderable):
        ChatTemplate(source).render({"messages": [broken]})


def test_parts_are_joined_unless_the_template_goes_through_them() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert ChatTemplate("{{ messages[0]['content'] }}").render({"messages": parts}) == "a\nb"
    source = "{% for m in messages %}{% for c in m['content'] %}({{ c.text }}){% endfor %}{% endfor %}"
    assert ChatTemplate(source).render({"messages": parts}) == "(a)(b)"


def test_a_message_to_be_continued_ends_the_prompt() -> None:
    messages = [USER, {"role": "assistant", "content": "I am "}]
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    assert (
        ChatTemplate(source).render({"messages": messages, "continue_final_message": True})
        == "<user>hi</s><assistant>I am"
    )


def test_settings_of_the_request_reach_the_template() -> None:
    source = "{{ enable_thinking }} {{ documents[0] }} {{ reasoning_effort }}"
    told = render(
        source, chat_template_kwargs={"enable_thinking": False}, documents=["d"], reasoning_effort="low"
    )
    assert told == "False d low"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% for a in range(999999999) %}x{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' * 999 }}{% endfor %}",
        "{{ messages[0].content.format.__globals__ }}",
        "{{ 1 / 0 }}",
        "{{ none.a.b }}",
    ],
)
def test_what_a_template_may_not_do_is_no_prompt(source: str) -> None:
    try:
        told = ChatTemplate(source, longest=100_000).render({"messages": [USER]})
    except Unrenderable:
        return
    assert "function" not in told
    assert "class" not in told


@pytest.mark.parametrize(
    "messages", [None, "x", 5, [5], [None], [[USER]], [{}], [{"content": [{"image": 1}]}], [{"content": [5]}]]
)
def test_messages_of_other_forms_are_refused_or_rendered(messages: object) -> None:
    template = ChatTemplate("{% for m in messages %}{{ m['role'] + m['content'] }}{% endfor %}")
    with pytest.raises(Unrenderable):
        template.render({"messages": messages})


@pytest.mark.parametrize("source", ["{% if %}", "{{", "x" * 300_000])
def test_what_is_no_template_is_refused_when_it_is_read(source: str) -> None:
    with pytest.raises(InputError):
        ChatTemplate(source)


def test_a_template_of_the_request_is_not_ours_to_run() -> None:
    with pytest.raises(Unrenderable):
        render("{{ messages[0].content }}", chat_template="{{ 'other' }}")
