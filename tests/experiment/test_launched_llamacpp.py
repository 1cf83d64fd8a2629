"""An engine that the experiment starts: memory at its moments, who it is, its pool, its restart and its successor, on llama.cpp's own server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tools.gateway_shown.engines import gateway

from experiment.llamacpp_launched import CELLS, COMMAND, SLOTS, VOCAB, answers, short_requests
from llamacpp_server import needs_llamacpp
from small_models import served_model_file
from vramledger.experiment.drained import drained
from vramledger.experiment.instance import find_instance
from vramledger.experiment.launch import Launched
from vramledger.experiment.plan import Step
from vramledger.experiment.pool_confirmed import pool_confirmed, with_log
from vramledger.experiment.replacing import RECOVERY, ROLLING, restarted, rolled
from vramledger.experiment.result import Check, Snapshot
from vramledger.experiment.warm_up import Shape, warm_up
from vramledger.experiment.watching import Watching
from vramledger.gateway.settings import upstream_from_url
from vramledger.telemetry.engine_process import EngineDied
from vramledger.telemetry.probes.proc import is_alive
from vramledger.telemetry.series_file import read_series
from vramledger.units import MIB

pytestmark = [
    needs_llamacpp,
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc"),
]
CELL_BYTES = 23_040  # SmolLM2-135M: 30 layers, 3 KV heads of 64, K and V, 2 bytes
WEIGHTS_BYTES = 92 * MIB


class Running(msgspec.Struct):
    """A server that was started, and memory at the moments of its start."""

    engine: Launched
    watching: Watching
    snapshots: tuple[Snapshot, ...]
    folder: Path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("launched")
    with (
        Watching(folder / "series.jsonl", interval_s=0.1) as watching,
        Launched(COMMAND, folder=folder, model=str(served_model_file()), engine="llamacpp") as engine,
    ):
        _, snapshots = engine.start(watching, ready_s=120)
        yield Running(engine=engine, watching=watching, snapshots=snapshots, folder=folder)


def held_by(snapshot: Snapshot, name: str = "rss_bytes") -> float:
    return sum(sample.value for sample in snapshot.samples if sample.name == name)


def test_memory_is_told_before_the_start_and_when_it_answers(running: Running) -> None:
    first, *_, last = running.snapshots
    assert (first.label, held_by(first)) == ("before load", 0)
    assert last.label == "ready"
    assert held_by(last) >= WEIGHTS_BYTES + CELLS * CELL_BYTES
    # Its log may say so and go on to the next between two rounds.
    assert all(one.label.startswith("after load") for one in running.snapshots[1:-1])


def test_who_answers_is_found_by_its_address_alone(running: Running) -> None:
    found = find_instance(f"{running.engine.url}/v1")
    target = found.target
    assert (target.url, target.engine_url, target.gateway_url) == (
        running.engine.url,
        running.engine.url,
        None,
    )
    assert (target.engine, target.context_len, found.at_once) == ("llamacpp", CELLS, SLOTS)
    assert target.model.endswith("SmolLM2-135M-Instruct.Q4_1.gguf")
    assert found.vocab_size == VOCAB
    # The one that listens on the port is the one that was started.
    assert target.pid == running.engine.process.pid
    assert found.notes == ()


def test_the_pool_is_doubted_by_the_endpoints_and_confirmed_by_the_log(running: Running) -> None:
    told = find_instance(running.engine.url).measurement
    doubted = pool_confirmed(told)
    assert (doubted.engine_tokens, doubted.agrees) == (None, None)
    assert f"{CELLS:,} to {SLOTS * CELLS:,} tokens" in doubted.words
    confirmed = pool_confirmed(with_log(told, running.engine.logs))
    assert (confirmed.engine_tokens, confirmed.engine_blocks, confirmed.block_size) == (CELLS, CELLS, 1)


def test_shapes_are_asked_and_what_they_took_comes_back(running: Running) -> None:
    before = running.watching.snapshot("before warm-up")
    shapes = (
        Shape(name="short", prompt_tokens=8, output_tokens=4),
        Shape(name="together", prompt_tokens=8, output_tokens=4, at_once=3),
        Shape(name="again", prompt_tokens=32, output_tokens=1, at_once=2, repeats_prompt=True),
    )
    seen = warm_up(
        upstream_from_url(running.engine.url),
        "m",
        shapes,
        vocab_size=VOCAB,
        check=running.engine.process.check,
    )
    assert [one.shape for one in seen.shapes] == list(shapes)
    assert seen.failed == 0
    assert seen.short_per_s > 0
    after = drained(running.watching, before, step=Step.WARM_UP, within_s=60)
    by_name = {check.name: check for check in after.checks}
    assert by_name["requests_ended"].passed
    assert by_name["kv_returned"].passed
    # The tokens of idle slots can be given up for others; they are in use by nobody, and are named.
    assert "kept for prompts that begin alike" in by_name["kv_returned"].words
    assert by_name["process_memory_returned"].before is not None


def test_a_shape_that_the_engine_refuses_is_counted(running: Running) -> None:
    too_long = Shape(name="too long", prompt_tokens=CELLS + 1, output_tokens=1)
    seen = warm_up(upstream_from_url(running.engine.url), "m", (too_long,), vocab_size=VOCAB)
    assert seen.failed == 2  # it is refused at once, both times
    assert seen.shapes[0].problem == "400"


def test_what_a_gateway_reserved_is_back_after_the_drain(running: Running) -> None:
    with gateway("llamacpp", running.engine.port, running.folder) as before:
        admin = f"http://127.0.0.1:{before.admin_port}"
        found = find_instance(f"http://127.0.0.1:{before.port}", gateway_url=admin)
        assert found.target.engine_url == running.engine.url
        assert found.target.pid == running.engine.process.pid
        books = running.watching.gateway(admin)
        try:
            idle = running.watching.snapshot("before")
            stop = threading.Event()
            sending = threading.Thread(target=short_requests, args=(found.target.url, stop))
            sending.start()
            held = [0.0]
            for _ in range(3000):
                held.append(held_by(running.watching.snapshot("busy"), "gateway_admitted_requests"))
                if held[-1]:
                    break
            stop.set()
            sending.join(120)
            assert not sending.is_alive()
            assert held[-1] > 0
            after = drained(running.watching, idle, step=Step.STEADY, within_s=60)
        finally:
            running.watching.leave(books)
    check = the(after.checks, "reservations_returned")
    assert (check.passed, check.after) == (True, 0)
    # The gateway's own process is watched beside the engine's.
    assert {sample.pid for sample in idle.samples if sample.name == "rss_bytes"} >= {
        before.process.pid,
        running.engine.process.pid,
    }
    assert not any(
        sample.name.startswith("gateway_") for sample in running.watching.snapshot("later").samples
    )


def the(checks: tuple[Check, ...], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def test_the_engine_comes_up_again_under_load_and_is_replaced_by_a_second(running: Running) -> None:
    first_pid = running.engine.process.pid
    found = restarted(running.engine, running.watching, short_requests, settle_s=0.5, ready_s=120)
    check = the(found.checks, RECOVERY)
    assert check.passed, check.words
    assert check.smallest_headroom_bytes is not None
    assert found.serving is running.engine
    assert running.engine.process.pid != first_pid
    gone = next(one for one in found.snapshots if one.label == "engine ended")
    assert held_by(gone) == 0

    found = rolled(running.engine, running.watching, short_requests, settle_s=0.5, ready_s=120)
    check = the(found.checks, ROLLING)
    second = found.serving
    assert second is not None
    with second:
        assert check.passed, check.words
        assert second.url != running.engine.url
        assert not running.engine.is_running
        both = next(one for one in found.snapshots if one.label == "both serve")
        assert held_by(both) >= 1.5 * held_by(running.snapshots[-1])
        assert len(found.loads) == 2
        assert answers(second.url)
    assert sorted(path.name for path in running.folder.glob("engine*.log")) == [
        "engine-2.log",
        "engine-3.log",
        "engine.log",
    ]


def test_a_second_instance_that_cannot_come_up_leaves_the_first_serving(tmp_path: Path) -> None:
    model = str(served_model_file())
    only_once = tmp_path / "only-once"
    script = tmp_path / "engine.sh"
    # As where a device has no room for two: the second start ends at once.
    script.write_text(
        f'mkdir "{only_once}" || {{ echo "failed to allocate buffer for kv cache" >&2; exit 1; }}\nexec "$@"\n',
        encoding="utf-8",
    )
    with (
        Watching(tmp_path / "series.jsonl", interval_s=0.1) as watching,
        Launched(f"sh {script} {COMMAND}", folder=tmp_path, model=model, engine="llamacpp") as engine,
    ):
        engine.start(watching, ready_s=120)
        found = rolled(engine, watching, short_requests, settle_s=0.2, ready_s=120)
        check = the(found.checks, ROLLING)
        assert check.passed is False
        assert "did not come up beside the first" in check.words
        assert isinstance(found.died, EngineDied)
        assert found.serving is engine
        assert answers(engine.url)


def test_an_engine_that_a_killed_experiment_left_is_ended_before_another_starts(tmp_path: Path) -> None:
    script = (
        "import sys,time\nfrom pathlib import Path\nfrom vramledger.experiment.launch import Launched\n"
        "from vramledger.experiment.watching import Watching\nfolder=Path(sys.argv[1])\n"
        "with Watching(folder/'series.jsonl',interval_s=0.1) as watching:\n"
        " engine=Launched(sys.argv[2],folder=folder,model=sys.argv[3],engine='llamacpp')\n engine.start(watching,ready_s=120)\n"
        " print(engine.process.pid,flush=True)\n time.sleep(600)\n"
    )
    model = str(served_model_file())
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), COMMAND, model],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as experiment:
        assert experiment.stdout is not None
        left = int(experiment.stdout.readline())
        experiment.kill()
    assert is_alive(left)
    with (
        Watching(tmp_path / "series.jsonl", interval_s=0.1) as watching,
        Launched(COMMAND, folder=tmp_path, model=model, engine="llamacpp") as engine,
    ):
        engine.start(watching, ready_s=120)
        assert not is_alive(left)
        assert answers(engine.url)
        second = engine.beside()
        with second:
            second.start(watching, ready_s=120)
            assert engine.is_running  # its owner lives
    assert list(tmp_path.glob(".engine-*")) == []


def test_the_series_has_what_was_under_way(running: Running) -> None:
    labels = [row.label for row in read_series(running.folder / "series.jsonl") if row.name == "mark_count"]
    order = ["before load", "before restart", "restart", "after restart", "rolling update: second starts"]
    assert [label for label in dict.fromkeys(labels) if label in order] == order
