"""What a release lists, and what it does with flags, types and blocks that hang on the release."""

from __future__ import annotations

from typing import Any

import pytest

from support import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    GPT_OSS_20B,
    H100,
    LLAMA_3_1_8B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    QWEN3_32B_AWQ,
    bytes_per_token,
    checkpoint,
    planned,
    published,
    settings,
    weights,
)
from vramledger.engines.vllm.attention_backends import primary_block_size, sparse_cache_type
from vramledger.engines.vllm.context import position_limit
from vramledger.engines.vllm.layouts import matrix_bytes
from vramledger.engines.vllm.names import check_flags
from vramledger.engines.vllm.options import plan_with
from vramledger.engines.vllm.planner import plan
from vramledger.engines.vllm.support import Problem, listed, support_problems, when
from vramledger.engines.vllm.version import NEWEST, parse_version, rules_note
from vramledger.errors import FlagError
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Fp8, Granularity
from vramledger.hardware.catalogue import Device, find_device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.loading import checkpoint_from_source
from vramledger.models.sources.load import Source
from vramledger.units import ceil_div

A100 = find_device("A100-80GB")
B200 = find_device("B200")
T4 = find_device("T4")
RTX_5090 = find_device("RTX 5090")


def of(name: str, **changes: Any) -> Checkpoint:
    """A published model by folder name, some keys of its config set."""
    files = published()[name]
    return checkpoint_from_source(
        Source(
            id=name.replace("__", "/"),
            where="config.json",
            config={**files["config.json"], **changes},
            quant_configs={key: value for key, value in files.items() if key != "config.json"},
            side_configs={},
            table=None,
            index=None,
            gguf=None,
            disk_bytes=None,
            disk_evidence=None,
            files=tuple(files),
        )
    )


def problems(subject: Checkpoint, version: str, device: Device = H100, **values: Any) -> tuple[Problem, ...]:
    return support_problems(subject, settings(subject, device, version, **values), device)


# The table


@pytest.mark.parametrize(
    ("section", "name", "version", "answer"),
    [
        ("architectures", "GptOssForCausalLM", "0.10.0", False),
        ("architectures", "GptOssForCausalLM", "0.10.1.1", True),
        ("architectures", "GptOssForCausalLM", "0.99", True),
        ("architectures", "LlamaForCausalLM", "0.6.6", True),
        ("architectures", "LlamaForCausalLM", "0.6.0", None),
        ("architectures", "GptOssForCausalLM", "0.6.0", False),
        ("architectures", "DeepseekV32ForCausalLM", "0.10.2", False),
        ("architectures", "DeepseekV4ForCausalLM", "0.19.0", None),
        ("architectures", "ArcticForCausalLM", "0.28.0", True),
        ("architectures", "ArcticForCausalLM", "0.29.0", False),
        ("architectures", "NobodyForCausalLM", "0.33.0", False),
        ("transformers", "GPTNeoXForCausalLM", "0.31.0", False),
        ("transformers", "GPTNeoXForCausalLM", "0.33.0", True),
        ("quantization", "gguf", "0.23.0", True),
        ("quantization", "gguf", "0.24.0", False),
        ("flags", "--kv-cache-memory-bytes", "0.10.1", False),
        ("flags", "--kv-cache-memory-bytes", "0.10.2", True),
        ("flags", "--moe-backend", "0.17.0", None),
        ("attention_backends", "FLASHMLA_SPARSE", "0.11.0", False),
        ("kv_cache_dtypes", "nvfp4", "0.18.1", False),
    ],
)
def test_what_a_release_lists(section: str, name: str, version: str, answer: bool | None) -> None:
    assert listed(section, name, parse_version(version)) is answer


def test_when_a_name_was_listed_is_told_in_releases() -> None:
    assert when("architectures", "GptOssForCausalLM") == "the first release read that lists it is 0.10.1"
    assert when("architectures", "AquilaForCausalLM") == "the last release read that lists it is 0.24.0"
    assert when("quantization", "bitblas") == "the releases read that list it are 0.9.0 to 0.12.0"
    assert when("quantization", "nothing") == ""


# Classes and methods


def test_a_class_that_came_later_cannot_be_told_or_does_not_load() -> None:
    gpt_oss = checkpoint(GPT_OSS_20B | {"architectures": ["GptOssForCausalLM"]})
    old = plan(gpt_oss, H100, version=parse_version("0.6.6")).verdict
    assert old.holds is False
    assert "does not load: vllm 0.6.6 does not list GptOssForCausalLM" in old.summary
    assert old.shortfall_bytes == 0
    assert not problems(gpt_oss, "0.10.2")
    qwen = checkpoint(QWEN3_32B | {"architectures": ["Qwen3ForCausalLM"]})
    between = plan_with(qwen, H100, version="0.8.3", values={"max_model_len": 4096}).verdict
    assert between.holds is None
    assert any("Qwen3ForCausalLM" in text and "Transformers" in text for text in between.missing)
    experts = checkpoint(QWEN3_30B_A3B | {"architectures": ["Qwen3MoeForCausalLM"]})
    assert [item.certain for item in problems(experts, "0.8.3")] == [True]


@pytest.mark.parametrize(
    "name",
    ["google__flan-t5-base", "google__umt5-xxl", "RWKV__rwkv-4-7b-pile", "facebook__seamless-m4t-v2-large"],
)
def test_what_no_release_runs_does_not_load(name: str) -> None:
    verdict = plan(of(name), H100).verdict
    assert verdict.holds is False
    assert "no release does" in verdict.summary


def test_a_class_that_moved_to_a_plugin_cannot_be_told() -> None:
    verdict = plan(of("facebook__bart-large"), H100).verdict
    assert verdict.holds is None
    assert any("plugin" in text for text in verdict.missing)


def test_a_class_of_another_name_is_noted_only() -> None:
    own = checkpoint(LLAMA_3_1_8B | {"architectures": ["HouseLlamaForCausalLM"]})
    answer = plan(own, H100)
    assert answer.verdict.holds
    assert any("HouseLlamaForCausalLM" in note for note in answer.notes)
    assert not any("LlamaForCausalLM" in note for note in planned(checkpoint(LLAMA_3_1_8B)).notes)
    classifier = checkpoint(LLAMA_3_1_8B | {"architectures": ["LlamaForSequenceClassification"]})
    assert not problems(classifier, "0.33.0")


def test_a_method_that_left_or_is_not_there_yet() -> None:
    bnb = checkpoint(
        LLAMA_3_1_8B | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    )
    assert not problems(bnb, "0.27.1")
    assert [item.certain for item in problems(bnb, "0.29.0")] == [False]
    assert plan(bnb, H100).verdict.holds is None
    rounded = checkpoint(LLAMA_3_1_8B | {"quantization_config": {"quant_method": "auto-round", "bits": 4}})
    assert [item.certain for item in problems(rounded, "0.8.3")] == [True]
    assert not problems(rounded, "0.33.0")


def test_a_method_that_the_device_is_too_old_for() -> None:
    awq = checkpoint(QWEN3_32B_AWQ)
    v100 = find_device("V100-32GB")
    assert [item.text for item in problems(awq, "0.33.0", v100)] == [
        f"vllm 0.33.0 runs awq on compute capability 7.5 and newer, and {v100.name} has 7.0"
    ]
    assert not problems(awq, "0.33.0", T4)
    fp8 = checkpoint(QWEN3_32B | {"quantization_config": {"quant_method": "fp8"}, "torch_dtype": "float16"})
    assert problems(fp8, "0.12.0", T4)
    assert not problems(fp8, "0.16.0", T4)


# Versions


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.34.0", "read up to 0.33.0"),
        ("0.99", "0.99.0"),
        ("0.5.4", "extrapolated"),
        ("0.15.1", "0.14 and 0.16"),
    ],
)
def test_versions_outside_what_was_read_say_so(version: str, words: str) -> None:
    note = rules_note(parse_version(version))
    assert note is not None
    assert words in note
    answer = plan(checkpoint(LLAMA_3_1_8B), H100, version=parse_version(version))
    assert note in answer.notes
    assert note in answer.verdict.conditions


@pytest.mark.parametrize("version", ["0.6.6", "0.14.1", "0.16.0", "0.33.0", "0.33.1"])
def test_versions_that_were_read_have_no_note(version: str) -> None:
    assert rules_note(parse_version(version)) is None


def test_a_fourth_number_is_a_release_too() -> None:
    assert parse_version("0.10.1.1") == parse_version("0.10.1")


# Flags


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("kv_cache_memory_bytes", "0.10.1"),
        ("mamba_cache_mode", "0.12.0"),
        ("async_scheduling", "0.9.2"),
        ("decode_context_parallel_size", "0.10.1"),
        ("prefill_context_parallel_size", "0.11.2"),
        ("mm_encoder_tp_mode", "0.10.1"),
        ("language_model_only", "0.16.0"),
        ("moe_backend", "0.16.0"),
        ("max_cudagraph_capture_size", "0.11.0"),
    ],
)
def test_a_flag_that_a_version_does_not_have_yet(name: str, version: str) -> None:
    with pytest.raises(FlagError, match="has no --") as refusal:
        check_flags([name], parse_version(version))
    assert refusal.value.facts["flag"] == name
    assert "0." in refusal.value.message
    check_flags([name], NEWEST)


def test_flags_are_checked_as_they_were_given() -> None:
    with pytest.raises(FlagError, match="--language-model-only"):
        plan_with(checkpoint(LLAMA_3_1_8B), H100, version="0.12.0", values={"language_model_only": True})
    limits = {"limit_mm_per_prompt": {"image": 0}}
    assert plan_with(checkpoint(LLAMA_3_1_8B), H100, version="0.12.0", values=limits).verdict.holds
    with pytest.raises(FlagError, match="--decode-context-parallel-size"):
        plan_with(checkpoint(LLAMA_3_1_8B), H100, version="0.9.0", values={"tp": 2, "dcp": 2})


@pytest.mark.parametrize(
    ("version", "values", "words"),
    [
        ("0.33.0", {"attention_backend": "XFORMERS"}, "0.11.2"),
        ("0.10.0", {"attention_backend": "FLASH_ATTN_MLA"}, "0.10.2"),
        ("0.33.0", {"attention_backend": "FLASHMLA"}, "attention with heads"),
        ("0.18.1", {"moe_backend": "humming"}, "0.22.1"),
        ("0.18.1", {"kv_cache_dtype": "nvfp4"}, "0.20.2"),
        ("0.33.0", {"kv_cache_dtype": "float32"}, "did you mean"),
        ("0.33.0", {"block_size": 8}, "multiples of 16"),
        ("0.33.0", {"block_size": 24}, "multiples of 16"),
        ("0.16.0", {"block_size": 48}, "16, 32"),
        ("0.10.2", {"block_size": 256}, "8, 16"),
        ("0.33.0", {"enable_chunked_prefill": False, "max_num_batched_tokens": 4096}, "4096"),
        ("0.33.0", {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}, "mtp"),
    ],
)
def test_values_that_a_version_refuses(version: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(FlagError) as refusal:
        plan_with(checkpoint(LLAMA_3_1_8B), H100, version=version, values=values)
    assert words in refusal.value.message
    assert "\n" not in refusal.value.message


def test_a_backend_for_any_block_takes_one() -> None:
    values = {"block_size": 8, "attention_backend": "FLEX_ATTENTION"}
    pool = plan_with(checkpoint(LLAMA_3_1_8B), H100, version=None, values=values).kv_pool
    assert pool is not None
    assert pool.block_size == 8


# Blocks of latent attention


@pytest.mark.parametrize(
    ("version", "device", "values", "block"),
    [
        ("0.33.0", H100, {"attention_backend": "FLASHMLA"}, 64),
        ("0.33.0", B200, {"attention_backend": "CUTLASS_MLA"}, 128),
        ("0.33.0", H100, {}, 16),
        ("0.33.0", B200, {}, 32),
        ("0.16.0", H100, {}, 64),
        ("0.16.0", H100, {"block_size": 16}, 64),
        ("0.16.0", H100, {"block_size": 128}, 128),
        ("0.16.0", B200, {}, 64),
        ("0.12.0", B200, {}, 128),
        ("0.16.0", H100, {"attention_backend": "FLASHINFER_MLA"}, 64),
        ("0.16.0", H100, {"attention_backend": "TRITON_MLA"}, 16),
        ("0.16.0", A100, {}, 16),
    ],
)
def test_blocks_of_latent_attention(version: str, device: Device, values: dict[str, Any], block: int) -> None:
    subject = checkpoint(DEEPSEEK_V3)
    found = settings(subject, device, version, tp=8, **values)
    assert primary_block_size(subject.model, found, device) == block


def test_a_block_that_a_named_backend_does_not_take() -> None:
    subject = checkpoint(DEEPSEEK_V3)
    found = settings(subject, H100, tp=8, attention_backend="FLASHMLA", block_size=16)
    with pytest.raises(FlagError, match="multiples of 64"):
        primary_block_size(subject.model, found, H100)


# The cache of sparse attention


@pytest.mark.parametrize(
    ("version", "device", "asked", "stored"),
    [
        ("0.11.0", H100, "auto", "fp8_ds_mla"),
        ("0.11.0", H100, "bfloat16", "bfloat16"),
        ("0.11.2", H100, "auto", "auto"),
        ("0.11.2", B200, "fp8", "fp8_ds_mla"),
        ("0.33.0", H100, "fp8", "fp8_ds_mla"),
        ("0.33.0", H100, "fp8_e4m3", "fp8_ds_mla"),
        ("0.33.0", H100, "auto", "auto"),
        ("0.33.0", B200, "fp8", "fp8"),
        ("0.33.0", B200, "auto", "auto"),
        ("0.33.0", RTX_5090, "auto", "fp8_ds_mla"),
    ],
)
def test_the_cache_type_of_sparse_latent_attention(
    version: str, device: Device, asked: str, stored: str
) -> None:
    subject = of("deepseek-ai__DeepSeek-V3.2")
    found = settings(subject, device, version, tp=8)
    assert sparse_cache_type(asked, subject.model, found, device) == stored
    plain = checkpoint(DEEPSEEK_V3)
    assert sparse_cache_type(asked, plain.model, found, device) == asked


def test_sparse_caches_in_bytes() -> None:
    subject = of("deepseek-ai__DeepSeek-V3.2")
    assert bytes_per_token(subject, tp=8, kv_cache_dtype="fp8") == 61 * (656 + 132) == 48_068
    assert bytes_per_token(subject, tp=8) == 61 * (1152 + 132) == 78_324
    glm = of("zai-org__GLM-5")
    with_backend = settings(glm, B200, tp=8, attention_backend="FLASHMLA_SPARSE")
    assert sparse_cache_type("auto", glm.model, with_backend, B200) == "fp8_ds_mla"
    assert sparse_cache_type("auto", glm.model, settings(glm, B200, tp=8), B200) == "fp8_e4m3"
    assert sparse_cache_type("auto", glm.model, settings(glm, H100, tp=8), H100) == "auto"
    assert [item.certain for item in problems(subject, "0.33.0", A100, tp=8)] == [True]


# FP8 on cards without FP8


def test_tiles_become_groups_of_columns_where_fp8_runs_as_weights_only() -> None:
    subject = checkpoint(LLAMA_3_1_8B)
    tiles = Fp8(scale=Granularity.BLOCK)
    rows, columns = (4096, 1024, 1024), 4096

    def laid(device: Device, version: str, stack: int = 1, columns: int = columns) -> int:
        found = settings(subject, device, version)
        return matrix_bytes(tiles, rows, columns, stack=stack, settings=found, device=device).total

    total = sum(rows) * columns
    assert laid(H100, "0.33.0") == total + 4 * (sum(rows) // 128) * (columns // 128)
    assert laid(A100, "0.33.0") == total + 2 * sum(rows) * (columns // 128)
    assert laid(A100, "0.33.0", stack=8) == 8 * (total + 2 * sum(rows) * (columns // 128))
    assert laid(A100, "0.8.3") == laid(H100, "0.8.3")
    odd = 4096 + 32
    assert laid(A100, "0.23.0", columns=odd) == sum(rows) * (odd + 2 * ceil_div(odd, 128))
    assert laid(A100, "0.33.0", columns=odd) == sum(rows) * (4224 + 2 * 33)


def test_deepseek_is_a_little_larger_on_an_a100() -> None:
    subject = checkpoint(DEEPSEEK_V3)
    hopper, ampere = (weights(subject, device=device, tp=16)[0].total_bytes for device in (H100, A100))
    assert 1.01 < ampere / hopper < 1.02


# Element types


@pytest.mark.parametrize(
    ("version", "device", "config", "values", "dtype"),
    [
        ("0.33.0", H100, {"torch_dtype": "float32"}, {}, DType.BF16),
        ("0.33.0", T4, {"torch_dtype": "float32"}, {}, DType.F16),
        ("0.9.0", H100, {"torch_dtype": "float32"}, {}, DType.F16),
        ("0.6.6", H100, {"torch_dtype": "float32"}, {}, DType.F16),
        ("0.33.0", T4, {"torch_dtype": "bfloat16"}, {}, DType.F16),
        ("0.9.0", T4, {"torch_dtype": "bfloat16"}, {}, DType.F16),
        ("0.33.0", H100, {"torch_dtype": "float16"}, {}, DType.F16),
        ("0.33.0", H100, {"torch_dtype": "float32"}, {"dtype": "float32"}, DType.F32),
    ],
)
def test_the_type_a_model_runs_in(
    version: str, device: Device, config: dict[str, Any], values: dict[str, Any], dtype: DType
) -> None:
    assert settings(checkpoint(LLAMA_3_1_8B | config), device, version, **values).dtype is dtype


def test_types_that_a_device_or_a_model_refuses() -> None:
    with pytest.raises(FlagError, match="compute capability 8"):
        settings(checkpoint(LLAMA_3_1_8B), T4, "0.8.3")
    with pytest.raises(FlagError, match="compute capability 8"):
        settings(checkpoint(LLAMA_3_1_8B), T4, dtype="bfloat16")
    gemma = checkpoint(GEMMA_3_27B)
    with pytest.raises(FlagError, match="float16"):
        settings(gemma, H100, dtype="half")
    assert settings(gemma, T4).dtype is DType.F32
    assert settings(gemma, T4, "0.9.0").dtype is DType.F16


# The longest context


@pytest.mark.parametrize(
    ("scaling", "version", "limit"),
    [
        (None, "0.33.0", 131_072),
        ({"rope_type": "linear", "factor": 2.0}, "0.33.0", 262_144),
        ({"rope_type": "dynamic", "factor": 4.0}, "0.9.0", 524_288),
        ({"rope_type": "llama3", "factor": 8.0}, "0.33.0", 131_072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 65_536}, "0.29.0", 262_144),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 65_536}, "0.30.0", 131_072),
    ],
)
def test_the_limit_that_a_rope_scaling_gives(
    scaling: dict[str, Any] | None, version: str, limit: int
) -> None:
    subject = checkpoint(LLAMA_3_1_8B | {"rope_scaling": scaling})
    assert position_limit(subject.model, parse_version(version)) == limit
    assert settings(subject, H100, version).context_len == limit
    with pytest.raises(FlagError, match=str(limit)):
        settings(subject, H100, version, max_model_len=limit + 1)


def test_the_default_of_longrope_is_its_original_length() -> None:
    subject = of("microsoft__Phi-3.5-mini-instruct")
    assert settings(subject, H100, "0.11.0").context_len == 131_072
    assert settings(subject, H100, "0.11.1").context_len == 4096
    assert settings(subject, H100, max_model_len=131_072).context_len == 131_072


def test_a_recurrent_model_without_a_limit_takes_any_length() -> None:
    subject = checkpoint(
        {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512}
    )
    assert settings(subject).context_len == 2048
    assert settings(subject, max_model_len=10**6).context_len == 10**6
