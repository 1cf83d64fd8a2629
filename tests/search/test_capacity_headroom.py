"""Bursts, restarts and the whole answer about a server of known speed, in one process and in several."""

from __future__ import annotations

from multiprocessing import active_children

import numpy as np
import pytest
from msgspec.structs import replace

from vramledger.evidence import assumed
from vramledger.kvcache.blocks.layout import BlockGroup, PoolLayout
from vramledger.search.capacity.capacity import Question, find_capacity, study_of
from vramledger.search.capacity.changes import with_block_tokens, with_step
from vramledger.search.capacity.crews import crew
from vramledger.search.capacity.evaluator import Evaluator
from vramledger.search.capacity.result import Capacity
from vramledger.search.capacity.study import BASE, Burst, Outage, Study, Task
from vramledger.simulation.settings import SchedulerSettings, SimulationSettings, Slo
from vramledger.simulation.step_model import StepModel
from vramledger.workload.columns import RequestColumns, columns_with
from vramledger.workload.request import WorkloadHeader

S = 10**9
MS = 10**9
# One request at a time (max_num_seqs 1): a prompt's step and a decoding one of 100 ms each.
SERVER = SimulationSettings(
    layout=PoolLayout(num_blocks=1001, groups=(BlockGroup(block_tokens=16),), reserved_blocks=1),
    scheduler=SchedulerSettings(max_num_seqs=1, max_num_batched_tokens=256, max_model_len=1024),
    step=StepModel(
        overhead_ps=100 * MS, floor_ps=0, token_ps=0, decode_seq_ps=0, kv_token_ps=0, evidence=assumed("a test's own")
    ),
    slo=Slo(ttft_ms=1000),
)  # fmt: skip


def table(count: int, gap_s: float = 1.0, seed: int | None = None) -> RequestColumns:
    gaps = (
        np.full(count - 1, gap_s)
        if seed is None
        else np.random.default_rng(seed).exponential(gap_s, count - 1)
    )
    arrivals = np.concatenate([[0], np.cumsum(gaps)]) * S
    return columns_with(
        arrival_ns=np.rint(arrivals).astype(np.int64), prompt_tokens=np.full(count, 64), output_tokens=np.full(count, 2)
    )  # fmt: skip


def study(*tables: RequestColumns, question: Question) -> Study:
    return study_of(WorkloadHeader(name="w", source="here"), {BASE: tables}, SERVER, question)


QUIET = Question(aim=0.95, with_headroom=False, with_changes=False)


def answer(question: Question, *tables: RequestColumns, jobs: int = 1) -> Capacity:
    made = study(*tables, question=question)
    with crew(made, jobs=jobs) as work:
        return find_capacity(made, question, work)


def test_even_arrivals_are_served_up_to_the_servers_rate() -> None:
    # 5 a second keep the queue empty; beyond that each waits longer than the one before.
    found = answer(QUIET, table(400))
    assert found.per_s == pytest.approx(5.1, abs=0.15)
    assert set(found.binds) == {"max_num_seqs", "latency"}
    assert found.requests == 400
    assert found.beyond is not None
    assert found.low <= found.load <= found.high


def test_poisson_arrivals_are_served_well_below_it_and_replications_widen_nothing() -> None:
    tables = [table(120, seed=seed) for seed in (1, 2)]
    found = answer(QUIET, *tables)
    assert 2.0 < found.per_s < 4.7
    assert found.replications == 2
    assert found.low < found.load < found.high
    assert answer(QUIET, *tables) == found


def test_a_load_at_which_the_queue_only_grows_is_told_of() -> None:
    question = Question(aim=0.95, resolution=0.1, with_headroom=False, with_changes=False)
    assert not any("had not ended" in note for note in answer(question, table(400)).notes)
    # Without an aim for the wait every load is met: the server ends its 5 a second, whatever comes.
    server = replace(SERVER, slo=Slo(tpot_ms=200))
    patient = study_of(WorkloadHeader(name="w", source="here"), {BASE: (table(400),)}, server, question)
    with crew(patient, jobs=1) as work:
        found = find_capacity(patient, question, work)
    assert found.per_s is not None and found.per_s > 50
    told = next(note for note in found.notes if "had not ended" in note)
    assert "came and 5" in told or "came and 4.9" in told or "came and 5.0" in told
    assert "--slo-ttft-ms" in told


def test_several_processes_say_the_same() -> None:
    question = Question(aim=0.95, resolution=0.1, with_headroom=False, with_changes=False)
    assert answer(question, table(60), jobs=2) == answer(question, table(60))


def test_workers_end_with_who_asked() -> None:
    before = set(active_children())
    with pytest.raises(KeyboardInterrupt), crew(study(table(60), question=QUIET), jobs=2) as work:
        work([Task(case=BASE, replication=0, load=1.0)])
        started = set(active_children()) - before
        raise KeyboardInterrupt
    assert started
    assert all(process.exitcode for process in started)


def test_a_burst_and_a_restart_by_hand() -> None:
    evaluator = Evaluator(study(table(200), question=QUIET))

    def run(shape: Burst | Outage | None, load: float = 2.0) -> tuple[int, int, float | None]:
        found = evaluator.measure(Task(case=BASE, replication=0, load=load, shape=shape))
        return found.herd, found.herd_good, found.calm_s

    # 8 a second for 2 s are 16 requests where 10 are served: the last waits for 6 x 200 ms less what is in time.
    herd, good, _ = run(Burst(factor=4.0, lasts_s=2.0))
    assert herd == 16
    assert 10 <= good < 16
    assert run(Burst(factor=1.0, lasts_s=10.0))[:2] == (20, 20)
    # After 10 s down the 20 requests of that time come at once, one is served each 200 ms: the first tokens of five are in time.
    herd, good, calm_s = run(Outage(down_s=10.0, in_flight_s=0.0))
    assert herd == 20
    assert good == 5
    # The queue of 20 is worked off by 3 a second. Who is sent after 5.2 s finds less than a second of it, and of a hundred requests in
    # a row five, sent in the 2.5 s before, may be late.
    assert calm_s == pytest.approx(2.7, abs=0.2)


def test_changed_settings_are_the_same_bytes_and_times() -> None:
    layout = PoolLayout(
        num_blocks=101, groups=(BlockGroup(block_tokens=16),), reserved_blocks=1, block_bytes=1600
    )
    longer = with_block_tokens(layout, 64)
    assert (longer.usable_blocks, longer.block_bytes) == (25, 6400)
    assert longer.usable_blocks * longer.block_bytes == layout.usable_blocks * layout.block_bytes
    assert with_step(SERVER.step, 0.5).overhead_ps == 50 * MS


def test_the_whole_answer() -> None:
    question = Question(aim=0.9, resolution=0.1)
    found = answer(question, table(80))
    assert {item.factor for item in found.bursts} >= {1.0, 1.5}
    assert all(item.goodput == 1.0 for item in found.bursts if item.factor == 1.0)
    changes = {(item.factor, item.change): item.relative for item in found.changes}
    assert (changes[("step time", "x 1.1")] or 0) < 0 < (changes[("step time", "x 0.9")] or 0)
    assert found.operating_load == pytest.approx(found.load * 0.8)
    assert found.runs > 50


def test_ray_says_the_same() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray runs this with it")
    question = Question(aim=0.95, resolution=0.1, with_headroom=False, with_changes=False)
    made = study(table(60), question=question)
    with crew(made, jobs=2, ray="local") as work:
        assert find_capacity(made, question, work) == answer(question, table(60))
