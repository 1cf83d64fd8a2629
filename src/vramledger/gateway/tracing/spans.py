"""A request's record as spans: the request, and in it its wait, its prefill and its decoding, and the way back of its blocks. Pure.

Names: OpenTelemetry's conventions for generative AI (repository semantic-conventions-genai, status "development", read in November 2026)
as far as they go, `http.response.status_code` and `error.type` of the stable ones, and `vramledger.` for what is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from vramledger.gateway.admitter import Decision, Ended, Kind
from vramledger.gateway.record import RequestRecord, plain_word
from vramledger.gateway.tracing.prefix_identity import PrefixIdentity
from vramledger.units import ceil_div

Value = str | int | float | bool
Attributes = dict[str, Value]
NS_PER_US = 1000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

OPERATIONS = {
    Kind.CHAT: "chat",
    Kind.MESSAGE: "chat",
    Kind.RESPONSE: "chat",
    Kind.COMPLETION: "text_completion",
    Kind.EMBEDDING: "embeddings",
}
FAILED = frozenset(str(how.value) for how in (Ended.ENGINE_ERROR, Ended.UPSTREAM_FAILED, Ended.TIMED_OUT)) | {
    "unavailable"
}
OF_OPENAI = "openai"
"""The provider whose form of telemetry this is, where the engine is not known."""


class SpanEvent(Struct, frozen=True, kw_only=True):
    name: str
    at_ns: int
    attributes: Attributes = {}


class SpanDescription(Struct, frozen=True, kw_only=True):
    """`is_request` is the request's own span, of which the others are children. Times are of the gateway's clock. `error` is what failed."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes = {}
    events: Sequence[SpanEvent] = ()
    is_request: bool = False
    error: str = ""


def spans_of(
    record: RequestRecord,
    progress: Sequence[tuple[int, int]],
    identity: PrefixIdentity,
    engine_of: Callable[[int | None], tuple[str, str]],
) -> Iterator[SpanDescription]:
    """The request's span first. `progress` are (instant, output tokens); `engine_of` gives an instance's name and engine by its number."""
    facts = record.facts
    failed = record.outcome if record.outcome in FAILED else ""
    yield SpanDescription(
        name=f"{OPERATIONS[facts.kind]} {plain_word(facts.model)}".rstrip(),
        start_ns=facts.arrival_ns,
        end_ns=record.ended_ns,
        attributes=_request(record, identity, engine_of),
        events=list(_events(record, progress)),
        is_request=True,
        error=failed,
    )
    if record.queued_ns:
        yield SpanDescription(
            name="queue",
            start_ns=record.queued_ns,
            end_ns=record.admitted_ns or record.ended_ns,
            attributes=_decision(record.first_decision),
        )
    yield from _work(record, failed)
    if record.released_ns and record.finished_ns:
        yield SpanDescription(name="release", start_ns=record.finished_ns, end_ns=record.released_ns)


def blocks_span(record: RequestRecord) -> SpanDescription:
    """From a request's end until the engine was seen to hold its blocks no more."""
    return SpanDescription(
        name="blocks returned",
        start_ns=record.finished_ns,
        end_ns=record.blocks_back_ns,
        attributes=_known({"vramledger.blocks": record.blocks}),
    )


def _work(record: RequestRecord, failed: str) -> Iterator[SpanDescription]:
    """What the engine did, as it is seen from outside: only a stream shows where prefill ends."""
    if not record.sent_ns:
        return
    ending, end_ns = record.ending, record.finished_ns or record.ended_ns
    prompt = _known(
        {
            "vramledger.prompt_tokens": ending.prompt_tokens if ending is not None else None,
            "vramledger.uncached_tokens": record.uncached_tokens,
            "gen_ai.usage.cache_read.input_tokens": ending.cached_prompt_tokens
            if ending is not None
            else None,
        }
    )
    output = _known({"vramledger.output_tokens": ending.output_tokens if ending is not None else None})
    if record.first_token_ns:
        yield SpanDescription(
            name="prefill", start_ns=record.sent_ns, end_ns=record.first_token_ns, attributes=prompt
        )
        yield SpanDescription(
            name="decode", start_ns=record.first_token_ns, end_ns=end_ns, attributes=output, error=failed
        )
    else:
        name = "prefill" if record.facts.stream else "generate"
        yield SpanDescription(
            name=name, start_ns=record.sent_ns, end_ns=end_ns, attributes=prompt | output, error=failed
        )


def _request(
    record: RequestRecord, identity: PrefixIdentity, engine_of: Callable[[int | None], tuple[str, str]]
) -> Attributes:
    facts, ending = record.facts, record.ending
    instance, engine = engine_of(record.instance)
    verdict, rule = record.admission
    keys = facts.prompt.keys if facts.prompt is not None else ()
    to_first_ns = record.first_token_ns - facts.arrival_ns if record.first_token_ns else None
    error = plain_word(record.engine_error) or record.outcome
    return _known(
        {
            "gen_ai.operation.name": OPERATIONS[facts.kind],
            "gen_ai.provider.name": engine or OF_OPENAI,
            "gen_ai.request.model": plain_word(facts.model) or None,
            "gen_ai.request.max_tokens": facts.max_output_tokens,
            "gen_ai.request.choice.count": facts.branches if facts.branches != 1 else None,
            "gen_ai.request.stream": True if facts.stream else None,
            "gen_ai.usage.input_tokens": ending.prompt_tokens if ending is not None else None,
            "gen_ai.usage.cache_read.input_tokens": ending.cached_prompt_tokens
            if ending is not None
            else None,
            "gen_ai.usage.output_tokens": ending.output_tokens if ending is not None else None,
            "gen_ai.response.time_to_first_chunk": None if to_first_ns is None else to_first_ns / NS_PER_S,
            "http.response.status_code": record.status or None,
            "error.type": error if record.outcome in FAILED else None,
            "vramledger.request": facts.number,
            "vramledger.tenant": plain_word(record.tenant) or None,
            "vramledger.upstream": instance or None,
            "vramledger.outcome": record.outcome,
            "vramledger.verdict": verdict,
            "vramledger.rule": rule,
            "vramledger.prompt_tokens": facts.prompt.tokens if facts.prompt is not None else None,
            "vramledger.prompt_tokens.source": facts.prompt.source.value
            if facts.prompt is not None
            else None,
            "vramledger.uncached_tokens": record.uncached_tokens,
            "vramledger.reserved_output_tokens": record.reserved_output_tokens,
            "vramledger.output_tokens": ending.output_tokens if ending is not None else None,
            "vramledger.output_tokens.counted": True if ending is not None and ending.counted else None,
            "vramledger.decision_us": (record.decided_ns - record.asked_ns) // NS_PER_US
            if record.asked_ns
            else None,
            "vramledger.retries": record.retries or None,
            "vramledger.out_of_memory": True if record.ran_out else None,
            "vramledger.prefix.root": identity.of(facts.tenant, keys[0]) if keys else None,
            "vramledger.prefix.id": identity.of(facts.tenant, keys[-1]) if keys else None,
            "vramledger.prefix.blocks": len(keys) or None,
            "vramledger.prefix.hit": _hit(record),
            "vramledger.tool.result": True if facts.after_tool else None,
            "vramledger.tool.pause_ms": None
            if record.tool_pause_ns is None
            else record.tool_pause_ns // NS_PER_MS,
            "vramledger.tool.action": record.prefix_kept or None,
        }
    )


def _hit(record: RequestRecord) -> bool | None:
    """Whether the engine found any of the prompt; None where it does not say."""
    cached = record.ending.cached_prompt_tokens if record.ending is not None else None
    return None if cached is None else cached > 0


def _events(record: RequestRecord, progress: Sequence[tuple[int, int]]) -> Iterator[SpanEvent]:
    if record.decided_ns:
        yield SpanEvent(name="decision", at_ns=record.decided_ns, attributes=_decision(record.first_decision))
    if not record.admitted_ns:
        return
    yield SpanEvent(name="blocks reserved", at_ns=record.admitted_ns, attributes=_decision(record.decision))
    size, prompt = record.number_of("block_size"), _prompt_tokens(record)
    for at_ns, tokens in progress:
        blocks = ceil_div(prompt + tokens, size) if size and prompt is not None else None
        yield SpanEvent(
            name="blocks in use",
            at_ns=at_ns,
            attributes=_known({"vramledger.output_tokens": tokens, "vramledger.blocks": blocks}),
        )
    if record.released_ns:
        yield SpanEvent(
            name="blocks released",
            at_ns=record.released_ns,
            attributes=_known({"vramledger.blocks": record.blocks}),
        )


def _prompt_tokens(record: RequestRecord) -> int | None:
    if record.ending is not None and record.ending.prompt_tokens is not None:
        return record.ending.prompt_tokens
    return record.facts.prompt.tokens if record.facts.prompt is not None else None


def _decision(decision: Decision | None) -> Attributes:
    if decision is None:
        return {}
    told: Attributes = {"vramledger.verdict": str(decision.verdict.value), "vramledger.rule": decision.rule}
    return told | {f"vramledger.{name}": number for name, number in decision.numbers.items()}


def _known(values: dict[str, Value | None]) -> Attributes:
    return {name: value for name, value in values.items() if value is not None}
