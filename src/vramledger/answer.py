"""What planning gives: ledgers, pool, verdict, and what they were made from."""

from __future__ import annotations

from msgspec import Struct

from vramledger.ledger import Entry, RankLedger
from vramledger.pool import KvPool
from vramledger.verdict import Verdict


class PlanInputs(Struct, frozen=True, kw_only=True):
    """The question, in the terms it was answered in. `settings` are the engine's own names and values,
    defaults filled in."""

    model: str
    architecture: str
    quantization: str
    engine: str
    engine_version: str
    device: str
    device_total_bytes: int
    tp: int
    pp: int
    dp: int
    ep: int
    settings: tuple[tuple[str, str | int | float | bool], ...]


class Plan(Struct, frozen=True, kw_only=True):
    """A whole plan. Equal inputs give equal plans.

    `budget_bytes` is what the engine's utilisation knob allots on one device; `host` is what the instance keeps in
    host memory, over all its processes; `printed` are the memory lines of the engine's start-up log, worded as
    this version words them, with expected values.
    """

    inputs: PlanInputs
    budget_bytes: int
    ranks: tuple[RankLedger, ...]
    kv_pool: KvPool | None
    verdict: Verdict
    host: tuple[Entry, ...] = ()
    printed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
