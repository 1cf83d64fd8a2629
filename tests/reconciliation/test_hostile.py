"""Measurements that cannot be true still give a reconciliation, a page and a plan that can be published."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from five_kinds import planned
from measurements import MEASUREMENTS
from vramledger.answer import Plan
from vramledger.documents.plan import plan_document
from vramledger.documents.plan_reader import read_plan
from vramledger.measurement import Measurement
from vramledger.reconciliation.arguments import plan_arguments
from vramledger.reconciliation.document import read_reconciliation, reconciliation_document
from vramledger.reconciliation.measured_plan import reconciled_plan
from vramledger.reconciliation.reconcile import reconcile
from vramledger.report.reconciliation_text import reconciliation_lines
from vramledger.report.text import render

PLANS = st.sampled_from(
    [
        planned("mixture"),
        planned("windowed", engine="sglang"),
        planned("dense", engine="llamacpp", tp=1),
        planned("dense", pp=2),
        planned("recurrent", engine="tensorrt-llm"),
    ]
)


VALUES = st.text(max_size=8) | st.integers(-(2**70), 2**70) | st.booleans() | st.floats(-1e30, 1e30)


@given(
    plan=PLANS,
    measurement=MEASUREMENTS,
    values=st.lists(VALUES, min_size=12, max_size=12),
    named=st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_nothing_measured_breaks_it(
    plan: Plan, measurement: Measurement, values: list[str | int | float], named: bool
) -> None:
    if named:
        names = [name for name, _ in plan.inputs.settings]
        told = tuple(zip(names, values, strict=False))
        measurement = replace(measurement, engine=plan.inputs.engine, settings=told)
        assert plan_arguments(measurement).engine == plan.inputs.engine
    found = reconcile(plan, measurement)
    text = msgspec.json.encode(reconciliation_document(found))
    assert read_reconciliation(text, where="r.json") == found
    page = render(reconciliation_lines(found, width=80, explain=True), colour=False)
    assert all(line.isprintable() for line in page.splitlines())
    made = reconciled_plan(plan, measurement)
    assert read_plan(msgspec.json.encode(plan_document(made)), where="p.json") == made
