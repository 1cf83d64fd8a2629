"""Architectures, one module each, named after the `model_type` it describes.

A module has one function, `describe(config, model_id) -> Model`. `ALIASES` names the module of model types
that share a description, `CLASSES` that of configs known only by their class name.
"""

from __future__ import annotations

import importlib
import re
from importlib.util import find_spec
from typing import Protocol, cast

from vramledger.errors import UnknownArchitecture
from vramledger.models.config import Config
from vramledger.models.model import Model

ALIASES: dict[str, str] = {
    "PanguEmbedded": "pangu_embedded",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "bert": "xlm_roberta",
    "deepseek_ref": "deepseek_v4",
    "gemma4_unified_text": "gemma4_text",
    "granite": "llama",
    "kimi_k2": "deepseek_v3",
    "minimax_m1": "minimax",
    "minimax_text_01": "minimax",
    "nemotron-nas": "nemotron_nas",
    "qwen3_5_moe": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_text",
    "roberta": "xlm_roberta",
    "smolvlm": "idefics3",
    "stablelm_epoch": "stablelm",
    "umt5": "t5",
    "xlm-roberta": "xlm_roberta",
}

CLASSES: dict[str, str] = {
    "CogVLMVideoForCausalLM": "cogvlm",
    "Eagle3LlamaForCausalLM": "llama_eagle3",
    "Eagle3Qwen3ForCausalLM": "llama_eagle3",
    "Eagle3Speculator": "llama_eagle3",
    "EagleLlamaForCausalLM": "llama_eagle",
    "HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe",
    "LlamaForCausalLMEagle": "llama_eagle",
    "LlamaForCausalLMEagle3": "llama_eagle3",
    "LlavaLlamaForCausalLM": "llava_llama",
    "MLPSpeculatorPreTrainedModel": "mlp_speculator",
    "MedusaModel": "medusa",
    "MiniCPM3ForCausalLM": "minicpm3",
}


class _Describe(Protocol):
    def __call__(self, config: Config, model_id: str) -> Model: ...


def describe(config: Config, model_id: str) -> Model:
    """The model that a config.json describes.

    Raises UnknownArchitecture, naming model_type and class, for one without a description here; ConfigError
    for a config that lacks what its class needs.
    """
    model_type = config.raw("model_type")
    classes = config.texts("architectures")
    name = _module_name(model_type if isinstance(model_type, str) else "", classes)
    if name is None:
        raise UnknownArchitecture(
            f"{config.where}: no description of model_type {model_type!r} ({', '.join(classes) or 'no class named'})",
            file=config.where,
            model_type=model_type,
            architectures=classes,
        )
    module = importlib.import_module(f"{__name__}.{name}")
    return cast(_Describe, module.describe)(config, model_id)


def _module_name(model_type: str, classes: tuple[str, ...]) -> str | None:
    for class_name in classes:
        if class_name in CLASSES:
            return CLASSES[class_name]
    name = ALIASES.get(model_type, model_type)
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or find_spec(f"{__name__}.{name}") is None:
        return None
    return name
