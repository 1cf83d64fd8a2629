"""TensorRT-LLM's log: its wordings, and what one start-up's lines mean in the ledger.

The PyTorch back end makes a temporary pool for its estimating run and prints it like the final one: only what follows the
last estimate counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from vramledger.engines.log_facts import StartUp, count_of, last_start, ranks_of, size_of, text_of
from vramledger.engines.printed_arguments import scalar
from vramledger.engines.tensorrtllm.log_figures import RankLines
from vramledger.engines.tensorrtllm.log_startup import SERVING, STARTUP
from vramledger.ledger import ByteRange
from vramledger.measurement import AllocatorState, Figure, MeasuredPool, Measurement
from vramledger.observation import Event, Observation

NAME = "tensorrt-llm"

SIGNS: tuple[str, ...] = (
    "[TensorRT-LLM]",
    "[TRT-LLM]",
    "TensorRT-LLM version: ",
    "TensorRT LLM version: ",
    "for max tokens in paged KV cache",
    "in memory usage profiling: ",
)

PATTERNS = (*STARTUP, *SERVING)

_ARGUMENT = re.compile(
    r"\b(model|tensor_parallel_size|pipeline_parallel_size|moe_expert_parallel_size|enable_attention_dp|max_batch_size|max_num_tokens|"
    r"max_seq_len|max_beam_width|free_gpu_memory_fraction|tokens_per_block|enable_block_reuse|kv_cache_dtype|attn_backend|moe_backend|"
    r"backend|capacity_scheduler_policy|enable_chunked_prefill|max_tokens|host_cache_size|cuda_graph_max_batch_size|disable_overlap_scheduler|"
    r"mamba_ssm_cache_dtype|max_gpu_total_bytes)['\"]?(?:=|: )(?:<[\w.]{1,60}: )?('[^']{0,400}'|[\w./-]{1,200})"
)


def measured(observations: Iterable[Observation]) -> Measurement:
    """What the last start-up states; of several ranks each its own figures, and the smallest pool."""
    start = last_start(observations, _begins)
    version = text_of(start.last("engine_version", Event.VERSION), "engine_version")
    settings = _settings(start)
    by_rank: dict[int | None, list[Observation]] = {}
    for item in start.said:
        by_rank.setdefault(item.rank, []).append(item)
    figures: list[Figure] = []
    pools: list[MeasuredPool] = []
    allocator: list[AllocatorState] = []
    for rank, said in sorted(by_rank.items(), key=lambda pair: -1 if pair[0] is None else pair[0]):
        reader = RankLines(said, ranks_of(rank), version)
        figures += reader.figures()
        pools += reader.pools()
        allocator += reader.free()
    total = start.last("total_bytes", Event.PROFILE, Event.MEMORY)
    notes = (f"the log holds {start.count} start-ups; this is the last",) if start.count > 1 else ()
    known = dict(settings)
    return Measurement(
        sources=start.sources,
        engine=NAME,
        engine_version=version,
        model=_text(known.get("model")),
        device_total_bytes=size_of(total, "total_bytes"),
        tp=_count(known.get("tensor_parallel_size")),
        pp=_count(known.get("pipeline_parallel_size")),
        ep=_count(known.get("moe_expert_parallel_size")),
        settings=settings,
        figures=tuple(figures),
        pools=_smallest(pools),
        allocator=tuple(allocator),
        notes=notes,
    )


def _begins(item: Observation, seen: AbstractSet[Event]) -> bool:
    """Every process prints the version before anything is loaded."""
    return item.event is Event.VERSION and (not seen or bool(seen & {Event.KV_POOL, Event.READY, Event.STEP}))


def _settings(start: StartUp) -> tuple[tuple[str, str | int | float | bool], ...]:
    """Arguments as printed; where they are not, the limits in force in the end (a length that the pool lowered, say)."""
    found: dict[str, str | int | float | bool] = {}
    for item in start.of(Event.SETTINGS):
        arguments = text_of(item, "arguments")
        pairs = _ARGUMENT.findall(arguments[:262_144]) if arguments is not None else ()
        for name, raw in pairs:
            value = scalar(raw)
            if value is not None and name not in found:
                found[name] = value
        if "limits" not in item.values and arguments is None:
            for name, printed in item.values.items():
                read = scalar(printed) if isinstance(printed, str) else printed
                if read is not None and not isinstance(read, ByteRange):
                    found[name] = read
    limits = start.last("limits", Event.SETTINGS)
    for name, limit in (limits.values if limits is not None else {}).items():
        if name != "limits" and name not in found and isinstance(limit, int):
            found[name] = limit
    sizes = start.last("block_size", Event.KV_BUDGET)
    block = count_of(sizes, "block_size")
    if block is not None:
        found["tokens_per_block"] = block
    fraction = start.last("fraction_ratio", Event.PROFILE, Event.KV_BUDGET)
    if fraction is not None and "free_gpu_memory_fraction" not in found:
        share = fraction.values["fraction_ratio"]
        if isinstance(share, float):
            found["free_gpu_memory_fraction"] = share
    return tuple(found.items())


def _smallest(pools: list[MeasuredPool]) -> tuple[MeasuredPool, ...]:
    best: dict[str, MeasuredPool] = {}
    for pool in pools:
        known = best.get(pool.kind)
        if known is None or _room(pool) < _room(known):
            best[pool.kind] = pool
    return tuple(best.values())


def _room(pool: MeasuredPool) -> tuple[float, float]:
    tokens = pool.tokens.expected if pool.tokens is not None else float("inf")
    return tokens, pool.bytes.expected if pool.bytes is not None else float("inf")


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
