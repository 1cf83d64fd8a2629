"""The KV pool that a vLLM log states. Every rank holds as many blocks as the smallest can."""

from __future__ import annotations

from vramledger.engines.vllm.log_instance import Instance
from vramledger.engines.vllm.log_said import evidence_of, said_by_rank
from vramledger.engines.vllm.pool_facts import budgeted_pool_bytes
from vramledger.evidence import Evidence, measured
from vramledger.ledger import ByteRange, Owner
from vramledger.measurement import Figure, MeasuredPool
from vramledger.observation import Event, Observation
from vramledger.pool import FloatRange, IntRange

WIDEST_BLOCK = 256
"""Tokens of a block where the log does not tell: backends take 16 to 256."""


def measured_pool(instance: Instance) -> MeasuredPool | None:
    """The pool, None where the log says nothing of it.

    A line of a rank counts if it is the smallest; one that overrides the number of blocks comes last. Tokens are what
    that release prints, which is no more than blocks x block size for one group of layers.
    """
    lines = [said for said in instance.observations if said.event is Event.KV_POOL]
    tokens = _smallest(lines, "kv_tokens")
    blocks = _smallest([said for said in lines if "profiled_blocks" not in said.values], "num_blocks")
    overrides = [said for said in lines if "profiled_blocks" in said.values]
    overridden = overrides[-1] if overrides else None
    if overridden is not None:
        blocks = overridden
    budget = _budget(instance)
    told = tokens or blocks
    evidence = evidence_of(told, instance) if told is not None else budget[1] if budget else None
    if evidence is None:
        return None
    num_blocks = _count(blocks, "num_blocks")
    num_tokens = _count(tokens, "kv_tokens")
    concurrency, context_len = _concurrency(lines)
    return MeasuredPool(
        evidence=evidence,
        bytes=None
        if budget is None or overridden is not None
        else _bytes(budget[0], num_blocks, num_tokens, instance),
        num_blocks=None if num_blocks is None else IntRange(num_blocks, num_blocks, num_blocks),
        block_size=instance.whole("block_size"),
        tokens=None if num_tokens is None else IntRange(num_tokens, num_tokens, num_tokens),
        max_concurrency=concurrency,
        context_len=context_len or instance.whole("max_model_len"),
    )


def pool_figures(instance: Instance, pool: MeasuredPool | None) -> tuple[Figure, ...]:
    """The pool's bytes as a figure of the ledger."""
    if pool is None or pool.bytes is None:
        return ()
    return (Figure(owners=(Owner.KV_CACHE,), name="KV pool", bytes=pool.bytes, evidence=pool.evidence),)


def _budget(instance: Instance) -> tuple[ByteRange, Evidence] | None:
    """Bytes left for the pool on the rank that has least, and what says so."""
    found = said_by_rank(instance, Event.KV_BUDGET, "kv_cache_bytes") or said_by_rank(
        instance, Event.PROFILE, "kv_cache_bytes"
    )
    if not found:
        return None
    least = min(found, key=lambda item: item.bytes.expected)
    if least.bytes.low < 0:
        nothing = ByteRange(0, max(least.bytes.expected, 0), max(least.bytes.high, 0))
        return nothing, measured(least.evidence.source, f"{least.bytes.expected} B left for the pool")
    asked = instance.whole("kv_cache_memory_bytes")
    size = ByteRange.exact(asked) if asked and least.bytes.low <= asked <= least.bytes.high else least.bytes
    return size, least.evidence


def _bytes(
    budget: ByteRange, num_blocks: int | None, num_tokens: int | None, instance: Instance
) -> ByteRange | None:
    """The budget cut to whole blocks. Where blocks are not printed there are at least tokens / block size."""
    if num_blocks is None:
        num_blocks = (num_tokens or 0) // (instance.whole("block_size") or WIDEST_BLOCK)
    return budgeted_pool_bytes(budget, num_blocks) if num_blocks > 0 else budget


def _smallest(lines: list[Observation], name: str) -> Observation | None:
    """The line with the least of a count; of equal ones the last."""
    counted = [said for said in lines if isinstance(said.values.get(name), int)]
    return min(reversed(counted), key=lambda said: _number(said, name), default=None)


def _number(said: Observation, name: str) -> int:
    value = said.values.get(name)
    return value if isinstance(value, int) else 0


def _count(said: Observation | None, name: str) -> int | None:
    return None if said is None else _number(said, name)


def _concurrency(lines: list[Observation]) -> tuple[FloatRange | None, int | None]:
    """The least printed concurrency, which has two digits, and the length that it is for."""
    least: tuple[float, Observation] | None = None
    for said in lines:
        value = said.values.get("max_concurrency")
        if isinstance(value, float) and (least is None or value <= least[0]):
            least = value, said
    if least is None:
        return None, None
    value, said = least
    length = said.values.get("context_len")
    return FloatRange(value - 0.005, value, value + 0.005), length if isinstance(length, int) else None
