"""A model small enough to run on any machine, and the configuration of one that recorded runs were made with."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.real_engines.cases import find_small_model

# The random model of the runs in tests/reconciliation/recorded (its README.md).
TINY_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 4096,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def served_model_file() -> Path | None:
    """SmolLM2-135M out of a package of the dev environment; None without it or without a server (xllamacpp)."""
    return find_small_model() if find_spec("xllamacpp") is not None else None
