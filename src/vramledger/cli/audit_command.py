"""`vramledger audit`."""

from __future__ import annotations

import click

from vramledger.cli.options import GENERAL, GroupedCommand, GroupedOption, json_option

_HELP = """The release checklist of a manifest: every item passed, failed or not evidenced, with the evidence.

What nobody evidenced is never passed; the page says what would evidence it."""

_EPILOG = """\b
Examples:
  vramledger audit release.json
  vramledger audit release.json --policy strict --json
  vramledger audit release.json --policy warn --require shards --require load

\b
Policies:
  release  nothing failed, and what a plan, the model's files and one start tell is passed
  strict   every item passed
  warn     the audit is shown; only items of --require decide

\b
Exit codes: 0 the policy lets it through, 14 it does not;
2 wrong input or a manifest that was changed, 4 unreadable source, 74 output not written.
"""
_POLICIES = ("release", "strict", "warn")


def run_audit(file: str, *, policy: str, required: tuple[str, ...], as_json: bool) -> int:
    """Read, check, print, and turn the policy into an exit code."""
    from vramledger.cli.document_files import manifest_from
    from vramledger.cli.exit_codes import AUDIT_FAILED, HOLDS
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.manifest.audit import Policy, audit, trips

    asked = Policy(policy)
    reading = manifest_from(file)
    found = audit(reading.document, policy=asked, required=required)
    if as_json:
        from vramledger.report.audit_document import audit_document

        write_document(audit_document(reading.document, found, policy=asked, file=file, notes=reading.notes))
    else:
        from vramledger.report.audit_text import audit_lines

        write_page(
            audit_lines(reading.document, found, policy=asked, notes=reading.notes, width=page_width())
        )
    return AUDIT_FAILED if trips(found, asked) else HOLDS


command = GroupedCommand(
    "audit",
    callback=run_audit,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["file"], metavar="FILE"),
        GroupedOption(
            ["policy", "--policy"],
            type=click.Choice(_POLICIES),
            default="release",
            help="What the exit code asks for; release unless given.",
            group=GENERAL,
        ),
        GroupedOption(
            ["required", "--require"],
            multiple=True,
            metavar="ITEM",
            help="An item that must be passed whatever the policy; may be given again.",
            group=GENERAL,
        ),
        json_option(),
    ],
)
