"""A release gate as GitHub shows it beside a change."""

from __future__ import annotations

from collections.abc import Iterator

from vramledger.manifest.gate_reason import Gated, Kept
from vramledger.report.text import safe

_TITLE = "vramledger gate"


def github_annotations(found: Gated, *, file: str) -> Iterator[str]:
    """GitHub's workflow commands, one line a rule that is not kept or cannot be told: an error where it decides, else a warning.

    https://docs.github.com/actions/reference/workflow-commands-for-github-actions (escapes: toolkit, core/src/command.ts)
    """
    for reason in found.reasons:
        if reason.kept not in (Kept.SHORT, Kept.UNTOLD):
            continue
        kind = "error" if reason.decides else "warning"
        word = "not kept" if reason.kept is Kept.SHORT else "cannot be told"
        yield (
            f"::{kind} file={_property(file)},title={_property(f'{_TITLE}: {reason.rule}')}"
            f"::{_data(f'{word}: {reason.why}')}"
        )


def _data(text: str) -> str:
    return safe(text.replace("\n", " ").replace("\r", " ")).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
