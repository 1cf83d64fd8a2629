"""Traces as a collector gets them: the tree of spans, what they say, and that nothing waits for the collector."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from gateway.client import ask, gateway_to, request, until, wait_until
from gateway.collector import Collector, attributes, collector, told
from gateway.engine import EVENT_STREAM, USAGE, WORD, Call, Engine, event
from gateway.policies import Places, Says
from gateway.test_blocks_back import turn
from gateway.test_records import NUMBERS
from vramledger.errors import InputError
from vramledger.gateway.admitter import Decision, Kind, RequestFacts, Verdict
from vramledger.gateway.counters import Counters
from vramledger.gateway.messages import RequestHead
from vramledger.gateway.record import RequestRecord
from vramledger.gateway.replies import Headers
from vramledger.gateway.snapshot import GatewayState
from vramledger.gateway.telemetry import Telemetry
from vramledger.gateway.tracing.otlp import OtlpSink
from vramledger.gateway.tracing.prefix_identity import PrefixIdentity
from vramledger.gateway.tracing.settings import TraceSettings
from vramledger.gateway.tracing.spans import SpanDescription, spans_of
from vramledger.gateway.tracing.trace_context import RequestTrace, parent_of, tell_engine
from vramledger.gateway.tracing.tracing import MOST_POINTS, Tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept:
    """A sink that keeps what it is given."""

    made = exported = lost = 0

    def __init__(self) -> None:
        self.taken: list[tuple[RequestTrace, list[SpanDescription]]] = []

    def take(self, trace: RequestTrace, spans: Sequence[SpanDescription]) -> None:
        self.taken.append((trace, list(spans)))

    def close(self, within_s: float) -> None: ...


def test_a_request_is_a_tree_of_spans() -> None:
    async def script(call: Call) -> None:
        await call.write(EVENT_STREAM)
        await call.chunk(WORD)
        await going.wait()
        await call.chunk(WORD + event({"choices": [], "usage": USAGE}))
        await call.write(b"0\r\n\r\n")

    going = asyncio.Event()

    async def story(taken: Collector) -> bytes:
        settings = TraceSettings(endpoint=taken.endpoint, headers={"x-token": "t"}, ratio=0)
        telemetry = Telemetry(instances=["left"], traces=settings, engine_of=lambda instance: "vllm")
        numbers = {**NUMBERS, "need_blocks": 5}
        says = Says(Decision(verdict=Verdict.ADMIT, rule="fits", numbers=numbers))
        async with (
            Engine(script) as engine,
            gateway_to(engine, says, observers=telemetry.observers) as gateway,
        ):
            telemetry.sampled(0, time.monotonic_ns(), 0, 0)
            headers = f"Traceparent: {PARENT}\r\nTracestate: a=b\r\nAuthorization: Bearer secret\r\n"
            asked = asyncio.create_task(
                ask(gateway.port, request(headers=headers, stream=True, max_tokens=20, model="tiny\n", n=2))
            )
            await until(lambda: any(relay.told_events for relay in gateway._exchanges.open))
            going.set()
            await asked
            await until(lambda: not gateway.connections)
            telemetry.sampled(0, time.monotonic_ns(), 0, 0)
            text, _ = telemetry.exposition(GatewayState(), Counters(), gateway.observers)
            assert b'vramledger_spans_total{state="made"} 5.0' in text
            await asyncio.to_thread(telemetry.close, 60)
            return engine.calls[0].head

    with collector() as taken:
        head = asyncio.run(story(taken))
    assert len(taken.spans) == 5
    whole = taken.named("chat tiny?")
    assert whole.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert whole.parent_span_id.hex() == "b7ad6b7169203331"
    assert whole.kind == Span.SPAN_KIND_SERVER
    assert f"traceparent: 00-{whole.trace_id.hex()}-{whole.span_id.hex()}-01".encode() in head
    assert b"tracestate: a=b" in head
    assert head.lower().count(b"traceparent") == 1
    parts = [taken.named(name) for name in ("prefill", "decode", "release", "blocks returned")]
    for part in parts:
        assert (part.trace_id, part.parent_span_id) == (whole.trace_id, whole.span_id)
    prefill, decode, release, blocks = parts
    assert whole.start_time_unix_nano <= prefill.start_time_unix_nano < prefill.end_time_unix_nano
    assert prefill.end_time_unix_nano == decode.start_time_unix_nano
    assert decode.end_time_unix_nano == release.start_time_unix_nano == blocks.start_time_unix_nano
    assert release.end_time_unix_nano <= whole.end_time_unix_nano <= blocks.end_time_unix_nano
    assert abs(whole.start_time_unix_nano - time.time_ns()) < 3600 * 10**9
    said = told(whole)
    first_s = said.pop("gen_ai.response.time_to_first_chunk")
    assert isinstance(first_s, float)
    assert said.pop("vramledger.decision_us") is not None
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "tiny?",
        "gen_ai.request.max_tokens": 20,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.cache_read.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "http.response.status_code": 200,
        "vramledger.request": 1,
        "vramledger.upstream": "left",
        "vramledger.outcome": "completed",
        "vramledger.verdict": "admit",
        "vramledger.rule": "fits",
        "vramledger.uncached_tokens": 4,
        "vramledger.reserved_output_tokens": 16,
        "vramledger.output_tokens": 3,
        "vramledger.prefix.hit": True,
    }
    events = [(one.name, attributes(list(one.attributes)).get("vramledger.blocks")) for one in whole.events]
    assert events == [
        ("decision", None),
        ("blocks reserved", None),
        ("blocks in use", 1),
        ("blocks released", 5),
    ]
    assert attributes(list(whole.events[1].attributes))["vramledger.need_blocks"] == 5
    assert taken.resources[0]["service.name"] == "vramledger-gateway"
    assert taken.headers[0]["x-token"] == "t"
    assert b"secret" not in b"".join(span.SerializeToString() for span in taken.spans)


def test_waits_refusals_and_failures_are_seen() -> None:
    async def script(call: Call) -> None:
        if b"X-Fails" in call.head or b"x-fails" in call.head:
            await call.stream(event({"error": {"message": "secret: out of memory", "code": "oom"}}))
        else:
            await let_go.wait()
            await call.whole()

    let_go = asyncio.Event()

    async def story(taken: Collector) -> None:
        telemetry = Telemetry(traces=TraceSettings(endpoint=taken.endpoint, ratio=1))
        policy = Places(1)
        async with (
            Engine(script) as engine,
            gateway_to(engine, policy, observers=telemetry.observers) as gateway,
        ):
            asks = []
            for number, headers in enumerate(("", "X-Fails: 1\r\n")):
                asks.append(
                    asyncio.create_task(ask(gateway.port, request(headers=headers, model=f"m{number}")))
                )
                await until(partial(policy.knows, number + 1))
            never = await ask(gateway.port, request(model="m2", max_tokens=2_000_000))
            assert never.status == 400
            let_go.set()
            await asyncio.gather(*asks)
            await until(lambda: not gateway.connections)
            await asyncio.to_thread(telemetry.close, 60)

    with collector() as taken:
        asyncio.run(story(taken))
    first, failed, never = (taken.named(f"chat m{number}") for number in range(3))
    assert len({first.trace_id, failed.trace_id, never.trace_id}) == 3
    assert not first.parent_span_id
    assert [one.status.code for one in (first, failed, never)] == [
        Status.STATUS_CODE_UNSET,
        Status.STATUS_CODE_ERROR,
        Status.STATUS_CODE_UNSET,
    ]
    assert told(failed)["error.type"] == "oom"
    assert told(failed)["vramledger.out_of_memory"] is True
    assert told(never)["vramledger.outcome"] == "never-fits"
    wait = taken.named("queue")
    assert wait.parent_span_id == failed.span_id
    assert told(wait)["vramledger.rule"] == "places"
    assert sorted(span.name for span in taken.spans if span.parent_span_id == first.span_id) == [
        "generate",
        "release",
    ]
    assert not [span for span in taken.spans if span.parent_span_id == never.span_id]
    assert b"secret" not in b"".join(span.SerializeToString() for span in taken.spans)


def test_a_collector_that_hangs_holds_up_nobody_and_fills_nothing() -> None:
    with collector() as taken:
        taken.go_on.clear()
        sink = OtlpSink(TraceSettings(endpoint=taken.endpoint, queue_spans=10, timeout_s=30), delay_ms=1)
        span = SpanDescription(name="s", start_ns=1, end_ns=2)
        for _ in range(10_000):
            sink.take(RequestTrace(trace_id=1, span_id=2, is_sampled=True), [span] * 5)
        assert sink.made == 50_000
        assert 50_000 - sink.lost <= 20  # in the queue, and in the batch that is being sent
        sink.close(0.05)
        assert sink.exported == 0
        taken.go_on.set()
        wait_until(lambda: sink.exported > 0)


def test_a_collector_that_refuses_loses_what_it_was_sent() -> None:
    with collector() as taken:
        taken.status = 400
        sink = OtlpSink(TraceSettings(endpoint=taken.endpoint), delay_ms=1)
        sink.take(
            RequestTrace(trace_id=1, span_id=2, is_sampled=True),
            [SpanDescription(name="s", start_ns=1, end_ns=2)],
        )
        wait_until(lambda: sink.lost == 1)
        sink.close(30)
    assert (sink.made, sink.exported, sink.lost) == (1, 0, 1)


@pytest.mark.parametrize(
    "value",
    [
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra", b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"00-00000000000000000000000000000000-b7ad6b7169203331-01", b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        b"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01extra", b"", b"\xff", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01,",
    ],
)  # fmt: skip
def test_a_bad_parent_is_none(value: bytes) -> None:
    assert parent_of([(b"traceparent", value)]) is None


@pytest.mark.parametrize("version", [b"00", b"01", b"fe"])
def test_a_parent_of_any_version_is_read(version: bytes) -> None:
    parent = parent_of([(b"traceparent", version + PARENT.encode()[2:])])
    assert parent is not None
    assert (parent.trace_id, parent.span_id, parent.is_sampled) == (
        0x0AF7651916CD43DD8448EB211C80319C,
        0xB7AD6B7169203331,
        True,
    )


def test_two_parents_are_none() -> None:
    assert parent_of([(b"traceparent", PARENT.encode())] * 2) is None


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_what_the_engine_is_told_is_read_back(trace_id: int, span_id: int, is_sampled: bool) -> None:
    headers: Headers = [(b"traceparent", b"junk"), (b"x", b"1"), (b"tracestate", b"a=b")]
    tell_engine(
        headers, RequestTrace(trace_id=trace_id, span_id=span_id, is_sampled=is_sampled), keep_state=False
    )
    parent = parent_of(headers)
    assert parent is not None
    assert (parent.trace_id, parent.span_id, parent.is_sampled) == (trace_id, span_id, is_sampled)
    assert headers[0] == (b"x", b"1")
    assert len(headers) == 2


def arrived(tracing: Tracing, headers: Headers) -> RequestRecord:
    head = RequestHead(method=b"POST", target=b"/", headers=headers, http_11=True)
    record = RequestRecord(
        facts=RequestFacts(number=1, kind=Kind.CHAT, model="m", prompt_bytes=0, arrival_ns=1)
    )
    tracing.arrived(record, head)
    return record


@given(st.integers(1, 2**128 - 1), st.sampled_from([0.0, 0.01, 0.5, 1.0]))
def test_sampling_is_that_of_opentelemetry(trace_id: int, ratio: float) -> None:
    settings = TraceSettings(endpoint="http://c/v1/traces", ratio=ratio, follow_client=False)
    record = arrived(Tracing(settings, Kept()), [(b"traceparent", b"00-%032x-%016x-01" % (trace_id, 7))])
    theirs = TraceIdRatioBased(ratio).should_sample(None, trace_id, "name")
    assert record.trace is not None
    assert record.trace.is_sampled == theirs.decision.is_sampled()  # type: ignore[no-untyped-call]


def test_a_clients_choice_is_followed_unless_it_is_not_to_be() -> None:
    unsampled: Headers = [(b"traceparent", PARENT.encode()[:-2] + b"00")]
    for follow, expected in ((True, False), (False, True)):
        settings = TraceSettings(endpoint="http://c/v1/traces", ratio=1, follow_client=follow)
        record = arrived(Tracing(settings, Kept()), list(unsampled))
        assert record.trace is not None
        assert record.trace.is_sampled is expected


def test_what_is_not_recorded_makes_no_span() -> None:
    kept = Kept()
    tracing = Tracing(TraceSettings(endpoint="http://c/v1/traces", ratio=0), kept)
    record = arrived(tracing, [])
    tracing.progressed(record, 5, 10)
    tracing.ended(record)
    tracing.blocks_back(record)
    assert not kept.taken
    assert record.trace is not None
    assert not record.trace.progress


def test_a_long_stream_keeps_few_points_over_its_whole_length() -> None:
    tracing = Tracing(TraceSettings(endpoint="http://c/v1/traces", ratio=1), Kept())
    record = arrived(tracing, [])
    for step in range(10_000):
        tracing.progressed(record, step, step)
    assert record.trace is not None
    instants = [at_ns for at_ns, _ in record.trace.progress]
    assert MOST_POINTS // 2 <= len(instants) < MOST_POINTS
    assert instants == sorted(instants)
    assert instants[-1] > 9_000
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert max(gaps) <= 4 * min(gaps)


def test_identities_of_prefixes_are_keyed_and_of_one_tenant() -> None:
    known, again, other, chance = (
        PrefixIdentity(b"s"),
        PrefixIdentity(b"s"),
        PrefixIdentity(b"t"),
        PrefixIdentity(),
    )
    assert known.of(1, 77) == again.of(1, 77)
    assert len({known.of(1, 77), known.of(2, 77), known.of(1, 78), other.of(1, 77), chance.of(1, 77)}) == 5
    assert PrefixIdentity(b"x" * 1000).of(1, -(2**63)) == PrefixIdentity(b"x" * 1000).of(1, -(2**63))


def test_prefix_pause_and_action_are_told() -> None:
    record = turn((11, 12, 13), 10, 2_000_000_000)
    record.tool_pause_ns, record.prefix_kept, record.ended_ns = 1_500_000_000, "part", 2_000_000_001
    identity = PrefixIdentity(b"s")
    whole = next(iter(spans_of(record, [], identity, lambda instance: ("", ""))))
    said = {name: value for name, value in whole.attributes.items() if "prefix" in name or "tool" in name}
    assert said == {
        "vramledger.prefix.root": identity.of(1, 11),
        "vramledger.prefix.id": identity.of(1, 13),
        "vramledger.prefix.blocks": 3,
        "vramledger.prefix.hit": False,
        "vramledger.tool.result": True,
        "vramledger.tool.pause_ms": 1500,
        "vramledger.tool.action": "part",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"ratio": 1.5}, {"ratio": float("nan")}, {"queue_spans": 0}, {"timeout_s": 0}, {"endpoint": "collector:4318"},
        {"endpoint": "http://"}, {"endpoint": "http://user:pass@c/v1/traces"}, {"endpoint": "http://c:99999/"},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        TraceSettings(**{"endpoint": "http://c/v1/traces", **wrong})  # type: ignore[arg-type]
