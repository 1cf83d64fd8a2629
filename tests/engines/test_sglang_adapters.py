"""Adapters under SGLang: what they set, where they lie, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter_files import lora, write_adapter
from support import H100, LLAMA_3_1_8B, checkpoint
from vramledger import plan
from vramledger.answer import Plan
from vramledger.engines.adapter_service import AdapterService, Place
from vramledger.engines.sglang.adapter_rules import adapter_service, with_adapters
from vramledger.errors import FlagError
from vramledger.ledger import Owner
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.load import load_adapter

LLAMA = checkpoint(LLAMA_3_1_8B | {"architectures": ["LlamaForCausalLM"]})
QV = {"self_attn.q_proj": (4096, 4096), "self_attn.v_proj": (1024, 4096)}
ALL = QV | {
    "self_attn.k_proj": (1024, 4096), "self_attn.o_proj": (4096, 4096), "mlp.gate_proj": (14336, 4096),
    "mlp.up_proj": (14336, 4096), "mlp.down_proj": (4096, 14336),
}  # fmt: skip


def adapter(folder: Path, name: str, rank: int = 8, modules: Any = QV, **config: Any) -> Adapter:
    targets = [module.rpartition(".")[2] for module in modules]
    written = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": targets} | config
    return load_adapter(str(write_adapter(folder / name, written, lora(modules, rank, layers=range(32)))))


def planned(*adapters: Adapter, **flags: Any) -> Plan:
    return plan(LLAMA, H100, engine="sglang", context_length=8192, adapter=adapters, **flags)


def service(
    *adapters: Adapter, version: str | None = None, hot: int | None = None, **flags: Any
) -> AdapterService:
    return adapter_service(LLAMA, H100, version=version, values=flags, adapters=adapters, hot=hot)


def test_the_pool_is_made_for_the_modules_and_the_rank_of_the_adapters(tmp_path: Path) -> None:
    """A of [3 x rank, in] for q, k and v together, and B of their widths, in eight slots."""
    found = planned(adapter(tmp_path, "a"), adapter(tmp_path, "b", 16))
    one = 2 * 32 * 16 * (3 * 4096 + 4096 + 2 * 1024)
    assert found.ranks[0].owned(Owner.ADAPTERS).expected == 8 * one
    whole = planned(adapter(tmp_path, "c", 16, ALL), max_loras_per_batch=1)
    assert whole.ranks[0].owned(Owner.ADAPTERS).expected == 2 * 32 * 1_310_720


def test_flags_outdo_what_adapters_set(tmp_path: Path) -> None:
    found = planned(
        adapter(tmp_path, "a"), max_lora_rank=32, lora_target_modules="all", max_loras_per_batch=2
    )
    assert found.ranks[0].owned(Owner.ADAPTERS).expected == 2 * 2 * 2 * 32 * 1_310_720


def test_every_process_keeps_every_adapter(tmp_path: Path) -> None:
    one = 2 * 32 * 8 * (4096 + 4096 + 4096 + 1024)
    found = planned(adapter(tmp_path, "a"), adapter(tmp_path, "b"), tp_size=2)
    (entry,) = (entry for entry in found.host if entry.owner is Owner.ADAPTERS)
    assert entry.bytes.expected == 2 * 2 * one


def test_hot_ones_lie_in_the_pool_and_the_rest_in_host_memory(tmp_path: Path) -> None:
    found = service(adapter(tmp_path, "a"), adapter(tmp_path, "b", 16, ALL), hot=1)
    assert [use.place for use in found.served] == [Place.DEVICE, Place.HOST]
    assert (found.slots, found.rank) == (1, 16)
    assert found.served[1].own_bytes == found.served[1].slot_bytes == 2 * 32 * 1_310_720
    assert found.served[0].padding_bytes > 0
    with_them, without = with_adapters({"context_length": 8192}, found)
    assert set(with_them) - set(without) == {"adapter", "max_loras_per_batch", "max_lora_rank"}
    with pytest.raises(FlagError, match="between 1 and the 1"):
        service(adapter(tmp_path, "a"), hot=2)


@pytest.mark.parametrize(
    ("version", "change", "told"),
    [
        ("0.5.23", {"use_dora": True}, "DoRA"),
        ("0.5.13", {"use_dora": True}, "DoRA"),
        ("0.5.23", {"target_modules": r".*\.q_proj"}, "by a pattern"),
        ("0.5.23", {"target_modules": ["q_proj", "kv_b_proj"]}, "kv_b_proj"),
    ],
)
def test_what_is_refused(version: str, change: dict[str, Any], told: str, tmp_path: Path) -> None:
    (use,) = service(adapter(tmp_path, "a", **change), version=version).served
    assert use.place is Place.REFUSED
    assert any(told in text for text in use.refusals)


def test_what_loads_without_a_part_of_it(tmp_path: Path) -> None:
    (use,) = service(adapter(tmp_path, "a", modules_to_save=["lm_head"], bias="all")).served
    assert use.place is Place.DEVICE
    assert [text.partition(",")[0] for text in use.remarks] == [
        "replaces whole modules (lm_head)",
        "trains biases",
    ]


def test_a_rank_above_the_pool_is_refused(tmp_path: Path) -> None:
    small, large = adapter(tmp_path, "a"), adapter(tmp_path, "b", 64)
    found = service(small, large, max_lora_rank=16)
    assert [use.place for use in found.served] == [Place.DEVICE, Place.REFUSED]
    assert found.served[1].refusals == ("has rank 64, above --max-lora-rank 16",)
