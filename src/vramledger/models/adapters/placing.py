"""An adapter's matrices on the tensors of its base model, and what of it does not belong there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from vramledger.models.adapters.adapter import Adapter, ExtraTensor, LoraPair
from vramledger.models.adapters.described import described_pairs
from vramledger.models.adapters.names import PartKind
from vramledger.models.checkpoint import Checkpoint
from vramledger.models.headers.gguf_names import gguf_stems
from vramledger.models.model import Model
from vramledger.models.tensors import Component, Role, Tensor

EXPERT_ROLES = frozenset({Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_GATE_UP, Role.EXPERT_DOWN})
_WRAPPERS = frozenset({"model", "language_model", "text_model", "llm", "transformer"})
_STACK = ".experts"
_FUSED_STACK = ".experts.base_layer"
_VOCABULARY = frozenset({Role.EMBEDDING, Role.LM_HEAD})


class Misfit(StrEnum):
    """Why something of an adapter does not belong to the base model."""

    UNKNOWN_MODULE = "unknown module"
    WIDTH = "wrong width"
    VOCABULARY = "vocabulary extension"
    EXPERTS = "wrong number of experts"
    LAYERS = "layers the model does not have"
    HALF = "one matrix of two"


class Mismatch(Struct, frozen=True, kw_only=True):
    """One thing that does not fit; `text` has both sides' numbers."""

    kind: Misfit
    module: str
    text: str


class PlacedPair(Struct, frozen=True, kw_only=True):
    """A and B on a kind of base tensor, over `layers` (none outside the layers).

    `rank` is that of one matrix. `experts` counts the experts of each layer that have matrices of their own,
    0 for a plain matrix. `tensors` are several where one pair covers projections that the base keeps apart.
    `element_bits` is A's and B's in the file; `on_head` tells an output head that shares the embedding's tensor.
    """

    tensors: tuple[Tensor, ...]
    layers: tuple[int, ...]
    rank: int
    experts: int
    d_in: int
    d_out: int
    stored_bytes: int
    on_head: bool = False

    @property
    def tensor(self) -> Tensor:
        return self.tensors[0]

    @property
    def modules(self) -> int:
        """Matrices that get an A and a B of their own."""
        return max(len(self.layers), 1) * max(self.experts, 1)

    @property
    def elements(self) -> int:
        return self.modules * self.rank * (self.d_in + self.d_out)

    @property
    def touched_elements(self) -> int:
        """Elements of the base matrices that a merge would change."""
        return self.modules * self.d_in * self.d_out


class PlacedAdapter(Struct, frozen=True, kw_only=True):
    """An adapter on its base model. `mismatches` is empty where all of it belongs there."""

    adapter: Adapter
    pairs: tuple[PlacedPair, ...]
    mismatches: tuple[Mismatch, ...]

    @property
    def largest_rank(self) -> int:
        """What slots must have room for: the largest rank of a matrix, or that of the config."""
        return max((*(pair.rank for pair in self.pairs), self.adapter.config.largest_rank))

    @property
    def elements(self) -> int:
        """Elements of all pairs that belong to the model."""
        return sum(pair.elements for pair in self.pairs)

    @property
    def modules(self) -> tuple[str, ...]:
        """Last parts of the adapted modules' paths, each once."""
        names = (tensor.module.rpartition(".")[2] for pair in self.pairs for tensor in pair.tensors)
        return tuple(dict.fromkeys("lm_head" if name == "" else name for name in names))


def place(adapter: Adapter, checkpoint: Checkpoint) -> PlacedAdapter:
    """The adapter's pairs by base tensor; one whose headers could not be read gets the pairs its config asks for.

    Raises ConfigError for a pattern of the config that is too involved to be matched safely.
    """
    model = checkpoint.model
    if not adapter.is_read:
        adapter = replace(adapter, pairs=described_pairs(adapter, model))
    index = _gguf_index(adapter, model) if adapter.is_gguf else _index(model.tensors)
    placed: list[PlacedPair] = []
    found: list[Mismatch] = []
    for pair in adapter.pairs:
        _place_one(pair, index, model, placed, found)
    found += [_extension(item.module, item.shape, model) for item in _extended(adapter, index, model)]
    found += [
        Mismatch(kind=Misfit.HALF, module=module, text=f"{module} has only one of its two matrices")
        for module in adapter.unpaired
    ]
    return PlacedAdapter(adapter=adapter, pairs=tuple(placed), mismatches=tuple(found))


def core(module: str) -> str:
    """A module's path without the wrappers' names that differ between a model class and its checkpoint.

    >>> core("model.language_model.layers.{}.mlp.up_proj")
    'layers.{}.mlp.up_proj'
    """
    parts = module.split(".")
    start = next((at for at, part in enumerate(parts) if part not in _WRAPPERS), 0)
    return ".".join(parts[start:])


Index = dict[str, list[Tensor]]


def _template(tensor: Tensor) -> str:
    name = tensor.module
    for mark in ("{layer}", "{block}", "{expert}"):
        name = name.replace(mark, "{}")
    return name


def _index(tensors: Iterable[Tensor]) -> Index:
    """Matrices by the core of their module's path; those of the decoder first."""
    out: Index = {}
    order = sorted(tensors, key=lambda tensor: tensor.component is not Component.DECODER)
    for tensor in order:
        if len(tensor.shape) >= 2 and not tensor.name.endswith(".bias"):
            out.setdefault(core(_template(tensor)), []).append(tensor)
    return out


def _gguf_index(adapter: Adapter, model: Model) -> Index:
    """Matrices by llama.cpp's names, as far as the adapter has them."""
    theirs = {pair.module for pair in adapter.pairs}
    out: Index = {}
    for tensor in model.tensors:
        if len(tensor.shape) >= 2 and tensor.component is Component.DECODER:
            stems = gguf_stems(tensor, theirs)
            if len(stems) == 1:
                out.setdefault(core(stems[0]), []).append(tensor)
    if model.tie_word_embeddings and "output" in theirs:
        out.setdefault("output", [tensor for tensor in model.tensors if tensor.role is Role.EMBEDDING])
    return out


def _place_one(
    pair: LoraPair, index: Index, model: Model, placed: list[PlacedPair], found: list[Mismatch]
) -> None:
    name = core(pair.module)
    candidates = index.get(name, [])
    if not candidates and name.endswith((_STACK, _FUSED_STACK)):
        _place_stack(pair, name, index, placed, found)
        return
    on_head = name.rpartition(".")[2] in ("lm_head", "output", "embed_out")
    if not candidates and on_head and model.tie_word_embeddings:
        candidates = [tensor for tensor in model.tensors if tensor.role is Role.EMBEDDING][:1]
    if not candidates:
        found.append(
            Mismatch(
                kind=Misfit.UNKNOWN_MODULE,
                module=pair.module,
                text=f"{pair.module} is no module of {model.id}",
            )
        )
        return
    left = {number for run in pair.layers for number in run}
    for tensor in candidates:
        shared = tuple(layer for layer in tensor.layers if layer in left) if tensor.layers else ()
        blocks = () if tensor.layers else tuple(sorted(left))
        if left and not shared and not blocks:
            continue
        left -= {*shared, *blocks}
        _put(pair, tensor, shared or blocks, model, placed, found, on_head=on_head)
        if not left:
            break
    if left:
        found.append(
            Mismatch(
                kind=Misfit.LAYERS,
                module=pair.module,
                text=f"{pair.module} is adapted in layers {_runs(left)}, where {model.id} has none",
            )
        )


def _put(
    pair: LoraPair,
    tensor: Tensor,
    layers: tuple[int, ...],
    model: Model,
    placed: list[PlacedPair],
    found: list[Mismatch],
    *,
    on_head: bool,
) -> None:
    num_experts = tensor.num_experts
    matrix = tensor.shape[1:] if num_experts else tensor.shape
    out, inp = matrix[0], prod(matrix[1:])
    held = (pair.d_in, pair.d_out) if pair.is_embedding else (pair.d_out, pair.d_in)
    if held not in ((out, inp), (inp, out)):
        extends = tensor.role in _VOCABULARY and held[1] == inp and held[0] > out
        found.append(
            _extension(pair.module, held, model)
            if extends
            else Mismatch(
                kind=Misfit.WIDTH,
                module=pair.module,
                text=f"{pair.module} is adapted as [{held[0]} x {held[1]}] and is [{out} x {inp}] in {model.id}",
            )
        )
        return
    share = sum(len(run) for run in pair.layers)
    per_layer = pair.count * pair.stack // share if share else pair.count * pair.stack
    if per_layer > max(num_experts, 1):
        found.append(
            Mismatch(
                kind=Misfit.EXPERTS,
                module=pair.module,
                text=f"{pair.module} is adapted for {per_layer} experts a layer and has {num_experts} in {model.id}",
            )
        )
        return
    placed.append(
        PlacedPair(
            tensors=(tensor,),
            layers=layers,
            rank=pair.rank,
            experts=per_layer if num_experts else 0,
            d_in=pair.d_in,
            d_out=pair.d_out,
            stored_bytes=pair.stored_bytes * len(layers) // share if share else pair.stored_bytes,
            on_head=on_head or tensor.role is Role.LM_HEAD,
        )
    )


def _place_stack(
    pair: LoraPair, name: str, index: Index, placed: list[PlacedPair], found: list[Mismatch]
) -> None:
    """PEFT's pair on a parameter that stacks experts: A of [experts x rank, in], B of [out, experts x rank].

    The inner of two parameters (`experts.base_layer`) is the gate and up projection, the outer the down
    projection; where one alone is adapted, its widths tell which (peft tuners/lora/layer.py, ParamWrapper).
    """
    prefix = name.removesuffix(".base_layer") + "."
    stacks = [tensor for key, tensors in index.items() if key.startswith(prefix) for tensor in tensors]
    left = {number for run in pair.layers for number in run}
    for group in _projections(stacks):
        first = group[0]
        out, inp = sum(tensor.shape[1] for tensor in group), first.shape[2]
        count, remainder = divmod(pair.rank, first.num_experts)
        layers = tuple(layer for layer in first.layers if layer in left)
        if layers and not remainder and (pair.d_out, pair.d_in) in ((out, inp), (inp, out)):
            left -= set(layers)
            placed.append(
                PlacedPair(
                    tensors=group,
                    layers=layers,
                    rank=count,
                    experts=first.num_experts,
                    d_in=pair.d_in,
                    d_out=pair.d_out,
                    stored_bytes=pair.stored_bytes * len(layers) // pair.count,
                )
            )
    if left:
        shapes = ", ".join(
            f"{group[0].num_experts} of {group[0].shape[1:]}" for group in _projections(stacks)
        )
        found.append(
            Mismatch(
                kind=Misfit.EXPERTS if stacks else Misfit.UNKNOWN_MODULE,
                module=pair.module,
                text=f"{pair.module} holds [{pair.d_out} x {pair.d_in}] with {pair.rank} rows for all experts; "
                f"the model's are {shapes or 'none'}",
            )
        )


def _projections(stacks: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Gate with up where they are apart, and every other tensor of experts alone."""
    out: list[tuple[Tensor, ...]] = []
    ups = {tensor.layers: tensor for tensor in stacks if tensor.role is Role.EXPERT_UP}
    for tensor in stacks:
        if tensor.role is Role.EXPERT_GATE and tensor.layers in ups:
            out.append((tensor, ups[tensor.layers]))
        elif tensor.role in EXPERT_ROLES and not (tensor.role is Role.EXPERT_UP and len(stacks) > 2):
            out.append((tensor,))
    return out


def _extended(adapter: Adapter, index: Index, model: Model) -> list[ExtraTensor]:
    """Copies and whole modules of the vocabulary with another number of rows than the base model's."""
    out = []
    for item in adapter.extras:
        if item.kind not in (PartKind.FULL, PartKind.BASE_COPY) or len(item.shape) != 2:
            continue
        name = core(item.module)
        tensors = index.get(name, [])
        known = any(tensor.role in _VOCABULARY for tensor in tensors) or name == "lm_head"
        rows = {tensor.shape[0] for tensor in tensors} or {model.vocab_size}
        if known and item.shape[0] not in rows:
            out.append(item)
    return out


def _extension(module: str, shape: Sequence[int], model: Model) -> Mismatch:
    return Mismatch(
        kind=Misfit.VOCABULARY,
        module=module,
        text=f"{module} has {shape[0]} rows for a vocabulary of {model.vocab_size} in {model.id}",
    )


def _runs(numbers: Iterable[int]) -> str:
    """ "3-5, 9"."""
    ordered = sorted(numbers)
    starts = [ordered[0], *(after for before, after in pairwise(ordered) if after != before + 1)]
    ends = [*(before for before, after in pairwise(ordered) if after != before + 1), ordered[-1]]
    runs = [f"{start}" if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]
    return ", ".join(runs[:8]) + (" ..." if len(runs) > 8 else "")
