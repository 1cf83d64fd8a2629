"""An experiment in a manifest: what of it stands there, what it evidences, and what it cannot."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from experiment_values import check, experiment, point, stage, trend
from manifests import bare, facts, given, whole
from vramledger.errors import InputError
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.result import Drift, Experiment, ForecastError, PoolConfirmed
from vramledger.manifest.audit import audit
from vramledger.manifest.build import build, plain
from vramledger.manifest.canonical import content_digest
from vramledger.manifest.declared import NOTHING_DECLARED
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.experiment_facts import facts_of, with_experiment
from vramledger.manifest.experiment_points import slo_text
from vramledger.manifest.finding import Finding, State
from vramledger.manifest.reader import read_manifest
from vramledger.manifest.writing import manifest_bytes
from vramledger.report.schema import schema_of
from vramledger.simulation.settings import Slo


def released(found: Experiment, **changes: Any) -> ManifestDocument:
    parts = facts_of(found)
    return build(given(facts=with_experiment(NOTHING_DECLARED, parts), experiment=parts.result, **changes))


def finding(document: ManifestDocument, name: str) -> Finding:
    return next(item.finding for item in audit(document) if item.item.name == name)


def test_it_is_written_and_read_back_and_follows_the_schema() -> None:
    document = released(experiment())
    data = manifest_bytes(document)
    reading = read_manifest(data, "r.json")
    assert reading.document == document
    assert reading.notes == ()
    jsonschema.validate(json.loads(data), schema_of("manifest"))
    assert document.schema_version == "1.1"
    assert document.experiment is not None
    assert "experiment" not in document.not_evidenced
    assert "experiment" in whole().not_evidenced


def test_what_an_experiment_did_not_find_is_listed() -> None:
    document = released(experiment(point=None, latency_model=None))
    listed = [name for name in document.not_evidenced if name.startswith("experiment")]
    assert listed == ["experiment.latency_model", "experiment.operating_point"]


@pytest.mark.parametrize("item", ["load", "cancellation", "update-and-recovery"])
def test_an_experiment_evidences_what_only_load_and_restarts_tell(item: str) -> None:
    assert finding(bare(), item).state is State.NOT_EVIDENCED
    assert finding(released(experiment()), item).state is State.PASSED


def test_the_knee_comes_first_with_its_interval_and_the_latencies_of_the_nearest_stage() -> None:
    knee, *stages = facts_of(experiment()).capacity_results
    assert knee.requests_per_s == 4.0
    assert knee.goodput_requests_per_s == pytest.approx(4.0 * 0.96)
    assert knee.goodput_interval is not None
    assert (knee.goodput_interval.low, knee.goodput_interval.high) == pytest.approx((3.456, 4.224))
    assert [result.requests_per_s for result in stages] == [8.0, 2.0, 4.0, 6.0, 3.2]
    assert {(item.metric, item.percentile): item.seconds for item in knee.latencies} == {
        (item.metric, item.percentile): item.seconds for item in stages[2].latencies
    }
    # Of a short request nobody asked at the mixed load's knee.
    assert (knee.prompt_tokens, knee.output_tokens) == (300, 100)


def test_limits_stand_beside_the_percentiles_that_the_goodput_speaks_of() -> None:
    knee = facts_of(experiment()).capacity_results[0]
    limits = {item.percentile: item.limit_s for item in knee.latencies if item.metric == "ttft"}
    assert limits == {50: 2.0, 95: 2.0, 99: None}
    assert all(item.limit_s is None for item in knee.latencies if item.metric == "e2e")


def test_a_percentile_is_told_only_where_enough_requests_came() -> None:
    told = {
        result.requests_per_s: {item.percentile for item in result.latencies}
        for result in facts_of(
            experiment(stages=tuple(stage(f"s{rate}", rate) for rate in (0.3, 1.0, 2.0)))
        ).capacity_results[1:]
    }
    assert told == {0.3: {50}, 1.0: {50, 95}, 2.0: {50, 95, 99}}


def test_load_beyond_the_point_is_a_burst_and_says_of_what_kind() -> None:
    results = facts_of(experiment()).capacity_results
    bursts = [result for result in results if result.arrival == "burst"]
    # What is beyond the mixed load's point is not beyond what short requests alone may come at.
    assert [result.requests_per_s for result in bursts] == [6.0]
    assert "poisson arrivals beyond the operating point for 60 s" in bursts[0].source


def test_of_agents_requests_are_counted_and_not_sessions() -> None:
    calm = stage("tools", 1.0, step=Step.DISTURBED)
    agents = replace(calm, kind=Kind.TOOLS, measured=replace(calm.measured, offered_per_s=4.5))
    assert facts_of(experiment(stages=(agents,), point=None)).capacity_results[0].requests_per_s == 4.5


@pytest.mark.parametrize(
    ("arrivals", "burstiness", "arrival"),
    [
        ("gamma", 3.0, "burst"),
        ("gamma", 1.0, "poisson"),
        ("gamma", 0.5, "steady"),
        ("even", 1.0, "steady"),
        ("trace", 1.0, "trace"),
    ],
)
def test_arrivals_have_the_manifest_s_words(arrivals: Any, burstiness: float, arrival: str) -> None:
    found = experiment(plan=ExperimentPlan(arrivals=arrivals, burstiness=burstiness))
    assert facts_of(found).capacity_results[0].arrival == arrival


def test_a_client_that_was_late_itself_tells_no_latencies() -> None:
    late = tuple(replace(item, drift=Drift(is_trusted=False)) for item in experiment().stages)
    found = facts_of(experiment(stages=late))
    assert all(not result.latencies for result in found.capacity_results)
    assert not found.result.is_drift_trusted


def test_a_stage_that_was_cut_off_is_no_operating_point() -> None:
    cut = tuple(replace(item, is_whole=False) for item in experiment().stages)
    (knee,) = facts_of(experiment(stages=cut)).capacity_results
    assert knee.latencies == ()
    assert facts_of(experiment(stages=(), point=None)).capacity_results == ()


def test_what_nothing_tells_is_no_test_and_one_failure_is_a_failure() -> None:
    untold = experiment(checks=(check("rolling_update", Step.RESTART, passed=None),))
    assert facts_of(untold).tests == ()
    twice = experiment(
        checks=(
            check("rolling_update", Step.RESTART, passed=False, smallest_headroom_bytes=7),
            check("rolling_update", Step.RESTART, smallest_headroom_bytes=5),
        )
    )
    (test,) = facts_of(twice).tests
    assert (test.passed, test.smallest_headroom_bytes) == (False, 5)
    assert finding(released(twice), "update-and-recovery").state is State.FAILED


@pytest.mark.parametrize(("unit", "after"), [("blocks", 8.0), ("tokens", 128.0), ("ratio", 8 / 2048)])
def test_blocks_that_did_not_come_back_fail_the_audit(unit: str, after: float) -> None:
    lost = check("kv_returned_after_cancellation", Step.DISTURBED, before=0.0, after=after, unit=unit)
    found = finding(released(experiment(checks=(lost,))), "cancellation")
    assert (found.state, found.reason) == (State.FAILED, "8 blocks did not come back")


def test_what_an_experiment_tested_takes_the_place_of_what_was_declared() -> None:
    both = with_experiment(facts(), facts_of(experiment()))
    assert [test.name for test in both.tests] == [
        "kv_returned_after_cancellation", "rolling_update", "recovery_headroom",
    ]  # fmt: skip
    assert all(test.source.startswith("experiment.json") for test in both.tests)
    assert len(both.capacity_results) == 2 + 6
    assert both.admission == facts().admission


def test_the_model_the_trends_and_the_forecasts_are_kept() -> None:
    result = facts_of(experiment()).result
    assert result.latency_model is not None
    assert (result.latency_model.floor_ps, result.latency_model.relative_error) == (8_000_000_000, 0.06)
    assert [(item.name, item.verdict) for item in result.trends] == [("engine memory", "flat")]
    (error,) = result.forecast_errors
    assert (error.stages, error.largest_absolute_relative) == (2, 0.3)
    assert error.mean_absolute_relative == pytest.approx(0.2)
    assert result.skipped == ("load: the engine was not started here",)
    assert (result.steady_requests_per_s, result.steady_s) == (3.2, 1800.0)


def test_no_path_and_no_address_of_the_machine_gets_into_it() -> None:
    found = experiment(plan=ExperimentPlan(workload="/home/someone/loads/chat.toml"))
    target = replace(found.target, model="/home/someone/models/tiny.gguf")
    text = manifest_bytes(released(replace(found, target=target))).decode()
    assert "chat.toml" in text
    assert "tiny.gguf" in text
    assert "someone" not in text
    assert "127.0.0.1" not in text


def test_another_engine_is_refused_and_another_version_told() -> None:
    with pytest.raises(InputError, match="another instance: engine is 'sglang', the plan's 'vllm'"):
        released(experiment("sglang"))
    found = experiment()
    other = replace(found.target, engine_version="0.0.1", context_len=7)
    told = released(replace(found, target=other, pool=PoolConfirmed(engine_tokens=5, agrees=False)))
    assert any(text.startswith("engine version: planned ") for text in told.disagreements)
    assert any(text.startswith("context_len: planned ") for text in told.disagreements)
    assert any(text.startswith("KV pool: planned ") and text.endswith(" 5") for text in told.disagreements)


def test_a_point_outside_its_own_interval_is_refused() -> None:
    document = released(experiment())
    raw = plain(document)
    raw["experiment"]["operating_point"]["low_requests_per_s"] = 5.0
    raw["digest"] = content_digest(raw)
    with pytest.raises(InputError, match="outside its own interval"):
        read_manifest(json.dumps(raw).encode(), "r.json")
    raw["experiment"]["operating_point"]["low_requests_per_s"] = -1.0
    raw["digest"] = content_digest(raw)
    with pytest.raises(InputError, match="not a manifest of version 1"):
        read_manifest(json.dumps(raw).encode(), "r.json")


def test_a_point_at_an_end_of_its_interval_or_at_nothing_is_sound() -> None:
    for found in (
        point(low_per_s=4.1, high_per_s=4.2),  # a knee beside its bootstrap
        point(per_s=0.0, low_per_s=0.0, high_per_s=0.0, goodput=0.0, risk=1.0),
        point(is_limit_of_load=True, beyond_per_s=None, high_per_s=4.0),
    ):
        document = released(experiment(point=found))
        assert read_manifest(manifest_bytes(document), "r.json").document == document


def test_a_growing_quantity_is_kept_with_its_interval() -> None:
    grows = trend("kv used when drained", verdict="grows", low_per_hour=10.0, high_per_hour=30.0)
    (kept,) = facts_of(experiment(trends=(grows,))).result.trends
    assert (kept.low_per_hour, kept.high_per_hour, kept.verdict) == (10.0, 30.0, "grows")


def test_an_slo_in_words() -> None:
    assert slo_text(Slo(ttft_ms=2000.0, latency_ms=30_000.0), 0.95) == (
        "95 % of requests within ttft 2 s, e2e 30 s"
    )
    assert slo_text(Slo(), 1.0) == "100 % of requests answered"
    assert facts_of(experiment()).result.began_at == "2026-11-30T00:53:20Z"


def test_figures_that_cannot_be_are_refused_before_they_are_written() -> None:
    with pytest.raises(InputError, match=r"experiment\.json says what no manifest can: .*>= 0"):
        facts_of(experiment(stages=(replace(stage("s", 2.0), per_s=-1.0),), point=None))
    with pytest.raises(InputError, match="says what no manifest can"):
        facts_of(experiment(point=point(confidence=1.0)))


def test_an_error_of_a_forecast_without_a_size_is_left_out() -> None:
    odd = ForecastError(stage="s", figure="left", forecast=1.0, measured=0.0, relative=float("inf"))
    assert facts_of(experiment(forecast_errors=(odd,))).result.forecast_errors == ()
