"""Adapters under TensorRT-LLM: pages of slots in two caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter_files import lora, write_adapter
from support import H100, LLAMA_3_1_8B, checkpoint
from vramledger.engines.adapter_service import AdapterService, Place
from vramledger.engines.tensorrtllm.adapter_rules import adapter_pages, adapter_service, page_layout
from vramledger.engines.tensorrtllm.options import flags_from
from vramledger.engines.tensorrtllm.ranks import rank_kinds
from vramledger.errors import FlagError
from vramledger.models.adapters.adapter import Adapter
from vramledger.models.adapters.load import load_adapter
from vramledger.models.adapters.placing import place
from vramledger.units import GIB, MIB

LLAMA = checkpoint(LLAMA_3_1_8B | {"architectures": ["LlamaForCausalLM"]})
QV = {"self_attn.q_proj": (4096, 4096), "self_attn.v_proj": (1024, 4096)}


def adapter(folder: Path, name: str = "a", rank: int = 8, **config: Any) -> Adapter:
    written = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 16,
        "target_modules": ["q_proj", "v_proj"],
    } | config
    return load_adapter(str(write_adapter(folder / name, written, lora(QV, rank, layers=range(32)))))


def service(*adapters: Adapter, hot: int | None = None, **flags: Any) -> AdapterService:
    return adapter_service(LLAMA, H100, version=None, values=flags, adapters=adapters, hot=hot)


def test_a_slot_is_as_wide_as_the_narrowest_module(tmp_path: Path) -> None:
    """v: 4096 + 1024 elements a rank; q's 8192 take two slots of them; a page is an adapter of rank 8."""
    (kind,) = rank_kinds(LLAMA.model, flags_from({}))
    placed = place(adapter(tmp_path), LLAMA)
    pages = page_layout([placed], kind, 2)
    assert pages is not None
    assert pages.slot_elements == 5120
    assert pages.slots_per_page == 32 * 8 * (1 + 2)
    assert pages.needed_slots == 8 * 32 * (5120 + 8192) // 5120 + 1
    assert pages.page_bytes == 32 * 8 * 3 * 5120 * 2
    assert adapter_pages(placed, kind, pages) == 1


def test_pages_hold_all_of_an_adapter_and_are_cut_by_rank(tmp_path: Path) -> None:
    found = service(adapter(tmp_path), adapter(tmp_path, "b", 64))
    small, large = found.served
    assert small.own_bytes == 2 * 32 * 8 * (8192 + 5120)
    assert large.own_bytes == 8 * small.own_bytes
    assert small.own_bytes <= small.slot_bytes
    assert large.own_bytes <= large.slot_bytes
    halves = service(adapter(tmp_path, "c"), tp_size=2).served[0]
    assert halves.own_bytes == 2 * 32 * 8 * (4096 + 2048 + 4096 + 512)


def test_what_does_not_fit_the_device_waits_in_host_memory(tmp_path: Path) -> None:
    many = [adapter(tmp_path, str(number), 64) for number in range(5)]
    found = service(*many, hot=2)
    assert [use.place for use in found.served] == [
        Place.DEVICE,
        Place.DEVICE,
        Place.HOST,
        Place.HOST,
        Place.HOST,
    ]
    tight = service(*many, lora_host_cache_size=150 * MIB, hot=1)
    assert [use.place for use in tight.served][-1] is Place.DISK
    with pytest.raises(FlagError, match="between 1 and the 5"):
        service(*many, hot=6)


def test_a_cache_below_one_adapter_is_told(tmp_path: Path) -> None:
    found = service(adapter(tmp_path, "a", 64), lora_device_cache_percent=0.0001)
    assert any("does not start" in text for text in found.sharing)
    assert not any("does not start" in text for text in service(adapter(tmp_path, "b", 64)).sharing)


@given(st.sampled_from([1, 4, 8, 16, 64]), st.sampled_from([1, 2, 4, 8]))
def test_pages_are_never_smaller_than_what_lies_in_them(
    tmp_path_factory: pytest.TempPathFactory, rank: int, tp: int
) -> None:
    (use,) = service(adapter(tmp_path_factory.mktemp("a"), rank=rank), tp_size=tp).served
    assert 0 < use.own_bytes <= use.slot_bytes < GIB
