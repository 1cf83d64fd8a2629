"""What transformers' own tensor-parallel plans cut.

Source: `base_model_tp_plan` of the configuration classes of transformers 5.23, and the head's plan of the causal
classes (the head is cut, the embedding is not).
"""

from __future__ import annotations

from vramledger.engines.partition import Cuts, local_sizes
from vramledger.errors import FlagError
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Role, Tensor

ATTENTION, MLP, EXPERTS, SHARED = "attention", "mlp", "experts", "shared"
_DENSE = frozenset({ATTENTION, MLP})
_SPARSE = _DENSE | {EXPERTS}
_ALL = _SPARSE | {SHARED}
_PLANS: dict[frozenset[str], tuple[str, ...]] = {
    _DENSE: (
        "apertus", "arcee", "nemotron", "cohere", "cohere2", "ernie4_5", "gemma", "gemma2", "internlm3", "llama",
        "ministral3", "mistral", "olmo", "qwen2", "qwen2_5_vl", "qwen2_vl", "seed_oss", "smollm3", "exaone4", "gemma3",
        "gemma3_text", "gemma4_unified", "qwen3", "gemma3n", "gemma3n_text", "glm", "glm4", "glm4v", "gpt_neox",
        "olmo2", "olmo3", "phi", "phi3", "starcoder2",
    ),
    _SPARSE: (
        "exaone_moe", "qwen3_moe", "gemma4", "gemma4_text", "mimo_v2_flash", "qwen2_moe", "qwen3_vl_moe",
        "qwen3_vl_moe_text",
    ),
    _ALL: ("dots1", "hy_v3", "ernie4_5_moe", "glm4_moe", "laguna", "llama4", "llama4_text"),
    frozenset({ATTENTION, EXPERTS}): ("minimax", "mixtral", "minimax_m2", "olmoe"),
    frozenset({EXPERTS}): ("hunyuan_v1_moe", "phimoe", "granitemoe"),
}  # fmt: skip
_CUT_BY_TYPE = {model_type: parts for parts, types in _PLANS.items() for model_type in types}
# Plans without a line for both k_proj and v_proj: the cache keeps all KV heads on every rank.
_KV_WHOLE = frozenset({"gpt_neox", "phi3"})


def cut_parts(model: Model, tp_size: int) -> frozenset[str]:
    """The parts of a model that `tp_plan="auto"` cuts. Raises FlagError for a model class without a plan."""
    if tp_size == 1:
        return frozenset()
    found = _CUT_BY_TYPE.get(model.model_type)
    if found is None:
        raise FlagError(
            f"transformers has no tensor-parallel plan for {model.model_type}, so --tp-size {tp_size} does nothing for it",
            flag="tp_size",
            value=tp_size,
        )
    return found


def cuts(parts: frozenset[str], tp_size: int) -> Cuts:
    """The plan as cuts of one rank; no row is padded."""

    def ways(part: str) -> int:
        return tp_size if part in parts else 1

    return Cuts(
        attention=ways(ATTENTION),
        dense=ways(MLP),
        shared=ways(SHARED),
        expert_width=ways(EXPERTS),
        vocab=tp_size,
        vocab_padding=1,
        towers=None,
        flag="tp_size",
    )


def sizes_of(tensor: Tensor, plan: Cuts) -> list[int]:
    """Local shape: embeddings are whole, the head's rows are cut with the last rank short."""
    vocab = any(part.kind is AxisKind.VOCAB for axis in tensor.axes for part in axis)
    if tensor.role is Role.EMBEDDING:
        return list(tensor.shape)
    if vocab and tensor.role is Role.LM_HEAD:
        rows, *others = tensor.shape
        return [-(-rows // plan.vocab), *others]
    return local_sizes(tensor, plan)


def kv_heads_held(model: Model, kv_heads: int, tp_size: int) -> int:
    """KV heads of one rank's cache. Raises FlagError where they do not divide."""
    if tp_size == 1 or ATTENTION not in cut_parts(model, tp_size) or model.model_type in _KV_WHOLE:
        return kv_heads
    if kv_heads % tp_size:
        raise FlagError(
            f"{kv_heads} KV heads of the model do not divide by --tp-size {tp_size}",
            flag="tp_size",
            value=tp_size,
        )
    return kv_heads // tp_size
