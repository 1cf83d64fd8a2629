"""A LoRA adapter as its files have it, before any model or engine is asked."""

from __future__ import annotations

from math import prod

from msgspec import Struct

from vramledger.evidence import Evidence
from vramledger.models.adapters.config import AdapterConfig
from vramledger.models.adapters.names import PartKind


class LoraPair(Struct, frozen=True, kw_only=True):
    """A of [rank, d_in] and B of [d_out, rank], the same on `count` modules whose paths differ only in indices.

    `module` has `{}` for each index and `layers` the values of the first one in ascending runs (none where the
    path has no index). `stack` counts the experts of matrices with three axes, each of this rank; PEFT stacks
    experts in two axes, where `rank` is the rows of all of them together. `dtype` is the file's own name of A's
    element type, `stored_bytes` all of A and B in the file.
    """

    module: str
    rank: int
    d_in: int
    d_out: int
    layers: tuple[range, ...]
    count: int
    dtype: str
    stored_bytes: int
    stack: int = 1
    is_embedding: bool = False

    @property
    def elements(self) -> int:
        """Elements of A and B on all modules."""
        return self.count * self.stack * self.rank * (self.d_in + self.d_out)


class ExtraTensor(Struct, frozen=True, kw_only=True):
    """A tensor beside the pairs: a magnitude vector, a whole module, a bias, trained rows, a copied weight."""

    module: str
    kind: PartKind
    shape: tuple[int, ...]
    count: int
    dtype: str
    stored_bytes: int

    @property
    def elements(self) -> int:
        return self.count * prod(self.shape)


class Adapter(Struct, frozen=True, kw_only=True):
    """One adapter. `disk_bytes` is all its tensors' bytes, or where headers could not be read the file's.

    `is_read` says that headers gave the pairs; otherwise they come from the config once a base model is known.
    `is_gguf` marks llama.cpp's names and types. `unpaired` names modules with only one of the two matrices.
    """

    id: str
    where: str
    config: AdapterConfig
    pairs: tuple[LoraPair, ...]
    extras: tuple[ExtraTensor, ...]
    disk_bytes: int
    disk_evidence: Evidence
    is_read: bool = True
    is_gguf: bool = False
    unpaired: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Elements of all pairs and of what was trained beside them; copies of base weights are not trained."""
        extras = sum(item.elements for item in self.extras if item.kind is not PartKind.BASE_COPY)
        return sum(pair.elements for pair in self.pairs) + extras
