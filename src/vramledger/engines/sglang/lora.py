"""The LoRA pool: a slot of the largest rank for every adapter of a batch, whatever is loaded.

Source: sglang srt/lora/mem_pool.py (`get_lora_A_shape`, `get_lora_B_shape`), lora/utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.engines.adapter_slots import SlotModule, slot_elements
from vramledger.engines.partition import local_sizes, repetitions
from vramledger.engines.sglang.flags import NORMALISED
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.sharding import RankKind
from vramledger.models.model import Model
from vramledger.models.tensors import Component, Role, Tensor

_MODULES = {
    "qkv_proj": (Role.Q, Role.K, Role.V, Role.QKV),
    "o_proj": (Role.O,),
    "gate_up_proj": (
        Role.GATE, Role.UP, Role.GATE_UP, Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_GATE_UP,
        Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_GATE_UP,
    ),
    "down_proj": (Role.DOWN, Role.SHARED_DOWN, Role.EXPERT_DOWN),
}  # fmt: skip


def lora_bytes(model: Model, kind: RankKind, settings: Settings) -> int:
    """Bytes of the pool on one rank: A of [slots, parts x rank, in], B of [slots, out, rank] for each layer and target
    module; row-parallel modules cut A's input, column-parallel ones B's output."""
    rank = settings.flags.max_lora_rank or 0
    elements = slot_elements(_modules(model, kind, settings), rank)
    return settings.flags.max_loras_per_batch * settings.dtype.bytes_for(elements)


def _modules(model: Model, kind: RankKind, settings: Settings) -> Iterator[SlotModule]:
    wanted = _targets(settings)
    roles = {role for name in wanted for role in _MODULES.get(name, ())}
    for tensor in model.tensors:
        if tensor.component is not Component.DECODER or not tensor.linear:
            continue
        repeat = repetitions(tensor, kind, tied=model.tie_word_embeddings)
        if (repeat and tensor.role in roles) or (
            repeat and tensor.role is Role.LM_HEAD and "lm_head" in wanted
        ):
            yield _module(tensor, repeat, kind)
    if "embed_tokens" in wanted and kind.is_first:
        yield SlotModule(
            name="embed_tokens", repeat=1, parts=1, d_in=model.vocab_size, d_out=model.hidden_size
        )


def _module(tensor: Tensor, repeat: int, kind: RankKind) -> SlotModule:
    sizes = local_sizes(tensor, kind.cuts_of(tensor))
    experts = sizes.pop(0) if tensor.num_experts else 1
    parts = len(tensor.axes[-2])
    return SlotModule(
        name=tensor.module, repeat=repeat, parts=parts, d_in=sizes[1], d_out=sizes[0], experts=experts
    )  # fmt: skip


def _targets(settings: Settings) -> set[str]:
    names = {NORMALISED.get(name, name) for name in settings.flags.lora_target_modules}
    return set(_MODULES) | (names - {"all"}) if "all" in names else names
