"""What a request missed, in a word, and how near it came to that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from vramledger.experiment.load_figures import NS_PER_S, REFUSED
from vramledger.experiment.served import NS_PER_MS, Served
from vramledger.models.sources.bounded_file import shown
from vramledger.simulation.settings import Slo
from vramledger.units import counted

FIRST_TOKEN = "time to first token"  # noqa: S105 - of an LLM
PER_TOKEN = "time per output token"  # noqa: S105
LATENCY = "latency"
REFUSAL = "refused"
FAILED = "failed"
DEADLINE = "deadline"
MOST_TOLD = 3


def missed(row: Served, slo: Slo) -> str | None:
    """Of several aims the first that it could miss; None for a request that was served well."""
    if row.is_good(slo):
        return None
    waited_ns = row.end_ns - row.due_ns
    first_ns = row.ttft_ns if row.ttft_ns is not None else waited_ns
    if not row.whole and not row.left:
        return REFUSAL if row.status in REFUSED else FAILED
    if _over(first_ns, slo.ttft_ms):
        return FIRST_TOKEN
    if row.first_token_deadline_ns is not None and first_ns > row.first_token_deadline_ns:
        return DEADLINE
    if _over(row.tpot_ns, slo.tpot_ms):
        return PER_TOKEN
    return LATENCY if _over(waited_ns, slo.latency_ms) else DEADLINE


def misses(rows: Iterable[Served], slo: Slo) -> Counter[str]:
    """How many missed what."""
    return Counter(word for row in rows if (word := missed(row, slo)) is not None)


def failures_text(rows: Iterable[Served]) -> str:
    """Why requests failed, by the code that the engine gave and how often: "3 requests failed: 500 (2), silent (1)"; empty where none did."""
    found = Counter(
        row.error or f"status {row.status}"
        for row in rows
        if not row.whole and not row.left and row.status not in REFUSED
    )
    if not found:
        return ""
    told = ", ".join(f"{shown(why)} ({times:,})" for why, times in found.most_common(MOST_TOLD))
    return f"{counted(found.total(), 'request')} failed: {told}"


def closeness(row: Served, slo: Slo) -> float:
    """The largest share of an aim or a deadline that was used up, more than 1 where one was missed; infinite where no answer came. Without
    any aim the time that it took in seconds."""
    if not row.whole and not row.left:
        return inf
    waited_ns = row.end_ns - row.due_ns
    first_ns = row.ttft_ns if row.ttft_ns is not None else waited_ns
    limits = (
        (first_ns, _ns(slo.ttft_ms)),
        (row.tpot_ns, _ns(slo.tpot_ms)),
        (waited_ns, _ns(slo.latency_ms)),
        (first_ns, row.first_token_deadline_ns),
        (waited_ns, row.deadline_ns),
    )
    shares = [value / limit for value, limit in limits if value is not None and limit]
    return max(shares) if shares else waited_ns / NS_PER_S


def _ns(limit_ms: float | None) -> float | None:
    return None if limit_ms is None else limit_ms * NS_PER_MS


def _over(value_ns: int | None, limit_ms: float | None) -> bool:
    return value_ns is not None and limit_ms is not None and value_ns > limit_ms * NS_PER_MS
