"""Which format each tensor of a model has in a quantised checkpoint."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from vramledger.formats.dtypes import DType
from vramledger.formats.weights import Dense, GroupInt, WeightFormat, stored_bytes
from vramledger.models.model import Model
from vramledger.models.quantization.names import Names, Repetitions, repetitions
from vramledger.models.tensors import Component, Role, Tensor

EXPERT_ROLES = frozenset({Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_GATE_UP, Role.EXPERT_DOWN})
_TEXT = frozenset({Component.DECODER, Component.DRAFT})


class Scope(StrEnum):
    """Which linears a rule may touch at all."""

    LINEARS = "linears"
    DECODER_LAYERS = "decoder layers"
    EXPERTS = "experts"


class Rule(Struct, frozen=True, kw_only=True):
    """A format for the linears of `scope` that `names` lists (None: all). The head is among them only where
    `lm_head` says so or names can name it."""

    format: WeightFormat
    scope: Scope = Scope.LINEARS
    names: Names | None = None
    lm_head: bool = False


class DeclaredKv(Struct, frozen=True, kw_only=True):
    """A KV cache type that the checkpoint asks for, in vLLM's spelling, and the key that says so."""

    dtype: str
    source: str


class StoredTensor(Struct, frozen=True, kw_only=True):
    """A tensor over the repetitions that share a format."""

    tensor: Tensor
    format: WeightFormat

    @property
    def stored_bytes(self) -> int:
        """Bytes in the checkpoint, all repetitions."""
        return stored_bytes(self.tensor.shape, self.format) * self.tensor.repetitions


class QuantizationScheme(Struct, frozen=True, kw_only=True):
    """Rules in order; the first that takes a repetition decides. `method` is the config's own word for it.

    `text_only` is set where the config of the text model, not of the whole, has the scheme: towers stay plain.
    """

    method: str
    rules: tuple[Rule, ...]
    ignored: Names
    text_only: bool = False
    declared_kv: DeclaredKv | None = None
    summary: str = ""

    def formats_of(self, tensor: Tensor, model_dtype: DType) -> dict[WeightFormat, Repetitions]:
        """Each format of a tensor and the repetitions (layer or block indices) that have it.

        Raises UnknownFormat where the experts of one layer differ.
        """
        dense = Dense(dtype=tensor.dtype or model_dtype)
        left = repetitions(tensor)
        if not tensor.linear or (self.text_only and tensor.component not in _TEXT):
            return {dense: left}
        module = tensor.module
        out: dict[WeightFormat, Repetitions] = {}
        plain = self.ignored.select(tensor, module) if self.ignored else frozenset()
        left -= plain
        for rule in self.rules:
            if not left:
                break
            if not _in_scope(rule, tensor):
                continue
            taken = left if rule.names is None else left & rule.names.select(tensor, module)
            if taken:
                out[rule.format] = out.get(rule.format, frozenset()) | taken
                left -= taken
        plain |= left
        if plain:
            out[dense] = plain
        return out

    def format_of(self, module: str, tensor: Tensor, model_dtype: DType) -> WeightFormat:
        """The format of one module, named with real numbers ("model.layers.3.mlp.gate_proj") or by its template.

        A template means its first repetition.
        """
        formats = self.formats_of(tensor, model_dtype)
        wanted = [int(part) for part in module.split(".") if part.isdecimal()]
        index = (
            wanted[0] if wanted and wanted[0] in repetitions(tensor) else min(repetitions(tensor), default=0)
        )
        return next((kind for kind, where in formats.items() if index in where), next(iter(formats)))


def _in_scope(rule: Rule, tensor: Tensor) -> bool:
    if tensor.role is Role.LM_HEAD:
        return rule.lm_head or (rule.names is not None and bool(rule.names))
    match rule.scope:
        case Scope.LINEARS:
            return True
        case Scope.EXPERTS:
            return tensor.role in EXPERT_ROLES
        case Scope.DECODER_LAYERS:
            return tensor.component is Component.DECODER and bool(tensor.layers)


def apply(model: Model, scheme: QuantizationScheme | None) -> tuple[StoredTensor, ...]:
    """Every tensor of the model with its stored format, split only where its repetitions differ.

    None is an unquantised checkpoint. Raises UnknownFormat as `formats_of` does.
    """
    if scheme is None:
        return tuple(
            StoredTensor(tensor=tensor, format=Dense(dtype=tensor.dtype or model.dtype))
            for tensor in model.tensors
        )
    with_bias = {tensor.module for tensor in model.tensors if tensor.name.endswith(".bias")}
    out: list[StoredTensor] = []
    for tensor in model.tensors:
        for kind, where in scheme.formats_of(tensor, model.dtype).items():
            if isinstance(kind, GroupInt) and kind.bias and tensor.module in with_bias:
                kind = replace(kind, bias=False)  # noqa: PLW2901 - the module's own bias is a tensor of the model
            out.append(StoredTensor(tensor=_restricted(tensor, where), format=kind))
    return tuple(out)


def _restricted(tensor: Tensor, where: Repetitions) -> Tensor:
    if len(where) == len(repetitions(tensor)):
        return tensor
    if tensor.layers:
        return replace(tensor, layers=tuple(layer for layer in tensor.layers if layer in where))
    return replace(tensor, copies=len(where))
