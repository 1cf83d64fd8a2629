"""What an experiment comes to in words, and in the manifest that it was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from experiment_values import experiment, point, stage
from manifests import whole
from vramledger.documents.plan_reader import plan_of
from vramledger.errors import FlagError, InputError
from vramledger.experiment.plan import ExperimentPlan, Step
from vramledger.experiment.result import Failure
from vramledger.manifest.derived import disagreements
from vramledger.release.experiment.order import Order, checked_order, launched_words
from vramledger.release.experiment.renewed_manifest import renewed_manifest
from vramledger.release.experiment.sending import SEEDS_OF_A_STEP, seed_of
from vramledger.release.experiment.verdict import conditions_of, verdict_of
from vramledger.simulation.settings import Slo


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give --target URL, or --launch"),
        ({"target": "http://a:1", "launch": "serve {port}"}, "give one of them"),
    ],
)
def test_an_engine_is_found_or_started(given: dict[str, Any], said: str) -> None:
    with pytest.raises(FlagError, match=said):
        checked_order(Order(plan=ExperimentPlan(), out=Path(), made_by="", **given))


def test_a_verdict_says_what_holds_what_binds_and_what_is_left() -> None:
    found = replace(
        experiment(),
        plan=ExperimentPlan(slo=Slo(ttft_ms=1500.0), goodput=0.9),
        point=point(
            per_s=4.0,
            low_per_s=3.5,
            high_per_s=4.5,
            confidence=0.95,
            risk=0.03,
            binds="kv",
            headroom_bytes=3 << 30,
            is_limit_of_load=False,
        ),
        failure=None,
    )
    assert verdict_of(found) == (
        "holds 4 requests/s (3.5 to 4.5 at 95%) with 90% of requests within TTFT 1.5 s, risk 3.0%; kv binds; headroom 3.00 GiB"
    )
    assert "asked directly" in conditions_of(found)


def test_no_load_and_an_end_are_said() -> None:
    found = replace(experiment(), point=point(per_s=0.0, words="nothing was in time"), failure=None)
    assert verdict_of(found).startswith("no load that was tried holds")
    ended = Failure(step=Step.SHORT, at_s=1.0, stage="short-3", words="out of memory")
    assert (
        verdict_of(replace(found, point=None, failure=ended)) == "the engine ended in short-3: out of memory"
    )
    assert verdict_of(replace(found, failure=ended)).endswith("short-3: out of memory")
    assert verdict_of(replace(found, point=None)) == "no load was measured, so nothing can be told"


def test_a_client_that_was_late_is_a_condition() -> None:
    late = stage("mixed-1", 2.0)
    late = replace(late, drift=replace(late.drift, is_trusted=False))
    assert any("mixed-1" in text for text in conditions_of(replace(experiment(), stages=(late,))))


def test_a_manifest_has_what_was_found_and_keeps_what_was_declared() -> None:
    before = whole()
    found = replace(experiment(), stages=(stage("mixed-1", 2.0), stage("mixed-2", 4.0)))
    after = renewed_manifest(before, plan_of(before.plan), found, None, None)
    assert disagreements(after) == ()
    assert after.experiment is not None
    assert after.model == before.model
    assert (after.quantization, after.parameters, after.kv) == (
        before.quantization,
        before.parameters,
        before.kv,
    )
    assert after.capacity_results[: len(before.capacity_results)] == before.capacity_results
    # Made anew of its own outcome it is the same: what an earlier experiment found does not pile up.
    again = renewed_manifest(after, plan_of(after.plan), found, None, None)
    assert len(again.capacity_results) == len(after.capacity_results) - len(before.capacity_results)


def test_an_experiment_on_another_engine_makes_no_manifest() -> None:
    before = whole()
    other = replace(experiment(), target=replace(experiment().target, engine="sglang"))
    with pytest.raises(InputError, match="another instance"):
        renewed_manifest(before, plan_of(before.plan), other, None, None)


def order(**changes: object) -> Order:
    from pathlib import Path

    return Order(plan=ExperimentPlan(), out=Path("x"), made_by="v", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "--target"),
        ({"target": "http://a:1", "launch": "serve --port {port}"}, "--target"),
        ({"launch": "serve"}, "{port}"),
        ({"launch": "serve {model} {port}"}, "--model"),
        ({"launch": "serve {port} {home}"}, "home"),
        ({"launch": "serve '{port}"}, "quotation"),
        ({"launch": "serve {port}", "gateway_url": "http://a:1"}, "--gateway"),
        ({"target": "ftp://a"}, "address"),
        ({"target": "http://user:pass@a:1"}, "password"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(FlagError) as caught:
        checked_order(order(**changes))
    assert says in caught.value.message
    assert "user:pass" not in caught.value.message


def test_a_command_is_the_same_whatever_port_it_got() -> None:
    words = launched_words(order(launch="serve -m {model} --port {port}", model="my model.gguf"))
    assert words == ("serve", "-m", "my model.gguf", "--port", "{port}")


def test_every_stage_has_a_seed_of_its_own() -> None:
    seeds = [seed_of(seed, step, number) for seed in (0, 1, 2) for step in Step for number in range(100)]
    assert len(set(seeds)) == len(seeds)
    assert SEEDS_OF_A_STEP > 100


def test_a_key_is_not_shown() -> None:
    assert "s3cret" not in repr(order(target="http://a:1", key="s3cret"))


def test_a_secret_in_a_command_is_not_kept() -> None:
    words = launched_words(
        order(
            launch="env HF_TOKEN=s3cret serve --api-key s3cret --api-key=s3cret --max-tokens 5 --port {port}"
        )
    )
    assert words == (
        "env", "HF_TOKEN=…", "serve", "--api-key", "…", "--api-key=…", "--max-tokens", "5", "--port", "{port}",
    )  # fmt: skip
