"""LoRA slots: allocated at load for every supported module at the maximum rank, used or not.

Source: vllm lora/layers/ (column_parallel_linear.py, row_parallel_linear.py, fused_moe.py,
vocal_parallel_embedding.py, logits_processor.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from vramledger.engines.partition import local_part
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind, stage_repetitions
from vramledger.models.model import Model
from vramledger.models.tensors import Component, Role, Tensor

COLUMN = {
    Role.Q, Role.K, Role.V, Role.QKV, Role.Q_B, Role.KV_B, Role.GATE, Role.UP, Role.GATE_UP,
    Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_GATE_UP, Role.SSM_IN,
}  # fmt: skip
ROW = {Role.O, Role.DOWN, Role.SHARED_DOWN, Role.SSM_OUT}
EXPERTS = {Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_GATE_UP, Role.EXPERT_DOWN}


class LoraBytes(Struct, frozen=True, kw_only=True):
    """Bytes of all slots on one rank, by kind of module."""

    linears: int
    experts: int
    vocabulary: int

    @property
    def total(self) -> int:
        return self.linears + self.experts + self.vocabulary


def adapter_elements(d_out: int, d_in: int, rank: int) -> int:
    """Elements of one adapter on a [d_out, d_in] matrix: B of [d_out, rank] and A of [rank, d_in]."""
    return rank * (d_in + d_out)


def lora_bytes(model: Model, kind: RankKind, settings: Settings) -> LoraBytes:
    """Slots of one rank. A column-parallel module keeps A whole and shards B, a row-parallel one keeps B
    whole and shards A; `fully_sharded_loras` shards both. Heads and embeddings cover the full vocabulary."""
    flags, plan = settings.flags, settings.plan
    element = settings.dtype.bits // 8
    slots, rank = flags.max_loras, flags.max_lora_rank
    shard = plan.tp if flags.fully_sharded_loras else 1
    linears = experts = vocabulary = 0
    for tensor in _adaptable(model.tensors):
        repeat = stage_repetitions(tensor, kind, tied=model.tie_word_embeddings, model_type=model.model_type)
        if not repeat:
            continue
        if tensor.role in EXPERTS:
            count, out, inp = (_local(tensor, index, kind) for index in range(3))
            parts = len(tensor.axes[1])
            experts += repeat * count * rank * (out + parts * inp)
        elif tensor.role in COLUMN:
            out, inp = _local(tensor, 0, kind), _local(tensor, 1, kind)
            linears += repeat * rank * (out + len(tensor.axes[0]) * inp // shard)
        else:
            out, inp = _local(tensor, 0, kind), _local(tensor, 1, kind)
            linears += repeat * rank * (out // shard + inp)
    rows = model.vocab_size if settings.version.since(12) else model.vocab_size + EXTRA_VOCAB
    if kind.is_first:
        vocabulary += rank * (rows + model.hidden_size)
    if kind.is_last:
        vocabulary += rank * (rows + model.hidden_size)
    scale = slots * element
    return LoraBytes(linears=linears * scale, experts=experts * scale, vocabulary=vocabulary * scale)


EXTRA_VOCAB = 256  # lora_extra_vocab_size, gone from 0.12 on


def _adaptable(tensors: Iterable[Tensor]) -> Iterable[Tensor]:
    """Linears of the language model that adapters may attach to."""
    for tensor in tensors:
        wanted = tensor.role in COLUMN or tensor.role in ROW or tensor.role in EXPERTS
        if tensor.component is Component.DECODER and tensor.linear and wanted:
            yield tensor


def _local(tensor: Tensor, axis: int, kind: RankKind) -> int:
    return sum(local_part(part, tensor, kind.cuts) for part in tensor.axes[axis])
