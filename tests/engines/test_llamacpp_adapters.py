"""Adapters under llama.cpp: GGUF files, whole on the device, one set a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf_builder import GgufWriter

from adapter_files import lora, write_adapter
from support import H100, LLAMA_3_1_8B, checkpoint
from vramledger import plan
from vramledger.engines.adapter_service import AdapterService, Place
from vramledger.engines.llamacpp.adapter_rules import adapter_service, with_adapters
from vramledger.errors import FlagError
from vramledger.ledger import Owner
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.load import load_adapter

LLAMA = checkpoint(LLAMA_3_1_8B | {"architectures": ["LlamaForCausalLM"]})
FLAGS = {"ftype": "Q8_0", "ctx_size": 8192, "gpu_layers": "99"}


def gguf(path: Path, *, rank: int = 16, width: int = 4096, kind: str = "F16") -> Adapter:
    writer = GgufWriter(
        keys=[
            ("general.architecture", "str", "llama"),
            ("general.type", "str", "adapter"),
            ("adapter.type", "str", "lora"),
            ("adapter.lora.alpha", "f32", 32.0),
        ]
    )
    for layer in range(32):
        writer.tensors.append((f"blk.{layer}.attn_q.weight.lora_a", [width, rank], kind))
        writer.tensors.append((f"blk.{layer}.attn_q.weight.lora_b", [rank, width], kind))
    return load_adapter(str(writer.write(path)))


def service(*adapters: Adapter, hot: int | None = None) -> AdapterService:
    return adapter_service(LLAMA, H100, version=None, values=FLAGS, adapters=adapters, hot=hot)


def test_every_adapter_lies_on_the_device_at_its_own_type(tmp_path: Path) -> None:
    half, full = gguf(tmp_path / "half.gguf"), gguf(tmp_path / "full.gguf", rank=8, kind="F32")
    found = service(half, full)
    assert [use.place for use in found.served] == [Place.DEVICE, Place.DEVICE]
    assert [use.own_bytes for use in found.served] == [2 * 32 * 16 * 8192, 4 * 32 * 8 * 8192]
    assert "one set of adapters" in found.sharing[0]
    with_them, without = with_adapters(FLAGS, found)
    both = plan(LLAMA, H100, engine="llamacpp", **with_them)  # type: ignore[arg-type]
    none = plan(LLAMA, H100, engine="llamacpp", **without)  # type: ignore[arg-type]
    held = sum(rank.owned(Owner.ADAPTERS).expected for rank in both.ranks)
    held += sum(entry.bytes.expected for entry in both.host if entry.owner is Owner.ADAPTERS)
    assert held == sum(use.own_bytes for use in found.served)
    assert all(rank.owned(Owner.ADAPTERS).high == 0 for rank in none.ranks)


def test_what_does_not_load(tmp_path: Path) -> None:
    modules = {"self_attn.q_proj": (4096, 4096)}
    config = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
    plain = load_adapter(str(write_adapter(tmp_path / "peft", config, lora(modules, 8, layers=range(32)))))
    other = gguf(tmp_path / "other.gguf", width=2048)
    found = service(plain, other)
    assert [use.place for use in found.served] == [Place.REFUSED, Place.REFUSED]
    assert "convert_lora_to_gguf" in found.served[0].refusals[0]
    assert "is adapted as [2048 x 2048]" in found.served[1].refusals[0]


def test_none_is_cold(tmp_path: Path) -> None:
    with pytest.raises(FlagError, match="keeps every adapter it loads on the device"):
        service(gguf(tmp_path / "a.gguf"), gguf(tmp_path / "b.gguf"), hot=1)
