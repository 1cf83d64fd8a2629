"""An experiment's plan in TOML."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.errors import InputError
from vramledger.experiment.plan import ExperimentPlan, Step
from vramledger.experiment.plan_file import checked_plan, differences, quick, read_plan_file
from vramledger.simulation.settings import Slo


def test_what_a_file_does_not_say_is_as_usual() -> None:
    assert read_plan_file(b"", "p.toml") == ExperimentPlan()
    found = read_plan_file(b'stage_s = 30\nskip = ["restart"]\n[slo]\nttft_ms = 500\n', "p.toml")
    assert found.stage_s == 30.0
    assert found.skip == (Step.RESTART,)
    assert found.slo == Slo(ttft_ms=500.0, tpot_ms=200.0)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("stage_s = 0", "stage_s"),
        ("stage_s = nan", "stage_s"),
        ("stage_s = inf", "stage_s"),
        ("stages_s = 3", "did you mean stage_s"),
        ("goodput = 1.5", "goodput"),
        ("growth = 1.0", "growth"),
        ("seed = -1", "seed"),
        ("seed = true", "seed"),
        ("stage_requests = 2.5", "stage_requests"),
        ("[slo]\nttft_ms = -1", "slo.ttft_ms"),
        ("[slo]\nttft = 1", "slo.ttft"),
        ("slo = 3", "slo"),
        ("skip = 'prefix'", "skip"),
        ("skip = ['suffix']", "skip: there is no step 'suffix'; there are load, warm-up"),
        ("skip = [['prefix']]", "skip"),
        ("skip = ['operating-point']", "skip"),
        ("arrivals = 'trace'", "arrivals"),
        ("arrivals = 'never'", "arrivals"),
        ("stage_s = ", "not TOML"),
        ("interval_s = 0.001", "interval_s"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(text: str, key: str) -> None:
    with pytest.raises(InputError) as caught:
        read_plan_file(text.encode(), "p.toml")
    assert key in caught.value.message
    assert "p.toml" in caught.value.message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_plan_or_refused(data: bytes) -> None:
    try:
        plan = read_plan_file(data, "p.toml")
    except InputError:
        return
    assert checked_plan(plan, "again") == plan


def test_a_quick_plan_is_nowhere_longer_and_keeps_its_aims() -> None:
    slow = ExperimentPlan(slo=Slo(ttft_ms=7.0))
    fast = quick(slow)
    assert fast.steady_s < slow.steady_s
    assert fast.stage_s * fast.most_stages < slow.stage_s * slow.most_stages
    assert fast.slo == slow.slo
    assert quick(fast) == fast
    assert checked_plan(fast, "quick") == fast


def test_differences_name_what_was_and_what_is() -> None:
    before = ExperimentPlan()
    assert differences(before, before) == []
    assert differences(before, ExperimentPlan(stage_s=5.0, slo=Slo(ttft_ms=3.0))) == [
        "slo.ttft_ms 2000.0 is now 3.0",
        "slo.tpot_ms 200.0 is now None",
        "stage_s 60.0 is now 5.0",
    ]


def test_the_example_has_every_usual_value() -> None:
    example = Path(__file__).parents[2] / "examples" / "experiment.toml"
    text = example.read_text(encoding="utf-8")
    assert read_plan_file(text.encode(), example.name) == ExperimentPlan()
    named = {line.lstrip("# ").partition(" = ")[0] for line in text.splitlines() if " = " in line}
    assert {*ExperimentPlan.__struct_fields__, *ExperimentPlan().slo.__struct_fields__} - {"slo"} <= named
