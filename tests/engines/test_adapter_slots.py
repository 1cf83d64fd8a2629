"""Adapters on one rank, whatever the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter_files import lora, write_adapter
from support import LLAMA_3_1_8B, QWEN3_32B_AWQ, checkpoint
from vramledger.engines.adapter_slots import (
    SlotModule,
    adapter_elements,
    merged_copy,
    slot_elements,
    smallest_allowed,
)
from vramledger.models.adapters.load import load_adapter
from vramledger.models.adapters.placing import PlacedAdapter, place
from vramledger.models.tensors import AxisKind, Tensor

LLAMA = checkpoint(LLAMA_3_1_8B)
MODULES = {"self_attn.q_proj": (4096, 4096), "self_attn.k_proj": (1024, 4096), "mlp.down_proj": (4096, 14336)}


def placed(
    folder: Path, base: Any = LLAMA, modules: Any = MODULES, rank: int = 16, layers: int = 32
) -> PlacedAdapter:
    config = {"r": rank, "lora_alpha": 32, "target_modules": list(modules)}
    return place(
        load_adapter(str(write_adapter(folder, config, lora(modules, rank, layers=range(layers))))), base
    )


def cut(ways: int) -> Any:
    def local(tensor: Tensor, axis: int) -> int:
        return sum(
            part.size // ways if part.kind not in (AxisKind.HIDDEN, AxisKind.VOCAB) else part.size
            for part in tensor.axes[axis]
        )

    return local


def test_a_column_cuts_b_and_a_row_cuts_a(tmp_path: Path) -> None:
    found = placed(tmp_path / "a")
    assert adapter_elements(found.pairs, cut(1)) == found.elements
    q, k, down = 4096 + 4096 // 4, 4096 + 1024 // 4, 14336 // 4 + 4096
    assert adapter_elements(found.pairs, cut(4)) == 32 * 16 * (q + k + down)


def test_a_stage_holds_the_pairs_of_its_layers(tmp_path: Path) -> None:
    found = placed(tmp_path / "a")
    stages = [range(11), range(11, 32)]
    assert sum(adapter_elements(found.pairs, cut(1), layers=stage) for stage in stages) == found.elements


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 99), st.integers(1, 99), st.integers(1, 8))
def test_a_slot_is_never_smaller_than_what_lies_in_it(
    repeat: int, parts: int, d_in: int, d_out: int, rank: int
) -> None:
    module = SlotModule(name="m", repeat=repeat, parts=parts, d_in=d_in, d_out=d_out)
    assert slot_elements([module], rank + 1) - slot_elements([module], rank) == repeat * (
        parts * d_in + d_out
    )
    assert slot_elements([module], rank) >= repeat * rank * (d_in + d_out)


def test_the_smallest_allowed_rank() -> None:
    assert [smallest_allowed(rank, (8, 16, 64)) for rank in (1, 8, 9, 64, 65)] == [8, 8, 16, 64, None]


def test_a_merged_copy_holds_the_touched_matrices_in_the_base_s_format(tmp_path: Path) -> None:
    plain = merged_copy(placed(tmp_path / "a"), LLAMA)
    assert plain.stored_bytes == 2 * 32 * (4096 * 4096 + 1024 * 4096 + 4096 * 14336)
    assert plain.quantised == ()
    awq = checkpoint(QWEN3_32B_AWQ)
    found = merged_copy(placed(tmp_path / "b", awq, {"mlp.up_proj": (25600, 5120)}, layers=64), awq)
    groups = 5120 // 128
    one = 5120 * 25600 // 2 + groups * 25600 // 2 + groups * 25600 * 2
    assert found.stored_bytes == 64 * one
    assert found.touched_elements == 64 * 25600 * 5120
    assert found.quantised == ("INT4 group 128 (awq)",)
