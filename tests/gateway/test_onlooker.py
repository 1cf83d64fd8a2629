"""Looking at an engine and a gateway from outside: the pool by the engine's word, what changed, and what does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.http_server import answer, files, serving
from vramledger.gateway.onlooker import Onlooker
from vramledger.gateway.recent_requests import RecentRequest
from vramledger.gateway.snapshot import GatewayState, InstanceState, QueueState
from vramledger.report.moment_document import moment_document
from vramledger.report.moment_text import moment_lines
from vramledger.report.schema import schema_of
from vramledger.report.text import render

BLOCKS = 1001


def metrics(*, blocks: int = BLOCKS, used: float = 0.25, preempted: int = 3) -> bytes:
    """As vLLM exposes them."""
    return f"""\
vllm:num_requests_running{{engine="0",model_name="m"}} 4.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 2.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {used}
vllm:num_preemptions_total{{engine="0",model_name="m"}} {preempted}.0
vllm:cache_config_info{{block_size="16",cache_dtype="auto",num_gpu_blocks="{blocks}",enable_prefix_caching="True"}} 1.0
""".encode()


def decided(number: int, **more: object) -> RecentRequest:
    facts = {"number": number, "came_ms": 1, "kind": "chat", "standing": "running", "verdict": "admit"}
    return msgspec.convert(facts | more, RecentRequest)


STATE = {
    "gateway": msgspec.to_builtins(
        GatewayState(
            admitted=3,
            queue=QueueState(requests=4),
            instances=(InstanceState(name="a", total_blocks=64, reserved_blocks=9, limit_blocks=60),),
        )
    ),
    "counters": {"rejected": 7, "odd": "x"},
}


@pytest.fixture
def answers() -> dict[str, bytes]:
    """What is answered by path; 404 for others."""
    return {"/metrics": metrics()}


@pytest.fixture
def url(answers: dict[str, bytes]) -> Iterator[str]:
    with serving(files(answers)) as found:
        yield found


def test_the_pool_is_told_in_blocks_that_requests_may_have(url: str, answers: dict[str, bytes]) -> None:
    with Onlooker(url=url) as onlooker:
        engine = onlooker.look(1.0).engine
        assert engine is not None
        # Block 0 is never given out.
        assert (engine.engine, engine.block_size, engine.total_blocks) == ("vllm", 16, BLOCKS - 1)
        assert (engine.used_blocks, engine.free_blocks) == (250, 750)
        assert (engine.running_requests, engine.waiting_requests) == (4, 2)
        assert engine.totals["total_preempted_requests"] == 3
        answers["/metrics"] = metrics(used=1.0, preempted=5)
        later = onlooker.look(2.0).engine
    assert later is not None
    assert (later.free_blocks, later.totals["total_preempted_requests"]) == (0, 5)
    assert onlooker.answered


def test_an_engine_that_goes_and_comes_back_is_asked_what_it_is_again(
    url: str, answers: dict[str, bytes]
) -> None:
    with Onlooker(url=url) as onlooker:
        first = onlooker.look(1.0)
        answers.clear()
        away = onlooker.look(2.0)
        answers["/metrics"] = metrics(blocks=501, preempted=0)
        back = onlooker.look(3.0)
    assert away.engine is None
    assert "404" in away.problems[url]
    assert back.engine is not None
    assert (back.engine.total_blocks, back.engine.used_blocks) == (500, 125)
    told = [
        render(moment_lines(*pair[1:], width=80, before=pair[0]), colour=False)
        for pair in ((first, away), (away, back))
    ]
    assert "nothing answers" in told[0] and "404" in told[0]
    assert f"{url} answers again" in told[1]


def test_a_new_start_between_two_looks_is_seen_by_its_counters(url: str, answers: dict[str, bytes]) -> None:
    with Onlooker(url=url) as onlooker:
        onlooker.look(1.0)
        answers["/metrics"] = metrics(blocks=301, preempted=0)
        onlooker.look(2.0)
        engine = onlooker.look(3.0).engine
    assert engine is not None and engine.total_blocks == 300


def test_requests_are_told_once_and_again_when_they_change(url: str, answers: dict[str, bytes]) -> None:
    answers["/state"] = msgspec.json.encode(STATE)
    told = [decided(2, standing="waiting", queue_ms=5), decided(1)]
    with Onlooker(gateway_url=url) as onlooker:
        answers["/requests"] = msgspec.json.encode({"requests": told})
        first = onlooker.look(1.0)
        assert [request.number for request in first.requests] == [1, 2]
        answers["/requests"] = msgspec.json.encode(
            {"requests": [decided(2, standing="waiting", queue_ms=900), decided(1)]}
        )
        assert onlooker.look(2.0).requests == ()
        answers["/requests"] = msgspec.json.encode({"requests": [decided(2), decided(1)]})
        assert [request.standing for request in onlooker.look(3.0).requests] == ["running"]
    assert first.gateway is not None
    assert (first.gateway.state.admitted, first.gateway.state.queue.requests) == (3, 4)
    assert first.gateway.counters == {"rejected": 7}
    document = msgspec.json.decode(msgspec.json.encode(moment_document(first)))
    jsonschema.Draft202012Validator(schema_of("moment")).validate(document)
    page = render(moment_lines(first, width=80), colour=False)
    assert "admitted 3, queued 4" in page and "9 of 60 blocks reserved" in page


def test_an_older_gateway_that_tells_of_no_requests_is_said(url: str, answers: dict[str, bytes]) -> None:
    answers["/state"] = msgspec.json.encode(STATE)
    with Onlooker(gateway_url=url) as onlooker:
        moment = onlooker.look(1.0)
    assert moment.gateway is not None
    assert "404" in moment.problems[f"{url}/requests"]


def test_a_key_goes_only_to_whom_it_is_for() -> None:
    heard: list[tuple[str, str | None]] = []

    def respond(request: BaseHTTPRequestHandler) -> None:
        heard.append((request.path, request.headers["Authorization"]))
        answer(request, 404)

    with (
        serving(respond) as engine,
        serving(respond) as gateway,
        Onlooker(url=engine, gateway_url=gateway, token="E", gateway_token="G") as onlooker,
    ):
        moment = onlooker.look(1.0)
    assert set(moment.problems) == {engine, gateway}
    assert {key for path, key in heard if path in ("/state", "/requests")} == {"Bearer G"}
    assert {key for path, key in heard if path not in ("/state", "/requests")} == {"Bearer E"}


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
NAMES = st.sampled_from(
    [
        "gateway",
        "instances",
        "queue",
        "requests",
        "number",
        "came_ms",
        "kind",
        "standing",
        "name",
        "admitted",
        "x",
    ]
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=60, deadline=None)
@given(state=JSON, requests=JSON, exposition=st.binary(max_size=300))
def test_whatever_answers_a_look_is_a_look(state: object, requests: object, exposition: bytes) -> None:
    told = {
        "/metrics": metrics() + exposition,
        "/state": msgspec.json.encode({"gateway": state}),
        "/requests": msgspec.json.encode({"requests": requests}),
    }
    with serving(files(told)) as url, Onlooker(url=url, gateway_url=url) as onlooker:
        moment = onlooker.look(1.0)
    msgspec.json.encode(moment_document(moment))
    render(moment_lines(moment, width=80), colour=False)
