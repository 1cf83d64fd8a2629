"""Measured runs are read, simulated and told of."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tools.fidelity.__main__ import main
from tools.fidelity.curves import Curve, curve_error, picture
from tools.fidelity.pools import planned, pool_check
from tools.fidelity.replay import Figure, parts, percentile, settings_of, simulated
from tools.fidelity.runs import PS_PER_S, MeasuredRun, Served, read_run
from tools.fidelity.tables import AIM_PERCENT, AIMED

from vramledger.errors import InputError
from vramledger.simulation.outcome import RequestOutcome, Status
from vramledger.simulation.step_file import read_step

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "data" / "traces" / "vllm-measured-runs"
RTX4090, PRO6000 = RUNS / "RTX4090_Llama-3.1-8B", RUNS / "RTXPRO6000_Llama-3.1-8B"


@pytest.fixture(scope="module")
def measured() -> MeasuredRun:
    return read_run(RTX4090)


def copied(folder: Path, count: int) -> Path:
    """The beginning of the RTX PRO 6000 run as a run of its own, with answers of 30 tokens, one in 20 ms."""
    run = folder / "runs" / PRO6000.name
    run.mkdir(parents=True)
    for name in ("requests.jsonl.gz", "workload.jsonl.gz"):
        rows = [
            json.loads(line) for line in gzip.decompress((PRO6000 / name).read_bytes()).splitlines()[:count]
        ]
        for row in rows:
            row["output_toks"] = 30
            if "first_token_ts" in row:
                row["last_token_ts"] = row["first_token_ts"] + 29 * 0.02
        (run / name).write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    (run / "meta.json").write_bytes((PRO6000 / "meta.json").read_bytes())
    head = (PRO6000 / "timeseries.csv").read_text().splitlines(keepends=True)[:30]
    (run / "timeseries.csv").write_text("".join(head))
    return run


def test_a_run_as_it_was_published(measured: MeasuredRun) -> None:
    assert len(measured.requests) == len(measured.served) == 300
    assert sum(request.prompt_tokens for request in measured.requests) == 257_239
    assert (measured.num_gpu_blocks, measured.device) == (2588, "NVIDIA GeForce RTX 4090")
    # The README's figures count from the engine's queue.
    waits = [(row.first_token_ps - row.queued_ps) / PS_PER_S for row in measured.served]
    assert sum(waits) / 300 == pytest.approx(65.4566, abs=1e-4)
    assert percentile(waits, 99) == pytest.approx(137.3563, abs=1e-4)
    assert max(row.end_ps for row in measured.served) / PS_PER_S == pytest.approx(183.5675, abs=1e-4)
    assert measured.published["TTFT P99"] == 0.3
    assert measured.has_kv_use
    assert not read_run(PRO6000).has_kv_use


def test_the_recorded_pool_lies_in_the_planned_interval(measured: MeasuredRun) -> None:
    check = pool_check(measured, planned(measured))
    assert check.recorded == 2588
    assert check.is_inside
    unrecorded = read_run(PRO6000)
    assert pool_check(unrecorded, planned(unrecorded)).is_inside is None


def test_what_contradicts_itself_is_named(tmp_path: Path) -> None:
    run = copied(tmp_path, 5)
    lines = gzip.decompress((run / "requests.jsonl.gz").read_bytes()).splitlines()
    (run / "requests.jsonl.gz").write_bytes(gzip.compress(b"\n".join([*lines[:2], b'{"request_id": 7}'])))
    with pytest.raises(InputError, match=r"requests\.jsonl\.gz, line 3"):
        read_run(run)
    (run / "requests.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines[:3])))
    with pytest.raises(InputError, match="3 requests were served, the workload has 5"):
        read_run(run)
    other = json.loads(lines[1]) | {"output_toks": 1}
    (run / "requests.jsonl.gz").write_bytes(
        gzip.compress(b"\n".join([lines[0], json.dumps(other).encode(), *lines[2:]]))
    )
    with pytest.raises(InputError, match="request 1 has other lengths than line 2"):
        read_run(run)
    (run / "requests.jsonl.gz").write_bytes(b"\x1f\x8b\x08 cut")
    with pytest.raises(InputError, match=r"requests\.jsonl\.gz"):
        read_run(run)
    assert main(["--data", str(tmp_path / "nowhere")]) == 2


def test_figures_of_the_halves_and_of_all() -> None:
    served = [
        Served(sent_ps=0, queued_ps=0, scheduled_ps=0, first_token_ps=s, end_ps=3 * s, output_tokens=3)
        for s in (PS_PER_S, 2 * PS_PER_S)
    ]
    outcomes = [
        RequestOutcome(
            number=n, replica=0, status=Status.FINISHED, sent_ps=0, first_token_ps=first, end_ps=end,
            prompt_tokens=1, output_tokens=3,
        )
        for n, (first, end) in enumerate(((PS_PER_S, 3 * PS_PER_S), (3 * PS_PER_S, 6 * PS_PER_S)))
    ]  # fmt: skip
    fitted, other, whole = parts(served, outcomes)
    assert {figure.percent for figure in fitted.figures} == {0.0}
    by_name = {figure.name: figure for figure in other.figures}
    assert by_name["TTFT mean"].percent == pytest.approx(50)
    assert by_name["TPOT mean"].percent == pytest.approx(-25)
    assert by_name["makespan"].percent == pytest.approx(0)
    assert whole.figures[0] == Figure(name="TTFT mean", measured_s=1.5, simulated_s=2.0)


def test_percentiles_as_the_published_table_has_them() -> None:
    assert percentile([4, 1, 3, 2], 50) == 2.5
    assert percentile([1, 2], 90) == pytest.approx(1.9)
    assert percentile([7], 99) == 7


def test_curves_are_compared_where_the_engine_told() -> None:
    curve = Curve(
        name="KV use", unit="%", measured=((1.0, 50.0), (2.0, 60.0)), simulated=((0.0, 40.0), (1.5, 66.0))
    )
    error = curve_error(curve)
    # At 1 s the state of 0 s holds; at 2 s the run is over.
    assert (error.measured_mean, error.simulated_mean, error.mean_distance) == (55, 20, 35)
    drawn = ET.fromstring(picture("a < b", [curve]))
    assert len([item for item in drawn.iter() if item.tag.endswith("polyline")]) == 2


def test_a_whole_run_to_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied(tmp_path, 24).parent
    code = main(
        [
            "--data",
            str(folder),
            "--page",
            str(tmp_path / "page.md"),
            "--json",
            str(tmp_path / "all.json"),
            "--jobs",
            "1",
        ]
    )
    shown = capsys.readouterr().out
    assert code in (0, 1)
    assert "Worst figures:" in shown
    assert "in the measured order" in shown
    assert "vLLM's own scheduler: Not run here" in shown
    written = json.loads((tmp_path / "all.json").read_text())
    (run,) = written["runs"]
    assert run["replay"]["same_order"] is True
    assert run["replay"]["step"]["evidence"]["kind"] == "measured"
    assert len(run["replay"]["parts"]) == 3
    assert (tmp_path / run["picture"]).read_text().startswith("<svg")
    assert "| KV blocks |" in (tmp_path / "page.md").read_text()


def test_the_page_is_what_the_fitted_steps_give_today(measured: MeasuredRun) -> None:
    """Without the fit: the committed step model, simulated again."""
    file = ROOT / "examples" / "steps" / f"{RTX4090.name}.json"
    settings = settings_of(measured, planned(measured), read_step(file.read_bytes(), file.name))
    outcomes, counters, _ = simulated(measured, settings)
    whole = parts(measured.served, outcomes)[-1]
    page = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    assert f"{counters.preemptions} preemptions, {counters.recomputed_tokens:,} tokens recomputed" in page
    for figure in whole.figures:
        assert re.search(
            rf"^\| {figure.name} \|[^|]+\|[^|]+\| {re.escape(f'{figure.percent:+.2f}')} % \|",
            page,
            re.MULTILINE,
        ), f"{figure.name} is {figure.percent:+.2f} % off now: run `make fidelity`"
        assert figure.name not in AIMED or abs(figure.percent) < AIM_PERCENT
