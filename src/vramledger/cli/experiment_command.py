"""`vramledger experiment`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vramledger.cli.options import OUTPUT, FiniteRange, GroupedCommand, GroupedOption, json_option
from vramledger.errors import FlagError

if TYPE_CHECKING:
    from vramledger.cli.progress import Watch
    from vramledger.experiment.plan import ExperimentPlan
    from vramledger.experiment.result import Experiment, Stage, StepState
    from vramledger.telemetry.engine_process import EngineDied

ENGINE, LOAD = "Engine", "Load"

_HELP = """Find the largest load that a live OpenAI-compatible engine serves well, and what binds it there.

\b
Ten steps: load, warm-up, pool, short, mixed, prefix, disturbed, steady, restart, operating-point. Into the folder of --out go
  experiment.json  report.html  records/STAGE.parquet  series.jsonl  step.json  engine.log
  measurement.json  reconciliation.json  manifest.json  audit.json

Requests are sent when they are due, whatever became of those before them. What is ended in the middle is gone on with by the same
command with the same --out; nothing that is done is done again.
"""

_EPILOG = """\b
Examples:
  vramledger experiment --target http://127.0.0.1:8000 -o experiment
  vramledger experiment --launch 'vllm serve {model} --host {host} --port {port}' --model ./model --manifest manifest.json
  vramledger experiment --target http://127.0.0.1:8080 --gateway http://127.0.0.1:8099 --engine-url http://127.0.0.1:8000
  vramledger experiment --target http://127.0.0.1:8000 --plan experiment.toml --quick --slo-ttft-ms 500

\b
Exit codes: 0 a load holds, 10 none does, 11 it cannot be told, 15 the engine ended first;
130 (Ctrl-C), 143 (SIGTERM) or 129 (a closed terminal) ended in the middle: the same command goes on;
2 wrong input, 4 unreadable source, 74 output not written.
"""


def run_experiment_command(
    *,
    plan_file: str | None,
    quick: bool,
    as_json: bool,
    key_env: str | None,
    out: Path,
    manifest: Path | None,
    html_file: str | None,
    **options: Any,
) -> int:
    """The callback of the command."""
    import vramledger
    from vramledger.cli.document_files import check_out
    from vramledger.cli.progress import Watch
    from vramledger.cli.termination import ends_when_told
    from vramledger.experiment.extra import not_installed
    from vramledger.release.experiment.order import Order

    try:
        from vramledger.release.experiment.run import run_experiment
    except ModuleNotFoundError as problem:
        raise not_installed(problem) from None
    from vramledger.telemetry.engine_process import EngineDied

    sources = (plan_file, options["workload"], None if manifest is None else str(manifest))
    check_out(html_file, sources, flag="--html")
    names = ("target", "launch", "model", "engine", "engine_url", "gateway_url", "fresh", "ready_s")
    order = Order(
        plan=plan_of(plan_file, quick=quick, options=options),
        out=out,
        made_by=f"vramledger {vramledger.__version__}",
        manifest=manifest,
        key=_key(key_env),
        **{name: options[name] for name in names},
    )
    try:
        with ends_when_told(), Watch() as watch:
            heard = _Heard(out, watch, html_file)
            found = run_experiment(order, told=watch.begin, kept=heard)
    except EngineDied as problem:
        return _died(problem, as_json=as_json)
    except (KeyboardInterrupt, SystemExit):
        _say_how_to_go_on(out)
        raise
    if not heard.kept:
        _say_that_it_is_over(out)
    _print(found, out, html_file, as_json=as_json)
    return exit_code(found)


def plan_of(plan_file: str | None, *, quick: bool, options: dict[str, Any]) -> ExperimentPlan:
    """The file's plan with the flags over it, then made quick. Paths in a file are beside it. Raises InputError or SourceError."""
    from msgspec.structs import replace

    from vramledger.cli.document_files import read_file
    from vramledger.experiment import plan_file as files
    from vramledger.experiment.plan import ExperimentPlan
    from vramledger.models.sources.bounded_file import shown
    from vramledger.workload.builtin import is_builtin

    plan = ExperimentPlan()
    if plan_file is not None:
        data, path = read_file(plan_file)
        plan = files.read_plan_file(data, shown(path))
        if plan.workload is not None and not is_builtin(plan.workload):
            plan = replace(plan, workload=str(path.parent / plan.workload))
    given = {
        name: options[name]
        for name in ("workload", "seed", "goodput", "steady_s")
        if options.get(name) is not None
    }
    slo = {
        name: options[f"slo_{name}"]
        for name in ("ttft_ms", "tpot_ms", "latency_ms")
        if options.get(f"slo_{name}") is not None
    }
    plan = replace(plan, slo=replace(plan.slo, **slo), **given)
    return files.checked_plan(files.quick(plan) if quick else plan, "the command line")


def exit_code(found: Experiment) -> int:
    """What was found: a load holds, none does, it cannot be told, or the engine ended."""
    from vramledger.cli.exit_codes import AIM_MISSED, FAILS, HOLDS, UNTOLD

    if found.failure is not None:
        return AIM_MISSED
    if found.point is None:
        return UNTOLD
    return HOLDS if found.point.per_s > 0 else FAILS


def _key(key_env: str | None) -> str:
    if key_env is None:
        return ""
    key = os.environ.get(key_env, "")
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise FlagError(
            f"--key-env: the environment variable {key_env} holds no key", flag="key_env", value=key_env
        )
    return key


def _say_how_to_go_on(out: Path) -> None:
    from vramledger.cli.output import write_message
    from vramledger.experiment.folder import JOURNAL, REPORT
    from vramledger.models.sources.bounded_file import shown

    if (out / JOURNAL).exists():
        write_message(f"what was found is kept in {shown(out)}, {REPORT} too; the same command goes on")


def _say_that_it_is_over(out: Path) -> None:
    from vramledger.cli.output import write_message
    from vramledger.models.sources.bounded_file import shown

    write_message(f"the experiment in {shown(out)} was over before, nothing was asked; --fresh begins anew")


class _Heard:
    """Says what was kept, and writes the page anew after every step, so that there is one of what goes on or was ended."""

    def __init__(self, out: Path, watch: Watch, html_file: str | None) -> None:
        self._out = out
        self._html_file = html_file
        self._watch = watch
        self.kept = 0

    def __call__(self, found: Experiment, kept: StepState | Stage) -> None:
        from vramledger.experiment.result import StepState
        from vramledger.report.experiment_progress import progress_text

        self.kept += 1
        text = progress_text(found, kept)
        if text is not None:
            self._watch.keep(f"{datetime.now(UTC):%H:%M:%S} {text}")
        if isinstance(kept, StepState) and kept.state != "open" and not _is_of_failure(found, kept):
            _write_page(found, self._out, self._html_file)


def _is_of_failure(found: Experiment, kept: StepState) -> bool:
    return found.failure is not None and kept.state == "skipped"


def _died(problem: EngineDied, *, as_json: bool) -> int:
    from vramledger.cli.output import write_error

    write_error(problem.code, problem.message, problem.facts, as_json=as_json)
    return problem.exit_code


def _write_audit(out: Path) -> None:
    from vramledger.cli.document_files import manifest_from
    from vramledger.experiment.folder import AUDIT, MANIFEST
    from vramledger.manifest.audit import Policy, audit
    from vramledger.report.audit_document import audit_document
    from vramledger.whole_file import write_document_file

    path = out / MANIFEST
    if not path.exists():
        return
    manifest = manifest_from(str(path)).document
    policy = Policy.RELEASE
    document = audit_document(manifest, audit(manifest, policy=policy), policy=policy, file=str(path))
    write_document_file(document, out / AUDIT)


def _write_page(found: Experiment, out: Path, html_file: str | None) -> None:
    """The page into the experiment's folder, and the same where --html says."""
    from vramledger.report.experiment_page import write_experiment_page
    from vramledger.whole_file import write_whole

    page = write_experiment_page(out, found)
    if html_file is not None:
        write_whole(Path(html_file), page.read_bytes())


def _print(found: Experiment, out: Path, html_file: str | None, *, as_json: bool) -> None:
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.report.experiment_text import experiment_lines

    _write_audit(out)
    _write_page(found, out, html_file)
    if as_json:
        write_document(found)
    else:
        write_page(experiment_lines(found, width=page_width(), out=out))


def _text(name: str, flag: str, metavar: str, text: str, group: str) -> GroupedOption:
    return GroupedOption([name, flag], metavar=metavar, help=text, group=group)


def _aim(name: str, text: str) -> GroupedOption:
    return GroupedOption(
        [f"slo_{name}", f"--slo-{name.replace('_', '-')}"],
        type=FiniteRange(min=0, min_open=True),
        metavar="MS",
        help=text,
        group=LOAD,
    )


def _path(name: str, flag: str, text: str, group: str) -> GroupedOption:
    return GroupedOption(
        [name, flag], type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=text, group=group
    )


command = GroupedCommand(
    "experiment",
    callback=run_experiment_command,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        _text("target", "--target", "URL", "Where requests go: an engine that runs, or a gateway before it.", ENGINE),
        _text("launch", "--launch", "COMMAND", "Start this instead; {model}, {host} and {port} are filled in, and no shell reads it.", ENGINE),
        _text("model", "--model", "MODEL", "What {model} stands for; of a --target the name that it is asked for.", ENGINE),
        _text("engine", "--engine", "NAME", "Which engine it is, where it does not say: vllm, sglang, llamacpp, tensorrt-llm.", ENGINE),
        _text("gateway_url", "--gateway", "URL", "The admin address of a --target that is a gateway.", ENGINE),
        _text("engine_url", "--engine-url", "URL", "The engine behind that gateway.", ENGINE),
        _text("key_env", "--key-env", "NAME", "Environment variable with the key that requests carry.", ENGINE),
        _path("manifest", "--manifest", "A manifest: what was planned, and into what the results go.", ENGINE),
        GroupedOption(
            ["ready_s", "--ready-timeout"], type=FiniteRange(min=1), default=900.0, metavar="SECONDS",
            help="Longest wait until the engine is ready.", group=ENGINE,
        ),
        _text("plan_file", "--plan", "FILE", "The experiment's plan (TOML).", LOAD),
        GroupedOption(["quick", "--quick"], is_flag=True, help="Minutes instead of an hour: short stages, a coarse ladder.", group=LOAD),
        _text("workload", "--workload", "FILE", "Cohorts, a trace or builtin:NAME; else cohorts made for the engine's context length.", LOAD),
        _aim("ttft_ms", "Longest time to the first token; 2000 unless given."),
        _aim("tpot_ms", "Longest time for each token after it, on average; 200 unless given."),
        _aim("latency_ms", "Longest time for the whole answer."),
        GroupedOption(
            ["goodput", "--goodput"], type=FiniteRange(0.01, 1.0), metavar="SHARE",
            help="Share of the requests that must meet every aim; 0.95 unless given.", group=LOAD,
        ),
        GroupedOption(
            ["steady_s", "--steady"], type=FiniteRange(min=1), metavar="SECONDS",
            help="How long one load is held and watched for what grows; 1800 unless given.", group=LOAD,
        ),
        GroupedOption(["seed", "--seed"], type=click.IntRange(0, 2**31 - 1), metavar="N", help="Seed of what is sent.", group=LOAD),
        GroupedOption(
            ["out", "-o", "--out"], type=click.Path(path_type=Path, file_okay=False), default=Path("experiment"),
            show_default=True, metavar="DIR", help="The folder of the files; an experiment in it is gone on with.", group=OUTPUT,
        ),
        GroupedOption(["fresh", "--fresh"], is_flag=True, help="Begin anew; what is in the folder is kept as DIR.1.", group=OUTPUT),
        json_option(),
        GroupedOption(
            ["html_file", "--html"], metavar="FILE", help="Write the page of the folder, report.html, into FILE too.", group=OUTPUT,
        ),
    ],
)  # fmt: skip
