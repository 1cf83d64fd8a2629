"""Which releases of SGLang word a log as it is worded: no start-up line names the release.

Each wording is of the releases whose sources were read and have it; a release between two of those may have either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vramledger.engines.sglang.version import NEWEST, OLDEST, SglangVersion, parse_version

_ANY = str(OLDEST), str(NEWEST)
_WORDINGS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), since or _ANY[0], until or _ANY[1])
    for pattern, since, until in (
        (r"server_args=\{", "0.5.19", ""),
        (r"server_args=ServerArgs\(", "", "0.5.18"),
        (r"Memory baseline taken\.", "0.5.21", ""),
        (r"Init torch distributed ends\. elapsed=", "0.5.9", "0.5.20"),
        (r"Init torch distributed ends\. mem usage=", "0.4.3.post4", "0.5.8"),
        (r"Load weight end\. elapsed=", "0.5.9", ""),
        (r"Load weight end\. type=.{1,300}mem usage=", "0.4.3.post4", "0.5.8"),
        (
            r"Load weight end\. type=[^=]{1,200}(?: dtype=[\w.]{1,60},)? avail mem=[0-9.]{1,20} GB$",
            "",
            "0.3.4",
        ),
        (r"^\[gpu_id=", "", "0.2.6"),
        (r"^\[gpu=", "0.2.10", "0.2.13"),
        (r"KV Cache is allocated\. dtype:", "0.5.13", ""),
        (r"KV Cache is allocated\. #tokens:", "0.4.3.post4", "0.5.12"),
        (r"available_[cg]pu_mem=", "0.4.7.post1", ""),
        (r"chunked_prefill_size=.{1,200}context_len=[0-9]{1,12}$", "0.4.3.post4", "0.4.6.post5"),
        (r"begin\. This can take up to several minutes\. avail mem", "0.4.3.post4", "0.5.13"),
        (r"begin\. backend=.{1,60}num_tokens_per_bs=", "0.5.14", "0.5.15"),
        (r"begin\. backend=.{1,60}num_tokens_per_req=", "0.5.18", ""),
        (r"end\. bs=\[", "0.5.22", ""),
    )
)


def releases(texts: Iterable[str]) -> tuple[SglangVersion, SglangVersion] | None:
    """The oldest and the newest release that word all these lines so; None where no line tells or they disagree."""
    since, until = OLDEST, NEWEST
    told = False
    for text in texts:
        for pattern, first, last in _WORDINGS:
            if pattern.search(text):
                since, until = max(since, parse_version(first)), min(until, parse_version(last))
                told = True
    return (since, until) if told and since <= until else None


def wording_note(texts: Iterable[str]) -> str | None:
    """What to tell of the release where the log does not name it."""
    found = releases(texts)
    if found is None:
        return None
    since, until = found
    if since == until:
        return f"worded as sglang {since}"
    if until == NEWEST:
        return f"worded as sglang {since} and newer"
    return f"worded as sglang {since} to {until}"
