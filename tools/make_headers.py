"""Write the safetensors files of a model with real headers and holes for data, to measure how headers are read.

    python tools/make_headers.py CONFIG OUT [--fp8] [--split-experts N] [--shard-bytes 5000000000]

CONFIG is anything `vramledger plan` takes; its config alone is used. Tensors come from the architecture's description
under the checkpoint's names, experts one by one. `--fp8` stores matrices as DeepSeek-V3 does (F8_E4M3 and one F32
`weight_scale_inv` for each block of 128 x 128). `--split-experts 16` makes 16 times as many experts, each a 16th as
wide: the same bytes of weights under 16 times as many names (DeepSeek-V3 with it has about 200 MB of headers).
Files take next to no space where the file system keeps holes.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path

from vramledger.formats.dtypes import DType
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.model import Model
from vramledger.models.sources.load import load_source
from vramledger.models.sources.safetensors import ELEMENT_TYPES
from vramledger.models.tensors import Role, Tensor
from vramledger.units import ceil_div, format_bytes

CODES = {dtype: code for code, dtype in ELEMENT_TYPES.items()}
SCALE_BLOCK = 128
Entry = tuple[str, DType, tuple[int, ...]]


def split_experts(config: dict[str, object], times: int) -> None:
    """`times` as many experts of a `times`-th the width, in place."""
    width = config.get("moe_intermediate_size")
    for key in ("n_routed_experts", "num_experts", "num_local_experts"):
        count = config.get(key)
        if isinstance(count, int) and isinstance(width, int) and width % times == 0:
            config[key], config["moe_intermediate_size"] = count * times, width // times
            return
    raise SystemExit(f"this model's experts cannot be split in {times}")


def named(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Every repetition of every tensor with its name, layer by layer as checkpoints are written."""
    inside: dict[int, list[Tensor]] = {}
    for tensor in model.tensors:
        if not tensor.layers:
            for copy in range(tensor.copies):
                yield tensor.name.replace("{block}", str(copy)), tensor
        for layer in tensor.layers:
            inside.setdefault(layer, []).append(tensor)
    for layer in sorted(inside):
        for tensor in inside[layer]:
            yield tensor.name.replace("{layer}", str(layer)).replace("{block}", str(layer)), tensor


def entries(model: Model, *, fp8: bool) -> Iterator[Entry]:
    """Name, element type and shape of every tensor in the files."""
    for name, tensor in named(model):
        single = "{expert}" in name
        names = [name.replace("{expert}", str(at)) for at in range(tensor.shape[0])] if single else [name]
        shape = tensor.shape[1:] if single else tensor.shape
        quantised = (
            fp8
            and tensor.linear
            and tensor.role is not Role.LM_HEAD
            and len(shape) == 2
            and name.endswith(".weight")
        )
        dtype = DType.F8_E4M3 if quantised else tensor.dtype or model.dtype
        scales = tuple(ceil_div(size, SCALE_BLOCK) for size in shape)
        for each in names:
            yield each, dtype, shape
            if quantised:
                yield f"{each}_scale_inv", DType.F32, scales


class Shards:
    """Fills one file after the other."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.parts: list[str] = []
        self.names: list[list[str]] = []
        self.data_bytes = self.total_bytes = self.header_bytes = 0

    def add(self, name: str, dtype: DType, shape: tuple[int, ...]) -> None:
        size = dtype.bytes_for(prod(shape))
        if self.parts and self.data_bytes + size > self.limit_bytes:
            self.flush()
        if not self.parts:
            self.names.append([])
        begin, self.data_bytes = self.data_bytes, self.data_bytes + size
        entry = {"dtype": CODES[dtype], "shape": shape, "data_offsets": (begin, self.data_bytes)}
        self.parts.append(f"{json.dumps(name)}:{json.dumps(entry, separators=(',', ':'))}")
        self.names[-1].append(name)

    def flush(self) -> None:
        text = '{"__metadata__":{"format":"pt"},' + ",".join(self.parts) + "}"
        raw = text.encode() + b" " * (-len(text) % 8)
        with (self.folder / f"part-{len(self.names)}").open("wb") as file:
            file.write(struct.pack("<Q", len(raw)) + raw)
            file.truncate(8 + len(raw) + self.data_bytes)
        self.header_bytes += 8 + len(raw)
        self.total_bytes += self.data_bytes
        self.parts, self.data_bytes = [], 0

    def finish(self) -> int:
        """Final names and the index; the number of tensors."""
        self.flush()
        count = len(self.names)
        weight_map: dict[str, str] = {}
        for number, names in enumerate(self.names, start=1):
            shard = f"model-{number:05d}-of-{count:05d}.safetensors"
            (self.folder / f"part-{number}").replace(self.folder / shard)
            weight_map.update(dict.fromkeys(names, shard))
        index = {"metadata": {"total_size": self.total_bytes}, "weight_map": weight_map}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return len(weight_map)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config")
    parser.add_argument("out", type=Path)
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--split-experts", type=int, default=1, metavar="N")
    parser.add_argument("--shard-bytes", type=int, default=5_000_000_000)
    options = parser.parse_args()

    source = load_source(options.config, headers=False)
    config = dict(source.config)
    if options.split_experts > 1:
        split_experts(config, options.split_experts)
    model = describe(Config(config, source.where), source.id)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "config.json").write_text(json.dumps(config, indent=2))
    shards = Shards(options.out, options.shard_bytes)
    for name, dtype, shape in entries(model, fp8=options.fp8):
        shards.add(name, dtype, shape)
    count = shards.finish()
    print(
        f"{options.out}: {count} tensors in {len(shards.names)} files,"
        f" {format_bytes(shards.header_bytes)} of headers, {format_bytes(shards.total_bytes)} of data"
    )


if __name__ == "__main__":
    main()
