"""Drafts in the ledger: what a second model adds to weights, KV cache and buffers, and what it shares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import H100, LLAMA_3_1_8B, QWEN3_5_27B, checkpoint, layout, planned, settings
from vramledger.answer import Plan
from vramledger.engines.option import Option, OptionKind
from vramledger.engines.vllm.flags import Speculation
from vramledger.engines.vllm.kv_budget import blocks_per_request, capacity
from vramledger.engines.vllm.kv_groups import plan_groups
from vramledger.engines.vllm.kv_specs import layer_specs
from vramledger.engines.vllm.planner import cache_format
from vramledger.engines.vllm.speculation import marked
from vramledger.engines.vllm.speculative_config import read_speculation
from vramledger.errors import FlagError
from vramledger.units import GIB

TARGET = checkpoint(LLAMA_3_1_8B)

# yuhuili/EAGLE3-LLaMA3.1-Instruct-8B
EAGLE3_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "max_position_embeddings": 2048,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "torch_dtype": "float16",
}
EAGLE_8B = {key: value for key, value in EAGLE3_8B.items() if key != "draft_vocab_size"} | {
    "architectures": ["EagleLlamaForCausalLM"]
}
LLAMA_3_2_1B = LLAMA_3_1_8B | {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
MISTRAL_7B: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 32768,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}


def drafted(method: str, draft: dict[str, Any] | None = None, tokens: int = 3, **values: Any) -> Speculation:
    own = None if draft is None else checkpoint(draft)
    return Speculation(method=method, num_speculative_tokens=tokens, draft=own, **values)


def entry(plan: Plan, name: str = "draft model", rank: int = -1) -> int:
    return sum(item.bytes.expected for item in plan.ranks[rank].entries if item.name == name)


EAGLE3 = drafted("eagle3", EAGLE3_8B)
FC, ROPE = 4096 * 3 * 4096, 131072 * 128
HEAD, EMBEDDING = 32000 * 4096, 128256 * 4096
QKV, OUT, MLP = (4096 + 2 * 1024) * 8192, 4096 * 4096, 3 * 4096 * 14336
NORMS, TABLE = 4 * 4096, 32000 * 8  # d2t: an int64 for each token of the head


def test_an_eagle_3_head_of_llama_3_1_8b() -> None:
    plan = planned(TARGET, H100, speculative=EAGLE3)
    assert entry(plan) == 2 * (FC + QKV + OUT + MLP + NORMS + HEAD + ROPE) + TABLE == 883_189_760
    assert plan.kv_pool is not None
    assert plan.kv_pool.bytes_per_token == 33 * 2 * 8 * 128 * 2
    assert "drafts by eagle3" in " ".join(plan.verdict.conditions)


def test_its_table_of_positions_was_the_heads_own_before_0_27() -> None:
    plan = planned(TARGET, H100, "0.26.0", speculative=EAGLE3)
    assert entry(plan) == 2 * (FC + QKV + OUT + MLP + NORMS + HEAD + 2048 * 128) + TABLE


def test_tensor_parallelism_cuts_the_layer_but_not_fc() -> None:
    plan = planned(TARGET, H100, tp=4, speculative=EAGLE3)
    assert entry(plan) == 2 * (FC + (QKV + OUT + MLP + HEAD) // 4 + NORMS + ROPE) + TABLE


def test_a_later_stage_needs_an_embedding_of_its_own() -> None:
    plan = planned(TARGET, H100, pp=2, speculative=EAGLE3)
    assert entry(plan, rank=0) == 0
    alone = entry(planned(TARGET, H100, speculative=EAGLE3))
    assert entry(plan, rank=1) == alone + 2 * EMBEDDING


def test_an_eagle_head_has_no_output_head_and_no_first_norm() -> None:
    plan = planned(TARGET, H100, speculative=drafted("eagle", EAGLE_8B))
    attention = (2 * 4096 + 2 * 1024) * 4096
    assert entry(plan) == 2 * (8192 * 4096 + attention + MLP + 4096 + ROPE)


def test_sixteen_medusa_heads_as_a_start_of_zephyr_7b_printed_them() -> None:
    """4.4062 GiB: each head a 4096 x 4096 block without bias and its own output head of 32000 rows, in fp16."""
    option = Option(name="speculative_config", kind=OptionKind.JSON, group="", help="")
    medusa = checkpoint(
        {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": 4096, "vocab_size": 32000}
        | {"num_heads": 16, "num_hidden_layers": 1, "torch_dtype": "float16"}
    )
    speculation = read_speculation(option, {"model": medusa, "num_speculative_tokens": 16})
    assert speculation.method == "medusa"
    plan = planned(checkpoint(MISTRAL_7B), H100, "0.5.2", speculative=speculation, dtype="float16")
    assert entry(plan) == 16 * (4096 * 4096 + 32000 * 4096) * 2
    assert f"{entry(plan) / GIB:.4f}" == "4.4062"
    assert plan.kv_pool is not None
    assert plan.kv_pool.bytes_per_token == 32 * 2 * 8 * 128 * 2


def test_a_medusa_checkpoint_is_built_with_a_head_a_token(tmp_path: Any) -> None:
    import json

    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["MedusaModel"], "model_type": "medusa", "vocab_size": 32000}
                   | {"hidden_size": 4096, "medusa_num_heads": 5, "medusa_num_layers": 1})
    )  # fmt: skip
    option = Option(name="speculative_config", kind=OptionKind.JSON, group="", help="")
    found = read_speculation(option, {"model": str(tmp_path), "num_speculative_tokens": 7})
    assert found.draft is not None
    heads = [tensor.copies for tensor in found.draft.model.tensors if tensor.name.startswith("lm_heads")]
    assert heads == [7]


@pytest.mark.parametrize(("tied", "copies"), [(False, 3), (True, 1)])
def test_an_mlp_speculator(tied: bool, copies: int) -> None:
    draft = {
        "architectures": ["MLPSpeculatorPreTrainedModel"],
        "model_type": "mlp_speculator",
        "emb_dim": 4096,
    }
    draft |= {
        "inner_dim": 3072,
        "n_predict": 3,
        "vocab_size": 32000,
        "tie_weights": tied,
        "torch_dtype": "float16",
    }
    plan = planned(checkpoint(MISTRAL_7B), H100, "0.7.3", speculative=drafted("mlp_speculator", draft))
    tables = 2 * 32000 * 3072 + 2 * 3072
    later = 1 if tied else 2
    assert entry(plan) == 2 * (copies * tables + 4096 * 3072 + later * 3072 * 3072)


def test_a_plain_draft_shares_nothing_but_its_familys_rope_table() -> None:
    own = checkpoint(LLAMA_3_2_1B)
    plan = planned(TARGET, H100, speculative=drafted("draft_model", LLAMA_3_2_1B))
    alone = planned(own, H100)
    rope = 131072 * 64 * 2
    assert (
        entry(plan) == sum(entry(alone, name) for name in ("embedding", "attention", "mlp", "norms")) + rope
    )
    assert plan.kv_pool is not None
    assert plan.kv_pool.bytes_per_token == 131072 + 16 * 2 * 8 * 64 * 2


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_drafts_without_a_model_take_neither_weights_nor_cache(method: str) -> None:
    plain, plan = planned(TARGET, H100), planned(TARGET, H100, speculative=drafted(method))
    assert entry(plan) == 0
    assert plan.kv_pool is not None and plain.kv_pool is not None
    assert plan.kv_pool.bytes_per_token == plain.kv_pool.bytes_per_token


def test_probabilistic_drafts_keep_their_logits() -> None:
    greedy = planned(TARGET, H100, speculative=EAGLE3)
    plan = planned(TARGET, H100, speculative=drafted("eagle3", EAGLE3_8B, probabilistic=True))
    assert entry(plan, "runner buffers") - entry(greedy, "runner buffers") == 1024 * 3 * 128256 * 2


# Grouping


def parts(version: str, **values: Any) -> tuple[list[int], int]:
    """Layers of each group and blocks of a request of the hybrid with one MTP layer."""
    subject = checkpoint(QWEN3_5_27B)
    found = layout(subject, version=version, speculative=drafted("mtp", tokens=1), **values)
    given = settings(subject, version=version, speculative=drafted("mtp", tokens=1), **values)
    return [len(group.members) for group in found.groups], blocks_per_request(found, 262144, given)


def test_an_mtp_layer_joins_the_layers_it_equals() -> None:
    assert parts("0.25.1") == ([16, 16, 16, 17], 328 + 3 * 2)


def test_another_backend_of_the_draft_sets_its_layer_apart() -> None:
    members, blocks = parts("0.27.1", attention_backend="ROCM_ATTN", enable_prefix_caching=True)
    assert members == [1] * 65
    assert blocks == 17 * 328 + 48 * 3 == 5720


def test_the_published_tokens_of_such_groups_are_in_the_range() -> None:
    """27B hybrid with one MTP layer on 0.27.1: 6071 blocks of one layer, 278,230 tokens."""
    subject = checkpoint(QWEN3_5_27B)
    values: dict[str, Any] = {"speculative": drafted("mtp", tokens=1), "enable_prefix_caching": True}
    given = settings(subject, version="0.27.1", max_model_len=262144, **values)
    specs = layer_specs(subject.model, given, H100, cache_format(subject, given, H100))
    apart = plan_groups(marked(specs, subject.model), given.version, v1=True, hybrid_manager=True)
    assert apart.bytes_per_block() == 800 * 4096
    assert capacity(apart, 6071, given).tokens == 278_230
    memory = 6071 * 800 * 4096
    plan = planned(subject, H100, "0.27.1", kv_cache_memory_bytes=memory, max_model_len=262144, **values)
    assert plan.kv_pool is not None
    assert plan.kv_pool.tokens.low <= 278_230 <= plan.kv_pool.tokens.high
    assert any("groups of their own" in note for note in plan.notes)


# What is refused


@pytest.mark.parametrize(
    ("version", "speculation", "plan", "says"),
    [
        ("0.33.0", drafted("medusa", EAGLE3_8B), {}, "no more since 0.33"),
        ("0.12.0", drafted("draft_model", LLAMA_3_2_1B), {}, "has not"),
        ("0.27.1", drafted("draft_model", LLAMA_3_2_1B, draft_tensor_parallel_size=1), {"tp": 2}, "runs at --tp 2"),
        ("0.27.1", drafted("eagle3", EAGLE3_8B, draft_tensor_parallel_size=3), {"tp": 2}, "neither 1 nor"),
        ("0.27.1", drafted("eagle3", EAGLE3_8B | {"vocab_size": 32000}), {}, "has 128256"),
    ],
)  # fmt: skip
def test_drafts_that_the_engine_refuses(version: str, speculation: Speculation, plan: Any, says: str) -> None:
    with pytest.raises(FlagError, match=says):
        planned(TARGET, H100, version, speculative=speculation, **plan)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"method": "mtp", "num_speculativ_tokens": 1}, "did you mean num_speculative_tokens"),
        ({"method": "eagle4", "model": "x", "num_speculative_tokens": 1}, "did you mean eagle"),
        ({"method": "eagle3", "num_speculative_tokens": 1}, "must have model"),
        ({"num_speculative_tokens": 1}, "must have method"),
        ({"method": "mtp", "num_speculative_tokens": True}, "whole number"),
        ({"method": "eagle", "model": 3, "num_speculative_tokens": 1}, "neither a path nor"),
    ],
)
def test_configs_that_are_refused(given: dict[str, object], says: str) -> None:
    option = Option(name="speculative_config", kind=OptionKind.JSON, group="", help="")
    with pytest.raises(FlagError, match=says):
        read_speculation(option, given)


# For every plan


@given(
    tp=st.sampled_from((1, 2, 4, 8)),
    pp=st.sampled_from((1, 2)),
    tokens=st.integers(1, 8),
    which=st.sampled_from((("eagle3", EAGLE3_8B), ("eagle", EAGLE_8B), ("draft_model", LLAMA_3_2_1B))),
    version=st.sampled_from(("0.18.1", "0.26.0", "0.27.1", "0.33.0")),
)
def test_a_draft_never_gives_memory(
    tp: int, pp: int, tokens: int, which: tuple[str, dict[str, Any]], version: str
) -> None:
    plain = planned(TARGET, H100, version, tp=tp, pp=pp)
    plan = planned(TARGET, H100, version, tp=tp, pp=pp, speculative=drafted(*which, tokens))
    assert plan.kv_pool is not None and plain.kv_pool is not None
    assert plan.kv_pool.num_blocks.expected <= plain.kv_pool.num_blocks.expected
    assert plan.kv_pool.bytes_per_block >= plain.kv_pool.bytes_per_block
    for rank, without in zip(plan.ranks, plain.ranks, strict=True):
        assert rank.weights.device_bytes.expected >= without.weights.device_bytes.expected
    assert entry(plan) > 0
