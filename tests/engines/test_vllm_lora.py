"""Adapters under vLLM: what a version takes, what its slots and graphs cost, what host memory keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.conformance.cases import configs

from adapter_files import lora, write_adapter
from support import (
    DEEPSEEK_V3,
    H100,
    LLAMA_3_1_8B,
    QWEN3_32B,
    R1_DISTILL_QWEN_1_5B,
    checkpoint,
    planned,
    settings,
)
from vramledger import plan
from vramledger.answer import Plan
from vramledger.engines.adapter_service import ServedAdapter
from vramledger.engines.vllm.graphs import capture_plan
from vramledger.engines.vllm.lora import LoraBytes, lora_bytes
from vramledger.engines.vllm.lora_adapters import adapter_uses
from vramledger.engines.vllm.sharding import rank_kinds
from vramledger.errors import FlagError
from vramledger.ledger import ByteRange, Owner
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.load import load_adapter

LLAMA = checkpoint(LLAMA_3_1_8B)
ATTENTION = {"self_attn.q_proj": (4096, 4096), "self_attn.v_proj": (1024, 4096)}
CONFIG: dict[str, Any] = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}


def adapter(folder: Path, name: str = "a", rank: int = 8, extra: Any = (), **config: Any) -> Adapter:
    tensors = {**lora(ATTENTION, rank, layers=range(32)), **dict(extra)}
    return load_adapter(str(write_adapter(folder / name, CONFIG | {"r": rank} | config, tensors)))


def slots(config: dict[str, Any], version: str = "0.33.0", **values: Any) -> LoraBytes:
    subject = checkpoint(config)
    found = settings(subject, H100, version, enable_lora=True, **values)
    (kind,) = rank_kinds(subject.model, found.plan, found.flags, found.version)
    return lora_bytes(subject.model, kind, found)


def uses(version: str, *adapters: Adapter, **values: Any) -> tuple[ServedAdapter, ...]:
    found = settings(LLAMA, H100, version, adapter=adapters, **values)
    kind = rank_kinds(LLAMA.model, found.plan, found.flags, found.version)[0]
    return adapter_uses(LLAMA, found, kind)


def on_host(answer: Plan) -> ByteRange:
    (entry,) = (entry for entry in answer.host if entry.owner is Owner.ADAPTERS)
    return entry.bytes


def shown(answer: Plan) -> dict[str, Any]:
    return dict(answer.inputs.settings)


def test_adapters_set_slots_and_rank_where_no_flag_does(tmp_path: Path) -> None:
    served = (adapter(tmp_path, "a", 8), adapter(tmp_path, "b", 20), adapter(tmp_path, "c", 4))
    found = shown(planned(LLAMA, adapter=served))
    assert (found["max_loras"], found["max_lora_rank"], found["max_cpu_loras"]) == (3, 32, 3)
    given = shown(planned(LLAMA, adapter=served, max_loras=1, max_lora_rank=64, max_cpu_loras=2))
    assert (given["max_loras"], given["max_lora_rank"], given["max_cpu_loras"]) == (1, 64, 2)


def test_the_command_line_reads_adapters_by_their_place(tmp_path: Path) -> None:
    adapter(tmp_path, "a")
    adapter(tmp_path, "b", 16)
    answer = plan(LLAMA, H100, adapter=[str(tmp_path / "a"), str(tmp_path / "b")], max_model_len=8192)
    assert shown(answer)["max_lora_rank"] == 16
    assert sum("adapter a (hot)" in note or "adapter b (hot)" in note for note in answer.notes) == 2


def test_a_rank_above_the_slots_is_refused_as_the_engine_does(tmp_path: Path) -> None:
    large = adapter(tmp_path, "large", 128)
    with pytest.raises(FlagError, match=r"--max-lora-rank is 64, below the rank of large \(rank 128\)"):
        planned(LLAMA, adapter=(large,), max_lora_rank=64)
    with pytest.raises(
        FlagError, match=r"largest --max-lora-rank of vllm 0.6.6 is 256, below .* \(rank 300\)"
    ):
        planned(LLAMA, H100, "0.6.6", adapter=(adapter(tmp_path, "huge", 300),))


@pytest.mark.parametrize(
    ("version", "rank", "told"),
    [("0.11.0", 1, "8, 16, 32"), ("0.7.3", 512, "8, 16, 32, 64, 128, 256"), ("0.7.3", 320, "256")],
)
def test_a_rank_that_a_version_does_not_take(version: str, rank: int, told: str) -> None:
    with pytest.raises(FlagError, match=told):
        planned(LLAMA, H100, version, enable_lora=True, max_lora_rank=rank)


def test_host_memory_holds_what_the_device_does() -> None:
    with pytest.raises(FlagError, match="--max-cpu-loras 2 is below --max-loras 4"):
        planned(LLAMA, enable_lora=True, max_loras=4, max_cpu_loras=2)


@pytest.mark.parametrize(
    ("version", "change", "told"),
    [
        ("0.33.0", {"use_dora": True}, "DoRA"),
        ("0.6.6", {"use_dora": True}, "DoRA"),
        ("0.6.6", {"use_rslora": True}, "rsLoRA"),
        ("0.33.0", {"bias": "all"}, "trains biases"),
        ("0.10.2", {"bias": "lora_only"}, "--enable-lora-bias"),
        ("0.33.0", {"modules_to_save": ["lm_head"]}, "whole modules (lm_head)"),
        ("0.30.0", {"modules_to_save": ["score"]}, "whole modules (score)"),
        ("0.33.0", {"lora_bias": True}, "lora_bias"),
        ("0.33.0", {"init_lora_weights": "pissa"}, "init_lora_weights pissa"),
        ("0.33.0", {"alora_invocation_tokens": [1, 2]}, "aLoRA"),
        ("0.33.0", {"layer_replication": [[0, 4]]}, "repeats layers"),
        ("0.33.0", {"use_qalora": True}, "QALoRA"),
    ],
)
def test_what_a_version_refuses(version: str, change: dict[str, Any], told: str, tmp_path: Path) -> None:
    (use,) = uses(version, adapter(tmp_path, **change))
    assert any(told in text for text in use.refusals)
    answer = planned(LLAMA, H100, version, adapter=(use.placed.adapter,), max_model_len=8192)
    assert answer.verdict.holds is False
    assert told in answer.verdict.summary


@pytest.mark.parametrize(
    ("version", "change", "told"),
    [
        ("0.31.0", {"init_lora_weights": "pissa"}, "does not look at"),
        ("0.31.0", {"rank_pattern": {"q_proj": 8}}, "scales all by the common one"),
    ],
)
def test_what_a_version_loads_otherwise_than_trained(
    version: str, change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    (use,) = uses(version, adapter(tmp_path, **change))
    assert use.refusals == ()
    assert any(told in text for text in use.remarks)


def test_plain_adapters_are_taken_by_every_version(tmp_path: Path) -> None:
    plain = adapter(tmp_path, use_rslora=True)
    for version in ("0.7.0", "0.10.2", "0.16.0", "0.27.1", "0.33.0"):
        (use,) = uses(version, plain)
        assert use.refusals == () == use.remarks


def test_another_model_s_adapter_does_not_load(tmp_path: Path) -> None:
    extra = lora({"attention.wq": (4096, 4096)}, 8, layers=[0])
    (use,) = uses("0.33.0", adapter(tmp_path, extra=extra.items()))
    assert use.refusals == ("model.layers.{}.attention.wq is no module of a/model",)


def test_a_head_takes_adapters_where_its_class_says_so(tmp_path: Path) -> None:
    """Llama's does in every release, Qwen2's in none, Qwen3's since 0.13 (the first read after it: 0.16)."""
    assert slots(LLAMA_3_1_8B).vocabulary > 0
    assert slots(R1_DISTILL_QWEN_1_5B | {"architectures": ["Qwen2ForCausalLM"]}).vocabulary == 0
    qwen3 = QWEN3_32B | {"architectures": ["Qwen3ForCausalLM"]}
    assert slots(qwen3, "0.12.0").vocabulary == 0
    assert slots(qwen3, "0.16.0").vocabulary > 0


def test_a_module_without_slots_is_told(tmp_path: Path) -> None:
    """The indexer's keys are projected together with its head weights, which no adapter wraps (since 0.20)."""
    subject = checkpoint(configs()["deepseek-v3.2"])
    tensors = lora({"self_attn.indexer.wk": (128, 256), "self_attn.o_proj": (256, 1024)}, 8, layers=[0])
    found = load_adapter(str(write_adapter(tmp_path / "a", CONFIG, tensors)))
    given = settings(subject, H100, "0.33.0", adapter=(found,))
    (kind,) = rank_kinds(subject.model, given.plan, given.flags, given.version)
    (use,) = adapter_uses(subject, given, kind)
    assert use.refusals == ()
    assert use.remarks == ("changes wk, for which there are no slots",)
    assert use.own_bytes == 2 * 8 * (256 + 1024)


def test_a_class_without_adapters_does_not_start_with_them() -> None:
    subject = checkpoint(DEEPSEEK_V3 | {"architectures": ["DeepseekV3ForCausalLM"]})
    values = {"tp": 8, "enable_lora": True, "max_model_len": 4096}
    answer = planned(subject, H100, "0.9.2", **values)
    assert (
        answer.verdict.summary == "does not load: vllm 0.9.2 takes no LoRA adapters for DeepseekV3ForCausalLM"
    )
    assert "takes no LoRA" not in planned(subject, H100, "0.11.2", **values).verdict.summary


@pytest.mark.parametrize(
    ("version", "slots", "specialised", "sets"),
    [
        ("0.11.0", 4, False, 1),
        ("0.11.1", 4, False, 2),
        ("0.33.0", 4, False, 2),
        ("0.33.0", 4, True, 5),  # none, 1, 2, 4, 5
        ("0.33.0", 3, True, 4),  # none, 1, 2, 4
        ("0.33.0", 1, True, 3),  # none, 1, 2
        ("0.33.0", 8, True, 6),  # none, 1, 2, 4, 8, 9
    ],
)
def test_graphs_are_captured_with_and_without_adapters(
    version: str, slots: int, specialised: bool, sets: int
) -> None:
    values = {"enable_lora": True, "max_loras": slots, "specialize_active_lora": specialised}
    with_them = capture_plan(settings(LLAMA, H100, version, **values), H100)
    without = capture_plan(settings(LLAMA, H100, version), H100)
    assert with_them.sets == sets
    assert with_them.count == sets * without.count


def test_a_cold_adapter_costs_host_memory_alone(tmp_path: Path) -> None:
    served = tuple(adapter(tmp_path, name) for name in "abcd")
    one = 2 * 32 * 8 * (4096 + 4096 + 4096 + 1024)
    hot, all_hot = planned(LLAMA, adapter=served, max_loras=1), planned(LLAMA, adapter=served)
    assert on_host(hot).expected == on_host(all_hot).expected == 4 * one
    assert hot.ranks[0].owned(Owner.ADAPTERS).expected < all_hot.ranks[0].owned(Owner.ADAPTERS).expected
    both = planned(LLAMA, adapter=served, tp=2)
    assert on_host(both).expected == 2 * 4 * one  # every process keeps the adapters whole
    assert [note.partition(":")[0] for note in hot.notes if note.startswith("adapter")] == [
        "adapter a (hot)", "adapter b (cold, in host memory)", "adapter c (cold, in host memory)",
        "adapter d (cold, in host memory)",
    ]  # fmt: skip


def test_free_places_in_host_memory_are_a_range() -> None:
    held = on_host(planned(LLAMA, enable_lora=True, max_loras=2, max_cpu_loras=10))
    slot = slots(LLAMA_3_1_8B, max_loras=2).of_one(2)
    assert (held.low, held.high) == (0, 10 * slot)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([8, 16, 64]))
def test_an_adapter_never_takes_more_than_its_slot(
    tmp_path_factory: pytest.TempPathFactory, tp: int, rank: int
) -> None:
    (use,) = uses("0.33.0", adapter(tmp_path_factory.mktemp("a")), tp=tp, max_lora_rank=rank)
    assert 0 < use.own_bytes <= use.slot_bytes
    assert use.padding_bytes == use.slot_bytes - use.own_bytes
    q = 4096 + 4096 // tp
    v = 4096 + 1024 // tp
    assert use.own_bytes == 2 * 32 * 8 * (q + v)


def test_target_modules_leave_the_others_without_slots() -> None:
    whole = slots(LLAMA_3_1_8B)
    some = slots(LLAMA_3_1_8B, lora_target_modules=("q_proj", "o_proj"))
    assert some.vocabulary == 0
    assert some.linears == 2 * 32 * 16 * 4 * 4096
    assert slots(LLAMA_3_1_8B, lora_target_modules=("qkv_proj", "o_proj")).linears > some.linears
    assert whole.linears > some.linears


@pytest.mark.parametrize(
    ("version", "values", "told"),
    [
        ("0.12.0", {"lora_extra_vocab_size": 256}, "has no --lora-extra-vocab-size"),
        ("0.16.0", {"lora_target_modules": "q_proj"}, "has no --lora-target-modules"),
    ],
)
def test_a_flag_of_another_release_is_named(version: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(FlagError, match=told):
        plan(LLAMA, H100, engine=f"vllm=={version}", enable_lora=True, **values)
