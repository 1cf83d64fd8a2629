"""`vramledger manifest`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vramledger.cli.options import (
    DEFAULT_ENGINE,
    GENERAL,
    OUTPUT,
    EngineCommand,
    GroupedOption,
    concurrency_option,
    device_option,
    engine_option,
    headers_option,
    json_option,
)

if TYPE_CHECKING:
    from vramledger.answer import Plan
    from vramledger.manifest.document import ManifestDocument, SourceRecord
    from vramledger.manifest.experiment_facts import ExperimentFacts
    from vramledger.manifest.identity import ModelIdentity
    from vramledger.measurement import Measurement
    from vramledger.models.checkpoint import Checkpoint
    from vramledger.reconciliation.result import Reconciliation

EVIDENCE = "Evidence"

_HELP = """The release artifact: a model revision, an engine revision and a plan in one file, with what was measured.

\b
  manifest MODEL --device NAME --engine-revision REV -o FILE   make one
  manifest [MODEL] --plan plan.json ... -o FILE                from a plan that was made
  manifest show FILE                                           read one and show it
  manifest verify FILE                                         read one and say whether it is sound

MODEL is a folder, a config.json, an index, a *.safetensors or *.gguf file, or a hub id (org/name[@revision]).

What was not measured is null in it and named in not_evidenced. A manifest carries a SHA-256 over its canonical form
(RFC 8785), checked on every read: one that was edited is refused. Equal inputs and --at give equal bytes."""

_EPILOG = """\b
Examples:
  vramledger manifest ./model --device H100-80GB --tp 2 --engine vllm==0.27.1 \\
    --engine-revision vllm/vllm-openai@sha256:... --log startup.log -o release.json
  vramledger manifest org/name --plan plan.json --measurement measured.json \\
    --engine-revision 5f2d... --facts facts.json --capacity load.json -o release.json
  vramledger manifest ./model.gguf --device L4 --engine llamacpp --hash-weights \\
    --engine-revision sha256:... -o release.json
  vramledger manifest ./model --plan plan.json --engine-revision 5f2d... --experiment ./experiment -o release.json
  vramledger manifest verify release.json

\b
Exit codes: 0 written, shown or sound (whatever the plan's verdict: see plan and audit);
2 wrong input, a manifest that was changed or is newer, or a file that is there without --force;
3 unknown architecture or format, 4 unreadable source, 74 output not written.
"""
_ACTIONS = ("show", "verify")


def run_manifest(words: tuple[str, ...], **options: object) -> int:
    """Show, verify, or make and write."""
    if len(words) == 2 and words[0] in _ACTIONS:
        return _read(words[0], words[1], as_json=bool(options["as_json"]))
    if len(words) > 1 or words in (("show",), ("verify",)):
        raise click.UsageError("give one MODEL, or show FILE, or verify FILE.")
    return _make(words[0] if words else None, **options)  # type: ignore[arg-type]


def _read(action: str, file: str, *, as_json: bool) -> int:
    from vramledger.cli.document_files import manifest_from
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.report.manifest_text import manifest_lines
    from vramledger.report.text import line, wrapped

    reading = manifest_from(file)
    width = page_width()
    if as_json:
        write_document(reading.document)
    elif action == "show":
        write_page(manifest_lines(reading.document, notes=reading.notes, width=width))
    else:
        lines = [line(f"sound: {reading.document.digest}", "good")]
        for note in reading.notes:
            lines += wrapped(f"note: {note}", width, rest="  ")
        write_page(lines)
    return 0


def _make(
    model: str | None,
    *,
    device: str | None,
    engine: str,
    headers: bool,
    as_json: bool,
    concurrency: int,
    plan_file: str | None,
    measurement_file: str | None,
    logs: tuple[str, ...],
    reconciliation_file: str | None,
    facts_file: str | None,
    capacity_file: str | None,
    experiment_folder: str | None,
    engine_revision: str | None,
    hash_weights: bool,
    allow_unpinned: bool,
    at: str | None,
    output: str | None,
    force: bool,
    **flags: object,
) -> int:
    import vramledger
    from vramledger.cli.document_files import check_out, facts_from, measurement_records, plan_from, time_text
    from vramledger.manifest.build import Given, build
    from vramledger.manifest.experiment_facts import with_experiment
    from vramledger.manifest.identity import engine_identity
    from vramledger.reconciliation.reconcile import reconcile

    check_out(
        output,
        (
            model,
            plan_file,
            measurement_file,
            *logs,
            reconciliation_file,
            facts_file,
            capacity_file,
            experiment_folder,
        ),
    )
    when = time_text(at)
    facts, records = facts_from(facts_file, capacity_file)
    experiment, tried = _experiment(experiment_folder)
    if experiment is not None:
        facts = with_experiment(facts, experiment)
    reconciliation, more = _reconciliation(reconciliation_file)
    identity, checkpoint = _model(
        model, headers=headers, hash_weights=hash_weights, allow_unpinned=allow_unpinned
    )
    if plan_file is not None:
        _refuse_flags(device, engine, flags)
        plan, source = plan_from(plan_file)
        planned: tuple[SourceRecord, ...] = (source,)
    else:
        plan, planned = _plan(checkpoint, device, engine=engine, concurrency=concurrency, flags=flags), ()
    measurement = _measurement(measurement_file, logs, plan.inputs.engine, when)
    if measurement is not None and reconciliation is None:
        reconciliation = reconcile(plan, measurement)
    build_identity = engine_identity(
        plan.inputs.engine, plan.inputs.engine_version, engine_revision, allow_unpinned=allow_unpinned
    )
    document = build(
        Given(
            plan=plan,
            model=identity or _unpinned(plan.inputs.model),
            engine=build_identity,
            at=when,
            made_by=f"vramledger {vramledger.__version__}",
            checkpoint=checkpoint,
            measurement=measurement,
            reconciliation=reconciliation,
            facts=facts,
            experiment=None if experiment is None else experiment.result,
            sources=(
                *planned,
                *(() if measurement is None else measurement_records(measurement)),
                *more,
                *records,
                *tried,
            ),
        )
    )
    return _write(document, output, force=force, as_json=as_json)


def _write(document: ManifestDocument, output: str | None, *, force: bool, as_json: bool) -> int:
    from vramledger.cli.output import page_width, write_page, write_text
    from vramledger.manifest.writing import manifest_bytes, write_manifest
    from vramledger.models.sources.bounded_file import path_of, shown
    from vramledger.report.manifest_text import manifest_lines
    from vramledger.report.text import line, wrapped

    if output is not None:
        write_manifest(document, path_of(output), force=force)
    if as_json:
        write_text(manifest_bytes(document).decode())
        return 0
    width = page_width()
    lines = list(manifest_lines(document, width=width))
    if output is not None:
        lines += [line(), *wrapped(f"written to {shown(path_of(output))}", width, rest="  ")]
    write_page(lines)
    return 0


def _model(
    model: str | None, *, headers: bool, hash_weights: bool, allow_unpinned: bool
) -> tuple[ModelIdentity | None, Checkpoint | None]:
    """The model's identity and its checkpoint, both of one revision; neither without MODEL."""
    from vramledger.cli.loading import load
    from vramledger.cli.progress import Reading
    from vramledger.errors import InputError
    from vramledger.manifest.model_files import identify

    if model is None:
        if not allow_unpinned:
            raise InputError(
                "MODEL is missing: a manifest names the model's revision; give the folder, file or hub id, or "
                "--allow-unpinned beside --plan",
                argument="model",
            )
        return None, None
    with Reading(0) as watch:
        found = identify(model, hash_weights=hash_weights, read=watch.add)
    return found.identity, load(found.model, headers=headers)


def _unpinned(model_id: str) -> ModelIdentity:
    from vramledger.manifest.identity import unpinned_identity

    return unpinned_identity(model_id)


def _plan(
    checkpoint: Checkpoint | None,
    device: str | None,
    *,
    engine: str,
    concurrency: int,
    flags: dict[str, object],
) -> Plan:
    from vramledger.errors import InputError
    from vramledger.planning import plan

    if checkpoint is None or device is None:
        raise InputError("give MODEL and --device, or --plan FILE", argument="device")
    return plan(checkpoint, device, engine=engine, concurrency=concurrency, **flags)  # type: ignore[arg-type]


def _refuse_flags(device: str | None, engine: str, flags: dict[str, object]) -> None:
    """A plan that was made has its flags; others beside it would not be in it."""
    from vramledger.errors import FlagError

    given = [name for name, value in flags.items() if value is not None]
    given += ["device"] if device is not None else []
    given += ["engine"] if engine != DEFAULT_ENGINE else []
    if given:
        raise FlagError(
            f"--plan holds the flags it was made with; leave out {', '.join('--' + n.replace('_', '-') for n in given)}",
            flag=given[0],
        )


def _measurement(file: str | None, logs: tuple[str, ...], engine: str, when: str) -> Measurement | None:
    """What was measured: a published measurement, or the engine's log. Times without a year are read as of `when`, so that
    the same inputs give the same bytes."""
    from vramledger.cli.document_files import measurement_from, seconds
    from vramledger.cli.measured_log import measured_log
    from vramledger.errors import FlagError

    if file is not None and logs:
        raise FlagError("give --measurement or --log, not both", flag="log")
    if file is not None:
        return measurement_from(file)
    return measured_log(logs, engine=engine, now_s=seconds(when)) if logs else None


def _reconciliation(file: str | None) -> tuple[Reconciliation | None, tuple[SourceRecord, ...]]:
    if file is None:
        return None, ()
    from vramledger.cli.document_files import reconciliation_from

    found, source = reconciliation_from(file)
    return found, (source,)


def _experiment(folder: str | None) -> tuple[ExperimentFacts | None, tuple[SourceRecord, ...]]:
    if folder is None:
        return None, ()
    from vramledger.cli.document_files import experiment_from

    found, source = experiment_from(folder)
    return found, (source,)


def _file_option(name: str, flag: str, text: str, *, group: str = EVIDENCE) -> GroupedOption:
    return GroupedOption([name, flag], metavar="FILE", help=text, group=group)


command = EngineCommand(
    "manifest",
    callback=run_manifest,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["words"], metavar="[MODEL | show FILE | verify FILE]", nargs=-1),
        device_option(required=False),
        engine_option(),
        concurrency_option(),
        headers_option(),
        _file_option(
            "plan_file", "--plan", "A plan of vramledger plan --json, instead of planning.", group=GENERAL
        ),
        GroupedOption(
            ["engine_revision", "--engine-revision"],
            metavar="REV",
            help="The engine's build: a commit (40 hexadecimal digits), sha256:... of the wheel or binary, or "
            "image@sha256:...",
            group=EVIDENCE,
        ),
        GroupedOption(
            ["hash_weights", "--hash-weights"],
            is_flag=True,
            help="Hash the weights' whole content; without it of local weights headers and sizes are.",
            group=EVIDENCE,
        ),
        GroupedOption(
            ["allow_unpinned", "--allow-unpinned"],
            is_flag=True,
            help="Write a manifest although a revision is not known; it says so, and its audit fails.",
            group=EVIDENCE,
        ),
        _file_option(
            "measurement_file", "--measurement", "What vramledger measure or log wrote with --json."
        ),
        GroupedOption(
            ["logs", "--log"],
            multiple=True,
            metavar="FILE",
            help="A log of the engine, read on the spot; the files of a rotated one in their order.",
            group=EVIDENCE,
        ),
        _file_option(
            "reconciliation_file",
            "--reconciliation",
            "What vramledger reconcile --json wrote; without it plan and measurement are compared on the spot.",
        ),
        _file_option(
            "facts_file", "--facts", "What is declared and was tested; its form: vramledger schema facts."
        ),
        _file_option("capacity_file", "--capacity", "Operating points: an object with capacity_results."),
        GroupedOption(
            ["experiment_folder", "--experiment"],
            metavar="DIR",
            help="The folder of vramledger experiment: operating point, tests, step times and trends.",
            group=EVIDENCE,
        ),
        GroupedOption(
            ["at", "--at"],
            metavar="TIME",
            help="When, as 2026-11-30T01:02:03Z or Unix seconds; now unless given.",
            group=OUTPUT,
        ),
        GroupedOption(
            ["output", "-o", "--output"], metavar="FILE", help="Where to write the manifest.", group=OUTPUT
        ),
        GroupedOption(["force", "--force"], is_flag=True, help="Replace a file that is there.", group=OUTPUT),
        json_option(),
    ],
)
