"""Bytes and the two unit systems people write them in.

Everything inside counts whole bytes. GiB (2**30) and GB (10**9) exist only in `format_*` and `parse_*`.
"""

from __future__ import annotations

import re

KIB = 2**10
MIB = 2**20
GIB = 2**30
TIB = 2**40

_SIZE = re.compile(r"\s*([0-9]{1,30})(?:\.([0-9]{1,30}))?\s*([a-zA-Z]*)\s*")
_BINARY = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB}
_DECIMAL = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def counted(count: int, noun: str) -> str:
    """ "1 request", "1,000 requests"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest whole number not below numerator / denominator."""
    return -(-numerator // denominator)


def round_up(value: int, multiple: int) -> int:
    """`value` raised to the next multiple of `multiple`."""
    return ceil_div(value, multiple) * multiple


def format_gib(size_bytes: int, digits: int = 2) -> str:
    """Bytes as "14.96 GiB"."""
    return f"{size_bytes / GIB:.{digits}f} GiB"


def format_bytes(size_bytes: int) -> str:
    """Bytes in the largest binary unit that leaves at least one whole unit, "393216 B" below 1 MiB."""
    magnitude = abs(size_bytes)
    if magnitude >= GIB:
        return format_gib(size_bytes)
    if magnitude >= MIB:
        return f"{size_bytes / MIB:.1f} MiB"
    return f"{size_bytes} B"


def parse_bytes(text: str) -> int:
    """A size as a person writes it ("80GiB", "16.0 GB", "1073741824") in bytes.

    Raises ValueError for anything else; GiB is 2**30 and GB is 10**9, never mixed.
    """
    match = _SIZE.fullmatch(text)
    unit = match.group(3).lower() if match else None
    factor = _BINARY.get(unit) or _DECIMAL.get(unit) if unit is not None else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a size; write a number with B, KiB, MiB, GiB, KB, MB or GB")
    digits = match.group(2) or ""
    scale: int = 10 ** len(digits)
    return int(match.group(1) + digits) * factor // scale
