"""Write docs/observability.md: what the gateway tells of itself, from its table of metrics, its alerts and its spans.

python -m tools.observability_page
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from tools.gateway_dashboard import dashboard

from vramledger.gateway.metrics import table
from vramledger.gateway.metrics.metric import Metric
from vramledger.gateway.request_log import LogLine

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "observability.md"
RULES = ROOT / "deploy" / "prometheus"

_HEAD = """# What the gateway tells of itself

This page is written by `python -m tools.observability_page`.

- **Metrics** at `/metrics` of the admin port, in Prometheus' text format or OpenMetrics, as the scraper asks.
- **A dashboard** for Grafana, `deploy/grafana/vramledger.json`, and **rules and alerts** for Prometheus, `deploy/prometheus/`. A test
  holds every name and label in them against what a gateway that has served requests really tells; `make alerts` runs their unit tests.
- **A log of requests**, a line of JSON for each (`telemetry.request_log`).
- **Traces**, OTLP over HTTP (`telemetry.traces_endpoint`; `pip install 'vramledger[otel]'`).

None of them has a prompt, an output or a key. Names that clients write (models) become plain, bounded words; as a label of a metric at most
{models} of them, and only once a request for it was completed. What nobody knows is absent and never 0.

Requests are counted as plain numbers by the thread that serves them, some 8 µs a request; prometheus-client only writes them out when it is
asked, which takes the same thread 1.5 ms, and 27 ms with 256 tenants and 32 models. A log line adds some 6 µs, a request that is looked at and not traced 3 µs, one that is traced some 0.2 ms (`telemetry.traces_ratio`
of those that begin a trace; others follow their client's choice). A thread of its own writes and sends; what it cannot keep up with is lost and
counted (`vramledger_request_log_lines_total`, `vramledger_spans_total`).

To begin: `prometheus --config.file=deploy/prometheus/prometheus.yml` beside a gateway on this machine (its admin port is 8099), and in
Grafana Dashboards, New, Import with the dashboard's file. On another machine give the admin port a token
(`admin.token_env`) and Prometheus the same one (`authorization`).
"""

GROUPS: tuple[tuple[str, str, tuple[Metric, ...]], ...] = (
    ("Requests", "Counted when a request has ended.", table.OF_REQUESTS),
    (
        "Engines and their pools",
        (
            "By `upstream`, the engine's name in the configuration. Pool and counts are the engine's own word, asked every second; the device's "
            "figures come from a manifest, a plan or a probe."
        ),
        (*table.OF_UPSTREAMS, table.UPSTREAM_INFO),
    ),
    ("Now", "Of the gateway at the moment it is asked.", table.OF_GATEWAY),
    ("Connections and failures", "", table.OF_COUNTERS),
    ("Sharing", "Where several gateways share engines through Valkey or Redis.", table.OF_SHARING),
    ("Its own telling", "", table.OF_ITSELF),
)

SPANS = (
    (
        "`{operation} {model}`",
        "the request, from its arrival to its end; its parent is the client's span, and engines get it as theirs",
    ),
    ("`queue`", "its wait, where it was not let in at once"),
    ("`prefill`", "from when it was sent to the first event with output"),
    ("`decode`", "from there to the end of the stream"),
    ("`generate`", "both, for an answer that is not streamed"),
    ("`release`", "from its end or cancellation until its reservation was free"),
    (
        "`blocks returned`",
        "from there until the engine was seen to hold its blocks no more; sent later than the others",
    ),
)
EVENTS = (
    ("`decision`", "the policy's first answer, with its rule and numbers"),
    (
        "`blocks reserved`",
        "it was admitted, with the numbers of that decision (`vramledger.need_blocks`, ...)",
    ),
    (
        "`blocks in use`",
        "while it streams, a few times a second and thinned out: output tokens, and blocks where their size is known",
    ),
    ("`blocks released`", "its reservation was given back"),
)
ATTRIBUTES = {
    "gen_ai.operation.name": "chat, text_completion or embeddings",
    "gen_ai.provider.name": "the engine; openai where it is not known",
    "gen_ai.request.model": "the model as the client named it",
    "gen_ai.request.max_tokens": "the client's bound on output",
    "gen_ai.request.choice.count": "branches, where there is more than one",
    "gen_ai.request.stream": "true for a stream",
    "gen_ai.response.time_to_first_chunk": "seconds from arrival to the first event with output",
    "gen_ai.usage.input_tokens": "prompt tokens by the engine",
    "gen_ai.usage.cache_read.input_tokens": "of these, found in its prefix cache",
    "gen_ai.usage.output_tokens": "output tokens",
    "http.response.status_code": "of the answer",
    "error.type": "the engine's code, or how it failed",
    "vramledger.request": "its number since the gateway began",
    "vramledger.tenant": "whose it is, by name",
    "vramledger.upstream": "the engine that it was admitted to, by name",
    "vramledger.outcome": "how it ended",
    "vramledger.verdict": "the policy's last word",
    "vramledger.rule": "the rule that decided",
    "vramledger.prompt_tokens": "prompt tokens as counted before it was sent; on `prefill` as the engine reported them",
    "vramledger.prompt_tokens.source": "who counted them",
    "vramledger.uncached_tokens": "of these, to be computed as far as was known",
    "vramledger.reserved_output_tokens": "output that room was kept for, of one branch",
    "vramledger.output_tokens": "output that came",
    "vramledger.output_tokens.counted": "true where these are events of the stream",
    "vramledger.decision_us": "what the policy's first answer took",
    "vramledger.retries": "times that it was sent again",
    "vramledger.out_of_memory": "true where the engine said so",
    "vramledger.prefix.root": "identity of the prompt's first block: a keyed hash, of one tenant alone",
    "vramledger.prefix.id": "identity of all its full blocks, likewise",
    "vramledger.prefix.blocks": "how many these are",
    "vramledger.prefix.hit": "whether the engine found any of it",
    "vramledger.tool.result": "true where it brings a tool's result",
    "vramledger.tool.pause_ms": "since the end of the turn that it continues",
    "vramledger.tool.action": "what the engine still held of that turn: kept, part or lost",
    "vramledger.blocks": "blocks that were reserved, or are in use",
}

LOG_FIELDS = {
    "at_ms": "Unix time of its end; the other times count from its arrival",
    "number": "its number since the gateway began",
    "kind": "chat, completion, response, message or embedding",
    "outcome": "how it ended",
    "tenant": "whose it is, by name",
    "model": "as the client named it, plain and cut at 64",
    "stream": "true for a stream",
    "branches": "prompts times samples",
    "instance": "the engine that it was admitted to, by its place in the configuration",
    "status": "of the answer; absent where there was none",
    "first": "the policy's first word with its rule and numbers, where another one followed",
    "decision": "the last word",
    "decision_us": "what the first answer took",
    "queue_ms": "its wait, where it was queued",
    "first_token_ms": "the first event with output",
    "finished_ms": "its answer was complete, or its client or engine gone",
    "released_us": "from then until its reservation was free",
    "prompt_tokens": "by the engine",
    "counted_prompt_tokens": "as counted before it was sent",
    "counted_by": "who counted",
    "cached_prompt_tokens": "found in the engine's prefix cache",
    "max_output_tokens": "the client's bound",
    "output_tokens": "that came",
    "output_counted": "true where these are events of the stream",
    "answer_bytes": "of the engine's body",
    "retries": "times that it was sent again",
    "engine_error": "the code or type of its error, never its sentence",
    "ran_out": "true where that said that memory ran out",
    "tool_pause_ms": "since the end of the turn that it continues",
    "prefix_kept": "what the engine still held of that turn: kept, part or lost",
    "trace": "the identity of its trace, where that was recorded",
}


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules("vramledger-alerts.yml") if "alert" in rule]


def rules(name: str) -> list[dict[str, Any]]:
    groups = msgspec.yaml.decode((RULES / name).read_bytes())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """(where, expression) of all that asks for metrics: panels, alerts and recording rules."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield "dashboard", target["expr"]
    for name in ("vramledger-alerts.yml", "vramledger-recording.yml"):
        for rule in rules(name):
            yield "alerts", rule["expr"]


def page() -> str:
    """The page's text."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    from vramledger.gateway.metrics.requests import MODELS

    yield _HEAD.format(models=MODELS)
    yield "## Metrics\n"
    yield "A name that ends in `_total` only grows. `job` and `instance` are added by Prometheus.\n"
    asked = list(expressions())
    for title, text, metrics in GROUPS:
        yield f"### {title}\n"
        if text:
            yield f"{text}\n"
        yield from _table(
            ("metric", "type", "labels", "what it is", "asked by"),
            (_row(metric, asked) for metric in metrics),
        )
    yield "## Alerts\n"
    yield "Thresholds are where to begin; those of times depend on what the service promises.\n"
    yield from _table(
        ("alert", "severity", "what it means and what to do"),
        ((f"`{one['alert']}`", one["labels"]["severity"], one["annotations"]["runbook"]) for one in alerts()),
    )
    yield "## Traces\n"
    yield (
        "A client's `traceparent` is continued and passed on to the engine; a trace begins where there is none. Attributes are those of "
        "OpenTelemetry's conventions for generative AI where they exist.\n"
    )
    yield from _table(("span", "what it is"), SPANS)
    yield from _table(("event of the request", "what happened"), EVENTS)
    yield from _table(("attribute", "what it is"), ((f"`{name}`", text) for name, text in ATTRIBUTES.items()))
    yield "A decision's further numbers stand beside it as `vramledger.NAME`.\n"
    yield "## The log of requests\n"
    yield "Fields that are not known are left out. SIGHUP and `POST /reload` go on in the file that has the name then.\n"
    names = [field.name for field in msgspec.structs.fields(LogLine)]
    yield from _table(("field", "what it is"), ((f"`{name}`", LOG_FIELDS[name]) for name in names))


def _row(metric: Metric, asked: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    name = metric.sample_names[0].removesuffix("_bucket")
    where = sorted(
        {place for place, expression in asked if any(word in expression for word in metric.sample_names)}
    )
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"`{name}`", metric.kind.value, labels, metric.help, ", ".join(where)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page().rstrip("\n") + "\n", encoding="utf-8")
