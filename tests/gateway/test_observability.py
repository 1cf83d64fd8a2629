"""Dashboard, rules, alerts and page against what a gateway that has served requests really tells."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import promql_parser
import pytest
from msgspec.structs import replace

from gateway.client import ask, gateway_to, request, until
from gateway.collector import collector
from gateway.engine import USAGE, WORD, Call, Engine, event
from gateway.policies import Places
from gateway.test_blocks_back import turn
from gateway.test_metrics import WHOLE
from tools import gateway_dashboard, observability_page
from vramledger.gateway.admitter import (
    Decision,
    Ending,
    PromptTokens,
    RequestFacts,
    TokenSource,
    Verdict,
)
from vramledger.gateway.config import GatewayConfig
from vramledger.gateway.metrics import table
from vramledger.gateway.record import RequestRecord
from vramledger.gateway.request_log import LogLine
from vramledger.gateway.shared.keeper import SharingCounters
from vramledger.gateway.snapshot import gateway_state
from vramledger.gateway.telemetry import Telemetry
from vramledger.gateway.tracing.prefix_identity import PrefixIdentity
from vramledger.gateway.tracing.settings import TraceSettings
from vramledger.gateway.tracing.spans import spans_of
from vramledger.telemetry.exposition import parse_exposition

OF_THE_SCRAPE = {"job", "instance"}
UNASKED: set[str] = set()
"""Metrics that neither the dashboard nor an alert asks for."""
UNITS = {"none", "s", "bytes", "percentunit", "reqps"}
DEPLOY = observability_page.ROOT / "deploy"


class Reserves(Places):
    """Says what it reserved."""

    def _admitted(self, number: int) -> Decision:
        super()._admitted(number)
        numbers = {"uncached_tokens": 4, "reserved_output_tokens": 2, "need_blocks": 2, "block_size": 16}
        return Decision(verdict=Verdict.ADMIT, rule="fits", numbers=numbers)


class Counts:
    """Every prompt is the last one and a block more."""

    def __init__(self) -> None:
        self.keys: tuple[int, ...] = ()

    async def count(self, asked: object, facts: RequestFacts) -> PromptTokens:
        self.keys = (*self.keys, len(self.keys))
        return PromptTokens(tokens=12, most_tokens=12, source=TokenSource.TOKENIZER, keys=self.keys)

    def learn(self, facts: RequestFacts, ending: Ending) -> None: ...


async def busy_gateway(telemetry: Telemetry) -> bytes:
    """What a scrape reads of a gateway that has seen a bit of everything."""
    let_go = asyncio.Event()

    async def script(call: Call) -> None:
        await let_go.wait()
        if b'"stream": true' in call.body:
            await call.stream(WORD, WORD, WORD, event({"choices": [], "usage": USAGE}))
        else:
            await call.whole()

    policy = Reserves(1)
    async with (
        Engine(script) as engine,
        gateway_to(engine, policy, observers=telemetry.observers, counter=Counts()) as gateway,
    ):
        telemetry.sampled(0, 1, 0, 0)
        asks = []
        for number, stream in enumerate((True, False)):
            message = request(stream=stream, messages=[{"role": "tool", "content": "x"}])
            asks.append(asyncio.create_task(ask(gateway.port, message)))
            await until(partial(policy.knows, number + 1))
        await ask(gateway.port, request(max_tokens=2_000_000))
        let_go.set()
        await asyncio.gather(*asks)
        await until(lambda: not gateway.connections)
        telemetry.sampled(0, gateway.clock_ns(), 0, 0)
        state = gateway_state(gateway, [replace(WHOLE, name="left"), replace(WHOLE, name="right")])
        body, _ = telemetry.exposition(state, gateway.counters, gateway.observers)
    return body


@dataclass(frozen=True)
class Told:
    """Labels of each metric, by name."""

    labels: dict[str, set[str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    with collector() as taken:
        telemetry = Telemetry(
            sharing=SharingCounters(calls=5),
            instances=["left", "right"],
            log=tmp_path_factory.mktemp("log") / "requests",
            traces=TraceSettings(endpoint=taken.endpoint, ratio=1),
        )
        body = asyncio.run(busy_gateway(telemetry))
        telemetry.close(30)
    labels: dict[str, set[str]] = {}
    for line in parse_exposition(body).readings:
        labels.setdefault(line.name, set()).update(line.labels)
    yield Told(labels)


def test_a_busy_gateway_tells_all_that_stands_in_the_table(told: Told) -> None:
    expected = {
        name: {*metric.labels, *(["le"] if name.endswith("_bucket") else [])}
        for metric in table.METRICS
        for name in metric.sample_names
    }
    ours = {name: labels for name, labels in told.labels.items() if name.startswith("vramledger_")}
    assert ours == expected


def recorded(told: Told) -> dict[str, set[str]]:
    """Labels of what the rules record: those that their expressions leave."""
    return {
        rule["record"]: result_labels(promql_parser.parse(rule["expr"]), told.labels)
        for rule in observability_page.rules("vramledger-recording.yml")
    }


def result_labels(expression: Any, known: dict[str, set[str]]) -> set[str]:
    """Labels that an expression's result may have."""
    match expression:
        case promql_parser.AggregateExpr():
            inside = result_labels(expression.expr, known)
            return inside & set(expression.modifier.labels) if expression.modifier else set()
        case promql_parser.BinaryExpr():
            sides = (result_labels(side, known) for side in (expression.lhs, expression.rhs))
            return set.union(*sides)
        case promql_parser.VectorSelector():
            return known[str(expression.name)] | OF_THE_SCRAPE
        case promql_parser.MatrixSelector():
            return result_labels(expression.vector_selector, known)
        case promql_parser.Call():
            found = [result_labels(argument, known) for argument in expression.args]
            return set().union(*found) - ({"le"} if expression.func.name == "histogram_quantile" else set())
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            return result_labels(expression.expr, known)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return set()
    raise AssertionError(f"{type(expression).__name__} is not looked into")


def check(text: str, known: dict[str, set[str]]) -> tuple[set[str], set[str]]:
    """(names asked for, labels of the result); fails at a name or a label that is not told."""
    expression = promql_parser.parse(text)
    names: set[str] = set()

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name in known, f"{node.name} in {text}"
            names.add(node.name)
            for matcher in node.matchers.matchers:
                assert matcher.name in known[node.name] | OF_THE_SCRAPE, f"{matcher.name} in {text}"
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            inside = result_labels(node.expr, known)
            assert set(node.modifier.labels) <= inside, f"{node.modifier.labels} in {text}"
        elif isinstance(node, promql_parser.BinaryExpr) and node.modifier and node.modifier.matching:
            for side in (node.lhs, node.rhs):
                assert set(node.modifier.matching.labels) <= result_labels(side, known), text
        return True

    promql_parser.walk(expression, visit)
    return names, result_labels(expression, known)


def for_a_parser(text: str) -> str:
    """Grafana's variables as it would fill them in."""
    for variable, value in (("$__rate_interval", "5m"), ("$job", ".*"), ("$upstream", ".*")):
        text = text.replace(variable, value)
    assert "$" not in text
    return text


def test_what_dashboard_and_rules_ask_for_is_told(told: Told) -> None:
    known = {**told.labels, **recorded(told), "up": set()}
    asked: set[str] = set()
    for _, text in observability_page.expressions():
        asked |= check(for_a_parser(text), known)[0]
    asked_families = {metric.name for metric in table.METRICS if asked.intersection(metric.sample_names)}
    assert {metric.name for metric in table.METRICS} - asked_families == UNASKED
    assert recorded(told).keys() <= asked | {
        rule["record"] for rule in observability_page.rules("vramledger-recording.yml")
    }


def test_legends_name_labels_that_are_there(told: Told) -> None:
    for panel in gateway_dashboard.dashboard()["panels"]:
        for target in panel.get("targets", ()):
            _, labels = check(for_a_parser(target["expr"]), told.labels)
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, target


def test_each_alert_says_what_to_do(told: Told) -> None:
    known = {**told.labels, **recorded(told), "up": set()}
    tested = (DEPLOY / "prometheus" / "vramledger-alerts.test.yml").read_text()
    names = [rule["alert"] for rule in observability_page.alerts()]
    assert len(set(names)) == len(names)
    for rule in observability_page.alerts():
        assert rule["alert"].startswith("Vramledger")
        assert f'alertname="{rule["alert"]}"' in tested
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert len(rule["annotations"]["runbook"]) > 100
        _, labels = check(rule["expr"], known)
        for text in rule["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels, rule["alert"]


@pytest.mark.parametrize(
    "bad",
    [
        "vramledger_admisions_total",
        'vramledger_used_blocks{instanse="x"}',
        "sum by (uptream) (vramledger_used_blocks)",
    ],
)
def test_a_planted_mistake_is_found(told: Told, bad: str) -> None:
    with pytest.raises(AssertionError):
        check(bad, told.labels)


def test_settings_that_texts_name_exist() -> None:
    texts = [
        observability_page.page(),
        *((rule["annotations"]["runbook"]) for rule in observability_page.alerts()),
    ]
    fields = {field.name: field.type for field in msgspec.structs.fields(GatewayConfig)}
    named = {
        found
        for text in texts
        for found in re.findall(
            r"\b(policy|telemetry|limits|timeouts|admin|shared)\.([a-z]+(?:_[a-z]+)*)\b", text
        )
    }
    assert len(named) >= 3
    for section, name in named:
        assert name in {field.name for field in msgspec.structs.fields(fields[section])}, f"{section}.{name}"


def test_the_dashboard_is_that_of_its_panels_and_in_order() -> None:
    assert gateway_dashboard.PAGE.read_text(encoding="utf-8") == gateway_dashboard.page(), (
        "python -m tools.gateway_dashboard"
    )
    shown = gateway_dashboard.dashboard()
    variables = {one["name"] for one in shown["templating"]["list"]}
    assert (
        set(re.findall(r"\$\{?(\w+)", gateway_dashboard.page())) - {"__rate_interval", "__all"} <= variables
    )
    taken: set[tuple[int, int]] = set()
    numbers = [panel["id"] for panel in shown["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in shown["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= gateway_dashboard.WIDTH
        assert not cells & taken
        taken |= cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            references = [target["refId"] for target in panel["targets"]]
            assert references == sorted(set(references))
            assert len(references) <= 26


def test_the_page_is_that_of_the_tables() -> None:
    written = observability_page.PAGE.read_text(encoding="utf-8")
    assert written == observability_page.page().rstrip("\n") + "\n", "python -m tools.observability_page"


def test_the_page_knows_all_attributes_and_fields() -> None:
    record = turn((11, 12), 10, 2_000_000_000)
    record.ended_ns, record.sent_ns, record.first_token_ns, record.released_ns = (
        2_000_000_002,
        20,
        30,
        2_000_000_001,
    )
    spans = list(spans_of(record, [(40, 5)], PrefixIdentity(b"s"), lambda instance: ("left", "vllm")))
    names = {name for span in spans for name in span.attributes}
    names |= {name for span in spans for one in span.events for name in one.attributes}
    assert names <= observability_page.ATTRIBUTES.keys()
    assert {f"`{span.name}`" for span in spans[1:]} <= {name for name, _ in observability_page.SPANS}
    assert {f"`{one.name}`" for span in spans for one in span.events} <= {
        name for name, _ in observability_page.EVENTS
    }
    assert [field.name for field in msgspec.structs.fields(LogLine)] == list(observability_page.LOG_FIELDS)
    assert RequestRecord(facts=record.facts).trace is None


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_alerts_by_promtool() -> None:
    folder = DEPLOY / "prometheus"
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "vramledger-alerts.test.yml"]):
        done = subprocess.run(
            ["promtool", *command], cwd=folder, check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_files_to_deploy_are_there() -> None:
    assert {path.name for path in Path(DEPLOY / "prometheus").iterdir()} == {
        "prometheus.yml", "vramledger-alerts.test.yml", "vramledger-alerts.yml", "vramledger-recording.yml",
    }  # fmt: skip
