from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gguf_builder import GgufWriter, llama
from test_source_gguf import PUBLISHED, rebuilt

from vramledger.errors import ConfigError, UnknownArchitecture
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.sources.gguf import read_gguf
from vramledger.models.sources.gguf_config import config_from_gguf
from vramledger.models.tensors import Component

MODELS = Path(os.environ.get("VRAMLEDGER_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "models"


def config_of(writer: GgufWriter, tmp_path: Path) -> dict[str, Any]:
    return config_from_gguf(read_gguf(writer.write(tmp_path / "a.gguf")))[0]


def test_a_llama_header(tmp_path: Path) -> None:
    config, notes = config_from_gguf(read_gguf(llama().write(tmp_path / "a.gguf")))
    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "vocab_size": 160,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
    }
    assert "float16" in notes[0]


def test_a_head_is_tied_where_its_tensor_is_absent(tmp_path: Path) -> None:
    assert config_of(llama(tied=True), tmp_path)["tie_word_embeddings"] is True


def test_the_vocabulary_is_the_embeddings_rows_then_stated_then_the_tokenizers(tmp_path: Path) -> None:
    writer = llama()
    del writer.tensors[0]
    assert config_of(writer, tmp_path)["vocab_size"] == 160
    writer.keys.append(("llama.vocab_size", "u32", 163))
    assert config_of(writer, tmp_path)["vocab_size"] == 163
    writer.tensors.insert(0, ("token_embd.weight", [64, 167], "Q8_0"))
    assert config_of(writer, tmp_path)["vocab_size"] == 167


def test_per_layer_counts_that_are_all_the_same_are_one(tmp_path: Path) -> None:
    writer = llama()
    writer.keys[6] = ("llama.attention.head_count_kv", "arr", ("u32", [2, 2, 2]))
    assert config_of(writer, tmp_path)["num_key_value_heads"] == 2
    writer.keys[6] = ("llama.attention.head_count_kv", "arr", ("u32", [2, 4, 2]))
    with pytest.raises(ConfigError, match="head_count_kv"):
        config_of(writer, tmp_path)


@pytest.mark.parametrize(("key", "kind", "value"), [
    ("block_count", "u32", 0), ("block_count", "u32", 2**31), ("embedding_length", "str", "64"),
    ("attention.head_count", "i32", -4), ("attention.head_count", "bool", 1), ("rope.freq_base", "str", "x"),
    ("context_length", "arr", ("u32", [])),
])  # fmt: skip
def test_a_value_that_cannot_be_names_its_key(tmp_path: Path, key: str, kind: str, value: Any) -> None:
    writer = llama()
    at = next(at for at, (name, *_) in enumerate(writer.keys) if name == f"llama.{key}")
    writer.keys[at] = (f"llama.{key}", kind, value)
    with pytest.raises(ConfigError) as caught:
        config_of(writer, tmp_path)
    assert caught.value.facts["key"] == f"llama.{key}"
    assert caught.value.facts["file"] == "a.gguf"


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count", "context_length"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    writer = llama()
    writer.keys = [item for item in writer.keys if item[0] != f"llama.{key}"]
    with pytest.raises(ConfigError, match=f"llama.{key} is missing"):
        config_of(writer, tmp_path)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match="'zebra'"):
        config_of(llama("zebra"), tmp_path)
    with pytest.raises(UnknownArchitecture, match=r"without general\.architecture"):
        config_of(GgufWriter(), tmp_path)


# The converter writes no window for these, so a header of theirs is that of a model without one.
WITHOUT_WINDOW = ("llama", "qwen2", "qwen3", "qwen3moe", "starcoder2")


def header_of(name: str, config: dict[str, Any]) -> GgufWriter:
    """What llama.cpp's convert_hf_to_gguf.py writes for a config, as far as sizes go."""
    layers = config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    width = config["hidden_size"]
    kv: Any = config.get("num_key_value_heads", heads)
    writer = GgufWriter(keys=[("general.architecture", "str", name)])

    def put(key: str, value: Any, kind: str = "u32") -> None:
        if value is not None:
            writer.keys.append((f"{name}.{key}", kind, value))

    put("block_count", layers)
    put("context_length", config.get("max_position_embeddings") or config.get("model_max_length"))
    put("embedding_length", width)
    put("attention.head_count", heads)
    put("attention.sliding_window", None if name in WITHOUT_WINDOW else config.get("sliding_window"))
    put(
        "expert_count",
        config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts"),
    )
    put("expert_used_count", config.get("num_experts_per_tok"))
    inner = config.get("intermediate_size")
    if name == "deepseek2":
        rope, nope = config["qk_rope_head_dim"], config["qk_nope_head_dim"]
        rank = config["kv_lora_rank"]
        kv = 1
        put("rope.dimension_count", rope)
        put("attention.q_lora_rank", config["q_lora_rank"])
        put("attention.kv_lora_rank", rank)
        put("attention.key_length", rank + rope)
        put("attention.value_length", rank)
        put("attention.key_length_mla", nope + rope)
        put("attention.value_length_mla", config["v_head_dim"])
        put("leading_dense_block_count", config["first_k_dense_replace"])
        put("expert_shared_count", config["n_shared_experts"])
        put("expert_gating_func", 2 if config.get("scoring_func") == "sigmoid" else 1)
    elif name == "phi3":
        put("rope.dimension_count", int(config.get("partial_rotary_factor", 1.0) * width // heads))
    else:
        put("attention.key_length", config.get("head_dim"))
    if name in ("lfm2", "lfm2moe"):
        attends = set(config.get("full_attn_idxs") or [])
        types = config.get("layer_types") or [
            "full_attention" if at in attends else "conv" for at in range(layers)
        ]
        kv = ("i32", [kv if kind == "full_attention" else 0 for kind in types])
        put("shortconv.l_cache", config["conv_L_cache"])
        put("leading_dense_block_count", config.get("num_dense_layers"))
        if config.get("block_auto_adjust_ff_dim"):
            multiple = config["block_multiple_of"]
            inner = int(2 * config["block_ff_dim"] / 3 * config["block_ffn_dim_multiplier"])
            inner += -inner % multiple
    put("expert_feed_forward_length", inner if name == "gpt-oss" else config.get("moe_intermediate_size"))
    put("feed_forward_length", inner)
    put("attention.head_count_kv", kv, "arr" if isinstance(kv, tuple) else "u32")
    writer.tensors.append(("token_embd.weight", [width, config["vocab_size"]], "F16"))
    if not config.get(
        "tie_word_embeddings",
        name in ("gemma", "gemma2", "gemma3", "command-r", "cohere2", "starcoder2", "lfm2", "lfm2moe"),
    ):
        writer.tensors.append(("output.weight", [width, config["vocab_size"]], "F16"))
    if config.get("attention_bias") or config.get("use_bias"):
        writer.tensors.append(("blk.0.attn_q.bias", [width], "F32"))
    if config.get("use_qk_norm"):
        writer.tensors.append(("blk.0.attn_q_norm.weight", [width], "F32"))
    if config.get("use_expert_bias"):
        writer.tensors.append((f"blk.{layers - 1}.exp_probs_b.bias", [config["num_experts"]], "F32"))
    return writer


def tensors_of(model: Model) -> set[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    return {(t.name, t.shape, t.layers) for t in model.tensors if t.component is not Component.DRAFT}


@pytest.mark.skipif(not MODELS.is_dir(), reason="published configs are not here")
@pytest.mark.parametrize(("name", "model_id"), [
    ("llama", "01-ai/Yi-1.5-6B-Chat"), ("llama", "HuggingFaceH4/zephyr-7b-beta"),
    ("llama", "mistralai/Mixtral-8x7B-Instruct-v0.1"), ("llama", "HuggingFaceTB/SmolLM2-360M-Instruct"),
    ("qwen2", "Qwen/Qwen2.5-7B"), ("qwen3", "Qwen/Qwen3-14B"), ("qwen3moe", "Qwen/Qwen3-30B-A3B"),
    ("gemma", "google/gemma-7b"), ("gemma2", "google/gemma-2-9b-it"), ("gemma3", "google/gemma-3-1b-it"),
    ("gpt-oss", "openai/gpt-oss-120b"), ("deepseek2", "deepseek-ai/DeepSeek-V2-Lite"),
    ("deepseek2", "deepseek-ai/DeepSeek-V2.5"), ("deepseek2", "deepseek-ai/DeepSeek-V3"),
    ("phi3", "microsoft/Phi-3.5-mini-instruct"), ("phi3", "microsoft/phi-4"),
    ("granite", "ibm-granite/granite-3.1-8b-instruct"), ("granitemoe", "ibm-granite/granite-3.1-1b-a400m-instruct"),
    ("lfm2", "LiquidAI/LFM2-1.2B"), ("lfm2", "LiquidAI/LFM2-2.6B"), ("lfm2moe", "LiquidAI/LFM2-8B-A1B"),
    ("starcoder2", "bigcode/starcoder2-15b"), ("command-r", "CohereLabs/c4ai-command-r-08-2024"),
    ("command-r", "CohereLabs/c4ai-command-r-plus"), ("cohere2", "CohereLabs/c4ai-command-r7b-12-2024"),
    ("olmo2", "allenai/OLMo-2-1124-7B"),
])  # fmt: skip
def test_a_header_describes_the_same_model_as_its_config(tmp_path: Path, name: str, model_id: str) -> None:
    published = json.loads((MODELS / model_id.replace("/", "__") / "config.json").read_text())
    if name in WITHOUT_WINDOW:
        published["sliding_window"] = None
    expected = describe(Config(published, "config.json"), model_id)
    ours = describe(Config(config_of(header_of(name, published), tmp_path), "a.gguf"), model_id)
    assert tensors_of(ours) == tensors_of(expected)
    assert ours.layers == expected.layers
    assert (ours.vocab_size, ours.tie_word_embeddings) == (expected.vocab_size, expected.tie_word_embeddings)
    assert ours.parameter_counts().active == expected.parameter_counts().active


@pytest.mark.skipif(not PUBLISHED, reason="the published headers' facts are not here")
@pytest.mark.parametrize("facts_path", PUBLISHED, ids=lambda path: path.stem)
def test_published_files_describe_as_many_parameters_as_they_hold(tmp_path: Path, facts_path: Path) -> None:
    facts = json.loads(facts_path.read_text())
    config, _ = config_from_gguf(read_gguf(rebuilt(facts, tmp_path / "a.gguf")))
    assert describe(Config(config, "a.gguf"), facts_path.stem).parameter_counts().total == facts["params"]
