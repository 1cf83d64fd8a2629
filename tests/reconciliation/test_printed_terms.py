"""Published start-ups that print every term of vLLM's budget: with these in the ledger, the budget leaves the printed pool."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tools.accuracy.data import ModelSet
from tools.accuracy.parameters import DATA
from tools.accuracy.vllm_cases import newest_by_date, prepare

from vramledger.engines import find_log
from vramledger.engines.vllm.planner import plan
from vramledger.measurement import Measurement
from vramledger.reconciliation.measured_plan import recomputed_budget
from vramledger.reconciliation.reconcile import reconcile
from vramledger.reconciliation.result import Cause, Standing
from vramledger.telemetry.log_reading import read_log
from vramledger.units import GIB

TERMS = ("weights_gib", "activation_peak_gib", "non_torch_gib", "kv_cache_gib")


def rows() -> Iterator[Mapping[str, Any]]:
    text = (DATA / "groundtruth" / "reported-startups.jsonl").read_text(encoding="utf-8")
    for line in text.splitlines():
        row = json.loads(line)
        if row["engine"] == "vllm" and all(name in row["reported"] for name in TERMS):
            yield row


ROWS = {row["id"]: row for row in rows()}


def measured(said: Mapping[str, Any]) -> Measurement:
    """The line of vLLM 0.6.6 to 0.9 with a row's figures, read back."""
    text = (
        "INFO 03-01 10:00:00 worker.py:267] model weights take {weights_gib:.2f}GiB; non_torch_memory takes "
        "{non_torch_gib:.2f}GiB; PyTorch activation peak memory takes {activation_peak_gib:.2f}GiB; the rest of the memory "
        "reserved for KV Cache is {kv_cache_gib:.2f}GiB.\n"
    ).format(**said)
    rules = find_log("vllm")
    assert rules is not None
    return rules.measured(read_log(io.BytesIO(text.encode()), engine="vllm"))


def test_there_are_such_start_ups() -> None:
    assert len(ROWS) >= 8


@pytest.mark.parametrize("name", ROWS)
def test_the_budget_leaves_the_printed_pool(name: str) -> None:
    row = ROWS[name]
    case = prepare(row, ModelSet(DATA), newest_by_date(rows()))
    if case.device is None or not case.weights_known:
        pytest.skip("the row does not tell its device, or its config is of other weights")
    made = plan(case.checkpoint, case.device, version=case.version, parallel=case.parallel, flags=case.flags)
    run = measured(row["reported"])
    budget = recomputed_budget(made, run)
    assert budget is not None
    # Four rounded figures, a device known to the same two digits, and a block that was cut off.
    assert abs(budget.pool_bytes.expected - row["reported"]["kv_cache_gib"] * GIB) <= 0.035 * GIB
    found = reconcile(made, run)
    for line in found.lines:
        if line.name == "pool" and line.standing is Standing.OUTSIDE:
            assert line.reasons[0].cause is Cause.CONSEQUENCE
            assert line.reasons[0].share == pytest.approx(1, abs=0.03)
