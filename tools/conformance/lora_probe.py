"""Runs beside probe.py under vLLM's Python: the LoRA slots that vLLM's own manager makes for a built model."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")


class _NoKernels:
    """Stands where the kernels' metadata would: slots are made before any of it is used."""


class _AnyKernel:
    """A kernel of experts that takes adapters; which one runs changes no slot."""

    def __init__(self) -> None:
        layers = "vllm.model_executor.layers.fused_moe"
        kernels: Any = import_module(f"{layers}.modular_kernel")
        mixin: Any = import_module(f"{layers}.experts.lora_experts_mixin").LoRAExpertsMixin
        self.impl = object.__new__(kernels.FusedMoEKernelModularImpl)
        self.fused_experts = object.__new__(mixin)
        self.prepare_finalize = None

    def supports_lora(self) -> bool:
        return True


def _without_kernels(model: Any) -> None:
    """Experts are wrapped although no kernel was made for them: their weights were never loaded."""
    wrappers: Any = import_module("vllm.lora.layers.fused_moe")
    wrappers.FusedMoEModularMethod = lambda *_: None
    for module in model.modules():
        routed = getattr(module, "routed_experts", None)
        if routed is None:
            continue
        method = type(routed.quant_method)
        method.is_monolithic, method.supports_internal_mk = False, True
        routed.quant_method.moe_kernel = _AnyKernel()
        type(routed)._ensure_moe_quant_config_init = lambda _: None
        type(module)._replace_quant_method = lambda *_: None


def slots(model: Any, config: Any, device: str) -> list[list[Any]]:
    """Modules with slots: [path with `*` for indices, wrapper, how many, bytes of each over all slots].

    The model's modules are wrapped by LoRAModelManager as they are when an engine starts; nothing is loaded.
    """
    manager: Any = import_module("vllm.lora.model_manager")
    manager.get_punica_wrapper = lambda *_, **__: _NoKernels()
    _without_kernels(model)
    config.lora_config.verify_with_model_config(config.model_config)
    scheduler = config.scheduler_config
    made = manager.LoRAModelManager(
        model,
        scheduler.max_num_seqs,
        scheduler.max_num_batched_tokens,
        config.model_config.get_vocab_size(),
        config.lora_config,
        torch.device(device),
        config,
    )
    found: Counter[tuple[str, str, int]] = Counter()
    for path, module in made.modules.items():
        held = {id(part): part for part in _tensors(module)}
        size = sum(part.numel() * part.element_size() for part in held.values())
        found[(re.sub(r"\b\d+\b", "*", path), type(module).__name__, size)] += 1
    return [[path, kind, count, size] for (path, kind, size), count in found.items()]


def _tensors(module: Any) -> list[Any]:
    """A and B of every slot; the views of them that wrappers of experts and embeddings keep are left out."""
    names = [name for name in vars(module) if name.endswith(("lora_a_stacked", "lora_b_stacked"))]
    whole = [name for name in names if name.startswith(("w13_", "w2_"))] or names
    out = []
    for name in whole:
        value = getattr(module, name)
        out += list(value) if isinstance(value, tuple | list) else [value]
    return out
