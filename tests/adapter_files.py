"""Adapters on disk for tests: adapter_config.json, and files with real headers and holes for data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checkpoint_files import CODES, write_safetensors
from vramledger.formats.dtypes import DType

TYPES = {code: dtype for dtype, code in CODES.items()}
Written = Mapping[str, Sequence[Any]]
"""Tensors by name: the file format's type and the shape."""


def write_adapter(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Written | None,
    *,
    name: str = "adapter_model.safetensors",
) -> Path:
    """A folder as PEFT saves it; without tensors only the config is there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    if tensors is not None:
        made = {key: (TYPES[code], tuple(shape)) for key, (code, shape) in tensors.items()}
        write_safetensors(folder / name, made)
    return folder


def lora(
    modules: Mapping[str, tuple[int, int]],
    rank: int,
    *,
    layers: Sequence[int] = (0, 1),
    dtype: DType = DType.BF16,
    prefix: str = "base_model.model.model.layers.{layer}.",
) -> dict[str, tuple[str, tuple[int, int]]]:
    """A and B of `modules` (path below a layer: output and input width) in every layer."""
    out: dict[str, tuple[str, tuple[int, int]]] = {}
    for layer in layers:
        for module, (d_out, d_in) in modules.items():
            stem = f"{prefix}{module}".replace("{layer}", str(layer))
            out[f"{stem}.lora_A.weight"] = (CODES[dtype], (rank, d_in))
            out[f"{stem}.lora_B.weight"] = (CODES[dtype], (d_out, rank))
    return out
