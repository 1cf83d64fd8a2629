"""Whole plans: ledgers of every kind of rank, the verdict and what binds it, what SGLang prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sglang_support import planned, terms
from support import (
    CPU,
    DEEPSEEK_V3,
    DEEPSEEK_V3_2,
    GPT_OSS_20B,
    H100,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    MIXTRAL_8X7B,
    QWEN3_30B_A3B,
    QWEN3_32B_AWQ,
    TINY_LLAMA,
    published,
)
from vramledger.answer import Plan
from vramledger.cli import main
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Owner, Phase
from vramledger.report.schema import schema_of
from vramledger.units import GIB

H200 = find_device("H200")


def held(plan: Plan, owner: Owner, rank: int = 0) -> int:
    return plan.ranks[rank].owned(owner).expected


def named(plan: Plan, name: str) -> int:
    return next(entry.bytes.expected for entry in plan.ranks[0].entries if entry.name.startswith(name))


def test_a_load_that_dies_prints_no_end_of_it() -> None:
    dies = planned(LLAMA_3_1_8B, find_device("custom:8GiB"))
    assert dies.verdict.holds is False
    (line,) = dies.printed
    assert line.startswith("Load weight begin. avail mem=")
    assert not any("avail mem=-" in line for line in planned(LLAMA_3_1_8B, find_device("T4")).printed)


def test_every_owner_is_in_the_ledger() -> None:
    plan = planned(
        QWEN3_30B_A3B,
        H100,
        tp_size=2,
        enable_lora=True,
        max_lora_rank=16,
        lora_target_modules="qkv_proj,o_proj",
    )
    owners = {entry.owner for entry in plan.ranks[0].entries}
    assert owners == set(Owner)
    assert all(entry.evidence.source for entry in plan.ranks[0].entries)
    assert plan.ranks[0].ranks == (0, 1)


def test_the_lines_are_those_sglang_prints() -> None:
    lines = planned(LLAMA_3_1_8B, mem_fraction_static=0.83).printed
    tokens = int(lines[-1].split("max_total_num_tokens=")[1].split(",")[0])
    assert lines[0].startswith("Load weight begin. avail mem=78.7")
    assert "type=LlamaForCausalLM, dtype=torch.bfloat16" in lines[1]
    size = (tokens + 1) * 65536 / GIB
    assert lines[2] == (
        f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: {size:.2f} GB, V size: {size:.2f} GB"
    )
    assert lines[3].startswith("Memory pool end. avail mem=")
    assert "chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048" in lines[-1]
    old = planned(LLAMA_3_1_8B, H100, "0.4.6.post5").printed
    assert "dtype" not in old[2]
    assert old[-1].endswith("context_len=131072")


def test_latents_windows_and_states_have_lines_of_their_own() -> None:
    assert any("KV size: " in line for line in planned(DEEPSEEK_V3, H200, tp_size=8).printed)
    windowed = planned(GPT_OSS_20B).printed
    assert any(line.startswith("Use sliding window memory pool. full_layer_tokens=") for line in windowed)
    assert any(line.startswith("SWAKVPool mem usage: ") for line in windowed)
    states = planned(published()["Qwen__Qwen3-Next-80B-A3B-Instruct"]["config.json"], H200, tp_size=2).printed
    assert any(line.startswith("Mamba Cache is allocated. max_mamba_cache_size: ") for line in states)


def test_the_cap_of_recurrent_states_binds_before_tokens_do() -> None:
    config = published()["Qwen__Qwen3-Next-80B-A3B-Instruct"]["config.json"]
    plan = planned(config, H200, tp_size=2, context_length=4096, concurrency=200)
    assert plan.verdict.holds is False
    assert "recurrent states, 5 a request" in plan.verdict.summary
    assert plan.verdict.shortfall_bytes == 0
    assert planned(
        config, H200, tp_size=2, context_length=4096, concurrency=200, disable_radix_cache=True
    ).verdict.holds


def test_a_cap_of_the_user_is_named() -> None:
    plan = planned(LLAMA_3_1_8B, context_length=4096, concurrency=40, max_running_requests=32, remedies=True)
    assert plan.verdict.holds is False
    assert "max_running_requests is 32, set by --max-running-requests" in plan.verdict.summary
    assert "--max-running-requests 40" in plan.verdict.remedies


def test_guaranteed_requests_are_those_of_a_full_reservation() -> None:
    plan = planned(LLAMA_3_1_8B, concurrency=3)
    pool = plan.kv_pool
    assert pool is not None
    assert plan.verdict.holds
    assert pool.max_concurrency.low == pool.tokens.low / 131072
    assert any("3 full-length requests at once are guaranteed" in line for line in plan.verdict.conditions)
    assert any("admission reserves 0.70" in line for line in plan.verdict.conditions)
    short = planned(LLAMA_3_1_8B, concurrency=4)
    assert short.verdict.holds is False
    assert "4 requests of 131,072 tokens may come to need 524,288 tokens" in short.verdict.summary


def test_weights_that_leave_nothing_fail_by_their_bytes() -> None:
    plan = planned(LLAMA_3_1_70B, remedies=True)
    assert plan.verdict.holds is False
    assert "leaves nothing of the static part" in plan.verdict.summary
    assert plan.verdict.shortfall_bytes > 60 * GIB
    assert any(remedy.startswith("--tp-size") for remedy in plan.verdict.remedies)


def test_a_pool_that_is_not_known_is_not_guessed_and_weights_are_sized() -> None:
    plan = planned(published()["deepseek-ai__DeepSeek-V4-Flash"]["config.json"], H200, tp_size=8)
    assert (plan.verdict.holds, plan.kv_pool, plan.printed) == (None, None, ())
    assert "compressed pools" in plan.verdict.missing[0]
    assert held(plan, Owner.WEIGHTS) > 15 * GIB
    assert not held(plan, Owner.KV_CACHE)


def test_attention_groups_hold_whole_attention_and_their_own_tokens() -> None:
    alone = planned(DEEPSEEK_V3, H200, tp_size=8, mem_fraction_static=0.9)
    grouped = planned(
        DEEPSEEK_V3, H200, tp_size=8, dp_size=8, enable_dp_attention=True, mem_fraction_static=0.9
    )
    attention = [
        sum(e.bytes.expected for e in plan.ranks[0].entries if e.name in ("attention", "absorbed MLA copies"))
        for plan in (alone, grouped)
    ]
    assert attention[1] > 4 * attention[0]
    assert named(grouped, "experts") == named(alone, "experts")
    assert alone.kv_pool is not None
    assert grouped.kv_pool is not None
    assert grouped.kv_pool.bytes_per_token == alone.kv_pool.bytes_per_token
    assert "in each of 8 groups" in grouped.verdict.summary


def test_experts_are_dealt_or_cut_with_the_same_bytes() -> None:
    cut = planned(QWEN3_30B_A3B, H100, tp_size=4)
    dealt = planned(QWEN3_30B_A3B, H100, tp_size=4, ep_size=4)
    assert named(cut, "experts") == named(dealt, "experts")
    more = planned(QWEN3_30B_A3B, H100, tp_size=4, ep_size=4, ep_num_redundant_experts=4)
    assert named(more, "experts") == named(dealt, "experts") * 33 // 32


def test_shared_experts_were_copied_for_every_rank_in_0_4_6() -> None:
    copies = planned(DEEPSEEK_V3, H200, "0.4.6.post5", tp_size=8)
    shared = planned(DEEPSEEK_V3, H200, "0.4.9", tp_size=8)
    assert named(copies, "shared experts") == pytest.approx(8 * named(shared, "shared experts"), rel=1e-3)


def test_a_pipeline_has_both_ends_on_their_stages() -> None:
    plan = planned(LLAMA_3_1_70B, H200, pp_size=2, tp_size=2)
    first, last = plan.ranks
    assert (first.ranks, last.ranks) == ((0, 1), (2, 3))
    assert {"embedding"} == {e.name for e in first.entries} & {"embedding", "lm_head"}
    assert {"lm_head"} == {e.name for e in last.entries} & {"embedding", "lm_head"}


def test_adapters_take_slots_of_the_largest_rank() -> None:
    plan = planned(
        LLAMA_3_1_8B,
        enable_lora=True,
        max_lora_rank=16,
        max_loras_per_batch=4,
        lora_target_modules=["qkv_proj"],
    )
    # A of 3 x 16 x 4096 and B of (4096 + 2 x 1024) x 16, for each of 32 layers and 4 slots, 2 bytes each
    assert held(plan, Owner.ADAPTERS) == 4 * 32 * 2 * 16 * (3 * 4096 + 6144)
    both = planned(
        LLAMA_3_1_8B, tp_size=2, enable_lora=True, max_lora_rank=16, lora_target_modules=["o_proj"]
    )
    assert held(both, Owner.ADAPTERS) == 8 * 32 * 2 * 16 * (2048 + 4096)


def test_a_host_cache_is_pinned_and_sized_by_ratio_or_by_gigabytes() -> None:
    assert {entry.phases for entry in planned(LLAMA_3_1_8B).host} == {frozenset({Phase.LOAD})}
    by_ratio = planned(LLAMA_3_1_8B, enable_hierarchical_cache=True)
    assert by_ratio.kv_pool is not None
    tokens = 2 * by_ratio.kv_pool.tokens.expected + 1
    assert by_ratio.host[0].bytes.expected == tokens * 131072
    by_size = planned(LLAMA_3_1_8B, enable_hierarchical_cache=True, hicache_size=30)
    assert by_size.host[0].bytes.expected == (int(30e9 // 131072) + 1) * 131072


def test_speculation_in_the_checkpoint_holds_its_layer_and_widens_the_cell() -> None:
    plain = planned(DEEPSEEK_V3, H200, tp_size=8)
    drafted = planned(DEEPSEEK_V3, H200, tp_size=8, speculative_algorithm="EAGLE")
    assert named(drafted, "draft model") > GIB
    assert plain.kv_pool is not None
    assert drafted.kv_pool is not None
    assert drafted.kv_pool.bytes_per_token == plain.kv_pool.bytes_per_token * 62 // 61
    old = planned(DEEPSEEK_V3, H200, "0.5.9", tp_size=8, speculative_algorithm="EAGLE")
    assert named(old, "draft's KV pool") > 0


@pytest.mark.parametrize("config", [LLAMA_3_1_8B, MIXTRAL_8X7B, QWEN3_32B_AWQ, DEEPSEEK_V3_2, GPT_OSS_20B])
def test_ranks_together_hold_the_model(config: dict[str, Any]) -> None:
    """Cut over ranks, no tensor is lost: what is on all ranks is at least what one rank alone holds."""
    alone = terms(config, H200)[1][0].weights.tensor_bytes
    for width in (2, 4):
        assert width * terms(config, H200, tp_size=width)[1][0].weights.tensor_bytes >= alone


def test_graphs_take_nothing_where_they_are_off() -> None:
    assert held(planned(LLAMA_3_1_8B), Owner.GRAPH_POOL) > 0
    assert held(planned(LLAMA_3_1_8B, disable_cuda_graph=True), Owner.GRAPH_POOL) == 0


def test_graphs_on_ascend_are_as_large_as_its_logs_print() -> None:
    entry = next(
        entry
        for entry in planned(TINY_LLAMA, find_device("Ascend 910")).ranks[0].entries
        if entry.owner is Owner.GRAPH_POOL
    )
    for printed in (1.31, 1.34, 1.57, 1.71, 2.0, 3.54, 3.72, 6.52, 7.9, 8.79):
        assert entry.bytes.low <= printed * GIB <= entry.bytes.high


def test_what_is_outside_the_budget_is_alive_in_its_phases() -> None:
    plan = planned(LLAMA_3_1_8B)
    table = next(entry for entry in plan.ranks[0].entries if entry.name == "request table")
    assert not table.inside_budget
    assert table.bytes.expected == pytest.approx(GIB, rel=0.001)
    rank = plan.ranks[0]
    assert (
        rank.peak(Phase.LOAD).expected < rank.peak(Phase.DECODE).expected < rank.peak(Phase.PREFILL).expected
    )
    assert rank.occupied(Phase.PREFILL).high < H100.total_bytes


def test_a_host_runs_without_device_figures() -> None:
    plan = planned(TINY_LLAMA, CPU)
    assert held(plan, Owner.ALLOCATOR) == 0
    assert plan.kv_pool is not None


def test_the_command_plans_for_sglang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_3_1_8B), encoding="utf-8")
    arguments = [
        "plan",
        str(path),
        "--device",
        "H100-80GB",
        "--engine",
        "sglang==0.5.9",
        "--mem-fraction-static",
        "0.85",
    ]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("plan")).validate(document)
    assert document["inputs"]["engine"] == "sglang"
    assert main(arguments) == 0
    assert "max_total_num_tokens=" in capsys.readouterr().out
    assert main([*arguments, "--help"]) == 0
    assert "--enable-dp-attention" in capsys.readouterr().out
    assert main([*arguments, "--max-num-seqs", "3"]) == 2
    assert "max-num-seqs" in capsys.readouterr().err


def test_a_cap_on_tokens_is_no_shortfall_of_memory() -> None:
    verdict = planned(
        LLAMA_3_1_8B, H100, concurrency=2, remedies=True, max_total_tokens=1000, context_length=4096
    ).verdict
    assert verdict.holds is False
    assert verdict.shortfall_bytes == 0
    assert "--max-total-tokens 1,000 has it whatever the memory" in verdict.summary
    assert verdict.remedies[0] == "no --max-total-tokens"


def test_without_layers_that_keep_tokens_their_number_is_a_flag() -> None:
    config = {
        "architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 4,
        "intermediate_size": 1536, "state_size": 16, "conv_kernel": 4, "time_step_rank": 48, "vocab_size": 50280,
    }  # fmt: skip
    verdict = planned(config, H100, concurrency=4, remedies=True, context_length=2048).verdict
    assert verdict.holds is False
    assert verdict.shortfall_bytes == 0
    assert "--max-total-tokens 8192" in verdict.remedies


def test_a_shortfall_counts_the_tokens_that_are_missing() -> None:
    verdict = planned(LLAMA_3_1_8B, H100, concurrency=10, mem_fraction_static=0.8).verdict
    pool = planned(LLAMA_3_1_8B, H100, mem_fraction_static=0.8).kv_pool
    assert pool is not None
    assert verdict.shortfall_bytes == (10 * 131072 - pool.tokens.high) * 131072


@pytest.mark.parametrize("flag", ["attention_backend", "moe_a2a_backend"])
def test_a_backend_that_sglang_has_not_is_refused(flag: str) -> None:
    flags: dict[str, Any] = {flag: "nonsense"}
    with pytest.raises(FlagError, match=f"{flag.replace('_', '-')} is nonsense; it is one of"):
        planned(LLAMA_3_1_8B, H100, **flags)


def test_a_shortfall_counts_contexts_that_find_no_room() -> None:
    few = planned(LLAMA_3_1_8B, H100, context_length=4096, held_contexts=1000).verdict
    many = planned(LLAMA_3_1_8B, H100, context_length=4096, held_contexts=2000).verdict
    assert few.holds is many.holds is False
    assert many.shortfall_bytes - few.shortfall_bytes == 1000 * 4096 * 131072
