"""An experiment is concluded from its folder alone, and from nothing in it that is not what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from vramledger.errors import InputError
from vramledger.experiment.folder import SERIES
from vramledger.experiment.journal import open_journal
from vramledger.experiment.load_figures import figures_of
from vramledger.experiment.plan import ExperimentPlan, Kind, Step
from vramledger.experiment.record_file import read_records, write_records
from vramledger.experiment.result import Experiment, Stage, Target
from vramledger.experiment.served import Served
from vramledger.release.experiment.concluding import conclude
from vramledger.release.experiment.order import Order
from vramledger.release.experiment.work import Work

PLAN = ExperimentPlan()
ROWS = tuple(
    Served(
        number=number, due_ns=number * 10**8, sent_ns=number * 10**8, first_token_ns=number * 10**8 + 10**6,
        last_token_ns=number * 10**8 + 10**7, end_ns=number * 10**8 + 10**7, asked_prompt_tokens=8, asked_output_tokens=4,
        output_tokens=4, events=4, status=200, whole=True,
    )
    for number in range(40)
)  # fmt: skip
SAMPLE = b'{"at_s":2,"source":"a","name":"device_free_bytes","value":1024}\n'


def concluded(folder: Path, *, series: bytes = SAMPLE, rows: tuple[Served, ...] = ROWS) -> Experiment:
    target = Target(url="http://a:1", engine_url="http://a:1", model="m")
    begun = Experiment(began_s=1.0, plan=PLAN, target=target)
    order = Order(plan=PLAN, out=folder, made_by="a test", target="http://a:1")
    with open_journal(folder) as journal:
        work = Work(order, journal, begun, told=lambda _: None)
        path, name = journal.records_of("mixed-1")
        write_records(path, rows)
        (folder / SERIES).write_bytes(series)
        work.add_stage(
            Stage(
                step=Step.MIXED, name="mixed-1", kind=Kind.MIXED, per_s=10.0, seconds=4.0, seed=0, began_s=1.0, ended_s=6.0,
                records=name, measured=figures_of(ROWS, PLAN.slo),
            )
        )  # fmt: skip
        conclude(work)
        return work.now


def test_a_series_that_cannot_be_read_costs_the_headroom_alone(tmp_path: Path) -> None:
    whole, cut = (
        concluded(tmp_path / "a"),
        concluded(tmp_path / "b", series=SAMPLE + bytes(512) + b"\n" + SAMPLE),
    )
    assert whole.point is not None and cut.point is not None
    assert cut.point.headroom_bytes is None
    assert replace(cut.point, headroom_bytes=whole.point.headroom_bytes) == whole.point
    assert any(note.startswith("no headroom: ") for note in cut.notes)


@pytest.mark.parametrize("rows", [ROWS[:-1], (), (replace(ROWS[0], first_token_ns=10**12), *ROWS[1:])])
def test_other_records_than_the_stages_conclude_nothing(tmp_path: Path, rows: tuple[Served, ...]) -> None:
    with pytest.raises(InputError, match="it is not the file that was written"):
        concluded(tmp_path / "x", rows=rows)
    assert len(read_records(tmp_path / "x" / "records" / "mixed-1.parquet")) == len(rows)
