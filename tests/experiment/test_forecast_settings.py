"""What an engine is simulated by is what it runs by: its plan's rules, its own pool and limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from vramledger.answer import Plan
from vramledger.errors import InputError
from vramledger.evidence import assumed, measured
from vramledger.experiment.forecast_settings import forecast_settings
from vramledger.experiment.result import PoolConfirmed
from vramledger.measurement import MeasuredPool, Measurement
from vramledger.planning import load_model, plan
from vramledger.pool import IntRange
from vramledger.simulation.settings import Scheduling
from vramledger.simulation.step_model import StepModel

EXAMPLES = Path(__file__).parents[2] / "examples"
STEP = StepModel(
    overhead_ps=10**9, floor_ps=0, token_ps=0, decode_seq_ps=0, kv_token_ps=0, evidence=assumed("this test")
)


@pytest.fixture(scope="module")
def llama() -> Plan:
    return plan(
        load_model(EXAMPLES / "Llama-3.1-8B-Instruct"),
        "RTX 4090",
        engine="vllm==0.19.0",
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        max_model_len=32768,
    )


def told(
    engine: str, blocks: int | None = None, size: int | None = None, **settings: int | bool
) -> Measurement:
    pool = MeasuredPool(
        evidence=measured("this test"),
        num_blocks=None if blocks is None else IntRange(blocks, blocks, blocks),
        block_size=size,
    )
    return Measurement(
        sources=(), engine=engine, settings=tuple(settings.items()), pools=() if blocks is None else (pool,)
    )


def test_a_plan_with_the_pool_that_the_engine_confirmed(llama: Plan) -> None:
    pool = PoolConfirmed(engine_blocks=2588, block_size=16, engine_tokens=41_408)
    found = forecast_settings(llama, None, pool, step=STEP)
    assert found.settings.layout.num_blocks == 2588
    assert found.settings.layout.reserved_blocks == 1
    assert found.settings.scheduler.scheduling is Scheduling.VLLM
    assert found.settings.scheduler.async_scheduling
    assert found.knows_step and found.settings.step == STEP
    assert any("2,588 blocks by the engine" in note for note in found.notes)


def test_what_the_engine_says_goes_before_the_plan(llama: Plan) -> None:
    said = told("vllm", max_num_seqs=64, async_scheduling=False, enable_prefix_caching=False)
    found = forecast_settings(llama, said)
    scheduler = found.settings.scheduler
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (64, 2048)
    assert not scheduler.async_scheduling and not scheduler.prefix_caching
    assert "max_num_seqs is 64 by the engine, 256 before" in found.notes
    assert not found.knows_step


def test_without_a_plan_by_what_vllm_answers_and_logs() -> None:
    said = told(
        "vllm",
        64,
        128,
        max_model_len=2048,
        max_num_seqs=128,
        max_num_batched_tokens=2048,
        async_scheduling=True,
    )
    found = forecast_settings(None, said)
    layout, scheduler = found.settings.layout, found.settings.scheduler
    assert (layout.num_blocks, layout.reserved_blocks, layout.key_tokens) == (64, 1, 128)
    assert (scheduler.max_num_seqs, scheduler.max_model_len, scheduler.async_scheduling) == (128, 2048, True)
    assert found.notes == ()


def test_what_nobody_tells_is_said_to_be_a_default() -> None:
    found = forecast_settings(None, told("vllm", 64, 128))
    assert found.settings.scheduler.max_num_batched_tokens == 2048
    assert found.settings.scheduler.max_num_seqs == 63
    assert len(found.notes) == 2 and all("a manifest settles it" in note for note in found.notes)


def test_a_log_that_tells_tokens_alone_does_not_hide_the_blocks_that_the_engine_answers() -> None:
    both = told("vllm", 64, 128)
    logged = MeasuredPool(evidence=measured("this test's log"), tokens=IntRange(8192, 8192, 8192))
    found = forecast_settings(None, replace(both, pools=(logged, *both.pools)))
    assert (found.settings.layout.num_blocks, found.settings.layout.key_tokens) == (64, 128)


@pytest.mark.parametrize(("cells", "blocks"), [(8192, 8192), (2048, 2048), (None, 2048)])
def test_llamacpps_slots_and_cells(cells: int | None, blocks: int) -> None:
    """Four slots of 2,048 tokens: as many cells each, or one lot for all; where nobody tells, the smaller."""
    said = told("llamacpp", total_slots=4, n_ctx_slot=2048)
    found = forecast_settings(None, said, PoolConfirmed(engine_tokens=cells, block_size=1))
    scheduler = found.settings.scheduler
    assert scheduler.scheduling is Scheduling.LLAMACPP
    assert (scheduler.max_num_seqs, scheduler.max_model_len) == (4, 2048)
    assert scheduler.prefix_caching and not scheduler.reserve_full_prompt
    assert found.settings.layout.num_blocks == blocks


def test_llamacpps_log_says_what_its_server_does_not() -> None:
    said = told("llamacpp", total_slots=4, n_slots=4, n_ctx_slot=1024, kv_unified=False, n_batch=512)
    found = forecast_settings(None, said)
    assert found.settings.layout.num_blocks == 4096
    assert (found.settings.scheduler.max_num_batched_tokens, found.settings.scheduler.max_num_seqs) == (
        512,
        4,
    )
    shared = forecast_settings(None, told("llamacpp", total_slots=4, n_ctx_slot=1024, kv_unified=True))
    assert shared.settings.layout.num_blocks == 1024


def test_an_engine_that_says_nothing_of_its_pool_is_not_foretold() -> None:
    with pytest.raises(InputError, match="does not say how large its KV pool is"):
        forecast_settings(None, told("vllm"))
    with pytest.raises(InputError, match="is not simulated"):
        forecast_settings(None, None, PoolConfirmed(engine_tokens=4096), engine="transformers")


@pytest.mark.parametrize(
    "said",
    [
        told("vllm", 2**40, 16, max_model_len=512),
        told("vllm", 100, 16, max_model_len=512, max_num_seqs=2**40),
    ],
)
def test_what_no_server_has_is_not_simulated(said: Measurement) -> None:
    with pytest.raises(InputError, match="more than any server has"):
        forecast_settings(None, said, engine="vllm")
