"""The licence that a distribution's own metadata states."""

from __future__ import annotations

import importlib.metadata
from email.message import Message

from cyclonedx.spdx import is_expression, is_supported_id

NOT_TOLD = "not told"

# As these write them in `License`, and what SPDX calls it.
_SPELLED = {"Apache 2.0": "Apache-2.0", "3-Clause BSD License": "BSD-3-Clause"}
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def licence_of(name: str) -> str:
    """An SPDX expression, else the words of its classifier ("BSD License"), else NOT_TOLD: also where it is not installed here."""
    try:
        # An email message in fact: a header may be there several times.
        metadata: Message = importlib.metadata.metadata(name)  # type: ignore[assignment]
    except importlib.metadata.PackageNotFoundError:
        return NOT_TOLD
    stated = metadata["License-Expression"] or metadata["License"] or ""
    stated = _SPELLED.get(stated, stated)
    if stated and is_spdx(stated):
        return str(stated)
    classified = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line.startswith("License :: ")
    ]
    return " and ".join(_CLASSIFIERS.get(words, words) for words in classified) or NOT_TOLD


def is_spdx(text: str) -> bool:
    """Whether every name in it is one of SPDX."""
    return len(text) < 200 and (is_supported_id(text) or is_expression(text))
