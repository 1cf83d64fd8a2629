"""A model as every engine sees it: dimensions, layers, tensors."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from vramledger.formats.dtypes import DType
from vramledger.models.mixers import DenseMlp, Layer, MixtureOfExperts, TokenMixer
from vramledger.models.tensors import Component, Role, Tensor


class Rope(Struct, frozen=True, kw_only=True):
    """One rotary embedding. `max_positions` is the config's own; `scaling` the kind ("default", "linear",
    "dynamic", "yarn", "llama3", "longrope", "mrope", ...) with its `factor` and original length."""

    rotary_dim: int
    max_positions: int
    scaling: str = "default"
    factor: float = 1.0
    original_positions: int = 0


class Tower(Struct, frozen=True, kw_only=True):
    """An encoder for another modality, as the profile run of an engine meets it.

    `max_item_tokens` is what one largest item gives the language model after merging, `patches_per_token`
    how many encoder positions make one such token (0 in either: not known from the config).
    `input_elements_per_patch` are the pixel or feature values of one position (3 x 14 x 14 for the common
    patch), `kept_hidden_states` the intermediate states that are kept for the output beside the last.
    """

    modality: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_item_tokens: int = 0
    patches_per_token: int = 0
    input_elements_per_patch: int = 588
    kept_hidden_states: int = 0


class ParameterCounts(Struct, frozen=True, kw_only=True):
    """Elements by part, tied tensors once; draft (MTP) heads apart since engines load them only on request."""

    total: int
    active: int
    embedding: int
    draft: int
    by_group: tuple[tuple[str, int], ...]


class Model(Struct, frozen=True, kw_only=True, dict=True):
    """What a model is. `tensors` covers everything a checkpoint of it holds, with a tied head listed once.

    `draft_layers` counts MTP layers stored in the checkpoint (their tensors have Component.DRAFT), `notes`
    what a reader should know (a default taken from the model class, a tensor the config does not size).
    `state_dtype` is the element type of recurrent states where the config declares one.
    """

    id: str
    architecture: str
    model_type: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    dtype: DType
    tie_word_embeddings: bool
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    rope: tuple[Rope, ...] = ()
    towers: tuple[Tower, ...] = ()
    encoder_layers: tuple[Layer, ...] = ()
    draft_layers: tuple[Layer, ...] = ()
    is_pooling: bool = False
    state_dtype: DType | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @cached_property
    def token_mixers(self) -> tuple[TokenMixer, ...]:
        """Those of every layer, in order; a parallel hybrid's layer has two."""
        return tuple(mixer for layer in self.layers for mixer in layer.token_mixers)

    @cached_property
    def _mixer_types(self) -> frozenset[type[TokenMixer]]:
        return frozenset(map(type, self.token_mixers))

    def has_mixer(self, kinds: type | tuple[type, ...]) -> bool:
        """Whether any layer mixes tokens by one of `kinds`."""
        return any(issubclass(kind, kinds) for kind in self._mixer_types)

    @cached_property
    def is_moe(self) -> bool:
        return any(isinstance(layer.channel_mixer, MixtureOfExperts) for layer in self.layers)

    @cached_property
    def intermediate_size(self) -> int:
        """Widest dense MLP, 0 where every layer is a mixture of experts or has none."""
        widths = [m.channel_mixer.intermediate for m in self.layers if isinstance(m.channel_mixer, DenseMlp)]
        return max(widths, default=0)

    def parameter_counts(self) -> ParameterCounts:
        """Totals over `tensors`; active counts top_k of num_experts of every experts tensor."""
        share: dict[int, tuple[int, int]] = {
            layer.index: (layer.channel_mixer.top_k, layer.channel_mixer.num_experts)
            for layer in self.layers
            if isinstance(layer.channel_mixer, MixtureOfExperts)
        }
        total = active = embedding = draft = 0
        groups: dict[str, int] = {}
        for tensor in self.tensors:
            if not tensor.parameter:
                continue
            size = tensor.total_elements
            if tensor.component is Component.DRAFT:
                draft += size
                continue
            total += size
            groups[tensor_group(tensor)] = groups.get(tensor_group(tensor), 0) + size
            if tensor.role is Role.EMBEDDING:
                embedding += size
            if tensor.num_experts and tensor.layers and tensor.layers[0] in share:
                top_k, num_experts = share[tensor.layers[0]]
                active += size * min(top_k, num_experts) // num_experts
            else:
                active += size
        return ParameterCounts(
            total=total, active=active, embedding=embedding, draft=draft, by_group=tuple(groups.items())
        )


_ATTENTION = {
    Role.Q, Role.K, Role.V, Role.QKV, Role.O, Role.Q_A, Role.Q_B, Role.KV_A, Role.KV_B, Role.INDEXER,
    Role.SINKS,
}  # fmt: skip
_MLP = {Role.GATE, Role.UP, Role.GATE_UP, Role.DOWN}
_EXPERTS = {Role.EXPERT_GATE, Role.EXPERT_UP, Role.EXPERT_GATE_UP, Role.EXPERT_DOWN}
_SHARED = {Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_GATE_UP, Role.SHARED_DOWN}
_RECURRENT = {Role.SSM_IN, Role.SSM_CONV, Role.SSM_OUT, Role.SSM_PARAM}


def tensor_group(tensor: Tensor) -> str:
    """The part of the model a tensor is counted under: attention, mlp, experts, vision, draft, ..."""
    if tensor.component is not Component.DECODER:
        return tensor.component.value
    for roles, name in (
        (_ATTENTION, "attention"), (_MLP, "mlp"), (_EXPERTS, "experts"), (_SHARED, "shared_experts"),
        (_RECURRENT, "recurrent"),
    ):  # fmt: skip
        if tensor.role in roles:
            return name
    return tensor.role.value
