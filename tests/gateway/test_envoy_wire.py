"""Envoy's messages on the wire, against bytes that the real Envoy sent, and against bytes that nobody should send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.envoy_messages import EXCHANGE, REQUEST_BODY, REQUEST_HEADERS
from vramledger.gateway.admitter import Decision, Verdict
from vramledger.gateway.envoy import wire
from vramledger.gateway.envoy.messages import (
    NO_CHANGE,
    BodyMode,
    HeaderChange,
    Modes,
    Part,
    change_between,
    request_head,
    response_head,
)
from vramledger.gateway.envoy.picking import PICKED, SUBSET_KEY, SUBSET_SPACE, pick, with_pick
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.replies import Reply

NAMES = st.sampled_from([b"authorization", b"x-two", b"accept", b"host", b"content-length"])
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([b"", b"1", b"2"])), max_size=6)


def test_what_envoy_sends_is_read() -> None:
    head, body, answer, piece = (wire.read(message) for message in EXCHANGE)
    assert head.part is Part.REQUEST_HEADERS
    assert head.modes == Modes(request_body=BodyMode.BUFFERED, response_body=BodyMode.STREAMED)
    assert not head.ends
    read = request_head(head.headers)
    assert (read.method, read.target) == (b"POST", b"/v1/chat/completions")
    assert read.headers[:2] == [(b"host", b"gateway"), (b"content-length", b"82")]
    assert (body.part, len(body.body), body.ends) == (Part.REQUEST_BODY, 82, True)
    assert (answer.part, answer.details) == (Part.RESPONSE_HEADERS, "via_upstream")
    assert (response_head(answer.headers).status, response_head(answer.headers).is_event_stream) == (
        200,
        True,
    )
    assert (piece.part, piece.ends) == (Part.RESPONSE_BODY, True)
    assert piece.body.endswith(b"data: [DONE]\n\n")


def field(number: int, *inside: bytes | int) -> bytes:
    """A field as protobuf writes it: a length and bytes, or a small number."""
    if len(inside) == 1 and isinstance(inside[0], int):
        return bytes((number << 3, inside[0]))
    data = b"".join(part for part in inside if isinstance(part, bytes))
    size, length = len(data), b""
    while size >= 128:
        length += bytes((size % 128 + 128,))
        size //= 128
    return bytes((number << 3 | 2,)) + length + bytes((size,)) + data


@pytest.mark.parametrize(
    ("said", "written"),
    [
        # request_headers 1, response_headers 2, request_body 3, response_body 4, each with response 1 {header_mutation 2}.
        (wire.go_on(Part.REQUEST_HEADERS), field(1, field(1, field(2)))),
        (wire.SEEN, field(4, field(1, field(2)))),
        # override_message_timeout 10 {seconds 1}
        (wire.more_time(61_000), field(10, field(1, 61))),
        # response_trailers 6
        (wire.trailers_pass(Part.RESPONSE_TRAILERS), field(6)),
        # body_mutation 3 {streamed_response 3 {body 1, end_of_stream 2}}
        (
            wire.give_back(Part.RESPONSE_BODY, b"ab", ends=True),
            field(4, field(1, field(3, field(3, field(1, b"ab"), field(2, 1))))),
        ),
        # set_headers 1 {header 1 {key 1, raw_value 3}, append 2 {value 1}, append_action 3}, remove_headers 2
        (
            wire.go_on(Part.RESPONSE_HEADERS, HeaderChange(put=[(b"a", b"1"), (b"a", b"2")], remove=(b"b",))),
            field(
                2,
                field(
                    1,
                    field(
                        2,
                        field(1, field(1, field(1, b"a"), field(3, b"1")), field(3, 2)),
                        field(1, field(1, field(1, b"a"), field(3, b"2")), field(2, field(1, 1))),
                        field(2, b"b"),
                    ),
                ),
            ),
        ),
        # header_mutation 2, body_mutation 3 {body 1}, clear_route_cache 5; dynamic_metadata 8 is a Struct {fields 1 {key 1, value 2}}
        (
            wire.go_on(Part.REQUEST_BODY, body=b"c", reroute=True, picked="h:1"),
            field(3, field(1, field(2), field(3, field(1, b"c")), field(5, 1)))
            + field(
                8,
                field(
                    1,
                    field(1, b"envoy.lb"),
                    field(2, field(5, field(1, field(1, PICKED.encode()), field(2, field(3, b"h:1"))))),
                ),
            ),
        ),
        # immediate_response 7 {status 1 {code 1}, headers 2, body 3, details 5}
        (
            wire.refuse(Reply(status=127, headers=[(b"a", b"1")], body=b"b"), "why"),
            field(
                7,
                field(1, field(1, 127)),
                field(2, field(1, field(1, field(1, b"a"), field(3, b"1")), field(3, 2))),
                field(3, b"b"),
                field(5, b"why"),
            ),
        ),
    ],
)
def test_answers_have_the_published_field_numbers(said: bytes, written: bytes) -> None:
    assert said == written


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_unknown(data: bytes) -> None:
    assert wire.read(data).part in Part


@given(st.sampled_from(EXCHANGE), st.integers(0, 300), st.integers(0, 255))
def test_a_byte_that_flipped_is_no_crash(message: bytes, place: int, value: int) -> None:
    broken = bytearray(message)
    broken[place % len(broken)] = value
    assert wire.read(bytes(broken)).part in Part


def test_deep_metadata_is_no_message() -> None:
    nested = b""
    for _ in range(500):  # a Struct in a Value in a Struct
        nested = field(1, field(1, b"k"), field(2, field(5, nested)))
    message = REQUEST_BODY + field(8, field(1, field(1, b"name"), field(2, nested)))
    assert wire.read(message).part is Part.UNKNOWN


def test_the_eligible_endpoints_are_read() -> None:
    # metadata_context 8 {filter_metadata 1 {key 1, value 2: Struct}}; list_value 6 {values 1 {string_value 3}}
    listed = field(6, field(1, field(3, b"10.0.0.1:80")), field(1, field(3, b"10.0.0.2:80")))
    for value in (listed, field(3, b"10.0.0.1:80, 10.0.0.2:80")):
        entry = field(1, field(1, SUBSET_KEY.encode()), field(2, value))
        space = field(1, field(1, SUBSET_SPACE.encode()), field(2, entry))
        said = wire.read(REQUEST_HEADERS + field(8, space))
        assert said.subset == ("10.0.0.1:80", "10.0.0.2:80")
    assert wire.read(REQUEST_HEADERS).subset is None


def test_the_endpoint_of_the_chosen_instance_is_named() -> None:
    endpoints = ("10.0.0.1:80", "10.0.0.2:80")
    second = Decision(verdict=Verdict.ADMIT, rule="fits", instance=1)
    assert pick((), second, None) is None
    assert pick(endpoints, second, None) == "10.0.0.2:80"
    assert pick(endpoints, second, ("10.0.0.2:80", "10.0.0.3:80")) == "10.0.0.2:80"
    for subset in ((), ("10.0.0.1:80",)):
        refused = pick(endpoints, second, subset)
        assert isinstance(refused, Decision)
        assert refused.verdict is Verdict.UNAVAILABLE
    beyond = pick(endpoints[:1], second, None)
    assert isinstance(beyond, Decision)


def test_a_client_does_not_choose_its_engine() -> None:
    name = b"x-gateway-destination-endpoint"
    lying = RequestHead(method=b"POST", target=b"/", headers=[(name, b"10.9.9.9:1")], http_11=True)
    honest = RequestHead(method=b"POST", target=b"/", headers=[], http_11=True)
    assert with_pick(NO_CHANGE, None, lying) == HeaderChange(remove=(name,))
    assert with_pick(NO_CHANGE, None, honest) == NO_CHANGE
    assert with_pick(NO_CHANGE, "10.0.0.1:80", lying).put == [(name, b"10.0.0.1:80")]


@given(HEADERS, HEADERS)
def test_a_change_turns_one_head_into_the_other(
    before: list[tuple[bytes, bytes]], after: list[tuple[bytes, bytes]]
) -> None:
    old, new = (
        RequestHead(method=b"POST", target=b"/", headers=headers, http_11=True) for headers in (before, after)
    )
    change = change_between(old, new)
    gone = {*change.remove, *(name for name, _ in change.put)}
    changed = [pair for pair in before if pair[0] not in gone] + change.put
    for name in (b"authorization", b"x-two", b"accept"):
        assert [value for key, value in changed if key == name] == [
            value for key, value in after if key == name
        ]
    assert not gone & {b"host", b"content-length"}


def test_another_path_is_a_change() -> None:
    old = RequestHead(method=b"POST", target=b"/a", headers=[], http_11=True)
    new = RequestHead(method=b"POST", target=b"/b", headers=[], http_11=True)
    assert change_between(old, new) == HeaderChange(put=[(b":path", b"/b")])
