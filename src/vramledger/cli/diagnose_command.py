"""`vramledger diagnose`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vramledger.cli.html_page import html_option, write_answer
from vramledger.cli.options import (
    GENERAL,
    OUTPUT,
    GroupedCommand,
    GroupedOption,
    device_option,
    json_option,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vramledger.diagnosis.diagnosis import Diagnosis
    from vramledger.diagnosis.remedy import Planner
    from vramledger.hardware.catalogue import Device
    from vramledger.report.diagnosis_document import DiagnosisDocument
    from vramledger.report.text import Line

_HELP = """What a memory failure was, of which class, how sure that is, and what would help by how many bytes or tokens.

FILE is a log of an engine or a container, a kernel's log, an allocator snapshot, a time series, or a note of what happened; any
number of them, recognised by what is in them, joined on time. "-" is a log on standard input.

Classes: load-time, warm-up, prefill-spike, decode-growth, fragmentation, recovery, or none of them."""

_EPILOG = """\b
Examples:
  vramledger diagnose server.log
  vramledger diagnose vllm.log dmesg.txt series.parquet oom.pickle --explain
  vramledger diagnose server.log --model ./Llama-3.1-8B --device H100-80GB
  vramledger diagnose server.log --model org/name --set max_num_batched_tokens=8192 --json
  kubectl logs POD --previous | vramledger diagnose -

\b
Exit codes: 0 every failure has a class, 11 one has none that can be told, 12 no failure found, or only
what was survived;
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_diagnose(
    files: tuple[str, ...],
    *,
    model: str | None,
    device: str | None,
    engine: str | None,
    settings: tuple[str, ...],
    explain: bool,
    as_json: bool,
    html_file: str | None,
    exit_zero: bool,
) -> int:
    """Read, diagnose, print, and say by the exit code what was found."""
    from vramledger.cli.exit_codes import CLASS_UNTOLD, DIAGNOSED, NO_FAILURE
    from vramledger.cli.output import page_width
    from vramledger.diagnosis.diagnosis import diagnose, with_remedies
    from vramledger.engines import check_engine, engine_name
    from vramledger.hardware.catalogue import find_device
    from vramledger.telemetry.evidence_files import collect

    given = _given(settings)
    target = None if device is None else find_device(device)
    if engine is not None:
        check_engine(engine)
    name = None if engine is None else engine_name(engine)
    collected = collect(files, engine=name)
    told = diagnose(
        collected.observations,
        samples=collected.samples,
        snapshots=collected.snapshots,
        settings=given,
        engine=name or next(iter(collected.engines), None),
    )
    planners = [_planner(item, model, target, engine, given) for item in told]
    told = [with_remedies(item, planner) for item, planner in zip(told, planners, strict=True)]

    def document() -> DiagnosisDocument:
        from vramledger.report.diagnosis_document import diagnosis_document

        return diagnosis_document(told, sources=collected.kinds, notes=collected.notes)

    def lines() -> Iterable[Line]:
        from vramledger.report.diagnosis_text import diagnosis_lines

        return diagnosis_lines(told, sources=collected.kinds, width=page_width(), explain=explain)

    write_answer(
        "diagnose", html_file=html_file, as_json=as_json, document=document, lines=lines, beside=_beside
    )
    if exit_zero:
        return DIAGNOSED
    if all(item.was_survived for item in told):
        return NO_FAILURE
    return CLASS_UNTOLD if any(item.answer.failure_class is None for item in told) else DIAGNOSED


def _beside(document: DiagnosisDocument) -> dict[str, object]:
    """What the page shows beside a diagnosis: the lines around those that it rests on, and the snapshots that were read."""
    from vramledger.report.snapshot_document import snapshot_document
    from vramledger.telemetry.log_excerpts import excerpts
    from vramledger.telemetry.snapshots import read_snapshot

    logs = {source.name for source in document.sources if source.kind == "log"}
    wanted = {(line.file, line.line) for failure in document.failures for line in failure.evidence}
    return {
        "excerpts": excerpts((file, line) for file, line in wanted if file in logs),
        "snapshots": [
            snapshot_document(read_snapshot(source.name), file=source.name, with_blocks=True)
            for source in document.sources
            if source.kind == "snapshot"
        ],
    }


def _given(settings: tuple[str, ...]) -> dict[str, str | int | float | bool]:
    """NAME=VALUE texts by name. Raises UsageError for a text without a name or a sign."""
    found: dict[str, str | int | float | bool] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not name or not equals:
            raise click.UsageError(f"--set {text!r} is not NAME=VALUE.")
        found[name] = _value(value.strip())
    return found


def _value(text: str) -> str | int | float | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.isdecimal() and len(text) <= 18:
        return int(text)
    if len(text) <= 24 and text.count(".") == 1 and text.replace(".", "").isdecimal():
        return float(text)
    return text


def _planner(
    told: Diagnosis,
    model: str | None,
    device: Device | None,
    engine: str | None,
    given: dict[str, str | int | float | bool],
) -> Planner | None:
    """The failing instance's planner, where a model was given or the log names one that lies here, and the device is known."""
    from pathlib import Path

    from vramledger.cli.loading import load
    from vramledger.errors import VramledgerError
    from vramledger.hardware.catalogue import find_device
    from vramledger.reconciliation.failed_plan import planner_of

    named = told.facts.settings.get("model") or told.moment.model
    asked = engine or told.facts.engine
    total = told.facts.total_bytes or told.moment.sizes.get("total_bytes")
    if asked is None:
        return None
    if model is not None:
        checkpoint = load(model, headers=True)
    elif isinstance(named, str) and Path(named).exists():
        try:
            checkpoint = load(named, headers=True)
        except VramledgerError:
            return None  # nobody asked for it: the diagnosis stands without
    else:
        return None
    if device is None:
        if total is None:
            return None
        device = find_device(f"custom:{total.expected}B")
    name, _, version = asked.partition("==")
    return planner_of(
        checkpoint,
        device,
        engine=name,
        version=version or told.moment.engine_version,
        settings={**told.facts.settings, **given},
    )


command = GroupedCommand(
    "diagnose",
    callback=run_diagnose,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["files"], metavar="FILE...", nargs=-1, required=True),
        GroupedOption(
            ["model", "--model"],
            metavar="MODEL",
            help="The model that was served: a folder, a file, a hub id or builtin:NAME. Remedies are then sized by its ledger.",
            group=GENERAL,
        ),
        device_option(required=False),
        GroupedOption(
            ["engine", "--engine"],
            metavar="NAME[==VERSION]",
            help="The engine, where the log does not show it.",
            group=GENERAL,
        ),
        GroupedOption(
            ["settings", "--set"],
            multiple=True,
            metavar="NAME=VALUE",
            help="A flag that the engine ran with, where the log does not print it; may be given several times.",
            group=GENERAL,
        ),
        GroupedOption(
            ["explain", "--explain"],
            is_flag=True,
            help="Also the rules that could not speak, and what they lack.",
            group=OUTPUT,
        ),
        json_option(),
        html_option(),
        GroupedOption(
            ["exit_zero", "--exit-zero"], is_flag=True, help="Exit with 0 whatever was found.", group=OUTPUT
        ),
    ],
)
