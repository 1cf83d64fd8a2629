"""Switching a backend shows its bytes, and only where they count."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    DEEPSEEK_V3,
    H100,
    LLAMA_3_1_8B,
    QWEN3_30B_A3B,
    QWEN3_32B_AWQ,
    checkpoint,
    planned,
    settings,
    terms,
)
from vramledger.engines.vllm.attention_buffers import chosen_backend, widest_heads
from vramledger.engines.vllm.expert_kernels import kernel_name, scratch_elements
from vramledger.engines.vllm.sampler import profiled_path, serving_path
from vramledger.engines.vllm.unpacking import group_int_kernel
from vramledger.engines.vllm.version import parse_version
from vramledger.hardware.catalogue import Device, find_device
from vramledger.ledger import Entry, Owner, Phase
from vramledger.units import MIB

LLAMA = checkpoint(LLAMA_3_1_8B)
LATENTS = checkpoint(DEEPSEEK_V3)
B200, L40S, A100, T4, MI300X = (find_device(name) for name in ("B200", "L40S", "A100-80GB", "T4", "MI300X"))


def entries(subject: Any = LLAMA, device: Device = H100, **values: Any) -> dict[str, Entry]:
    return {item.name: item for item in planned(subject, device, **values).ranks[0].entries}


# The sampler


@pytest.mark.parametrize(
    ("version", "device", "asked", "path"),
    [
        ("0.10.2", H100, None, "sort"),
        ("0.10.2", H100, True, "flashinfer"),
        ("0.20.2", H100, None, "triton"),
        ("0.33.0", H100, None, "flashinfer"),
        ("0.33.0", H100, False, "triton"),
        ("0.33.0", MI300X, None, "triton"),
        ("0.6.6", H100, True, "sort"),
    ],
)
def test_the_path_of_top_k_and_top_p(version: str, device: Device, asked: bool | None, path: str) -> None:
    found = settings(LLAMA, device, version, use_flashinfer_sampler=asked)
    assert serving_path(found, device).name == profiled_path(found, device).name == path


def test_another_sampler_gives_its_scratch_to_the_pool() -> None:
    sort, flashinfer = (entries(version="0.10.2", use_flashinfer_sampler=asked) for asked in (False, True))
    scratch = sort["top-k and top-p scratch (sort)"].bytes.expected
    assert scratch == 36 * 1024 * 128_256
    assert flashinfer["top-k and top-p scratch (flashinfer)"].bytes.expected == 12 * 1024 * 128_256
    grown = flashinfer["KV pool"].bytes.expected - sort["KV pool"].bytes.expected
    # The forward binds once the sampler takes less than it does, and blocks are whole.
    forward = 2 * 8192 * 3 * (4096 + 14336)
    sampler = 2 * 8192 * 4096 + 38 * 1024 * 128_256
    assert sort["activation peak (sampler)"].bytes.expected + scratch == sampler
    expected = sampler - max(forward, 2 * 8192 * 4096 + 14 * 1024 * 128_256)
    assert abs(grown - expected) < 2 * 2_097_152


def test_the_triton_sampler_keeps_a_row_for_each_multiprocessor() -> None:
    kept = entries(use_flashinfer_sampler=False)["top-k and top-p buffer (triton)"]
    assert kept.bytes.expected == 132 * 128_256 * 4 and kept.inside_budget
    few = entries(use_flashinfer_sampler=False, max_num_seqs=100)["top-k and top-p buffer (triton)"]
    assert few.bytes.expected == 128 * 128_256 * 4, "the next power of two"
    greedy = entries(version="0.32.0", use_flashinfer_sampler=False)["top-k and top-p buffer (triton)"]
    assert not greedy.inside_budget, "a greedy profile run never makes it"


@pytest.mark.parametrize("version", ["0.10.2", "0.20.2", "0.26.0", "0.33.0"])
@pytest.mark.parametrize(("seqs", "name"), [(1024, "sampler"), (8, "forward")])
def test_parts_of_a_peak_are_the_peak(version: str, seqs: int, name: str) -> None:
    subject = checkpoint(QWEN3_30B_A3B)
    (held,) = terms(subject, H100, version, max_num_seqs=seqs)
    parts = [
        item
        for item in planned(subject, H100, version, max_num_seqs=seqs).ranks[0].entries
        if Phase.PREFILL in item.phases and item.lifetime.value == "iteration" and item.inside_budget
    ]
    assert f"activation peak ({held.activation.binding})" in {item.name for item in parts}
    for end in ("low", "expected", "high"):
        assert sum(getattr(item.bytes, end) for item in parts) == getattr(held.activation_range, end)


# Attention


@pytest.mark.parametrize(
    ("subject", "device", "version", "name"),
    [
        (LLAMA, H100, "0.33.0", "FLASH_ATTN"),
        (LLAMA, B200, "0.33.0", "FLASHINFER"),
        (LLAMA, MI300X, "0.33.0", "ROCM_ATTN"),
        (LATENTS, H100, "0.10.2", "FLASHMLA"),
        (LATENTS, H100, "0.33.0", "FLASH_ATTN_MLA"),
        (LATENTS, B200, "0.12.0", "CUTLASS_MLA"),
        (LATENTS, B200, "0.33.0", "FLASHINFER_MLA"),
        (LATENTS, A100, "0.33.0", "TRITON_MLA"),
    ],
)
def test_the_backend_that_the_platform_prefers(subject: Any, device: Device, version: str, name: str) -> None:
    assert chosen_backend(subject.model, settings(subject, device, version, tp=8), device) == name


def test_a_named_backend_is_taken() -> None:
    found = settings(LLAMA, attention_backend="triton_attn")
    assert chosen_backend(LLAMA.model, found, H100) == "TRITON_ATTN"


@pytest.mark.parametrize(
    ("version", "tokens", "expected"),
    [
        ("0.10.2", 8192, 256 * MIB),
        ("0.12.0", 8192, 394 * MIB),
        ("0.25.1", 8192, 394 * MIB),
        ("0.33.0", 8192, 512 * MIB),
        ("0.33.0", 4096, 394 * MIB),
    ],
)
def test_flashinfers_workspace_grows_with_the_heads_of_a_batch(
    version: str, tokens: int, expected: int
) -> None:
    """max(394 MiB, 8192 tokens x 32 heads x 128 x 16 B) since 0.26 (flashinfer.py _get_workspace_buffer)."""
    found = entries(version=version, attention_backend="FLASHINFER", max_num_batched_tokens=tokens)
    workspace = found["attention backend (FLASHINFER)"]
    assert workspace.bytes.expected == expected and not workspace.inside_budget
    assert found["page indices of attention"].bytes.expected == 1024 * 8192 * 4


def test_the_triton_backend_keeps_segments_for_small_batches() -> None:
    found = entries(attention_backend="TRITON_ATTN")["attention backend (TRITON_ATTN)"]
    assert found.bytes.expected == (128 // 8) * 32 * 16 * (128 + 2) * 4
    assert "attention backend (TRITON_ATTN)" not in entries(attention_backend="TRITON_ATTN", version="0.12.0")


def test_flash_attention_3_holds_split_outputs_in_its_graphs() -> None:
    found = entries()
    split = found["split-KV outputs in graphs (FLASH_ATTN)"].bytes.expected
    assert split == 32 * 32 * 512 * 129 * 4
    assert split + found["CUDA graphs"].bytes.expected == terms(LLAMA)[0].graphs.expected
    assert not any(name.startswith("split-KV") for name in entries(enforce_eager=True))
    assert not any(name.startswith("split-KV") for name in entries(device=L40S, max_model_len=8192))
    older = entries(version="0.11.0")["split-KV outputs in graphs (FLASH_ATTN)"].bytes.expected
    assert older == split


@pytest.mark.parametrize(
    ("backend", "device", "expected", "charged"),
    [
        ("FLASHINFER_MLA", B200, 128 * MIB, False),
        ("CUTLASS_MLA", B200, 128 * MIB, True),
        ("FLASHMLA", H100, 0, False),
    ],
)
def test_workspaces_of_latent_backends(backend: str, device: Device, expected: int, charged: bool) -> None:
    held = terms(LATENTS, device, tp=8, attention_backend=backend)[0].attention_workspace
    assert (held.bytes.expected, held.charged) == (expected, charged)


def test_chunked_prefill_gathers_latents() -> None:
    found = entries(LATENTS, tp=8, max_model_len=4096)["gathered latents of chunked prefill"]
    assert found.bytes.expected == 8 * 4096 * 2 * 576 * 2 and not found.inside_budget
    assert "gathered latents of chunked prefill" not in entries()


def test_paged_attention_on_amd_takes_as_many_partitions_as_the_longest_context_has() -> None:
    found = entries(device=MI300X)["partial outputs of paged attention"]
    row = 32 * 512 * (128 * 2 + 8)
    assert (found.bytes.low, found.bytes.high) == (row, 1024 * row)
    assert found.phases == {Phase.DECODE}


def test_the_flex_backend_maps_every_block_for_every_sequence() -> None:
    plan = planned(LLAMA, H100, attention_backend="FLEX_ATTENTION")
    assert plan.kv_pool is not None
    (found,) = [item for item in plan.ranks[0].entries if item.name == "block maps of attention"]
    assert found.bytes.expected == 1024 * plan.kv_pool.num_blocks.expected * 8


def test_heads_of_a_rank_are_the_widest_layers() -> None:
    heads = widest_heads(LLAMA.model, settings(LLAMA, tp=4))
    assert heads is not None and (heads.query, heads.key, heads.dim) == (8, 2, 128)
    assert widest_heads(LATENTS.model, settings(LATENTS, tp=8)) is None


# Unpacking


@pytest.mark.parametrize(
    ("method", "bits", "asked", "version", "device", "kernel"),
    [
        ("awq", 4, None, "0.20.2", H100, "marlin"),
        ("awq", 4, "awq", "0.20.2", H100, "awq"),
        ("awq", 4, "awq", "0.33.0", H100, "marlin"),
        ("awq", 4, None, "0.12.0", T4, "awq"),
        ("awq", 4, None, "0.16.0", T4, "marlin"),
        ("gptq", 4, None, "0.20.2", H100, "marlin"),
        ("gptq", 3, None, "0.20.2", H100, "exllama"),
        ("gptq", 4, "gptq", "0.20.2", H100, "exllama"),
        ("compressed-tensors", 4, None, "0.20.2", H100, "marlin"),
    ],
)
def test_kernels_of_packed_integers(
    method: str, bits: int, asked: str | None, version: str, device: Device, kernel: str
) -> None:
    found = settings(LLAMA, device, version, quantization=asked)
    assert group_int_kernel(bits, method, found, device) == kernel


def test_the_awq_kernel_unpacks_the_largest_matrix_and_marlin_none() -> None:
    subject = checkpoint(QWEN3_32B_AWQ)
    few: dict[str, Any] = {"version": "0.20.2", "max_num_seqs": 8, "max_model_len": 4096}
    marlin, plain = entries(subject, **few), entries(subject, quantization="awq", **few)
    assert "unpacked matrix" not in marlin
    assert plain["unpacked matrix"].bytes.expected == 2 * 25_600 * 5120 * 2
    assert plain["unpacked matrix"].owner is Owner.WORKSPACE
    assert marlin["Marlin's partial sums"].bytes.expected == 132 * 64 * 256 * 4
    assert plain["KV pool"].bytes.expected < marlin["KV pool"].bytes.expected
    small = entries(subject, quantization="awq", max_num_batched_tokens=255, **few)
    assert "unpacked matrix" not in small


# Experts


def test_another_kernel_of_the_experts_shows_its_buffers() -> None:
    subject = checkpoint(QWEN3_30B_A3B)
    triton, cutlass = (entries(subject, moe_backend=name, tp=2) for name in ("triton", "flashinfer_cutlass"))
    freed = triton["experts' kernels"].bytes.expected - cutlass["experts' kernels"].bytes.expected
    assert freed == 2 * 256 * MIB - 8192 * 2048 * 2
    assert cutlass["KV pool"].bytes.expected - triton["KV pool"].bytes.expected > freed - 2 * 786_432


def test_routing_is_shown_where_the_forward_binds() -> None:
    subject = checkpoint(QWEN3_30B_A3B)
    routing = entries(subject, tp=2, max_num_seqs=8)["expert routing"].bytes.expected
    assert routing == 8192 * 128 * 4 + 8192 * 8 * 8 + (8192 * 8 + 128 * 128) * 4
    assert "expert routing" not in entries(subject, tp=2)


@pytest.mark.parametrize(
    ("kernel", "inner", "first", "second"),
    [
        ("triton", 200, 192_000, 192_000),
        ("triton", 500, 192_000, 300_000),
        ("marlin", 200, 192_000, 192_000),
        ("marlin", 500, 192_000, 300_000),
        ("deep_gemm", 200, 450_560, 901_120),
        ("deep_gemm", 500, 450_560, 1_408_000),
        ("cutlass", 200, 192_000, 192_000),
        ("cutlass", 500, 300_000, 192_000),
        ("cutlass_fp4", 200, 240_000, 120_000),
        ("cutlass_fp4", 500, 600_000, 300_000),
        ("flashinfer_cutlass", 500, 64_000, 0),
        ("gptoss_triton", 500, 0, 150_000),
        ("gptoss_triton_unfused", 200, 60_000, 192_000),
        ("gptoss_triton_unfused", 500, 150_000, 300_000),
        ("aiter", 500, 0, 0),
    ],
)
def test_scratch_of_the_experts_is_what_the_engine_answers(
    kernel: str, inner: int, first: int, second: int
) -> None:
    """Products of what vllm 0.32.0's own `workspace_shapes` return for 100 tokens of 640 columns, 3 of 8 experts."""
    found = scratch_elements(
        kernel, parse_version("0.32.0"), rows=100, top_k=3, width=640, inner=inner, both=2 * inner, experts=8, element=2
    )  # fmt: skip
    assert found == (first, second)


def test_deep_gemm_pads_every_expert_up_to_0_23_and_only_those_in_use_since() -> None:
    def grouped(version: str) -> int:
        return scratch_elements(
            "deep_gemm", parse_version(version), rows=1, top_k=3, width=128, inner=64, both=128, experts=8, element=2
        )[1] // 128  # fmt: skip

    assert (grouped("0.23.0"), grouped("0.24.0")) == (1024, 384)


@pytest.mark.parametrize(
    ("backend", "stored", "kernel"),
    [
        ("triton", "mxfp4", "gptoss_triton"),
        ("triton_unfused", "mxfp4", "gptoss_triton_unfused"),
        ("triton", "dense", "triton"),
        ("cutlass", "nvfp4", "cutlass_fp4"),
        ("deep-gemm", "fp8_block", "deep_gemm"),
    ],
)
def test_a_backends_kernel_depends_on_how_experts_are_stored(backend: str, stored: str, kernel: str) -> None:
    assert kernel_name(backend, stored) == kernel


# Matrix libraries


@pytest.mark.parametrize(
    ("device", "version", "expected", "charged"),
    [(H100, "0.32.0", 32, True), (H100, "0.33.0", 32, False), (A100, "0.32.0", 8, True)],
)
def test_cublas_has_its_workspace_before_the_engine_measures_since_0_33(
    device: Device, version: str, expected: int, charged: bool
) -> None:
    found = entries(device=device, version=version)["matrix library (cuBLAS)"]
    assert (found.bytes.expected, found.inside_budget) == (expected * MIB, charged)


def test_fp4_products_on_blackwell_share_a_buffer() -> None:
    subject = checkpoint(LLAMA_3_1_8B | {"quantization_config": NVFP4})
    found = entries(subject, B200)["matrix library (FlashInfer, FP4)"]
    assert found.bytes.expected == 32 * MIB
    hopper = entries(subject, H100, max_num_seqs=8)
    assert "matrix library (FlashInfer, FP4)" not in hopper
    assert hopper["Marlin's partial sums"].bytes.expected == 132 * 64 * 256 * 4


NVFP4 = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "group_size": 16,
    "ignore": ["lm_head"],
    "kv_cache_quant_algo": None,
}
