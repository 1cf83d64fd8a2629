"""`vramledger diff`."""

from __future__ import annotations

import click

from vramledger.cli.options import OUTPUT, GroupedCommand, GroupedOption, json_option

_HELP = """What changed from release A to release B, in bytes, tokens and per cent, what decides first.

A and B are manifests, or plans of `vramledger plan --json`. Figures are expected ones of the fullest rank."""

_EPILOG = """\b
Examples:
  vramledger diff v1.json v2.json
  vramledger diff v1.json v2.json --fail-if 'kv_tokens < -2%' --fail-if 'weights > +1GiB'
  vramledger diff v1.json v2.json --fail-if 'kv_format != same' --fail-if 'peak.prefill > 0B'
  vramledger diff v1.json v2.json --list-quantities

\b
--fail-if NAME OPERATOR AMOUNT trips where the change from A to B is so: NAME is a quantity of
--list-quantities, OPERATOR one of < <= > >=, AMOUNT a per cent of A's value or an amount in the
quantity's unit (bytes with theirs: 1GiB, 512MiB, 16GB). NAME != same trips on any change, NAME ==
same on none. A quantity that one side does not know is no pass.

\b
Exit codes: 0 no threshold tripped, 13 one did, 11 none did and one cannot be told;
2 wrong input, 4 unreadable source, 74 output not written.
"""


def run_diff(
    before: str, after: str, *, expressions: tuple[str, ...], list_quantities: bool, as_json: bool
) -> int:
    """Compare, print, and turn tripped thresholds into an exit code."""
    from vramledger.cli.document_files import subject_from
    from vramledger.cli.exit_codes import HOLDS, THRESHOLD_TRIPPED, UNTOLD
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.manifest.difference import difference
    from vramledger.manifest.expression import parse_threshold
    from vramledger.manifest.quantities import quantities, value_of
    from vramledger.manifest.thresholds import Outcome, judge

    (old, old_side), (new, new_side) = subject_from(before), subject_from(after)
    known_before, known_after = quantities(old), quantities(new)
    known = {**known_before, **known_after}
    if list_quantities:
        from vramledger.report.diff_text import quantity_lines

        write_page(quantity_lines(known, width=page_width()))
        return HOLDS
    thresholds = [parse_threshold(text, known) for text in expressions]
    judged = tuple(
        judge(item, value_of(known_before, item.name), value_of(known_after, item.name))
        for item in thresholds
    )
    found = difference(old, new)
    if as_json:
        from vramledger.report.diff_document import diff_document

        write_document(diff_document(found, judged, before=old_side, after=new_side))
    else:
        from vramledger.report.diff_text import diff_lines

        write_page(diff_lines(found, judged, before=old_side.file, after=new_side.file, width=page_width()))
    outcomes = {item.outcome for item in judged}
    if Outcome.TRIPPED in outcomes:
        return THRESHOLD_TRIPPED
    return UNTOLD if Outcome.UNTOLD in outcomes else HOLDS


command = GroupedCommand(
    "diff",
    callback=run_diff,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["before"], metavar="A"),
        click.Argument(["after"], metavar="B"),
        GroupedOption(
            ["expressions", "--fail-if"],
            multiple=True,
            metavar="EXPRESSION",
            help="A change that is too much, such as 'kv_tokens < -2%'; may be given again.",
        ),
        GroupedOption(
            ["list_quantities", "--list-quantities"],
            is_flag=True,
            help="Names that --fail-if knows for these two, instead of the difference.",
            group=OUTPUT,
        ),
        json_option(),
    ],
)
