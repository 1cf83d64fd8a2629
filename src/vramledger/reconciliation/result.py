"""What a reconciliation finds, as values."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from vramledger.evidence import Evidence
from vramledger.ledger import ByteRange, Owner, Phase
from vramledger.pool import FloatRange, IntRange

Setting = str | int | float | bool
Number = int | float


class Standing(StrEnum):
    """Whether what was measured lies in what was predicted; untold where one of the two is not known."""

    INSIDE = "inside"
    OUTSIDE = "outside"
    UNTOLD = "untold"


class Section(StrEnum):
    LEDGER = "ledger"
    POOL = "pool"
    ALLOCATOR = "allocator"
    GRAPHS = "graphs"
    HOST = "host"


class Unit(StrEnum):
    BYTES = "bytes"
    BLOCKS = "blocks"
    TOKENS = "tokens"
    REQUESTS = "requests"


class Cause(StrEnum):
    """Why a figure is not where it was predicted."""

    OTHER_SETTING = "other setting than planned"
    OTHER_MODEL = "another model than planned"
    OTHER_DEVICE = "other device total than planned"
    OTHER_PROCESSES = "other processes on the device"
    WEIGHT_FORMAT = "weights held in another format"
    DRAFT = "draft model"
    ADAPTERS = "adapter slots"
    ACTIVATION = "activation peak beside its model"
    GRAPHS = "graph estimate beside the capture"
    OBSERVED_RANGE = "assumed range"
    CONSEQUENCE = "follows from other lines"
    ROUNDING = "rounding of the print"
    UNMEASURED = "lines that nothing measured"
    SMALLEST_RANK = "smallest of several ranks"
    UNACCOUNTED = "unaccounted"


class Interval(Struct, frozen=True):
    """At least, expected, at most; whole numbers except for requests at once. An exact figure has all three equal."""

    low: Number
    expected: Number
    high: Number

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


class Reason(Struct, frozen=True, kw_only=True):
    """One reason for a difference. `explains` is the part of the difference that goes away with it, in the line's unit and
    with the difference's sign, None where that was not computed; `is_tested` is whether a plan made anew under the measured
    setting shows it."""

    cause: Cause
    text: str
    evidence: tuple[str, ...] = ()
    explains: Number | None = None
    share: float | None = None
    is_tested: bool = False


class Line(Struct, frozen=True, kw_only=True):
    """One figure: predicted, measured, where it stands.

    `ranks` is the kind of rank whose ledger is spoken of, () for the instance. `entries` are names of the ledger's entries that
    the figure covers. `evidence` is the measurement's, None where nothing was measured. `phase` is when it was read.
    """

    section: Section
    name: str
    unit: Unit
    standing: Standing
    predicted: Interval | None = None
    measured: Interval | None = None
    ranks: tuple[int, ...] = ()
    owners: tuple[Owner, ...] = ()
    entries: tuple[str, ...] = ()
    phase: Phase | None = None
    evidence: Evidence | None = None
    reasons: tuple[Reason, ...] = ()

    @property
    def difference(self) -> Number | None:
        """Measured less predicted, expected values; None where one is not known."""
        if self.predicted is None or self.measured is None:
            return None
        return self.measured.expected - self.predicted.expected

    @property
    def beyond(self) -> Number | None:
        """By how much the measured range misses the predicted one, with the difference's sign; 0 inside."""
        if self.predicted is None or self.measured is None:
            return None
        if self.measured.low > self.predicted.high:
            return self.measured.low - self.predicted.high
        if self.measured.high < self.predicted.low:
            return self.measured.high - self.predicted.low
        return 0


class SettingDifference(Struct, frozen=True, kw_only=True):
    """A setting that plan and measurement state differently. `flag` is our engine's flag of it, None for what no flag sets."""

    name: str
    planned: Setting
    measured: Setting
    flag: str | None = None


class Budget(Struct, frozen=True, kw_only=True):
    """The pool recomputed with measured terms in place of calculated ones, on the rank that binds.

    `measured_terms` and `calculated_terms` name the charged entries by where their bytes come from now. Planned figures stand
    beside for comparison. `rule` says how bytes became blocks and tokens.
    """

    ranks: tuple[int, ...]
    budget_bytes: Interval
    planned_bytes: Interval
    pool_bytes: Interval
    num_blocks: Interval
    tokens: Interval
    max_concurrency: Interval
    measured_terms: tuple[str, ...]
    calculated_terms: tuple[str, ...]
    rule: str


class Reconciliation(Struct, frozen=True, kw_only=True):
    """A plan and a measurement side by side.

    `differences` are settings that differ, which explain the rest; `agreeing` the names of those that were compared and agree;
    `unknown_settings` were measured and have no flag here. `sources` are what was read.
    """

    model: str
    engine: str
    engine_version: str
    device: str
    sources: tuple[str, ...]
    differences: tuple[SettingDifference, ...]
    agreeing: tuple[str, ...]
    unknown_settings: tuple[str, ...]
    lines: tuple[Line, ...]
    budget: Budget | None
    notes: tuple[str, ...] = ()

    @property
    def standing(self) -> Standing:
        """OUTSIDE where a line is, else UNTOLD where weights lie elsewhere, else INSIDE where a line is, else UNTOLD."""
        found = {line.standing for line in self.lines}
        if Standing.OUTSIDE in found:
            return Standing.OUTSIDE
        return Standing.INSIDE if Standing.INSIDE in found and not self.elsewhere else Standing.UNTOLD

    @property
    def elsewhere(self) -> tuple[Line, ...]:
        """Measured weights that no line of the plan names, where the plan has weights that nothing measured: they lie on another
        device than planned."""
        weights = [line for line in self.section(Section.LEDGER) if line.owners == (Owner.WEIGHTS,)]
        if all(line.measured is not None for line in weights):
            return ()
        return tuple(line for line in weights if line.predicted is None)

    def section(self, section: Section) -> tuple[Line, ...]:
        """The lines of one section, in order."""
        return tuple(line for line in self.lines if line.section is section)


def interval(found: ByteRange | IntRange | FloatRange) -> Interval:
    return Interval(found.low, found.expected, found.high)


def standing_of(predicted: Interval | None, measured: Interval | None) -> Standing:
    """Inside where the two ranges meet: the print's rounding counts for the prediction."""
    if predicted is None or measured is None:
        return Standing.UNTOLD
    meets = measured.low <= predicted.high and predicted.low <= measured.high
    return Standing.INSIDE if meets else Standing.OUTSIDE
