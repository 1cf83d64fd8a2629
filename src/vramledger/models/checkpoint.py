"""A model together with how its checkpoint stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from vramledger.evidence import Evidence
from vramledger.models.model import Model
from vramledger.models.quantization import StoredTensor

if TYPE_CHECKING:
    from vramledger.models.sources.gguf import GgufInfo


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What planning needs to know of a model, however it was read.

    `stored` covers every tensor of `model`. `disk_bytes` is the size of all tensors on disk; its evidence
    says whether headers, an index or arithmetic gave it. `declared_kv_dtype` is a KV cache type the checkpoint
    asks for and `declared_kv_source` the key that says so. `differences` are what headers and config disagree on.
    `gguf` is the file's own list of tensors where the checkpoint is a GGUF file.
    """

    model: Model
    stored: tuple[StoredTensor, ...]
    quantization: str
    disk_bytes: int
    disk_evidence: Evidence
    largest_file_bytes: int = 0
    declared_kv_dtype: str | None = None
    declared_kv_source: str = ""
    differences: tuple[str, ...] = ()
    gguf: GgufInfo | None = None
