"""How a number is known."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class EvidenceKind(StrEnum):
    """Strongest first; a sum is only as strong as its weakest term."""

    MEASURED = "measured"
    REPORTED = "reported"
    CALCULATED = "calculated"
    ASSUMED = "assumed"


class Evidence(Struct, frozen=True, kw_only=True):
    """One number's origin.

    `formula` is the arithmetic with its inputs filled in; `source` names the rule or the observation
    (engine file and version, paper, data sheet, or how many observations and how they spread).
    """

    kind: EvidenceKind
    source: str
    formula: str = ""


def calculated(source: str, formula: str = "") -> Evidence:
    return Evidence(kind=EvidenceKind.CALCULATED, source=source, formula=formula)


def reported(source: str, formula: str = "") -> Evidence:
    return Evidence(kind=EvidenceKind.REPORTED, source=source, formula=formula)


def measured(source: str, formula: str = "") -> Evidence:
    return Evidence(kind=EvidenceKind.MEASURED, source=source, formula=formula)


def assumed(source: str, formula: str = "") -> Evidence:
    return Evidence(kind=EvidenceKind.ASSUMED, source=source, formula=formula)


def weakest(kinds: list[EvidenceKind]) -> EvidenceKind:
    """The kind a sum of such terms has; ASSUMED for an empty sum."""
    order = list(EvidenceKind)
    return max(kinds, key=order.index, default=EvidenceKind.ASSUMED)
