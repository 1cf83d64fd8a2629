"""Checkpoint folders for tests: a config.json, and safetensors files with real headers and holes for data."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from vramledger.formats.dtypes import DType
from vramledger.formats.weights import stored_parts
from vramledger.models.quantization import StoredTensor
from vramledger.models.sources.safetensors import ELEMENT_TYPES

CODES = {dtype: code for code, dtype in ELEMENT_TYPES.items()}
Tensors = dict[str, tuple[DType, tuple[int, ...]]]

STACK_SUFFIXES = {".weight": "", ".weight_scale_inv": "_scale_inv"}
"""How the parts of a stack of experts without `.weight` end."""


def tensors_of(stored: Iterable[StoredTensor]) -> Tensors:
    """Every tensor of a described checkpoint by its name in the files."""
    out: Tensors = {}
    for item in stored:
        tensor = item.tensor
        is_single = "{expert}" in tensor.name
        for part in stored_parts(tensor.shape[1:] if is_single else tensor.shape, item.format):
            for name in names(item):
                out[with_suffix(name, part.suffix)] = (part.dtype, part.shape)
    return out


def names(item: StoredTensor) -> Iterator[str]:
    """The tensor's name for every repetition and, where they are stored one by one, every expert."""
    tensor = item.tensor
    for index in tensor.layers or range(tensor.copies):
        name = tensor.name.replace("{layer}", str(index)).replace("{block}", str(index))
        if "{expert}" in name:
            yield from (name.replace("{expert}", str(expert)) for expert in range(tensor.shape[0]))
        else:
            yield name


def with_suffix(name: str, suffix: str) -> str:
    if name.endswith(".bias") or (suffix == ".weight" and name.endswith(".weight")):
        return name
    if name.endswith(".weight"):
        return name.removesuffix(".weight") + suffix
    return name + STACK_SUFFIXES.get(suffix, suffix)


def total_bytes(tensors: Tensors) -> int:
    return sum(dtype.bytes_for(prod(shape)) for dtype, shape in tensors.values())


def write_safetensors(path: Path, tensors: Tensors) -> Path:
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = dtype.bytes_for(prod(shape))
        header[name] = {"dtype": CODES[dtype], "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return path


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Tensors, *, files: int = 1) -> Path:
    """config.json and the tensors in `files` shards, with an index where there are several."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if files == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    weight_map: dict[str, str] = {}
    for number in range(files):
        name = f"model-{number + 1:05d}-of-{files:05d}.safetensors"
        part = {key: tensors[key] for key in list(tensors)[number::files]}
        write_safetensors(folder / name, part)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": total_bytes(tensors)}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder
