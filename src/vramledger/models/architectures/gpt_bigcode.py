"""SantaCoder, StarCoder, WizardCoder: GPT-2 with one KV head (transformers models/gpt_bigcode)."""

from __future__ import annotations

from msgspec.structs import replace

from vramledger.models.architectures.gpt2 import finish_gpt2, gpt2_skeleton
from vramledger.models.config import Config
from vramledger.models.decoder import even_heads
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    config = config.with_defaults("GPTBigCodeConfig", n_positions=1024, tie_word_embeddings=True)
    heads = even_heads(
        config, config.integer("n_embd", "hidden_size"), config.integer("n_head", "num_attention_heads")
    )
    if config.flag("multi_query", default=True):
        heads = replace(heads, kv=1)
    frame = gpt2_skeleton(config, "GPTBigCodeForCausalLM", base="transformer.", heads=heads)
    return finish_gpt2(frame, model_id)
