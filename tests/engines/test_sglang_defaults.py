"""Defaults that move memory: chunk, captured sizes, static fraction, pages, by version and card."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sglang_support import planned, settings
from support import DEEPSEEK_V3, GPT_OSS_20B, H100, LLAMA_3_1_8B, QWEN3_5_27B
from vramledger.engines.sglang.defaults import (
    Memory,
    chunk_defaults,
    decode_sizes,
    multimodal_factor,
    prefill_sizes,
    reserved_mib,
    static_fraction,
)
from vramledger.engines.sglang.flags import SglangFlags
from vramledger.engines.sglang.version import parse_version, rules_note
from vramledger.errors import FlagError
from vramledger.hardware.catalogue import find_device


def memory(gpu_mem: float | None, version: str = "0.5.23", *, mla: bool = False, **flags: Any) -> Memory:
    given = SglangFlags(**flags)
    graphs = parse_version(version).since(5, 10) and given.pp_size == 1
    return Memory(
        version=parse_version(version),
        gpu_mem=gpu_mem,
        flags=given,
        is_mla=mla,
        is_multimodal=False,
        prefill_graphs=graphs,
    )


DP8: dict[str, Any] = {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}


@pytest.mark.parametrize(
    ("gpu_mem", "flags", "mla", "reserved", "fraction"),
    [
        (15360, {}, False, 4064, 0.735),
        (23034, {}, False, 7280, 0.684),
        (24564, {}, False, 7280, 0.704),
        (46068, {}, False, 7248, 0.843),
        (81920, {}, False, 13904, 0.830),
        (81559, {}, False, 13904, 0.830),
        (81559, {"tp_size": 4}, False, 14800, 0.819),
        (81559, {"tp_size": 8}, False, 15312, 0.812),
        (81559, DP8, True, 34816, 0.573),
        (143771, DP8, True, 34816, 0.758),
        (143771, {}, False, 13904, 0.903),
        (183359, {}, False, 26832, 0.854),
    ],
)
def test_the_newest_release_reserves_by_formula(
    gpu_mem: int, flags: dict[str, Any], mla: bool, reserved: int, fraction: float
) -> None:
    asked = memory(gpu_mem, mla=mla, **flags)
    chunk = chunk_defaults(asked)
    assert reserved_mib(asked, chunk) == reserved
    assert static_fraction(asked, chunk) == fraction


@pytest.mark.parametrize(
    ("version", "flags", "fraction"),
    [
        ("0.5.9", {}, 0.835),
        ("0.5.9", {"speculative_algorithm": "EAGLE"}, 0.810),
        ("0.5.10", {"speculative_algorithm": "STANDALONE"}, 0.754),
        ("0.4.6.post5", {}, 0.88),
        ("0.4.6.post5", {"tp_size": 2}, 0.87),
        ("0.4.6.post5", {"tp_size": 8, "pp_size": 2}, 0.79),
        ("0.4.9", {}, 0.874),
        ("0.4.9", {"tp_size": 8}, 0.831),
        ("0.2.13", {"tp_size": 8}, 0.83),
        ("0.1.17", {}, 0.90),
    ],
)
def test_one_card_gets_another_fraction_from_each_release(
    version: str, flags: dict[str, Any], fraction: float
) -> None:
    asked = memory(81559, version, **flags)
    assert static_fraction(asked, chunk_defaults(asked)) == fraction


def test_a_card_nobody_knows_the_size_of_gets_a_fixed_fraction() -> None:
    for version, fraction in (("0.5.23", 0.95), ("0.5.9", 0.88)):
        asked = memory(None, version)
        assert chunk_defaults(asked).chunked_prefill_size == 4096
        assert static_fraction(asked, chunk_defaults(asked)) == fraction


def test_a_cap_on_requests_caps_the_captured_batches() -> None:
    assert chunk_defaults(memory(81559, max_running_requests=32)).decode_max_bs == 32
    assert chunk_defaults(memory(81559, "0.5.21", max_running_requests=32)).decode_max_bs == 256
    assert chunk_defaults(memory(81559, max_running_requests=32, cuda_graph_max_bs=64)).decode_max_bs == 64


def test_cards_of_24_gb_got_larger_chunks_with_0_5_20() -> None:
    old, new = chunk_defaults(memory(24564, "0.5.19")), chunk_defaults(memory(24564, "0.5.20"))
    assert (old.chunked_prefill_size, old.decode_max_bs) == (2048, 24)
    assert (new.chunked_prefill_size, new.decode_max_bs) == (4096, 48)


def test_captured_sizes_are_the_published_lists() -> None:
    assert [len(prefill_sizes(size)) for size in (2048, 4096, 8192, 16384)] == [42, 50, 58, 74]
    newest, old = parse_version("0.5.23"), parse_version("0.5.9")
    assert decode_sizes(24, speculative=False, version=newest) == (1, 2, 4, 8, 12, 16, 24)
    assert decode_sizes(50, speculative=False, version=newest)[-1] == 50
    assert decode_sizes(50, speculative=False, version=old)[-1] == 48
    assert decode_sizes(12, speculative=True, version=newest) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)


def test_larger_vision_towers_lower_the_fraction_more() -> None:
    newest = parse_version("0.5.23")
    assert multimodal_factor(newest, 24, 1024) == pytest.approx(0.95)
    assert multimodal_factor(newest, 240, 2048) == pytest.approx(0.95 * 0.8)
    assert multimodal_factor(parse_version("0.4.9"), 24, 1024) == 0.90
    seen, unseen = settings(QWEN3_5_27B), settings(QWEN3_5_27B, language_only=True)
    assert (
        seen.mem_fraction_static < unseen.mem_fraction_static == 0.835
    )  # prefill is not captured, so 464 MiB less


@pytest.mark.parametrize(
    ("config", "device", "flags", "backend", "page"),
    [
        (LLAMA_3_1_8B, "H100-80GB", {}, "fa3", 1),
        (LLAMA_3_1_8B, "B200", {}, "trtllm_mha", 64),
        (LLAMA_3_1_8B, "RTX 4090", {}, "flashinfer", 1),
        (GPT_OSS_20B, "RTX 4090", {}, "triton", 1),
        (DEEPSEEK_V3, "H100-80GB", {"attention_backend": "flashmla"}, "flashmla", 64),
        (DEEPSEEK_V3, "B200", {"page_size": 32}, "trtllm_mla", 32),
        (LLAMA_3_1_8B, "MI300X", {"page_size": 16}, "aiter", 16),
    ],
)
def test_backends_force_their_pages(
    config: dict[str, Any], device: str, flags: dict[str, Any], backend: str, page: int
) -> None:
    found = settings(config, find_device(device), **flags)
    assert (found.attention_backend, found.page_size) == (backend, page)


def test_attention_groups_share_the_chunk_but_not_its_reserve() -> None:
    alone, grouped = settings(DEEPSEEK_V3, tp_size=8), settings(DEEPSEEK_V3, **DP8)
    assert (alone.chunked_prefill_size, grouped.chunked_prefill_size) == (8192, 1024)
    assert grouped.mem_fraction_static == 0.573


def test_speculation_asks_for_48_requests() -> None:
    assert settings(LLAMA_3_1_8B, speculative_algorithm="EAGLE").max_running_requests == 48
    assert settings(LLAMA_3_1_8B).max_running_requests is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mem_fraction_static": 1.5}, "--mem-fraction-static is 1.5"),
        ({"chunked_prefill_size": 0}, "--chunked-prefill-size is 0"),
        ({"enable_dp_attention": True, "tp_size": 8, "dp_size": 3}, "does not divide --tp-size 8"),
        ({"ep_size": 3, "tp_size": 8}, "--ep-size 3 does not divide"),
        ({"enable_lora": True}, "--max-lora-rank"),
        ({"lora_target_modules": "qkv,nope"}, "lora-target-modules"),
        ({"kv_cache_dtype": "int3"}, "int3 is not one of auto"),
        ({"max_num_seqs": 8}, "sglang has no flag 'max_num_seqs'"),
        ({"tp": 2, "tp_size": 4}, "is given as 2 and as 4"),
        ({"tp_size": 64}, "32 attention heads of the model do not divide"),
        ({"pp_size": 64}, "--pp-size 64 is more than the 32 layers"),
        ({"ep": True}, "a number of ranks"),
    ],
)
def test_what_cannot_be_is_refused_by_its_flag(values: dict[str, Any], words: str) -> None:
    with pytest.raises(FlagError, match=re.escape(words)):
        planned(LLAMA_3_1_8B, H100, **values)


def test_versions_are_read_as_builds_print_them() -> None:
    assert str(parse_version("v0.4.6.post5")) == "0.4.6.post5"
    assert parse_version("0.5.10rc0") == parse_version("0.5.10")
    assert parse_version("0.4.6") < parse_version("0.4.6.post1") < parse_version("0.4.7")
    assert rules_note(parse_version("0.5.23")) is None
    assert "read up to 0.5.23" in str(rules_note(parse_version("0.6.0")))
    for text in ("latest", "1.0", "0.1.3"):
        with pytest.raises(FlagError, match="sglang"):
            parse_version(text)
