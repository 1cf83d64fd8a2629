"""A whole experiment on llama.cpp's server by the command, straight and through the gateway, and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.experiment_shown.page import page
from tools.experiment_shown.running import WAYS, experiment_files

from llamacpp_server import needs_llamacpp
from vramledger.experiment.journal import read_experiment
from vramledger.experiment.plan import Step
from vramledger.experiment.record_file import read_records

CELLS = 256
PLAN = """
start_per_s = 8.0
stage_s = 1.0
stage_requests = 3
most_stages = 1
steady_s = 2.0
drain_s = 30.0
interval_s = 0.5
[slo]
ttft_ms = 60000.0
tpot_ms = 60000.0
"""
NEEDS_A_PROCESS = {Step.LOAD, Step.RESTART}


@needs_llamacpp
@pytest.mark.parametrize("way", ["straight", "gateway"])
def test_from_an_engine_to_its_operating_point(way: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    out = tmp_path / "work" / "llamacpp" / way
    out.parent.mkdir(parents=True)
    options = ["--quick", "--plan", str(tmp_path / "plan.toml")]
    code = WAYS[way]("llamacpp", tmp_path, None, out, options, cells=CELLS)
    found = read_experiment(out / "experiment.json")
    assert code == 0
    states = {one.step: one for one in found.steps}
    assert set(states) == set(Step)
    skipped = {step for step, one in states.items() if one.state == "skipped"}
    assert skipped == (set() if way == "straight" else NEEDS_A_PROCESS)
    assert all(one.state == "done" for step, one in states.items() if step not in skipped), states
    assert (found.target.gateway_url is not None) == (way == "gateway")
    assert found.pool is not None
    # Its log says that the slots share their cells; of an engine that was there already no log is read.
    assert found.pool.engine_tokens == (CELLS if way == "straight" else None)
    for stage in found.stages:
        rows = read_records(out / stage.records)
        assert len(rows) == stage.measured.offered
        assert all(row.whole or row.left or row.error or row.status >= 400 for row in rows)
    # Every load was within these aims, so the largest that was tried is what is told.
    assert found.point is not None
    assert found.point.per_s > 0
    assert found.point.is_limit_of_load
    for name in ("report.html", "series.jsonl"):
        assert (out / name).stat().st_size > 0
    shown = page(experiment_files(tmp_path / "work"))
    assert "## llamacpp, " in shown
    assert str(tmp_path) not in shown
