"""The pools of plans for every example, as block pools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from vramledger.documents.plan import plan_document
from vramledger.documents.plan_reader import plan_of
from vramledger.engines.scheduling import PoolRules
from vramledger.errors import InputError, VramledgerError
from vramledger.kvcache.blocks.from_pool import layout_of, layouts_of
from vramledger.kvcache.blocks.layout import BlockGroup, GroupKind
from vramledger.kvcache.blocks.pool import BlockPool
from vramledger.planning import load_model, plan
from vramledger.pool import KvPool

EXAMPLES = Path(__file__).parents[3] / "examples"
MODELS = sorted(folder.name for folder in EXAMPLES.iterdir() if (folder / "config.json").exists())
ENGINES = ("vllm", "vllm==0.19.0", "sglang", "tensorrt-llm", "llamacpp", "transformers")


def pool_of(model: str, engine: str) -> KvPool:
    flags: dict[str, Any] = (
        {"tensor_parallel_size": 8} if model == "DeepSeek-V3" and engine.startswith("vllm") else {}
    )
    try:
        found = plan(load_model(EXAMPLES / model), "H200", engine=engine, **flags).kv_pool
    except VramledgerError as error:
        pytest.skip(f"{engine} does not serve {model}: {error.code}")
    assert found is not None
    if not found.num_blocks.expected:
        pytest.skip(f"{model} leaves {engine} no pool on this device")
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_layouts_are_the_ledgers_own_bytes_and_needs(model: str, engine: str) -> None:
    pool = pool_of(model, engine)
    layouts = layouts_of(pool)
    held = sum(layout.num_blocks * layout.block_bytes for layout in layouts)
    # SGLang keeps a slot more than it gives out.
    beyond = (
        sum(layout.block_bytes for layout in layouts if layout.groups[0].is_state)
        if engine == "sglang"
        else 0
    )
    assert held + beyond == pool.bytes.expected
    assert sum(len(layout.groups) for layout in layouts) == len(pool.groups)
    layout = layout_of(pool)
    assert layout in layouts
    small = BlockPool(replace(layout, num_blocks=8))
    needed = small.needed_blocks("a request", pool.context_len, is_capped=True)
    groups = [group for group in pool.groups if group.pool_blocks is None] or pool.groups
    if len(layout.groups) == len(groups):
        most = sum(-(-group.blocks_per_request // group.blocks_per_unit) for group in groups)
        assert needed == most or (any(group.is_state for group in layout.groups) and needed < most)


def test_gemma_on_vllm_has_windows_beside_what_keeps_everything() -> None:
    layout = layout_of(pool_of("gemma-3-27b-it", "vllm"), rules=PoolRules(reserved_blocks=1))
    windows = [group for group in layout.groups if group.kind is GroupKind.WINDOW]
    assert len(windows) == 6
    assert {(group.window_tokens, group.block_tokens) for group in windows} == {(1024, 16)}
    assert layout.groups.count(BlockGroup(block_tokens=16)) == 1
    pool = BlockPool(replace(layout, num_blocks=4_000))
    assert pool.open(1, keys=(), boundary=0, hit_tokens=0, tokens=2_048)
    assert pool.used_blocks == 7 * 128
    for computed in range(2_048, 8_192, 2_048):
        assert pool.grow(1, computed + 2_048, computed_tokens=computed)
    assert pool.grow(1, 8_193, computed_tokens=8_192)
    # A window of 1024 tokens begins with the last token of a block: 65 blocks of it, and the new one's.
    assert pool.used_blocks == 513 + 6 * 65


def test_states_of_a_hybrid_can_be_hit_where_the_release_keeps_them() -> None:
    kept = layout_of(pool_of("Qwen3.5-27B", "vllm"))
    assert sorted(group.kind for group in kept.groups) == ["full", "state", "state", "state"]
    assert all(group.keeps_states for group in kept.groups if group.is_state)
    constant = layout_of(pool_of("Qwen3.5-27B", "vllm==0.19.0"))
    assert all(group.is_constant for group in constant.groups if group.is_state)
    pool = BlockPool(constant)
    assert pool.open(1, keys=[1, 2], boundary=0, hit_tokens=0, tokens=2 * 784)
    pool.commit(1, 2 * 784)
    assert pool.used_blocks == 2 + 3
    assert pool.hit_tokens([1, 2], boundary=0, limit_tokens=2 * 784) == 0


def test_a_sector_of_transformers_is_one_block_of_many_tokens() -> None:
    layout = layout_of(pool_of("gemma-3-27b-it", "transformers"))
    assert {group.kind: group.block_tokens for group in layout.groups} == {
        "window": 5 * 256,
        "full": 26 * 256,
    }


def test_pools_apart_are_layouts_apart_and_the_fullest_is_simulated() -> None:
    pool = pool_of("gpt-oss-120b", "sglang")
    full, window = layouts_of(pool)
    assert (full.groups[0].kind, window.groups[0].kind) == (GroupKind.FULL, GroupKind.WINDOW)
    assert window.groups[0].window_tokens == 128
    assert layout_of(pool) == full
    assert layout_of(pool, num_blocks=100).num_blocks == 100


def test_states_alone_are_no_pool_that_fills() -> None:
    pool = pool_of("Qwen3.5-27B", "sglang")
    assert [layout.groups[0].kind for layout in layouts_of(pool)] == [GroupKind.FULL, GroupKind.STATE]
    assert layout_of(pool).groups[0].kind is GroupKind.FULL


def test_a_plan_file_keeps_what_a_layout_needs() -> None:
    found = plan(load_model(EXAMPLES / "gemma-3-27b-it"), "H200", engine="vllm")
    read = plan_of(plan_document(found))
    assert read.kv_pool is not None and found.kv_pool is not None
    assert layouts_of(read.kv_pool) == layouts_of(found.kv_pool)


def test_what_cannot_be_a_layout_is_told() -> None:
    pool = pool_of("gemma-3-27b-it", "vllm")
    unstated = replace(pool, groups=tuple(replace(group, window_tokens=None) for group in pool.groups))
    with pytest.raises(InputError, match="does not state the window"):
        layouts_of(unstated)
    odd = replace(pool, groups=(replace(pool.groups[0], kind="a_new_kind"),))
    with pytest.raises(InputError, match="a_new_kind"):
        layouts_of(odd)
    with pytest.raises(InputError, match="serves nobody"):
        layout_of(pool, num_blocks=1, rules=PoolRules(reserved_blocks=1))
