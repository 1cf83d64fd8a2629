"""What people say of a failure where no program's message says it: a report, a note, a ticket.

Read in short texts only; words are weaker evidence than messages, and no answer rests surely on them. Each remark is a
notion of the six classes' definitions (memory that rises with time or requests, memory that stays held after something ended,
pieces instead of one run), in the words in which English speaks of it.
"""

from __future__ import annotations

import re

LONGEST_TEXT_BYTES = 64 * 2**10

_MEMORY = r"(?:memory|KV|blocks?|cache|VRAM|usage|RAM|RSS|bytes|footprint|out of memory|OOM|floor)"
_RISE = r"(?:grow(?:s|n|ing|th)?|ris(?:e|es|ing)|increas(?:e|es|ed|ing)|climb(?:s|ed|ing)?|creep(?:s|ing)?|leak(?:s|ed|ing)?|ratchet(?:s|ing)?|accumulat(?:e|es|ed|ing))"
_HELD = (
    r"(?:not freed|not released|never (?:freed|released|returned)|not (?:be )?(?:freed|released)|remains? (?:in use|allocated|held|occupied)"
    r"|still (?:in use|allocated|held|resident|occupied|holds?)|retained|held until|stays? at|kept (?:by|after)|has no effect|not given back|stranded|lingers?)"
)
_ENDING = (
    r"(?:wake[_ -]?up|wak(?:e|es|ing)\b|sleep(?:s|ing|_mode)?\b|resum(?:e|es|ed|ing)\b|unload(?:s|ed|ing)?\b|reload(?:s|ed|ing)?\b"
    r"|restart(?:s|ed|ing)?\b|releas(?:e|ed|ing)[_ ]?memory\w*|teardown|shut ?down|old (?:pod|process|instance|engine|server)"
    r"|previous (?:pod|process|instance|engine|server|model)|rolling update|orphan(?:s|ed)?\b|disconnect(?:s|ed)?\b|abort(?:s|ed)?\b|zombie)"
)


_SUBJECT = re.compile(
    r"\b(?:memory|VRAM|RAM|RSS|KV|OOM|OutOfMemory\w*|out of memory|caches?|blocks?|pools?|VMM|unload\w*|hangs?|bytes|[KMG]i?B)\b",
    re.IGNORECASE,
)


def symptoms(text: str) -> frozenset[str]:
    """The notions that a line of plain text names. Lines are short (4,000 characters at most are looked at)."""
    text = text[:4000]
    if not _SUBJECT.search(text):
        return frozenset()
    return frozenset(name for name, patterns in _NOTIONS if any(p.search(text) for p in patterns))


def _compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


_NOTIONS: tuple[tuple[str, tuple[re.Pattern[str], ...]], ...] = (
    (
        "growth",
        _compiled(
            rf"\b{_MEMORY}\b[^.;]{{0,60}}?\b{_RISE}\b",
            rf"\b{_RISE}\b[^.;]{{0,40}}?\b(?:memory|VRAM|RAM|RSS)\b",
            r"out of memory after (?:a while|some time|several|many|\d+ ?(?:h|hours?|min|days?|requests?|turns?|steps?))",
        ),
    ),
    (
        "recovery",
        _compiled(
            rf"\b{_HELD}\b",
            rf"\b(?:after|on|when|while|during|in|before)\b[^.;]{{0,40}}?\b{_ENDING}",
            rf"\b{_ENDING}[^.;]{{0,60}}?\b(?:out of memory|OOM|hang|hangs|fails?|no effect|not recover)",
            r"\bafter (?:an? )?(?:out of memory|OOM|crash)\b",
            r"\bmsg=\"?reloading runner",
            r"(?:didn't|did not|never) recover\b",
        ),
    ),
    (
        "prompt",
        _compiled(r"\bprompts?\b", r"prefill", r"\bpending-token\b", r"\blong (?:inputs?|contexts?)\b"),
    ),
    ("generation", _compiled(r"\bgenerat(?:e|es|ed|ing|ion)\b", r"\bdecod(?:e|es|ed|ing)\b")),
    (
        "in-service",
        _compiled(
            r"\bat run ?time\b",
            r"\bin (?:production|service)\b",
            r"\bload test\b",
            r"\bserver\b[^.;]{0,40}\b(?:remains|no longer|stops?) ",
        ),
    ),
    (
        "fragmented",
        _compiled(
            r"\bfragment(?:s|ed|ation|ing)?\b(?!.*PYTORCH)",
            r"\bremainders?\b",
            r"\bnon-?contiguous\b|\bnot contiguous\b",
        ),
    ),
    ("no-virtual-memory", _compiled(r"\bVMM: no\b", r"\bNO_VMM = 1\b")),
    ("startup", _compiled(r"\bstart-?up\b", r"\bat launch\b")),
    ("host", _compiled(r"\bhost memory\b", r"\bRSS\b", r"\bRAM\b")),
)
