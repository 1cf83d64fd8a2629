"""openPangu-Embedded: InternLM's layer with grouped keys and values (openPangu's modeling_openpangu_dense.py)."""

from __future__ import annotations

from vramledger.models.architectures.internlm import biased_attention
from vramledger.models.config import Config
from vramledger.models.model import Model


def describe(config: Config, model_id: str) -> Model:
    return biased_attention(config, model_id, "PanguEmbeddedForCausalLM")
