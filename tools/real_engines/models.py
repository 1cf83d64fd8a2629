"""Tiny models with random weights in the layout that engines load, from a config alone and without torch.

Tensors come from the architecture's description under the checkpoint's names, so an engine that loads a folder also says that
its inventory of tensors is ours.
"""

from __future__ import annotations

import json
import random
import struct
from array import array
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from tools.make_headers import CODES, named

from vramledger.formats.dtypes import DType
from vramledger.models.architectures import describe
from vramledger.models.config import Config
from vramledger.models.tensors import Role

CHUNK = 1 << 15
SPREAD = 0.05
SPECIAL = ("<|pad|>", "<|bos|>", "<|eos|>")

Entry = tuple[str, DType, tuple[int, ...], Role]


def make_model(folder: Path, config: dict[str, Any], *, seed: int = 0) -> int:
    """Write config.json, model.safetensors and a tokenizer; returns the bytes of the weights.

    Weights are uniform in +-0.05 and norms 1, from a generator of the standard library: one seed, one file on every machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    held = config.get("text_config", config)
    _tokenizer(folder, int(held["vocab_size"]), int(held["max_position_embeddings"]))
    entries = list(_entries(config))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape, _ in entries:
        begin, end = end, end + dtype.bytes_for(prod(shape))
        header[name] = {"dtype": CODES[dtype], "shape": shape, "data_offsets": (begin, end)}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        stock = _Stock(seed)
        for _, dtype, shape, role in entries:
            stock.write(file, dtype, prod(shape), one=role is Role.NORM)
    return end


def _entries(config: dict[str, Any]) -> Iterator[Entry]:
    """Every tensor in the order of the file."""
    model = describe(Config(config, "config.json"), "tiny")
    # Published as MXFP4 blocks along the input; in 16 bits the class keeps experts the other way round.
    turned = config.get("model_type") == "gpt_oss"
    for name, tensor in named(model):
        single = "{expert}" in name
        shape = tensor.shape[1:] if single else tensor.shape
        if turned and tensor.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN) and len(shape) == 3:
            shape = (shape[0], shape[2], shape[1])
        for at in range(tensor.shape[0] if single else 1):
            yield name.replace("{expert}", str(at)), tensor.dtype or model.dtype, shape, tensor.role


class _Stock:
    """Random numbers made once, in two element types, and written again and again from changing places."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        values = array("f", (self._random.uniform(-SPREAD, SPREAD) for _ in range(2 * CHUNK)))
        self._held = {DType.F32: values.tobytes(), DType.BF16: _bf16(values)}
        ones = array("f", [1.0]) * CHUNK
        self._ones = {DType.F32: ones.tobytes(), DType.BF16: _bf16(ones)}

    def write(self, file: BinaryIO, dtype: DType, count: int, *, one: bool) -> None:
        if dtype not in self._held:
            raise SystemExit(f"tiny weights are not written as {dtype}")
        width = dtype.bytes_for(1)
        while count:
            some = min(count, CHUNK)
            start = 0 if one else self._random.randrange(CHUNK) * width
            file.write((self._ones if one else self._held)[dtype][start : start + some * width])
            count -= some


def _bf16(values: array[float]) -> bytes:
    """The upper halves of little-endian float32."""
    raw = values.tobytes()
    out = bytearray(len(raw) // 2)
    out[0::2], out[1::2] = raw[2::4], raw[3::4]
    return bytes(out)


def _tokenizer(folder: Path, vocab_size: int, longest: int) -> None:
    """Byte-level BPE without merges: specials, the 256 bytes, and words that only an id names."""
    words = [*SPECIAL, *_byte_letters()]
    words += [f"w{at}" for at in range(len(words), vocab_size)]
    special = [
        {
            "id": at,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for at, text in enumerate(SPECIAL)
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    content = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {word: at for at, word in enumerate(words)}, "merges": []},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **dict(zip(("pad_token", "bos_token", "eos_token"), SPECIAL, strict=True)),
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
    }
    for name, document in (("tokenizer", content), ("tokenizer_config", settings)):
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")


def _byte_letters() -> list[str]:
    """The letter that byte-level BPE writes for each byte: itself where it prints, else one from 256 on."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]
