"""Adapters and projectors: GGUF files loaded beside the model.

Source: llama.cpp src/llama-adapter.cpp (each A and B lies beside the weight it patches), tools/mtmd/clip.cpp.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from vramledger.engines.llamacpp.flags import LlamaFlags
from vramledger.engines.llamacpp.placement import Placement
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.errors import FlagError

MOST_ADAPTERS = 64


class ExtraFiles(Struct, frozen=True, kw_only=True):
    """Bytes by device of adapters, and of the projector on the first device or the host."""

    adapters: dict[int, int]
    adapter_count: int
    projector_bytes: int
    projector_elements: int


def extra_files(flags: LlamaFlags, placement: Placement) -> ExtraFiles:
    """Read the headers of --lora and --mmproj files.

    Raises FlagError for too many adapters, HeaderError and SourceError for files that cannot be read.
    """
    names = [part.strip() for part in (flags.lora or "").split(",") if part.strip()]
    if len(names) > MOST_ADAPTERS:
        raise FlagError(
            f"--lora names {len(names)} files, more than {MOST_ADAPTERS}", flag="lora", value=len(names)
        )
    if not names and not flags.mmproj:
        return ExtraFiles(adapters={}, adapter_count=0, projector_bytes=0, projector_elements=0)
    from vramledger.models.sources.gguf import read_gguf

    adapters: dict[int, int] = {}
    for name in names:
        for tensor in read_gguf(Path(name)).tensors:
            base = tensor.name.removesuffix(".lora_a").removesuffix(".lora_b")
            where = placement.places.get(base, HOST)
            adapters[where] = adapters.get(where, 0) + tensor.tensor_bytes
    projector = read_gguf(Path(flags.mmproj)) if flags.mmproj else None
    return ExtraFiles(
        adapters=adapters,
        adapter_count=len(names),
        projector_bytes=projector.total_bytes if projector is not None else 0,
        projector_elements=projector.total_elements if projector is not None else 0,
    )
