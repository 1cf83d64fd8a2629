"""A command as it may be kept and shown: without the keys, tokens and passwords that are named in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "…"
_NAMES = re.compile(r"(?i)(key|token|secret|passw(or)?d?|passphrase|credential|bearer)s?$")
_TOLD = re.compile(r"(?i)^(bearer\s+\S|(sk|hf|vl|ghp|glpat|xox[a-z])[-_]\w{3,})|authorization:")
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*@")
_NUMBER = re.compile(r"\d{1,9}")


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """What stands after a word that names a secret, and what looks like one, is "…". Limits of tokens (--max-num-batched-tokens 2048)
    stay: a count after a plural names none. Done twice it is as done once."""
    return tuple(_shown(words))


def _shown(words: Sequence[str]) -> Iterator[str]:
    flag = ""
    for word in words:
        name, equals, value = word.partition("=")
        if flag and not word.startswith("-") and not _is_count(flag, word):
            yield HIDDEN
            continue
        is_named = _NAMES.search(name) is not None
        flag = name if is_named and not equals and word.startswith("-") else ""
        if is_named and equals and value and not _is_count(name, value):
            yield f"{name}={HIDDEN}"
        elif _TOLD.search(value if equals else word) is not None:
            yield f"{name}={HIDDEN}" if equals else HIDDEN
        else:
            yield _IN_ADDRESS.sub(f"{HIDDEN}@", word)


def _is_count(name: str, value: str) -> bool:
    return name.lower().endswith("tokens") and _NUMBER.fullmatch(value) is not None
