"""`vramledger release`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vramledger.cli.options import (
    OUTPUT,
    EngineCommand,
    FiniteRange,
    GroupedOption,
    concurrency_option,
    device_option,
    engine_option,
    json_option,
)

if TYPE_CHECKING:
    from vramledger.manifest.audit import Policy
    from vramledger.release.steps import Order, Release
    from vramledger.telemetry.engine_process import EngineDied

START = "Start"

_HELP = """Plan MODEL, start the engine with the plan's flags, ask it, measure, reconcile, and write an audited manifest.

\b
Into the folder of --out go
  plan.json  engine.log  series.jsonl  measurement.json  reconciliation.json  manifest.json  audit.json

The engine listens on a free port of this machine and is stopped at the end. It is asked a short request, one long prefill, as
many decodes at once as are planned for (8 at most), a repeated prefix, and streams that are dropped; that shows that each
phase was lived through and that memory comes back, and is no load test."""

_EPILOG = """\b
Examples:
  vramledger release model.gguf --engine llamacpp -c 8192 -np 4 --device cpu:24GiB -o release
  vramledger release ./model --engine vllm --max-model-len 32K --device H100 -o release
  vramledger release ./model --engine sglang --device L40S -o release --allow-unpinned \\
    --launch 'docker run ... --model-path {model} --port {port}' --facts facts.json

\b
Exit codes: 0 the policy lets the release through, 14 it does not, 15 the engine ended or was never ready, with a
diagnosis of its log on stderr;
2 wrong input, 3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""


def run_release(
    model: str,
    *,
    engine: str,
    device: str | None,
    out: Path,
    launch: str | None,
    concurrency: int,
    engine_revision: str | None,
    allow_unpinned: bool,
    hash_weights: bool,
    facts_file: str | None,
    capacity_file: str | None,
    policy: str,
    ready: float,
    at: str | None,
    as_json: bool,
    **flags: object,
) -> int:
    """Do it, print, and turn the audit into an exit code."""
    import vramledger
    from vramledger.cli.document_files import facts_from, time_text
    from vramledger.cli.exit_codes import AUDIT_FAILED, HOLDS
    from vramledger.cli.output import page_width, write_page, write_text
    from vramledger.cli.progress import Watch
    from vramledger.cli.termination import ends_when_told
    from vramledger.manifest.audit import Policy, trips
    from vramledger.release.steps import Order, release
    from vramledger.telemetry.engine_process import EngineDied

    facts, records = facts_from(facts_file, capacity_file)
    order = Order(
        model=model,
        engine=engine,
        device=device if device is not None else _this_machine(engine),
        out=out,
        at=time_text(at),
        made_by=f"vramledger {vramledger.__version__}",
        flags={name: value for name, value in flags.items() if value is not None},
        concurrency=concurrency,
        launch=launch,
        engine_revision=engine_revision,
        allow_unpinned=allow_unpinned,
        hash_weights=hash_weights,
        facts=facts,
        sources=records,
        ready_s=ready,
    )
    try:
        with ends_when_told(), Watch() as watch:
            found = release(order, told=watch.tell)
    except EngineDied as problem:
        return _died(problem, order, as_json=as_json)
    _write_audit(found, out / "audit.json", Policy(policy))
    if as_json:
        from vramledger.manifest.writing import manifest_bytes

        write_text(manifest_bytes(found.manifest).decode())
    else:
        from vramledger.report.release_text import release_lines

        write_page(release_lines(found, out=out, policy=Policy(policy), width=page_width()))
    return AUDIT_FAILED if trips(found.audit, Policy(policy)) else HOLDS


def _died(problem: EngineDied, order: Order, *, as_json: bool) -> int:
    """Say that the engine ended, and beneath it what its log and the series tell of why; both on stderr."""
    from vramledger.cli.output import page_width, write_error, write_error_page
    from vramledger.errors import VramledgerError
    from vramledger.release.autopsy import autopsy
    from vramledger.report.autopsy_text import autopsy_lines

    write_error(problem.code, problem.message, problem.facts, as_json=as_json)
    try:
        found = autopsy(order, (order.out / "engine.log", order.out / "series.jsonl"))
    except VramledgerError as unread:
        write_error_page(autopsy_lines(None, unread=unread.message, tail=str(problem.facts["tail"])))
    else:
        write_error_page(autopsy_lines(found, tail=str(problem.facts["tail"]), width=page_width()))
    return problem.exit_code


def _write_audit(found: Release, path: Path, policy: Policy) -> None:
    from vramledger.report.audit_document import audit_document
    from vramledger.whole_file import write_document_file

    document = audit_document(
        found.manifest, found.audit, policy=policy, file=str(path.with_name("manifest.json"))
    )
    write_document_file(document, path)


def _this_machine(engine: str) -> str:
    """The device that the driver names, else this host as a device."""
    from vramledger.engines import engine_name
    from vramledger.errors import DeviceError
    from vramledger.release.machine import this_machine

    found = this_machine(engine_name(engine))
    if found is None:
        raise DeviceError("this machine's device is not known; give --device", device="")
    return found


command = EngineCommand(
    "release",
    callback=run_release,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["model"], metavar="MODEL"),
        engine_option(),
        device_option(required=False),
        concurrency_option(),
        GroupedOption(
            ["launch", "--launch"],
            metavar="COMMAND",
            help="Start this instead; {model}, {host} and {port} are filled in, and no shell reads it.",
            group=START,
        ),
        GroupedOption(
            ["ready", "--ready-timeout"],
            type=FiniteRange(min=1),
            default=900.0,
            metavar="SECONDS",
            help="Longest wait until the engine is ready.",
            group=START,
        ),
        GroupedOption(
            ["engine_revision", "--engine-revision"],
            metavar="REV",
            help="The engine's build; else the hash of the server's binary or of its distribution's files.",
            group=START,
        ),
        GroupedOption(
            ["allow_unpinned", "--allow-unpinned"],
            is_flag=True,
            help="Write a manifest of a build that is not known, marked so.",
            group=START,
        ),
        GroupedOption(
            ["hash_weights", "--hash-weights/--no-hash-weights"],
            default=True,
            help="Hash whole weight files, or their headers and sizes alone.",
            group=START,
        ),
        GroupedOption(
            ["facts_file", "--facts"],
            metavar="FILE",
            help="Declarations and tests (vramledger schema facts).",
            group=START,
        ),
        GroupedOption(
            ["capacity_file", "--capacity"],
            metavar="FILE",
            help="Operating points, as in capacity_results of a manifest.",
            group=START,
        ),
        GroupedOption(
            ["policy", "--policy"],
            type=click.Choice(["strict", "release", "warn"]),
            default="release",
            help="What the exit code asks of the audit: all passed, all that a release must have, or nothing.",
            group=OUTPUT,
        ),
        GroupedOption(["at", "--at"], metavar="TIME", help="When, in UTC; now without it.", group=OUTPUT),
        GroupedOption(
            ["out", "-o", "--out"],
            type=click.Path(path_type=Path, file_okay=False),
            default=Path("release"),
            show_default=True,
            metavar="DIR",
            help="The folder of the files.",
            group=OUTPUT,
        ),
        json_option(),
    ],
)
