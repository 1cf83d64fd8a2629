"""Formats on whole models: windows, latents, index keys, ranks."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    LLAMA_3_1_8B,
    checkpoint,
)
from vramledger.errors import FlagError
from vramledger.formats.kv_stores import find_store
from vramledger.kvcache.format_costs import FormatCost, format_costs
from vramledger.kvcache.layers import cached_layers


def cost(config: dict[str, Any], name: str, *contexts: int, **given: int) -> FormatCost:
    (found,) = format_costs(checkpoint(config).model, [find_store(name)], contexts, **given)
    return found


def test_layers_of_one_kind_are_one_row() -> None:
    (layers,) = cached_layers(checkpoint(LLAMA_3_1_8B).model, 4)
    assert (layers.kind, layers.num_layers, layers.shape.elements) == ("full_attention", 32, 2 * 2 * 128)


def test_llama_in_lmdeploy_int8() -> None:
    found = cost(LLAMA_3_1_8B, "lmdeploy_int8", 1024, 8192, sequences=3)
    assert [length.bytes for length in found.lengths] == [3 * 1024 * 67584, 3 * 8192 * 67584]
    assert found.raw_bits == 8


def test_a_window_bounds_what_a_format_keeps_unless_its_code_knows_none() -> None:
    plain, kivi = cost(GEMMA_3_27B, "bf16", 131072), cost(GEMMA_3_27B, "kivi_4", 131072)
    windowed = [group for group in cached_layers(checkpoint(GEMMA_3_27B).model, 1) if group.limit_tokens]
    full = [group for group in cached_layers(checkpoint(GEMMA_3_27B).model, 1) if not group.limit_tokens]
    assert plain.lengths[0].bytes == 2 * (
        sum(group.num_layers * group.shape.elements * group.limit_tokens for group in windowed)
        + sum(group.num_layers * group.shape.elements * 131072 for group in full)
    )
    assert kivi.lengths[0].bytes > plain.lengths[0].bytes
    assert "whole context of 52 windowed layers" in kivi.notes[0]


def test_rings_of_exllamav3_are_in_full_precision() -> None:
    found = cost(GEMMA_3_27B, "exl3_4", 32768)
    ring = 52 * 2 * 16 * 128 * (1024 + 512) * 2
    packed = 10 * 2 * 16 * 128 * 32768 * 18 // 32
    assert found.lengths[0].bytes == ring + packed
    assert "52 windowed layers have rings" in found.notes[0]


def test_latents_are_not_cut_by_tp_and_refuse_what_packs_heads() -> None:
    assert cost(DEEPSEEK_V3, "bf16", 1000, tp=8).lengths[0].bytes == 1000 * 70272
    assert cost(DEEPSEEK_V3, "bf16", 1000).lengths == cost(DEEPSEEK_V3, "bf16", 1000, tp=8).lengths
    refused = cost(DEEPSEEK_V3, "quanto_4", 1000)
    assert refused.lengths == ()
    assert "latent" in refused.refusal
    assert cost(DEEPSEEK_V3, "nvfp4", 1000).refusal == "it is not a format for a latent"


def test_heads_that_do_not_divide() -> None:
    with pytest.raises(FlagError, match="tp"):
        cost(LLAMA_3_1_8B, "fp8", 100, tp=3)
