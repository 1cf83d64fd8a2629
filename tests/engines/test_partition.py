"""Rules of partition that engines share, without an engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramledger.engines.partition import (
    Cuts,
    PipelineStage,
    dealt,
    given_stages,
    local_part,
    local_sizes,
    repetitions,
    stage_ranges,
)
from vramledger.errors import FlagError
from vramledger.models.tensors import AxisKind as Kind
from vramledger.models.tensors import (
    Component,
    Role,
    Stage,
    Tensor,
    axis,
    experts,
    hidden,
    intermediate,
    kv_heads,
    q_heads,
    vocab,
)

QKV = Tensor(name="qkv", role=Role.QKV, axes=(q_heads(32, 128) + kv_heads(8, 128), hidden(4096)))
DOWN = Tensor(name="down", role=Role.DOWN, axes=(hidden(64), intermediate(96)))
SHARED = Tensor(name="shared", role=Role.SHARED_DOWN, axes=(hidden(64), intermediate(96)))
EXPERT = Tensor(name="e", role=Role.EXPERT_DOWN, axes=(experts(10), hidden(64), intermediate(96)))
HEAD = Tensor(name="head", role=Role.LM_HEAD, axes=(vocab(100), hidden(64)), stage=Stage.LAST)


@pytest.mark.parametrize(("tp", "rows"), [(1, 5120), (8, 640), (16, 384), (32, 256)])
def test_kv_heads_are_repeated_where_there_are_more_ranks_than_heads(tp: int, rows: int) -> None:
    assert local_sizes(QKV, Cuts.tensor_parallel(tp)) == [rows, 4096]


def test_attention_dense_shared_and_expert_widths_are_cut_apart() -> None:
    cuts = Cuts(attention=1, dense=4, shared=2, expert_width=8, vocab=4)
    assert local_sizes(QKV, cuts) == [5120, 4096]
    assert local_sizes(DOWN, cuts) == [64, 24]
    assert local_sizes(SHARED, cuts) == [64, 48]
    assert local_sizes(EXPERT, cuts) == [10, 64, 12]
    assert local_sizes(HEAD, cuts) == [32, 64]


def test_a_tower_that_does_not_divide_is_whole() -> None:
    tower = Tensor(
        name="vit", role=Role.Q, axes=(q_heads(6, 64), hidden(384)), component=Component.VISION
    )  # fmt: skip
    assert local_sizes(tower, Cuts.tensor_parallel(4)) == [384, 384]
    assert local_sizes(tower, Cuts.tensor_parallel(3)) == [128, 384]
    assert local_sizes(tower, Cuts(attention=3, towers=None)) == [384, 384]


@given(count=st.integers(0, 1000), ranks=st.integers(1, 64))
def test_what_is_dealt_out_is_all_there_and_even(count: int, ranks: int) -> None:
    hands = [dealt(count, ranks, rank) for rank in range(ranks)]
    assert sum(hands) == count
    assert max(hands) - min(hands) <= 1


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=9))
def test_stages_follow_each_other(counts: list[int]) -> None:
    stages = stage_ranges(counts)
    assert [layer for stage in stages for layer in stage] == list(range(sum(counts)))
    assert given_stages(sum(counts), len(counts), counts, flag="partition") == stages
    with pytest.raises(FlagError, match="--partition"):
        given_stages(sum(counts) + 1, len(counts), counts, flag="partition")


def test_every_layer_is_on_one_stage_and_the_ends_on_theirs() -> None:
    stages = [
        PipelineStage(layers=layers, is_first=index == 0, is_last=index == 2)
        for index, layers in enumerate(stage_ranges((3, 2, 3)))
    ]
    layered = Tensor(name="w", role=Role.O, axes=(hidden(8),), layers=tuple(range(8)))
    embedding = Tensor(name="e", role=Role.EMBEDDING, axes=(vocab(8), hidden(8)))
    assert [repetitions(layered, stage, tied=False) for stage in stages] == [3, 2, 3]
    assert [repetitions(embedding, stage, tied=False) for stage in stages] == [1, 0, 0]
    assert [repetitions(embedding, stage, tied=True) for stage in stages] == [1, 0, 1]
    assert [repetitions(HEAD, stage, tied=False) for stage in stages] == [0, 0, 1]


def test_what_cannot_be_cut_is_named_with_its_flag() -> None:
    cuts = Cuts(dense=7, flag="tp_size")
    with pytest.raises(FlagError, match=r"--tp-size: 96 of down cannot be cut into 7") as caught:
        local_part(axis(Kind.INTERMEDIATE, 96)[0], DOWN, cuts)
    assert caught.value.facts["flag"] == "tp_size"
