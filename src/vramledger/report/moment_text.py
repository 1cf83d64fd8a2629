"""A look at what runs, as lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from vramledger.gateway.onlooker import EngineMoment, GatewayMoment, Moment
from vramledger.gateway.recent_requests import RecentRequest
from vramledger.gateway.snapshot import InstanceState
from vramledger.report.text import Line, wrapped
from vramledger.units import format_bytes

_TONES = {
    "running": "good", "completed": "good", "waiting": "unsure", "undecided": "dim", "client-left": "dim", "drained": "dim",
}  # fmt: skip
_INDENT = " " * 10


def moment_lines(moment: Moment, *, width: int, before: Moment | None = None) -> Iterator[Line]:
    """What is so, in lines of `width` columns, then one for each request that came or changed, and one for each problem that is new since `before`."""
    at = f"{datetime.fromtimestamp(moment.at_s):%H:%M:%S}  "
    told = [*_engine(moment.engine), *_gateway(moment.gateway), *_machine(moment)]
    if told:
        yield from wrapped("; ".join(told), width, first=at, rest=_INDENT)
    else:
        yield ((at, "dim"), ("nothing answers", "bad"))
    for request in moment.requests:
        yield _request(request)
    known = before.problems if before is not None else {}
    for place, problem in moment.problems.items():
        if known.get(place) != problem:
            yield ((f"{_INDENT}{problem}", "bad"),)
    if before is not None:
        for place in known.keys() - moment.problems.keys():
            yield ((f"{_INDENT}{place} answers again", "good"),)


def _engine(engine: EngineMoment | None) -> Iterator[str]:
    if engine is None:
        return
    yield f"running {_known(engine.running_requests)}, waiting {_known(engine.waiting_requests)}"
    unit = "tokens" if engine.block_size == 1 else "blocks"
    if engine.total_blocks is not None:
        cached = f" ({engine.cached_blocks:,} cached)" if engine.cached_blocks is not None else ""
        yield f"KV {_known(engine.free_blocks)} of {engine.total_blocks:,} {unit} free{cached}"
    preempted = engine.totals.get("total_preempted_requests")
    if preempted is not None:
        yield f"preempted {preempted:,.0f}"


def _gateway(gateway: GatewayMoment | None) -> Iterator[str]:
    if gateway is None:
        return
    state = gateway.state
    draining = ", draining" if state.draining else ""
    yield f"gateway: admitted {state.admitted:,}, queued {state.queue.requests:,}{draining}"
    for instance in state.instances:
        yield _instance(instance, "its engine" if len(state.instances) == 1 else instance.name)


def _instance(instance: InstanceState, name: str) -> str:
    if instance.is_up is False:
        return f"{name} is away"
    foreign = f", {instance.foreign_blocks:,} of others" if instance.foreign_blocks else ""
    return f"{name}: {_known(instance.reserved_blocks)} of {_known(instance.limit_blocks)} blocks reserved{foreign}"


def _machine(moment: Moment) -> Iterator[str]:
    for sample in moment.samples:
        if sample.name == "device_free_bytes":
            yield f"{sample.source} {format_bytes(int(sample.value))} free"
    resident = sum(int(sample.value) for sample in moment.samples if sample.name == "rss_bytes")
    if resident:
        yield f"host {format_bytes(resident)} resident"


def _request(request: RecentRequest) -> Line:
    who = " ".join(word for word in (request.tenant, request.model) if word)
    lengths = f"{_known(request.prompt_tokens)} + {_known(request.max_output_tokens)} tokens"
    reason = ": ".join(word for word in (request.rule, request.message) if word)
    if not request.message and request.numbers:
        reason += f" ({', '.join(f'{name} {value:,}' for name, value in request.numbers.items())})"
    return (
        (f"{_INDENT}#{request.number} ", "dim"),
        (request.standing, _TONES.get(request.standing, "bad")),
        (f"  {request.verdict or 'no word yet'}, {reason or 'no rule'}  ", ""),
        (f"{lengths}{f', {who}' if who else ''}", "dim"),
    )


def _known(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
