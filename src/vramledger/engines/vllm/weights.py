"""Weights on one rank: every tensor's local part, fused as the engine fuses it, in the engine's layout.

Source: vllm model_executor/layers/linear.py (merged and QKV parallel linears), fused_moe/layer.py,
layers/mla.py, layers/attention/mla_attention.py (absorbed copies).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vramledger.engines.vllm.layouts import ExpertPadding, Laid, expert_padding, matrix_bytes
from vramledger.engines.vllm.rope import rope_table_bytes
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import TOWERS, RankKind, local_part, repetitions
from vramledger.formats.weights import Bnb4, Dense, Fp8, Granularity, WeightFormat
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.quantization import StoredTensor
from vramledger.models.tensors import AxisKind, Component, Role, Tensor
from vramledger.units import round_up

ALLOCATION_BYTES = 512  # granularity of torch's caching allocator

_FUSED = {
    Role.Q: "qkv", Role.K: "qkv", Role.V: "qkv", Role.GATE: "gate_up", Role.UP: "gate_up",
    Role.SHARED_GATE: "shared_gate_up", Role.SHARED_UP: "shared_gate_up",
    Role.EXPERT_GATE: "w13", Role.EXPERT_UP: "w13", Role.Q_A: "qkv_a", Role.KV_A: "qkv_a",
}  # fmt: skip

_GROUPS = {
    Role.EMBEDDING: "embedding", Role.POSITION_EMBEDDING: "embedding", Role.LM_HEAD: "lm_head",
    Role.NORM: "norms", Role.ROUTER: "routers",
    Role.Q: "attention", Role.K: "attention", Role.V: "attention", Role.QKV: "attention", Role.O: "attention",
    Role.Q_A: "attention", Role.Q_B: "attention", Role.KV_A: "attention", Role.KV_B: "attention",
    Role.INDEXER: "attention", Role.SINKS: "attention",
    Role.GATE: "mlp", Role.UP: "mlp", Role.GATE_UP: "mlp", Role.DOWN: "mlp",
    Role.EXPERT_GATE: "experts", Role.EXPERT_UP: "experts", Role.EXPERT_GATE_UP: "experts",
    Role.EXPERT_DOWN: "experts",
    Role.SHARED_GATE: "shared experts", Role.SHARED_UP: "shared experts",
    Role.SHARED_GATE_UP: "shared experts", Role.SHARED_DOWN: "shared experts",
    Role.SSM_IN: "recurrent", Role.SSM_CONV: "recurrent", Role.SSM_OUT: "recurrent", Role.SSM_PARAM: "recurrent",
}  # fmt: skip


@dataclass(slots=True)
class GroupBytes:
    """Running totals of one line of the ledger."""

    elements: int = 0
    scales: int = 0
    padding: int = 0
    tensors: int = 0

    @property
    def total(self) -> int:
        return self.elements + self.scales + self.padding


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Device bytes of one rank. `load_peak_extra_bytes` is what the largest module's repacking holds twice;
    `expert_format` names the experts' storage for the choice of kernels."""

    groups: dict[str, GroupBytes]
    absorbed_bytes: int
    rope_bytes: int
    rounding_bytes: int
    load_peak_extra_bytes: int
    expert_format: str

    @property
    def total_bytes(self) -> int:
        """What "Model loading took" counts (without adapters): allocated bytes after load."""
        held = sum(group.total for group in self.groups.values())
        return held + self.absorbed_bytes + self.rope_bytes + self.rounding_bytes


@dataclass(slots=True)
class _Matrix:
    """Logical matrices that lie in one device tensor."""

    rows: list[int] = field(default_factory=list)
    columns: int = 0
    experts: int = 1
    repeat: int = 0
    group: str = ""
    role: Role = Role.OTHER


def rank_weights(checkpoint: Checkpoint, settings: Settings, kind: RankKind, device: Device) -> RankWeights:
    """Weights of one kind of rank. Raises FlagError where the plan does not divide the model."""
    model, plan = checkpoint.model, settings.plan
    groups: dict[str, GroupBytes] = {}
    matrices: dict[tuple[object, ...], _Matrix] = {}
    absorbed = rounding = 0
    expert_kind: WeightFormat | None = None
    for item in checkpoint.stored:
        tensor = item.tensor
        if not _is_loaded(tensor, settings):
            continue
        repeat = repetitions(tensor, kind, plan, tied=model.tie_word_embeddings)
        if not repeat:
            continue
        stored = _online(item, settings)
        group = _group_name(tensor)
        if tensor.num_experts and tensor.linear:
            expert_kind = stored
        if isinstance(stored, Dense) or not tensor.linear:
            laid, slack = _dense(tensor, stored, settings, kind, device, expert_kind)
            _add(groups, group, laid, repeat)
            rounding += slack * repeat
            continue
        _collect(matrices, tensor, stored, repeat, group, settings, kind)
        if tensor.role is Role.KV_B:
            absorbed += repeat * settings.dtype.bytes_for(_local_elements(tensor, settings, kind))
    largest = _lay_out(matrices, groups, settings, device)
    return RankWeights(
        groups=groups,
        absorbed_bytes=absorbed,
        rope_bytes=rope_table_bytes(model, settings.dtype),
        rounding_bytes=rounding,
        load_peak_extra_bytes=largest,
        expert_format=_format_name(expert_kind),
    )


def _is_loaded(tensor: Tensor, settings: Settings) -> bool:
    if tensor.component is Component.DRAFT:
        return settings.flags.speculative is not None and settings.flags.speculative.method == "mtp"
    return not (tensor.component in TOWERS and settings.flags.language_model_only)


def _online(item: StoredTensor, settings: Settings) -> WeightFormat:
    """The format after `--quantization fp8` or `bitsandbytes` on an unquantised checkpoint."""
    if not item.tensor.linear or not isinstance(item.format, Dense) or item.tensor.role is Role.LM_HEAD:
        return item.format
    match settings.flags.quantization:
        case "fp8":
            return Fp8(scale=Granularity.TENSOR)
        case "bitsandbytes":
            return Bnb4()
        case _:
            return item.format


def _group_name(tensor: Tensor) -> str:
    if tensor.component is Component.DRAFT:
        return "draft"
    if tensor.component in TOWERS:
        return f"{tensor.component.value} tower" if tensor.component is not Component.PROJECTOR else "projector"
    if tensor.component is Component.ENCODER:
        return "encoder"
    return _GROUPS.get(tensor.role, "other")


def _add(groups: dict[str, GroupBytes], name: str, laid: Laid, repeat: int) -> None:
    found = groups.get(name)
    if found is None:
        found = groups[name] = GroupBytes()
    found.elements += laid.elements * repeat
    found.scales += laid.scales * repeat
    found.padding += laid.padding * repeat
    found.tensors += repeat


def _local_sizes(tensor: Tensor, settings: Settings, kind: RankKind) -> list[int]:
    plan, flags = settings.plan, settings.flags
    return [sum(local_part(part, tensor, kind, plan, flags) for part in axis) for axis in tensor.axes]


def _local_elements(tensor: Tensor, settings: Settings, kind: RankKind) -> int:
    count = 1
    for size in _local_sizes(tensor, settings, kind):
        count *= size
    return count


def _dense(
    tensor: Tensor,
    stored: WeightFormat,
    settings: Settings,
    kind: RankKind,
    device: Device,
    expert_kind: WeightFormat | None,
) -> tuple[Laid, int]:
    """Bytes of an unquantised tensor, and what rounding the allocation adds."""
    sizes = _local_sizes(tensor, settings, kind)
    dtype = tensor.dtype or settings.dtype
    count = padded = 1
    for size in sizes:
        count *= size
    padded = count
    if tensor.num_experts:
        padding = expert_padding(expert_kind or stored, device, settings)
        padded = _padded_elements(tensor, sizes, padding)
        if not tensor.linear and padding.bias_dtype is not None:
            dtype = padding.bias_dtype
    size_bytes, padded_bytes = dtype.bytes_for(count), dtype.bytes_for(padded)
    return (
        Laid(size_bytes, 0, padded_bytes - size_bytes),
        round_up(padded_bytes, ALLOCATION_BYTES) - padded_bytes,
    )


def _padded_elements(tensor: Tensor, sizes: list[int], padding: ExpertPadding) -> int:
    count = 1
    for size, axis in zip(sizes, tensor.axes, strict=True):
        kind = axis[0].kind
        parts = len(axis)
        multiple = (
            padding.intermediate
            if kind is AxisKind.INTERMEDIATE
            else padding.hidden
            if kind is AxisKind.HIDDEN
            else 1
        )
        count *= parts * round_up(size // parts, multiple)
    return count


def _collect(
    matrices: dict[tuple[object, ...], _Matrix],
    tensor: Tensor,
    stored: WeightFormat,
    repeat: int,
    group: str,
    settings: Settings,
    kind: RankKind,
) -> None:
    """Put a quantised matrix beside those it is fused with."""
    sizes = _local_sizes(tensor, settings, kind)
    experts = sizes.pop(0) if tensor.num_experts else 1
    fused = _FUSED.get(tensor.role)
    parent = tensor.module.rpartition(".")[0]
    key = (fused or tensor.name, parent, tensor.layers, stored)
    found = matrices.get(key)
    if found is None:
        found = matrices[key] = _Matrix(
            columns=sizes[-1], experts=experts, repeat=repeat, group=group, role=tensor.role
        )
    parts = tensor.axes[-2]
    if len(parts) > 1:
        found.rows += [local_part(part, tensor, kind, settings.plan, settings.flags) for part in parts]
    else:
        found.rows.append(sizes[-2])


def _lay_out(
    matrices: dict[tuple[object, ...], _Matrix],
    groups: dict[str, GroupBytes],
    settings: Settings,
    device: Device,
) -> int:
    """Add every fused matrix to its group; returns the bytes of the largest device tensor."""
    largest = 0
    for key, matrix in matrices.items():
        stored = key[-1]
        assert isinstance(stored, WeightFormat)
        rows, columns = tuple(matrix.rows), matrix.columns
        laid = matrix_bytes(stored, rows, columns, stack=matrix.experts, settings=settings, device=device)
        if matrix.experts > 1:
            laid = _pad_experts(stored, matrix, laid, settings, device)
        _add(groups, matrix.group, laid, matrix.repeat)
        largest = max(largest, laid.total)
    return largest


def _pad_experts(
    stored: WeightFormat, matrix: _Matrix, laid: Laid, settings: Settings, device: Device
) -> Laid:
    padding = expert_padding(stored, device, settings)
    row_multiple, column_multiple = padding.intermediate, padding.hidden
    if matrix.role is Role.EXPERT_DOWN:
        row_multiple, column_multiple = column_multiple, row_multiple
    rows = tuple(round_up(row, row_multiple) for row in matrix.rows)
    columns = round_up(matrix.columns, column_multiple)
    if rows == tuple(matrix.rows) and columns == matrix.columns:
        return laid
    padded = matrix_bytes(stored, rows, columns, stack=matrix.experts, settings=settings, device=device)
    return Laid(laid.elements, laid.scales, padded.total - laid.elements - laid.scales)


def _format_name(kind: WeightFormat | None) -> str:
    if kind is None:
        return "none"
    if isinstance(kind, Fp8):
        return "fp8_block" if kind.scale is Granularity.BLOCK else "fp8"
    return {
        "Dense": "dense", "Int8": "int8", "GroupInt": "group_int", "Nvfp4": "nvfp4", "Mxfp": "mxfp4",
        "Bnb4": "bitsandbytes", "Bnb8": "bitsandbytes", "Ggml": "ggml",
    }[type(kind).__name__]  # fmt: skip
