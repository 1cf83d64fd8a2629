"""What an engine said is kept for who goes on from it, and each token is counted, with text or without."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.experiment.output_reading import OutputReading


@given(data=st.binary(max_size=300))
def test_no_bytes_are_an_error_of_the_reader(data: bytes) -> None:
    for keeps in (False, True):
        reading = OutputReading(keeps=keeps)
        reading.feed(b"data: " + data + b"\n\n" + data)


@pytest.mark.parametrize(
    ("event", "ids", "text", "events"),
    [
        ({"choices": [{"index": 0, "text": " a", "token_ids": [5]}]}, [5], " a", 1),
        ({"choices": [{"index": 1, "text": " a", "token_ids": [5]}]}, [], "", 1),
        # vLLM holds back text that is no whole character, and tells of the token all the same.
        ({"choices": [{"index": 0, "text": "", "token_ids": [5], "finish_reason": None}]}, [5], "", 1),
        ({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}, [], "", 0),
        ({"content": " a", "tokens": [5], "stop": False}, [5], " a", 1),
        ({"content": "", "tokens": [], "stop": True, "timings": {"cache_n": 7}}, [], "", 0),
        ({"choices": [{"index": 0, "text": " a", "token_ids": [-1, "x", 2**40, True]}]}, [], " a", 1),
        ({"choices": "none"}, [], "", 0),
    ],
)
def test_what_is_kept(event: dict[str, Any], ids: list[int], text: str, events: int) -> None:
    reading = OutputReading(keeps=True)
    reading.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert (reading.ids, "".join(reading.text), reading.output_events) == (ids, text, events)
