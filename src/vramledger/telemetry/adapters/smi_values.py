"""Values as nvidia-smi prints them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from vramledger.units import GIB, KIB, MIB

_SIZE = re.compile(r"([0-9]{1,12})\s*(B|KiB|MiB|GiB)?")
_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, None: MIB}
_TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S %Y")
LONGEST_NAME = 200
MOST_BYTES = 2**50  # no device has a PiB; more is no size


def printed_size(text: str) -> int | None:
    """ "74321 MiB", "74321MiB", "74321" (MiB where units were left out) in bytes; None for "[N/A]" and the like."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    size = int(match.group(1)) * _UNITS[match.group(2)]
    return size if size < MOST_BYTES else None


def printed_time(text: str) -> float | None:
    """A time without a zone, read as UTC; None for what is none."""
    plain = " ".join(text.split())[:60]
    for form in _TIMES:
        try:
            return datetime.strptime(plain, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def printed_count(text: str) -> int | None:
    """A whole number; None for "N/A" and the like."""
    plain = text.strip()
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 12 else None
