"""What changed between two releases, in bytes, tokens and per cent."""

from __future__ import annotations

from msgspec import Struct

from vramledger.documents.plan import PlanDocument
from vramledger.manifest.document import ManifestDocument
from vramledger.manifest.quantities import quantities, value_of
from vramledger.manifest.quantity import Group, Quantity, Unit, Value

Subject = ManifestDocument | PlanDocument


class Change(Struct, frozen=True, kw_only=True):
    """One quantity that is not the same. `delta` is after less before, None where either is text or not known;
    `percent` is of what was before, None also where that is 0."""

    name: str
    group: Group
    unit: Unit
    about: str
    before: Value
    after: Value

    @property
    def delta(self) -> int | float | None:
        return _less(self.after, self.before)

    @property
    def percent(self) -> float | None:
        if self.delta is None or not isinstance(self.before, int | float) or self.before == 0:
            return None
        return 100 * self.delta / abs(self.before)


class Difference(Struct, frozen=True, kw_only=True):
    """Changes in the order of their groups, within a group the largest first. `same` are names of what is equal on both
    sides, `untold` of what neither knows."""

    changes: tuple[Change, ...]
    same: tuple[str, ...]
    untold: tuple[str, ...]
    conditions_gone: tuple[str, ...]
    conditions_new: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.changes or self.conditions_gone or self.conditions_new)


def difference(before: Subject, after: Subject) -> Difference:
    """From `before` to `after`. The other way round every delta has the other sign."""
    old, new = quantities(before), quantities(after)
    changes: list[Change] = []
    same: list[str] = []
    untold: list[str] = []
    for name in {**old, **new}:
        change = _change(name, old, new)
        if change.before is None and change.after is None:
            untold.append(name)
        elif change.before == change.after:
            same.append(name)
        else:
            changes.append(change)
    groups = list(Group)
    changes.sort(key=lambda item: (groups.index(item.group), *_weight(item), item.name))
    gone, come = _conditions(before), _conditions(after)
    return Difference(
        changes=tuple(changes),
        same=tuple(sorted(same)),
        untold=tuple(sorted(untold)),
        conditions_gone=tuple(text for text in gone if text not in come),
        conditions_new=tuple(text for text in come if text not in gone),
    )


def _conditions(document: Subject) -> tuple[str, ...]:
    plan = document.plan if isinstance(document, ManifestDocument) else document
    return plan.verdict.conditions


def _change(name: str, old: dict[str, Quantity], new: dict[str, Quantity]) -> Change:
    known = new.get(name) or old[name]
    return Change(
        name=name,
        group=known.group,
        unit=known.unit,
        about=known.about,
        before=value_of(old, name),
        after=value_of(new, name),
    )


_UNITS = (
    Unit.TEXT, Unit.RATE, Unit.TOKENS, Unit.BYTES, Unit.BLOCKS, Unit.REQUESTS, Unit.SECONDS, Unit.RATIO, Unit.COUNT,
)  # fmt: skip


def _weight(change: Change) -> tuple[float, int]:
    """Larger relative changes first, alike in both directions; what has no size before the rest."""
    if change.delta is None:
        return (float("-inf"), _UNITS.index(change.unit))
    assert isinstance(change.before, int | float)
    assert isinstance(change.after, int | float)
    scale = max(abs(change.before), abs(change.after))
    return (-abs(change.delta) / scale, _UNITS.index(change.unit))


def _less(after: Value, before: Value) -> int | float | None:
    if isinstance(after, int | float) and isinstance(before, int | float):
        return after - before
    return None
