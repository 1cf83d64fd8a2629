"""What no program here is known to say: a shortage in words of its own, or an error of which nobody knows what it means."""

from __future__ import annotations

import re

from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import part, wording
from vramledger.engines.log_pattern import LinePattern
from vramledger.observation import Event

UNNAMED = MessageKind(
    name="unnamed-shortage",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a line says that memory ran out, in words that are of no known program",
    source="any program, and reports in people's words",
    proves_memory=False,
)
RAISED = MessageKind(
    name="python-exception",
    domain=Domain.NONE,
    standing=Standing.EVIDENCE,
    meaning="a traceback ends in an error whose text is of no known shortage",
    source="Python's traceback module",
    proves_memory=False,
)
KINDS = (UNNAMED, RAISED)

_PARTS = (
    r"(?P<requested_sized>SIZE) (?:allocation|request)",
    r"(?:allocate|request(?:ed)?|need(?:s|ed)?)(?: ?[:=])? (?P<requested_sized>SIZE)",
    r"(?P<free_sized>SIZE) (?:is )?(?:free|available)",
    r"(?:free|available)(?: ?[:=]) ?(?P<free_sized>SIZE)",
    # Sizes of what, nobody knows; a reader of the line does.
    part(r"(?P<stated_sized>SIZE)", anywhere=True),
    part(r"SIZE.{1,160}?(?P<second_sized>SIZE)", anywhere=True),
    part(r"SIZE.{1,160}?SIZE.{1,160}?(?P<third_sized>SIZE)", anywhere=True),
    part(r"(?P<stated_tokens>NUM) tokens", anywhere=True),
)

# What could happen, or what to do about it.
_ADVICE = (
    r"\b(?:may|might|could|would|can|if|If|avoid|prevent|avoiding|issues?|e\.g\.|likely|consider|risk|possible|potential|"
    r"refusing|due to|disabled?|protect(?:ion|ed))\b|\?"
)

PATTERNS = (
    *(
        wording(UNNAMED, anchor, rf"\b{anchor}\b", *_PARTS, unless=_ADVICE)
        for anchor in ("out of memory", "Out of memory", "Out Of Memory", "OutOfMemory", "OOM")
    ),
    LinePattern(
        event=Event.FAILURE,
        anchor="Error",
        pattern=re.compile(
            r"\A\s{0,8}(?P<exception>(?:[A-Za-z_][A-Za-z0-9_]{0,60}\.){0,8}[A-Z][A-Za-z0-9]{0,60}Error)(?:: |\s{0,80}\Z)"
        ),
        source=RAISED.source,
        constants={"message": RAISED.name},
    ),
)
