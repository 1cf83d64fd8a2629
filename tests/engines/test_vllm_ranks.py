"""Pipeline splits, experts over ranks, kinds of rank, LoRA slots."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    DEEPSEEK_V3,
    H100,
    LLAMA_3_1_8B,
    QWEN3_30B_A3B,
    QWEN3_235B_A22B_FP8,
    TINY_LLAMA,
    checkpoint,
    planned,
    settings,
    tensor_bytes,
    weights,
)
from vramledger.engines.partition import local_experts
from vramledger.engines.vllm.flags import LORA_RANKS, ParallelPlan, VllmFlags
from vramledger.engines.vllm.lora import LoraBytes, lora_bytes
from vramledger.engines.vllm.sharding import pipeline_layers, rank_kinds
from vramledger.engines.vllm.version import NEWEST, parse_version


def split(layers: int, stages: int, version: str = "0.33.0") -> list[int]:
    return [len(stage) for stage in pipeline_layers(layers, stages, parse_version(version), None)]


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (62, 4, [15, 16, 16, 15]),
        (61, 4, [15, 15, 16, 15]),
        (63, 4, [16, 16, 16, 15]),
        (64, 4, [16, 16, 16, 16]),
        (61, 2, [31, 30]),
        (61, 8, [7, 7, 8, 8, 8, 8, 8, 7]),
        (3, 3, [1, 1, 1]),
        (5, 1, [5]),
    ],
)
def test_layers_that_remain_go_to_the_middle_stages(layers: int, stages: int, expected: list[int]) -> None:
    assert split(layers, stages) == split(layers, stages, "0.8.0") == expected


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [(62, 4, [15, 15, 15, 17]), (61, 4, [15, 15, 15, 16]), (61, 2, [30, 31])],
)
def test_before_0_8_they_all_went_to_the_last_stage(layers: int, stages: int, expected: list[int]) -> None:
    assert split(layers, stages, "0.7.3") == expected


def test_a_stated_partition_wins() -> None:
    found = pipeline_layers(32, 3, NEWEST, (10, 12, 10))
    assert found == [range(10), range(10, 22), range(22, 32)]


def experts(config: dict[str, Any], **values: Any) -> list[int]:
    """Experts of a layer on every rank of the world, in order."""
    model = checkpoint(config).model
    sizes = {name: values.pop(name) for name in ("tp", "pp", "dp") if name in values}
    plan, flags = ParallelPlan(enable_expert_parallel=True, **sizes), VllmFlags(**values)
    count = 256 if config is DEEPSEEK_V3 else 128
    found = {
        rank: local_experts(count, kind.cuts)
        for kind in rank_kinds(model, plan, flags, NEWEST)
        for rank in kind.ranks
    }
    return [found[rank] for rank in sorted(found)]


@pytest.mark.parametrize(
    ("config", "values", "expected"),
    [
        (QWEN3_30B_A3B, {"tp": 8}, [16] * 8),
        (DEEPSEEK_V3, {"tp": 8}, [32] * 8),
        (DEEPSEEK_V3, {"tp": 8, "enable_eplb": True, "num_redundant_experts": 32}, [36] * 8),
        (QWEN3_30B_A3B, {"tp": 1, "dp": 6}, [22, 22, 21, 21, 21, 21]),
        (QWEN3_30B_A3B, {"tp": 2, "dp": 3}, [22, 22, 21, 21, 21, 21]),
    ],
)
def test_the_first_ranks_get_the_experts_that_remain(
    config: dict[str, Any], values: dict[str, Any], expected: list[int]
) -> None:
    assert experts(config, **values) == expected


def test_ranks_that_hold_different_experts_are_different_kinds() -> None:
    found = planned(checkpoint(QWEN3_30B_A3B), H100, dp=6, enable_expert_parallel=True).ranks
    assert [rank.ranks for rank in found] == [(0, 1), (2, 3, 4, 5)]
    more, fewer = (rank.weights.device_bytes.expected for rank in found)
    assert more > fewer


def test_without_expert_parallelism_data_parallel_ranks_share_every_expert() -> None:
    (alone,) = weights(checkpoint(QWEN3_30B_A3B), tp=2)
    (shared,) = weights(checkpoint(QWEN3_30B_A3B), tp=2, dp=2)
    assert shared.groups["experts"].total * 2 == alone.groups["experts"].total
    assert shared.groups["attention"].total == alone.groups["attention"].total


def test_identical_ranks_are_folded() -> None:
    assert [rank.ranks for rank in planned(checkpoint(LLAMA_3_1_8B), tp=8).ranks] == [tuple(range(8))]
    staged = planned(checkpoint(LLAMA_3_1_8B), tp=2, pp=2).ranks
    assert [rank.ranks for rank in staged] == [(0, 1), (2, 3)]
    replicated = planned(checkpoint(LLAMA_3_1_8B), tp=2, pp=2, dp=2).ranks
    assert [rank.ranks for rank in replicated] == [(0, 1, 4, 5), (2, 3, 6, 7)]


def test_the_widest_stage_decides_a_block() -> None:
    found = planned(checkpoint(DEEPSEEK_V3), tp=8, pp=4).kv_pool
    assert found is not None
    assert found.bytes_per_block == 16 * 16 * 576 * 2


def test_experts_of_all_ranks_are_all_experts() -> None:
    for ranks in (1, 2, 4, 8):
        held = weights(checkpoint(QWEN3_235B_A22B_FP8), tp=ranks, enable_expert_parallel=True)[0]
        (alone,) = weights(checkpoint(QWEN3_235B_A22B_FP8))
        assert held.groups["experts"].total * ranks == alone.groups["experts"].total


# LoRA


def slots(config: dict[str, Any], version: str = "0.33.0", **values: Any) -> LoraBytes:
    subject = checkpoint(config)
    found = settings(subject, H100, version, enable_lora=True, **values)
    (kind,) = rank_kinds(subject.model, found.plan, found.flags, found.version)
    return lora_bytes(subject.model, kind, found)


def test_four_slots_of_rank_16_for_llama() -> None:
    found = slots(LLAMA_3_1_8B, max_loras=4, max_lora_rank=16)
    assert found.linears == 1_310_720 * 2 * 32 * 4 == 335_544_320
    assert found.vocabulary == 2 * 4 * 16 * (128_256 + 4096) * 2
    assert round(found.vocabulary / 10**6, 1) == 33.9
    assert found.experts == 0


def test_every_matrix_has_its_own_pair_of_factors() -> None:
    """Merged matrices share nothing: q, k, v, gate and up each have their own A."""
    width, inner, kv = 4096, 14336, 1024
    matrices = [(width, width), (kv, width), (kv, width), (width, width)]
    matrices += [(inner, width), (inner, width), (width, inner)]
    elements = sum(16 * (out + inp) for out, inp in matrices)
    assert elements == 1_310_720
    assert slots(LLAMA_3_1_8B).linears == elements * 2 * 32


def test_matrices_that_a_checkpoint_stores_fused_share_a_factor() -> None:
    """Phi's adapters are of its fused projections: one A less for gate and up, two for queries, keys and values."""
    fused = TINY_LLAMA | {"model_type": "phi3", "tie_word_embeddings": False}
    width, layers = TINY_LLAMA["hidden_size"], TINY_LLAMA["num_hidden_layers"]
    assert slots(TINY_LLAMA).linears - slots(fused).linears == 3 * 16 * width * layers * 2


def test_one_factor_is_cut_and_the_other_whole_unless_both_are_to_be_cut() -> None:
    width, inner, kv, rank, ranks = 4096, 14336, 1024, 16, 4
    cut = rank * (width + 2 * kv + width + 2 * inner + inner) // ranks
    whole = rank * (3 * width + width + 2 * width + width)
    assert slots(LLAMA_3_1_8B, tp=ranks).linears == (cut + whole) * 2 * 32
    assert slots(LLAMA_3_1_8B, tp=ranks, fully_sharded_loras=True).linears == (cut + whole // ranks) * 2 * 32


def test_slots_of_experts() -> None:
    held, rank, width, inner = 128, 16, 2048, 768
    pairs = 2 * held * rank * width + 2 * held * inner * rank + held * rank * inner + held * width * rank
    assert slots(QWEN3_30B_A3B).experts == 48 * 2 * pairs


def test_slots_of_the_vocabulary_held_256_rows_more_before_0_12() -> None:
    """Rows for added tokens in both ends, embeddings for them, and rows in the base's own tables."""
    old, new = slots(LLAMA_3_1_8B, "0.11.2"), slots(LLAMA_3_1_8B, "0.12.0")
    assert old.vocabulary - new.vocabulary == 2 * 16 * 256 * 2 + 2 * 256 * 4096 * 2
    assert old.vocabulary_rows == (256 + 256) * 4096 * 2
    assert new.vocabulary_rows == 0


@pytest.mark.parametrize("rank", LORA_RANKS)
def test_slots_grow_with_rank_and_count_alone(rank: int) -> None:
    one = slots(TINY_LLAMA, max_lora_rank=1).of_one(1)
    assert slots(TINY_LLAMA, max_lora_rank=rank).of_one(1) == rank * one
    assert slots(TINY_LLAMA, max_lora_rank=rank, max_loras=7).of_one(7) == rank * one


def test_slots_are_part_of_what_loading_took() -> None:
    subject = checkpoint(LLAMA_3_1_8B)
    without, with_slots = planned(subject), planned(subject, enable_lora=True, max_loras=4)
    grown = with_slots.ranks[0].weights.device_bytes.expected - without.ranks[0].weights.device_bytes.expected
    assert grown == slots(LLAMA_3_1_8B, max_loras=4).total


def test_stages_hold_the_model_once() -> None:
    subject = checkpoint(LLAMA_3_1_8B)
    (alone,) = weights(subject)
    for stages in (2, 3, 4, 32):
        assert sum(tensor_bytes(held) * 1 for held in weights(subject, pp=stages)) == tensor_bytes(alone)
