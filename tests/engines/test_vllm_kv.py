"""KV pages, bytes a token and recurrent states of real models."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    CPU,
    DEEPSEEK_V3,
    DEEPSEEK_V3_2,
    GEMMA_3_27B,
    GEMMA_4_26B_A4B,
    GPT_OSS_20B,
    GPT_OSS_120B,
    H100,
    LFM2_1_2B,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    LLAMA_4_SCOUT,
    MIMO_V2_FLASH,
    MIXTRAL_8X7B,
    NEMOTRON_3_NANO_30B,
    QWEN3_5_27B,
    QWEN3_5_35B_A3B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    TINY_LLAMA,
    bytes_per_token,
    checkpoint,
    layout,
    planned,
    settings,
)
from vramledger.engines.vllm.flags import Speculation
from vramledger.engines.vllm.kv_specs import KvKind
from vramledger.engines.vllm.states import recurrent_state
from vramledger.hardware.catalogue import find_device
from vramledger.models.mixers import RECURRENT
from vramledger.pool import KvPool
from vramledger.units import GIB, KIB

B200 = find_device("B200")
MTP = Speculation(method="mtp", num_speculative_tokens=1)


def pool(config: dict[str, Any], *, version: str = "0.33.0", **values: Any) -> KvPool:
    found = planned(checkpoint(config), H100, version, **values).kv_pool
    assert found is not None
    return found


def pages(config: dict[str, Any], **values: Any) -> set[tuple[str, int, int]]:
    """(kind, block size, page bytes) of every group."""
    groups = layout(checkpoint(config), **values).groups
    return {(group.spec.kind.value, group.spec.block_size, group.spec.page_bytes) for group in groups}


def small(kv_heads: int) -> dict[str, Any]:
    """32 layers of 32 heads of 128 with so many KV heads."""
    return LLAMA_3_1_8B | {"num_key_value_heads": kv_heads}


# A token


@pytest.mark.parametrize(
    ("kv_heads", "token_bytes", "sequence_bytes"),
    [(8, 128 * KIB, GIB), (32, 512 * KIB, 4 * GIB), (1, 16 * KIB, GIB // 8)],
)
def test_a_token_and_an_8k_sequence(kv_heads: int, token_bytes: int, sequence_bytes: int) -> None:
    subject = checkpoint(small(kv_heads))
    assert bytes_per_token(subject) == token_bytes == 2 * 32 * kv_heads * 128 * 2
    assert token_bytes * 8192 == sequence_bytes
    held = pool(small(kv_heads), max_model_len=8192)
    assert held.admission_bytes_per_request == held.steady_bytes_per_request == sequence_bytes


def test_thirty_two_sequences_of_8k() -> None:
    assert 32 * pool(LLAMA_3_1_8B, max_model_len=8192).admission_bytes_per_request == 32 * GIB


@pytest.mark.parametrize("version", ["0.8.0", "0.10.2", "0.19.1", "0.20.2", "0.29.0", "0.33.0"])
def test_24_gib_at_128_kib_a_token(version: str) -> None:
    held = pool(LLAMA_3_1_8B, version=version, kv_cache_memory_bytes=24 * GIB, max_model_len=8192)
    assert held.tokens.low == held.tokens.expected == held.tokens.high == 196_608
    assert held.max_concurrency.expected == 24.0


@pytest.mark.parametrize(
    ("ranks", "expected"), [(1, 131_072), (2, 65_536), (4, 32_768), (8, 16_384), (16, 16_384), (32, 16_384)]
)
def test_ranks_share_heads_until_there_is_one_each(ranks: int, expected: int) -> None:
    assert bytes_per_token(checkpoint(LLAMA_3_1_8B), tp=ranks) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA_3_1_8B, 131_072),
        (LLAMA_3_1_70B, 327_680),
        (QWEN3_32B, 262_144),
        (QWEN3_30B_A3B, 98_304),
        (MIXTRAL_8X7B, 131_072),
        (DEEPSEEK_V3, 70_272),
        (GPT_OSS_120B, 73_728),
        (GEMMA_3_27B, 507_904),
        (GEMMA_4_26B_A4B, 225_280),
        (NEMOTRON_3_NANO_30B, 6_144),
        (QWEN3_5_35B_A3B, 20_480),
    ],
)
def test_bytes_of_a_token_in_every_layer_that_keeps_it(config: dict[str, Any], expected: int) -> None:
    assert bytes_per_token(checkpoint(config)) == expected


@pytest.mark.parametrize(("config", "state"), [(NEMOTRON_3_NANO_30B, 49.1), (QWEN3_5_35B_A3B, 64.4)])
def test_the_state_of_a_sequence_beside_its_tokens(config: dict[str, Any], state: float) -> None:
    assert round(pool(config).state_bytes_per_sequence / 10**6, 1) == state


@pytest.mark.parametrize(
    ("config", "window", "windowed", "per_layer", "average"),
    [
        (GPT_OSS_120B, 128, 18, 2_048, 37_440),
        (GEMMA_3_27B, 1024, 52, 8_192, 135_168),
        (GEMMA_4_26B_A4B, 1024, 25, 8_192, 46_080),
    ],
)
def test_what_8k_tokens_hold_once_windows_have_slid(
    config: dict[str, Any], window: int, windowed: int, per_layer: int, average: int
) -> None:
    """At most one block more for each layer and group, and the layers that only pad a group."""
    length = 8192
    held = pool(config, max_model_len=length)
    exact = held.bytes_per_token * length - windowed * per_layer * (length - window)
    assert exact == average * length
    layers = sum(group.num_layers + group.padding_layers for group in held.groups)
    padding = sum(group.padding_layers for group in held.groups) * per_layer * (window + 16)
    slack = layers * 2 * max(group.page_bytes for group in held.groups)
    assert exact <= held.steady_bytes_per_request <= exact + padding + slack
    assert held.steady_bytes_per_request < held.bytes_per_token * length / 1.8


# Pages


def test_pages_of_the_worked_examples() -> None:
    assert pages(LLAMA_3_1_8B) == {("full_attention", 16, 65_536)}
    assert layout(checkpoint(LLAMA_3_1_8B)).bytes_per_block() == 2_097_152
    assert pages(QWEN3_30B_A3B, tp=2) == {("full_attention", 16, 16_384)}
    assert layout(checkpoint(QWEN3_30B_A3B), tp=2).bytes_per_block() == 786_432
    assert pages(GEMMA_3_27B) == {("full_attention", 16, 131_072), ("sliding_window", 16, 131_072)}
    assert pages(GPT_OSS_20B) == {("full_attention", 16, 32_768), ("sliding_window", 16, 32_768)}


@pytest.mark.parametrize(("ranks", "expected"), [(1, 98_304), (2, 49_152), (4, 24_576), (8, 24_576)])
def test_four_heads_are_replicated_on_eight_ranks(ranks: int, expected: int) -> None:
    assert bytes_per_token(checkpoint(QWEN3_30B_A3B), tp=ranks) == expected


@pytest.mark.parametrize("ranks", [1, 2, 8, 16])
def test_a_latent_is_whole_on_every_rank(ranks: int) -> None:
    assert bytes_per_token(checkpoint(DEEPSEEK_V3), tp=ranks) == 61 * 576 * 2


@pytest.mark.parametrize(
    ("dtype", "dense", "sparse"), [("auto", 70_272, 78_324), ("fp8_ds_mla", 40_016, 48_068)]
)
def test_a_latent_with_and_without_index_keys(dtype: str, dense: int, sparse: int) -> None:
    assert bytes_per_token(checkpoint(DEEPSEEK_V3), tp=8, kv_cache_dtype=dtype) == dense
    assert bytes_per_token(checkpoint(DEEPSEEK_V3_2), tp=8, kv_cache_dtype=dtype) == sparse


@pytest.mark.parametrize(
    ("device", "version", "block"),
    [
        ("H100-80GB", "0.11.0", 64),
        ("H100-80GB", "0.17.1", 64),
        ("H100-80GB", "0.18.1", 16),
        ("H100-80GB", "0.33.0", 16),
        ("B200", "0.14.1", 128),
        ("B200", "0.17.1", 64),
    ],
)
def test_blocks_of_dense_latents_by_backend_and_version(device: str, version: str, block: int) -> None:
    found = layout(checkpoint(DEEPSEEK_V3), find_device(device), version, tp=8)
    assert found.block_size == block
    assert found.bytes_per_block() == 61 * 576 * 2 * block
    assert {16: 1_124_352, 64: 4_497_408}.get(block, 8_994_816) == found.bytes_per_block()


def test_sparse_latents_use_blocks_of_64() -> None:
    for device in (H100, B200):
        assert layout(checkpoint(DEEPSEEK_V3_2), device, tp=8).block_size == 64


def test_a_cpu_uses_blocks_of_128_and_16_for_latents() -> None:
    assert layout(checkpoint(TINY_LLAMA), CPU).block_size == 128
    assert layout(checkpoint(DEEPSEEK_V3), CPU).block_size == 16


def test_a_block_size_that_is_given_is_kept() -> None:
    assert layout(checkpoint(LLAMA_3_1_8B), block_size=32).block_size == 32
    assert bytes_per_token(checkpoint(LLAMA_3_1_8B), block_size=32) == 131_072


# Element types


@pytest.mark.parametrize(
    ("dtype", "head_bytes"),
    [
        ("auto", 512),
        ("bfloat16", 512),
        ("fp8", 256),
        ("fp8_e4m3", 256),
        ("fp8_e5m2", 256),
        ("fp8_per_token_head", 256 + 8),
        ("int8_per_token_head", 256 + 8),
        ("int4_per_token_head", 128 + 8),
        ("nvfp4", 2 * (64 + 8)),
    ],
)
def test_bytes_of_a_head_by_cache_type(dtype: str, head_bytes: int) -> None:
    assert bytes_per_token(checkpoint(LLAMA_3_1_8B), kv_cache_dtype=dtype) == 32 * 8 * head_bytes


# Recurrent states and the blocks aligned to them


def state(config: dict[str, Any], **values: Any) -> tuple[int, int]:
    """Bytes of the convolution and of the recurrent state of one layer on one rank."""
    subject = checkpoint(config)
    mixer = next(m for layer in subject.model.layers for m in layer.token_mixers if isinstance(m, RECURRENT))
    found = recurrent_state(mixer, subject.model, settings(subject, **values))
    return found.conv_bytes, found.state_bytes


def test_states_of_gated_delta_layers() -> None:
    channels, kernel = 2 * 16 * 128 + 48 * 128, 4
    assert state(QWEN3_5_27B) == (channels * (kernel - 1) * 2, 48 * 128 * 128 * 4)
    assert sum(state(QWEN3_5_27B)) == 3_207_168
    assert state(QWEN3_5_27B, speculative=MTP) == (channels * kernel * 2, 48 * 128 * 128 * 4)
    assert state(QWEN3_5_27B, tp=4) == (channels * 3 * 2 // 4, 12 * 128 * 128 * 4)


def test_states_of_mamba_2_layers_keep_the_declared_type() -> None:
    channels = 64 * 64 + 2 * 8 * 128
    assert state(NEMOTRON_3_NANO_30B) == (channels * 3 * 2, 64 * 64 * 128 * 4)
    assert state(NEMOTRON_3_NANO_30B, mamba_ssm_cache_dtype="bfloat16") == (
        channels * 3 * 2,
        64 * 64 * 128 * 2,
    )
    replicated = 64 * 64 + 2 * 16 * 128
    assert state(NEMOTRON_3_NANO_30B, tp=16) == (replicated // 16 * 3 * 2, 4 * 64 * 128 * 4)


def test_states_of_short_convolutions_are_two_steps() -> None:
    assert state(LFM2_1_2B) == (2048 * 2 * 2, 0)


@pytest.mark.parametrize(
    ("config", "values", "block", "page", "percent"),
    [
        (QWEN3_5_27B, {}, 784, 3_211_264, 0.13),
        (QWEN3_5_27B, {"speculative": MTP}, 800, 3_276_800, 1.52),
        (QWEN3_5_27B, {"kv_cache_dtype": "fp8"}, 1568, 3_211_264, 0.13),
        (LFM2_1_2B, {"kv_cache_dtype": "fp8"}, 16, 16_384, 100.0),
    ],
)
def test_attention_blocks_are_stretched_until_a_state_fits_a_page(
    config: dict[str, Any], values: dict[str, Any], block: int, page: int, percent: float
) -> None:
    groups = layout(checkpoint(config), version="0.27.1", enable_prefix_caching=True, **values).groups
    kinds = {group.spec.kind: group.spec for group in groups}
    recurrent, full = kinds[KvKind.RECURRENT], kinds[KvKind.FULL]
    assert (full.block_size, full.page_bytes, recurrent.page_bytes) == (block, page, page)
    assert round(100 * (page / recurrent.content_bytes - 1), 2) == percent


def test_one_state_a_request_without_prefix_caching_and_two_with() -> None:
    def states(**values: Any) -> set[int]:
        held = pool(QWEN3_5_27B, kv_cache_memory_bytes=40 * GIB, **values)
        return {group.blocks_per_request for group in held.groups if group.kind == "mamba"}

    assert states(enable_prefix_caching=False) == {1}
    assert states(enable_prefix_caching=True) == {2}
    assert states(enable_prefix_caching=False, speculative=MTP) == {2}
    assert states(enable_prefix_caching=True, speculative=MTP) == {3}


# Groups


def test_gemma_3_is_seven_groups_with_eight_padding_layers() -> None:
    found = layout(checkpoint(GEMMA_3_27B))
    sizes = sorted((group.spec.kind.value, len(group.members)) for group in found.groups)
    assert sizes == [("full_attention", 10), *[("sliding_window", 8)] * 2, *[("sliding_window", 9)] * 4]
    padding = sum(group.padding_layers for group in found.groups)
    assert padding == 8
    assert round(100 * padding / 52, 2) == 15.38
    assert found.bytes_per_block() == 1_310_720


def test_gpt_oss_is_two_groups_of_equal_width() -> None:
    found = layout(checkpoint(GPT_OSS_20B))
    assert [len(group.members) for group in found.groups] == [12, 12]
    assert found.bytes_per_block() == 393_216


def test_lfm2_is_three_groups_of_six_with_two_padding_layers() -> None:
    found = layout(checkpoint(LFM2_1_2B), version="0.26.0", enable_prefix_caching=True, kv_cache_dtype="fp8")
    assert sorted(len(group.members) for group in found.groups) == [5, 5, 6]
    assert sum(group.padding_layers for group in found.groups) == 2
    assert found.bytes_per_block() == 6 * 16_384


def test_a_model_of_windows_alone_is_one_windowed_group() -> None:
    found = layout(
        checkpoint(LLAMA_3_1_8B | {"model_type": "mistral", "sliding_window": 4096, "vocab_size": 32000})
    )
    assert [(group.spec.kind, len(group.members)) for group in found.groups] == [(KvKind.WINDOW, 32)]


def test_without_the_hybrid_manager_every_layer_keeps_every_token() -> None:
    cases: dict[str, dict[str, Any]] = {
        "0.33.0": {"disable_hybrid_kv_cache_manager": True},
        "0.8.5": {},
        "0.10.2": {"use_v1": False},
    }
    for version, values in cases.items():
        found = layout(checkpoint(GEMMA_3_27B), version=version, **values)
        assert [group.spec.kind for group in found.groups] == [KvKind.FULL]
        assert found.bytes_per_block() == 62 * 131_072 == 8_126_464


def test_chunked_local_layers_turned_the_hybrid_manager_off_before_0_14() -> None:
    found = layout(checkpoint(LLAMA_4_SCOUT), version="0.13.0", tp=8)
    assert [(group.spec.kind, len(group.members)) for group in found.groups] == [(KvKind.FULL, 48)]
    found = layout(checkpoint(LLAMA_4_SCOUT), version="0.14.1", tp=8)
    kinds = sorted((group.spec.kind.value, len(group.members)) for group in found.groups)
    assert kinds == [("chunked_local", 12)] * 3 + [("full_attention", 12)]


def test_latents_and_index_keys_share_one_group() -> None:
    found = layout(checkpoint(DEEPSEEK_V3_2), tp=8)
    assert len(found.groups) == 1
    assert found.bytes_per_block() == 61 * 64 * (576 * 2 + 132)


@pytest.mark.parametrize(
    ("buckets", "version", "size"),
    [
        ([10, 52], "0.33.0", 10),
        ([12, 13], "0.11.0", 12),
        ([12, 13], "0.12.0", 13),
        ([12, 15], "0.12.0", 12),
        ([12, 15], "0.18.1", 15),
        ([12, 17], "0.33.0", 17),
        ([12, 18], "0.33.0", 12),
        ([1, 16, 48], "0.27.1", 1),
    ],
)
def test_a_group_is_as_wide_as_the_smallest_bucket_unless_the_largest_is_close(
    buckets: list[int], version: str, size: int
) -> None:
    from vramledger.engines.vllm.kv_groups import group_size
    from vramledger.engines.vllm.version import parse_version

    assert group_size(buckets, parse_version(version)) == size


def test_values_narrower_than_keys_save_bytes_only_since_0_14() -> None:
    subject = checkpoint(MIMO_V2_FLASH)
    full, windowed = 9, 39
    heads = 4 * full + 8 * windowed
    assert bytes_per_token(subject, version="0.13.0") == heads * 2 * 192 * 2
    assert bytes_per_token(subject, version="0.14.1") == heads * (192 + 128) * 2


@pytest.mark.parametrize(
    ("version", "block"), [("0.24.0", 64), ("0.25.1", 16), ("0.29.0", 16), ("0.30.0", 64), ("0.32.0", 64)]
)
def test_windows_chose_their_own_block_from_0_25_to_0_29(version: str, block: int) -> None:
    windowed = LLAMA_3_1_8B | {"model_type": "mistral", "sliding_window": 4096, "vocab_size": 32000}
    assert layout(checkpoint(windowed), version=version, block_size=64).block_size == block
    assert layout(checkpoint(GEMMA_3_27B), version=version, block_size=64).block_size == 64
