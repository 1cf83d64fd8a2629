"""What a release gate comes to: every rule of a policy and what became of it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Kept(StrEnum):
    """What became of a rule."""

    KEPT = "kept"
    SHORT = "not kept"
    UNTOLD = "cannot be told"
    NOT_ASKED = "not asked"


class Reason(Struct, frozen=True, kw_only=True):
    """One rule and what became of it. `section` is where the policy has it; `decides` is whether the gate stays shut for it."""

    section: str
    rule: str
    kept: Kept
    why: str
    decides: bool = False


class Gated(Struct, frozen=True, kw_only=True):
    """All rules in the policy's order. `notes` are what to know of the comparison."""

    reasons: tuple[Reason, ...]
    notes: tuple[str, ...] = ()

    @property
    def passes(self) -> bool | None:
        """False where a rule that decides is not kept, None where none is and one that decides cannot be told."""
        shut = {reason.kept for reason in self.reasons if reason.decides}
        if Kept.SHORT in shut:
            return False
        return None if Kept.UNTOLD in shut else True
