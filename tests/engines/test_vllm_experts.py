"""Experts over ranks: all-to-all buffers, load balancing, what is resident and what is active."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import DEEPSEEK_V3, LLAMA_3_1_8B, QWEN3_30B_A3B, checkpoint, planned, terms
from vramledger.answer import Plan
from vramledger.engines.deepep import Domain, elastic_bytes, low_latency_bytes
from vramledger.engines.partition import local_experts
from vramledger.engines.vllm.expert_parallel import (
    BACKEND_NAMES,
    all2all_backend,
    dispatches,
    is_sequence_parallel,
)
from vramledger.engines.vllm.flags import ParallelPlan, VllmFlags
from vramledger.engines.vllm.options import plan_with, read_flags
from vramledger.engines.vllm.version import parse_version
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Entry
from vramledger.units import GIB, MIB

H200 = find_device("H200")
WIDE: dict[str, Any] = {"tp": 1, "dp": 16, "enable_expert_parallel": True}


def entry(plan: Plan, name: str, rank: int = 0) -> Entry:
    (found,) = [item for item in plan.ranks[rank].entries if item.name == name]
    return found


def names(plan: Plan) -> set[str]:
    return {item.name for item in plan.ranks[0].entries}


# What DeepEP's own arithmetic answers (its headers' host code, compiled).


@pytest.mark.parametrize(
    ("tokens", "hidden", "experts", "expected"),
    [
        (256, 7168, 256, 3_816_818_816),
        (128, 7168, 288, 2_146_961_792),
        (256, 2048, 128, 545_260_672),
        (512, 4096, 60, 1_022_362_240),
        (64, 2880, 32, 47_907_200),
    ],
)
def test_the_low_latency_hint_is_deepeps(tokens: int, hidden: int, experts: int, expected: int) -> None:
    assert low_latency_bytes(tokens=tokens, hidden=hidden, experts=experts) == expected


@pytest.mark.parametrize(
    ("tokens", "hidden", "top_k", "fp8", "nodes", "per_node", "expected"),
    [
        (8192, 7168, 8, True, 1, 8, 960_495_616),
        (8192, 7168, 8, False, 1, 8, 964_689_920),
        (8192, 7168, 8, True, 4, 8, 9_101_639_680),
        (2048, 2048, 8, False, 2, 8, 444_596_224),
        (1024, 4096, 6, False, 1, 4, 69_206_016),
    ],
)
def test_the_elastic_buffer_is_deepeps(
    tokens: int, hidden: int, top_k: int, fp8: bool, nodes: int, per_node: int, expected: int
) -> None:
    domain = Domain(nodes=nodes, ranks_per_node=per_node)
    found = elastic_bytes(tokens=tokens, hidden=hidden, top_k=top_k, fp8=fp8, domain=domain)
    assert found == expected


# Which back end runs


@pytest.mark.parametrize(
    ("version", "asked", "runs"),
    [
        ("0.9.2", None, "naive"),
        ("0.10.2", "pplx", "pplx"),
        ("0.11.0", None, "allgather_reducescatter"),
        ("0.18.1", "pplx", "allgather_reducescatter"),
        ("0.18.1", "naive", "naive"),
        ("0.20.2", "naive", "allgather_reducescatter"),
        ("0.33.0", "deepep_v2", "deepep_v2"),
    ],
)
def test_a_version_has_its_back_ends(version: str, asked: str | None, runs: str) -> None:
    assert all2all_backend(VllmFlags(all2all_backend=asked), parse_version(version)) == runs


def test_a_back_end_of_a_later_release_is_refused() -> None:
    with pytest.raises(FlagError, match=r"deepep_v2.*0\.10\.2 has none.*0\.26"):
        planned(checkpoint(DEEPSEEK_V3), H200, "0.10.2", all2all_backend="deepep_v2", **WIDE)


@given(st.integers(1, 8), st.integers(1, 8), st.booleans(), st.sampled_from(BACKEND_NAMES))
def test_nothing_is_dispatched_within_a_tensor_parallel_group(
    tp: int, dp: int, ep: bool, backend: str
) -> None:
    plan, newest = ParallelPlan(tp=tp, dp=dp, enable_expert_parallel=ep), parse_version("0.33.0")
    assert dispatches(plan, newest) == (ep and dp > 1)
    cut = is_sequence_parallel(plan, VllmFlags(all2all_backend=backend), newest)
    assert not cut or (ep and dp > 1 and tp > 1)


# Their buffers


def test_low_latency_kernels_keep_a_slot_for_every_token_at_every_expert() -> None:
    plan = planned(checkpoint(DEEPSEEK_V3), H200, all2all_backend="deepep_low_latency", **WIDE)
    assert dict(plan.inputs.settings)["max_num_batched_tokens"] == 256
    held = entry(plan, "all-to-all buffers (deepep_low_latency)")
    assert held.inside_budget
    # the hint in whole pieces of 512 MiB, the NVLink buffer and the workspace
    assert held.bytes.expected == 8 * 512 * MIB + GIB + 32 * MIB
    kernels = entry(plan, "experts' kernels")
    # 16 local experts x 256 tokens of 16 ranks
    assert kernels.bytes.expected == 2 * 16 * 256 * 16 * (7168 + 2048)


def test_high_throughput_buffers_double_beyond_one_node() -> None:
    def held(dp: int) -> int:
        values: dict[str, Any] = WIDE | {"dp": dp, "all2all_backend": "deepep_high_throughput"}
        plan = planned(checkpoint(QWEN3_30B_A3B), H200, **values)
        return entry(plan, "all-to-all buffers (deepep_high_throughput)").bytes.expected

    assert held(8) == GIB + 32 * MIB
    assert held(16) == 2 * GIB + 32 * MIB


def test_pplx_keeps_a_buffer_for_each_peer() -> None:
    values: dict[str, Any] = WIDE | {"dp": 8, "all2all_backend": "pplx"}
    plan = planned(checkpoint(DEEPSEEK_V3), H200, "0.10.2", **values)
    held = entry(plan, "all-to-all buffers (pplx)").bytes
    local, tokens = 32, 256
    each = 16 + 4 * local + tokens * local * 4 * 7168
    assert held.is_exact
    assert held.expected == 8 * each + 6 * 4 * local * tokens * 8


def test_flashinfer_keeps_a_fifo_for_each_peer_and_channel() -> None:
    values: dict[str, Any] = WIDE | {"dp": 8, "all2all_backend": "flashinfer_nvlink_two_sided"}
    plan = planned(checkpoint(DEEPSEEK_V3), H200, **values)
    channels = 132 // 2 // 2
    fifo = 8 * channels * (2 * MIB + 256)
    assert (
        0 <= entry(plan, "all-to-all buffers (flashinfer_nvlink_two_sided)").bytes.expected - fifo < 4 * MIB
    )


def test_gathering_back_ends_keep_nothing_and_hold_all_tokens_during_the_experts() -> None:
    plan = planned(checkpoint(DEEPSEEK_V3), H200, **WIDE)
    assert not any(name.startswith("all-to-all") for name in names(plan))
    (rank,) = terms(checkpoint(DEEPSEEK_V3), H200, **WIDE)
    assert rank.moe is not None
    assert rank.moe.gathered_bytes == 16 * 8192 * (7168 + 256) * 2


@pytest.mark.parametrize("values", [{"tp": 8}, {"tp": 8, "enable_expert_parallel": True}])
def test_no_back_end_without_data_parallel_experts(values: dict[str, Any]) -> None:
    plan = planned(checkpoint(DEEPSEEK_V3), H200, all2all_backend="deepep_high_throughput", **values)
    assert not any(name.startswith("all-to-all") for name in names(plan))


@given(st.sampled_from(BACKEND_NAMES), st.sampled_from((2, 4, 8, 16, 32)))
def test_a_back_ends_buffers_only_take_from_the_pool(backend: str, dp: int) -> None:
    values: dict[str, Any] = WIDE | {"dp": dp, "max_num_batched_tokens": 512, "max_num_seqs": 256}
    bare = planned(checkpoint(QWEN3_30B_A3B), H200, **values)
    plan = planned(checkpoint(QWEN3_30B_A3B), H200, all2all_backend=backend, **values)
    held = [item for item in plan.ranks[0].entries if item.name.startswith("all-to-all")]
    for item in held:
        assert 0 < item.bytes.low <= item.bytes.expected <= item.bytes.high
        assert item.evidence.source
    assert bare.kv_pool is not None
    assert plan.kv_pool is not None
    if held and not backend.endswith(("low_latency", "nixl_ep")):
        assert plan.kv_pool.bytes.expected < bare.kv_pool.bytes.expected


# Shared experts


def test_shared_experts_are_whole_where_ranks_take_their_own_tokens() -> None:
    def shared(**values: Any) -> int:
        plan = planned(checkpoint(DEEPSEEK_V3), H200, tp=8, **values)
        return entry(plan, "shared experts").bytes.expected

    cut = shared(enable_expert_parallel=True)
    assert shared(dp=2, enable_expert_parallel=True) == 8 * cut
    assert shared(dp=2, enable_expert_parallel=True, version="0.10.2") == cut
    assert shared(dp=2) == cut


# Load balancing: tensors that 0.32.0's EplbState.add_model made for these shapes.


@pytest.mark.parametrize(
    ("config", "layers", "redundant", "ep", "maps", "loads"),
    [
        (DEEPSEEK_V3, 58, 32, 16, 121_634_816 + 133_632 + 2 * 118_784, 66_816_000 + 66_816),
        (QWEN3_30B_A3B, 48, 0, 8, 50_331_648 + 3 * 49_152, 24_576_000 + 24_576),
    ],
)
def test_maps_and_load_windows_are_the_engines(
    config: dict[str, Any], layers: int, redundant: int, ep: int, maps: int, loads: int
) -> None:
    plan = planned(
        checkpoint(config), H200, "0.32.0", dp=ep, enable_expert_parallel=True, enable_eplb=True,
        num_redundant_experts=redundant,
    )  # fmt: skip
    assert entry(plan, "expert maps").bytes.expected == maps
    assert entry(plan, "expert load window").bytes.expected == loads
    experts = entry(plan, "experts").bytes.expected
    assert entry(plan, "expert rearrangement buffer").bytes.expected == experts // layers


def test_maps_had_a_slot_a_copy_before_0_10() -> None:
    values: dict[str, Any] = {
        "dp": 16,
        "enable_expert_parallel": True,
        "enable_eplb": True,
        "num_redundant_experts": 32,
    }
    old = planned(checkpoint(DEEPSEEK_V3), H200, "0.9.2", **values)
    assert entry(old, "expert maps").bytes.expected == 58 * 8 * (288 + 256 * 33 + 256)
    assert entry(old, "expert load window").bytes.expected == 4 * 58 * 18 * 1001
    assert not entry(old, "expert maps").inside_budget
    assert "expert rearrangement buffer" not in names(old)


def test_the_v1_runner_counts_the_state_among_the_weights_since_0_20() -> None:
    values: dict[str, Any] = {"dp": 16, "enable_expert_parallel": True, "enable_eplb": True}

    def state_in_weights(version: str) -> int:
        with_state = planned(checkpoint(QWEN3_30B_A3B), H200, version, **values)
        bare = planned(checkpoint(QWEN3_30B_A3B), H200, version, **(values | {"enable_eplb": False}))
        return with_state.ranks[0].weights.device_bytes.expected - bare.ranks[0].weights.device_bytes.expected

    assert state_in_weights("0.18.1") == 0
    assert state_in_weights("0.23.0") > 0
    assert state_in_weights("0.33.0") == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_redundant_experts": 2, "tp": 4, "enable_expert_parallel": True}, "--enable-eplb"),
        ({"enable_eplb": True, "tp": 4}, "--enable-expert-parallel"),
        ({"eplb_config": {"window": 5}}, "no key 'window'"),
        ({"eplb_config": {"window_size": 0}}, "window_size 0"),
        ({"eplb_config": {"window_size": True}}, "window_size True"),
        ({"eplb_config": {"communicator": "smoke"}}, "communicator 'smoke'"),
        ({"eplb_config": {"num_redundant_experts": 4}, "num_redundant_experts": 8}, "another flag"),
        ({"all2all_backend": "deepseek"}, "not one of"),
    ],
)
def test_bad_load_balancing_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(FlagError) as refused:
        plan_with(checkpoint(QWEN3_30B_A3B), H200, version=None, values=values)
    assert words in str(refused.value)


def test_the_config_of_load_balancing_reads_as_its_flags() -> None:
    _, flags = read_flags({"eplb_config": '{"num_redundant_experts": 32, "window_size": 100}', "tp": 2})
    assert flags.num_redundant_experts == 32
    assert flags.eplb_config is not None
    assert flags.eplb_config.window_size == 100


# Resident and active


@given(st.integers(1, 64), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 4)), st.integers(0, 16))
def test_experts_over_ranks_add_up(count: int, tp: int, dp: int, redundant: int) -> None:
    config = QWEN3_30B_A3B | {"num_experts": count, "num_experts_per_tok": 1, "num_hidden_layers": 2}
    values: dict[str, Any] = {"tp": tp, "dp": dp, "enable_expert_parallel": True}
    if redundant and tp * dp > 1:
        values |= {"enable_eplb": True, "num_redundant_experts": redundant}
    copies = values.get("num_redundant_experts", 0)
    try:
        ranks = terms(checkpoint(config), H200, **values)
    except FlagError:
        assert (count + copies) % (tp * dp)
        return
    held = sum(local_experts(count, rank.kind.cuts) * len(rank.kind.ranks) for rank in ranks)
    assert held == count + copies
    one = 2 * 3 * 768 * 2048 * 2
    in_all = sum(
        group.total * len(rank.kind.ranks)
        for rank in ranks
        if (group := rank.weights.groups.get("experts")) is not None
    )
    assert in_all == held * one


def test_a_plan_says_what_is_resident_and_what_a_token_touches() -> None:
    def note(**values: Any) -> str:
        plan = planned(checkpoint(QWEN3_30B_A3B), **values)
        (found,) = [text for text in plan.notes if text.startswith("experts resident")]
        return found

    assert "128 experts, 1/2 of each, in each of 48 layers, 27.00 GiB" in note(tp=2)
    assert "8 a layer for a token, 1.69 GiB on the rank" in note(tp=2)
    dealt = note(tp=2, enable_expert_parallel=True)
    assert "64 of 128 experts, whole, in each of 48 layers, 27.00 GiB" in dealt
    assert "3.38 GiB somewhere in 2 ranks" in dealt
    assert not any("experts" in text for text in planned(checkpoint(LLAMA_3_1_8B)).notes)


def test_the_other_placement_of_the_experts_is_planned() -> None:
    here = plan_with(checkpoint(DEEPSEEK_V3), H200, version=None, values={"tp": 8, "pp": 2}, remedies=True)
    there = planned(checkpoint(DEEPSEEK_V3), H200, tp=8, pp=2, enable_expert_parallel=True)
    (note,) = [text for text in here.notes if text.startswith("with --enable-expert-parallel")]
    assert there.kv_pool is not None
    assert f"pool of {there.kv_pool.tokens.expected:,} tokens" in note
