"""LoRA slots: allocated at load for every module that takes adapters, at the maximum rank, used or not.

Source: vllm lora/layers/ (column_parallel_linear.py, row_parallel_linear.py, replicated_linear.py, fused_moe.py,
vocal_parallel_embedding.py, logits_processor.py), lora/model_manager.py (`_create_lora_modules`),
lora/punica_wrapper/. Held against what the engine's own manager makes, see tools/conformance.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from msgspec import Struct

from vramledger.engines.adapter_slots import SlotModule, slot_elements
from vramledger.engines.partition import VOCAB_PADDING, local_sizes
from vramledger.engines.vllm.lora_settings import LoraSettings, embedding_rows, head_rows
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import BOTH_ENDS, RankKind, is_whole, stage_repetitions
from vramledger.engines.vllm.support import class_lists
from vramledger.engines.vllm.weights import SHARED_KV_DROPPED_SINCE
from vramledger.errors import FlagError
from vramledger.models.mixers import GatedDeltaNet, KimiDeltaAttention, MixtureOfExperts
from vramledger.models.model import Model
from vramledger.models.tensors import AxisKind, Component, Role, Tensor
from vramledger.units import round_up

CUT = frozenset(
    (AxisKind.Q_HEADS, AxisKind.KV_HEADS, AxisKind.INTERMEDIATE, AxisKind.SSM_HEADS, AxisKind.SSM_GROUPS)
)
EXPERTS = {Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_GATE_UP, Role.EXPERT_DOWN}
_NO_LINEAR = {Role.EMBEDDING, Role.LM_HEAD, Role.NORM, Role.POSITION_EMBEDDING}

EXPERTS_SINCE = (11, 1)
HEAD_ON_EVERY_STAGE = frozenset(("granitemoehybrid",))
EXPERT_PRODUCTS_GONE_SINCE = 16
FUSED_INDEXER_SINCE = 20
GPT_OSS_ROUTER_SINCE = 20
VARIABLE_SLICES_SINCE = 15
"""Fused input projections of recurrent layers with three parts or more have slots since 0.15."""


class LoraBytes(Struct, frozen=True, kw_only=True):
    """Bytes of all slots on one rank, by kind of module. `vocabulary_rows` are rows that the base's own embedding
    and head get for added tokens (up to 0.11), `indices` which adapter each token belongs to."""

    linears: int
    experts: int
    vocabulary: int
    vocabulary_rows: int = 0
    indices: int = 0

    @property
    def total(self) -> int:
        """What loading takes for adapters; indices are part of it, made with the slots."""
        return self.linears + self.experts + self.vocabulary + self.vocabulary_rows + self.indices

    def of_one(self, slots: int) -> int:
        """One slot of so many."""
        return (self.linears + self.experts + self.vocabulary) // slots


def lora_bytes(model: Model, kind: RankKind, settings: Settings) -> LoraBytes:
    """Slots of one rank; nothing where adapters are not enabled.

    Raises FlagError where fully sharded slots do not divide.
    """
    lora = settings.lora
    if lora is None:
        return LoraBytes(linears=0, experts=0, vocabulary=0)
    scale = lora.slots * lora.dtype.bits // 8
    linears = slot_elements(linear_slots(model, kind, settings), lora.rank)
    experts = slot_elements(expert_slots(model, kind, settings), lora.rank)
    ends = slot_elements(vocabulary_slots(model, kind, settings), lora.rank)
    added, rows = _added_tokens(model, kind, settings, lora)
    return LoraBytes(
        linears=linears * scale,
        experts=experts * scale,
        vocabulary=ends * scale + added,
        vocabulary_rows=rows,
        indices=_indices_bytes(settings, lora),
    )


def linear_slots(model: Model, kind: RankKind, settings: Settings) -> Iterator[SlotModule]:
    """Every linear of the language model, the router's and convolutions too: a column-parallel one keeps A whole
    and shards B, a row-parallel one keeps B whole and shards A."""
    lora = settings.lora
    for tensor in model.tensors:
        if not _is_linear(tensor, model, settings) or (lora is not None and not _is_target(tensor, lora)):
            continue
        repeat = stage_repetitions(tensor, kind, tied=model.tie_word_embeddings, model_type=model.model_type)
        parts = _parts(tensor, model, settings)
        if not repeat or not parts:
            continue
        sizes = local_lora_sizes(tensor, kind, settings)
        a_ways, b_ways = _sharded(tensor, settings)
        yield SlotModule(
            name=tensor.module,
            repeat=repeat,
            parts=parts,
            d_in=prod(sizes[1:]),
            d_out=_divided(sizes[0], b_ways, tensor),
            a_ways=a_ways,
        )


def expert_slots(model: Model, kind: RankKind, settings: Settings) -> Iterator[SlotModule]:
    """Experts since 0.11.1: an A and a B of each projection for every local expert."""
    lora = settings.lora
    if not settings.version.since(*EXPERTS_SINCE):
        return
    if lora is not None and lora.targets is not None and "experts" not in lora.targets:
        return
    stacks = class_lists("lora_stacks", model.architecture, settings.version)
    for tensor in model.tensors:
        if tensor.role not in EXPERTS or tensor.component is not Component.DECODER or len(tensor.shape) != 3:
            continue
        repeat = stage_repetitions(tensor, kind, tied=model.tie_word_embeddings, model_type=model.model_type)
        if not repeat:
            continue
        count, first, second = local_lora_sizes(tensor, kind, settings)
        is_down = tensor.role is Role.EXPERT_DOWN
        is_turned = (tensor.axes[1][0].kind is AxisKind.HIDDEN) is not is_down  # stored as [in, out]
        out, inp = (second, first) if is_turned else (first, second)
        ways = settings.plan.tp if lora is not None and lora.fully_sharded else 1
        yield SlotModule(
            name=tensor.module,
            repeat=repeat,
            parts=2 if tensor.role is Role.EXPERT_GATE_UP and not stacks else 1,
            d_in=inp,
            d_out=_divided(out, ways if is_down else 1, tensor),
            experts=count,
            a_ways=1 if is_down else ways,
        )


def vocabulary_slots(model: Model, kind: RankKind, settings: Settings) -> Iterator[SlotModule]:
    """Embedding and head of the classes that give them slots; both cover the full vocabulary on every rank."""
    lora = settings.lora
    if lora is None:
        return
    width, version = model.hidden_size, settings.version
    everywhere = model.model_type in BOTH_ENDS
    tied = kind.is_last and model.tie_word_embeddings
    if (kind.is_first or tied or everywhere) and takes_end(model, settings, "lora_embedding"):
        rows = embedding_rows(model.vocab_size, lora)
        yield SlotModule(name="embed_tokens", repeat=1, parts=1, d_in=rows, d_out=width)
    if (kind.is_last or everywhere or model.model_type in HEAD_ON_EVERY_STAGE) and takes_end(
        model, settings, "lora_head"
    ):
        rows = head_rows(model.vocab_size, lora, version)
        yield SlotModule(name="lm_head", repeat=1, parts=1, d_in=width, d_out=rows)


def takes_end(model: Model, settings: Settings, section: str) -> bool:
    """Whether the class, or the text model inside it, gives its embedding or its head slots; a class of which
    no release tells does."""
    name = model.architecture
    lora = settings.lora
    if lora is not None and lora.targets is not None:
        wanted = "embed_tokens" if section == "lora_embedding" else "lm_head"
        if wanted not in lora.targets:
            return False
    own = class_lists(section, name, settings.version)
    if own is not False or not model.towers:
        return own is not False
    inner = _INNER.get(name, name.replace("ForConditionalGeneration", "ForCausalLM"))
    return class_lists(section, inner, settings.version) is not False


# Text models of classes whose name does not tell (the module of each class, `init_vllm_registered_model`).
_INNER = {
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
}


def _added_tokens(model: Model, kind: RankKind, settings: Settings, lora: LoraSettings) -> tuple[int, int]:
    """Up to 0.11: embeddings of added tokens in every slot, and rows for them in the base's own tables."""
    if not lora.extra_vocab:
        return 0, 0
    element, width, tp = settings.dtype.bits // 8, model.hidden_size, settings.plan.tp
    added = rows = 0
    plain = round_up(model.vocab_size, VOCAB_PADDING)
    if kind.is_first and takes_end(model, settings, "lora_embedding"):
        added += lora.slots * lora.extra_vocab * width
        rows += round_up(plain + lora.slots * lora.extra_vocab, VOCAB_PADDING) - plain
    if kind.is_last and takes_end(model, settings, "lora_head"):
        added += lora.slots * lora.extra_vocab * width
        if not model.tie_word_embeddings:
            rows += head_rows(model.vocab_size, lora, settings.version) - plain
    return added * element, rows // tp * width * element


def _indices_bytes(settings: Settings, lora: LoraSettings) -> int:
    """Which slot each token, sequence and sampled row belongs to: int64 for the wrapper's own four and three
    vectors, int32 twice for each of the two of its kernels (punica_base.py, lora_kernel_metadata.py)."""
    tokens, seqs = round_up(settings.max_tokens, 8), settings.max_num_seqs
    kernels = 2 * (2 * tokens + 3 * lora.slots + 4) * 4 if settings.v1 else 0
    return 8 * (4 * tokens + 3 * seqs) + kernels


def lora_transients(model: Model, settings: Settings) -> tuple[tuple[str, int], ...]:
    """What a forward holds for adapters while it runs a module: fp32 products of A for each part of a fused
    projection; for experts the products of A for every routed row, up to 0.15 those of B too, and the order of rows
    by adapter (punica_gpu.py add_lora_linear, ops/triton_ops/fused_moe_lora_op.py, moe_lora_align_block_size)."""
    lora = settings.lora
    if lora is None:
        return ()
    tokens = settings.max_tokens
    parts = 3 if any(tensor.role is Role.V for tensor in model.tensors) else 2
    out = [("LoRA products", parts * tokens * lora.rank * 4)]
    if model.is_moe and settings.version.since(*EXPERTS_SINCE):
        mixers = {
            layer.channel_mixer for layer in model.layers if isinstance(layer.channel_mixer, MixtureOfExperts)
        }
        element = lora.dtype.bits // 8
        routed = max(tokens * mixer.top_k for mixer in mixers)
        size = 2 * routed * lora.rank * element
        if not settings.version.since(EXPERT_PRODUCTS_GONE_SINCE):
            size += (
                max(2 * tokens * mixer.top_k * mixer.intermediate for mixer in mixers)
                * element
                // settings.plan.tp
            )
        size += lora.slots * max(tokens * mixer.top_k + mixer.num_experts * 63 for mixer in mixers) * 4
        out.append(("LoRA products of experts", size))
    return tuple(out)


def local_lora_sizes(tensor: Tensor, kind: RankKind, settings: Settings) -> list[int]:
    """The local shape of a matrix with slots."""
    if is_whole(tensor, settings.model_type, settings.version):
        return list(tensor.shape)
    return local_sizes(tensor, kind.cuts)


def _is_linear(tensor: Tensor, model: Model, settings: Settings) -> bool:
    """Matrices that are linear layers of the language model (an encoder-decoder's encoder too)."""
    if tensor.component not in (Component.DECODER, Component.ENCODER) or tensor.num_experts:
        return False
    if len(tensor.shape) < 2 or not tensor.name.endswith(".weight") or tensor.role in _NO_LINEAR:
        return False
    if not tensor.parameter and settings.version.since(SHARED_KV_DROPPED_SINCE):
        return False
    if tensor.role is Role.INDEXER:
        fused = model.model_type != "deepseek_v4" and settings.version.since(FUSED_INDEXER_SINCE)
        return not fused or tensor.name.endswith("wq_b.weight")
    if tensor.role is Role.ROUTER:
        plain_torch = model.model_type == "gpt_oss" and not settings.version.since(GPT_OSS_ROUTER_SINCE)
        return not plain_torch and not _has_plain_experts(model)
    return tensor.linear or tensor.role is Role.SSM_CONV or (tensor.role is Role.SSM_PARAM and tensor.linear)


def _has_plain_experts(model: Model) -> bool:
    """Experts without a gate, whose router takes no adapters (model_manager.py, `_is_non_gated_moe`)."""
    return any(
        isinstance(layer.channel_mixer, MixtureOfExperts) and not layer.channel_mixer.gated
        for layer in model.layers
    )


def _is_target(tensor: Tensor, lora: LoraSettings) -> bool:
    """`--lora-target-modules` names modules by the end of their path, fused or apart."""
    if lora.targets is None:
        return True
    end = tensor.module.rpartition(".")[2]
    return end in lora.targets or _FUSED.get(tensor.role, "") in lora.targets


_FUSED = {
    Role.Q: "qkv_proj", Role.K: "qkv_proj", Role.V: "qkv_proj", Role.GATE: "gate_up_proj", Role.UP: "gate_up_proj",
}  # fmt: skip


def _parts(tensor: Tensor, model: Model, settings: Settings) -> int:
    """A matrices of a module: one, or where a recurrent layer's fused projection has three parts or more that
    many; 0 where a version or full sharding leaves it without slots. Gated delta layers keep their convolution,
    and a projection that interleaves its parts, as one (models/qwen3_next.py); so does a Mamba-2 layer whose groups the ranks do not
    divide (layers/mamba/mamba_mixer2.py)."""
    pieces = len(tensor.axes[0])
    if tensor.role not in (Role.SSM_IN, Role.SSM_CONV) or pieces < 3:
        return 1
    if tensor.name.endswith("in_proj_qkvz.weight"):
        return 1
    if tensor.role is Role.SSM_CONV and model.has_mixer((GatedDeltaNet, KimiDeltaAttention)):
        return 1
    if any(part.kind is AxisKind.SSM_GROUPS and part.units % settings.plan.tp for part in tensor.axes[0]):
        return 1
    if not settings.version.since(VARIABLE_SLICES_SINCE):
        return 0
    return 0 if settings.lora is not None and settings.lora.fully_sharded else pieces


def _sharded(tensor: Tensor, settings: Settings) -> tuple[int, int]:
    """Into how many parts full sharding cuts A's rows and B's rows."""
    lora, tp = settings.lora, settings.plan.tp
    if lora is None or not lora.fully_sharded or tp == 1:
        return 1, 1
    if any(part.kind in CUT for part in tensor.axes[0]):
        if lora.rank % tp:
            raise FlagError(
                f"--fully-sharded-loras: rank {lora.rank} does not divide by --tensor-parallel-size {tp}",
                flag="fully_sharded_loras",
                value=lora.rank,
            )
        return tp, 1
    return (1, tp) if any(part.kind in CUT for part in tensor.axes[1]) else (1, 1)


def _divided(size: int, ways: int, tensor: Tensor) -> int:
    if size % ways:
        raise FlagError(
            f"--fully-sharded-loras: {size} outputs of {tensor.module} do not divide by {ways}",
            flag="fully_sharded_loras",
            value=size,
        )
    return size // ways
