"""The gateway's metrics agree with what happened, whatever happened, and two readers read them alike."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from gateway.client import ask, gateway_to, request, until
from gateway.engine import EVENT_STREAM, USAGE, WORD, Call, Engine, event
from gateway.policies import Places
from gateway.shared.test_grant import granted
from vramledger.admission.settings import PolicySettings
from vramledger.errors import InputError
from vramledger.gateway.admitter import Decision, Ended, Ending, Kind, RequestFacts, Verdict
from vramledger.gateway.counters import Counters
from vramledger.gateway.gateway import Gateway
from vramledger.gateway.live.capacity import Capacity
from vramledger.gateway.live.instance import Instance
from vramledger.gateway.metrics import table
from vramledger.gateway.metrics.metric import MetricKind
from vramledger.gateway.metrics.requests import MODELS, RequestMetrics
from vramledger.gateway.record import RequestRecord
from vramledger.gateway.settings import Limits, Timeouts
from vramledger.gateway.shared.keeper import SharingCounters
from vramledger.gateway.snapshot import GatewayState, InstanceState, QueueState, gateway_state
from vramledger.gateway.telemetry import Telemetry
from vramledger.gateway.tracing.settings import TraceSettings
from vramledger.telemetry.exposition import parse_exposition

OPEN = "application/openmetrics-text; version=1.0.0"
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def told(telemetry: Telemetry, gateway: Gateway, *instances: InstanceState) -> Values:
    """What a scrape reads, by both parsers and in both formats, which must agree."""
    state = gateway_state(gateway, instances)
    return read(
        *(telemetry.exposition(state, gateway.counters, gateway.observers, accept=a) for a in ("", OPEN))
    )


def read(plain: tuple[bytes, str], openly: tuple[bytes, str]) -> Values:
    assert plain[1].startswith("text/plain; version=0.0.4")
    assert openly[1].startswith("application/openmetrics-text")
    ours = parse_exposition(plain[0])
    assert ours.unread_count == 0
    values = {(line.name, frozenset(line.labels.items())): line.value for line in ours.readings}
    assert len(values) == len(ours.readings)
    theirs = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in plain_text(plain[0].decode())
        for sample in family.samples
    }
    assert theirs == values
    opened = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in open_metrics(openly[0].decode())  # type: ignore[no-untyped-call]
        for sample in family.samples
    }
    mine = {key: value for key, value in values.items() if key[0].startswith("vramledger_")}
    # Each scrape asks the process anew, so its own figures may differ.
    assert {key: value for key, value in opened.items() if key[0].startswith("vramledger_")} == mine
    assert parse_exposition(openly[0]).complete
    return mine


def of(values: Values, name: str, **labels: str) -> dict[str, float]:
    """Values of one metric by the labels that are not asked for."""
    return {
        ",".join(value for key, value in sorted(found) if key not in labels): number
        for (metric, found), number in values.items()
        if metric == f"vramledger_{name}" and labels.items() <= dict(found).items()
    }


def total(values: Values, name: str, **labels: str) -> float:
    return sum(of(values, name, **labels).values())


MOODS = ("whole", "stream", "error", "stream-error", "die", "break", "hang")
ACTS = st.tuples(st.sampled_from(MOODS), st.booleans(), st.sampled_from(["stay", "leave", "never"]))


@settings(max_examples=12)
@given(acts=st.lists(ACTS, min_size=1, max_size=14), places=st.integers(1, 4), queued=st.integers(0, 3))
def test_counts_agree_with_what_happened(acts: list[tuple[str, bool, str]], places: int, queued: int) -> None:
    policy = Places(places)
    telemetry = Telemetry(tenants=("a",))
    answered: Counter[int] = Counter()

    async def script(call: Call) -> None:
        mood = call.head.split(b"x-mood: ")[1].split(b"\r\n")[0].decode()
        if mood == "die":
            call.writer.transport.abort()
        elif mood == "hang":
            await call.left()
        elif mood == "error":
            await call.whole(b'{"error": {"message": "out of memory", "code": 500}}', b"500 No")
        elif mood == "whole":
            await call.whole()
        elif mood == "break":
            await call.write(EVENT_STREAM)
            await call.chunk(WORD)
            call.writer.transport.abort()
        elif mood == "stream-error":
            await call.stream(WORD, event({"error": {"message": "no", "code": 503}}))
        else:
            await call.stream(WORD, WORD, WORD, event({"choices": [], "usage": USAGE}))

    async def client(port: int, act: tuple[str, bool, str]) -> None:
        mood, streams, stays = act
        bound = 2_000_000 if stays == "never" else 7
        message = request(headers=f"X-Mood: {mood}\r\n", stream=streams, max_tokens=bound)
        if stays == "leave" or mood == "hang":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ask(port, message), 0.02)
            return
        answered[(await ask(port, message)).status] += 1

    async def story() -> Values:
        limits, timeouts = Limits(queued=queued), Timeouts(queued_ms=30_000)
        async with (
            Engine(script) as engine,
            gateway_to(
                engine, policy, limits=limits, timeouts=timeouts, observers=telemetry.observers
            ) as gateway,
        ):
            await asyncio.gather(*(client(gateway.port, act) for act in acts))
            await until(lambda: not gateway.connections)
            counters = gateway.counters
            values = told(telemetry, gateway)
            assert total(values, "http_requests_total") == counters.requests
            assert total(values, "admissions_total", outcome="admit") == counters.admitted
            assert total(values, "admissions_total", outcome="reject") == counters.rejected
            assert total(values, "admissions_total", outcome="never-fits") == counters.never_fit
            assert total(values, "engine_out_of_memory_errors_total") == counters.engine_ran_out
            return values

    values = asyncio.run(story())
    came = len(policy.facts)
    assert all(number >= 0 for number in values.values())
    assert total(values, "admissions_total") == came
    assert total(values, "requests_total") == came
    assert total(values, "tenant_requests_total") == came
    assert total(values, "model_requests_total") == came
    assert total(values, "decision_seconds_count") == came
    assert total(values, "queue_time_seconds_count") == came
    hows = Counter(
        str(ending.how.value) for ending in policy.endings.values() if ending.how is not Ended.QUEUE_FULL
    )
    ends = Counter({name.split(",")[1]: number for name, number in of(values, "requests_total").items()})
    assert {name: number for name, number in ends.items() if name not in ("reject", "never-fits")} == hows
    told_codes = {int(code): number for code, number in of(values, "answers_total").items()}
    assert all(told_codes.get(code, 0) >= number for code, number in answered.items())
    completed = ends["completed"]
    assert total(values, "request_duration_seconds_count") == completed
    assert total(values, "prompt_tokens_total") == sum(
        ending.prompt_tokens or 0 for ending in policy.endings.values()
    )
    assert total(values, "output_tokens_total") == sum(
        ending.output_tokens or 0 for ending in policy.endings.values()
    )
    assert total(values, "queue_requests") == total(values, "in_flight_requests") == 0
    assert total(values, "observer_failures_total") == 0


_TOKENS = st.none() | st.integers(0, 10_000)


@st.composite
def records(draw: st.DrawFn) -> RequestRecord:
    """A request as it may have gone; its instants are in order."""
    instants = sorted(draw(st.lists(st.integers(1, 10**12), min_size=6, max_size=6)))
    facts = RequestFacts(
        number=1,
        kind=draw(st.sampled_from(Kind)),
        model=draw(st.text(max_size=100)),
        prompt_bytes=5,
        branches=draw(st.integers(1, 3)),
        after_tool=draw(st.booleans()),
        arrival_ns=instants[0],
    )
    record = RequestRecord(
        facts=facts, tenant=draw(st.text(max_size=10)), asked_ns=instants[0], decided_ns=instants[1]
    )
    verdict = draw(st.sampled_from(Verdict))
    numbers = draw(
        st.dictionaries(st.sampled_from(["reserved_output_tokens", "need_blocks"]), st.integers(0, 9999))
    )
    record.decision = record.first_decision = Decision(
        verdict=verdict, rule=draw(st.text(max_size=5)), numbers=numbers
    )
    if verdict is Verdict.QUEUE:
        record.queued_ns = instants[1]
    elif verdict is Verdict.ADMIT:
        record.admitted_ns, record.first_token_ns, record.finished_ns, record.released_ns = instants[2:]
        record.status = draw(st.sampled_from([200, 404, 500]))
        record.ending = Ending(
            how=draw(st.sampled_from(Ended)),
            prompt_tokens=draw(_TOKENS),
            cached_prompt_tokens=draw(_TOKENS),
            output_tokens=draw(_TOKENS),
        )
    record.ended_ns = instants[5]
    return record


@settings(max_examples=40)
@given(st.lists(records(), max_size=30))
def test_any_requests_can_be_told(history: list[RequestRecord]) -> None:
    telemetry = Telemetry()
    for record in history:
        telemetry.requests.ended(record)
    values = read(
        *(telemetry.exposition(GatewayState(), Counters(), None, accept=accept) for accept in ("", OPEN))
    )
    assert total(values, "admissions_total") == total(values, "requests_total") == len(history)
    assert all(number >= 0 for number in values.values())
    assert len(of(values, "request_duration_seconds_count")) <= MODELS + 1


def test_names_from_clients_are_bounded_and_plain() -> None:
    metrics = RequestMetrics()
    for number in range(10_000):
        facts = RequestFacts(
            number=number, kind=Kind.CHAT, model=f"m{number}\n\x00é", prompt_bytes=0, arrival_ns=1
        )
        how = Ended.COMPLETED if number % 2 else Ended.ENGINE_ERROR
        decision = Decision(verdict=Verdict.ADMIT, rule="fits")
        metrics.ended(
            RequestRecord(
                facts=facts, decision=decision, ending=Ending(how=how), finished_ns=2, admitted_ns=1
            )
        )
    names = {labels[0] for labels, _ in metrics.model_requests.series().values}
    assert len(names) == MODELS + 1
    assert "m1???" in names
    assert "m0???" not in names  # a model is known by a request that it completed


def test_models_that_are_given_are_the_only_ones() -> None:
    metrics = RequestMetrics(models=["llama"])
    for model in ("llama", "other one", ""):
        facts = RequestFacts(number=1, kind=Kind.CHAT, model=model, prompt_bytes=0, arrival_ns=1)
        metrics.ended(
            RequestRecord(facts=facts, ending=Ending(how=Ended.COMPLETED), finished_ns=2, admitted_ns=1)
        )
    assert metrics.model_requests.value("llama", "completed") == 1
    assert metrics.model_requests.value("other", "completed") == 2


ODD = 'a "quoted" one\\\n'
WHOLE = msgspec.convert(
    {field.name: 7 for field in msgspec.structs.fields(InstanceState)}
    | {"name": ODD, "engine": "vllm", "is_up": True, "is_careful": False, "is_granted": True},
    InstanceState,
)


def test_what_is_known_of_an_engine_is_told_and_what_is_not_is_absent() -> None:
    telemetry = Telemetry()
    state = GatewayState(
        instances=(WHOLE, InstanceState(name="silent", used_blocks=5)),
        queue=QueueState(oldest_age_ns=1_500_000_000),
    )
    values = read(*(telemetry.exposition(state, Counters(), None, accept=accept) for accept in ("", OPEN)))
    known = {name for name, labels in values if dict(labels).get("upstream") == WHOLE.name}
    assert known == {
        name for metric in (*table.OF_UPSTREAMS, table.UPSTREAM_INFO) for name in metric.sample_names
    }
    silent = {name for name, labels in values if dict(labels).get("upstream") == "silent"}
    assert silent == {"vramledger_used_blocks", "vramledger_upstream_info"}
    assert of(values, "engine_state_age_seconds") == {WHOLE.name: 7e-9}
    assert of(values, "queue_oldest_age_seconds") == {"": 1.5}


def test_each_metric_has_a_name_by_the_conventions() -> None:
    families = [metric.family for metric in table.METRICS]
    assert len(set(families)) == len(families)
    for metric in table.METRICS:
        assert not metric.unit or metric.name.endswith(f"_{metric.unit}")
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket", "_created"))
        assert metric.help[0].isupper() or metric.help[0].isdigit()
        assert not metric.help.endswith(".")
        assert bool(metric.buckets) is (metric.kind is MetricKind.HISTOGRAM)
        assert list(metric.buckets) == sorted(set(metric.buckets))
        for time in ("_ns", "_ms", "_us", "_ps"):
            assert time not in metric.name


def test_every_counter_is_told() -> None:
    fields = {field.name for field in msgspec.structs.fields(Counters)}
    assert {metric.field for metric in table.OF_COUNTERS} | table.NOT_TOLD == fields
    sharing = {field.name for field in msgspec.structs.fields(SharingCounters)}
    assert {metric.field for metric in table.OF_SHARING} == sharing - {"last_error"}
    assert {field.name for field in msgspec.structs.fields(InstanceState)} - {"name", "engine"} == {
        metric.field for metric in table.OF_UPSTREAMS
    }


def test_all_series_stand_in_the_table(tmp_path: Path) -> None:
    telemetry = Telemetry(log=tmp_path / "log", sharing=SharingCounters())
    state = GatewayState(instances=(WHOLE,))
    told_ = [series.metric for series in telemetry._series(state, Counters(), None)]
    telemetry.close()
    assert {metric.name for metric in told_} == {metric.name for metric in table.METRICS} - {"spans"}


@pytest.mark.parametrize(
    ("module", "extra", "build"),
    [
        ("prometheus_client", "gateway", Telemetry),
        (
            "opentelemetry.sdk.trace",
            "otel",
            lambda: Telemetry(traces=TraceSettings(endpoint="http://c/v1/traces")),
        ),
    ],
)
def test_a_library_that_is_not_installed_is_named(
    module: str, extra: str, build: Callable[[], Telemetry], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name for name in sys.modules if name.startswith((module, "vramledger.gateway.tracing.otlp"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"vramledger\[{extra}\]"):
        build()


def test_a_shared_engine_tells_what_was_granted_of_it() -> None:
    def never(capacity: Capacity) -> PolicySettings:
        raise AssertionError

    grant, clock, _ = granted()
    state = Instance("e", 0, never, grant).snapshot(0)
    assert state.other_gateways_blocks == 40
    assert (state.granted_blocks, state.is_granted, state.total_lapses) == (60, True, 0)
    clock.ns += 10**12
    assert Instance("e", 0, never, grant).snapshot(0).is_granted is False
    assert Instance("e", 0, never).snapshot(0).granted_blocks is None
