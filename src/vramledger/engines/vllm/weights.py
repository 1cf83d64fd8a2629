"""Weights on one rank: every tensor's local part, fused as the engine fuses it, in the engine's layout.

Source: vllm model_executor/layers/linear.py (merged and QKV parallel linears), fused_moe/layer.py,
layers/mla.py, layers/attention/mla_attention.py (absorbed copies).
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from vramledger.engines.allocator import Slack
from vramledger.engines.device_tensors import (
    NO_SLACK,
    GroupBytes,
    Laid,
    Matrices,
    Matrix,
    collect_linear,
    collect_plain,
    grouped,
    matrices_slack,
)
from vramledger.engines.partition import TOWERS, local_sizes
from vramledger.engines.recent import Recent
from vramledger.engines.vllm.attention_backends import runs_mla
from vramledger.engines.vllm.element_types import held_dtype
from vramledger.engines.vllm.layouts import ExpertPadding, expert_format, expert_padding, matrix_bytes
from vramledger.engines.vllm.repacking import load_peak
from vramledger.engines.vllm.rope import rope_tables
from vramledger.engines.vllm.settings import Settings
from vramledger.engines.vllm.sharding import RankKind, is_whole, stage_repetitions
from vramledger.engines.vllm.unpacking import matrix_kernel, unpacked_bytes
from vramledger.formats.weights import (
    Bnb4,
    Bnb8,
    Dense,
    Fp8,
    Ggml,
    Granularity,
    GroupInt,
    Int8,
    Mxfp,
    Nvfp4,
    WeightFormat,
)
from vramledger.hardware.catalogue import Device
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.quantization import StoredTensor
from vramledger.models.tensors import AxisKind, Component, Role, Tensor
from vramledger.units import MIB, round_up

SPLIT_LIMIT_BYTES = 20 * MIB  # max_split_size_mb while loading since 0.31 (v1/worker/gpu_worker.py)


class RankWeights(Struct, frozen=True, kw_only=True):
    """Device bytes of one rank. `slack` is what the allocator takes beside the tensors, `load_peak_extra_bytes`
    what the largest module's repacking holds twice, `dequantised_bytes` the largest matrix that a forward
    unpacks whole (bitsandbytes); `expert_format` names the experts' storage for the choice of kernels."""

    groups: dict[str, GroupBytes]
    absorbed_bytes: int
    rope_bytes: int
    rope_formula: str
    slack: Slack
    load_peak_extra_bytes: int
    load_peak_formula: str
    dequantised_bytes: int
    kernels: tuple[str, ...]
    expert_format: str

    @property
    def total_bytes(self) -> int:
        """What "Model loading took" counts (without adapters): allocated bytes after load."""
        held = sum(group.total for group in self.groups.values())
        return held + self.absorbed_bytes + self.rope_bytes + self.slack.stranded_bytes


_recent: Recent[RankWeights] = Recent(512)


def rank_weights(checkpoint: Checkpoint, settings: Settings, kind: RankKind, device: Device) -> RankWeights:
    """Weights of one kind of rank. Raises FlagError where the plan does not divide the model."""
    loading = settings.while_loading()
    if settings.flags.speculative is not None:
        return _rank_weights(checkpoint, loading, kind, device)
    return _recent.get(
        checkpoint, (loading, kind, device), lambda: _rank_weights(checkpoint, loading, kind, device)
    )


def _rank_weights(checkpoint: Checkpoint, settings: Settings, kind: RankKind, device: Device) -> RankWeights:
    model = checkpoint.model
    matrices: Matrices = {}
    absorbed = 0
    is_online = False
    experts_as = _experts_format(checkpoint, settings)
    twice = _keys_as_values(checkpoint)
    absorbs = runs_mla(model, settings)
    for item in checkpoint.stored:
        tensor = item.tensor
        if not _is_loaded(tensor, settings):
            continue
        repeat = stage_repetitions(tensor, kind, tied=model.tie_word_embeddings, model_type=model.model_type)
        if not repeat:
            continue
        stored = _online(item, settings)
        is_online = is_online or (stored is not item.format and not isinstance(stored, Dense))
        sizes = _local_sizes(tensor, settings, kind)
        if tensor.linear:
            for _ in range(2 if (tensor.module, tensor.layers) in twice else 1):
                collect_linear(matrices, tensor, stored, repeat, sizes, kind.cuts)
            if absorbs and tensor.role is Role.KV_B and not isinstance(stored, Dense):
                absorbed += repeat * settings.dtype.bytes_for(prod(sizes))
        else:
            collect_plain(
                matrices, tensor, stored, repeat, sizes, _plain(tensor, sizes, settings, device, experts_as)
            )
    method = checkpoint.quantization
    unpacked = 0
    kernels: set[str] = set()
    for matrix in matrices.values():
        if matrix.laid is None:
            matrix.laid = _lay_out(matrix, settings, device)
            if not isinstance(matrix.format, Dense):
                elements = sum(matrix.rows) * matrix.columns
                if matrix.experts == 1 or not isinstance(matrix.format, GroupInt):
                    unpacked = max(
                        unpacked, unpacked_bytes(matrix.format, elements, method, settings, device)
                    )
                kernels.add(matrix_kernel(matrix.format, method, settings, device))
    extra, why = load_peak(matrices.values(), settings, is_online=is_online)
    rope = rope_tables(model, settings)
    limit = SPLIT_LIMIT_BYTES if settings.version.since(31) else 0
    return RankWeights(
        groups=grouped(matrices.values()),
        absorbed_bytes=absorbed,
        rope_bytes=rope.bytes,
        rope_formula=rope.formula,
        slack=NO_SLACK if device.vendor == "cpu" else matrices_slack(matrices.values(), limit),
        load_peak_extra_bytes=extra,
        load_peak_formula=why,
        dequantised_bytes=unpacked,
        kernels=tuple(sorted(kernels - {""})),
        expert_format=_format_name(experts_as),
    )


def _keys_as_values(checkpoint: Checkpoint) -> frozenset[tuple[str, tuple[int, ...]]]:
    """Modules and layers of Gemma 4's key projections that have no value projection beside them: the engine
    loads them into both places of its fused matrix (models/gemma4.py, `attention_k_eq_v`)."""
    if not checkpoint.model.model_type.startswith("gemma4"):
        return frozenset()
    found: dict[tuple[str, tuple[int, ...]], set[Role]] = {}
    keys = {}
    for item in checkpoint.stored:
        tensor = item.tensor
        if tensor.component is Component.DECODER and tensor.linear and tensor.role in (Role.K, Role.V):
            place = (tensor.module.rpartition(".")[0], tensor.layers)
            found.setdefault(place, set()).add(tensor.role)
            if tensor.role is Role.K:
                keys[place] = (tensor.module, tensor.layers)
    return frozenset(key for place, key in keys.items() if Role.V not in found[place])


def _experts_format(checkpoint: Checkpoint, settings: Settings) -> WeightFormat | None:
    """How most experts are stored; None without experts."""
    for item in checkpoint.stored:
        if item.tensor.num_experts and item.tensor.linear and item.tensor.component is Component.DECODER:
            return _online(item, settings)
    return None


# An MTP block takes the target's embedding and head on a single stage (v1/spec_decode, "Detected MTP model").
DRAFT_SHARES_ENDS_SINCE = 12


def _is_loaded(tensor: Tensor, settings: Settings) -> bool:
    if tensor.component is Component.DRAFT:
        shared = tensor.role in (Role.EMBEDDING, Role.LM_HEAD) and settings.plan.pp == 1
        if shared and settings.version.since(DRAFT_SHARES_ENDS_SINCE):
            return False
        return settings.flags.speculative is not None and settings.flags.speculative.method == "mtp"
    if tensor.linear and not tensor.parameter and settings.version.since(SHARED_KV_DROPPED_SINCE):
        return False
    return not (tensor.component in TOWERS and settings.flags.language_model_only)


# Layers that read another layer's keys and values hold no projections for them (gemma3n.py, gemma4.py: a q_proj
# alone); before, the fused matrix was built and what the checkpoint keeps was loaded into it.
SHARED_KV_DROPPED_SINCE = 30


INDEXER_KEYS_PLAIN_SINCE = 20


def _online(item: StoredTensor, settings: Settings) -> WeightFormat:
    """The format after `--quantization fp8` or `bitsandbytes` on an unquantised checkpoint.

    An indexer's keys are projected together with its head weights since 0.20, in the model's type
    (`wk_weights_proj` of models/deepseek_v2.py).
    """
    if ".indexer.wk." in item.tensor.name and settings.version.since(INDEXER_KEYS_PLAIN_SINCE):
        return Dense(dtype=settings.dtype)
    if not item.tensor.linear or not isinstance(item.format, Dense) or item.tensor.role is Role.LM_HEAD:
        return item.format
    match settings.flags.quantization:
        case "fp8":
            return Fp8(scale=Granularity.TENSOR)
        case "bitsandbytes":
            return Bnb4(double_quant=True)
        case _:
            return item.format


def _local_sizes(tensor: Tensor, settings: Settings, kind: RankKind) -> list[int]:
    if is_whole(tensor, settings.model_type, settings.version):
        return list(tensor.shape)
    return local_sizes(tensor, kind.cuts)


def _plain(
    tensor: Tensor, sizes: list[int], settings: Settings, device: Device, experts_as: WeightFormat | None
) -> Laid:
    """Bytes of a tensor of local `sizes` that is never quantised; an expert's bias follows its matrix's padding."""
    dtype = held_dtype(tensor, settings)
    count = prod(sizes)
    if not tensor.num_experts or experts_as is None:
        return Laid(dtype.bytes_for(count), 0)
    padding = expert_padding(experts_as, device, settings)
    padded_dtype = padding.bias_dtype or dtype
    padded = padded_dtype.bytes_for(_padded_elements(tensor, sizes, padding))
    return Laid(dtype.bytes_for(count), 0, padded - dtype.bytes_for(count))


def _padded_elements(tensor: Tensor, sizes: list[int], padding: ExpertPadding) -> int:
    multiples = {AxisKind.INTERMEDIATE: padding.intermediate, AxisKind.HIDDEN: padding.hidden}
    count = 1
    for size, axis in zip(sizes, tensor.axes, strict=True):
        parts = len(axis)
        count *= parts * round_up(size // parts, multiples.get(axis[0].kind, 1))
    return count


def _lay_out(matrix: Matrix, settings: Settings, device: Device) -> Laid:
    """Bytes of a fused matrix, its experts' padding included."""
    rows, columns = tuple(matrix.rows), matrix.columns
    stored = matrix.format
    if matrix.experts > 1:
        stored = expert_format(stored, columns if matrix.role is Role.EXPERT_DOWN else rows[0])
    laid = matrix_bytes(stored, rows, columns, stack=matrix.experts, settings=settings, device=device)
    if matrix.experts == 1 or stored != matrix.format:
        return laid
    padding = expert_padding(matrix.format, device, settings)
    row_multiple, column_multiple = padding.intermediate, padding.hidden
    if matrix.role is Role.EXPERT_DOWN:
        row_multiple, column_multiple = column_multiple, row_multiple
    padded_rows = tuple(round_up(row, row_multiple) for row in rows)
    padded_columns = round_up(columns, column_multiple)
    if padded_rows == rows and padded_columns == columns:
        return laid
    padded = matrix_bytes(
        matrix.format, padded_rows, padded_columns, stack=matrix.experts, settings=settings, device=device
    )
    return Laid(laid.elements, laid.scales, padded.total - laid.elements - laid.scales)


_FORMAT_NAMES: tuple[tuple[type, str], ...] = (
    (Dense, "dense"), (Int8, "int8"), (GroupInt, "group_int"), (Nvfp4, "nvfp4"), (Mxfp, "mxfp4"),
    (Bnb4, "bitsandbytes"), (Bnb8, "bitsandbytes"), (Ggml, "ggml"),
)  # fmt: skip


def _format_name(kind: WeightFormat | None) -> str:
    if kind is None:
        return "none"
    if isinstance(kind, Fp8):
        return "fp8_block" if kind.scale is Granularity.BLOCK else "fp8"
    return next(name for known, name in _FORMAT_NAMES if isinstance(kind, known))
