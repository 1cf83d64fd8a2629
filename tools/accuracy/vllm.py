"""vLLM: predicted against printed, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from tools.accuracy.comparison import Comparison, LeftOut, Result, collected, scored
from tools.accuracy.data import ModelSet
from tools.accuracy.rows import problem
from tools.accuracy.vllm_cases import Case, newest_by_date, prepare, why_nothing

from vramledger.answer import Plan
from vramledger.engines.vllm.planner import plan
from vramledger.hardware.catalogue import Device, find_device
from vramledger.units import GIB

ENGINE = "vllm"
WEIGHTS = "weights GiB"
KV_GIB = "KV GiB"
TOKENS_GIVEN = "tokens from the stated KV GiB, log complete"
TOKENS_OPEN = "tokens from the stated KV GiB, log with gaps"
TOKENS = "tokens from scratch, 0.6.6 and newer"
TOKENS_OLD = "tokens from scratch, before 0.6.6"
CONCURRENCY = "max concurrency"
RULES_READ_SINCE = (6, 6)  # the oldest release whose source the rules were read from
FIELDS = (WEIGHTS, KV_GIB, TOKENS_GIVEN, TOKENS_OPEN, TOKENS, TOKENS_OLD, CONCURRENCY)


def run(rows: Sequence[Mapping[str, Any]], models: ModelSet) -> Result:
    """Every vLLM case."""
    history = newest_by_date(rows)

    def compared(row: Mapping[str, Any]) -> list[Comparison]:
        malformed = problem(row)
        if malformed:
            raise LeftOut(f"malformed case: {malformed}")
        case = prepare(row, models, history)
        if case.contradiction:
            raise LeftOut(f"the log contradicts itself: {case.contradiction}")
        found = compare(case)
        if not found:
            raise LeftOut(why_nothing(case))
        return found

    return collected(rows, compared)


def compare(case: Case) -> list[Comparison]:
    """Every field the case prints and its inputs allow. Raises what planning raises."""
    out: list[Comparison] = []
    said = case.reported
    device = case.device or find_device("80GiB")
    planned = _plan(case, device)
    if "weights_gib" in said and case.weights_known:
        out.append(_weights(case, planned))
    out += _given(case, device)
    if case.device is None or not case.weights_known:
        return out
    pool = planned.kv_pool
    fixed = case.flags.kv_cache_memory_bytes is not None
    if pool is None or fixed:
        return out
    if "kv_cache_gib" in said and said["kv_cache_gib"] > 0:
        low, middle, high = (count / GIB for count in (pool.bytes.low, pool.bytes.expected, pool.bytes.high))
        out.append(_scored(case, KV_GIB, said["kv_cache_gib"], (low, middle, high), 0.005))
    if "kv_tokens" in said or "gpu_blocks" in said:
        use_blocks = "kv_tokens" not in said
        figures = pool.num_blocks if use_blocks else pool.tokens
        printed = said["gpu_blocks"] if use_blocks else said["kv_tokens"]
        field = TOKENS if case.version.since(*RULES_READ_SINCE) else TOKENS_OLD
        out.append(_scored(case, field, printed, (figures.low, figures.expected, figures.high), 0.5))
    if "max_concurrency" in said:
        rate = pool.max_concurrency
        interval = (rate.low, rate.expected, rate.high)
        out.append(_scored(case, CONCURRENCY, said["max_concurrency"], interval, 0.005))
    return out


def _plan(case: Case, device: Device) -> Plan:
    return plan(case.checkpoint, device, version=case.version, parallel=case.parallel, flags=case.flags)


def _weights(case: Case, planned: Plan) -> Comparison:
    printed = case.reported["weights_gib"]
    predicted = [rank.weights.device_bytes.expected / GIB for rank in planned.ranks]
    nearest = max(predicted) if len(predicted) == 1 else min(predicted, key=lambda size: abs(size - printed))
    digits = len(str(printed).partition(".")[2])
    note = "" if len(predicted) == 1 else "nearest of the stages, the log does not say which"
    return _scored(
        case, WEIGHTS, printed, (nearest, nearest, nearest), 0.5 * 10 ** -max(digits, 2), note=note
    )


def _given(case: Case, device: Device) -> list[Comparison]:
    """Tokens (or blocks) for the KV bytes the log states, between the ends of its rounding."""
    said = case.reported
    fixed = case.flags.kv_cache_memory_bytes
    stated = said.get("kv_cache_gib")
    if stated is None and fixed is None:
        return []
    pairs = list(zip(said.get("kv_cache_gib_by_rank", ()), said.get("kv_tokens_by_rank", ()), strict=False))
    if not pairs:
        printed = said.get("kv_tokens", said.get("gpu_blocks"))
        if printed is None:
            return []
        pairs = [(stated, printed)]
    out = []
    for gib, printed in pairs:
        ends = (fixed, fixed) if fixed is not None else (int((gib - 0.005) * GIB), int((gib + 0.005) * GIB))
        low, high = (_tokens_for(case, device, end) for end in ends)
        middle = (low + high) / 2
        error = (
            0.0
            if low <= printed <= high
            else 100 * (min((low, high), key=lambda end: abs(end - printed)) - printed) / printed
        )
        out.append(
            Comparison(
                engine=ENGINE,
                case=case.id,
                field=TOKENS_OPEN if case.gaps else TOKENS_GIVEN,
                printed=printed,
                predicted=middle,
                low=low,
                high=high,
                error_percent=error,
                inside=low <= printed <= high,
                half_width_percent=50 * (high - low) / middle if middle else 0.0,
                note="; ".join(case.gaps),
            )
        )
    return out


def _tokens_for(case: Case, device: Device, size_bytes: int) -> int:
    flags = replace(case.flags, kv_cache_memory_bytes=max(size_bytes, 1))
    pool = plan(case.checkpoint, device, version=case.version, parallel=case.parallel, flags=flags).kv_pool
    if pool is None:
        return 0
    return pool.tokens.expected if "kv_tokens" in case.reported else pool.num_blocks.expected


def _scored(
    case: Case,
    field: str,
    printed: float,
    interval: tuple[float, float, float],
    rounding: float,
    note: str = "",
) -> Comparison:
    return scored(ENGINE, case.id, field, printed, interval, rounding, note or case.version_note)
