"""SGLang: predicted against printed, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from tools.accuracy.comparison import Comparison, LeftOut, Result, collected, scored
from tools.accuracy.data import ModelSet
from tools.accuracy.rows import problem
from tools.accuracy.sglang_cases import Case, prepare

from vramledger.engines.sglang.budget import RankTerms, largest_slot, rank_terms
from vramledger.engines.sglang.layers import draft_layers, unknown_pool
from vramledger.engines.sglang.planner import plan
from vramledger.engines.sglang.pools import Pools, max_requests, slots_per_request, solve
from vramledger.engines.sglang.settings import Settings, resolve
from vramledger.engines.sglang.sharding import rank_kinds
from vramledger.hardware.catalogue import Device, find_device
from vramledger.ledger import ByteRange
from vramledger.units import GIB

ENGINE = "sglang"
WEIGHTS = "weights GiB"
PRINTED_POOL = "tokens from the printed pool GiB"
TOKENS_GIVEN = "tokens from the stated free memory, one rank"
TOKENS_RANKS = "tokens from the stated free memory, one of several ranks"
WINDOWED = "windowed tokens of the printed full ones"
SLOTS = "recurrent slots from the printed GiB"
REQUESTS = "max_running_requests"
TOKENS = "tokens from scratch"
FIELDS = (WEIGHTS, PRINTED_POOL, TOKENS_GIVEN, TOKENS_RANKS, WINDOWED, SLOTS, REQUESTS, TOKENS)
ROUNDING_GIB = 0.005


def run(rows: Sequence[Mapping[str, Any]], models: ModelSet) -> Result:
    """Every SGLang case."""

    def compared(row: Mapping[str, Any]) -> list[Comparison]:
        malformed = problem(row)
        if malformed:
            raise LeftOut(f"malformed case: {malformed}")
        case = prepare(row, models)
        if case.contradiction:
            raise LeftOut(f"the log contradicts itself: {case.contradiction}")
        found = compare(case)
        if not found:
            raise LeftOut("it prints nothing that is predicted")
        return found

    return collected(rows, compared)


def compare(case: Case) -> list[Comparison]:
    """Every field the case prints and its inputs allow. Raises what planning raises."""
    device = case.device or find_device("80GiB")
    settings = resolve(case.checkpoint, device, case.version, case.flags)
    terms = [
        rank_terms(case.checkpoint, settings, device, kind)
        for kind in rank_kinds(case.checkpoint.model, settings, device)
    ]
    out: list[Comparison] = []
    said = case.reported
    if "weights_gib" in said and case.weights_known:
        out.append(_weights(case, device))
    if unknown_pool(case.checkpoint.model):
        return out
    out += _printed_pools(case, settings, terms)
    out += _given(case, settings, terms)
    if "swa_tokens" in said:
        out.append(_windowed(case, settings, terms))
    if "mamba_cache_slots" in said:
        out.append(_slots(case, settings, terms))
    if "max_running_requests" in said and "kv_tokens" in said:
        out.append(_requests(case, settings))
    if case.device is not None and case.weights_known and case.fraction_known and "kv_tokens" in said:
        out.append(_from_scratch(case, device))
    return out


def _weights(case: Case, device: Device) -> Comparison:
    """`Load weight end ... mem usage` of one rank of the first stage."""
    printed = case.reported["weights_gib"]
    held = [_held(case, device, grows) for grows in ((None, True) if device.vendor == "huawei" else (None,))]
    nearest = min(held, key=lambda size: abs(size.expected / GIB - printed))
    interval = (
        min(size.low for size in held) / GIB,
        nearest.expected / GIB,
        max(size.high for size in held) / GIB,
    )
    rounding = 2 * ROUNDING_GIB if "weights_derived" in case.reported else ROUNDING_GIB
    note = (
        "nearest of fixed and growing segments, the log does not say which"
        if len(held) > 1
        else case.version_note
    )
    return scored(ENGINE, case.id, WEIGHTS, printed, interval, rounding, note)


def _held(case: Case, device: Device, grows: bool | None) -> ByteRange:
    flags = replace(case.flags, expandable_segments=grows)
    return plan(case.checkpoint, device, version=case.version, flags=flags).ranks[0].weights.device_bytes


def _printed_pools(case: Case, settings: Settings, terms: list[RankTerms]) -> list[Comparison]:
    """Tokens that the printed sizes of each pool stand for, between the ends of their rounding."""
    cells = terms[0].cells
    kinds = [cells.plain_cell - cells.draft_bytes + cells.overdraft_bytes]
    if cells.is_hybrid_swa:
        kinds = [cells.swa_cell, cells.full_cell - cells.draft_bytes]
    elif draft_layers(case.checkpoint.model, settings) and cells.kind != "DSA":
        kinds.append(cells.full_bytes * draft_layers(case.checkpoint.model, settings))
    said = case.reported
    pools = list(said.get("kv_pools", ()))
    if not pools and "k_cache_gib" in said:
        pools = [{"tokens": said["kv_tokens"], "k_gib": said["k_cache_gib"], "v_gib": said["v_cache_gib"]}]
    out = []
    for pool, cell in zip(pools, kinds, strict=False):
        size = pool["kv_gib"] if "kv_gib" in pool else pool["k_gib"] + pool["v_gib"]
        slack = ROUNDING_GIB if "kv_gib" in pool else 2 * ROUNDING_GIB
        low, high = (int((size + side * slack) * GIB / cell) - settings.page_size for side in (-1, 1))
        out.append(_between(case, PRINTED_POOL, pool["tokens"], low, high))
    return out


def _given(case: Case, settings: Settings, terms: list[RankTerms]) -> list[Comparison]:
    """Tokens for the stated free memory before and after the load, between the ends of its rounding.

    Memory is the smallest of all ranks. Of several, a log shows one's free memory and another's weights; what is left
    is between the two.
    """
    said = case.reported
    if "avail_before_load_gib" not in said or "avail_after_load_gib" not in said or "kv_tokens" not in said:
        return []
    pre, avail = said["avail_before_load_gib"], said["avail_after_load_gib"]
    several = case.ranks > 1
    after = (avail, pre - said["weights_gib"]) if several and "weights_gib" in said else (avail, avail)
    low, high = (
        _solved(case, settings, terms, end(after) + side * ROUNDING_GIB, pre - side * ROUNDING_GIB).tokens
        for end, side in ((min, -1), (max, 1))
    )
    return [_between(case, TOKENS_RANKS if several else TOKENS_GIVEN, said["kv_tokens"], low, high)]


def _solved(
    case: Case, settings: Settings, terms: list[RankTerms], avail_gib: float, pre_gib: float
) -> Pools:
    return solve(avail_gib, pre_gib, [item.cells for item in terms], largest_slot(terms), settings)


def _windowed(case: Case, settings: Settings, terms: list[RankTerms]) -> Comparison:
    """The windowed pool that goes with the printed full one."""
    said = case.reported
    full = said["full_tokens"]
    exact = int(full * settings.swa_full_tokens_ratio) // settings.page_size * settings.page_size
    return _scored(case, WINDOWED, said["swa_tokens"], (exact, exact, exact), 0.5)


def _slots(case: Case, settings: Settings, terms: list[RankTerms]) -> Comparison:
    """Slots that the printed size of recurrent states stands for; one more is allocated."""
    said = case.reported
    slot = largest_slot(terms)
    assert slot is not None
    low, high = (
        int((said["mamba_ssm_gib"] + side * ROUNDING_GIB) * GIB / slot.state_bytes) - 1 for side in (-1, 1)
    )
    return _between(case, SLOTS, said["mamba_cache_slots"], low, high)


def _requests(case: Case, settings: Settings) -> Comparison:
    """The cap for the printed number of tokens."""
    said = case.reported
    slots = said.get("mamba_cache_slots")
    per_request = slots_per_request(settings) if slots is not None else 0
    count, _ = max_requests(said["kv_tokens"], slots, per_request, settings)
    return _scored(case, REQUESTS, said["max_running_requests"], (count, count, count), 0.5)


def _from_scratch(case: Case, device: Device) -> Comparison:
    planned = plan(case.checkpoint, device, version=case.version, flags=case.flags)
    assert planned.kv_pool is not None
    tokens = planned.kv_pool.tokens
    return _scored(
        case, TOKENS, case.reported["kv_tokens"], (tokens.low, tokens.expected, tokens.high), 0.5
    )  # fmt: skip


def _between(case: Case, field: str, printed: float, low: float, high: float) -> Comparison:
    """A figure whose own inputs are rounded: right where it lies between what their ends give."""
    middle = (low + high) / 2
    nearest = min((low, high), key=lambda end: abs(end - printed))
    inside = low <= printed <= high
    return Comparison(
        engine=ENGINE,
        case=case.id,
        field=field,
        printed=printed,
        predicted=middle,
        low=low,
        high=high,
        error_percent=0.0 if inside else 100 * (nearest - printed) / printed,
        inside=inside,
        half_width_percent=50 * (high - low) / middle if middle else 0.0,
        note=case.version_note,
    )


def _scored(
    case: Case, field: str, printed: float, interval: tuple[float, float, float], rounding: float
) -> Comparison:
    return scored(ENGINE, case.id, field, printed, interval, rounding, case.version_note)
