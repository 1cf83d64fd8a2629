"""Which of llama.cpp's architectures a model is, and what llama.cpp makes of it that its config does not say.

Source: llama.cpp src/llama-arch.cpp (names), src/models/*.cpp (windows, gates, residuals), conversion/.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from vramledger.errors import UnknownArchitecture
from vramledger.models.model import Model

# Builds from which an architecture loads; 0 where every build covered here has it.
_SINCE = {
    "qwen3": 5092, "qwen3moe": 5092, "gemma3": 4875, "gemma3n": 5757, "gemma4": 8680, "gpt-oss": 6096,
    "llama4": 5074, "glm4": 5024, "glm4moe": 6085, "lfm2": 5872, "lfm2moe": 6696, "falcon-h1": 5844,
    "granitehybrid": 5844, "nemotron_h": 6306, "jamba": 5844, "mamba2": 5824, "qwen3next": 7180, "qwen35": 7990,
    "qwen35moe": 7990, "kimi-linear": 7950, "deepseek32": 9000, "seed_oss": 6255, "smollm3": 5856,
}  # fmt: skip


class Architecture(Struct, frozen=True, kw_only=True):
    """llama.cpp's view of one kind of model.

    `name` is general.architecture. `windows` tells whether its sliding windows have caches of their own;
    `graph` which graph is built ("" where its scratch is only bounded, see `compute`).
    """

    name: str
    windows: bool = False
    graph: str = "transformer"
    since: int = 0

    @property
    def head_first(self) -> bool:
        """Whether the head is made before the table it is tied to, so that the host holds both."""
        return self.name in ("gemma3n", "gemma4")


def _plain(
    *model_types: str, name: str = "", windows: bool = False, graph: str = "transformer"
) -> dict[str, Architecture]:
    return {
        kind: Architecture(name=name or kind, windows=windows, graph=graph, since=_SINCE.get(name or kind, 0))
        for kind in model_types
    }


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        **_plain(
            "llama",
            "mistral",
            "mixtral",
            "internlm3",
            "yi",
            "llava",
            "llava_llama",
            "llava_next",
            "pixtral",
            "mistral3",
            "ministral3",
            name="llama",
        ),
        **_plain("qwen2", "qwen3", "olmoe", "smollm3", "granite", "exaone", "arcee", "refact"),
        **_plain("qwen2_moe", name="qwen2moe"),
        **_plain("qwen3_moe", name="qwen3moe"),
        **_plain("qwen2_vl", "qwen2_5_vl", name="qwen2vl"),
        **_plain("qwen3_vl", name="qwen3vl"),
        **_plain("qwen3_vl_moe", "qwen3_vl_moe_text", name="qwen3vlmoe"),
        **_plain("internlm2"),
        **_plain("seed_oss"),
        **_plain("granitemoe", name="granitemoe"),
        **_plain("gemma", name="gemma"),
        **_plain("gemma2", name="gemma2", windows=True),
        **_plain("gemma3", "gemma3_text", name="gemma3", windows=True),
        **_plain("gemma3n", "gemma3n_text", name="gemma3n", windows=True, graph="gemma3n"),
        **_plain("gemma4", "gemma4_text", "gemma4_unified", name="gemma4", windows=True, graph="gemma4"),
        **_plain("gpt_oss", name="gpt-oss", windows=True),
        **_plain("llama4", "llama4_text", name="llama4", windows=True),
        **_plain("cohere", name="command-r", graph="parallel"),
        **_plain("cohere2", name="cohere2", windows=True, graph="parallel"),
        **_plain("olmo2", "olmo3", name="olmo2", windows=True),
        **_plain("exaone4", name="exaone4", windows=True),
        **_plain("phi3", name="phi3"),
        **_plain("phimoe", name="phimoe"),
        **_plain("glm4", name="glm4"),
        **_plain("glm4_moe", name="glm4moe"),
        **_plain("dots1", name="dots1"),
        **_plain("ernie4_5", name="ernie4_5"),
        **_plain("ernie4_5_moe", name="ernie4_5-moe"),
        **_plain("minimax_m2", name="minimax-m2"),
        **_plain("hunyuan_v1_dense", name="hunyuan-dense"),
        **_plain("hunyuan_v1_moe", name="hunyuan-moe"),
        **_plain("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite", name="deepseek2"),
        **_plain("minicpm", name="minicpm"),
        **_plain("stablelm", name="stablelm"),
        **_plain("starcoder2", name="starcoder2"),
        **_plain("gpt_bigcode", name="starcoder"),
        **_plain("phi", name="phi2", graph="parallel"),
        **_plain("falcon", name="falcon", graph="parallel"),
        **_plain("gpt_neox", name="gptneox", graph="parallel"),
        **_plain("gpt2"),
        **_plain("bloom"),
        **_plain("mpt"),
        **_plain("olmo"),
        **_plain("nemotron"),
        **_plain("baichuan", "internlm", name="llama"),
        **_plain("chatglm", name="chatglm"),
        **_plain("qwen", name="qwen"),
        **_plain("nemotron-nas", name="deci"),
        **_plain("mamba"),
        **_plain("mamba2"),
        **_plain("jamba"),
        **_plain("bamba", "granitemoehybrid", name="granitehybrid"),
        **_plain("falcon_h1", name="falcon-h1"),
        **_plain("nemotron_h", name="nemotron_h"),
        **_plain("lfm2", "lfm2_vl", name="lfm2"),
        **_plain("lfm2_moe", name="lfm2moe"),
        **_plain("qwen3_next", name="qwen3next"),
        **_plain("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", name="qwen35"),
        **_plain("kimi_linear", name="kimi-linear", graph=""),
        **_plain("xlm-roberta", name="bert", graph=""),
        **_plain("rwkv", "rwkv5", name="rwkv6", graph=""),
        **_plain("plamo2", graph=""),
        **_plain("internvl", "internvl_chat", "qwen2_audio", name="qwen2"),
        **_plain("glm4v", name="glm4"),
        **_plain("glm", name="chatglm"),
        **_plain("apertus", graph=""),
        **_plain("minicpm3", graph=""),
        **_plain("laguna", windows=True, graph=""),
        **_plain("mimo_v2_flash", name="mimo2", windows=True, graph=""),
        **_plain("exaone_moe", name="exaone-moe", windows=True, graph=""),
        **_plain("deepseek_v32", name="deepseek32", graph=""),
        **_plain("glm_moe_dsa", name="glm-dsa", graph=""),
    }
)


def architecture_of(model: Model) -> Architecture:
    """llama.cpp's architecture for a described model.

    Raises UnknownArchitecture for a model type that llama.cpp has none for here.
    """
    found = ARCHITECTURES.get(model.model_type)
    if found is None:
        raise UnknownArchitecture(
            f"llama.cpp has no rules here for the model type {model.model_type!r}; known: "
            + ", ".join(sorted(ARCHITECTURES)),
            model_type=model.model_type,
        )
    if found.name == "qwen35" and model.is_moe:
        return Architecture(name="qwen35moe", graph=found.graph, since=found.since)
    if found.name == "nemotron_h" and model.is_moe:
        return Architecture(name="nemotron_h_moe", graph=found.graph, since=found.since)
    if found.name == "granite" and model.is_moe:
        return Architecture(name="granitemoe", graph=found.graph)
    return found
