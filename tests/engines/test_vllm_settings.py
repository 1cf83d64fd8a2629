"""Defaults by version and device, and what cannot go together."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    CPU,
    DEEPSEEK_V3,
    GPT_OSS_20B,
    H100,
    LFM2_1_2B,
    LLAMA_3_1_8B,
    NEMOTRON_3_NANO_30B,
    QWEN3_5_27B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    QWEN3_32B_AWQ,
    checkpoint,
    planned,
    settings,
)
from vramledger.engines.vllm.flags import ParallelPlan, Speculation, VllmFlags
from vramledger.engines.vllm.graphs import capture_plan, estimate_is_subtracted
from vramledger.engines.vllm.version import NEWEST, VllmVersion, parse_version
from vramledger.errors import FlagError, VramledgerError
from vramledger.hardware.catalogue import find_device

LLAMA = checkpoint(LLAMA_3_1_8B)
MAMBA_ONLY = {
    "model_type": "mamba", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 50280, "state_size": 16,
    "torch_dtype": "bfloat16",
}  # fmt: skip


# Batch defaults


@pytest.mark.parametrize(
    ("version", "device", "server", "offline", "seqs"),
    [
        ("0.7.3", "H100-80GB", 8192, 16384, 1024),
        ("0.7.3", "A100-80GB", 2048, 8192, 1024),
        ("0.8.4", "H200", 8192, 16384, 1024),
        ("0.8.4", "RTX 4090", 2048, 8192, 1024),
        ("0.8.5", "H100-80GB", 8192, 16384, 1024),
        ("0.8.5", "RTX 4090", 2048, 8192, 256),
        ("0.9.0", "H100-80GB", 8192, 16384, 1024),
        ("0.9.0", "A100-80GB", 2048, 8192, 256),
        ("0.10.2", "RTX 4090", 2048, 8192, 256),
        ("0.19.1", "H20", 8192, 16384, 1024),
        ("0.27.1", "B200", 8192, 16384, 1024),
        ("0.28.0", "B200", 16384, 16384, 1024),
        ("0.33.0", "MI300X", 16384, 16384, 1024),
        ("0.33.0", "H200", 8192, 16384, 1024),
        ("0.33.0", "A100-80GB", 2048, 8192, 256),
        ("0.33.0", "L40S", 2048, 8192, 256),
        ("0.32.0", "GB10", 8192, 16384, 1024),
        ("0.33.0", "GB10", 2048, 8192, 256),
    ],
)
def test_batch_limits_by_version_and_device(
    version: str, device: str, server: int, offline: int, seqs: int
) -> None:
    card = find_device(device)
    for expected, is_offline in ((server, False), (offline, True)):
        found = settings(LLAMA, card, version, offline=is_offline, use_v1=True)
        assert (found.max_tokens, found.max_num_seqs) == (expected, seqs)


@pytest.mark.parametrize("device", ["H100-80GB", "RTX 4090"])
def test_the_first_v1_knew_no_tiers(device: str) -> None:
    for expected, is_offline in ((2048, False), (8192, True)):
        found = settings(LLAMA, find_device(device), "0.6.6", offline=is_offline, use_v1=True)
        assert (found.max_tokens, found.max_num_seqs) == (expected, 1024)


@pytest.mark.parametrize(("ranks", "tokens", "seqs"), [(1, 2048, 128), (2, 4096, 256)])
def test_a_cpu_scales_its_batch_with_its_ranks(ranks: int, tokens: int, seqs: int) -> None:
    found = settings(LLAMA, CPU, "0.32.0", tp=ranks)
    assert (found.max_tokens, found.max_num_seqs) == (tokens, seqs)
    offline = settings(LLAMA, CPU, "0.32.0", tp=ranks, offline=True)
    assert (offline.max_tokens, offline.max_num_seqs) == (2 * tokens, 2 * seqs)


def test_v0_takes_a_whole_context_in_one_step() -> None:
    short = checkpoint(QWEN3_32B)
    found = settings(short, H100, "0.6.6", max_model_len=8192)
    assert not found.v1
    assert (found.max_tokens, found.max_num_seqs) == (8192, 256)
    assert settings(short, H100, "0.6.6", max_model_len=512).max_tokens == 2048


def test_a_defaulted_batch_is_no_larger_than_all_sequences_together() -> None:
    assert settings(LLAMA, max_num_seqs=4, max_model_len=100).max_tokens == 400
    assert settings(LLAMA, max_num_batched_tokens=64).max_num_seqs == 64
    assert settings(LLAMA, enable_chunked_prefill=False).max_tokens == 131_072


@pytest.mark.parametrize(
    ("version", "share"), [("0.6.6", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92), ("0.33.0", 0.92)]
)
def test_the_share_of_the_device(version: str, share: float) -> None:
    assert settings(LLAMA, H100, version).gpu_memory_utilization == share
    assert settings(LLAMA, H100, version, gpu_memory_utilization=0.5).gpu_memory_utilization == 0.5


def test_generations_and_runners_by_version() -> None:
    def engine(version: str, config: dict[str, Any] = LLAMA_3_1_8B, **values: Any) -> str:
        found = settings(checkpoint(config), H100, version, **values)
        return "V2" if found.v2_runner else "V1" if found.v1 else "V0"

    assert [engine(version) for version in ("0.7.3", "0.8.0", "0.22.0", "0.23.0")] == ["V0", "V1", "V1", "V2"]
    assert engine("0.22.0", QWEN3_32B) == "V2"
    assert engine("0.28.0", QWEN3_30B_A3B) == "V1"
    assert engine("0.29.0", QWEN3_30B_A3B) == "V2"
    assert engine("0.10.0", use_v1=False) == "V0"
    with pytest.raises(FlagError, match="V0 left vllm with 0"):
        engine("0.11.0", use_v1=False)
    with pytest.raises(FlagError, match="has V1"):
        engine("0.5.0", use_v1=True)
    assert engine("0.9.2", QWEN3_5_27B) == "V0"


def test_prefix_caching_is_on_except_in_v0_and_for_recurrent_models_before_0_29() -> None:
    assert settings(LLAMA).prefix_caching
    assert not settings(LLAMA, H100, "0.7.3").prefix_caching
    hybrid = checkpoint(QWEN3_5_27B)
    assert not settings(hybrid, H100, "0.28.0").prefix_caching
    assert settings(hybrid, H100, "0.29.0").prefix_caching
    assert settings(hybrid, H100, "0.28.0", enable_prefix_caching=True).prefix_caching
    assert not settings(LLAMA, enable_prefix_caching=False).prefix_caching


@pytest.mark.parametrize(
    ("version", "values", "batches"),
    [
        ("0.25.1", {}, 1),
        ("0.25.1", {"pp": 4}, 1),
        ("0.26.0", {}, 2),
        ("0.26.0", {"async_scheduling": False}, 1),
        ("0.33.0", {}, 2),
        ("0.33.0", {"pp": 2}, 3),
        ("0.33.0", {"pp": 2, "async_scheduling": False}, 2),
    ],
)
def test_batches_in_flight(version: str, values: dict[str, Any], batches: int) -> None:
    assert settings(LLAMA, H100, version, **values).in_flight_steps == batches


# CUDA graphs

EIGHTS = (1, 2, 4, *range(8, 513, 8))
SIXTEENS = (1, 2, 4, *range(8, 249, 8), *range(256, 513, 16))


def captured(
    version: str, config: dict[str, Any] = LLAMA_3_1_8B, device: str = "H100-80GB", **values: Any
) -> Any:
    subject, card = checkpoint(config), find_device(device)
    return capture_plan(settings(subject, card, version, **values), card)


@pytest.mark.parametrize(
    ("version", "seqs", "sizes"),
    [
        ("0.9.2", 256, EIGHTS),
        ("0.9.2", 16, EIGHTS),
        ("0.10.2", 256, EIGHTS),
        ("0.10.2", 64, EIGHTS[: EIGHTS.index(128) + 1]),
        ("0.11.0", 64, EIGHTS[: EIGHTS.index(128) + 1]),
        ("0.11.2", 256, SIXTEENS),
        ("0.27.1", 1024, SIXTEENS),
        ("0.33.0", 256, SIXTEENS),
        ("0.33.0", 64, SIXTEENS[: SIXTEENS.index(128) + 1]),
    ],
)
def test_captured_sizes_by_version(version: str, seqs: int, sizes: tuple[int, ...]) -> None:
    assert captured(version, max_num_seqs=seqs).piecewise == sizes


def test_how_many_sizes_that_is() -> None:
    assert (len(EIGHTS), len(SIXTEENS)) == (67, 51)
    both = captured("0.27.1", max_num_seqs=256)
    assert (len(both.piecewise), len(both.full)) == (51, 35)
    assert captured("0.10.2", max_num_seqs=256).full == ()


def test_v0_captured_decode_batches_up_to_its_sequences() -> None:
    found = captured("0.6.6", max_num_seqs=20)
    assert (found.piecewise, found.full) == ((), (1, 2, 4, 8, 16, 24))


def test_large_cards_and_gpt_oss_capture_up_to_1024_since_0_28() -> None:
    assert max(captured("0.27.1", device="B200").piecewise) == 512
    assert max(captured("0.28.0", device="B200").piecewise) == 1024
    assert max(captured("0.28.0", device="RTX 5090", max_num_seqs=1024).piecewise) == 512
    assert max(captured("0.27.1", GPT_OSS_20B).piecewise) == 512
    assert max(captured("0.28.0", GPT_OSS_20B).piecewise) == 1024


def test_speculation_captures_for_every_drafted_token_since_0_13() -> None:
    drafted: dict[str, Any] = {
        "max_num_seqs": 32,
        "speculative": Speculation(method="ngram", num_speculative_tokens=3),
    }
    assert max(captured("0.12.0", **drafted).piecewise) == 64
    assert max(captured("0.13.0", **drafted).piecewise) == 256


def test_no_graph_is_larger_than_a_batch() -> None:
    for version in ("0.9.2", "0.10.2", "0.27.1", "0.33.0"):
        assert max(captured(version, max_num_batched_tokens=100).piecewise) <= 100


def test_eager_and_cpu_capture_nothing() -> None:
    assert captured("0.33.0", enforce_eager=True).count == 0
    assert capture_plan(settings(LLAMA, CPU), CPU).count == 0


@pytest.mark.parametrize(
    ("version", "config", "subtracted"),
    [
        ("0.19.1", LLAMA_3_1_8B, False),
        ("0.20.0", LLAMA_3_1_8B, True),
        ("0.23.0", LLAMA_3_1_8B, False),
        ("0.28.0", LLAMA_3_1_8B, False),
        ("0.28.0", QWEN3_30B_A3B, True),
        ("0.29.0", LLAMA_3_1_8B, True),
    ],
)
def test_which_versions_keep_room_for_graphs(version: str, config: dict[str, Any], subtracted: bool) -> None:
    found = settings(checkpoint(config), H100, version)
    assert estimate_is_subtracted(found, H100) is subtracted
    assert not estimate_is_subtracted(settings(checkpoint(config), H100, version, enforce_eager=True), H100)


# Versions


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.27.1", VllmVersion(0, 27, 1)),
        ("v0.11", VllmVersion(0, 11)),
        ("0.26.1rc1.dev156+g0eec856cc", VllmVersion(0, 26, 1)),
        (" 0.10.2 ", VllmVersion(0, 10, 2)),
        ("0.32.0+cpu", VllmVersion(0, 32)),
    ],
)
def test_versions_as_builds_print_them(text: str, version: VllmVersion) -> None:
    assert parse_version(text) == version
    assert parse_version(str(version)) == version


@pytest.mark.parametrize("text", ["", "newest", "0.1.dev5926", "1.0.0", "0", "-0.3", "vllm"])
def test_a_version_without_rules_is_refused(text: str) -> None:
    with pytest.raises(FlagError) as refused:
        parse_version(text)
    assert text in str(refused.value)


def test_the_newest_is_the_default() -> None:
    assert planned(LLAMA).inputs.engine_version == str(NEWEST) == "0.33.0"


# Contradictions: one sentence that names the flag and the value


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"max_num_seqs": 512, "max_num_batched_tokens": 256},
            ("--max-num-batched-tokens 256", "--max-num-seqs 512"),
        ),
        (
            {"kv_cache_memory_bytes": 2**30, "num_gpu_blocks_override": 10},
            ("--kv-cache-memory-bytes", "--num-gpu-blocks-override"),
        ),
        ({"tp": 4, "dcp": 3}, ("--decode-context-parallel-size 3", "--tp 4")),
        ({"tp": 0}, ("--tp is 0",)),
        ({"pp": -1}, ("--pp is -1",)),
        ({"dp": 5000}, ("--dp is 5000",)),
        ({"pp": 33}, ("--pp 33", "32 layers")),
        (
            {"pp": 2, "pp_layer_partition": (16, 15)},
            ("--pp-layer-partition", "16,15", "32 layers", "2 stages"),
        ),
        ({"pp": 2, "pp_layer_partition": (33, -1)}, ("--pp-layer-partition", "33,-1")),
        ({"gpu_memory_utilization": 0.0}, ("--gpu-memory-utilization is 0.0",)),
        ({"gpu_memory_utilization": 92.0}, ("--gpu-memory-utilization is 92.0",)),
        ({"gpu_memory_utilization": float("nan")}, ("--gpu-memory-utilization is nan",)),
        ({"max_model_len": 0}, ("--max-model-len is 0",)),
        ({"max_model_len": -2}, ("--max-model-len is -2",)),
        ({"max_num_seqs": 0}, ("--max-num-seqs is 0",)),
        ({"max_num_batched_tokens": -8}, ("--max-num-batched-tokens is -8",)),
        ({"block_size": 0}, ("--block-size is 0",)),
        ({"max_loras": 0}, ("--max-loras is 0",)),
        ({"max_lora_rank": 17}, ("--max-lora-rank is 17", "16, 32")),
        ({"mamba_cache_mode": "some"}, ("--mamba-cache-mode is some",)),
        ({"mm_encoder_tp_mode": "both"}, ("--mm-encoder-tp-mode is both",)),
        ({"dtype": "int8"}, ("--dtype int8",)),
        ({"num_redundant_experts": -1}, ("--num-redundant-experts is -1",)),
        ({"max_cudagraph_capture_size": -1}, ("--max-cudagraph-capture-size is -1",)),
    ],
)
def test_flags_that_contradict(values: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(FlagError) as refused:
        planned(LLAMA, **values)
    message = str(refused.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
    assert refused.value.exit_code == 2
    assert set(refused.value.facts) >= {"flag", "value"}


@pytest.mark.parametrize("tokens", [0, -3])
def test_a_draft_has_at_least_one_token(tokens: int) -> None:
    with pytest.raises(FlagError, match=f"num_speculative_tokens is {tokens}"):
        Speculation(method="mtp", num_speculative_tokens=tokens)


@pytest.mark.parametrize(
    ("config", "values", "words"),
    [
        (LLAMA_3_1_8B, {"tp": 3}, ("--tensor-parallel-size 3", "32 attention heads")),
        (LLAMA_3_1_8B, {"tp": 64}, ("--tensor-parallel-size 64", "32 attention heads")),
        (
            LLAMA_3_1_8B | {"num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128},
            {"tp": 3},
            ("--tensor-parallel-size 3", "8 KV heads"),
        ),
        (DEEPSEEK_V3, {"tp": 3}, ("3",)),
        (NEMOTRON_3_NANO_30B, {"tp": 3}, ("--tensor-parallel-size 3", "attention heads")),
        (LFM2_1_2B, {"tp": 3}, ("--tensor-parallel-size 3", "attention heads")),
        (MAMBA_ONLY, {"tp": 3}, ("--tensor-parallel-size 3", "4096 mamba channels")),
        (QWEN3_5_27B, {"tp": 5}, ("--tensor-parallel-size 5",)),
        (LLAMA_3_1_8B | {"intermediate_size": 14337}, {"tp": 2}, ("2", "14337", "gate_proj")),
        (QWEN3_30B_A3B, {"tp": 4, "dp": 5}, ("20", "768", "gate_proj")),
        (
            QWEN3_30B_A3B,
            {"tp": 4, "enable_expert_parallel": True, "enable_eplb": True, "num_redundant_experts": 2},
            ("--num-redundant-experts 2", "130", "4"),
        ),
    ],
)
def test_a_model_that_does_not_divide(
    config: dict[str, Any], values: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(FlagError) as refused:
        planned(checkpoint(config), **values)
    message = str(refused.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize("dtype", ["int3", "fp4x", ""])
def test_a_cache_type_nobody_has_is_refused_or_means_the_models_own(dtype: str) -> None:
    if dtype:
        with pytest.raises(FlagError, match=f"--kv-cache-dtype {dtype}"):
            planned(LLAMA, kv_cache_dtype=dtype)
    else:
        assert planned(LLAMA, kv_cache_dtype=dtype).kv_pool == planned(LLAMA).kv_pool


def test_a_latent_format_needs_latents_and_a_head_format_needs_heads() -> None:
    with pytest.raises(VramledgerError, match="fp8_ds_mla"):
        planned(LLAMA, kv_cache_dtype="fp8_ds_mla")
    with pytest.raises(VramledgerError, match="int8_per_token_head"):
        planned(checkpoint(DEEPSEEK_V3), tp=8, kv_cache_dtype="int8_per_token_head")


def test_a_context_above_the_models_own_is_told() -> None:
    with pytest.raises(FlagError, match="200000 is above the 131072 tokens"):
        planned(LLAMA, max_model_len=200_000)
    notes = planned(LLAMA, max_model_len=200_000, allow_long_max_model_len=True).notes
    assert any("200000" in note and "131072" in note for note in notes)
    assert planned(LLAMA, max_model_len=131_072).notes == planned(LLAMA).notes


def test_defaults_are_flags_nobody_gave() -> None:
    assert planned(LLAMA) == planned(checkpoint(LLAMA_3_1_8B))
    assert VllmFlags() == VllmFlags(kv_cache_dtype="auto")
    assert ParallelPlan().world_size == ParallelPlan().expert_group == ParallelPlan().ep == 1


def test_a_quantised_checkpoint_is_not_quantised_again() -> None:
    plain = planned(checkpoint(QWEN3_32B_AWQ))
    assert planned(checkpoint(QWEN3_32B_AWQ), quantization="awq").ranks == plain.ranks
