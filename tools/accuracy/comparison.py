"""One figure that an engine printed beside the one that is predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from tools.accuracy.data import ModelSet

from vramledger.errors import VramledgerError


class Comparison(Struct, frozen=True, kw_only=True):
    """One field of one case. `error_percent` is signed, 0 where the printed value lies within what its own
    rounding allows; `inside` is whether it lies in our low..high, None for fields without an interval."""

    engine: str
    case: str
    field: str
    printed: float
    predicted: float
    low: float
    high: float
    error_percent: float
    inside: bool | None
    half_width_percent: float
    note: str = ""


class Result(Struct, frozen=True, kw_only=True):
    """What came of one engine's cases: comparisons, and the cases that could not be compared, each with its reason."""

    comparisons: tuple[Comparison, ...]
    refused: tuple[tuple[str, str], ...]


class EngineCases(Protocol):
    """What a module of one engine's cases offers. `FIELDS` are its figures in the order of the table."""

    ENGINE: str
    FIELDS: tuple[str, ...]

    def run(self, rows: Sequence[Mapping[str, Any]], models: ModelSet) -> Result:
        """Compare every case of the engine; none of them is left out without a reason."""
        ...


class LeftOut(Exception):
    """A case that is not compared; the message says why."""


def collected(
    rows: Iterable[Mapping[str, Any]], compare: Callable[[Mapping[str, Any]], Sequence[Comparison]]
) -> Result:
    """What `compare` finds in every row. A row that it leaves out, whose model has no config here (KeyError) or whose
    plan is refused, is kept with the reason."""
    comparisons: list[Comparison] = []
    refused: list[tuple[str, str]] = []
    for row in rows:
        try:
            comparisons += compare(row)
        except (LeftOut, KeyError) as error:
            refused.append((str(row.get("id")), str(error.args[0])))
        except VramledgerError as error:
            refused.append((str(row.get("id")), f"{error.code}: {error}"))
    return Result(comparisons=tuple(comparisons), refused=tuple(refused))


def scored(
    engine: str,
    case: str,
    field: str,
    printed: float,
    interval: tuple[float, float, float],
    rounding: float,
    note: str = "",
) -> Comparison:
    """A printed figure, known to within `rounding`, against low, expected and high."""
    low, predicted, high = interval
    difference = predicted - printed
    error = 0.0 if abs(difference) <= rounding else 100 * difference / max(abs(printed), rounding)
    return Comparison(
        engine=engine,
        case=case,
        field=field,
        printed=printed,
        predicted=predicted,
        low=low,
        high=high,
        error_percent=error,
        inside=None if low == high else low - rounding <= printed <= high + rounding,
        half_width_percent=50 * (high - low) / abs(predicted) if predicted else 0.0,
        note=note,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics; 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
