"""The questions: kinds of model, context, slots, ubatch, cache types, flash attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from vramledger.engines.llamacpp.flags import LlamaFlags


class Case(Struct, frozen=True, kw_only=True):
    """One question; `model` is a folder of the packed configs."""

    model: str
    kind: str
    flags: LlamaFlags

    @property
    def name(self) -> str:
        flags = self.flags
        parts = [
            self.model.partition("__")[2],
            flags.ftype or "",
            f"c{flags.ctx_size}",
            f"np{flags.parallel}",
        ]
        parts += ["kvu"] if flags.kv_unified else []
        parts += [f"ub{flags.ubatch_size}"] if flags.ubatch_size else []
        parts += [f"out{flags.n_outputs_max}"] if flags.n_outputs_max else []
        parts += [f"k-{flags.cache_type_k}"] if flags.cache_type_k else []
        parts += [f"v-{flags.cache_type_v}"] if flags.cache_type_v else []
        parts += ["swa-full"] if flags.swa_full else []
        parts += ["fa-off"] if flags.flash_attn == "off" else []
        return " ".join(parts)


_MODELS = (
    ("meta-llama__Llama-3.1-8B-Instruct", "dense GQA", "Q4_K_M"),
    ("meta-llama__Llama-3.2-1B-Instruct", "dense GQA, tied", "Q8_0"),
    ("meta-llama__Llama-2-7b-chat-hf", "dense MHA", "Q4_0"),
    ("Qwen__Qwen2.5-7B-Instruct", "dense GQA, biases", "Q5_K_M"),
    ("Qwen__Qwen3-4B", "dense GQA, QK norms", "Q6_K"),
    ("microsoft__Phi-3-mini-4k-instruct", "dense MHA, fused", "Q4_K_S"),
    ("zai-org__GLM-4-9B-0414", "dense GQA, sandwich norms", "Q4_K_M"),
    ("CohereForAI__c4ai-command-r-v01", "dense, parallel", "Q3_K_M"),
    ("allenai__OLMo-2-1124-7B", "dense MHA, norms after", "IQ4_XS"),
    ("google__gemma-2-9b-it", "windows", "Q4_K_M"),
    ("google__gemma-3-12b-it", "windows", "Q4_0"),
    ("google__gemma-3n-E2B-it", "windows, shared KV", "Q8_0"),
    ("google__gemma-4-E4B-it", "windows, shared KV", "Q4_K_M"),
    ("google__gemma-4-26B-A4B-it", "windows, MoE", "Q6_K"),
    ("CohereLabs__c4ai-command-r7b-12-2024", "windows, parallel", "Q5_K_S"),
    ("huihui-ai__Huihui-gpt-oss-20b-mxfp4-abliterated-v2", "windows, MoE, sinks", "Q8_0"),
    ("meta-llama__Llama-4-Scout-17B-16E-Instruct", "chunks, MoE", "Q2_K"),
    ("Qwen__Qwen3-30B-A3B", "MoE", "Q4_K_M"),
    ("deepseek-ai__DeepSeek-V2-Lite-Chat", "MLA, MoE", "Q4_K_M"),
    ("deepseek-ai__DeepSeek-V3", "MLA, MoE", "IQ2_XXS"),
    ("mistralai__Mamba-Codestral-7B-v0.1", "Mamba-2", "Q8_0"),
    ("state-spaces__mamba-1.4b-hf", "Mamba", "F16"),
    ("ai21labs__AI21-Jamba-Mini-1.7", "Mamba hybrid, MoE", "Q4_K_M"),
    ("ibm-granite__granite-4.0-h-tiny", "Mamba-2 hybrid, MoE", "Q4_K_M"),
    ("nvidia__NVIDIA-Nemotron-Nano-9B-v2", "Mamba-2 hybrid", "Q5_K_M"),
    ("tiiuae__Falcon-H1-0.5B-Instruct", "Mamba-2 beside attention", "Q8_0"),
    ("LiquidAI__LFM2-1.2B", "convolution hybrid", "Q6_K"),
    ("LiquidAI__LFM2-8B-A1B", "convolution hybrid, MoE", "Q4_0"),
    ("Qwen__Qwen3-Next-80B-A3B-Instruct", "delta-net hybrid, MoE", "Q4_K_M"),
    ("Qwen__Qwen3.5-9B", "delta-net hybrid", "Q4_K_M"),
)  # fmt: skip

_OTHERS = (
    ("mistralai__Mixtral-8x7B-Instruct-v0.1", "MoE", "Q4_K_M"),
    ("zai-org__GLM-4.5-Air", "MoE, biases", "Q4_K_M"),
    ("MiniMaxAI__MiniMax-M2", "MoE", "Q3_K_S"),
    ("rednote-hilab__dots.llm1.inst", "MoE, shared experts", "Q4_0"),
    ("baidu__ERNIE-4.5-21B-A3B-PT", "MoE, shared experts", "Q5_0"),
    ("tencent__Hunyuan-A13B-Instruct", "MoE, shared experts", "IQ3_S"),
    ("allenai__OLMoE-1B-7B-0924", "MoE", "Q4_1"),
    ("moonshotai__Moonlight-16B-A3B-Instruct", "MLA, MoE", "Q6_K"),
    ("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Mamba-2 hybrid, MoE", "Q4_K_M"),
    ("ibm-ai-platform__Bamba-9B-v2", "Mamba-2 hybrid", "Q4_K_M"),
    ("ibm-granite__granite-4.0-h-micro", "Mamba-2 hybrid", "Q8_0"),
    ("ibm-granite__granite-3.1-8b-instruct", "dense GQA, scaled", "Q4_K_M"),
    ("ByteDance-Seed__Seed-OSS-36B-Instruct", "dense GQA", "Q4_K_M"),
    ("tencent__Hunyuan-7B-Instruct", "dense GQA", "IQ4_NL"),
    ("LGAI-EXAONE__EXAONE-3.5-7.8B-Instruct", "dense GQA", "Q5_K_M"),
    ("Qwen__Qwen2.5-VL-7B-Instruct", "dense GQA, four positions", "Q4_K_M"),
    ("Qwen__Qwen3-VL-30B-A3B-Instruct", "MoE, four positions", "Q4_K_M"),
    ("internlm__internlm2-chat-7b", "dense GQA", "Q4_K_M"),
    ("baichuan-inc__Baichuan2-7B-Chat", "dense MHA", "Q5_1"),
    ("Qwen__Qwen-7B-Chat", "dense MHA, fused", "Q4_K_M"),
    ("zai-org__chatglm3-6b", "dense MQA, fused", "Q4_0"),
    ("microsoft__phi-2", "dense, parallel", "Q8_0"),
    ("tiiuae__falcon-7b", "dense MQA, parallel", "Q4_0"),
    ("EleutherAI__gpt-neox-20b", "dense, parallel", "Q4_0"),
    ("bigcode__starcoder2-7b", "dense GQA", "Q4_K_M"),
    ("stabilityai__stablelm-2-zephyr-1_6b", "dense MHA", "Q8_0"),
    ("bigscience__bloom-7b1", "dense MHA", "Q4_0"),
    ("mosaicml__mpt-7b-instruct", "dense MHA, fused", "Q4_0"),
    ("openai-community__gpt2-xl", "dense MHA", "F16"),
    ("allenai__OLMo-7B-hf", "dense MHA", "Q4_K_M"),
    ("allenai__Olmo-3-7B-Instruct", "windows, norms after", "Q4_K_M"),
    ("nvidia__Llama-3_3-Nemotron-Super-49B-v1", "layers without attention", "Q4_K_M"),
)  # fmt: skip

_COMMON: tuple[dict[str, Any], ...] = (
    {"ctx_size": 8192, "parallel": 1},
    {"ctx_size": 10000, "parallel": 4, "n_outputs_max": 4},
    {"ctx_size": 16384, "parallel": 2, "flash_attn": "off", "n_outputs_max": 2},
)
_MORE: dict[str, tuple[dict[str, Any], ...]] = {
    "meta-llama__Llama-3.1-8B-Instruct": (
        {"ctx_size": 8192, "parallel": 1, "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
        {"ctx_size": 8192, "parallel": 1, "cache_type_k": "q4_0", "cache_type_v": "q4_0"},
        {"ctx_size": 8192, "parallel": 1, "cache_type_k": "q5_1", "cache_type_v": "iq4_nl"},
        {"ctx_size": 8192, "parallel": 1, "cache_type_k": "f32", "cache_type_v": "bf16"},
        {"ctx_size": 131072, "parallel": 4, "kv_unified": True, "n_outputs_max": 4},
        {"ctx_size": 131072, "parallel": 4, "n_outputs_max": 4},
        {"ctx_size": 131072, "parallel": 1, "flash_attn": "off"},
        {"ctx_size": 8192, "parallel": 1, "batch_size": 2048, "ubatch_size": 2048},
        {"ctx_size": 8192, "parallel": 3, "batch_size": 64, "ubatch_size": 64},
        {"ctx_size": 300, "parallel": 1},
    ),
    "google__gemma-3-12b-it": (
        {"ctx_size": 32768, "parallel": 1, "swa_full": True},
        {"ctx_size": 32768, "parallel": 4, "kv_unified": True, "n_outputs_max": 4},
        {"ctx_size": 131072, "parallel": 1, "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    ),
    "huihui-ai__Huihui-gpt-oss-20b-mxfp4-abliterated-v2": (
        {"ctx_size": 131072, "parallel": 4, "kv_unified": True, "n_outputs_max": 4},
        {"ctx_size": 131072, "parallel": 1, "ubatch_size": 2048},
    ),
    "deepseek-ai__DeepSeek-V3": (
        {"ctx_size": 32768, "parallel": 1, "n_outputs_max": 1},
        {"ctx_size": 32768, "parallel": 1, "flash_attn": "off"},
    ),
    "mistralai__Mamba-Codestral-7B-v0.1": ({"ctx_size": 8192, "parallel": 16, "n_outputs_max": 16},),
    "Qwen__Qwen3-Next-80B-A3B-Instruct": ({"ctx_size": 262144, "parallel": 8, "n_outputs_max": 8, "ubatch_size": 1024},),
    "Qwen__Qwen3-30B-A3B": ({"ctx_size": 32768, "parallel": 1, "n_outputs_max": 1, "cache_type_k": "q8_0"},),
    "tiiuae__Falcon-H1-0.5B-Instruct": ({"ctx_size": 65536, "parallel": 4, "kv_unified": True, "n_outputs_max": 4},),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """Every question, models in the order of their kinds."""
    for model, kind, file_type in _MODELS:
        for values in (*_COMMON, *_MORE.get(model, ())):
            yield Case(model=model, kind=kind, flags=LlamaFlags(**values, ftype=file_type))
    for model, kind, file_type in _OTHERS:
        yield Case(model=model, kind=kind, flags=LlamaFlags(**_COMMON[1], ftype=file_type))
