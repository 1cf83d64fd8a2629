"""llama.cpp's server beside its forecast: what does not depend on how fast this machine is at the moment is equal, turn by turn.

By how much times are off is not asserted: whatever else runs on the machine changes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from llamacpp_server import llamacpp_server, needs_llamacpp
from vramledger.experiment.asking import Server
from vramledger.experiment.forecast import Forecaster, StageRun
from vramledger.experiment.forecast_settings import forecast_settings
from vramledger.experiment.load import run_load
from vramledger.gateway.settings import upstream_from_url
from vramledger.simulation.settings import Scheduling, SimulationSettings, Slo
from vramledger.telemetry.log_measurement import log_measurement
from vramledger.telemetry.merging import merged
from vramledger.telemetry.probes.engine import engine_measurement
from vramledger.workload.request import Request, WorkloadHeader

pytestmark = needs_llamacpp
HEADER = WorkloadHeader(name="this test", source="this test", block_tokens=16)
SLO = Slo(ttft_ms=1000.0)
SLOTS, CONTEXT = 4, 1024


class Engine(msgspec.Struct):
    """A server, and what it is simulated by."""

    server: Server
    settings: SimulationSettings
    notes: tuple[str, ...]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("foretold")
    options = ("-c", str(SLOTS * CONTEXT), "-np", str(SLOTS), "-lv", "4", "--slots", "--props", "--metrics")
    with llamacpp_server(folder, *options) as port:
        url, log = f"http://127.0.0.1:{port}", folder / "server.log"
        told = merged(
            (log_measurement((str(log),), engine="llamacpp"), engine_measurement(url, engine="llamacpp"))
        )
        found = forecast_settings(None, told)
        server = Server(
            upstream=upstream_from_url(url),
            model="m",
            engine="llamacpp",
            vocab_size=49_152,
            context_len=CONTEXT,
        )
        yield Engine(server=server, settings=found.settings, notes=found.notes)


@pytest.fixture(scope="module")
def first(engine: Engine) -> StageRun:
    """Requests that have nothing in common, a quarter of a second apart."""
    random = Random(1)
    requests = tuple(
        Request(
            arrival_ns=number * 250_000_000,
            prompt_tokens=random.randint(20, 120),
            output_tokens=random.randint(4, 12),
            blocks=tuple(range(1000 * number, 1000 * number + 8)),
        )
        for number in range(15)
    )
    return sent(engine, "first", requests, seed=1)


def sent(engine: Engine, name: str, requests: tuple[Request, ...], *, seed: int) -> StageRun:
    run = run_load(engine.server, HEADER, requests, seed=seed, retries=0)
    return StageRun(name=name, header=HEADER, requests=requests, served=run.served)


def test_it_is_simulated_by_what_its_log_and_its_endpoints_say(engine: Engine) -> None:
    scheduler = engine.settings.scheduler
    assert scheduler.scheduling is Scheduling.LLAMACPP
    assert (scheduler.max_num_seqs, scheduler.max_model_len) == (SLOTS, CONTEXT)
    assert engine.settings.layout.num_blocks == SLOTS * CONTEXT
    assert engine.notes == ()


def test_a_stage_teaches_how_long_its_steps_take(engine: Engine, first: StageRun) -> None:
    forecaster = Forecaster(engine.settings)
    assert forecaster.forecast(HEADER, first.requests, SLO) is None
    model = forecaster.fit([first])
    assert model is not None
    assert (model.fitted_requests, model.held_out_requests) == (10, 5)
    assert model.relative_error is not None
    told = forecaster.forecast(HEADER, first.requests, SLO)
    assert told is not None
    assert told.finished == len(first.requests)
    assert told.output_tokens == sum(row.output_tokens or 0 for row in first.served)


def test_each_turn_finds_what_its_forecast_finds(engine: Engine, first: StageRun) -> None:
    """A conversation of three turns, each with the one before it as its beginning, beside a request of its own."""
    ids = tuple(range(50_000, 50_020))
    turns = (
        Request(arrival_ns=0, prompt_tokens=64, output_tokens=16, blocks=ids[:5], conversation=1),
        Request(
            arrival_ns=0, prompt_tokens=144, output_tokens=16, blocks=ids[:10], conversation=1, parent=0,
            pause_ns=50_000_000,
        ),
        Request(
            arrival_ns=0, prompt_tokens=208, output_tokens=16, blocks=ids[:14], conversation=1, parent=1,
            pause_ns=50_000_000,
        ),
        Request(arrival_ns=0, prompt_tokens=96, output_tokens=8, blocks=tuple(range(70_000, 70_006))),
    )  # fmt: skip
    forecaster = Forecaster(engine.settings)
    forecaster.fit([first])
    told = forecaster.foretell(HEADER, turns, SLO)
    assert told is not None
    measured = sent(engine, "turns", turns, seed=2)
    assert all(row.whole for row in measured.served)
    for ours, theirs in zip(told.served, measured.served, strict=True):
        assert (ours.prompt_tokens, ours.output_tokens) == (theirs.prompt_tokens, theirs.output_tokens)
        # The last token of an answer has no KV yet, and a server may have computed one less of it; from a token of which it told no id
        # (the half of a character) to the answer's end nothing is found again.
        assert theirs.cached_prompt_tokens is not None and ours.cached_prompt_tokens is not None
        untold = 16 if ours.parent is not None else 0
        assert -2 <= ours.cached_prompt_tokens - theirs.cached_prompt_tokens <= 2 + untold
    assert [row.cached_prompt_tokens for row in told.served][1] == 79
