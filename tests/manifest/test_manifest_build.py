"""What a manifest holds: the fields of a release by their names, bytes beside GiB, null for what nobody measured."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from five_kinds import FIVE, checkpoint, planned
from manifests import AT, bare, facts, given, measurement, whole
from support import GPT_OSS_20B
from support import checkpoint as described
from vramledger.errors import InputError
from vramledger.evidence import measured, reported
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.manifest.build import build, plain
from vramledger.manifest.derived import MEASURED, disagreements
from vramledger.manifest.model_facts import kv_facts, parameter_facts, quantization_facts
from vramledger.manifest.reader import read_manifest
from vramledger.manifest.writing import manifest_bytes
from vramledger.measurement import AllocatorState, Figure, MeasuredPool
from vramledger.reconciliation.reconcile import reconcile
from vramledger.report.schema import schema_of

RELEASE_FIELDS = (
    "model_revision", "engine_revision", "tp", "pp", "weight_format", "kv_format", "raw_weight_gib",
    "measured_weight_steady_gib_per_rank", "measured_runtime_peak_gib_per_rank", "kv_kib_per_token_per_rank",
    "kv_pool_gib_per_rank", "headroom_gib_per_rank",
)  # fmt: skip


def read(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    return found


@pytest.mark.parametrize("kind", FIVE)
def test_a_manifest_is_valid_and_comes_back_equal(kind: str) -> None:
    for document in (whole(kind), bare(kind)):
        data = manifest_bytes(document)
        jsonschema.Draft202012Validator(schema_of("manifest")).validate(read(data))
        reading = read_manifest(data, "r.json")
        assert reading.document == document
        assert reading.notes == ()
        assert disagreements(document) == ()


def test_it_has_the_fields_of_a_release_with_bytes_beside_every_gib() -> None:
    found = read(manifest_bytes(whole()))
    for name in RELEASE_FIELDS:
        assert found[name] is not None, name
    for name, value in found.items():
        for unit, size in (("_gib", 2**30), ("_kib", 2**10)):
            if unit in name:
                assert value * size == found[name.replace(unit, "_bytes")], name
    assert found["raw_weight_bytes"] == checkpoint("dense").disk_bytes
    # 32 layers of 4 KV heads on each of two ranks, keys and values of 128 in bf16.
    assert found["kv_kib_per_token_per_rank"] * 1024 == 32 * 4 * 2 * 128 * 2
    assert found["model_revision"].startswith("hub:org/model@")
    assert found["engine_revision"].startswith("vllm ")


def test_equal_inputs_give_equal_bytes() -> None:
    assert manifest_bytes(build(given())) == manifest_bytes(build(given()))
    later = build(given(at="2026-11-30T01:02:04Z"))
    assert later.digest != whole().digest


def test_what_nobody_measured_is_null_and_named() -> None:
    document = bare()
    for name in MEASURED:
        assert getattr(document, name) is None
        assert name in document.not_evidenced
    for name in ("quantization", "adapters", "tool_wait_policy", "capacity_results", "measurement"):
        assert name in document.not_evidenced
    assert document.kv_tokens is not None
    assert document.kv_tokens.measured_logical is None
    assert whole().not_evidenced == ("experiment", "reconciliation")


def test_a_boundary_that_is_half_declared_names_the_other_half() -> None:
    half = facts()
    assert half.prefix_sharing_boundary is not None
    boundary = replace(half.prefix_sharing_boundary, tenant=None, adapter=None)
    document = build(given(facts=replace(half, prefix_sharing_boundary=boundary)))
    assert set(document.not_evidenced) >= {
        "prefix_sharing_boundary.tenant",
        "prefix_sharing_boundary.adapter",
    }


def test_measured_names_hold_measurements_with_their_source_and_time() -> None:
    document = whole()
    assert document.measured_weight_steady_bytes_per_rank == 8_064_081_920
    evidence = {item.figure: item for item in document.evidence}
    weights = evidence["measured_weight_steady_bytes_per_rank"]
    assert weights.evidence.source == "start-up log, weights"
    assert weights.at == "2026-11-30T00:54:20Z"
    assert evidence["measured_runtime_peak_bytes_per_rank"].evidence.kind == "measured"
    total = document.budget.device_total_bytes
    assert document.measured_runtime_peak_bytes_per_rank == total - 7 * 2**30
    assert document.measured_headroom_bytes_per_rank == 7 * 2**30


def test_of_ranks_the_fullest_counts_and_of_what_is_free_the_least() -> None:
    plan = planned("dense", tp=2, pp=2)
    figures = tuple(
        Figure(
            owners=(Owner.WEIGHTS,),
            name="weights",
            bytes=ByteRange.exact(1000 * (rank + 1)),
            evidence=reported("log"),
            ranks=(rank,),
        )
        for rank in range(4)
    )
    states = tuple(
        AllocatorState(
            evidence=measured("nvml"),
            phase=Phase.DECODE,
            ranks=(rank,),
            device_free_bytes=ByteRange.exact(500 + rank),
        )
        for rank in range(4)
    )
    seen = measurement(plan, figures=figures, allocator=states, pools=(), graphs=())
    document = build(given(flags={"tp": 2, "pp": 2}, measurement=replace(seen, pp=2)))
    assert document.measured_weight_steady_bytes_per_rank == 4000
    assert document.measured_headroom_bytes_per_rank == 500
    assert [rank.measured_weight_steady_bytes for rank in document.per_rank] == [2000, 4000]
    assert [rank.measured_ranks for rank in document.per_rank] == [(0, 1), (2, 3)]
    assert document.measured_kv_pool_bytes_per_rank is None
    # Nothing told the device's total, so that what was held is not known.
    assert document.measured_runtime_peak_bytes_per_rank is None


def test_a_reading_before_the_start_is_no_peak() -> None:
    plan = planned("dense")
    for phase in (None, Phase.LOAD):
        state = AllocatorState(
            evidence=measured("nvml"),
            phase=phase,
            device_free_bytes=ByteRange.exact(2**36),
            device_total_bytes=ByteRange.exact(2**37),
        )
        document = build(given(measurement=measurement(plan, allocator=(state,))))
        assert document.measured_runtime_peak_bytes_per_rank is None
        assert document.measured_headroom_bytes_per_rank is None


def test_a_part_of_the_weights_is_not_the_weights() -> None:
    plan = planned("dense")
    part = Figure(
        owners=(Owner.WEIGHTS,),
        name="embedding",
        entries=("embedding",),
        bytes=ByteRange.exact(525_336_576),
        evidence=reported("log"),
    )
    document = build(given(measurement=measurement(plan, figures=(part,))))
    assert document.measured_weight_steady_bytes_per_rank is None


def test_pools_of_several_kinds_add_up_and_of_one_kind_the_smallest_counts() -> None:
    plan = planned("dense")
    pools = tuple(
        MeasuredPool(evidence=reported("log"), bytes=ByteRange.exact(size), kind=kind)
        for kind, size in (("full", 700), ("full", 600), ("window", 50))
    )
    document = build(given(measurement=measurement(plan, pools=pools)))
    assert document.measured_kv_pool_bytes_per_rank == 650


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": "sglang"}, "engine is 'sglang'"),
        ({"tp": 4}, "tp is 4"),
        ({"architecture": "MambaForCausalLM"}, "architecture is 'MambaForCausalLM'"),
    ],
)
def test_the_measurement_of_another_instance_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        build(given(measurement=measurement(planned("dense"), **changes)))


def test_what_may_differ_is_told() -> None:
    seen = measurement(planned("dense"), engine_version="0.11.0")
    assert build(given(measurement=seen)).disagreements == (
        "engine_version: planned 0.33.0, measured 0.11.0",
    )
    assert whole().disagreements == ()


def test_the_plan_of_another_checkpoint_is_refused() -> None:
    with pytest.raises(InputError, match="plan is of another checkpoint: its architecture"):
        build(given(checkpoint=checkpoint("mixture")))


def test_a_reconciliation_stands_in_it_and_one_of_another_plan_is_refused() -> None:
    plan = planned("dense")
    found = reconcile(plan, measurement(plan))
    document = build(given(reconciliation=found))
    assert document.reconciliation is not None
    assert document.not_evidenced == ("experiment",)
    assert read_manifest(manifest_bytes(document), "r.json").document == document
    with pytest.raises(InputError, match="reconciliation is of another plan: its device"):
        build(given(reconciliation=replace(found, device="L4")))


@pytest.mark.parametrize("kind", FIVE)
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_kv_by_heads_is_what_the_plan_has(kind: str, tp: int) -> None:
    pool = planned(kind, tp=tp).kv_pool
    assert pool is not None
    found = kv_facts(checkpoint(kind).model, pool.dtype, tp)
    assert found.by_heads_bytes_per_token == pool.bytes_per_token
    assert found.scale_bytes_per_token == 0


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", {"kv_cache_dtype": "int8_per_token_head"}),
        ("llamacpp", {"ctx_size": 8192, "cache_type_k": "q8_0", "cache_type_v": "q4_0"}),
        ("tensorrt-llm", {"kv_cache_dtype": "nvfp4"}),
    ],
)
def test_scales_are_apart_from_elements(engine: str, flags: dict[str, Any]) -> None:
    pool = planned("dense", tp=1, engine=engine, **flags).kv_pool
    assert pool is not None
    found = kv_facts(checkpoint("dense").model, pool.dtype, 1)
    assert found.element_bytes_per_token is not None
    assert found.scale_bytes_per_token is not None
    assert found.scale_bytes_per_token > 0
    assert found.element_bytes_per_token + found.scale_bytes_per_token == found.by_heads_bytes_per_token
    assert found.by_heads_bytes_per_token == pool.bytes_per_token


def test_heads_are_repeated_where_ranks_outnumber_them() -> None:
    (heads,) = kv_facts(checkpoint("mixture").model, "bfloat16", 8).heads
    assert (heads.kv_heads, heads.kv_heads_per_rank, heads.replicas) == (4, 1, 2)
    (latent,) = kv_facts(checkpoint("latent").model, "bfloat16", 8).heads
    assert (latent.kind, latent.replicas) == ("mla", 8)


def test_a_format_without_arithmetic_is_not_guessed() -> None:
    found = kv_facts(checkpoint("dense").model, "kivi2", 1)
    assert found.by_heads_bytes_per_token is None
    assert found.residual_tokens is None


def test_resident_and_active_parameters() -> None:
    found = parameter_facts(checkpoint("mixture"))
    assert found.moe is not None
    assert (found.moe.num_experts, found.moe.top_k, found.moe.num_layers) == (128, 8, 48)
    assert found.resident > 9 * found.active
    assert parameter_facts(checkpoint("dense")).moe is None


def test_layers_that_stay_plain_are_listed_where_others_do_not() -> None:
    assert quantization_facts(checkpoint("dense")).unquantised_layers == ()
    found = quantization_facts(described(GPT_OSS_20B))
    modules = {item.module.rpartition(".")[2] for item in found.unquantised_layers}
    assert {"lm_head", "q_proj", "router"} <= modules
    assert not any("experts" in module for module in modules)
    assert found.is_quantized


def test_numbers_beyond_a_double_cannot_be_sealed() -> None:
    seen = measurement(planned("dense"), settings=(("seed", 2**60),))
    with pytest.raises(InputError, match="cannot be sealed"):
        build(given(measurement=seen))


def test_plain_values_are_json() -> None:
    assert json.loads(json.dumps(plain(whole()))) == read(manifest_bytes(whole()))
    assert whole().created_at == AT
