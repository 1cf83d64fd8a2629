"""Weights on one rank: every tensor's local part, fused as the engine fuses it, in the engine's layout.

Source: sglang srt/layers/linear.py, layers/moe/fused_moe_triton, layers/vocab_parallel_embedding.py,
models/deepseek_common/deepseek_weight_loader.py (`w_kc`, `w_vc`), layers/rotary_embedding.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from vramledger.engines.device_tensors import (
    GroupBytes,
    Laid,
    Matrices,
    Matrix,
    collect_linear,
    collect_plain,
    grouped,
    matrices_slack,
)
from vramledger.engines.partition import local_sizes, repetitions
from vramledger.engines.rope_positions import table_positions
from vramledger.engines.sglang.layouts import matrix_bytes, online, padded_experts
from vramledger.engines.sglang.settings import Settings
from vramledger.engines.sglang.sharding import RankKind, is_loaded
from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Dense, WeightFormat
from vramledger.hardware.catalogue import Device
from vramledger.ledger import ZERO, ByteRange
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.model import Model
from vramledger.models.quantization import StoredTensor
from vramledger.models.tensors import Component, Role, Tensor


class RankWeights(Struct, frozen=True, kw_only=True):
    """Device bytes of one rank. `absorbed_bytes` are the copies of latent attention's up-projections, `slack` what the
    allocator takes beside the tensors, `largest_bytes` the largest repacked module, held twice at load."""

    groups: dict[str, GroupBytes]
    absorbed_bytes: int
    rope_bytes: int
    rope_formula: str
    slack: ByteRange
    largest_bytes: int

    @property
    def tensor_bytes(self) -> int:
        return sum(group.total for group in self.groups.values()) + self.absorbed_bytes + self.rope_bytes

    @property
    def held(self) -> ByteRange:
        """What "Load weight end ... mem usage" counts: free memory before less after, so whole segments."""
        return ByteRange.exact(self.tensor_bytes) + self.slack


def rank_weights(checkpoint: Checkpoint, settings: Settings, kind: RankKind, device: Device) -> RankWeights:
    """The target's weights. Raises FlagError where the plan does not divide the model."""
    wanted = [item for item in checkpoint.stored if is_loaded(item.tensor, settings)]
    return _weights(checkpoint, wanted, settings, kind, device, rope=True)


def draft_weights(
    checkpoint: Checkpoint, settings: Settings, kind: RankKind, device: Device
) -> RankWeights | None:
    """Weights of the checkpoint's own MTP layers where they are the draft; embedding and head are the target's.

    None where nothing is speculated, or where the draft is another checkpoint.
    """
    if settings.flags.speculative_algorithm not in ("EAGLE", "NEXTN"):
        return None
    shared = (Role.EMBEDDING, Role.LM_HEAD)
    own = [
        item
        for item in checkpoint.stored
        if item.tensor.component is Component.DRAFT and item.tensor.role not in shared
    ]
    return _weights(checkpoint, own, settings, kind, device, rope=False) if own else None


def _weights(
    checkpoint: Checkpoint,
    wanted: list[StoredTensor],
    settings: Settings,
    kind: RankKind,
    device: Device,
    *,
    rope: bool,
) -> RankWeights:
    model = checkpoint.model
    matrices: Matrices = {}
    absorbed = 0
    doubled = _keys_as_values(checkpoint)
    for item in wanted:
        tensor = item.tensor
        repeat = repetitions(tensor, kind, tied=model.tie_word_embeddings)
        if not repeat:
            continue
        cuts = kind.cuts_of(tensor)
        sizes = local_sizes(tensor, cuts)
        if tensor.linear:
            stored = online(item.format, tensor.role, settings)
            for _ in range(2 if (tensor.module, tensor.layers) in doubled else 1):
                collect_linear(matrices, tensor, stored, repeat, sizes, cuts)
            if tensor.role is Role.KV_B and settings.is_mla:
                absorbed += repeat * settings.dtype.bytes_for(prod(sizes))
        else:
            laid = Laid(_held_dtype(tensor, settings).bytes_for(prod(sizes)), 0)
            collect_plain(matrices, tensor, item.format, repeat, sizes, laid)
    largest = 0
    for matrix in matrices.values():
        if matrix.laid is None:
            matrix.laid = _lay_out(matrix, settings, device)
            if not isinstance(matrix.format, Dense):
                largest = max(largest, matrix.laid.total)
    rope_bytes, formula = _rope_tables(model, settings, device) if rope else (0, "")
    return RankWeights(
        groups=grouped(matrices.values()),
        absorbed_bytes=absorbed,
        rope_bytes=rope_bytes,
        rope_formula=formula,
        slack=_slack(matrices, settings, device),
        largest_bytes=largest,
    )


NPU_HEADER_BYTES = 32  # torch_npu csrc/core/npu/NPUCachingAllocator.cpp, round_size


def _slack(matrices: Matrices, settings: Settings, device: Device) -> ByteRange:
    """Rests of the allocator's segments; next to none where segments grow, as most set-ups on Ascend have them."""
    if device.vendor == "cpu" or settings.flags.expandable_segments:
        return ZERO
    header = NPU_HEADER_BYTES if device.vendor == "huawei" else 0
    slack = matrices_slack(matrices.values(), header_bytes=header)
    size = slack.stranded_bytes + slack.idle_bytes
    unknown = device.vendor == "huawei" and settings.flags.expandable_segments is None
    return ByteRange(0 if unknown else size, size, size)


def _lay_out(matrix: Matrix, settings: Settings, device: Device) -> Laid:
    rows, columns = tuple(matrix.rows), matrix.columns
    stored: WeightFormat = matrix.format
    plain = matrix_bytes(stored, rows, columns, stack=matrix.experts, settings=settings, device=device)
    if matrix.experts == 1:
        return plain
    wide, deep = padded_experts(stored, matrix.role, rows, columns, settings, device)
    if (wide, deep) == (rows, columns):
        return plain
    padded = matrix_bytes(stored, wide, deep, stack=matrix.experts, settings=settings, device=device)
    return Laid(plain.elements, plain.scales, padded.total - plain.total)


def _held_dtype(tensor: Tensor, settings: Settings) -> DType:
    """Element type on the device of a tensor that is never quantised; Mamba's A is kept in fp32."""
    if tensor.role is Role.SSM_PARAM and tensor.name.endswith("A_log"):
        return DType.F32
    return tensor.dtype or settings.dtype


def _keys_as_values(checkpoint: Checkpoint) -> frozenset[tuple[str, tuple[int, ...]]]:
    """Gemma 4's key projections without a value projection beside them: their rows are in the fused matrix twice
    (models/gemma4_causal.py, `attention_k_eq_v`)."""
    if not checkpoint.model.model_type.startswith("gemma4"):
        return frozenset()
    linears = [
        item.tensor
        for item in checkpoint.stored
        if item.tensor.linear and item.tensor.component is Component.DECODER
    ]
    with_values = {
        (tensor.module.rpartition(".")[0], tensor.layers) for tensor in linears if tensor.role is Role.V
    }
    return frozenset(
        (tensor.module, tensor.layers)
        for tensor in linears
        if tensor.role is Role.K and (tensor.module.rpartition(".")[0], tensor.layers) not in with_values
    )


def _rope_tables(model: Model, settings: Settings, device: Device) -> tuple[int, str]:
    """A cos/sin table for each distinct rope, fp32 on CUDA, in the model's type elsewhere."""
    element = 4 if device.vendor == "nvidia" else settings.dtype.bits // 8
    shapes = [(table_positions(rope), rope.rotary_dim) for rope in model.rope]
    return (
        sum(positions * width * element for positions, width in shapes),
        " + ".join(f"[{positions} x {width}] x {element} B" for positions, width in shapes),
    )
