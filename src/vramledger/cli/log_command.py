"""`vramledger log`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from vramledger.cli.options import GENERAL, GroupedCommand, GroupedOption, json_option

if TYPE_CHECKING:
    from vramledger.observation import Observation

_HELP = """What the log of an engine says: version, model, settings, memory by phase, service summed up, failure messages.

FILE... is one log, or the files of a rotated one from the oldest to the newest (gzip is unpacked); - is standard input.
Prefixes of containers, collectors, launchers and ranks are taken off; what could not be read is told."""

_EPILOG = """\b
Examples:
  vramledger log serve.log
  vramledger log log.2.gz log.1 log --json
  kubectl logs vllm-0 | vramledger log -
  vramledger log /var/log/vllm.log --follow
  vramledger log serve.log --engine sglang

\b
With --follow --json each line of the output is one observation of the document.
Exit codes: 0 read (whatever it says: `vramledger diagnose` judges failures);
2 wrong input, 4 unreadable source, 74 output not written, 130 interrupted.
"""
STEP_EVERY_S = 10.0


def run_log(files: tuple[str, ...], *, engine: str | None, follow: bool, as_json: bool) -> int:
    """Read, sum up, print; or print while it is written."""
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.cli.progress import Reading
    from vramledger.diagnosis.messages import FAILURES
    from vramledger.report.log_document import log_document
    from vramledger.report.log_text import log_lines
    from vramledger.telemetry.log_files import total_bytes
    from vramledger.telemetry.log_reading import read_log
    from vramledger.telemetry.log_tally import LogTally

    tally = LogTally()
    if follow:
        found = read_log(files, engine=engine, patterns=FAILURES, follow=True, tally=tally)
        return _follow(found, as_json=as_json)
    with Reading(total_bytes(files)) as reading:
        found = read_log(files, engine=engine, patterns=FAILURES, tally=tally, digest=True, read=reading.add)
        document = log_document(found, tally)
    if as_json:
        write_document(document)
    else:
        write_page(log_lines(document, width=page_width()))
    return 0


def _follow(found: Iterable[Observation], *, as_json: bool) -> int:
    """Each observation as it is made; on a page of the lines in service one in ten seconds."""
    import msgspec

    from vramledger.cli.output import escaped, page_width, write_page, write_text
    from vramledger.report.log_document import Phases, observation_document
    from vramledger.report.log_text import observation_lines
    from vramledger.telemetry.log_measurement import REPEATED

    phases = Phases()
    last_s = float("-inf")
    for observation in found:
        document = observation_document(observation, phases.of(observation.event))
        if as_json:
            write_text(escaped(msgspec.json.encode(document).decode()) + "\n")
            continue
        at_s = observation.at_s
        if observation.event in REPEATED and at_s is not None:
            if 0 <= at_s - last_s < STEP_EVERY_S:
                continue
            last_s = at_s
        write_page(observation_lines(document, width=page_width()))
    return 0


command = GroupedCommand(
    "log",
    callback=run_log,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["files"], metavar="FILE...", nargs=-1, required=True),
        GroupedOption(
            ["engine", "--engine"],
            metavar="NAME",
            help="Engine that wrote it; without it, those whose signs the log holds.",
            group=GENERAL,
        ),
        GroupedOption(
            ["follow", "--follow", "-f"],
            is_flag=True,
            help="Read on while the last FILE is written, also when it is rotated or truncated.",
            group=GENERAL,
        ),
        json_option(),
    ],
)
