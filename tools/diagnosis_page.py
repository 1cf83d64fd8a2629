"""Write docs/diagnosis.md: what a diagnosis reads, in which order it uses evidence, and every rule of it.

python -m tools.diagnosis_page
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vramledger.diagnosis.classify import LIKELY, LIKELY_MARGIN, RULES, SURE, SURE_MARGIN
from vramledger.diagnosis.facts import HOW_TO_LEARN
from vramledger.diagnosis.rule import Rule, Step

PAGE = Path(__file__).parents[1] / "docs" / "diagnosis.md"

_HEAD = """# How failures are diagnosed

This page is written by `python -m tools.diagnosis_page`.

`vramledger diagnose FILE...` reads logs of engines and containers, kernel logs, allocator snapshots, time series and notes,
each by what is in it, and joins them on time. Messages that belong together are one incident; its first cause, over all
ranks, is the earliest message that is no echo of another. Beside it stands the moment: the stage of the instance, the
running requests, the use of the pool, what came just before, trends, an engine that ran before.

The class is found in four steps, each by rules that are written down below. A rule speaks only where all that it needs is
known; those that could not are listed by `--explain`. What rules say is summed by class. A domain that decides ends the
question.

- high: a sum of at least {sure}, {sure_margin} more than the next class's, without what is only said in words
- medium: at least {likely}, and {likely_margin} more
- low: anything else that names a class; where no rule speaks the class cannot be told

A message that does not prove that memory was short (a killed process, a library that did not start) is never of high
confidence, and neither is what only a person's words tell.
"""
_STEPS = {
    Step.DOMAIN: "Domain: which memory, or none",
    Step.PHASE: "Phase: where in the instance's life",
    Step.ARITHMETIC: "Arithmetic: the message's own numbers",
    Step.TREND: "Trend: which way it went before",
}


def page() -> str:
    """The page's text."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD.format(sure=SURE, sure_margin=SURE_MARGIN, likely=LIKELY, likely_margin=LIKELY_MARGIN)
    for step, title in _STEPS.items():
        yield f"## {title}\n"
        yield "| rule | needs | says | because |"
        yield "| --- | --- | --- | --- |"
        for rule in RULES:
            if rule.step is step:
                yield _row(rule)
        yield ""
    yield "## What would make an answer surer\n"
    yield "| fact | where it is told |"
    yield "| --- | --- |"
    for name, where in HOW_TO_LEARN.items():
        yield f"| `{name}` | {where} |"


def _row(rule: Rule) -> str:
    says = ", ".join(f"{kind.value} {int(weight):+d}" for kind, weight in rule.says.items())
    name = f"`{rule.name}`" + (" (words)" if rule.by_words else "")
    return f"| {name} | {', '.join(f'`{need}`' for need in rule.needs)} | {says} | {rule.why} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
