"""What a request missed, in a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from vramledger.experiment.load_figures import REFUSED
from vramledger.experiment.served import NS_PER_MS, Served
from vramledger.simulation.settings import Slo

FIRST_TOKEN = "time to first token"  # noqa: S105 - of an LLM
PER_TOKEN = "time per output token"  # noqa: S105
LATENCY = "latency"
REFUSAL = "refused"
FAILED = "failed"
DEADLINE = "deadline"


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


def _over(value_ns: int | None, limit_ms: float | None) -> bool:
    return value_ns is not None and limit_ms is not None and value_ns > limit_ms * NS_PER_MS
