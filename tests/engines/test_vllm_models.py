"""Every model the repository keeps, on one rank and on eight."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import support
from support import H100, checkpoint, planned, published, tensor_bytes, weights
from vramledger.errors import FlagError, VramledgerError
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Phase

MODELS = published()
B300 = find_device("B300")
SHORT = {
    "LLAMA_3_1_8B": "meta-llama__Llama-3.1-8B",
    "LLAMA_3_8B": "meta-llama__Meta-Llama-3-8B",
    "LLAMA_3_1_70B": "meta-llama__Llama-3.1-70B-Instruct",
    "R1_DISTILL_QWEN_1_5B": "deepseek-ai__DeepSeek-R1-Distill-Qwen-1.5B",
    "QWEN3_32B": "Qwen__Qwen3-32B",
    "QWEN3_32B_AWQ": "Qwen__Qwen3-32B-AWQ",
    "QWEN3_30B_A3B": "Qwen__Qwen3-30B-A3B",
    "QWEN3_235B_A22B_FP8": "Qwen__Qwen3-235B-A22B-FP8",
    "MIXTRAL_8X7B": "mistralai__Mixtral-8x7B-v0.1",
    "DEEPSEEK_V3": "deepseek-ai__DeepSeek-V3",
    "DEEPSEEK_V3_2": "deepseek-ai__DeepSeek-V3.2",
    "GEMMA_3_27B": "google__gemma-3-27b-it",
    "GPT_OSS_120B": "openai__gpt-oss-120b",
    "GEMMA_4_26B_A4B": "google__gemma-4-26B-A4B-it",
    "QWEN3_5_27B": "Qwen__Qwen3.5-27B",
    "QWEN3_5_35B_A3B": "Qwen__Qwen3.5-35B-A3B",
    "NEMOTRON_3_NANO_30B": "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "LFM2_1_2B": "LiquidAI__LFM2-1.2B",
    "LLAMA_4_SCOUT": "meta-llama__Llama-4-Scout-17B-16E-Instruct",
    "SMOLLM2_135M": "HuggingFaceTB__SmolLM2-135M-Instruct",
}


def read(name: str) -> Any:
    files = MODELS[name]
    return checkpoint(files["config.json"], hf_quant=files.get("hf_quant_config.json"))


@pytest.mark.parametrize("short", SHORT)
def test_the_keys_that_tests_keep_of_a_config_decide_its_layout(short: str) -> None:
    ours, whole = checkpoint(getattr(support, short)), read(SHORT[short])
    (left,), (right,) = weights(ours), weights(whole)
    assert left == right
    assert tensor_bytes(left) == tensor_bytes(right)
    assert planned(ours).kv_pool == planned(whole).kv_pool


@pytest.mark.parametrize(("version", "ranks"), [("0.33.0", 1), ("0.33.0", 8), ("0.10.2", 4)])
def test_every_model_is_planned_or_says_what_does_not_divide(version: str, ranks: int) -> None:
    planned_models, refused = 0, Counter[str]()
    for name in MODELS:
        try:
            subject = read(name)
            plan = planned(subject, B300, version, tp=ranks)
        except FlagError as problem:
            assert ranks > 1, (name, problem)
            assert str(ranks) in str(problem), (name, problem)
            refused["does not divide"] += 1
            continue
        except VramledgerError as problem:
            assert "\n" not in str(problem)
            refused[type(problem).__name__] += 1
            continue
        planned_models += 1
        (rank,) = {item.ranks: item for item in plan.ranks}.values()
        assert rank.ranks == tuple(range(ranks)), name
        assert rank.weights.device_bytes.low > 0, name
        assert rank.peak(Phase.LOAD).low > 0, name
        if plan.kv_pool is not None:
            pool = plan.kv_pool
            assert pool.bytes_per_block > 0, name
            assert pool.bytes_per_token + pool.state_bytes_per_sequence > 0, name
            assert pool.bytes.expected == pool.num_blocks.expected * pool.bytes_per_block, name
    assert planned_models > 0.6 * len(MODELS), refused


def test_more_ranks_hold_no_more_of_any_model_each() -> None:
    for name in MODELS:
        try:
            subject = read(name)
            one, two = weights(subject, H100)[0], weights(subject, H100, tp=2)[0]
        except VramledgerError:
            continue
        assert tensor_bytes(two) <= tensor_bytes(one), name
        assert 2 * tensor_bytes(two) >= tensor_bytes(one), name
