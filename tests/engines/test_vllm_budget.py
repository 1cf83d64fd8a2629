"""The terms between the share of a device and the bytes for KV: activation, workspaces, buffers, and their sum."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    CPU,
    DEEPSEEK_V3,
    DEEPSEEK_V3_2,
    GEMMA_3_27B,
    GPT_OSS_20B,
    H100,
    LLAMA_3_1_8B,
    MIXTRAL_8X7B,
    QWEN3_5_27B,
    QWEN3_30B_A3B,
    TINY_LLAMA,
    checkpoint,
    gib,
    planned,
    settings,
    terms,
)
from vramledger.engines.vllm.budget import RankTerms, requested_bytes
from vramledger.engines.vllm.sampler import gathered_bytes, profiled_path
from vramledger.engines.vllm.sparse_buffer import SparseBuffer, sparse_buffer
from vramledger.engines.vllm.workspace import mla_prefill_bytes
from vramledger.formats.kv import kv_format
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.units import GIB, MIB

QWEN2_5_0_5B = TINY_LLAMA | {
    "model_type": "qwen2",
    "head_dim": None,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
VERSIONS = ("0.6.6", "0.8.5", "0.9.2", "0.13.0", "0.17.1", "0.20.2", "0.26.0", "0.27.1", "0.29.0", "0.33.0")


def one(config: dict[str, Any], *, version: str = "0.33.0", **values: Any) -> RankTerms:
    (found,) = terms(checkpoint(config), H100, version, **values)
    return found


# The sampler


@pytest.mark.parametrize(
    ("version", "values", "size"),
    [
        ("0.6.6", {}, 38),
        ("0.10.2", {}, 38),
        ("0.16.0", {}, 38),
        ("0.17.1", {}, 14),
        ("0.22.1", {}, 14),
        ("0.23.0", {}, 2),
        ("0.32.0", {}, 2),
        ("0.33.0", {}, 14),
        ("0.33.0", {"tp": 2}, 16),
        ("0.10.2", {"tp": 2}, 40),
    ],
)
def test_bytes_of_a_logit_by_version_and_runner(version: str, values: dict[str, Any], size: int) -> None:
    found = settings(checkpoint(LLAMA_3_1_8B), H100, version, **values)
    assert profiled_path(found, H100).bytes_per_logit + gathered_bytes(found) == size


@pytest.mark.parametrize(
    ("config", "version", "expected"),
    [
        (LLAMA_3_1_8B, "0.10.2", 4.65),
        (LLAMA_3_1_8B, "0.33.0", 1.71),
        (LLAMA_3_1_8B, "0.32.0", 0.24),
        (GEMMA_3_27B, "0.33.0", 3.50),
    ],
)
def test_the_sampler_of_1024_sequences(config: dict[str, Any], version: str, expected: float) -> None:
    assert round(gib(one(config, version=version).activation.sampler_bytes), 2) == expected


def test_the_sampler_is_the_peak_on_a_large_card_and_the_forward_on_a_small_batch() -> None:
    assert one(LLAMA_3_1_8B).activation.binding == "sampler"
    assert one(LLAMA_3_1_8B, max_num_seqs=64).activation.binding == "forward"


def test_fewer_sequences_leave_gemma_3_more_than_three_gib() -> None:
    (many,), (few,) = (
        planned(
            checkpoint(GEMMA_3_27B), max_num_seqs=count, max_model_len=8192, language_model_only=True
        ).ranks
        for count in (1024, 128)
    )
    grown = few.owned(Owner.KV_CACHE).expected - many.owned(Owner.KV_CACHE).expected
    assert grown > 3 * GIB


def test_only_the_last_stage_samples() -> None:
    first, last = terms(checkpoint(LLAMA_3_1_8B), pp=2)
    assert first.activation.sampler_bytes == 0
    assert last.activation.sampler_bytes == 14 * 1024 * 128_256


# The forward


@pytest.mark.parametrize(
    ("config", "batch", "expected", "printed"),
    [(LLAMA_3_1_8B, 8192, 0.84, 0.84), (QWEN2_5_0_5B, 32768, 1.05, 1.06)],
)
def test_the_forward_holds_three_states_and_three_inner_widths(
    config: dict[str, Any], batch: int, expected: float, printed: float
) -> None:
    found = one(config, max_num_batched_tokens=batch).activation
    assert found.forward_bytes == 2 * batch * 3 * (config["hidden_size"] + config["intermediate_size"])
    assert round(gib(found.forward_bytes), 2) == expected
    assert gib(found.forward_bytes) == pytest.approx(printed, rel=0.015)


def test_inner_widths_are_cut_and_states_are_not() -> None:
    batch, width, inner = 8192, 4096, 14336
    found = one(LLAMA_3_1_8B, tp=4).activation
    assert found.forward_bytes == 2 * batch * (3 * width + 3 * inner // 4) + 2 * batch * width


# Workspaces


@pytest.mark.parametrize(
    ("config", "values", "expected"),
    [
        (QWEN3_30B_A3B, {"tp": 2}, 2 * 256 * MIB),
        (MIXTRAL_8X7B, {}, 2 * 8192 * 2 * (14336 + 2 * 14336)),
        (DEEPSEEK_V3, {"tp": 8}, 7 * GIB // 4),
        (GPT_OSS_20B, {}, 2 * 8192 * 2880 + 2 * 8192 * 4 * 2880),
    ],
)
def test_workspaces_of_experts(config: dict[str, Any], values: dict[str, Any], expected: int) -> None:
    found = one(config, **values).moe
    assert found is not None
    assert found.buffer_bytes == expected


def test_workspaces_of_experts_were_cut_in_chunks_up_to_0_17_and_transient_before_0_13() -> None:
    def workspace(version: str) -> tuple[int, bool]:
        found = one(QWEN3_30B_A3B, version=version, max_num_batched_tokens=65_536).moe
        assert found is not None
        return found.buffer_bytes, found.persistent

    row = 2 * 2 * 8 * 2048
    assert workspace("0.12.0") == (32_768 * row, False)
    assert workspace("0.13.0") == (16_384 * row, True)
    assert workspace("0.17.1") == (16_384 * row, True)
    assert workspace("0.18.1") == (65_536 * row, True)


def test_the_up_projection_of_cached_latents() -> None:
    def latents(config: dict[str, Any], **values: Any) -> int:
        subject = checkpoint(config)
        return mla_prefill_bytes(subject.model, settings(subject, **values), 16)

    assert latents(DEEPSEEK_V3, tp=8) == 65_536 * 16 * 256 * 2 == 512 * MIB
    short = latents(DEEPSEEK_V3, tp=8, max_model_len=1024, max_num_seqs=8, max_num_batched_tokens=1024)
    assert short == 8 * 1024 * 16 * 256 * 2
    assert latents(LLAMA_3_1_8B) == 0


def test_a_forward_counts_the_workspaces_that_live_through_it() -> None:
    few = {"max_num_seqs": 8, "max_num_batched_tokens": 8192}
    plain = one(QWEN3_30B_A3B, version="0.13.0", **few).activation
    with_buffers = one(QWEN3_30B_A3B, version="0.12.0", **few).activation
    row = 2 * 2 * 8 * 2048
    assert with_buffers.binding == plain.binding == "forward"
    assert with_buffers.peak_bytes - plain.peak_bytes == 8192 * row
    assert "experts' kernels" in with_buffers.formula


def test_workspaces_of_attention_backends() -> None:
    assert one(LLAMA_3_1_8B).attention_workspace.bytes.high == 0
    flashinfer = one(LLAMA_3_1_8B, version="0.25.1", attention_backend="FLASHINFER").attention_workspace
    assert (flashinfer.bytes.expected, flashinfer.charged) == (394 * MIB, False)


def test_sparse_attention_gathers_as_the_engine_works_out() -> None:
    """40 x 163,840 keys of 132 bytes are 825 MiB, 5 x 163,840 latents of 576 bf16 elements 900 MiB, as the
    comments of vllm's indexer.py and flashmla_sparse.py work out; queries of the step lie beside the latents."""
    assert sparse("0.16.0", "bfloat16").bytes == 825 * MIB
    assert sparse("0.16.0", "fp8_ds_mla").bytes == 900 * MIB + 1024 * 16 * 576 * 2
    assert sparse("0.24.0", "bfloat16").bytes == 826 * MIB
    assert [sparse(version, "bfloat16").logits_bytes for version in ("0.16.0", "0.24.0")] == [0, 512 * MIB]
    assert sparse("0.12.0", "bfloat16").bytes == 0


def sparse(version: str, cache: str, **values: Any) -> SparseBuffer:
    few = {"tp": 8, "max_num_batched_tokens": 1024, "max_num_seqs": 8, "max_model_len": 163_840} | values
    subject = checkpoint(DEEPSEEK_V3_2)
    found = settings(subject, H100, version, **few)
    return sparse_buffer(subject.model, found, kv_format(cache, found.dtype))


@pytest.mark.parametrize("tokens", [256, 8192, 32768])
def test_sparse_attention_shares_one_buffer_with_the_experts_kernels(tokens: int) -> None:
    batch: dict[str, Any] = {
        "tp": 8,
        "max_num_batched_tokens": tokens,
        "max_num_seqs": 8,
        "kv_cache_dtype": "bfloat16",
    }
    held = one(DEEPSEEK_V3_2, **batch, max_model_len=163_840)
    assert held.moe is not None
    together = held.moe.buffer_bytes + held.attention_workspace.bytes.expected
    assert together == max(
        held.moe.buffer_bytes, sparse("0.33.0", "bfloat16", max_num_batched_tokens=tokens).bytes
    )


# Buffers of the runner


@pytest.mark.parametrize(
    ("config", "vocab", "counts"), [(LLAMA_3_1_8B, 128_256, 0.49), (GEMMA_3_27B, 262_208, 1.00)]
)
def test_the_second_runner_counts_every_token_of_the_vocabulary(
    config: dict[str, Any], vocab: int, counts: float
) -> None:
    matrix = 1024 * vocab * 4
    assert round(gib(matrix), 2) == counts
    masks = 2 * 1024 * ((vocab + 31) // 32) * 4
    inputs = 8192 * 40 + (2 * 8192 * 5376 if config is GEMMA_3_27B else 0)
    found = one(config)
    tables = {item.name: item.bytes.expected for item in found.extras}
    assert tables["penalty counts and prompt masks"] + tables["grammar bitmask"] == matrix + masks
    assert found.buffer_bytes == inputs


def test_the_first_runner_keeps_inputs_alone() -> None:
    assert one(LLAMA_3_1_8B, version="0.20.2").buffer_bytes == 8192 * 40


def test_a_later_stage_receives_states() -> None:
    first, last = terms(checkpoint(LLAMA_3_1_8B), pp=2)
    assert first.buffer_bytes == 8192 * 40 + 0
    assert last.buffer_bytes == one(LLAMA_3_1_8B).buffer_bytes
    (kept,) = [extra for extra in last.extras if extra.name == "received from the stage before"]
    assert kept.bytes == ByteRange.exact(2 * 2 * 8192 * 4096)


@pytest.mark.parametrize(("version", "charged"), [("0.26.0", False), ("0.27.1", True), ("0.33.0", True)])
def test_buffers_are_charged_since_0_27(version: str, charged: bool) -> None:
    (rank,) = planned(checkpoint(LLAMA_3_1_8B), H100, version).ranks
    (entry,) = [entry for entry in rank.entries if entry.name == "runner buffers"]
    assert entry.inside_budget is charged


def test_block_tables_are_outside_the_budget() -> None:
    (rank,) = planned(checkpoint(LLAMA_3_1_8B)).ranks
    (entry,) = [entry for entry in rank.entries if entry.name == "block tables and slot mappings"]
    assert not entry.inside_budget
    assert entry.bytes.expected == 64 * MIB + 8 * 8192


# The sum


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("config", "values"),
    [
        (LLAMA_3_1_8B, {}),
        (LLAMA_3_1_8B, {"enable_lora": True, "max_loras": 4}),
        (GEMMA_3_27B, {"tp": 2}),
        (QWEN3_30B_A3B, {"tp": 2, "pp": 2}),
        (DEEPSEEK_V3, {"tp": 8, "pp": 2}),
        (QWEN3_5_27B, {"tp": 2}),
    ],
)
def test_charged_entries_and_what_is_left_make_the_share(
    config: dict[str, Any], version: str, values: dict[str, Any]
) -> None:
    """A byte in the ledger is a byte out of the KV budget: what the start-up charges while warming up, without
    the pool, and what it leaves."""
    subject = checkpoint(config)
    share = requested_bytes(H100.total_bytes, settings(subject, H100, version, **values))
    ledgers = planned(subject, H100, version, **values).ranks
    for rank, found in zip(ledgers, terms(subject, H100, version, **values), strict=True):
        charged = sum(
            entry.bytes.expected
            for entry in rank.entries
            if entry.inside_budget and Phase.WARMUP in entry.phases and entry.owner is not Owner.KV_CACHE
        )
        assert charged + found.available.expected == share
        assert found.available.low <= found.available.expected <= found.available.high


def test_the_share_is_rounded_up_to_a_byte() -> None:
    found = settings(checkpoint(TINY_LLAMA), H100, gpu_memory_utilization=0.5)
    assert requested_bytes(7, found) == 4
    assert requested_bytes(8, found) == 4


def test_fixed_bytes_for_kv_leave_the_other_entries_as_they_are() -> None:
    (free,), (fixed,) = (
        planned(checkpoint(LLAMA_3_1_8B), kv_cache_memory_bytes=size).ranks for size in (None, 10 * GIB)
    )
    others = [entry for entry in free.entries if entry.owner is not Owner.KV_CACHE]
    assert [entry for entry in fixed.entries if entry.owner is not Owner.KV_CACHE] == others
    assert fixed.owned(Owner.KV_CACHE).expected == 10 * GIB


def test_a_cpu_has_no_graphs_no_communicators_and_no_allocator_rounding() -> None:
    (rank,) = planned(checkpoint(TINY_LLAMA), CPU).ranks
    for owner in (Owner.GRAPH_POOL, Owner.COLLECTIVES, Owner.ALLOCATOR):
        assert rank.owned(owner).high == 0


def test_one_rank_has_no_communicators_and_two_have() -> None:
    (alone,), (shared,) = (
        planned(checkpoint(LLAMA_3_1_8B)).ranks,
        planned(checkpoint(LLAMA_3_1_8B), tp=2).ranks,
    )
    assert alone.owned(Owner.COLLECTIVES).high == 0
    assert shared.owned(Owner.COLLECTIVES).low > 64 * MIB
