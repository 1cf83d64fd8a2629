"""Pipeline stages: what crosses their boundaries, which one binds the pool, and how layers even out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import (
    GEMMA_3_27B,
    H100,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    checkpoint,
    planned,
    settings,
    terms,
)
from vramledger.answer import Plan
from vramledger.engines.vllm.options import plan_with
from vramledger.engines.vllm.pipeline import (
    StageRoom,
    balanced_partition,
    binding_text,
    boundary_bytes,
    tightest_by_stage,
)
from vramledger.hardware.catalogue import find_device
from vramledger.ledger import Entry, Owner

H200 = find_device("H200")
BATCH_BYTES = 8192 * 4096 * 2


def named(plan: Plan, rank: int) -> dict[str, Entry]:
    return {item.name: item for item in plan.ranks[rank].entries}


def test_a_later_stage_keeps_what_it_receives() -> None:
    plan = planned(checkpoint(LLAMA_3_1_8B), pp=3)
    first, middle, last = (named(plan, rank) for rank in range(3))
    assert "received from the stage before" not in first
    for stage in (middle, last):
        assert stage["received from the stage before"].bytes.expected == 2 * BATCH_BYTES
        assert stage["boundary copy being received"].bytes.expected == 2 * BATCH_BYTES
    assert first["boundary tensors being sent"].bytes.expected == 2 * BATCH_BYTES
    assert "boundary tensors being sent" not in last


@pytest.mark.parametrize(
    ("version", "charged", "sent"),
    [("0.11.0", True, False), ("0.20.2", True, True), ("0.26.0", False, True), ("0.33.0", True, True)],
)
def test_the_profile_sees_what_the_v1_runner_keeps(version: str, charged: bool, sent: bool) -> None:
    """Llama runs on the V2 runner from 0.23, whose buffers are charged from 0.27."""
    plan = planned(checkpoint(LLAMA_3_1_8B), H100, version, pp=2)
    assert named(plan, 1)["received from the stage before"].inside_budget is charged
    assert not named(plan, 1)["boundary copy being received"].inside_budget
    assert ("boundary tensors being sent" in named(plan, 0)) is sent


@pytest.mark.parametrize(
    ("model_type", "tensors"), [("llama", 2), ("falcon_h1", 1), ("opt", 1), ("deepseek_v4", 4)]
)
def test_what_crosses_depends_on_the_model(model_type: str, tensors: int) -> None:
    subject = checkpoint(LLAMA_3_1_8B)
    size, formula = boundary_bytes(_retyped(subject.model, model_type), settings(subject, pp=2))
    assert size == tensors * BATCH_BYTES
    assert str(8192) in formula


def _retyped(model: Any, model_type: str) -> Any:
    from msgspec.structs import replace

    return replace(model, model_type=model_type)


def test_the_ends_of_the_model_sit_on_their_stages() -> None:
    plan = planned(checkpoint(LLAMA_3_1_8B), pp=2)
    first, last = named(plan, 0), named(plan, 1)
    assert "embedding" in first
    assert "embedding" not in last
    assert "lm_head" in last
    assert "lm_head" not in first


# Which stage binds


def room(stage: int, room_bytes: int, bytes_per_block: int = 10, layers: range = range(4)) -> StageRoom:
    return StageRoom(
        stage=stage, layers=layers, ranks=(stage,), room_bytes=room_bytes, bytes_per_block=bytes_per_block
    )


def test_the_stage_that_binds_is_said_with_what_the_others_leave() -> None:
    text = binding_text([room(0, 1000), room(1, 733), room(2, 859)])
    assert text is not None
    assert text.startswith("stage 2 of 3 (layers 0 to 3, rank 1) binds the pool at 73 blocks")
    assert "117 B a rank tighter than stage 3" in text
    assert binding_text([room(0, 1000)]) is None


def test_the_pool_is_the_binding_stages() -> None:
    plan = planned(checkpoint(LLAMA_3_1_70B), H200, pp=3)
    assert plan.kv_pool is not None
    (note,) = [text for text in plan.notes if "binds the pool" in text]
    assert f"at {plan.kv_pool.num_blocks.expected:,} blocks" in note
    ranks = terms(checkpoint(LLAMA_3_1_70B), H200, pp=3)
    assert plan.kv_pool.num_blocks.expected == min(
        item.available.expected // item.bytes_per_block for item in ranks
    )


def test_nothing_binds_where_the_pool_is_stated() -> None:
    plan = planned(checkpoint(LLAMA_3_1_8B), pp=2, num_gpu_blocks_override=100)
    assert not any("binds" in text for text in plan.notes)


# A partition that evens the stages out


@given(
    st.lists(st.integers(1, 30), min_size=2, max_size=6),
    st.lists(st.integers(0, 400), min_size=6, max_size=6),
)
def test_a_balanced_partition_keeps_every_layer_and_is_never_worse(
    counts: list[int], ends: list[int]
) -> None:
    def rooms(partition: tuple[int, ...]) -> list[StageRoom]:
        return [
            room(stage, 4000 - 90 * layers - ends[stage], max(layers, 1))
            for stage, layers in enumerate(partition)
        ]

    start = tuple(counts)
    found = balanced_partition(start, rooms)
    assert sum(found) == sum(start)
    assert min(found) >= 1
    blocks = [min(item.blocks for item in rooms(partition)) for partition in (start, found)]
    assert blocks[1] >= blocks[0]
    assert found == start or blocks[1] > blocks[0]


def test_a_partition_that_holds_more_is_named_and_does() -> None:
    values: dict[str, Any] = {"pp": 4, "max_model_len": 8192}
    plan = plan_with(checkpoint(GEMMA_3_27B), H100, version=None, values=values, remedies=True)
    (note,) = [text for text in plan.notes if text.startswith("VLLM_PP_LAYER_PARTITION=")]
    partition = note.partition("=")[2].partition(":")[0]
    other = plan_with(
        checkpoint(GEMMA_3_27B), H100, version=None, values=values | {"pp_layer_partition": partition}
    )
    assert plan.kv_pool is not None
    assert other.kv_pool is not None
    assert other.kv_pool.tokens.expected > plan.kv_pool.tokens.expected
    assert f"{other.kv_pool.tokens.expected:,}" in note


def test_a_partition_is_a_remedy_where_it_makes_the_plan_hold() -> None:
    values: dict[str, Any] = {"pp": 2, "pp_layer_partition": (60, 20), "max_model_len": 8192}
    plan = plan_with(checkpoint(LLAMA_3_1_70B), H100, version=None, values=values, remedies=True)
    assert plan.verdict.holds is False
    (remedy,) = [text for text in plan.verdict.remedies if text.startswith("VLLM_PP_LAYER_PARTITION=")]
    partition = tuple(int(count) for count in remedy.partition("=")[2].split(","))
    changed = values | {"pp_layer_partition": partition}
    again = plan_with(checkpoint(LLAMA_3_1_70B), H100, version=None, values=changed)
    assert again.verdict.holds


def test_a_stage_without_kv_does_not_bind() -> None:
    stages = tightest_by_stage([room(0, 10, 0), room(1, 500), room(1, 400)])
    assert [item.room_bytes for item in stages] == [400]


def test_collectives_name_what_crosses() -> None:
    plan = planned(checkpoint(LLAMA_3_1_8B), pp=2)
    crossing = [item for item in plan.ranks[0].entries if "boundary" in item.name]
    assert {item.owner for item in crossing} == {Owner.COLLECTIVES}
