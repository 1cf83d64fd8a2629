"""Blocks, the token line and the concurrency line, as each version prints them for a given pool."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    CPU,
    DEEPSEEK_V3,
    GEMMA_3_27B,
    GPT_OSS_20B,
    GPT_OSS_120B,
    H100,
    LFM2_1_2B,
    LLAMA_3_1_8B,
    QWEN3_5_27B,
    QWEN3_30B_A3B,
    QWEN3_235B_A22B_FP8,
    SMOLLM2_135M,
    TINY_LLAMA,
    checkpoint,
    layout,
    lines,
    planned,
    settings,
)
from vramledger.engines.vllm.flags import AUTO
from vramledger.engines.vllm.kv_budget import (
    blocks_per_request,
    capacity,
    longest_context,
    request_blocks,
    usable_bytes,
)
from vramledger.engines.vllm.kv_specs import KvKind
from vramledger.errors import FlagError
from vramledger.units import GIB, MIB


def rows(config: dict[str, Any], version: str, **values: Any) -> tuple[int, int]:
    """Blocks that a full-length request may hold: in a windowed group, and over all groups."""
    subject = checkpoint(config)
    found = settings(subject, H100, version, **values)
    groups = layout(subject, H100, version, **values)
    windowed = next((g for g in groups.groups if g.spec.kind is KvKind.WINDOW), groups.groups[0])
    return (
        request_blocks(windowed.spec, found.context_len, found),
        blocks_per_request(groups, found.context_len, found),
    )


# One group


@pytest.mark.parametrize("version", ["0.9.2", "0.11.0", "0.13.0", "0.19.1", "0.20.2", "0.28.0", "0.33.0"])
def test_one_full_group_prints_blocks_times_block_size(version: str) -> None:
    found = lines(checkpoint(LLAMA_3_1_8B), 27_908 * 2_097_152, version=version)
    assert (found.num_blocks, found.tokens) == (27_908, 446_528)
    assert f"{found.max_concurrency:.2f}" == "3.41"


def test_qwen3_30b_on_two_ranks() -> None:
    found = lines(checkpoint(QWEN3_30B_A3B), 53_932 * 786_432, tp=2)
    assert (found.num_blocks, found.tokens, f"{found.max_concurrency:.2f}") == (53_932, 862_912, "21.07")


def test_deepseek_v3_holds_a_full_request_in_10_72_gib() -> None:
    subject = checkpoint(DEEPSEEK_V3)
    found = settings(subject, tp=8)
    groups = layout(subject, tp=8)
    need = blocks_per_request(groups, 163_840, found)
    assert need == 10_240
    assert round(need * groups.bytes_per_block() / GIB, 2) == 10.72


def test_the_smallest_rank_of_a_published_log() -> None:
    found = lines(
        checkpoint(QWEN3_235B_A22B_FP8), 11_423_138_508, version="0.10.2", tp=8, enable_expert_parallel=True
    )
    assert (found.num_blocks, found.tokens) == (14_834, 237_344)


@pytest.mark.parametrize("version", ["0.8.0", "0.9.2", "0.20.2", "0.33.0"])
def test_a_pool_smaller_than_a_block_holds_nothing(version: str) -> None:
    found = lines(checkpoint(LLAMA_3_1_8B), 2_097_151, version=version)
    assert (found.num_blocks, found.tokens, found.max_concurrency) == (0, 0, 0.0)


# Windows: gemma-3-27b with 18 GiB


@pytest.mark.parametrize(
    ("version", "context", "blocks", "concurrency", "printed"),
    [
        ("0.10.0", 131_072, 8192 + 6 * 577, 1.265, 33_696),
        ("0.19.1", 131_072, 8192 + 6 * 577, 1.265, 33_696),
        ("0.20.2", 131_072, 8192 + 6 * 577, 1.265, 165_836),
        ("0.25.1", 131_072, 8192 + 6 * 577, 1.265, 165_836),
        ("0.26.0", 131_072, 8192 + 6 * 1089, 1.001, 131_241),
        ("0.33.0", 131_072, 8192 + 6 * 1089, 1.001, 131_241),
        ("0.10.0", 32_768, 2048 + 6 * 577, 2.676, 33_696),
        ("0.19.1", 32_768, 2048 + 6 * 577, 2.676, 33_696),
        ("0.20.2", 32_768, 2048 + 6 * 577, 2.676, 87_688),
        ("0.25.1", 32_768, 2048 + 6 * 577, 2.676, 87_688),
        ("0.26.0", 32_768, 2048 + 6 * 1089, 1.718, 56_299),
        ("0.33.0", 32_768, 2048 + 6 * 1089, 1.718, 56_299),
    ],
)
def test_gemma_3_by_version_and_context(
    version: str, context: int, blocks: int, concurrency: float, printed: int
) -> None:
    asked: dict[str, Any] = {"max_model_len": context, "max_num_batched_tokens": 8192}
    found = lines(checkpoint(GEMMA_3_27B), 18 * GIB, version=version, **asked)
    assert found.num_blocks == 14_745
    assert rows(GEMMA_3_27B, version, **asked)[1] == blocks
    assert round(found.max_concurrency, 3) == concurrency
    assert found.tokens == printed


def test_the_bytes_of_one_full_gemma_3_request() -> None:
    def need(**values: Any) -> str:
        held = planned(
            checkpoint(GEMMA_3_27B),
            H100,
            max_num_batched_tokens=8192,
            kv_cache_memory_bytes=18 * GIB,
            **values,
        ).kv_pool
        assert held is not None
        return f"{held.admission_bytes_per_request / GIB:.2f}"

    assert need() == "17.98"
    assert need(async_scheduling=False) == "14.23"
    assert need(disable_hybrid_kv_cache_manager=True) == "62.00"


@pytest.mark.parametrize(("context", "concurrency"), [(131_072, "0.29"), (32_768, "1.16")])
@pytest.mark.parametrize("version", ["0.19.1", "0.20.2", "0.33.0"])
def test_gemma_3_with_the_manager_off(version: str, context: int, concurrency: str) -> None:
    found = lines(
        checkpoint(GEMMA_3_27B),
        18 * GIB,
        version=version,
        max_model_len=context,
        disable_hybrid_kv_cache_manager=True,
    )
    assert found.num_blocks == 18 * GIB // 8_126_464
    assert (found.tokens, f"{found.max_concurrency:.2f}") == (38_048, concurrency)


def test_more_batched_tokens_leave_fewer_windowed_tokens() -> None:
    assert rows(GEMMA_3_27B, "0.33.0", max_num_batched_tokens=2048)[1] == 8192 + 6 * 321
    seen = [
        lines(checkpoint(GEMMA_3_27B), 18 * GIB, max_num_batched_tokens=batch).tokens
        for batch in (2048, 4096, 8192, 16384)
    ]
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) == 4


# Windows: gpt-oss


@pytest.mark.parametrize(
    ("batch", "windowed", "size"), [(8192, 1033, "3.38"), (4096, 521, "3.19"), (1024, 137, "3.05")]
)
def test_a_gpt_oss_request_by_tokens_in_flight(batch: int, windowed: int, size: str) -> None:
    asked = {"max_num_batched_tokens": batch}
    assert rows(GPT_OSS_20B, "0.33.0", **asked) == (windowed, 8192 + windowed)
    assert f"{(8192 + windowed) * 393_216 / GIB:.2f}" == size


@pytest.mark.parametrize(
    ("version", "printed", "concurrency"),
    [
        ("0.10.2", 1_092_256, None),
        ("0.19.1", 1_092_256, "15.67"),
        ("0.20.2", 2_053_902, "15.67"),
        ("0.25.1", 2_053_902, "15.67"),
        ("0.26.0", 1_939_908, "14.80"),
        ("0.33.0", 1_939_908, "14.80"),
    ],
)
def test_gpt_oss_with_50_gib(version: str, printed: int, concurrency: str | None) -> None:
    found = lines(checkpoint(GPT_OSS_20B), 50 * GIB, version=version, max_num_batched_tokens=8192)
    assert (found.num_blocks, found.tokens) == (136_533, printed)
    if concurrency is not None:
        assert f"{found.max_concurrency:.2f}" == concurrency


def test_a_window_of_128_tokens_is_the_current_one_and_127_before_it() -> None:
    for batch, blocks in ((16, 9 + 1), (17, 9 + 1), (18, 10 + 1)):
        assert rows(GPT_OSS_20B, "0.25.1", max_num_batched_tokens=batch)[0] == blocks


def test_what_gpt_oss_120b_needed_in_a_published_error() -> None:
    asked = {"max_num_batched_tokens": 1024}
    windowed, total = rows(GPT_OSS_120B, "0.11.0", **asked)
    assert (windowed, total) == (73, 8265)
    assert f"{total * 18 * 32_768 / GIB:.2f}" == "4.54"


# Recurrent hybrids, from published logs


def test_a_27b_hybrid_in_0_27() -> None:
    subject = checkpoint(QWEN3_5_27B)
    values = {"enable_prefix_caching": True}
    found = settings(subject, H100, "0.27.1", **values)
    groups = layout(subject, H100, "0.27.1", **values)
    assert len(groups.groups) == 4
    assert blocks_per_request(groups, 262_144, found) == 335 + 3 * 2
    assert capacity(groups, 408, found).tokens == 313_650


def test_lfm2_with_fp8_cache_in_0_26() -> None:
    subject = checkpoint(LFM2_1_2B)
    values = {"enable_prefix_caching": True, "kv_cache_dtype": "fp8", "max_model_len": 32_768}
    found = settings(subject, H100, "0.26.0", **values)
    groups = layout(subject, H100, "0.26.0", **values)
    assert blocks_per_request(groups, 32_768, found) == 2048 + 2 * 2
    printed = capacity(groups, 145_549, found)
    assert (f"{printed.max_concurrency:.2f}", printed.tokens) == ("70.93", 2_324_244)


# What a CPU printed: 0.32.0, tiny models with the pool given in bytes

TINY_GEMMA_3 = {
    "model_type": "gemma3_text",
    "hidden_size": 128,
    "head_dim": 32,
    "intermediate_size": 256,
    "max_position_embeddings": 4096,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "layer_types": [*["sliding_attention"] * 3, "full_attention"],
    "sliding_window": 256,
    "torch_dtype": "bfloat16",
    "vocab_size": 512,
}
TINY_GPT_OSS = GPT_OSS_20B | {
    "hidden_size": 128,
    "head_dim": 32,
    "intermediate_size": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "max_position_embeddings": 4096,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "quantization_config": None,
    "sliding_window": 256,
    "torch_dtype": "bfloat16",
    "vocab_size": 512,
}
TINY_WINDOW = TINY_LLAMA | {"model_type": "mistral", "sliding_window": 256}
TINY_LATENT = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 4,
    "hidden_size": 128,
    "intermediate_size": 256,
    "kv_lora_rank": 512,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 64,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 64,
    "torch_dtype": "bfloat16",
    "v_head_dim": 32,
    "vocab_size": 512,
}


@pytest.mark.parametrize(
    ("config", "size", "values", "blocks", "tokens"),
    [
        (TINY_LLAMA, 8 * MIB, {}, 64, 8_192),
        (TINY_LLAMA, 8 * MIB, {"block_size": 32}, 256, 8_192),
        (TINY_LLAMA, GIB, {}, 8_192, 1_048_576),
        (TINY_LLAMA, 64 * MIB, {"kv_cache_dtype": "fp8"}, 1_024, 131_072),
        (TINY_LLAMA, 8 * MIB, {"tp": 2}, 128, 16_384),
        (SMOLLM2_135M, 64 * MIB, {}, 22, 2_816),
        (TINY_WINDOW, 64 * MIB, {"max_model_len": 2048}, 512, 61_680),
        (TINY_GEMMA_3, 64 * MIB, {"max_model_len": 2048}, 2_048, 62_601),
        (TINY_GPT_OSS, 64 * MIB, {"max_model_len": 2048}, 1_024, 63_550),
        (TINY_LATENT, 64 * MIB, {"max_model_len": 2048}, 910, 14_560),
    ],
)
def test_a_cpu_prints(
    config: dict[str, Any], size: int, values: dict[str, Any], blocks: int, tokens: int
) -> None:
    found = lines(checkpoint(config), size, CPU, "0.32.0", **values)
    assert (found.num_blocks, found.tokens) == (blocks, tokens)


@pytest.mark.parametrize(
    ("config", "concurrency"),
    [(TINY_WINDOW, "30.1176"), (TINY_GEMMA_3, "30.567"), (TINY_GPT_OSS, "31.030"), (TINY_LATENT, "7.109")],
)
def test_a_cpu_prints_how_many_requests_of_2048_tokens(config: dict[str, Any], concurrency: str) -> None:
    found = lines(checkpoint(config), 64 * MIB, CPU, "0.32.0", max_model_len=2048)
    digits = len(concurrency.partition(".")[2])
    assert f"{found.max_concurrency:.{digits}f}" == concurrency


# The null block and the longest context


def offered(config: dict[str, Any], size: int, version: str, **values: Any) -> int:
    subject = checkpoint(config)
    found = settings(subject, CPU, version, **values)
    groups = layout(subject, CPU, version, **values)
    per_block = groups.bytes_per_block()
    return longest_context(
        lambda length: per_block * blocks_per_request(groups, length, found),
        size // per_block * per_block,
        per_block,
        found,
        found.context_len,
    )


@pytest.mark.parametrize(
    ("version", "longest"), [("0.32.0", 31 * 128), ("0.29.0", 31 * 128), ("0.28.0", 4096)]
)
def test_one_block_is_never_given_out_and_counts_since_0_29(version: str, longest: int) -> None:
    assert offered(TINY_LLAMA, 4 * MIB, version) == longest
    found = settings(checkpoint(TINY_LLAMA), CPU, version)
    assert 4 * MIB - usable_bytes(4 * MIB, 131_072, found) == (0 if longest == 4096 else 131_072)


@pytest.mark.parametrize("version", ["0.14.1", "0.20.2", "0.28.0", "0.29.0", "0.33.0"])
def test_auto_takes_the_longest_context_that_fits(version: str) -> None:
    for config in (LLAMA_3_1_8B, GEMMA_3_27B, GPT_OSS_20B, QWEN3_5_27B):
        subject = checkpoint(config)
        asked = {"max_num_batched_tokens": 2048, "max_num_seqs": 64}
        for size in (2 * GIB, 7 * GIB + 12345, 900 * GIB):
            values = {**asked, "kv_cache_memory_bytes": size}
            held = planned(subject, H100, version, max_model_len=AUTO, **values).kv_pool
            assert held is not None
            fitted = held.context_len
            found = settings(subject, H100, version, max_model_len=fitted, **values)
            groups = layout(subject, H100, version, max_model_len=fitted, **values)
            usable = usable_bytes(size, held.bytes_per_block, found)
            assert blocks_per_request(groups, fitted, found) * held.bytes_per_block <= usable
            if fitted < subject.model.max_position_embeddings:
                more = blocks_per_request(groups, fitted + 1, found)
                assert more * held.bytes_per_block > usable
            else:
                assert fitted == subject.model.max_position_embeddings


def test_auto_does_not_exist_before_0_14() -> None:
    with pytest.raises(FlagError, match=r"--max-model-len auto exists since vllm 0\.14, not in 0\.13\.0"):
        planned(checkpoint(LLAMA_3_1_8B), version="0.13.0", max_model_len=AUTO)


def test_a_pool_in_bytes_is_floored_to_blocks_and_asks_for_no_share() -> None:
    subject = checkpoint(LLAMA_3_1_8B)
    size = 5 * GIB + 2_097_151
    for share in (0.1, 0.5, 1.0):
        held = planned(subject, kv_cache_memory_bytes=size, gpu_memory_utilization=share).kv_pool
        assert held is not None
        assert held.num_blocks.low == held.num_blocks.expected == held.num_blocks.high == 5 * 512
        assert held.bytes.expected == 5 * GIB
        assert size - held.bytes.expected < held.bytes_per_block


def test_a_number_of_blocks_that_is_given_replaces_what_was_profiled() -> None:
    held = planned(checkpoint(LLAMA_3_1_8B), num_gpu_blocks_override=9_000).kv_pool
    assert held is not None
    assert held.num_blocks.low == held.num_blocks.expected == held.num_blocks.high == 9_000
    assert held.tokens.expected == 144_000


# Shards of a context


@pytest.mark.parametrize(
    ("version", "tokens"), [("0.10.2", 2 * 446_528), ("0.13.0", 2 * 446_528), ("0.33.0", 2 * 446_528)]
)
def test_ranks_that_share_a_context_hold_it_once(version: str, tokens: int) -> None:
    values: dict[str, Any] = {"tp": 8, "dcp": 2}
    groups = layout(checkpoint(LLAMA_3_1_8B), H100, version, **values)
    found = lines(checkpoint(LLAMA_3_1_8B), 27_908 * groups.bytes_per_block(), version=version, **values)
    assert found.tokens == tokens


# The lines themselves


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.6.6", ("Loading model weights took", "# GPU blocks:", "Maximum concurrency for 8192 tokens")),
        ("0.8.0", ("Model loading took", "GPU KV cache size:", "Maximum concurrency for 8,192 tokens")),
        (
            "0.13.0",
            (
                "Model loading took",
                "Available KV cache memory:",
                "GPU KV cache size:",
                "Maximum concurrency for 8,192",
            ),
        ),
        ("0.33.0", ("Model loading took", "Available KV cache memory:", "GPU KV cache size:")),
    ],
)
def test_lines_as_a_version_words_them(version: str, expected: tuple[str, ...]) -> None:
    printed = planned(checkpoint(LLAMA_3_1_8B), H100, version, max_model_len=8192).printed
    assert len(printed) == len(expected)
    assert all(line.startswith(start) for line, start in zip(printed, expected, strict=True))


def test_one_line_has_both_figures_since_0_28_and_names_the_device_since_0_30() -> None:
    subject = checkpoint(TINY_LLAMA)
    values = {"kv_cache_memory_bytes": 8 * MIB}
    assert planned(subject, CPU, "0.32.0", **values).printed[-1] == (
        "CPU KV cache size: 8,192 tokens, Maximum concurrency for 4,096 tokens per request: 2.00x"
    )
    assert planned(subject, CPU, "0.27.1", **values).printed[-2:] == (
        "GPU KV cache size: 8,192 tokens",
        "Maximum concurrency for 4,096 tokens per request: 2.00x",
    )
