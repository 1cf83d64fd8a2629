"""Requests are the same however their bytes are cut, and so are refusals; what is held is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.gateway.request_reading import HeldBodies, Part, RequestReader
from vramledger.gateway.settings import Limits

LIMITS = Limits(head_bytes=512, headers=8, body_bytes=64, pipelined=4)
GOOD = b"POST /a?b HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"PUT /c HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3;x=y\r\ncde\r\n0\r\nT: u\r\n\r\n"
OLD = b"GET /old HTTP/1.0\r\n\r\n"
CLOSE = b"GET /last HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"


def read(data: bytes, cuts: list[int]) -> tuple[RequestReader, HeldBodies]:
    held = HeldBodies(1000)
    reader = RequestReader(LIMITS, held, lambda: None)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if reader.refusal is None and not reader.is_last:
            reader.feed(data[start:end])
    return reader, held


@pytest.mark.parametrize(
    ("data", "bodies", "status"),
    [
        (GOOD, [b"hello"], None),
        (GOOD + CHUNKED + OLD, [b"hello", b"abcde", b""], None),
        (GOOD + GOOD[:-1], [b"hello"], None),
        (GOOD + b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 65\r\n\r\n", [b"hello"], 413),
        (b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 65\r\n\r\n", [], 413),
        (b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n" + b"a" * 65, [], 413),
        (b"GET / HTTP/1.1\r\nHost: g\r\nX: " + b"a" * 512 + b"\r\n\r\n", [], 431),
        (b"GET / HTTP/1.1\r\nHost: g\r\n" + b"X: a\r\n" * 8 + b"\r\n", [], 431),
        (b"\x00", [], 400),
    ],
)
@given(data_=st.data())
def test_cuts_change_nothing(
    data: bytes, bodies: list[bytes], status: int | None, data_: st.DataObject
) -> None:
    cuts = sorted(data_.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    reader, held = read(data, cuts)
    assert [request.body for request in reader.ready] == bodies
    assert (reader.refusal.status if reader.refusal is not None else None) == status
    arriving = 4 if data == GOOD + GOOD[:-1] else 0
    assert held.bytes == sum(map(len, bodies)) + arriving
    assert reader.part is (Part.BODY if arriving else Part.NOTHING)


def test_whether_a_connection_goes_on() -> None:
    reader, _ = read(GOOD + CLOSE, [])
    assert [request.head.keep_alive for request in reader.ready] == [True, False]
    reader, _ = read(OLD, [])
    assert not reader.ready[0].head.keep_alive


def test_bytes_after_the_last_request_are_never_one_more() -> None:
    reader, _ = read(CLOSE + GOOD, [])
    assert [request.head.target for request in reader.ready] == [b"/last"]
    assert reader.is_last


def test_so_many_may_be_sent_ahead() -> None:
    reader, _ = read(GOOD * 9, [])
    assert len(reader.ready) == LIMITS.pipelined
    assert reader.is_last
