"""`vramledger reconcile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vramledger.cli.html_page import html_option, write_answer
from vramledger.cli.options import (
    GENERAL,
    OUTPUT,
    EngineCommand,
    GroupedOption,
    device_option,
    exit_zero_option,
    headers_option,
    json_option,
)
from vramledger.engines import engine_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramledger.answer import Plan
    from vramledger.measurement import Measurement
    from vramledger.models.checkpoint import Checkpoint
    from vramledger.reconciliation.arguments import PlanArguments
    from vramledger.reconciliation.document import ReconciliationDocument
    from vramledger.reconciliation.trials import Replan
    from vramledger.report.text import Line

_HELP = """A plan confronted with what was measured: owner by owner, inside or outside, and why.

PLAN is what vramledger plan --json wrote, MEASUREMENT what vramledger measure --json wrote.
Either side may be made on the spot: --log FILE in the place of MEASUREMENT, --model MODEL in the place of PLAN, planned
with the version, the device and the settings that the measurement tells, except for those given here.

With --model beside PLAN, or with a plan made on the spot, settings that differ are tried: the plan is made again under each
measured one, and the page says how much of a difference goes away."""

_EPILOG = """\b
Examples:
  vramledger reconcile plan.json measurement.json
  vramledger reconcile plan.json --log vllm.log --model ./Llama-3.1-8B-Instruct
  vramledger reconcile --log vllm.log --model ./Llama-3.1-8B-Instruct
  vramledger reconcile measurement.json --model ./model --device H100 --gpu-memory-utilization 0.9
  vramledger reconcile --log server.log --model model.gguf --engine llamacpp -c 8192 --json
  vramledger reconcile plan.json measurement.json --write-plan measured.json

\b
Exit codes: 0 inside what was predicted, 10 outside, 11 cannot be told (0 for all three with --exit-zero);
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_reconcile(
    files: tuple[str, ...],
    *,
    logs: tuple[str, ...],
    model: str | None,
    device: str | None,
    engine: str | None,
    headers: bool,
    as_json: bool,
    html_file: str | None,
    explain: bool,
    exit_zero: bool,
    write_plan: Path | None,
    **flags: object,
) -> int:
    """Read or make both sides, compare, print, and turn where it stands into an exit code."""
    from vramledger.cli.document_files import plan_from
    from vramledger.cli.output import page_width
    from vramledger.reconciliation.reconcile import reconcile
    from vramledger.reconciliation.trials import planner

    plan_file, measurement_file = _sides(files, with_log=bool(logs), with_model=model is not None)
    stored = None if plan_file is None else plan_from(plan_file)[0]
    measurement = _measurement(measurement_file, logs)
    given = {name: value for name, value in flags.items() if value is not None}
    checkpoint = None if model is None else _load(model, headers=headers)
    replan = None if checkpoint is None else planner(checkpoint)
    asked = None
    if stored is not None:
        _refuse_flags(device, engine, given)
        plan = stored
    else:
        assert replan is not None
        plan, asked = _on_the_spot(replan, _asked(measurement, device, engine, given), given)
    found = reconcile(plan, measurement, replan=replan, arguments=asked)
    if write_plan is not None:
        _write_plan(plan, measurement, write_plan)

    def document() -> ReconciliationDocument:
        from vramledger.reconciliation.document import reconciliation_document

        return reconciliation_document(found)

    def lines() -> Iterable[Line]:
        from vramledger.report.reconciliation_text import reconciliation_lines

        return reconciliation_lines(found, width=page_width(), explain=explain)

    write_answer("reconcile", html_file=html_file, as_json=as_json, document=document, lines=lines)
    return _exit_code(found.standing, exit_zero=exit_zero)


def _exit_code(standing: str, *, exit_zero: bool) -> int:
    from vramledger.cli.exit_codes import FAILS, HOLDS, UNTOLD

    return HOLDS if exit_zero else {"inside": HOLDS, "outside": FAILS, "untold": UNTOLD}[standing]


def _sides(files: tuple[str, ...], *, with_log: bool, with_model: bool) -> tuple[str | None, str | None]:
    """Which file is the plan and which the measurement."""
    if len(files) > 2 or (with_log and len(files) == 2):
        raise click.UsageError(
            "One PLAN and one MEASUREMENT are compared; --log takes the place of MEASUREMENT."
        )
    if len(files) == 2:
        return files[0], files[1]
    if with_log:
        if not files and not with_model:
            raise click.UsageError("Name a PLAN, or with --model what is to be planned.")
        return (files[0] if files else None), None
    if not files:
        raise click.UsageError("Name a MEASUREMENT, or with --log what is to be read.")
    if not with_model:
        raise click.UsageError("Name a PLAN and a MEASUREMENT, or one of them with --log or --model.")
    return None, files[0]


def _measurement(file: str | None, logs: tuple[str, ...]) -> Measurement:
    from vramledger.cli.document_files import measurement_from
    from vramledger.cli.measured_log import measured_log

    return measured_log(logs) if file is None else measurement_from(file)


def _load(model: str, *, headers: bool) -> Checkpoint:
    from vramledger.cli.loading import load

    return load(model, headers=headers)


def _refuse_flags(device: str | None, engine: str | None, given: dict[str, object]) -> None:
    names = [name for name, value in (("device", device), ("engine", engine)) if value is not None] + list(
        given
    )
    if names:
        raise click.UsageError(
            f"A PLAN has its own {', '.join(names)}; leave it out to plan on the spot with --model."
        )


def _asked(
    measurement: Measurement, device: str | None, engine: str | None, given: dict[str, object]
) -> PlanArguments:
    """The measurement's own settings, and those given here in their place."""
    from msgspec.structs import replace

    from vramledger.engines import engine_name, find_engine
    from vramledger.errors import DeviceError
    from vramledger.hardware.catalogue import find_device
    from vramledger.reconciliation.arguments import PlanArguments, device_of, plan_arguments, without_flags

    if engine is not None:
        _, version = find_engine(engine)
        name = engine_name(engine)
        if engine_name(measurement.engine or "") == name:
            asked = plan_arguments(measurement)
            asked = asked if version is None else replace(asked, version=version)
        else:
            asked = PlanArguments(engine=name, version=version, device=device_of(measurement)[0])
    else:
        asked = plan_arguments(measurement)
    if device is not None:
        asked = replace(asked, device=find_device(device))
    if asked.device is None:
        raise DeviceError(
            "the measurement does not tell the device's memory; name it with --device",
            device=measurement.device,
        )
    return replace(asked, flags={**without_flags(asked, given), **given})


def _on_the_spot(
    replan: Replan, asked: PlanArguments, given: dict[str, object]
) -> tuple[Plan, PlanArguments]:
    """The plan that is asked for. What was measured and the engine asked for does not take is left to it, and told; what was
    given here is not."""
    from msgspec.structs import replace

    from vramledger.reconciliation.trials import plan_leniently

    plan, asked, dropped = plan_leniently(replan, asked, kept=given)
    if not dropped:
        return plan, asked
    note = f"planned without {', '.join(dropped)}: measured, and not taken by {asked.engine_text}"
    return plan, replace(asked, notes=(*asked.notes, note))


def _write_plan(plan: Plan, measurement: Measurement, path: Path) -> None:
    """The measured plan as a published plan."""
    from vramledger.documents.plan import plan_document
    from vramledger.reconciliation.measured_plan import reconciled_plan
    from vramledger.whole_file import write_document_file

    write_document_file(plan_document(reconciled_plan(plan, measurement)), path)


command = EngineCommand(
    "reconcile",
    callback=run_reconcile,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["files"], nargs=-1, metavar="[PLAN] [MEASUREMENT]"),
        GroupedOption(
            ["logs", "--log", "-l"],
            multiple=True,
            metavar="FILE",
            help="Start-up log to measure with, - for standard input; may be given more than once.",
            group=GENERAL,
        ),
        GroupedOption(
            ["model", "--model", "-m"],
            metavar="MODEL",
            help="Model to plan on the spot, or to try settings with beside PLAN.",
            group=GENERAL,
        ),
        device_option(required=False),
        GroupedOption(
            ["engine", "--engine"],
            metavar="NAME[==VERSION]",
            help="Engine of the plan; the measurement's where not given. Known: "
            f"{', '.join(engine_names())}. Its flags are those below.",
            group=GENERAL,
        ),
        headers_option(),
        GroupedOption(
            ["write_plan", "--write-plan"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Write the plan with measured entries in the place of calculated ones.",
            group=OUTPUT,
        ),
        GroupedOption(
            ["explain", "--explain"],
            is_flag=True,
            help="All reasons, and what each figure was read from.",
            group=OUTPUT,
        ),
        json_option(),
        html_option(),
        exit_zero_option("Exit with 0 wherever it stands."),
    ],
)
