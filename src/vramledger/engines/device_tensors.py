"""From logical tensors to what lies on a device: fused matrices, lines of the ledger, the allocator's slack.

Serving engines fuse projections that read the same input (q, k, v; gate, up) into one matrix, of which a format with
row groups or padding takes other bytes than of its parts. What a matrix of a format takes is each engine's own rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from msgspec import Struct, field

from vramledger.engines.allocator import Slack, allocation_slack
from vramledger.engines.partition import TOWERS, Cuts, local_part
from vramledger.formats.weights import WeightFormat
from vramledger.models.tensors import Component, Role, Tensor

_FUSED = {
    Role.Q: "qkv", Role.K: "qkv", Role.V: "qkv", Role.GATE: "gate_up", Role.UP: "gate_up",
    Role.SHARED_GATE: "shared_gate_up", Role.SHARED_UP: "shared_gate_up",
    Role.EXPERT_GATE: "w13", Role.EXPERT_UP: "w13", Role.Q_A: "qkv_a", Role.KV_A: "qkv_a",
}  # fmt: skip

# Projections of linear attention that engines merge (vllm and sglang models/qwen3_next.py, qwen3_5.py).
_FUSED_NAMES = {
    "in_proj_qkv": "in_proj_qkvz", "in_proj_z": "in_proj_qkvz",
    "in_proj_b": "in_proj_ba", "in_proj_a": "in_proj_ba",
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

NO_SLACK = Slack(stranded_bytes=0, idle_bytes=0)
SHOWN_SHAPES = 10


class Laid(Struct, frozen=True):
    """Bytes of one local matrix (or stack): elements, scales and zero points, padding."""

    elements: int
    scales: int
    padding: int = 0

    @property
    def total(self) -> int:
        return self.elements + self.scales + self.padding


class GroupBytes(Struct):
    """Running totals of one line of the ledger. `parts` are (repetitions, experts, rows, columns) of the local
    device tensors, before padding."""

    elements: int = 0
    scales: int = 0
    padding: int = 0
    tensors: int = 0
    parts: list[tuple[int, int, int, int]] = []
    elsewhere: int = 0

    @property
    def total(self) -> int:
        """Bytes on the device; what an engine keeps `elsewhere` is not among them."""
        return self.elements + self.scales + self.padding - self.elsewhere

    @property
    def formula(self) -> str:
        """The shapes that make the line, and its bytes by kind."""
        shown = [
            f"{repeat} x " + (f"{experts} x " if experts > 1 else "") + f"[{rows} x {columns}]"
            for repeat, experts, rows, columns in self.parts[:SHOWN_SHAPES]
        ]
        more = len(self.parts) - len(shown)
        text = " + ".join(shown) + (f" + {more} more" if more else "") + f": {self.elements} B"
        if self.scales:
            text += f" + scales and zero points {self.scales} B"
        if self.padding:
            text += f" + padding {self.padding} B"
        return text + (f" - {self.elsewhere} B in host memory" if self.elsewhere else "")


class Matrix(Struct):
    """Logical tensors that lie in one device tensor. `layers` orders allocations; `laid` is set once the format's
    rule has been applied."""

    format: WeightFormat
    group: str
    role: Role
    layers: tuple[int, ...]
    repeat: int
    rows: list[int] = field(default_factory=list)
    columns: int = 0
    experts: int = 1
    laid: Laid | None = None


Matrices = dict[tuple[object, ...], Matrix]


def group_name(tensor: Tensor) -> str:
    """The line of the ledger a tensor is counted on."""
    if tensor.component is Component.DRAFT:
        return "draft"
    if tensor.component in TOWERS:
        return (
            f"{tensor.component.value} tower" if tensor.component is not Component.PROJECTOR else "projector"
        )
    if tensor.component is Component.ENCODER:
        return "encoder"
    return _GROUPS.get(tensor.role, "other")


def collect_linear(
    matrices: Matrices, tensor: Tensor, stored: WeightFormat, repeat: int, sizes: list[int], cuts: Cuts
) -> None:
    """Put a matrix of local `sizes` beside those of its format that it is fused with."""
    experts = sizes[0] if tensor.num_experts else 1
    rows, *rest = sizes[1:] if tensor.num_experts else sizes
    parent, _, name = tensor.module.rpartition(".")
    fused = _FUSED.get(tensor.role) or _FUSED_NAMES.get(name)
    key = (fused or tensor.name, parent, tensor.layers, stored)
    found = matrices.get(key)
    if found is None:
        found = matrices[key] = Matrix(
            format=stored,
            group=group_name(tensor),
            role=tensor.role,
            layers=tensor.layers,
            repeat=repeat,
            columns=prod(rest),
            experts=experts,
        )
    parts = tensor.axes[1 if tensor.num_experts else 0]
    if len(parts) > 1:
        found.rows += [local_part(part, tensor, cuts) for part in parts]
    else:
        found.rows.append(rows)


def collect_plain(
    matrices: Matrices, tensor: Tensor, stored: WeightFormat, repeat: int, sizes: list[int], laid: Laid
) -> None:
    """Put a tensor that is never quantised, of local `sizes`, as a device tensor of its own."""
    matrices[tensor.name, tensor.layers] = Matrix(
        format=stored,
        group=group_name(tensor),
        role=tensor.role,
        layers=tensor.layers,
        repeat=repeat,
        rows=sizes[:1],
        columns=prod(sizes[1:]),
        laid=laid,
    )


def grouped(matrices: Iterable[Matrix]) -> dict[str, GroupBytes]:
    """Lines of the ledger from matrices that are laid out."""
    groups: dict[str, GroupBytes] = {}
    for matrix in matrices:
        laid, repeat = matrix.laid, matrix.repeat
        assert laid is not None
        found = groups.get(matrix.group)
        if found is None:
            found = groups[matrix.group] = GroupBytes()
        found.elements += laid.elements * repeat
        found.scales += laid.scales * repeat
        found.padding += laid.padding * repeat
        found.tensors += repeat
        found.parts.append((repeat, matrix.experts, sum(matrix.rows), matrix.columns))
    return groups


def matrices_slack(matrices: Iterable[Matrix], max_split_bytes: int = 0, *, header_bytes: int = 0) -> Slack:
    """The caching allocator's slack beside matrices that are laid out, by runs of layers that hold the same tensors.

    `header_bytes` is what an allocator adds to every request before it rounds.
    """
    runs: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for matrix in matrices:
        laid = matrix.laid
        assert laid is not None
        sizes = runs.setdefault((matrix.layers, matrix.repeat), [])
        sizes.append(laid.elements + laid.padding + header_bytes)
        if laid.scales:
            sizes.append(laid.scales + header_bytes)
    total = NO_SLACK
    for (_, repeat), sizes in runs.items():
        total = total + allocation_slack(tuple(sizes), repeat, max_split_bytes)
    return total
