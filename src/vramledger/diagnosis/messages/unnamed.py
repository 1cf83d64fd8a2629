"""What no program here is known to say: a shortage in words of its own."""

from __future__ import annotations

from vramledger.diagnosis.messages.kind import Domain, MessageKind, Standing
from vramledger.diagnosis.messages.wording import part, wording

UNNAMED = MessageKind(
    name="unnamed-shortage",
    domain=Domain.DEVICE,
    standing=Standing.CAUSE,
    meaning="a line says that memory ran out, in words that are of no known program",
    source="any program, and reports in people's words",
    proves_memory=False,
)
KINDS = (UNNAMED,)

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

PATTERNS = tuple(
    wording(UNNAMED, anchor, rf"\b{anchor}\b", *_PARTS, unless=_ADVICE)
    for anchor in ("out of memory", "Out of memory", "Out Of Memory", "OutOfMemory", "OOM")
)
