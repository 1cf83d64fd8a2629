"""`vramledger gate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vramledger.cli.options import GENERAL, OUTPUT, GroupedCommand, GroupedOption, json_option

if TYPE_CHECKING:
    from vramledger.manifest.gate_policy import GatePolicy
    from vramledger.manifest.reader import Reading
    from vramledger.report.gate_document import GateSideDocument

_HELP = """Whether a release may go out: manifest NEW held against a policy, and against manifest OLD where it is given.

A policy is TOML: what NEW must keep by itself, which changes from OLD are too much, what the checklist and the experiment on
the live engine must say. A capacity that was measured is compared by its interval: overlapping intervals tell nothing,
and what cannot be told is a reason of its own."""

_EPILOG = """\b
Examples:
  vramledger gate released.json candidate.json
  vramledger gate released.json candidate.json --policy release-policy.toml --github
  vramledger gate candidate.json --policy floors.toml --json
  vramledger gate --print-policy > release-policy.toml

\b
Exit codes: 0 it passes, 18 a rule is not kept, 11 none is and one that decides cannot be told;
2 wrong input, a policy that cannot be read or a manifest that was changed, 4 unreadable source,
74 output not written.
"""


def run_gate(
    files: tuple[str, ...],
    *,
    policy_file: str | None,
    print_policy: bool,
    for_github: bool,
    exit_zero: bool,
    as_json: bool,
) -> int:
    """Read, judge, print, and turn the verdict into an exit code."""
    from vramledger.cli.exit_codes import GATE_SHUT, HOLDS, UNTOLD
    from vramledger.cli.output import page_width, write_document, write_page, write_text
    from vramledger.manifest.gate import gate
    from vramledger.manifest.gate_policy import DEFAULT_FILE, default_policy, default_policy_text

    if print_policy:
        if files or policy_file is not None:
            raise click.UsageError(
                "--print-policy prints the usual policy; it takes no manifest and no --policy."
            )
        write_text(default_policy_text())
        return HOLDS
    if not 1 <= len(files) <= 2:
        raise click.UsageError("give OLD and NEW, or NEW alone.")
    if as_json and for_github:
        raise click.UsageError("--json prints one document; leave out --github.")
    policy = default_policy() if policy_file is None else _policy(policy_file)
    (old, old_side), (new, new_side) = _sides(files)
    found = gate(
        new.document,
        policy,
        old=None if old is None else old.document,
        where=policy_file or DEFAULT_FILE,
    )
    if as_json:
        from vramledger.report.gate_document import gate_document

        write_document(gate_document(found, policy=policy_file or "", old=old_side, new=new_side))
    else:
        from vramledger.report.gate_annotations import github_annotations
        from vramledger.report.gate_text import gate_lines

        write_page(
            gate_lines(found, policy=policy_file or "", old=old_side, new=new_side, width=page_width())
        )
        if for_github:
            write_text("".join(f"{text}\n" for text in github_annotations(found, file=new_side.file)))
    if exit_zero or found.passes:
        return HOLDS
    return UNTOLD if found.passes is None else GATE_SHUT


def _policy(file: str) -> GatePolicy:
    from vramledger.cli.document_files import read_file
    from vramledger.manifest.gate_policy import read_policy
    from vramledger.models.sources.bounded_file import shown

    data, path = read_file(file)
    return read_policy(data, shown(path))


def _sides(
    files: tuple[str, ...],
) -> tuple[tuple[Reading | None, GateSideDocument | None], tuple[Reading, GateSideDocument]]:
    new = _side(files[-1])
    return ((None, None) if len(files) == 1 else _side(files[0])), new


def _side(file: str) -> tuple[Reading, GateSideDocument]:
    from vramledger.cli.document_files import manifest_from
    from vramledger.models.sources.bounded_file import path_of, shown
    from vramledger.report.gate_document import GateSideDocument

    reading = manifest_from(file)
    document = reading.document
    return reading, GateSideDocument(
        file=shown(path_of(file)),
        digest=document.digest,
        model_revision=document.model_revision,
        engine_revision=document.engine_revision,
        notes=reading.notes,
    )


command = GroupedCommand(
    "gate",
    callback=run_gate,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["files"], metavar="[OLD] NEW", nargs=-1),
        GroupedOption(
            ["policy_file", "--policy"],
            metavar="FILE",
            help="The policy, TOML; the usual one (--print-policy) unless given.",
            group=GENERAL,
        ),
        GroupedOption(
            ["print_policy", "--print-policy"],
            is_flag=True,
            help="Print the usual policy with its comments, to begin one's own with.",
            group=OUTPUT,
        ),
        GroupedOption(
            ["for_github", "--github"],
            is_flag=True,
            help="After the page also annotations for GitHub Actions: errors for what decides, warnings for the rest.",
            group=OUTPUT,
        ),
        GroupedOption(
            ["exit_zero", "--exit-zero"],
            is_flag=True,
            help="Exit with 0 whether it passes or not.",
            group=OUTPUT,
        ),
        json_option(),
    ],
)
