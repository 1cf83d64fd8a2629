"""What fit says holds does, and what it leaves out does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import vramledger
from support import (
    DEEPSEEK_V3,
    GEMMA_3_27B,
    GPT_OSS_20B,
    LLAMA_3_1_8B,
    NEMOTRON_3_NANO_30B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    checkpoint,
)
from vramledger import plan
from vramledger.errors import DeviceError, FlagError
from vramledger.ledger import Owner
from vramledger.models.checkpoint import Checkpoint
from vramledger.search.bounds import least_weight_bytes, weights_beyond_bytes
from vramledger.search.cost import Cost, Order, front, read_prices, sort_key
from vramledger.search.evaluation import Status, Subject
from vramledger.search.fit import Answers, Fit, Limits, fit
from vramledger.search.grid import Grid
from vramledger.search.rows import Row
from vramledger.search.sweep import Work, Worker
from vramledger.search.terms import Question
from vramledger.search.weights import FORMATS, restored, weight_names

MODELS = tuple(
    checkpoint(config)
    for config in (
        LLAMA_3_1_8B, QWEN3_32B, QWEN3_30B_A3B, GEMMA_3_27B, GPT_OSS_20B, DEEPSEEK_V3, NEMOTRON_3_NANO_30B,
    )
)  # fmt: skip
DEVICES = ("T4", "L4", "RTX 4090", "L40S", "A100 SXM 40GB", "H100 SXM 80GB", "B200", "MI300X", "custom:9GiB")

CHECKPOINTS = tuple(name for name in weight_names() if not FORMATS[name].file_type or name == "bf16")
models = st.integers(0, len(MODELS) - 1)


def answers(grid: Grid, model: Checkpoint, prices: dict[str, float] | None = None) -> Answers:
    worker = Worker(Work(grid=grid, checkpoints=(model,), prices=prices or {}))

    def rows(numbers: Sequence[int]) -> list[Row]:
        return worker.rows(numbers)

    return rows


def search(grid: Grid, model: Checkpoint, **more: Any) -> Fit:
    prices = more.pop("prices", None)
    return fit(grid, Subject((model,)), answers(grid, model, prices), **more)


grids = st.builds(
    Grid,
    weights=st.sets(st.sampled_from(weight_names()), min_size=1, max_size=2).map(tuple),
    devices=st.sets(st.sampled_from(DEVICES), min_size=1, max_size=2).map(tuple),
    tp=st.just((1, 2, 8)),
    pp=st.sampled_from(((1,), (1, 2))),
    ep=st.sampled_from(((False,), (False, True))),
    kv=st.sampled_from((("auto",), ("auto", "fp8"))),
    contexts=st.sampled_from(((2048,), (16384,))),
    concurrency=st.sampled_from(((1,), (40,))),
)


@settings(max_examples=25)
@given(models, grids)
def test_pruning_drops_no_plan_that_holds_or_may(number: int, grid: Grid) -> None:
    model = MODELS[number]
    pruned, whole = search(grid, model), search(grid, model, prune=False)
    assert pruned.holding == whole.holding
    assert pruned.untold == whole.untold
    assert whole.pruned == 0
    assert pruned.planned + pruned.pruned == whole.planned == len(grid) - whole.beyond_limits


@settings(max_examples=40)
@given(
    models,
    st.sampled_from(CHECKPOINTS),
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 2)),
)
def test_weights_are_never_less_than_their_bound(number: int, weights: str, tp: int, pp: int) -> None:
    made = restored(MODELS[number], weights)
    answer = plan(made, "B300", tp=tp, pp=pp, max_model_len=1024)
    held = sum(len(rank.ranks) * rank.owned(Owner.WEIGHTS).expected for rank in answer.ranks)
    assert held >= least_weight_bytes(made)


@settings(max_examples=15)
@given(models, grids, st.sampled_from(Order))
def test_plans_hold_alone_and_stand_in_order(number: int, grid: Grid, order: Order) -> None:
    model = MODELS[number]
    prices = {name: float(3 * number % 7 + 1) for number, name in enumerate(DEVICES)}
    found = search(grid, model, order=order, prices=prices)
    keys = [sort_key(item.cost, order) for item in found.holding]
    assert keys == sorted(keys)
    for item in found.holding[:6]:
        row = item.row
        alone = plan(
            restored(model, row.weights),
            row.device,
            engine=row.engine,
            tp=row.tp,
            pp=row.pp,
            ep=row.ep,
            concurrency=row.concurrency,
            max_model_len=grid.contexts[0],
            kv_cache_dtype=None if row.kv == "auto" else row.kv,
        )
        assert alone.verdict.holds
        assert alone.verdict.summary == row.reason
        assert alone.kv_pool is None or alone.kv_pool.tokens.expected == row.pool_tokens
        assert item.cost.price == prices[row.device] * row.tp * row.pp
    for row in found.near[:6]:
        subject = Subject((model,))
        assert row.status is Status.FAILS
        alone = plan(
            subject.checkpoint(0, row.weights),
            row.device,
            tp=row.tp,
            pp=row.pp,
            ep=row.ep,
            concurrency=row.concurrency,
            max_model_len=grid.contexts[0],
            kv_cache_dtype=None if row.kv == "auto" else row.kv,
        )
        assert row.shortfall_bytes == alone.verdict.shortfall_bytes > 0
        assert row.owner in {entry.owner for rank in alone.ranks for entry in rank.entries}


costs = st.builds(
    Cost,
    devices=st.integers(1, 4),
    price=st.sampled_from((1.0, 2.0, 3.5)),
    tokens=st.integers(0, 5),
    weights_loss=st.integers(0, 2),
    kv_loss=st.integers(0, 1),
)


def dominates(one: Cost, other: Cost) -> bool:
    def point(cost: Cost) -> tuple[float, ...]:
        return (cost.price or 0.0, -cost.tokens, cost.weights_loss, cost.kv_loss)

    return point(one) != point(other) and all(a <= b for a, b in zip(point(one), point(other), strict=True))


@given(st.lists(costs, max_size=30))
def test_the_front_is_what_nothing_dominates(plans: list[Cost]) -> None:
    best = front(plans)
    for number, cost in enumerate(plans):
        assert (number in best) is not any(dominates(other, cost) for other in plans)


def test_the_first_near_miss_would_be_cheaper_than_what_holds() -> None:
    grid = Grid(devices=("L4", "H100 SXM 80GB"), tp=(1, 2, 4), contexts=(8192,), concurrency=(16,))
    found = search(grid, MODELS[0], order=Order.PRICE, prices={"L4": 1.0, "H100 SXM 80GB": 3.0})
    assert found.holding[0].row.price == 2.0
    first = found.near[0]
    assert (first.device, first.tp, first.owner) == ("L4", 1, Owner.KV_CACHE)
    assert first.price is not None
    assert first.price < 2.0


def test_a_model_whose_weights_fit_nowhere_is_still_told_by_how_much() -> None:
    grid = Grid(devices=("L4",), tp=(1, 2, 4))
    found = search(grid, MODELS[5])
    assert not found.holding
    assert found.pruned == 0
    assert [row.owner for row in found.near] == [Owner.WEIGHTS] * 3
    assert found.near[0].tp == 4


def test_limits_are_devices_nodes_and_the_width_of_a_layer() -> None:
    limits = Limits(max_devices=12, max_nodes=2, devices_per_node=8)
    ask = Question(device="L4")

    def allowed(tp: int, pp: int) -> bool:
        return limits.allow(replace(ask, tp=tp, pp=pp))

    assert allowed(8, 1)
    assert allowed(4, 3)
    assert not allowed(8, 2)  # 16 devices
    assert not allowed(16, 1)  # over two nodes
    assert not Limits(devices_per_node=4).allow(replace(ask, pp=5))


def test_an_engine_with_flags_of_its_own_is_not_pruned() -> None:
    """vLLM may quantise while loading, so that a checkpoint's bytes are no bound."""
    grid = Grid(devices=("custom:50GiB",), contexts=(2048,))
    flags = {"vllm": {"quantization": "fp8"}}
    model = MODELS[1]
    subject = Subject((model,), flags)
    least = least_weight_bytes(model)
    assert weights_beyond_bytes(grid.question(0), least, subject.device("custom:50GiB")) > 0
    worker = Worker(Work(grid=grid, checkpoints=(model,), flags=flags))
    found = fit(grid, subject, worker.rows)
    assert len(found.holding) == 1


def test_a_device_too_old_for_a_format_is_told_by_its_generation() -> None:
    grid = Grid(
        weights=("fp8-block",),
        devices=("A100 SXM 80GB", "H100 SXM 80GB", "MI300X"),
        engines=("transformers",),
        contexts=(2048,),
    )
    old, new, other = Worker(Work(grid=grid, checkpoints=(MODELS[0],))).rows(range(3))
    assert old.status is Status.REFUSED
    assert "8.9 and newer, not on A100" in old.reason
    assert new.status is Status.HOLDS
    assert "capability" not in other.reason


def test_16_bits_are_not_tried_twice() -> None:
    ask = vramledger.fit
    plain = ask(MODELS[0], ("L40S",), weights=("stored", "bf16"), tp=(1,), pp=(1,), context_tokens=2048)
    assert plain.points == 1
    packed = ask(MODELS[4], ("L40S",), weights=("stored", "bf16"), tp=(1,), pp=(1,), context_tokens=2048)
    assert packed.points == 2


def test_prices_are_of_devices() -> None:
    assert read_prices(["H100-80GB=2.5", "l40s=0"]) == {"H100 SXM 80GB": 2.5, "L40S": 0.0}
    for wrong in ("H100-80GB", "=2", "L4=-1", "L4=nan", "L4=1e99"):
        with pytest.raises(FlagError, match="DEVICE=PRICE"):
            read_prices([wrong])
    with pytest.raises(DeviceError):
        read_prices(["nothing like it=1"])
