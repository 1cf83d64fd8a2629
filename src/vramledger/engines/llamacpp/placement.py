"""Which buffer every tensor lies in, and which device every layer is computed on.

Source: llama.cpp src/llama-model.cpp (load_tensors: split points, buffer lists; [2025-02] where blocks start),
src/llama-model-loader.cpp (overrides, tied output), ggml/src/ggml-cuda/ggml-cuda.cu (split buffers).
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Mapping, Sequence

from msgspec import Struct

from vramledger.engines.llamacpp.file_tensors import FileTensor
from vramledger.engines.llamacpp.graph_memory import DEVICE_ALIGNMENT, HOST_ALIGNMENT
from vramledger.engines.llamacpp.settings import Settings
from vramledger.engines.llamacpp.tensor_graph import HOST
from vramledger.errors import FlagError
from vramledger.formats.ggml import ggml_type
from vramledger.units import round_up

ROW_ROUNDING = 128
"""Rows of a split buffer are cut at multiples of this (mmq tiles of recent devices)."""
ROW_PADDING = 512
"""A device's last row is padded to this many elements."""
_INPUT = (
    "token_embd",
    "token_types",
    "position_embd",
    "per_layer_token_embd",
    "per_layer_model_proj",
    "per_layer_proj_norm",
)


class Placement(Struct, frozen=True, kw_only=True):
    """`layers` is a device for each block, HOST for the CPU; `places` a device for each tensor.

    `device_bytes` are model buffers by device, `split_bytes` what row split puts there beside, `host_bytes` the
    sum on the host, `host_span_bytes` what a mapping of the file from its first to its last host tensor covers.
    `tied_bytes` is what a tied table takes beside the head on a device, `host_tied_bytes` what it takes a second time
    on the host where nothing is mapped.
    """

    layers: tuple[int, ...]
    output: int
    places: Mapping[str, int]
    device_bytes: tuple[int, ...]
    split_bytes: tuple[int, ...]
    host_bytes: int
    host_span_bytes: int
    offloaded: int
    total_layers: int
    tied_bytes: int
    host_tied_bytes: int


def place(
    tensors: Sequence[FileTensor],
    blocks: int,
    settings: Settings,
    free_bytes: Sequence[int],
    *,
    gpu_layers: int | None = None,
    experts_on_host: int | None = None,
    head_first: bool = False,
) -> Placement:
    """Place every tensor. `free_bytes` of each device decide the split where -ts does not; `gpu_layers` and
    `experts_on_host` (first blocks' experts) stand in for flags that fitting chose.

    Raises FlagError for a main device or a buffer that is not there.
    """
    devices = settings.devices
    count = _count(blocks, settings, gpu_layers)
    shares = _shares(settings, free_bytes)
    start = max(blocks + 1 - count, 0) if settings.build.has_fit else max(blocks - count, 0)
    active = min(count, blocks + 1)
    layers = tuple(_device(il, start, active, shares) if devices else HOST for il in range(blocks))
    output = HOST
    if devices and (settings.build.has_fit or count > blocks) and active:
        output = _device(blocks, start, active, shares)
    places: dict[str, int] = {}
    device_bytes, split_bytes = [0] * devices, [0] * devices
    overrides = [(pattern, _buffer(text, devices)) for pattern, text in settings.flags.overrides()]
    rows = settings.flags.split_mode == "row" and devices > 1
    span_start, span_end, at, host = -1, -1, 0, 0
    for item in tensors:
        size = round_up(item.size_bytes, HOST_ALIGNMENT)
        where = _place(item, layers, output, settings)
        where = _overridden(item.name, overrides, where, experts_on_host)
        places[item.name] = where
        if where == HOST:
            host += size
            span_start = at if span_start < 0 else span_start
            span_end = at + item.size_bytes
        elif rows and len(item.dims) == 2 and min(item.dims) > 1 and not item.name.startswith(_INPUT):
            for device, part in enumerate(_rows(item, shares)):
                split_bytes[device] += part
        else:
            device_bytes[where] += round_up(item.size_bytes, DEVICE_ALIGNMENT)
        at += size
    tied = again = 0
    if not any(item.name == "output.weight" for item in tensors):
        table = next((item for item in tensors if item.name == "token_embd.weight"), None)
        tied = table.size_bytes if table is not None and output != HOST else 0
        again = table.size_bytes if table is not None and output == HOST and head_first else 0
        if tied and rows and table is not None:
            for device, part in enumerate(_rows(table, shares)):
                split_bytes[device] += part
        elif tied:
            device_bytes[output] += tied
    return Placement(
        layers=layers,
        output=output,
        places=places,
        device_bytes=tuple(device_bytes),
        split_bytes=tuple(split_bytes),
        host_bytes=host,
        host_span_bytes=span_end - span_start if span_start >= 0 else 0,
        offloaded=min(count, blocks + 1) if devices else 0,
        total_layers=blocks + 1,
        tied_bytes=tied,
        host_tied_bytes=again,
    )


def _count(blocks: int, settings: Settings, chosen: int | None) -> int:
    if chosen is not None:
        return chosen
    asked = settings.flags.layers_offloaded()
    if asked is None:
        # Before fitting, nothing was offloaded unless it was asked for.
        return blocks + 1 if settings.build.has_fit else 0
    return blocks + 1 if asked < 0 else asked


def _shares(settings: Settings, free_bytes: Sequence[int]) -> tuple[float, ...]:
    """Cumulative shares of the devices, in single precision as the engine has them."""
    devices = settings.devices
    if not devices:
        return ()
    if settings.flags.split_mode == "none":
        main = settings.flags.main_gpu or 0
        if main >= devices:
            raise FlagError(f"--main-gpu {main}: there are {devices} device(s)", flag="main_gpu", value=main)
        return tuple(0.0 if device < main else 1.0 for device in range(devices))
    stated = settings.flags.shares()
    parts = [*stated, *([0.0] * (devices - len(stated)))] if stated else [float(size) for size in free_bytes]
    total, out = 0.0, []
    for part in parts:
        total = _single(total + _single(part))
        out.append(total)
    return tuple(_single(value / total) for value in out)


def _single(value: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found


def _device(il: int, start: int, active: int, shares: Sequence[float]) -> int:
    if il < start or il - start >= active:
        return HOST
    part = _single((il - start) / active)
    return next((device for device, share in enumerate(shares) if share > part), len(shares) - 1)


def _place(tensor: FileTensor, layers: Sequence[int], output: int, settings: Settings) -> int:
    layer = tensor.layer
    if layer is not None:
        return layers[layer] if layer < len(layers) else HOST
    if tensor.name.startswith("per_layer_") and not settings.build.keeps_layer_inputs_on_host:
        return output
    if tensor.name.startswith(_INPUT):
        return HOST
    if tensor.name == "rope_freqs.weight":
        return layers[0] if layers else HOST
    return output


def _overridden(
    name: str, overrides: Sequence[tuple[re.Pattern[str], int]], where: int, experts_on_host: int | None
) -> int:
    for pattern, place_of_matches in overrides:
        if pattern.search(name) is not None:
            return place_of_matches
    if experts_on_host and "exps" in name:
        head = name.split(".")
        if len(head) > 1 and head[1].isdigit() and int(head[1]) < experts_on_host:
            return HOST
    return where


def _buffer(text: str, devices: int) -> int:
    if text.upper().startswith("CPU") or text.endswith("_Host"):
        return HOST
    digits = text.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    if digits.isdigit() and int(digits) < devices:
        return int(digits)
    raise FlagError(
        f"--override-tensor: there is no buffer {text!r}; CPU and {devices} device(s) are there",
        flag="override_tensor",
        value=text,
    )


def _rows(tensor: FileTensor, shares: Sequence[float]) -> list[int]:
    """Bytes of a matrix on each device when its rows are cut."""
    kind = ggml_type(tensor.type)
    row, rows = kind.bytes_for(tensor.dims[0], 1), tensor.dims[1]
    edges = [0]
    for share in shares[:-1]:
        edge = int(rows * share)
        edges.append(edge - edge % ROW_ROUNDING)
    edges.append(rows)
    out = []
    for low, high in itertools.pairwise(edges):
        size = (high - low) * row
        spare = tensor.dims[0] % ROW_PADDING
        if size and spare:
            size += (
                kind.bytes_for(ROW_PADDING - spare, 1)
                if (ROW_PADDING - spare) % kind.block_elements == 0
                else 0
            )
        out.append(size)
    return out
