"""Commands are kept and shown without what is secret in them."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.telemetry.command_words import without_secrets


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("vllm serve m --api-key SECRET --port {port}", "vllm serve m --api-key … --port {port}"),
        ("vllm serve m --api-key ONE TWO --port 1", "vllm serve m --api-key … … --port 1"),
        ("llama-server --api-key=SECRET", "llama-server --api-key=…"),
        ("env HF_TOKEN=SECRET OPENAI_API_KEY=SECRET vllm serve m", "env HF_TOKEN=… OPENAI_API_KEY=… vllm serve m"),
        ("run --admin-password SECRET", "run --admin-password …"),
        ("run --proxy http://me:SECRET@host:1/x", "run --proxy http://…@host:1/x"),
        ("run --header 'Authorization: Bearer SECRET'", "run --header …"),
        ("run -k hf_abcdefgh sk-abcdefgh", "run -k … …"),
        ("vllm serve m --max-num-batched-tokens 2048 --seed 1", "vllm serve m --max-num-batched-tokens 2048 --seed 1"),
        ("run --max-tokens=2048 --key 2048", "run --max-tokens=2048 --key …"),
    ],
)  # fmt: skip
def test_what_stays_of_a_command(command: str, shown: str) -> None:
    assert " ".join(without_secrets(shlex.split(command))) == shown


@given(st.lists(st.text(max_size=30), max_size=8))
def test_done_twice_it_is_as_done_once(words: list[str]) -> None:
    once = without_secrets(words)
    assert len(once) == len(words)
    assert without_secrets(once) == once
