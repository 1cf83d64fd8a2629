"""Usage, output and errors read from answers as they pass, in whatever pieces they come."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.gateway.answer_reading import LONGEST_EVENT, EngineError, StreamReading, WholeReading

OPENAI = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\r\n\r\n'
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n: a comment\n\n'
    b'data: {"choices":[{"delta":{"reasoning_content":"b"}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":null}}\n\n'
    b"data: [DONE]\n\n"
)
LLAMACPP = b'data: {"content":"a","stop":false}\n\ndata: {"content":"","stop":true,"tokens_predicted":7,"tokens_evaluated":3}\n\n'
RESPONSES = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","response":{"usage":{"input_tokens":4,"output_tokens":1,'
    b'"input_tokens_details":{"cached_tokens":2}}}}\n\n'
)
MESSAGES = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"a"}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"output_tokens":6}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)

CACHED_MESSAGE = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":7,"cache_read_input_tokens":9,'
    b'"cache_creation_input_tokens":2,"output_tokens":1}}}\n\n'
)


def told(reading: StreamReading | WholeReading) -> tuple[object, ...]:
    return (
        reading.prompt_tokens,
        reading.cached_prompt_tokens,
        reading.output_tokens,
        reading.output_events,
        reading.finished,
        reading.error,
        reading.unread,
    )


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (OPENAI, (5, None, 2, 2, True, None, 0)),
        (LLAMACPP, (3, None, 7, 1, True, None, 0)),
        (RESPONSES, (4, 2, 1, 1, True, None, 0)),
        (MESSAGES, (9, None, 6, 1, True, None, 0)),
        (CACHED_MESSAGE, (18, 9, 1, 0, False, None, 0)),
        (b'data: {"error":{"code":503,"type":"overloaded","message":"m"}}\n\n', (None, None, None, 0, False, EngineError(code="503", type="overloaded"), 0)),
        (b"data: {broken\n\ndata: 5\n\ndata: " + b"[" * 9000 + b"\n\n", (None, None, None, 0, False, None, 3)),
        (b'data: {"choices":[5,{"delta":5}],"usage":[],"error":null}\n\n', (None, None, None, 0, False, None, 0)),
        (b'data: {"usage":{"prompt_tokens":true,"completion_tokens":-4}}\n\n', (None, None, None, 0, False, None, 0)),
    ],
)  # fmt: skip
@given(data=st.data())
def test_a_stream_says_the_same_however_it_is_cut(
    stream: bytes, expected: tuple[object, ...], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reading = StreamReading()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reading.feed(stream[start:end])
    assert told(reading) == expected


def test_an_event_without_end_is_skipped_and_the_next_one_read() -> None:
    reading = StreamReading()
    for _ in range(LONGEST_EVENT // 65_536 * 3):
        reading.feed(b"x" * 65_536)
        assert len(reading._rest) <= LONGEST_EVENT
    reading.feed(b"\n" + OPENAI)
    assert told(reading) == (5, None, 2, 2, True, None, 1)


def test_a_whole_answer() -> None:
    body = json.dumps({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}).encode()
    reading = WholeReading()
    for place in range(0, len(body), 10):
        reading.feed(body[place : place + 10])
    reading.end()
    assert told(reading) == (1, None, 2, 0, False, None, 0)


@pytest.mark.parametrize("pieces", [[b"not json"], [b"[]"], [b"x" * (3 << 20)] * 2])
def test_a_whole_answer_that_says_nothing(pieces: list[bytes]) -> None:
    reading = WholeReading()
    for piece in pieces:
        reading.feed(piece)
    reading.end()
    assert told(reading) == (None, None, None, 0, False, None, 1)


def test_a_count_that_is_none_is_not_taken() -> None:
    reading = WholeReading()
    reading.feed(b'{"usage": {"prompt_tokens": 10000000000000000000000000, "completion_tokens": 7}}')
    reading.end()
    assert (reading.prompt_tokens, reading.output_tokens) == (None, 7)
