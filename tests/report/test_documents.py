"""The published documents: their schemas, the way there and back, and what they say of five kinds of model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

from five_kinds import FIVE, checkpoint, planned
from vramledger import devices
from vramledger.documents.plan import PlanDocument, plan_document
from vramledger.errors import OutputError, VramledgerError
from vramledger.report.devices_document import DevicesDocument, devices_document
from vramledger.report.error_document import ErrorCode, ErrorDocument, error_document
from vramledger.report.model_document import ModelDocument, model_document
from vramledger.report.schema import schema_file, schema_names, schema_of, schema_text, write_schemas

SCHEMAS = Path(__file__).parents[2] / "schema"


def plan_json(kind: str, **flags: Any) -> dict[str, Any]:
    text = msgspec.json.encode(plan_document(planned(kind, **flags)))
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_committed_schemas_are_those_of_the_types(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.glob("*.json")}
    assert made == committed, "run `python -m vramledger.report.schema schema`"


@pytest.mark.parametrize("name", schema_names())
def test_schemas_are_schemas_and_describe_every_object(name: str) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(schema_text(name)) == schema
    assert schema_file(name).startswith(name)
    objects = [part for part in schema["$defs"].values() if part.get("type") == "object"]
    assert objects
    assert all(part.get("description") for part in objects)


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("flags", [{}, {"tp": 1, "max_model_len": 4096}, {"engine": "vllm==0.8.5", "pp": 2}])
def test_plans_are_valid_and_come_back_equal(kind: str, flags: dict[str, Any]) -> None:
    document = plan_document(planned(kind, **flags))
    text = msgspec.json.encode(document)
    jsonschema.Draft202012Validator(schema_of("plan")).validate(json.loads(text))
    assert msgspec.json.decode(text, type=PlanDocument) == document
    assert document.schema_version.split(".")[0] == "1"


@pytest.mark.parametrize("kind", FIVE)
def test_models_are_valid_and_come_back_equal(kind: str) -> None:
    document = model_document(checkpoint(kind))
    text = msgspec.json.encode(document)
    jsonschema.Draft202012Validator(schema_of("model")).validate(json.loads(text))
    assert msgspec.json.decode(text, type=ModelDocument) == document
    assert sum(kind.num_layers for kind in document.layers if kind.stack == "decoder") == document.num_layers
    assert sum(document.parameters.by_group.values()) == document.parameters.total
    assert sum(share.stored_bytes for share in document.formats) == document.disk_bytes


def test_the_catalogue_is_valid_and_comes_back_equal() -> None:
    document = devices_document(devices())
    text = msgspec.json.encode(document)
    jsonschema.Draft202012Validator(schema_of("devices")).validate(json.loads(text))
    assert msgspec.json.decode(text, type=DevicesDocument) == document


def test_an_old_reader_ignores_fields_of_a_later_minor_version() -> None:
    document = plan_document(planned("dense"))
    later = json.loads(msgspec.json.encode(document)) | {"schema_version": "1.7", "news": 1}
    assert msgspec.json.decode(json.dumps(later), type=PlanDocument).ranks == document.ranks
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(later | {"schema_version": "2.0"}), type=PlanDocument)


@pytest.mark.parametrize("kind", FIVE)
def test_peaks_are_sums_of_the_entries_alive_in_a_phase(kind: str) -> None:
    for rank in plan_json(kind)["ranks"]:
        for peak in rank["peaks"]:
            for end in ("low", "expected", "high"):
                held = [entry["bytes"][end] for entry in rank["entries"] if peak["phase"] in entry["phases"]]
                assert peak["bytes"][end] == sum(held)
        largest = max(rank["peaks"], key=lambda peak: peak["bytes"]["expected"])
        binding = next(peak for peak in rank["peaks"] if peak["phase"] == rank["binding_phase"])
        assert binding["bytes"]["expected"] == largest["bytes"]["expected"]


@pytest.mark.parametrize("kind", FIVE)
def test_every_entry_says_how_it_is_known(kind: str) -> None:
    for rank in plan_json(kind)["ranks"]:
        for entry in rank["entries"]:
            assert entry["evidence"]["source"]
            size = entry["bytes"]
            assert 0 <= size["low"] <= size["expected"] <= size["high"]


def test_alike_ranks_are_folded_and_stages_are_not() -> None:
    assert [rank["ranks"] for rank in plan_json("dense", tp=8)["ranks"]] == [list(range(8))]
    stages = [rank["ranks"] for rank in plan_json("dense", tp=2, pp=2)["ranks"]]
    assert sorted(rank for stage in stages for rank in stage) == [0, 1, 2, 3]
    assert len(stages) == 2


def test_dense_bytes_a_token() -> None:
    assert plan_json("dense", tp=1)["kv_pool"]["bytes_per_token"] == 131_072
    assert plan_json("dense", tp=2)["kv_pool"]["bytes_per_token"] == 65_536
    assert plan_json("dense", tp=16)["kv_pool"]["bytes_per_token"] == 16_384


def test_latents_are_kept_whole_on_every_rank() -> None:
    for tp in (1, 4):
        assert plan_json("latent", tp=tp)["kv_pool"]["bytes_per_token"] == 27 * (512 + 64) * 2
    assert model_document(checkpoint("latent")).kv_cache[0].bytes_per_token == 31_104


def test_a_mixture_holds_all_experts_and_runs_some() -> None:
    parameters = model_document(checkpoint("mixture")).parameters
    assert parameters.active < parameters.total // 5
    weights = [e for e in plan_json("mixture", tp=1)["ranks"][0]["entries"] if e["owner"] == "weights"]
    assert max(weights, key=lambda entry: entry["bytes"]["expected"])["name"] == "experts"
    assert sum(entry["bytes"]["expected"] for entry in weights) > 2 * parameters.total


def test_windows_cost_less_in_the_long_run_than_at_admission() -> None:
    pool = plan_json("windowed", tp=1)["kv_pool"]
    assert {group["kind"] for group in pool["groups"]} == {"full_attention", "sliding_window"}
    assert pool["steady"]["bytes_per_request"] < pool["admission"]["bytes_per_request"]
    assert pool["steady"]["concurrency"]["expected"] > pool["admission"]["concurrency"]["expected"]
    cost = model_document(checkpoint("windowed")).kv_cache[0]
    assert (cost.bytes_per_token, cost.windowed_bytes) == (26 * 1024, 22 * 1024)


def test_recurrent_layers_keep_a_constant_state() -> None:
    pool = plan_json("recurrent")["kv_pool"]
    assert pool["state_bytes_per_sequence"] > 0
    assert {group["kind"] for group in pool["groups"]} == {"full_attention", "mamba"}
    document = model_document(checkpoint("recurrent"))
    # 12 of 48 layers keep keys and values: 2 heads of 256, two bytes each.
    assert document.kv_cache[0].bytes_per_token == 12 * 2 * 2 * 256 * 2
    # 36 states of 32 x 128 x 128 and three steps of 2 x 2048 + 4096 channels, in bf16.
    assert document.state_bytes_per_sequence == 36 * 2 * (32 * 128 * 128 + 3 * 8192)


def test_errors_follow_their_schema_whatever_their_facts_are() -> None:
    facts = {
        "value": float("nan"), "large": 2**70, "path": Path("x"), "half": "\udcff", "nested": {1: [float("inf"), None]},
    }  # fmt: skip
    text = msgspec.json.encode(error_document("config", "no \udcff", facts))
    found = json.loads(text)
    jsonschema.Draft202012Validator(schema_of("error")).validate(found)
    assert found["error"]["facts"] == {
        "value": "nan", "large": str(2**70), "path": "x", "half": "\\udcff", "nested": {"1": ["inf", None]},
    }  # fmt: skip
    assert msgspec.json.decode(text, type=ErrorDocument).error.message == "no \\udcff"


def test_every_error_class_has_a_published_code() -> None:
    def codes(kind: type[VramledgerError]) -> set[str]:
        return {kind.code}.union(*(codes(below) for below in kind.__subclasses__()))

    published = set(get_args(ErrorCode))
    assert codes(VramledgerError) - {"error"} <= published
    assert OutputError.code in published
